//! A client in a container that asks through the packaged bridge, and its effect in another one.
//! `./test` has their engine.

use std::path::{Path, PathBuf};

use governance::Outcome;
use sandbox::engine::{ContainerFilter, Engine};
use sandbox::{ContainerKind, ContainerSpec, ContainerTier};
use serde_json::{Value, json};
use symbi_runtime::cli_executor::broker::McpToolBroker;
use testkit::lease::MemoryKeeper;
use worker::{Limits, Tier as _};

use crate::support::Project;
use crate::support::session::{Setup, agent_ended, agent_plan_on};
use crate::support::wire::serve;

/// The agent's container, and that of its tool.
const WORKERS: usize = 2;

/// Asks over the bridge, and looks for what it must not see, before and after.
const CLIENT: &str = r#"
import json, os, subprocess, sys
server = json.loads(sys.argv[1])["mcpServers"]["symbi"]
bridge = subprocess.Popen([server["command"], *server["args"]],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def send(frame):
    bridge.stdin.write(json.dumps(frame).encode() + b"\n")
    bridge.stdin.flush()
def ask(id, method, params):
    send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    return json.loads(bridge.stdout.readline())
def seen():
    places = [sys.argv[2], "/workspace/data", "/workspace/out", "/workspace/data/a.csv"]
    return [place for place in places if os.path.exists(place)]
said = {"uid": os.getuid(), "before": seen()}
ask(1, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {},
                      "clientInfo": {"name": "contained", "version": "1"}})
send({"jsonrpc": "2.0", "method": "notifications/initialized"})
said["tools"] = len(ask(2, "tools/list", {})["result"]["tools"])
arguments = {"input": "data/a.csv", "output": "out/b.csv"}
said["call"] = ask(3, "tools/call", {"name": "guarded_copy", "arguments": arguments})
said["after"] = seen()
bridge.stdin.close()
said["bridge"] = bridge.wait()
print(json.dumps(said))
"#;

fn told(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("`{name}` is not set: run ./test"))
}

fn tier(kind: ContainerKind, staging: PathBuf, keeper: &MemoryKeeper) -> ContainerTier {
    let spec = ContainerSpec {
        kind,
        socket: told("SYMBI_TEST_ENGINE").into(),
        image: told("SYMBI_TEST_IMAGE"),
        user: (65534, 65534),
        staging,
    };
    let keeper = keeper.clone();
    ContainerTier::new(spec, |_| Ok(Box::new(keeper))).unwrap_or_else(|error| panic!("{error}"))
}

/// The containers that are shown something of `staging`.
fn containers(staging: &Path) -> usize {
    let engine = Engine::at(told("SYMBI_TEST_ENGINE"));
    let all = engine.list(&ContainerFilter::default().with_label("symbi.lease"));
    let shown = |id: &str| {
        let found = engine.inspect(id).unwrap();
        let mut mounts = found.iter().flat_map(|it| &it.mounts);
        mounts.any(|mount| mount.source.starts_with(staging.to_str().unwrap()))
    };
    all.unwrap().iter().filter(|it| shown(&it.id)).count()
}

async fn a_contained_clients_effect_waits_for_a_yes_and_happens_once_elsewhere(
    kind: ContainerKind,
) {
    let project = Project::new();
    let canary = project.file("canary");
    std::fs::write(&canary, "host secret").unwrap();
    let staging = tempfile::tempdir().unwrap();
    let keeper = MemoryKeeper::new(WORKERS);
    let tier = tier(kind, staging.path().to_owned(), &keeper);
    let channel = project.channel_parent().join("channel");
    let config = McpToolBroker::mcp_config();
    let argv = [
        "python3",
        "-I",
        "-c",
        CLIENT,
        &config,
        canary.to_str().unwrap(),
    ];
    let mut plan = agent_plan_on(kind.tier(), tier.root(), &argv, &channel, false);
    let boundary = &mut plan.descriptor.boundary;
    let limits = [512, 1000, 64, 1 << 20, 1 << 20, 1 << 20, 60_000];
    boundary.limits = tier.enforceable(Limits::wanted(limits));
    *boundary = McpToolBroker::child_boundary(boundary).unwrap();
    let governed = Setup::default()
        .containers(tier)
        .launch(plan)
        .start_in(project);
    let broker = serve(&governed);
    let agent = governed.session.launch("command").await.unwrap();
    let held = governed.held().await;
    assert_eq!(held.tool, "guarded_copy");
    assert!(!governed.project.exists("out/b.csv"));
    governed.approve(&held);
    let outcome = agent_ended(agent.ended().await);
    let stderr = String::from_utf8_lossy(&outcome.output.stderr).into_owned();
    assert_eq!(outcome.outcome, Outcome::Succeeded, "{stderr}");
    broker.close().await.unwrap();
    let said: Value = serde_json::from_slice(&outcome.output.stdout).unwrap();
    assert_eq!(said["call"]["result"]["isError"], false, "{said}");
    assert_eq!((&said["before"], &said["after"]), (&json!([]), &json!([])));
    assert_eq!((&said["uid"], &said["bridge"]), (&json!(65534), &json!(0)));
    let published = std::fs::read(governed.project.file("out/b.csv")).unwrap();
    assert_eq!(published, b"a,b\n1,2\n");
    assert_eq!(governed.of_kind("FilePublicationFinished").len(), 1);
    assert_eq!(
        governed.of_kind("CallDispatching")[1]["approval"]["held_id"],
        held.held_id
    );
    assert_eq!(governed.terminal()["completed"], true);
    assert_eq!(keeper.held(), []);
    assert_eq!(containers(staging.path()), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs docker: run ./test"]
async fn on_docker_a_contained_clients_effect_waits_for_a_yes_and_happens_once_elsewhere() {
    a_contained_clients_effect_waits_for_a_yes_and_happens_once_elsewhere(ContainerKind::Docker)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs docker: run ./test"]
async fn on_gvisor_a_contained_clients_effect_waits_for_a_yes_and_happens_once_elsewhere() {
    a_contained_clients_effect_waits_for_a_yes_and_happens_once_elsewhere(ContainerKind::Gvisor)
        .await;
}
