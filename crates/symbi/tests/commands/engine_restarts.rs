//! A real engine that is killed under a worker, and started again: with its owner, and without.
//! `./test` has the image; the engine is this test's own.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Signal, geteuid};
use sandbox::engine::{ContainerFilter, Engine};

use crate::containers::{add_tool, on_both, on_engine, told};
use crate::desk::{Desk, send, until, wait};

/// What a container may outlive its lease by, once supervisor and engine live: five seconds, and
/// as much again on a machine with other work.
const AT_MOST: Duration = Duration::from_secs(10);
/// Exit code of what cannot be known.
const UNCONFIRMED: i32 = 5;
/// Copies the image of one engine to another.
const COPY: &str = "curl -sf --unix-socket \"$0\" \"http://engine/images/$2/get\" | \
                    curl -sf --unix-socket \"$1\" -X POST -H 'Content-Type: application/x-tar' \
                    -T - 'http://engine/images/load?quiet=1'";

/// An engine that may be killed.
struct OwnEngine {
    folder: PathBuf,
}

impl OwnEngine {
    fn new() -> Self {
        // Short: a socket is in it.
        let folder = tempfile::tempdir().unwrap().keep();
        let engine = Self { folder };
        engine.script("start");
        let sockets = [told("SYMBI_TEST_ENGINE"), engine.socket()];
        let image = told("SYMBI_TEST_IMAGE");
        let words = [
            &["bash", "-c", COPY],
            &[&sockets[0], &sockets[1], &*image][..],
        ];
        as_root(&words.concat());
        engine
    }

    fn socket(&self) -> String {
        self.folder.join("engine.sock").to_str().unwrap().to_owned()
    }

    fn script(&self, action: &str) {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/test-engine.sh");
        as_root(&[script, action, self.folder.to_str().unwrap()]);
    }

    /// The states of all its containers.
    fn containers(&self) -> Vec<String> {
        let all = ContainerFilter::default().with_label("symbi.lease");
        let found = Engine::at(self.socket()).list(&all).unwrap();
        found.into_iter().map(|it| it.state).collect()
    }
}

impl Drop for OwnEngine {
    fn drop(&mut self) {
        self.script("stop");
    }
}

fn as_root(words: &[&str]) {
    let sudo: &[&str] = match geteuid().is_root() {
        true => &[],
        false => &["sudo", "-n"],
    };
    let words = [sudo, words].concat();
    let ended = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(ended.status.success(), "{words:?}: {ended:?}");
}

fn with_a_slow_tool(tier: &str, engine: &OwnEngine) -> Desk {
    let desk = on_engine(tier, &told("SYMBI_TEST_IMAGE"), &engine.socket(), "");
    add_tool(&desk, "slow", 60, &["sleep", "600"], "");
    desk.trust();
    desk
}

/// Nothing of a worker is left soon after the engine answers again.
fn is_cleaned(desk: &Desk, engine: &OwnEngine) {
    let answers = Instant::now();
    until("no container, and no lease", || {
        let status = desk.symbi(&["sandbox", "status"]).expect(0);
        engine.containers().is_empty() && status.stdout.contains("capacity: 0 of")
    });
    assert!(answers.elapsed() < AT_MOST, "{:?}", answers.elapsed());
    engine.script("left");
    desk.symbi(&[
        "--project",
        "project",
        "call",
        "word_count",
        "--arg",
        "input=data/example.csv",
    ])
    .expect(0);
}

fn an_engine_that_dies_under_a_worker_leaves_its_call_unconfirmed_and_nothing_else(tier: &str) {
    let engine = OwnEngine::new();
    let desk = with_a_slow_tool(tier, &engine);
    let call = desk.start(&["--project", "project", "call", "slow"]);
    until("the worker runs", || engine.containers() == ["running"]);
    engine.script("kill");
    wait(call)
        .expect(UNCONFIRMED)
        .says("the container engine could not be asked to remove the container")
        .says("symbi invocation inspect --id ");
    let journal = desk.verified_journal();
    let run = journal.split("\"run\":\"").nth(1).unwrap();
    let run = run.split('"').next().unwrap();
    desk.symbi(&["--project", "project", "invocation", "inspect", "--id", run])
        .says("invocation resolve --id");
    engine.script("start");
    is_cleaned(&desk, &engine);
}

fn an_engine_that_dies_with_the_owner_of_its_worker_comes_back_without_it(tier: &str) {
    let engine = OwnEngine::new();
    let desk = with_a_slow_tool(tier, &engine);
    let call = desk.start(&["--project", "project", "call", "slow"]);
    until("the worker runs", || engine.containers() == ["running"]);
    engine.script("kill");
    send(&call, Signal::KILL);
    wait(call);
    engine.script("start");
    is_cleaned(&desk, &engine);
}

on_both!(
    an_engine_that_dies_under_a_worker_leaves_its_call_unconfirmed_and_nothing_else,
    an_engine_that_dies_with_the_owner_of_its_worker_comes_back_without_it,
);
