//! Anchors of the user's configuration, with real calls.

use std::fs;

use serde_json::Value;

use crate::desk::Desk;

/// A desk with a project and these anchors.
fn desk(anchors: &str) -> Desk {
    let desk = Desk::empty();
    desk.symbi(&["init", "project"]).expect(0);
    let vault = desk.path("vault");
    desk.configure(
        "config.toml",
        &anchors.replace("VAULT", vault.to_str().unwrap()),
    );
    desk
}

const COPY: [&str; 8] = [
    "--project",
    "project",
    "--json",
    "call",
    "copy_csv",
    "--arg",
    "input=data/example.csv",
    "--arg",
];

fn copy(desk: &Desk) -> crate::desk::Ended {
    desk.symbi(&[&COPY[..], &["output=out/copy.csv"]].concat())
}

#[test]
fn a_call_is_anchored_at_its_publication_and_its_end() {
    let desk = desk("[anchors.vault]\nfile = \"VAULT\"\nrequired = true\n");
    let ended = copy(&desk).expect(0);
    let said: Value = serde_json::from_str(&ended.stdout).unwrap();
    let run = said["run_id"].as_str().unwrap();
    let vault = fs::read_to_string(desk.path("vault")).unwrap();
    let journal = desk.verified_journal();
    assert!(
        vault
            .lines()
            .all(|line| journal.lines().any(|known| known == line))
    );
    assert_eq!(vault.lines().last(), journal.lines().last());
    assert!(
        vault.lines().count() >= 2,
        "its start and its end:\n{vault}"
    );
    desk.symbi(&[
        "--project",
        "project",
        "audit",
        "verify",
        run,
        "--require-anchor",
    ])
    .expect(0)
    .says("intact, anchored");
}

#[test]
fn a_failing_anchor_is_a_warning_and_a_required_one_stops_the_call_before_its_effect() {
    let failing = "[anchors.log]\ncommand = [\"false\"]\n";
    let lenient = desk(failing);
    copy(&lenient).expect(0).says("warning: the anchor `log`");
    assert!(lenient.project().join("out/copy.csv").exists());
    let strict = desk(&format!("{failing}required = true\n"));
    copy(&strict).expect(6).says("the anchor `log`");
    assert!(!strict.project().join("out/copy.csv").exists());
}
