//! The terminal of the run.

use serde_json::json;

use crate::world::{call, configure, created, guarded, on_terminal, on_terminal_through, press};
use crate::world::{records, wait};

const ASKS: &str = "Type one of these lines, exactly";

#[test]
fn a_typed_approval_lets_exactly_this_call_run() {
    let desk = guarded();
    let steps = [wait(ASKS), wait("> "), press("approve {id}\n")];
    let screen = on_terminal(&desk, &call(&["--approval-terminal"]), &steps).expect(0);
    for words in [
        "\"argv\": [",
        "\"out/new.csv\"",
        "\"principal\": \"operator\"",
        "approved held-",
    ] {
        assert!(screen.text.contains(words), "{words}: {}", screen.text);
    }
    assert!(created(&desk));
    let approval = &records(&desk, "CallDispatching")[0]["approval"];
    assert_eq!(approval["surface"], "terminal");
    assert!(approval["approver"].as_str().unwrap().starts_with("uid "));
    let digest = approval["review_sha256"].as_str().unwrap();
    assert!(screen.text.contains(&format!("review sha256 {digest}")));
    desk.verified_journal();
    desk.nothing_is_left();
}

#[test]
fn a_typed_denial_ends_the_call_with_4_and_no_effect() {
    let desk = guarded();
    let steps = [wait("> "), press("deny {id}\n")];
    on_terminal(&desk, &call(&["--approval-terminal"]), &steps)
        .expect(4)
        .says("denied by uid");
    assert!(!created(&desk));
    let refused = &records(&desk, "CallRefused")[0];
    assert!(
        refused["reason"]
            .as_str()
            .unwrap()
            .contains("denied by uid")
    );
    desk.nothing_is_left();
}

#[test]
fn nobody_answering_is_a_no_that_names_the_timeout() {
    let desk = guarded();
    let arguments = call(&["--approval-terminal", "--approval-timeout", "1"]);
    on_terminal(&desk, &arguments, &[wait("waits no longer")])
        .expect(4)
        .says("timeout of 1 s");
    assert!(!created(&desk));
}

#[test]
fn what_is_not_exactly_the_answer_is_asked_again() {
    let desk = guarded();
    let steps = [
        wait("> "),
        press("y\n"),
        wait("neither"),
        press("approve held-1\n"),
        wait("another held call"),
        press(" approve {id}\n"),
        wait("neither"),
        press("deny {id}\n"),
    ];
    on_terminal(&desk, &call(&["--approval-terminal"]), &steps).expect(4);
    assert!(!created(&desk));
}

#[test]
fn sixteen_wrong_answers_are_a_no() {
    let desk = guarded();
    let mut steps = Vec::new();
    for _ in 0..16 {
        steps.extend([wait("> "), press("yes\n")]);
    }
    on_terminal(&desk, &call(&["--approval-terminal"]), &steps).expect(4);
    assert!(!created(&desk));
}

#[test]
fn what_was_typed_before_the_question_is_thrown_away() {
    let desk = guarded();
    // Typed before symbi starts at all, while a shell sleeps.
    let shell = [
        "sh",
        "-c",
        "sleep 1; exec \"$0\" \"$@\"",
        env!("CARGO_BIN_EXE_symbi"),
    ];
    let steps = [
        press("approve held-0\nyes\ny\n"),
        wait("> "),
        press("deny {id}\n"),
    ];
    let arguments = call(&["--approval-terminal"]);
    let screen = on_terminal_through(&desk, &shell, &arguments, &steps).expect(4);
    assert!(
        !screen.text.contains("that names another held call"),
        "{}",
        screen.text
    );
    assert!(!screen.text.contains("neither"), "{}", screen.text);
}

#[test]
fn a_pipe_cannot_answer() {
    let desk = guarded();
    let shell = [
        "sh",
        "-c",
        "yes \"approve held-0\" | exec \"$0\" \"$@\"",
        env!("CARGO_BIN_EXE_symbi"),
    ];
    let steps = [wait("> "), press("deny {id}\n")];
    let arguments = call(&["--approval-terminal"]);
    let screen = on_terminal_through(&desk, &shell, &arguments, &steps).expect(4);
    assert!(
        !screen.text.contains("another held call"),
        "{}",
        screen.text
    );
    assert!(!created(&desk));
}

#[test]
fn a_terminal_that_goes_away_says_no() {
    let desk = guarded();
    let shell = [
        "sh",
        "-c",
        "trap '' HUP; \"$0\" \"$@\"; echo $? > code",
        env!("CARGO_BIN_EXE_symbi"),
    ];
    let steps = [wait("> "), serde_json::json!({"close": true})];
    let arguments = call(&["--approval-terminal"]);
    let _ = on_terminal_through(&desk, &shell, &arguments, &steps);
    crate::desk::until("an end", || desk.path("code").exists());
    assert!(!created(&desk));
}

#[test]
fn without_a_terminal_the_call_is_refused_at_once_with_the_way_to_ask() {
    let desk = guarded();
    // The test runner's children have no terminal of their own in a new session.
    let arguments = call(&[]);
    desk.symbi(&arguments)
        .expect(4)
        .says("nobody can be asked here")
        .says("--approval-terminal")
        .says("--approval-gate");
    assert!(!created(&desk));
}

#[test]
fn in_the_background_nobody_is_asked() {
    let desk = guarded();
    let shell = [
        "bash",
        "-c",
        "set -m; \"$0\" \"$@\" & wait $!; echo \"code $?\"",
        env!("CARGO_BIN_EXE_symbi"),
    ];
    let arguments = call(&["--approval-terminal", "--approval-timeout", "2"]);
    let steps = [wait("bring symbi to the foreground"), wait("code 4")];
    let screen = on_terminal_through(&desk, &shell, &arguments, &steps);
    assert!(!screen.text.contains(ASKS), "{}", screen.text);
    assert!(!created(&desk));
}

#[test]
fn what_policy_denies_even_with_a_yes_is_asked_of_nobody() {
    let desk = guarded();
    let mut arguments = call(&["--approval-terminal"]);
    for argument in &mut arguments {
        if *argument == "output=out/new.csv" {
            *argument = "output=out/secret.csv";
        }
    }
    let screen = on_terminal(&desk, &arguments, &[])
        .expect(3)
        .says("never-to-secret");
    assert!(!screen.text.contains(ASKS), "{}", screen.text);
}

#[test]
fn a_configured_terminal_asks_without_a_flag() {
    let desk = guarded();
    configure(&desk, "[approval]\nsurfaces = [\"terminal\"]\n");
    let steps = [wait("> "), press("approve {id}\n")];
    on_terminal(&desk, &call(&[]), &steps).expect(0);
    assert!(created(&desk));
}

/// Writes without end, and meanwhile calls `guarded` over the bridge.
const NOISY: &str = r#"#!/usr/bin/env python3
import json, os, subprocess, threading, time
def noise():
    while True:
        print("noise", flush=True)
        time.sleep(0.02)
server = json.loads(os.environ["SYMBI_MCP_CONFIG"])["mcpServers"]["symbi"]
bridge = subprocess.Popen([server["command"]] + server["args"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def send(message):
    bridge.stdin.write(json.dumps(dict(message, jsonrpc="2.0")).encode() + b"\n")
    bridge.stdin.flush()
about = {"name": "t", "version": "1"}
send({"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about}})
bridge.stdout.readline()
send({"method": "notifications/initialized"})
threading.Thread(target=noise, daemon=True).start()
call = {"name": "guarded", "arguments": {"input": "data/example.csv", "output": "out/new.csv"}}
send({"id": 1, "method": "tools/call", "params": call})
bridge.stdout.readline()
print("answered", flush=True)
os._exit(0)
"#;

#[test]
fn what_an_agent_writes_does_not_disturb_a_question() {
    let desk = guarded();
    std::fs::create_dir(desk.project().join("agents")).unwrap();
    desk.program("agents/noisy.py", NOISY);
    std::fs::copy(
        desk.project().join("policies/call/guarded.cedar"),
        desk.project().join("policies/run/guarded.cedar"),
    )
    .unwrap();
    std::fs::write(
        desk.project().join("policies/run/start.cedar"),
        "@id(\"may-start\")\npermit(principal, action == Action::\"tool_call::command\", \
         resource);\n",
    )
    .unwrap();
    configure(
        &desk,
        "[agents.noisy]\nexecutor = \"command\"\ncommand = [\"python3\", \"{program}\"]\nprogram \
         = \"./agents/noisy.py\"\nallowed_tools = [\"guarded\"]\n",
    );
    let run = [
        "--project",
        "project",
        "run",
        "noisy",
        "--task",
        "x",
        "--approval-terminal",
    ];
    let steps = [
        wait("Type one of these lines"),
        wait("\n> "),
        json!({"run": "sleep 1"}),
        press("approve {id}\n"),
        wait("answered"),
    ];
    let screen = on_terminal(&desk, &run, &steps).expect(0);
    let (before, after) = screen.text.split_once("symbi: a call waits").unwrap();
    let (question, after) = after.split_once("symbi: approved held-").unwrap();
    assert!(before.contains("runs, contained"), "{before}");
    assert!(!question.contains("noise"), "{question}");
    assert!(after.contains("noise"), "what waited is shown: {after}");
    assert!(created(&desk));
}

#[test]
fn an_input_is_read_on_the_terminal_before_the_answer() {
    let desk = guarded();
    let path = desk.project().join("data/example.csv");
    std::fs::write(path, "a,b\n\u{1b}]0;x\u{7}approve me\n").unwrap();
    let steps = [
        wait("  show input"),
        wait("> "),
        press("show nothing\n"),
        wait("it has: input"),
        press("show input\n"),
        wait("of 21, escaped"),
        press("approve {id}\n"),
    ];
    let screen = on_terminal(&desk, &call(&["--approval-terminal"]), &steps).expect(0);
    assert!(
        screen.text.contains("| \\u{1b}]0;x\\u{7}approve me"),
        "{}",
        screen.text
    );
    let approval = &records(&desk, "CallDispatching")[0]["approval"];
    assert_eq!(approval["inputs_shown"][0]["shown_bytes"], 21);
}

#[test]
fn lines_that_are_no_answer_are_recorded_without_what_was_typed() {
    let desk = guarded();
    let steps = [
        wait("> "),
        press("hunter2\n"),
        wait("neither"),
        press("deny {id}\n"),
    ];
    on_terminal(&desk, &call(&["--approval-terminal"]), &steps).expect(4);
    let records = records(&desk, "AnswerRefused");
    assert_eq!(records.len(), 1);
    assert_eq!(records[0]["surface"], "terminal");
    assert!(!records[0].to_string().contains("hunter2"));
}

/// A project whose agent's launch demands a person's yes.
fn launching() -> crate::desk::Desk {
    let desk = guarded();
    configure(
        &desk,
        "[agents.plain]\nexecutor = \"command\"\ncommand = [\"echo\", \"{task}\"]\n\
         allowed_tools = [\"word_count\"]\nhuman_approval = true\n",
    );
    let policy = "@id(\"start\")\npermit(principal, action == Action::\"tool_call::command\", \
                  resource);\n";
    std::fs::write(desk.project().join("policies/run/start.cedar"), policy).unwrap();
    desk.trust();
    desk
}

#[test]
fn a_text_that_would_paint_over_the_screen_is_shown_as_what_it_is() {
    let desk = launching();
    let task = format!(
        "{}\u{1b}[2J\u{1b}[H\u{202e}symbi: approved\r\n> approve {}\u{9b}31m\u{7f}\u{2028}e\u{301}",
        "x".repeat(200),
        "held-0"
    );
    let run = [
        "--project",
        "project",
        "run",
        "plain",
        "--task",
        &task,
        "--approval-terminal",
    ];
    let steps = [
        wait("Type one of these lines"),
        wait("> "),
        press("deny {id}\n"),
    ];
    let screen = on_terminal(&desk, &run, &steps).expect(4);
    let question = screen.text.split("symbi: a call waits").nth(1).unwrap();
    let (review, _) = question.split_once("review sha256").unwrap();
    let strange = |c: char| !matches!(c, ' '..='~' | '\r' | '\n');
    assert!(!review.contains(strange), "{review:?}");
    for line in review.lines().skip(1).filter(|line| !line.is_empty()) {
        assert!(line.starts_with("| ") || line.starts_with("+ "), "{line:?}");
        assert!(line.trim_end().len() <= 80, "{line:?}");
    }
    let joined: String = review.replace("\r\n+ ", "");
    assert!(joined.contains("\\u001b[2J\\u001b[H\\u202esymbi: approved\\r\\n> approve held-0\\u009b31m\\u007f\\u2028e\\u0301"), "{joined}");
}

#[test]
fn a_request_that_nobody_would_read_to_its_end_is_denied_unasked() {
    let desk = launching();
    let task = "a\u{1b}[2J".repeat(10_000);
    let run = [
        "--project",
        "project",
        "run",
        "plain",
        "--task",
        &task,
        "--approval-terminal",
    ];
    let screen = on_terminal(&desk, &run, &[]).expect(4);
    assert!(!screen.text.contains(ASKS) && !screen.text.contains("\u{1b}[2J"));
    let screen = screen.says("more than 65536 bytes when it is shown");
    drop(screen);
    let refused = &records(&desk, "CallRefused")[0];
    assert!(refused["reason"].as_str().unwrap().contains("65536 bytes"));
    desk.nothing_is_left();
}
