//! What a client is told of a call while it waits for an approval, and while it runs.

use std::future::pending;

use serde_json::{Value, json};
use symbi_runtime::cli_executor::broker::McpToolBroker;
use testkit::tier::Play;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, duplex, split};

use crate::support::session::Setup;
use crate::support::wire::{WireClient, envelope, hello, serve};

fn call(id: u64, tool: &str, token: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
        "name": tool, "arguments": {"count": 1}, "_meta": {"progressToken": token},
    }})
}

fn told(frame: &Value) -> (u64, &str) {
    assert_eq!(frame["method"], "notifications/progress", "{frame}");
    assert_eq!(frame.get("id"), None);
    let params = &frame["params"];
    let step = params["progress"].as_u64().unwrap();
    (step, params["message"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_told_of_while_it_waits_for_approval_and_while_it_runs_and_never_after() {
    let governed = Setup::default().start();
    let broker = serve(&governed);
    let mut client = WireClient::ready(broker.channel()).await;
    governed.tier.next_runs(Play::runs_on());
    client.send(&call(1, "guarded", &json!("p-1"))).await;
    let held = governed.held().await;
    client.send(&call(2, "scale", &json!(7))).await;
    let (first, second) = (client.receive().await, client.receive().await);
    let waits = (1, "waits for a person's approval");
    assert_eq!(
        (told(&first), &first["params"]["progressToken"]),
        (waits, &json!("p-1"))
    );
    assert_eq!(
        (told(&second).0, &second["params"]["progressToken"]),
        (1, &json!(7))
    );
    assert!(
        told(&second).1.starts_with("waits for an earlier call"),
        "{second}"
    );

    governed.approve(&held);
    governed.until_started(1).await;
    let runs = client.receive().await;
    assert_eq!(
        (told(&runs), &runs["params"]["progressToken"]),
        ((2, "runs"), &json!("p-1"))
    );
    assert!(governed.tier.end(0, Play::exits(0)));
    // The second call may be told of once more before it has ended.
    let mut answers = Vec::new();
    while answers.len() < 2 {
        let frame = client.receive().await;
        if frame.get("id").is_some() {
            answers.push(frame);
        }
    }
    assert!(
        answers.iter().all(|answer| !envelope(answer).1),
        "{answers:?}"
    );
    assert!(client.is_silent().await);
    broker.close().await.unwrap();
    assert_eq!(governed.terminal()["completed"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_told_without_a_token_or_after_a_cancellation() {
    let governed = Setup::default().start();
    let broker = serve(&governed);
    let mut client = WireClient::ready(broker.channel()).await;
    governed.tier.next_runs(Play::runs_on());
    client.start_call(1, "scale", json!({"count": 1})).await;
    governed.until_started(1).await;
    client.send(&call(2, "scale", &json!(2))).await;
    let cancel = json!({"requestId": 2});
    client
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel}))
        .await;
    for _ in 0..4 {
        assert!(client.is_silent().await);
    }
    assert!(governed.tier.end(0, Play::exits(0)));
    assert_eq!(client.receive().await["id"], 1);
    broker.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_over_standard_streams_is_told_too() {
    let governed = Setup::default().start();
    governed.tier.next_runs(Play::runs_on());
    let (client, server) = duplex(64 << 10);
    let (session, run) = (governed.session.clone(), governed.run);
    let served = tokio::spawn(async move {
        McpToolBroker::serve_client(session, run, split(server), pending()).await
    });
    let (reader, mut writer) = split(client);
    let mut lines = BufReader::new(reader).lines();
    let open = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello()});
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let text = format!("{open}\n{ready}\n{}\n", call(1, "scale", &json!("t")));
    writer.write_all(text.as_bytes()).await.unwrap();
    let mut next = async || -> Value {
        serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap()
    };
    assert_eq!(next().await["id"], 0);
    let runs = next().await;
    assert!(told(&runs).1.starts_with("runs"), "{runs}");
    assert!(governed.tier.end(0, Play::exits(0)));
    assert_eq!(next().await["id"], 1);
    writer.shutdown().await.unwrap();
    assert_eq!(served.await.unwrap(), Ok(()));
}
