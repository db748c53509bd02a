//! Frames, connections and bytes: each at its bound and one past it.

use std::time::{Duration, Instant};

use governance::EndCause;
use mcp::limits::{BROKER_FRAMES_MAX, FRAME_BYTES_MAX, SESSION_TRAFFIC_BYTES_MAX};
use serde_json::json;
use symbi_runtime::cli_executor::limits::{
    CONNECTIONS_LIVE_MAX, CONNECTIONS_TOTAL_MAX, FRAME_READ_MAX, WRITE_MAX,
};
use tokio::net::UnixStream;

use crate::support::wire::{WireClient, envelope, serve};
use crate::support::{Setup, until};

/// A notification of exactly `bytes`, without its line feed.
fn padded(bytes: usize) -> String {
    let frame = |pad: &str| format!(r#"{{"jsonrpc":"2.0","method":"x","params":{{"p":"{pad}"}}}}"#);
    let pad = "x".repeat(bytes - frame("").len());
    frame(&pad)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_of_one_mebibyte_passes_and_one_byte_more_ends_the_connection() {
    let governed = Setup::default().start();
    let broker = serve(&governed);
    let mut client = WireClient::ready(broker.channel()).await;
    let at = padded(FRAME_BYTES_MAX);
    client.write(format!("{at}\n").as_bytes()).await.unwrap();
    assert!(client.is_served().await);
    let _ = client
        .write(format!("{}\n", padded(FRAME_BYTES_MAX + 1)).as_bytes())
        .await;
    assert!(client.ended().await);
    let mut endless = WireClient::ready(broker.channel()).await;
    let _ = endless.write(&vec![b'x'; FRAME_BYTES_MAX + 1]).await;
    assert!(endless.ended().await, "without a line feed too");
    assert!(WireClient::ready(broker.channel()).await.is_served().await);
    broker.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_frame_more_than_allowed_ends_the_connection_and_no_other() {
    let governed = Setup::default().start();
    let broker = serve(&governed);
    let mut other = WireClient::ready(broker.channel()).await;
    let mut client = WireClient::connect(broker.channel()).await;
    for id in 0..BROKER_FRAMES_MAX {
        let answer = client.ask(id, "ping", json!({})).await;
        assert!(answer["result"].is_object(), "{answer}");
    }
    client.request("one more", "ping", json!({})).await;
    assert!(client.ended().await);
    assert!(other.is_served().await);
    broker.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_live_connection_too_many_is_not_accepted_until_another_ends() {
    let governed = Setup::default().start();
    let broker = serve(&governed);
    let mut live = Vec::new();
    for _ in 0..CONNECTIONS_LIVE_MAX {
        live.push(WireClient::ready(broker.channel()).await);
    }
    let mut more = WireClient::connect(broker.channel()).await;
    more.request(1, "ping", json!({})).await;
    assert!(more.is_silent().await);
    assert!(live.iter().all(|_| true) && live[0].is_served().await);
    drop(live.pop());
    assert!(more.receive().await["result"].is_object());
    broker.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_connections_of_a_run_are_accepted_and_one_more_is_refused_at_once() {
    let governed = Setup::default().start();
    let broker = serve(&governed);
    let mut kept = WireClient::ready(broker.channel()).await;
    for _ in 1..CONNECTIONS_TOTAL_MAX {
        assert!(
            WireClient::connect(broker.channel())
                .await
                .is_served()
                .await
        );
    }
    let socket = broker.channel().join("broker.sock");
    until("the closed door", || {
        std::os::unix::net::UnixStream::connect(&socket).is_err()
    })
    .await;
    let refused = UnixStream::connect(&socket).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    let mut bridge = std::process::Command::new("python3");
    bridge.arg(broker.channel().join("bridge.py")).arg(&socket);
    let output = bridge.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("takes no more connections"), "{said}");
    assert!(kept.is_served().await, "what is open goes on");
    broker.close().await.unwrap();
    assert_eq!(governed.terminal()["completed"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_for_a_place_when_the_last_connection_is_accepted_is_let_go() {
    let governed = Setup::default().start();
    let broker = serve(&governed);
    for _ in CONNECTIONS_LIVE_MAX + 1..CONNECTIONS_TOTAL_MAX {
        let mut client = WireClient::connect(broker.channel()).await;
        assert!(client.is_served().await);
    }
    let mut live = Vec::new();
    for _ in 0..CONNECTIONS_LIVE_MAX {
        live.push(WireClient::ready(broker.channel()).await);
    }
    let mut last = WireClient::connect(broker.channel()).await;
    let mut over = WireClient::connect(broker.channel()).await;
    assert!(over.is_silent().await);
    drop(live.pop());
    assert!(last.is_served().await);
    assert!(over.ended().await);
    broker.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traffic_past_its_bound_cancels_the_session() {
    let governed = Setup::default().start();
    let broker = serve(&governed);
    let frame = format!("{}\n", padded(FRAME_BYTES_MAX - 1));
    let frames = SESSION_TRAFFIC_BYTES_MAX / FRAME_BYTES_MAX as u64;
    // The handshakes take a little of it: one frame less stays below the bound.
    for client_frames in [frames / 2, frames - frames / 2 - 1] {
        let mut client = WireClient::ready(broker.channel()).await;
        for _ in 0..client_frames {
            client.write(frame.as_bytes()).await.unwrap();
        }
        let (_, error) = envelope(&client.call(1, "scale", json!({"count": 1})).await);
        assert!(!error);
    }
    let mut client = WireClient::ready(broker.channel()).await;
    let _ = client.write(frame.as_bytes()).await;
    assert!(client.ended().await);
    let closed = broker.close().await;
    assert!(
        matches!(closed, Err(EndCause::Transport { .. })),
        "{closed:?}"
    );
    let cause = governed.terminal()["cause"].as_str().unwrap().to_owned();
    assert!(cause.contains("67108864 bytes"), "{cause}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_frame_ends_its_connection_at_the_read_deadline_and_idleness_is_free() {
    let governed = Setup::default().start();
    let broker = serve(&governed);
    let mut idle = WireClient::ready(broker.channel()).await;
    let mut slow = WireClient::ready(broker.channel()).await;
    slow.start_call(1, "guarded", json!({"count": 1})).await;
    governed.held().await;
    let began = Instant::now();
    slow.write(b"{\"jsonrpc\":").await.unwrap();
    tokio::time::sleep(FRAME_READ_MAX / 2).await;
    slow.write(b"\"2.0\"").await.unwrap();
    assert!(slow.ended().await);
    let took = began.elapsed();
    let late = FRAME_READ_MAX + Duration::from_secs(3);
    assert!(took >= FRAME_READ_MAX && took < late, "{took:?}");
    until("the withdrawal", || {
        !governed.of_kind("CallWithdrawn").is_empty()
    })
    .await;
    assert!(idle.is_served().await);
    broker.close().await.unwrap();
    assert_eq!(governed.terminal()["completed"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_loses_its_connection_and_its_held_call() {
    let governed = Setup::default().start();
    let broker = serve(&governed);
    let mut client = WireClient::ready(broker.channel()).await;
    client
        .start_call("held", "guarded", json!({"count": 1}))
        .await;
    governed.held().await;
    let began = Instant::now();
    for id in 0..1000 {
        let frame = json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"});
        let frame = format!("{frame}\n");
        if client.write(frame.as_bytes()).await.is_err() {
            break;
        }
    }
    until("the withdrawal", || {
        !governed.of_kind("CallWithdrawn").is_empty()
    })
    .await;
    let took = began.elapsed();
    assert!(
        took >= WRITE_MAX && took < WRITE_MAX + Duration::from_secs(3),
        "{took:?}"
    );
    assert!(WireClient::ready(broker.channel()).await.is_served().await);
    broker.close().await.unwrap();
}
