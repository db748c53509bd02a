//! `symbi run` with agents that are any command.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;

use rustix::process::Signal;
use testkit::provider::{ScriptedProvider, Turn};

use crate::desk::{Desk, interrupt, runs, send, until, wait};

/// Asks for `word_count` as often as its task says, over the bridge, and prints the answers.
const COUNTING: &str = r#"#!/usr/bin/env python3
import json, os, subprocess, sys
server = json.loads(os.environ["SYMBI_MCP_CONFIG"])["mcpServers"]["symbi"]
bridge = subprocess.Popen([server["command"]] + server["args"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def ask(number, method, params):
    line = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    bridge.stdin.write(line.encode() + b"\n")
    bridge.stdin.flush()
    return json.loads(bridge.stdout.readline() or b'"closed"')
about = {"name": "t", "version": "1"}
ask(0, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about})
bridge.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
for number in range(1, 1 + int(sys.argv[1])):
    call = {"name": "word_count", "arguments": {"input": "data/example.csv"}}
    print(json.dumps(ask(number, "tools/call", call)), flush=True)
"#;

pub(crate) fn counting(times: u32) -> Desk {
    let desk = Desk::with_agents(&format!(
        "[agents.counter]\nexecutor = \"command\"\ncommand = [\"python3\", \"{{program}}\", \
         \"{times}\"]\nprogram = \"./agents/counter.py\"\nallowed_tools = [\"word_count\"]\n"
    ));
    desk.program("agents/counter.py", COUNTING);
    desk
}

fn command(words: &str) -> Desk {
    Desk::with_agents(&format!(
        "[agents.plain]\nexecutor = \"command\"\ncommand = {words}\nallowed_tools = \
         [\"word_count\"]\n"
    ))
}

#[test]
fn an_agent_calls_a_governed_tool_and_the_run_completes() {
    let desk = counting(2);
    let ended = desk.run("counter", &[]).expect(0).says("agent: succeeded");
    assert_eq!(
        ended.stdout.matches("succeeded").count(),
        2,
        "{}",
        ended.stdout
    );
    let journal = desk.verified_journal();
    assert_eq!(journal.matches("\"kind\":\"CallDispatching\"").count(), 3);
    desk.nothing_is_left();
}

#[test]
fn a_run_says_itself_as_one_json_object() {
    let desk = command("[\"echo\", \"{task}\"]");
    let ended = desk.run("plain", &["--json"]).expect(0);
    let said: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(said["status"], "succeeded");
    assert_eq!(said["results"], "the task\n");
    assert_eq!(said["session"], "completed");
}

#[test]
fn what_an_agent_writes_is_escaped_before_a_terminal_sees_it() {
    let desk = command(r#"["printf", '\033]0;owned\007\n']"#);
    let ended = desk.run("plain", &[]).expect(0);
    assert!(!ended.stdout.contains('\u{1b}'), "{:?}", ended.stdout);
    assert!(ended.stdout.contains("owned"));
}

#[test]
fn an_agent_that_fails_ends_the_run_with_1() {
    let desk = command("[\"sh\", \"-c\", \"echo no >&2; exit 3\"]");
    desk.run("plain", &[])
        .expect(1)
        .says("agent: failed: exited with code 3")
        .says("no");
    desk.verified_journal();
    desk.nothing_is_left();
}

#[test]
fn an_unknown_agent_is_a_usage_error_that_names_the_nearest() {
    let desk = command("[\"true\"]");
    desk.run("plan", &[])
        .expect(2)
        .says("the project has no agent `plan`")
        .says("did you mean `plain`?");
    assert_eq!(desk.journals(), Vec::<std::path::PathBuf>::new());
    desk.nothing_is_left();
}

#[test]
fn an_agent_that_no_policy_lets_start_is_refused() {
    let desk = command("[\"true\"]");
    let policy = desk.project().join("policies/run/agents.cedar");
    let text = fs::read_to_string(&policy).unwrap();
    let (without, _) = text.split_once("@id(\"agents-may-start\")").unwrap();
    fs::write(&policy, without).unwrap();
    desk.run("plain", &[]).expect(3).says("denied");
    desk.verified_journal();
    desk.nothing_is_left();
}

#[test]
fn a_program_file_that_is_missing_is_named_as_the_operator_wrote_it() {
    let desk = Desk::with_agents(
        "[agents.gone]\nexecutor = \"command\"\ncommand = [\"{program}\"]\nprogram = \
         \"./agents/gone.py\"\nallowed_tools = [\"word_count\"]\n",
    );
    desk.run("gone", &[])
        .expect(2)
        .says("project/agents/gone.py` of the agent `gone` cannot be used: No such file")
        .says("`program` of [agents.gone]");
    assert!(desk.journals().is_empty());
    desk.nothing_is_left();
}

#[test]
fn a_command_that_no_worker_has_is_a_usage_error() {
    let desk = command("[\"no-such-program\"]");
    desk.run("plain", &[])
        .expect(2)
        .says("no-such-program")
        .says("`command` of [agents.plain]");
    assert!(desk.journals().is_empty());
}

const INFERENCE: &str = "[managed_cli.inference]\nprovider = \"work\"\nmodel = \"m-1\"\n\
                         max_output_tokens = 64\n";

pub(crate) fn asking() -> Desk {
    let ask = "import http.client, json, os\nconnection = http.client.HTTPConnection(\"127.0.0.1\", \
               8091)\nbody = {\"model\": \"m-1\", \"max_tokens\": 9, \"messages\": [{\"role\": \
               \"user\", \"content\": \"x\"}]}\nfor _ in range(9):\n    connection = \
               http.client.HTTPConnection(\"127.0.0.1\", 8091)\n    \
               connection.request(\"POST\", \"/v1/messages\", json.dumps(body), {\"x-api-key\": \
               \"mine\"})\n    answer = connection.getresponse()\n    print(answer.status, \
               answer.read().decode())\n";
    let desk = Desk::with_agents(&format!(
        "[agents.asker]\nexecutor = \"command\"\ncommand = [\"python3\", \"{{program}}\"]\nprogram \
         = \"./agents/asker.py\"\nallowed_tools = [\"word_count\"]\n{INFERENCE}"
    ));
    desk.program("agents/asker.py", ask);
    desk
}

pub(crate) fn provider(desk: &Desk, url: &str) {
    let key = desk.configure("work.key", "the-real-key\n");
    let config = format!(
        "[providers.work]\nbase_url = \"{url}\"\napi_key_file = \"{}\"\n",
        key.display()
    );
    desk.configure("config.toml", &config);
}

#[test]
fn a_model_is_asked_with_the_operator_s_key_as_often_as_the_agent_likes() {
    let desk = asking();
    let model = ScriptedProvider::interactive(|_, _| Turn::text("hello")).unwrap();
    provider(&desk, &model.url());
    let ended = desk.run("asker", &[]).expect(0);
    assert_eq!(ended.stdout.matches("200 ").count(), 9, "{}", ended.stdout);
    let keys: Vec<_> = model
        .requests()
        .iter()
        .map(|request| request.header("x-api-key"))
        .collect();
    assert_eq!(keys, vec![Some("the-real-key".to_owned()); 9]);
    assert!(!desk.verified_journal().contains("the-real-key"));
    desk.nothing_is_left();
}

#[test]
fn a_provider_that_nobody_described_is_a_usage_error_with_the_place_to_do_it() {
    let desk = asking();
    desk.run("asker", &[])
        .expect(2)
        .says("there is no provider `work`")
        .says("[providers.work] in")
        .says("config/symbi/config.toml");
    assert!(desk.journals().is_empty());
    desk.nothing_is_left();
}

#[test]
fn a_key_file_that_is_missing_or_open_to_others_is_a_usage_error() {
    use std::os::unix::fs::PermissionsExt as _;
    let desk = asking();
    provider(&desk, "http://127.0.0.1:9");
    let key = desk.path("config/symbi/work.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    desk.run("asker", &[]).expect(2).says("chmod 600");
    fs::remove_file(&key).unwrap();
    desk.run("asker", &[]).expect(2).says("work.key");
    assert!(desk.journals().is_empty());
}

#[test]
fn one_call_over_the_budget_ends_the_run_with_1() {
    let desk = counting(3);
    desk.run("counter", &["--max-calls", "2"])
        .expect(1)
        .says("2");
    let journal = desk.verified_journal();
    assert_eq!(journal.matches("\"kind\":\"CallDispatching\"").count(), 3);
    assert!(journal.contains("\"completed\":false"), "{journal}");
    desk.nothing_is_left();
}

#[test]
fn a_budget_that_no_run_takes_is_a_usage_error_and_leaves_nothing() {
    let desk = command("[\"true\"]");
    for (option, value) in [
        ("--max-calls", "0"),
        ("--max-calls", "1001"),
        ("--budget-timeout", "0"),
        ("--budget-timeout", "86401"),
        ("--budget-tokens", "0"),
    ] {
        desk.run("plain", &[option, value])
            .expect(2)
            .says(&format!("`{option}` is {value}"));
    }
    desk.run(
        "plain",
        &["--max-calls", "1000", "--budget-timeout", "86400"],
    )
    .expect(0);
    desk.verified_journal();
    desk.nothing_is_left();
}

#[test]
fn a_key_that_no_header_can_carry_leaves_no_run() {
    let desk = asking();
    provider(&desk, "http://127.0.0.1:9");
    desk.configure("work.key", "two words\n");
    let ended = desk.run("asker", &[]).expect(2);
    assert!(!ended.stderr.contains("two words"), "{}", ended.stderr);
    assert!(desk.journals().is_empty());
    desk.nothing_is_left();
}

#[test]
fn a_run_over_its_time_is_stopped_with_1() {
    let marker = format!("86400.{}", std::process::id());
    let desk = command(&format!("[\"sleep\", \"{marker}\"]"));
    desk.run("plain", &["--budget-timeout", "1"])
        .expect(1)
        .says("lifetime");
    desk.verified_journal();
    assert!(!runs(&marker));
    desk.nothing_is_left();
}

#[test]
fn ctrl_c_stops_the_agent_writes_the_terminal_record_and_leaves_nothing() {
    let marker = format!("86401.{}", std::process::id());
    let desk = command(&format!("[\"sleep\", \"{marker}\"]"));
    desk.trust();
    let child = desk.start(&["--project", "project", "run", "plain", "--task", "x"]);
    until("the agent runs", || runs(&marker));
    interrupt(child).expect(1).says("cancelled by the owner");
    assert!(desk.verified_journal().contains("\"completed\":false"));
    assert!(!runs(&marker));
    desk.nothing_is_left();
}

#[test]
fn ctrl_c_before_the_agent_runs_leaves_nothing_either() {
    let marker = format!("86402.{}", std::process::id());
    let desk = command(&format!("[\"sleep\", \"{marker}\"]"));
    desk.trust();
    let child = desk.start(&["--project", "project", "run", "plain", "--task", "x"]);
    // The run's folder is made after signals are watched and before anything is launched.
    until("the run began", || {
        fs::read_dir(desk.path("run/symbi")).is_ok_and(|mut it| it.next().is_some())
    });
    interrupt(child).expect(1);
    assert!(!runs(&marker));
    desk.nothing_is_left();
}

#[test]
fn a_polite_kill_and_a_hangup_end_a_run_like_ctrl_c() {
    for (number, signal) in [(3, Signal::TERM), (4, Signal::HUP)] {
        let marker = format!("8640{number}.{}", std::process::id());
        let desk = command(&format!("[\"sleep\", \"{marker}\"]"));
        desk.trust();
        let child = desk.start(&["--project", "project", "run", "plain", "--task", "x"]);
        until("the agent runs", || runs(&marker));
        send(&child, signal);
        wait(child).expect(1);
        desk.verified_journal();
        assert!(!runs(&marker));
        desk.nothing_is_left();
    }
}

#[test]
fn what_a_killed_run_left_is_swept_by_the_next_start_and_a_live_run_is_not() {
    let marker = format!("86406.{}", std::process::id());
    let desk = command(&format!("[\"sleep\", \"{marker}\"]"));
    desk.trust();
    let arguments = ["--project", "project", "run", "plain", "--task", "x"];
    let folders = || fs::read_dir(desk.path("run/symbi")).unwrap().count();
    let sweep = || {
        let word_count = ["call", "word_count", "--arg", "input=data/example.csv"];
        desk.symbi(&[&["--project", "project"][..], &word_count].concat())
            .expect(0);
    };
    let mut child = desk.start(&arguments);
    until("the agent runs", || runs(&marker));
    sweep();
    assert_eq!(folders(), 1);
    child.kill().unwrap();
    child.wait().unwrap();
    until("the agent died", || !runs(&marker));
    assert_eq!(folders(), 1);
    let candidates = desk.project().join("out/.symbi-candidates");
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(600);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&candidates)
        .unwrap();
    for role in ["from", "taken", "free"] {
        let probe = candidates.join(format!("probe-{}-{role}", "0".repeat(32)));
        fs::File::create(probe)
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
    }
    sweep();
    assert_eq!(folders(), 0);
    assert_eq!(fs::read_dir(candidates).unwrap().count(), 0);
}

#[test]
fn a_run_under_nohup_outlives_a_hangup() {
    let marker = format!("86405.{}", std::process::id());
    let desk = command(&format!("[\"sleep\", \"{marker}\"]"));
    desk.trust();
    let run = ["--project", "project", "run", "plain", "--task", "x"];
    let child = desk.start_without_hangup(&run);
    until("the agent runs", || runs(&marker));
    send(&child, Signal::HUP);
    // The journal's end would be there soon after a hangup that counts.
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(runs(&marker));
    interrupt(child).expect(1);
    desk.verified_journal();
    desk.nothing_is_left();
}

/// A project with a Claude Code that is the host's program `name`, or nothing.
fn claude(name: &str, more: &str) -> Desk {
    let desk = Desk::with_agents(&format!(
        "[agents.reviewer]\nexecutor = \"claude_code\"\nprogram = \"./agents/claude\"\n\
         allowed_tools = [\"word_count\"]\n{more}\n{INFERENCE}"
    ));
    let policy = desk.project().join("policies/run/agents.cedar");
    let text = fs::read_to_string(&policy).unwrap();
    fs::write(
        &policy,
        text.replace("tool_call::command", "tool_call::claude_code"),
    )
    .unwrap();
    if let Ok(program) = fs::read(format!("/usr/bin/{name}")) {
        fs::write(desk.project().join("agents/claude"), program).unwrap();
        desk.program_mode("agents/claude");
    }
    provider(&desk, "http://127.0.0.1:9");
    desk
}

#[test]
fn a_claude_code_that_ends_without_a_result_has_failed_whatever_its_exit_code() {
    let desk = claude("true", "");
    desk.run("reviewer", &[])
        .expect(1)
        .says("agent: failed: it ended without a result")
        .says("0 tool calls");
    desk.verified_journal();
    desk.nothing_is_left();
}

#[test]
fn a_claude_code_that_is_missing_a_link_or_a_script_is_refused_with_7_and_leaves_no_run() {
    let desk = claude("no-such-program", "");
    desk.run("reviewer", &[])
        .expect(7)
        .says("agents/claude` of the agent `reviewer` cannot be used");
    std::os::unix::fs::symlink("/usr/bin/true", desk.project().join("agents/claude")).unwrap();
    desk.run("reviewer", &[])
        .expect(7)
        .says("it is a symbolic link; name the file itself: /usr/bin/");
    fs::remove_file(desk.project().join("agents/claude")).unwrap();
    desk.program("agents/claude", "#!/bin/sh\n");
    desk.run("reviewer", &[])
        .expect(7)
        .says("it is a script for /bin/sh");
    assert!(desk.journals().is_empty());
    desk.nothing_is_left();
}

#[test]
fn a_worker_that_is_too_small_for_claude_code_is_refused_with_7_and_leaves_no_run() {
    let desk = claude("true", "memory_mib = 191\npids = 31");
    desk.run("reviewer", &[])
        .expect(7)
        .says("192 MiB")
        .says("at least 32");
    assert!(desk.journals().is_empty());
    desk.nothing_is_left();
}

#[test]
fn claude_code_without_a_model_is_a_usage_error() {
    let desk = claude("true", "");
    let config = desk.project().join("symbiont.toml");
    let text = fs::read_to_string(&config).unwrap().replace(INFERENCE, "");
    fs::write(&config, text).unwrap();
    desk.run("reviewer", &[])
        .expect(2)
        .says("[managed_cli.inference]");
    assert!(desk.journals().is_empty());
}
