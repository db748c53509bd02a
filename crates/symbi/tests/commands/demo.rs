//! `symbi demo` as its users start it.

use std::fs;
use std::io::{BufRead as _, BufReader};

use serde_json::Value;

use crate::desk::{Desk, interrupt};

#[test]
fn the_demonstration_goes_as_it_must_and_leaves_nothing() {
    let desk = Desk::empty();
    let ended = desk.symbi(&["demo"]).expect(0);
    for words in [
        "created out/report.csv",
        "denied by environment-stays-unseen",
        "advice: ask the operator",
        "journal: intact",
        "All of it went as it must",
    ] {
        assert!(ended.stdout.contains(words), "{words}: {}", ended.stdout);
    }
    assert!(!ended.stdout.contains('\u{1b}') && !ended.stdout.contains("FAILED"));
    assert_eq!(ended.stderr, "");
    desk.nothing_is_left();
    for folder in ["config", "state", "run", "tmp"] {
        let mut entries = fs::read_dir(desk.path(folder)).unwrap();
        assert!(entries.next().is_none(), "{folder}");
    }
}

#[test]
fn the_demonstration_is_one_json_object_with_every_check() {
    let desk = Desk::empty();
    let ended = desk.symbi(&["demo", "--json"]).expect(0);
    let said: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(said["passed"], true);
    let checks = said["checks"].as_array().unwrap();
    assert!(checks.len() > 30 && checks.iter().all(|check| check["ok"] == true));
    assert_eq!(said["report"]["rows"], said["packages"]);
    assert_eq!(said["verdict"], "intact");
}

#[test]
fn a_kept_project_can_be_audited() {
    let desk = Desk::empty();
    let ended = desk
        .symbi(&["demo", "--keep", "project", "--json"])
        .expect(0);
    let said: Value = serde_json::from_str(&ended.stdout).unwrap();
    let run = said["run_id"].as_str().unwrap();
    let report = fs::read_to_string(desk.project().join("out/report.csv")).unwrap();
    assert_eq!(report.lines().next(), Some("name,version,source,checksum"));
    desk.verified_journal();
    desk.symbi(&["--project", "project", "audit", "list"])
        .expect(0)
        .says(run)
        .says("intact");
    desk.symbi(&["--project", "project", "audit", "show", run])
        .expect(0)
        .says("REFUSED at authorize");
    let key = said["public_key"].as_str().unwrap();
    let journal = said["journal"].as_str().unwrap();
    desk.symbi(&["audit", "verify", journal, "--public-key", key])
        .expect(0);
    desk.nothing_is_left();
    assert!(fs::read_dir(desk.path("config")).unwrap().next().is_none());
    // Once more into the same folder: nothing is overwritten.
    desk.symbi(&["demo", "--keep", "project"])
        .expect(2)
        .says("not empty");
}

#[test]
fn any_lock_file_can_be_the_input() {
    let desk = Desk::empty();
    let lock = "version = 4\n\n[[package]]\nname = \"one, \\\"two\\\"\"\nversion = \"1.0\"\n";
    fs::write(desk.path("Other.lock"), lock).unwrap();
    desk.symbi(&["demo", "--lock", "Other.lock", "--keep", "project"])
        .expect(0);
    let report = fs::read_to_string(desk.project().join("out/report.csv")).unwrap();
    assert_eq!(
        report,
        "name,version,source,checksum\n\"one, \"\"two\"\"\",1.0,,\n"
    );
}

#[test]
fn an_input_that_is_no_lock_file_is_refused_before_anything_is_made() {
    let desk = Desk::empty();
    fs::write(desk.path("bad.lock"), "name = [").unwrap();
    desk.symbi(&["demo", "--lock", "bad.lock", "--keep", "project"])
        .expect(2)
        .says("bad.lock");
    desk.symbi(&["demo", "--lock", "gone.lock", "--keep", "project"])
        .expect(2)
        .says("gone.lock");
    assert!(!desk.project().exists());
    desk.nothing_is_left();
}

#[test]
fn the_demonstration_takes_no_project() {
    let desk = Desk::empty();
    desk.symbi(&["--project", ".", "demo"])
        .expect(2)
        .says("--keep");
}

#[test]
fn ctrl_c_ends_the_demonstration_and_leaves_nothing() {
    let desk = Desk::empty();
    let mut child = desk.start(&["demo"]);
    let mut first = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("project  ") {
        line.clear();
        assert!(first.read_line(&mut line).unwrap() > 0, "no project");
    }
    // The agent is about to start, or runs.
    child.stdout = Some(first.into_inner());
    interrupt(child).expect(1).says("interrupted");
    desk.nothing_is_left();
}

#[test]
fn what_a_killed_demonstration_left_goes_with_the_next_one() {
    let desk = Desk::empty();
    let mut child = desk.start(&["demo"]);
    let mut first = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("project  ") {
        line.clear();
        assert!(first.read_line(&mut line).unwrap() > 0, "no project");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fs::read_dir(desk.path("tmp")).unwrap().count(), 1);
    desk.symbi(&["demo"]).expect(0);
    desk.nothing_is_left();
}

const ORDINARY: u32 = 1001;

#[test]
fn the_demonstration_goes_as_it_must_as_an_ordinary_user() {
    // Whoever is no root has run it as an ordinary user above.
    if rustix::process::geteuid().is_root() {
        let desk = Desk::empty().given_to(ORDINARY, &["symbi", "symbi-init"]);
        desk.symbi(&["demo"])
            .expect(0)
            .says("All of it went as it must");
        desk.nothing_is_left();
    }
}

#[test]
fn without_isolation_nothing_is_made() {
    if rustix::process::geteuid().is_root() {
        // The helper is not beside the program.
        let desk = Desk::empty().given_to(ORDINARY, &["symbi"]);
        desk.symbi(&["demo", "--keep", "project"])
            .expect(7)
            .says("symbi-init");
        assert!(!desk.project().exists());
        desk.nothing_is_left();
    }
}
