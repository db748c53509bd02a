//! What the operator sees of a run while it goes on.

use std::io::{BufRead as _, BufReader};

use serde_json::Value;
use testkit::provider::{ScriptedProvider, Turn};

use crate::desk::{Desk, interrupt};
use crate::run::{asking, counting, provider};

fn events(stderr: &str) -> Vec<Value> {
    stderr
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn what_an_agent_writes_is_there_before_it_ends_and_once() {
    let desk = Desk::with_agents(
        "[agents.slow]\nexecutor = \"command\"\ncommand = [\"sh\", \"-c\", \"echo first; sleep \
         300\"]\nallowed_tools = [\"word_count\"]\n",
    );
    desk.trust();
    let mut child = desk.start(&["--project", "project", "run", "slow", "--task", "wait"]);
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "first\n");
    let (ours, theirs) = std::io::pipe().unwrap();
    drop(theirs);
    child.stdout = Some(std::process::ChildStdout::from(std::os::fd::OwnedFd::from(
        ours,
    )));
    interrupt(child).expect(1).says("agent: failed");
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut stdout, &mut rest).unwrap();
    assert_eq!(rest, "", "its words are not said again at the end");
}

#[test]
fn in_a_pipe_each_call_is_a_line_with_its_budget() {
    let ended = counting(2).run("counter", &["--max-calls", "7"]).expect(0);
    for words in [
        "counter runs, contained",
        "call 1 of 7: word_count: wc",
        "call 2 of 7: word_count: wc",
        "word_count: succeeded (",
    ] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    assert!(!ended.stderr.contains('\u{1b}') && !ended.stderr.contains('\r'));
}

#[test]
fn as_json_the_events_are_lines_on_stderr_and_stdout_is_one_object() {
    let ended = counting(1).run("counter", &["--json"]).expect(0);
    let whole: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(whole["status"], "succeeded");
    let events = events(&ended.stderr);
    let told: Vec<String> = events
        .iter()
        .filter(|event| event["event"] == "call")
        .map(|event| format!("{} {}", event["tool"], event["step"]).replace('"', ""))
        .collect();
    assert_eq!(
        told,
        [
            "command prepared",
            "command running",
            "word_count prepared",
            "word_count running",
            "word_count ended",
            "command ended",
        ]
    );
    let ended = events.iter().find(|event| event["status"] == "succeeded");
    assert_eq!(ended.unwrap()["tool"], "word_count");
    assert!(events.iter().all(|event| event["at_ms"].is_u64()));
    let output: Vec<&Value> = events.iter().filter(|it| it["event"] == "output").collect();
    assert_eq!(output.len(), 1);
    assert!(output[0]["text"].as_str().unwrap().contains("succeeded"));
}

#[test]
fn requests_to_the_model_are_told_with_what_they_reserve() {
    let desk = asking();
    let mut first = true;
    let model = ScriptedProvider::interactive(move |_, _| match std::mem::take(&mut first) {
        true => Turn::status(529, "overloaded_error"),
        false => Turn::text("hello"),
    });
    let model = model.unwrap();
    provider(&desk, &model.url());
    let ended = desk.run("asker", &["--budget-tokens", "30"]).expect(0);
    for words in [
        "model: request 1 of 64, 9 of 30 output tokens reserved",
        "model: the provider answered 529",
        "model: request 3 of 64, 27 of 30 output tokens reserved",
        "model: refused: ",
    ] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    assert!(!ended.stderr.contains("request 4 of"), "{}", ended.stderr);
}

#[test]
fn turns_are_counted_by_a_client_that_we_know_only() {
    counting(1)
        .run("counter", &["--max-turns", "3"])
        .expect(2)
        .says("`--max-turns` means nothing to the agent `counter`");
}
