//! A state folder that is another one than before: the project's key is not in it.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use crate::desk::{Desk, Ended};

fn project() -> Desk {
    let desk = Desk::empty();
    desk.symbi(&["init", "project"]).expect(0);
    desk
}

fn call(desk: &Desk, name: &str) -> Ended {
    let output = format!("output=out/{name}.csv");
    let input = ["--arg", "input=data/example.csv", "--arg", &output];
    desk.symbi(&[&["--project", "project", "call", "copy_csv"], &input[..]].concat())
}

fn audit(desk: &Desk, words: &[&str]) -> Ended {
    desk.symbi(&[&["--project", "project", "audit"], words].concat())
}

/// As after a change of XDG_STATE_HOME: the state of before is in `before`.
fn move_state(desk: &Desk) {
    fs::rename(desk.path("state"), desk.path("before")).unwrap();
    fs::DirBuilder::new()
        .mode(0o700)
        .create(desk.path("state"))
        .unwrap();
    desk.trust();
}

fn key(desk: &Desk, state: &str) -> PathBuf {
    let mut keys = fs::read_dir(desk.path(state).join("symbi/keys")).unwrap();
    keys.next().unwrap().unwrap().path()
}

#[test]
fn beside_a_ledger_of_another_key_none_is_made_and_nothing_runs_until_the_old_one_is_back() {
    let desk = project();
    call(&desk, "one").expect(0);
    let verifier = audit(&desk, &["key"]).expect(0).stdout;
    let verifier = verifier.lines().next().unwrap();
    // Its third part is base64, which may have a `+` too.
    let name: Vec<&str> = verifier.splitn(3, '+').take(2).collect();
    let name = name.join("+");
    move_state(&desk);
    for _ in 0..2 {
        call(&desk, "two")
            .expect(6)
            .says("signing key is not at")
            .says(&format!("its ledger is signed by `{name}`"))
            .says("if XDG_STATE_HOME was changed, set it back");
    }
    audit(&desk, &["list"])
        .expect(6)
        .says("signing key is not at");
    assert_eq!(
        fs::read_dir(desk.path("state/symbi/keys")).unwrap().count(),
        0
    );
    assert!(!desk.project().join("out/two.csv").exists());
    let journal = desk.journals()[0].display().to_string();
    audit(&desk, &["verify", &journal, "--public-key", verifier]).says("intact");
    let old = key(&desk, "before");
    let back = desk.path("state/symbi/keys").join(old.file_name().unwrap());
    fs::copy(&old, back).unwrap();
    call(&desk, "two").expect(0);
    let listed = audit(&desk, &["list", "--strict"]).expect(0);
    assert_eq!(listed.stdout.matches("intact").count(), 2);
}

#[test]
fn with_the_key_lost_a_new_history_begins_where_the_old_one_is_moved_away() {
    let desk = project();
    call(&desk, "one").expect(0);
    move_state(&desk);
    call(&desk, "two")
        .expect(6)
        .says("move the project's .symbiont away");
    fs::rename(desk.project().join(".symbiont"), desk.path("old")).unwrap();
    desk.trust();
    let told = call(&desk, "two").expect(0);
    assert!(!told.stderr.contains("warning"), "{}", told.stderr);
    audit(&desk, &["list", "--strict"]).expect(0);
}

#[test]
fn a_new_key_beside_journals_without_a_ledger_is_told_once() {
    let desk = project();
    call(&desk, "one").expect(0);
    fs::remove_file(desk.project().join(".symbiont/ledger.jsonl")).unwrap();
    move_state(&desk);
    let told = call(&desk, "two").expect(0);
    assert_eq!(
        told.stderr.matches("is a new key").count(),
        1,
        "{}",
        told.stderr
    );
    let told = call(&desk, "three").expect(0);
    assert!(!told.stderr.contains("is a new key"), "{}", told.stderr);
}

#[test]
fn a_project_without_a_history_gets_its_key_in_silence() {
    let desk = project();
    let told = call(&desk, "one").expect(0);
    assert!(!told.stderr.contains("key"), "{}", told.stderr);
    assert!(key(&desk, "state").is_file());
}

#[test]
fn a_ledger_of_another_key_than_the_one_that_is_there_says_what_may_have_happened() {
    let (desk, other) = (project(), project());
    for it in [&desk, &other] {
        call(it, "one").expect(0);
    }
    fs::copy(key(&other, "state"), key(&desk, "state")).unwrap();
    call(&desk, "two")
        .expect(6)
        .says("where XDG_STATE_HOME was changed, set it back")
        .says("keep the file for an investigation");
    assert!(!desk.project().join("out/two.csv").exists());
}
