//! The channel's folder, its bridge, and the profile of the worker that it is mounted in.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use symbi_runtime::cli_executor::ChannelError;
use symbi_runtime::cli_executor::broker::McpToolBroker;
use worker::{CommandBoundary, Filesystem, Limits, Network, ReadGrant, TierKind, WorkerRoot};

use crate::support::session::{Governed, Setup};
use crate::support::wire::{WireClient, hello, serve};

fn start(governed: &Governed, parent: &Path) -> Result<McpToolBroker, ChannelError> {
    McpToolBroker::start(governed.session.clone(), governed.run, parent)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_channel_holds_the_socket_and_static_scripts_and_goes_with_the_broker() {
    let governed = Setup::default().start();
    let broker = serve(&governed);
    let channel = broker.channel().to_owned();
    let names = fs::read_dir(&channel).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["adapter.py", "bridge.py", "broker.sock"]);
    assert_eq!(
        fs::read_to_string(channel.join("bridge.py")).unwrap(),
        mcp::BRIDGE_PY
    );
    let second = start(&governed, &governed.project.channel_parent());
    assert!(
        matches!(second, Err(ChannelError::Io { .. })),
        "one channel in a folder"
    );
    assert!(WireClient::ready(&channel).await.is_served().await);
    broker.close().await.unwrap();
    assert!(!channel.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_that_is_not_private_ours_or_a_folder_refuses_the_start() {
    let governed = Setup::default().start();
    let root = governed.project.root();
    let parent = governed.project.channel_parent();
    for mode in [0o755, 0o710, 0o701] {
        fs::set_permissions(&parent, fs::Permissions::from_mode(mode)).unwrap();
        let refused = start(&governed, &parent).unwrap_err();
        assert!(refused.to_string().contains("mode 0700"), "{refused}");
    }
    fs::set_permissions(&parent, fs::Permissions::from_mode(0o700)).unwrap();
    symlink(&parent, root.join("link")).unwrap();
    assert!(start(&governed, &root.join("link")).is_err());
    assert!(start(&governed, &root.join("absent")).is_err());
    let foreign = if rustix::process::geteuid().is_root() {
        let folder = root.join("foreign");
        fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
        std::os::unix::fs::chown(&folder, Some(65534), None).unwrap();
        folder
    } else {
        "/usr".into()
    };
    let refused = start(&governed, &foreign).unwrap_err();
    assert!(refused.to_string().contains("belongs to user"), "{refused}");
    assert!(
        fs::read_dir(&parent).unwrap().next().is_none(),
        "nothing was made"
    );
    start(&governed, &parent).unwrap().close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_may_lie_deeper_than_a_socket_address_is_long() {
    let governed = Setup::default().start();
    let parent = governed.project.root().join("x".repeat(200));
    fs::DirBuilder::new().mode(0o700).create(&parent).unwrap();
    let broker = start(&governed, &parent).unwrap();
    assert!(broker.channel().as_os_str().len() > 200);
    let folder = fs::File::open(broker.channel()).unwrap();
    let short = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&folder));
    assert!(WireClient::ready(Path::new(&short)).await.is_served().await);
    broker.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_packaged_bridge_carries_a_session_and_ends_with_its_input() {
    let governed = Setup::default().namespace().start();
    let broker = serve(&governed);
    let channel = broker.channel().to_owned();
    let talk = tokio::task::spawn_blocking(move || talk_through_bridge(&channel));
    let (answers, code) = talk.await.unwrap();
    let names: Vec<&str> = answers[1]["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    let advertised: Vec<&str> = governed
        .session
        .tools()
        .iter()
        .map(|it| it.name.as_str())
        .collect();
    assert_eq!(names, advertised);
    assert!(
        answers[2]["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("7\\n")
    );
    assert_eq!(code, Some(0));
    broker.close().await.unwrap();
}

/// Initializes, lists and calls through the bridge; then ends its input.
fn talk_through_bridge(channel: &Path) -> (Vec<Value>, Option<i32>) {
    let mut bridge = Command::new("python3")
        .arg("-I")
        .arg(channel.join("bridge.py"))
        .arg(channel.join("broker.sock"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = bridge.stdin.take().unwrap();
    let mut output = BufReader::new(bridge.stdout.take().unwrap());
    let scale = json!({"name": "scale", "arguments": {"count": 7}});
    let mut answers = Vec::new();
    for (id, method, params) in [
        (1, "initialize", hello()),
        (2, "tools/list", json!({})),
        (3, "tools/call", scale),
    ] {
        let frame = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(input, "{frame}").unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        answers.push(serde_json::from_str(&line).unwrap());
        if id == 1 {
            let done = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
            writeln!(input, "{done}").unwrap();
        }
    }
    drop(input);
    (answers, bridge.wait().unwrap().code())
}

#[test]
fn an_agents_profile_keeps_the_isolation_and_loses_files_and_network() {
    let path = model::RelativePath::new("data/a.csv").unwrap();
    let read = ReadGrant {
        path,
        bytes: 1,
        sha256: model::Digest::of(b"a"),
    };
    let mut filesystem = Filesystem::default();
    filesystem.read.insert("input".to_owned(), read);
    let operator = CommandBoundary {
        tier: TierKind::Namespace,
        root: WorkerRoot::Directory {
            path: "/srv/root".to_owned(),
        },
        network: Network::None,
        working_dir: "/elsewhere".to_owned(),
        limits: Limits::wanted([1, 2, 3, 4, 5, 6, 7]),
        filesystem,
    };
    let child = McpToolBroker::child_boundary(&operator).unwrap();
    assert_eq!(
        (&child.root, &child.limits),
        (&operator.root, &operator.limits)
    );
    assert_eq!(
        (child.network, child.tier),
        (Network::None, TierKind::Namespace)
    );
    assert_eq!(child.working_dir, "/workspace");
    assert_eq!(child.filesystem, Filesystem::default());
    for tier in [TierKind::Docker, TierKind::Gvisor] {
        let container = CommandBoundary {
            tier,
            network: Network::Bridge,
            ..operator.clone()
        };
        let child = McpToolBroker::child_boundary(&container).unwrap();
        assert_eq!((child.network, child.tier), (Network::None, tier));
        assert_eq!(child.filesystem, Filesystem::default());
    }
    let unsupported = CommandBoundary {
        tier: TierKind::Firecracker,
        ..operator
    };
    let refused = McpToolBroker::child_boundary(&unsupported).unwrap_err();
    assert!(refused.to_string().contains("firecracker"), "{refused}");
}

#[test]
fn the_configuration_starts_the_packaged_bridge() {
    let config: Value = serde_json::from_str(&McpToolBroker::mcp_config()).unwrap();
    let server = &config["mcpServers"]["symbi"];
    assert_eq!(server["command"], "python3");
    let arguments = json!(["-I", "/channel/bridge.py", "/channel/broker.sock"]);
    assert_eq!(server["args"], arguments);
}
