//! `symbi doctor` on this machine.

use serde_json::Value;

use crate::desk::Desk;

#[test]
fn the_tier_is_tried_and_what_the_others_lack_is_told() {
    let desk = Desk::empty();
    let ended = desk.symbi(&["doctor"]).expect(0);
    assert!(
        ended
            .stdout
            .starts_with("namespace: available, and it does what it says\n")
    );
    for words in [
        "holds   egress",
        "holds   descendants",
        "holds   stop",
        "docker: ",
        "remedy: ",
    ] {
        assert!(ended.stdout.contains(words), "{words}: {}", ended.stdout);
    }
    desk.nothing_is_left();
}

#[test]
fn as_json_each_probe_has_its_verdict() {
    let ended = Desk::empty().symbi(&["doctor", "--json"]).expect(0);
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(
        (&found["available"], &found["sound"]),
        (&true.into(), &true.into())
    );
    let probes = found["probes"].as_array().unwrap();
    assert_eq!(probes.len(), 13, "{found}");
    for probe in probes {
        let verdict = probe["verdict"].as_str().unwrap();
        assert!(["holds", "partly"].contains(&verdict), "{probe}");
    }
    let others = found["others"].as_array().unwrap();
    let tiers: Vec<&str> = others
        .iter()
        .map(|it| it["tier"].as_str().unwrap())
        .collect();
    assert_eq!(tiers, ["docker", "gvisor", "firecracker"]);
}

#[test]
fn a_tier_that_is_not_there_is_exit_7_with_its_reason() {
    let desk = Desk::with_agents("");
    let config = desk.project().join("symbiont.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    assert!(text.contains("[sandbox]\n"), "{text}");
    let text = text.replace(
        "[sandbox]\n",
        "[sandbox]\ninit = \"/nonexistent/symbi-init\"\n",
    );
    std::fs::write(config, text).unwrap();
    let ended = desk.symbi(&["--project", "project", "doctor"]).expect(7);
    assert!(
        ended.stdout.contains("namespace: NOT available: "),
        "{}",
        ended.stdout
    );
    assert!(
        ended.stdout.contains("/nonexistent/symbi-init"),
        "{}",
        ended.stdout
    );
}

#[test]
fn the_apparmor_profile_names_the_helper_that_is_used() {
    let ended = Desk::empty()
        .symbi(&["doctor", "--apparmor-profile"])
        .expect(0);
    let helper = std::path::Path::new(env!("CARGO_BIN_EXE_symbi")).with_file_name("symbi-init");
    let line = format!(
        "profile symbi-init \"{}\" flags=(unconfined)",
        helper.display()
    );
    assert!(ended.stdout.contains(&line), "{}", ended.stdout);
}
