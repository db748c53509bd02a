//! `symbi mcp` as a client that nobody contains meets it: standard input and output.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;

use serde_json::{Value, json};

use crate::client::Client;
use crate::desk::{Desk, runs, until};

const POLICY: &str = "@id(\"clients-may-count\")\npermit(principal == Agent::\"mcp\", action == \
                      Action::\"tool_call::word_count\", resource)\nwhen { \
                      context.invocation.resolved.command_boundary.filesystem.read.input.parent \
                      == \"data\" };\n";

const ASKING: &str = "[tool]\nname = \"asking\"\nversion = \"1.0.0\"\ndescription = \"Needs a \
                      yes\"\nbinary = \"true\"\nhuman_approval = true\n[command]\nexec = \
                      [\"true\"]\n[output]\nformat = \"text\"\n";

/// A project whose clients may count words, wait, and ask for what needs a person.
fn served() -> Desk {
    let desk = Desk::with_agents("");
    let project = desk.project();
    let folder = project.join("policies/mcp");
    fs::DirBuilder::new()
        .mode(0o755)
        .recursive(true)
        .create(&folder)
        .unwrap();
    let more = "@id(\"clients-may-wait\")\npermit(principal == Agent::\"mcp\", action in \
                [Action::\"tool_call::waiting\", Action::\"tool_call::asking\"], resource);\n";
    fs::write(folder.join("clients.cedar"), format!("{POLICY}{more}")).unwrap();
    fs::write(project.join("tools/asking.clad.toml"), ASKING).unwrap();
    waits(&desk, &marker());
    desk
}

/// Lets the tool `waiting` sleep so many seconds.
fn waits(desk: &Desk, seconds: &str) {
    let waiting = format!(
        "[tool]\nname = \"waiting\"\nversion = \"1.0.0\"\ndescription = \"Waits\"\nbinary = \
         \"sleep\"\n[command]\nexec = [\"sleep\", \"{seconds}\"]\n[output]\nformat = \"text\"\n"
    );
    fs::write(desk.project().join("tools/waiting.clad.toml"), waiting).unwrap();
    desk.trust();
}

/// How long the tool `waiting` sleeps: a number that only this test process uses.
fn marker() -> String {
    format!("25.{}", std::process::id())
}

fn counted() -> Value {
    json!({"input": "data/example.csv"})
}

#[test]
fn a_client_calls_governed_tools_and_its_leaving_completes_the_session() {
    let desk = served();
    let mut client = Client::initialized(&desk, &[]);
    let listed = client.ask(1, "tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let mut names: Vec<&str> = tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["asking", "copy_csv", "waiting", "word_count"]);
    let (failed, envelope) = client.call(2, "word_count", &counted());
    assert!(!failed && envelope["status"] == "succeeded", "{envelope}");
    client
        .leave()
        .expect(0)
        .says("governed, not contained: 4 tools for Agent::\"mcp\"")
        .says("session: completed");
    let journal = desk.verified_journal();
    assert!(journal.contains("\"client\":\"uncontained\""), "{journal}");
    assert!(journal.contains("\"principal\":\"mcp\""), "{journal}");
    assert!(journal.contains("\"completed\":true"), "{journal}");
    desk.nothing_is_left();
}

#[test]
fn a_client_without_a_handshake_is_served_and_told_of_what_takes_its_time() {
    let desk = served();
    waits(&desk, "2");
    let mut client = Client::start(&desk, &[]);
    let params = |more: Value| {
        let mut params = more;
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        params
    };
    let found = client.ask(1, "server/discover", &params(json!({})));
    assert_eq!(found["result"]["supportedVersions"][0], "2026-07-28");
    let slow = json!({"name": "waiting", "_meta": {"progressToken": "p"}});
    let told = client.ask(2, "tools/call", &params(slow));
    assert_eq!(told["method"], "notifications/progress");
    assert_eq!(
        told["params"],
        json!({"progressToken": "p", "progress": 1, "message": "runs"})
    );
    let answer = client.answer();
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    assert_eq!(answer["result"]["isError"], false);
    client.leave().expect(0);
    desk.verified_journal();
    desk.nothing_is_left();
}

#[test]
fn a_new_project_s_client_may_count_and_one_without_policies_is_told_so() {
    let desk = Desk::with_agents("");
    desk.trust();
    let mut client = Client::initialized(&desk, &[]);
    let (failed, envelope) = client.call(1, "word_count", &counted());
    assert!(!failed, "{envelope}");
    let ended = client.leave().expect(0);
    assert!(
        !ended.stderr.contains("nothing is permitted"),
        "{}",
        ended.stderr
    );

    fs::remove_dir_all(desk.project().join("policies/mcp")).unwrap();
    desk.trust();
    let mut client = Client::initialized(&desk, &[]);
    let (failed, envelope) = client.call(1, "word_count", &counted());
    let advice = envelope["refusal"]["advice"].as_str().unwrap();
    assert!(
        failed && advice.contains("permit(principal == Agent::"),
        "{envelope}"
    );
    client
        .leave()
        .expect(0)
        .says("policies/mcp holds no policy");
}

#[test]
fn standard_output_is_the_protocol_s_alone() {
    let desk = served();
    let mut client = Client::initialized(&desk, &[]);
    client.request(1, "ping", &json!({}));
    let ended = client.leave().expect(0);
    for line in ended.stdout.lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        assert_eq!(value["jsonrpc"], "2.0");
    }
    assert_eq!(ended.stdout.lines().count(), 1);
}

#[test]
fn what_no_policy_of_the_surface_permits_is_denied_and_the_session_goes_on() {
    let desk = served();
    let mut client = Client::initialized(&desk, &[]);
    let arguments = json!({"input": "data/example.csv", "output": "out/copy.csv"});
    let (failed, envelope) = client.call(1, "copy_csv", &arguments);
    assert!(
        failed && envelope["refusal"]["stage"] == "authorize",
        "{envelope}"
    );
    assert!(!desk.project().join("out/copy.csv").exists());
    let (failed, _) = client.call(2, "word_count", &counted());
    assert!(!failed);
    client.leave().expect(0);
    desk.verified_journal();
}

#[test]
fn a_tool_that_demands_approval_is_refused_to_a_client_that_could_give_it_itself() {
    let desk = served();
    let mut client = Client::initialized(&desk, &[]);
    let (failed, envelope) = client.call(1, "asking", &json!({}));
    assert!(
        failed && envelope["refusal"]["stage"] == "approve",
        "{envelope}"
    );
    let advice = envelope["refusal"]["advice"].as_str().unwrap();
    assert!(advice.contains("not contained"), "{advice}");
    client.leave().expect(0);
    desk.verified_journal();
}

#[test]
fn a_call_that_runs_when_its_client_leaves_is_finished_recorded_and_answered() {
    let desk = served();
    let brief = format!("1.{}", std::process::id());
    waits(&desk, &brief);
    let mut client = Client::initialized(&desk, &[]);
    client.request(
        1,
        "tools/call",
        &json!({"name": "waiting", "arguments": {}}),
    );
    until("the tool runs", || runs(&brief));
    client.leave().expect(0).says("succeeded");
    assert!(desk.verified_journal().contains("\"kind\":\"CallSettled\""));
}

#[test]
fn a_call_that_still_waits_when_its_client_leaves_is_withdrawn() {
    let desk = served();
    waits(&desk, &format!("1.{}", std::process::id()));
    let mut client = Client::initialized(&desk, &[]);
    let call = json!({"name": "waiting", "arguments": {}});
    client.request(1, "tools/call", &call);
    client.request(2, "tools/call", &call);
    client.leave().expect(0).says("withdrawn");
    assert!(
        desk.verified_journal()
            .contains("\"kind\":\"CallWithdrawn\"")
    );
}

#[test]
fn a_polite_kill_ends_what_runs_and_the_session_with_1() {
    let desk = served();
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let mut client = Client::initialized(&desk, &[]);
        client.request(
            1,
            "tools/call",
            &json!({"name": "waiting", "arguments": {}}),
        );
        until("the tool runs", || runs(&marker()));
        client.signal(signal);
        client
            .end()
            .expect(1)
            .says("closed by the owner while a call was under way");
        assert!(!runs(&marker()));
    }
    assert_eq!(desk.journals().len(), 2);
    desk.nothing_is_left();
}

#[test]
fn a_polite_kill_of_an_idle_server_completes_the_session() {
    // Clients end their servers so.
    let desk = served();
    let mut client = Client::initialized(&desk, &[]);
    assert!(!client.call(1, "word_count", &counted()).0);
    client.signal(rustix::process::Signal::INT);
    client.end().expect(0).says("session: completed");
    assert!(desk.verified_journal().contains("\"completed\":true"));
    desk.nothing_is_left();
}

#[test]
fn one_call_over_the_budget_ends_the_session_with_1() {
    let desk = served();
    let mut client = Client::initialized(&desk, &["--max-calls", "1"]);
    assert!(!client.call(1, "word_count", &counted()).0);
    let (failed, envelope) = client.call(2, "word_count", &counted());
    assert!(
        failed && envelope["status"] == "session_ended",
        "{envelope}"
    );
    client.leave().expect(1);
    assert!(desk.verified_journal().contains("\"completed\":false"));
}

#[test]
fn a_frame_that_breaks_off_is_the_client_s_fault() {
    let desk = served();
    let mut client = Client::initialized(&desk, &[]);
    client
        .input
        .as_mut()
        .unwrap()
        .write_all(b"{\"jsonrpc\":")
        .unwrap();
    client.leave().expect(1).says("transport");
    assert!(desk.verified_journal().contains("\"completed\":false"));
}

#[test]
fn a_client_is_named_like_the_policies_know_it_and_is_never_the_operator() {
    let desk = Desk::with_agents(
        "[agents.plain]\nexecutor = \"command\"\ncommand = [\"true\"]\nallowed_tools = \
         [\"word_count\"]\n",
    );
    desk.trust();
    let mcp = |name| desk.symbi(&["--project", "project", "mcp", "--as", name]);
    mcp("operator")
        .expect(2)
        .says("never the operator")
        .says("mcp, plain");
    mcp("plane").expect(2).says("nobody in the project");
    assert!(desk.journals().is_empty());
    mcp("plain").expect(0).says("Agent::\"plain\"");
    assert!(desk.verified_journal().contains("\"principal\":\"plain\""));
}

#[test]
fn the_entry_for_a_client_starts_the_server_from_anywhere() {
    let desk = served();
    let ended = desk.symbi(&["init", "--mcp-json", "project"]).expect(0);
    let entry: Value = serde_json::from_str(&ended.stdout).unwrap();
    let server = &entry["mcpServers"]["symbi"];
    assert_eq!(server["command"], env!("CARGO_BIN_EXE_symbi"));
    let arguments: Vec<&str> = server["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it.as_str().unwrap())
        .collect();
    let folder = desk.project().canonicalize().unwrap();
    assert_eq!(arguments, ["mcp", "--project", folder.to_str().unwrap()]);
    desk.symbi(&arguments).expect(0).says("session: completed");
    desk.symbi(&["init", "--mcp-json", "absent"]).expect(2);
    desk.symbi(&["init"]).expect(2);
}
