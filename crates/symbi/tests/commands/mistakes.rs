//! What a newcomer types and writes by mistake: the exit code, and what to do about it.

use std::fs;

use crate::desk::{Desk, Ended};

const HELPER: &str = "[agents.helper]\nexecutor = \"command\"\ncommand = [\"true\"]\n\
                      allowed_tools = [\"word_count\"]\n";

const RUN: &str = "01a2303b-4992-75fa-b48c-1e7c2c4554ac";
/// Exit code, words, and a part of what is said.
const LINES: &[(i32, &[&str], &str)] = &[
    (
        2,
        &["call", "word_count", "input=data/a"],
        "--arg input=VALUE",
    ),
    (2, &["call", "word_count", "--args", "input=x"], "'--arg'"),
    (
        2,
        &["call", "word_count", "--arg", "input"],
        "write it as --arg NAME=VALUE",
    ),
    (3, &["call", "word_cuont"], "did you mean `word_count`?"),
    (3, &["call", "word_count"], "give it a value"),
    (
        3,
        &["call", "word_count", "--arg", "inptu=x"],
        "did you mean `input`?",
    ),
    (
        3,
        &["call", "word_count", "--arg", "input=a b"],
        "take it out",
    ),
    (
        3,
        &["call", "word_count", "--arg", "input=a;b"],
        "only `literal_text`",
    ),
    (
        2,
        &["run", "helpr", "--task", "x"],
        "did you mean `helper`?",
    ),
    (2, &["run", "helper", "--task", " "], "--task TEXT"),
    (
        2,
        &["run", "helper", "--task", "x", "--max-calls", "0"],
        "from 1 to 1000",
    ),
    (2, &["tools", "validate", "absent.toml"], "correct the path"),
    (2, &["tools", "validate", "project"], "name a plain file"),
    (2, &["policy", "test", "absent.toml"], "correct the path"),
    (2, &["audit", "verify", "absent.jsonl"], "symbi audit list"),
    (2, &["audit", "show", RUN], "symbi audit list"),
    (2, &["audit", "prove", RUN, "1"], "symbi audit list"),
    (
        2,
        &["audit", "check-proof", "absent.json"],
        "correct the path",
    ),
    (
        6,
        &["audit", "check-proof", "project/symbiont.toml"],
        "symbi audit prove",
    ),
    (
        2,
        &["invocation", "inspect", "--id", "x"],
        "like 01a2303b-4992",
    ),
    (2, &["init", "absent/a/b"], "correct the path"),
];

fn in_project(desk: &Desk, words: &[&str]) -> Ended {
    desk.symbi(&[&["--project", "project"], words].concat())
}

#[test]
fn every_refused_command_line_says_what_to_do() {
    let desk = Desk::with_agents(HELPER);
    desk.trust();
    for (code, words, says) in LINES {
        in_project(&desk, words).expect(*code).says(says);
    }
    for (place, says) in [
        (
            "absent",
            "help: name a project's folder, or make a project: symbi init",
        ),
        ("project/symbiont.toml", "help: name the folder that holds"),
    ] {
        desk.symbi(&["--project", place, "tools", "list"])
            .expect(2)
            .says(says);
    }
}

#[test]
fn as_json_the_help_stands_apart_from_the_error() {
    let desk = Desk::empty();
    let ended = desk
        .symbi(&["--project", "absent", "tools", "list", "--json"])
        .expect(2);
    let told: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(told["error"], "there is no folder `absent`");
    let help = told["help"].as_str().unwrap();
    assert!(help.starts_with("name a project's folder"), "{help}");
}

#[test]
fn a_tool_that_an_agent_cannot_have_is_named_where_it_stands() {
    let desk = Desk::with_agents(&HELPER.replace("word_count", "wordcount"));
    let line = fs::read_to_string(desk.project().join("symbiont.toml")).unwrap();
    let line = line.lines().count();
    in_project(&desk, &["trust", "--yes"])
        .expect(2)
        .says(&format!(
            "symbiont.toml:{line}:18: `[agents.helper]`: the project has no tool"
        ))
        .says("help: did you mean `word_count`?");
}

#[test]
fn a_refused_launch_has_its_advice_on_a_line_of_its_own() {
    let desk = Desk::with_agents(HELPER);
    fs::write(desk.project().join("policies/run/agents.cedar"), "").unwrap();
    desk.trust();
    in_project(&desk, &["run", "helper", "--task", "x"])
        .expect(3)
        .says("nothing permits `command` to `helper`\n  advice: to allow it, add a policy");
}

#[test]
fn what_a_configuration_of_servers_says_is_refused_by_all_that_read_it() {
    let desk = Desk::with_agents(HELPER);
    desk.trust();
    let servers = desk.project().join("mcp-config.toml");
    fs::write(servers, "[servers.x]\ncommand = \"x\"\n").unwrap();
    for words in [&["trust", "--yes"][..], &["tools", "validate"]] {
        in_project(&desk, words)
            .expect(2)
            .says("mcp-config.toml:1:2: nothing reads `servers`")
            .says("help: remove it");
    }
}
