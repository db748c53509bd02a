//! A client in a real worker, with the channel as its only way out.

use governance::Outcome;
use serde_json::{Value, json};

use crate::support::Project;
use crate::support::session::{Setup, agent_ended, agent_plan};
use crate::support::wire::serve;

/// Speaks MCP on the channel, and tries what it may not.
const CLIENT: &str = r#"
import json, os, socket, sys
channel = socket.socket(socket.AF_UNIX)
channel.connect("/channel/broker.sock")
lines = channel.makefile("r")
def ask(id, method, params):
    frame = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    channel.sendall(json.dumps(frame).encode() + b"\n")
    return json.loads(lines.readline())
def failure(work):
    try:
        return repr(work())
    except Exception as error:
        return type(error).__name__
ask(1, "initialize", {"protocolVersion": "2025-06-18", "capabilities": {},
                      "clientInfo": {"name": "contained", "version": "1"}})
channel.sendall(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
said = {"uid": os.getuid(), "workspace": os.listdir("/workspace")}
arguments = {"input": "data/a.csv", "output": "out/b.csv"}
said["call"] = ask(2, "tools/call", {"name": "copy_csv", "arguments": arguments})
for name, path in (("canary", sys.argv[1]), ("output", "/workspace/out/b.csv"),
                   ("input", "/workspace/data/a.csv")):
    said[name] = failure(lambda: open(path).read())
said["channel_write"] = failure(lambda: open("/channel/x", "w"))
said["channel"] = sorted(os.listdir("/channel"))
said["connect"] = failure(lambda: socket.create_connection(("1.1.1.1", 80), 2))
print(json.dumps(said))
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_contained_client_creates_a_file_through_the_channel_and_sees_nothing_else() {
    let project = Project::new();
    let canary = project.file("canary");
    std::fs::write(&canary, "host secret").unwrap();
    let channel = project.channel_parent().join("channel");
    let argv = ["python3", "-I", "-c", CLIENT, canary.to_str().unwrap()];
    let plan = agent_plan(&argv, &channel, false);
    let governed = Setup::default().namespace().launch(plan).start_in(project);
    let broker = serve(&governed);
    let agent = governed.session.launch("command").await.unwrap();
    let outcome = agent_ended(agent.ended().await);
    let stderr = String::from_utf8_lossy(&outcome.output.stderr).into_owned();
    assert_eq!(outcome.outcome, Outcome::Succeeded, "{stderr}");
    broker.close().await.unwrap();
    let said: Value = serde_json::from_slice(&outcome.output.stdout).unwrap();
    assert_eq!(said["call"]["result"]["isError"], false, "{said}");
    assert_eq!(
        std::fs::read(governed.project.file("out/b.csv")).unwrap(),
        b"a,b\n1,2\n"
    );
    for hidden in ["canary", "output", "input"] {
        assert_eq!(said[hidden], "FileNotFoundError", "{hidden}: {said}");
    }
    assert_eq!(said["workspace"], json!([]));
    assert_ne!(said["uid"], 0);
    assert_eq!(
        said["channel"],
        json!(["adapter.py", "bridge.py", "broker.sock"])
    );
    assert_eq!(said["channel_write"], "OSError", "{said}");
    assert_eq!(said["connect"], "OSError", "{said}");
    let kinds = governed.kinds();
    let effects = kinds
        .iter()
        .filter(|kind| *kind == "FilePublicationFinished");
    assert_eq!(effects.count(), 1, "{kinds:?}");
    assert_eq!(governed.terminal()["completed"], true);
}
