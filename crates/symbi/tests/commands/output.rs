//! What goes out on stdout and stderr, whatever the command.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};

use serde_json::{Value, json};

use crate::desk::{Desk, Ended, interrupt, until};

fn project() -> Desk {
    let desk = Desk::empty();
    desk.symbi(&["init", "project"]).expect(0);
    desk
}

#[track_caller]
fn object(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap()
}

const CALL: [&str; 7] = [
    "--project",
    "project",
    "call",
    "copy_csv",
    "--arg",
    "input=data/example.csv",
    "--json",
];

#[test]
fn output_that_is_lost_is_a_storage_error() {
    let desk = project();
    let call = [&CALL[..], &["--arg", "output=out/copy.csv"]].concat();
    let commands: [&[&str]; 6] = [
        &call,
        &["--version"],
        &["--help"],
        &["--project", "project", "policy", "check"],
        &["--project", "project", "tools", "list", "--json"],
        &["--nonsense", "--json"],
    ];
    for command in commands {
        desk.shell("\"$0\" \"$@\" >/dev/full", command)
            .expect(6)
            .says("standard output could not be written");
    }
    // What the library takes for success: a descriptor that cannot be written to.
    desk.shell("\"$0\" \"$@\" 1</dev/null", &["--version"])
        .expect(6);
}

#[test]
fn a_call_says_how_long_each_of_its_steps_took() {
    let desk = project();
    let call = [&CALL[..], &["--arg", "output=out/copy.csv"]].concat();
    let told = object(&desk.symbi(&call).expect(0));
    let steps = told["timings_ms"].as_object().unwrap();
    let names: Vec<&str> = steps.keys().map(String::as_str).collect();
    let wanted = [
        "prepare",
        "approve",
        "authorize",
        "record",
        "start",
        "run",
        "remove",
        "settle",
    ];
    assert_eq!(names, wanted);
    let took = |name: &str| steps[name].as_f64().unwrap();
    assert!(took("start") > 0.0 && took("remove") > 0.0, "{steps:?}");
    // A short program may have ended before its start was over.
    let ran = told["duration_ms"].as_f64().unwrap();
    assert!(took("start") + took("run") >= ran, "{told}");
    // What did not run has no steps.
    let refused = object(&desk.symbi(&call).expect(3));
    assert!(refused["timings_ms"].is_null(), "{refused}");
}

#[test]
fn a_reader_that_has_gone_is_no_error() {
    let desk = project();
    let script = "\"$0\" \"$@\" | true; exit ${PIPESTATUS[0]}";
    desk.shell(script, &["--project", "project", "policy", "schema", "run"])
        .expect(0);
}

#[test]
fn a_file_that_may_not_grow_is_an_error_and_no_signal() {
    let desk = project();
    let script = "ulimit -f 1; \"$0\" \"$@\" >large";
    desk.shell(script, &["--project", "project", "policy", "schema", "run"])
        .expect(6)
        .says("File too large");
}

#[test]
fn no_argument_or_path_reaches_a_terminal_as_a_command() {
    let desk = project();
    let raw = "a\u{1b}[2J\u{9b}31m\u{7f}\u{202e}b";
    std::fs::rename(desk.project(), desk.path(raw)).unwrap();
    let commands: [&[&str]; 14] = [
        &["--project", raw, "audit", "verify", raw],
        &["--project", raw, "audit", "show", raw],
        &["--project", raw, "audit", "prove", raw, raw],
        &["audit", "check-proof", raw],
        &["--project", raw, "trust"],
        &["--project", raw, "trust", "--yes"],
        &["--project", raw, "call", raw],
        &["--project", raw, "doctor"],
        &["--project", raw, "init", "--mcp-json", raw],
        &["init", raw],
        &["demo", "--lock", raw],
        &["--project", "gone\u{1b}[2J", "trust"],
        &[raw],
        &["call", "x", raw],
    ];
    for command in commands {
        for json in [false, true] {
            let more: &[&str] = if json { &["--json"] } else { &[] };
            let ended = desk.symbi(&[command, more].concat());
            for text in [&ended.stdout, &ended.stderr] {
                let obeyed = |it: char| it != '\n' && (it.is_control() || it == '\u{202e}');
                assert!(!text.contains(obeyed), "{command:?}: {text:?}");
            }
            if json {
                object(&ended);
            }
        }
    }
}

#[test]
fn json_is_one_object_whatever_is_asked() {
    let desk = project();
    for wrong in [&["--nonsense"][..], &["call"], &["audit"], &[]] {
        let said = object(&desk.symbi(&[wrong, &["--json"]].concat()).expect(2));
        assert_eq!(said["exit_code"], 2);
        assert!(!said["error"].as_str().unwrap().is_empty(), "{said}");
    }
    let ask = |arguments: &[&str]| {
        let all = [&["--json", "--project", "project"], arguments].concat();
        desk.symbi(&all).expect(0)
    };
    let surfaces = object(&ask(&["policy", "check"]))["surfaces"].clone();
    assert_eq!(surfaces.as_array().unwrap().len(), 3);
    let schema = object(&ask(&["policy", "schema", "call"]));
    assert!(schema["schema"].as_str().unwrap().contains("action"));
    let entry = ask(&["init", "--mcp-json"]);
    assert_eq!(entry.stdout.lines().count(), 1);
    assert!(object(&entry)["mcpServers"].is_object());
    assert!(object(&ask(&["--version"]))["version"].is_string());
    assert!(object(&ask(&["call", "--help"]))["help"].is_string());
}

#[test]
fn what_is_no_option_asks_for_no_json() {
    let ended = Desk::empty()
        .symbi(&["--nonsense", "--", "--json"])
        .expect(2);
    assert_eq!(ended.stdout, "");
}

#[test]
fn an_interrupt_is_caught_before_anything_else_is_done() {
    let desk = Desk::with_agents("");
    desk.trust();
    for _ in 0..5 {
        let call = [
            "--project",
            "project",
            "call",
            "word_count",
            "--arg",
            "input=data/example.csv",
        ];
        let child = desk.start(&call);
        let status = format!("/proc/{}/status", child.id());
        until("a handler of SIGINT", || {
            let status = fs::read_to_string(&status).unwrap_or_default();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
            caught.is_some_and(|mask| mask & 2 != 0)
        });
        let ended = interrupt(child);
        assert!(ended.code.is_some(), "a signal ended it: {}", ended.stderr);
        desk.nothing_is_left();
    }
}

#[test]
fn every_start_tends_to_what_dead_runs_left_whatever_its_own_tier() {
    let desk = project();
    let folder = desk.path("state/symbi/supervisor");
    let mut private = fs::DirBuilder::new();
    private.mode(0o700).recursive(true).create(&folder).unwrap();
    let lease = json!({ "take": {
        "lease": "5".repeat(32), "tier": "docker", "socket": desk.path("gone.sock"),
        "staging": desk.path("state"), "memory_mib": 1, "cpu_milli": 1,
        "owner": { "pid": 4_194_303, "started": 1 }, "boot": "of before", "until_ms": 1,
        "taken_at": 1
    }});
    fs::write(folder.join("leases"), format!("{lease}\n")).unwrap();
    fs::set_permissions(folder.join("leases"), fs::Permissions::from_mode(0o600)).unwrap();
    let call = [&CALL[..], &["--arg", "output=out/copy.csv"]].concat();
    let told = desk.symbi(&call).expect(0);
    assert!(!told.stderr.contains("warning"), "{}", told.stderr);
    let status = object(&desk.symbi(&["sandbox", "status", "--json"]).expect(0));
    let pid = status["supervisor"]["process"].as_i64().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let why = status["leases"][0]["waits_for"].as_str().unwrap();
    assert!(why.contains("gone.sock does not answer"), "{why}");
    // One that cannot be tended to does not stop who needs no container.
    fs::write(folder.join("leases"), "no lease\n").unwrap();
    let call = [&CALL[..], &["--arg", "output=out/other.csv"]].concat();
    desk.symbi(&call).expect(0).says("cannot be tended to");
}
