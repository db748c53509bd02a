//! Calls, connections, the session and the broker end each in its own time.

use std::time::Duration;

use governance::EndCause;
use serde_json::json;
use symbi_runtime::reasoning::governed_session::DecideError;
use testkit::tier::Play;

use crate::support::session::{Governed, Setup};
use crate::support::wire::{WireClient, envelope, serve};
use crate::support::{approver, until};

async fn until_recorded(governed: &Governed, kind: &str) {
    until(kind, || !governed.of_kind(kind).is_empty()).await;
}

fn cancelled(id: i64) -> serde_json::Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disconnect_withdraws_a_held_call_alone() {
    let governed = Setup::default().start();
    let broker = serve(&governed);
    let mut client = WireClient::ready(broker.channel()).await;
    client.start_call(1, "guarded", json!({"count": 1})).await;
    let held = governed.held().await;
    drop(client);
    until_recorded(&governed, "CallWithdrawn").await;
    assert!(governed.session.pending().is_empty());
    let late = governed
        .session
        .decide(&held.held_id, held.review_sha256, true, approver());
    assert!(matches!(late, Err(DecideError::NotHeld { .. })));
    let mut client = WireClient::ready(broker.channel()).await;
    let (_, error) = envelope(&client.call(1, "scale", json!({"count": 1})).await);
    assert!(!error);
    broker.close().await.unwrap();
    assert_eq!(governed.terminal()["calls"], 2);
    assert_eq!(governed.tier.started(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_notification_withdraws_a_held_or_queued_call() {
    let governed = Setup::default().start();
    let broker = serve(&governed);
    let mut client = WireClient::ready(broker.channel()).await;
    client.start_call(1, "guarded", json!({"count": 1})).await;
    governed.held().await;
    client.start_call(2, "scale", json!({"count": 1})).await;
    client.send(&cancelled(2)).await;
    client.send(&cancelled(1)).await;
    until("two withdrawals", || {
        governed.of_kind("CallWithdrawn").len() == 2
    })
    .await;
    let (_, error) = envelope(&client.call(3, "scale", json!({"count": 1})).await);
    assert!(!error);
    broker.close().await.unwrap();
    assert_eq!(governed.terminal()["calls"], 3);
    assert_eq!(governed.tier.started(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_call_goes_on_to_its_record_whatever_its_client_does() {
    for disconnects in [true, false] {
        let governed = Setup::default().start();
        let broker = serve(&governed);
        let mut client = WireClient::ready(broker.channel()).await;
        governed.tier.next_runs(Play::runs_on());
        client.start_call(1, "scale", json!({"count": 1})).await;
        governed.until_started(1).await;
        if disconnects {
            drop(client);
            client = WireClient::ready(broker.channel()).await;
        } else {
            client.send(&cancelled(1)).await;
        }
        assert!(client.is_served().await);
        assert!(governed.tier.end(0, Play::exits(0)));
        until_recorded(&governed, "CallSettled").await;
        let (_, error) = envelope(&client.call(2, "scale", json!({"count": 2})).await);
        assert!(!error);
        broker.close().await.unwrap();
        assert_eq!(governed.of_kind("CallSettled").len(), 2);
        assert_eq!(governed.terminal()["completed"], true);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reconnect_may_repeat_ids_and_does_not_reset_the_budget() {
    let governed = Setup::default().calls(2).start();
    let broker = serve(&governed);
    for _ in 0..2 {
        let mut client = WireClient::ready(broker.channel()).await;
        let (_, error) = envelope(&client.call(1, "scale", json!({"count": 1})).await);
        assert!(!error);
    }
    let mut client = WireClient::ready(broker.channel()).await;
    let (over, error) = envelope(&client.call(1, "scale", json!({"count": 1})).await);
    assert!(error);
    assert!(
        over["reason"].as_str().unwrap().contains("budget of 2"),
        "{over}"
    );
    let closed = broker.close().await;
    assert_eq!(closed.unwrap_err(), EndCause::Budget { max_calls: 2 });
    assert_eq!(governed.tier.started(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_while_a_wire_call_waits_for_approval_leaves_nothing() {
    let governed = Setup::default().start();
    let broker = serve(&governed);
    let channel = broker.channel().to_owned();
    let mut client = WireClient::ready(&channel).await;
    client.start_call(1, "guarded", json!({"count": 1})).await;
    let held = governed.held().await;
    assert_eq!(broker.close().await.unwrap_err(), EndCause::ClosedWithCall);
    assert!(governed.session.pending().is_empty());
    let late = governed
        .session
        .decide(&held.held_id, held.review_sha256, true, approver());
    assert!(matches!(late, Err(DecideError::NotHeld { .. })));
    assert!(!channel.exists());
    let after = governed.call("x", "scale", json!({"count": 1})).await;
    assert_eq!(after.unwrap_err(), EndCause::ClosedWithCall);
    assert_eq!(governed.terminal()["completed"], false);
    assert_eq!(governed.tier.started(), 0);
    assert!(client.ended().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_broker_stops_what_runs_and_ends_the_session_as_an_error() {
    let governed = Setup::default().start();
    let broker = serve(&governed);
    let channel = broker.channel().to_owned();
    let mut client = WireClient::ready(&channel).await;
    governed.tier.next_runs(Play::runs_on());
    client.start_call(1, "scale", json!({"count": 1})).await;
    governed.until_started(1).await;
    let began = std::time::Instant::now();
    drop(broker);
    assert!(
        began.elapsed() < Duration::from_millis(50),
        "a drop does not wait"
    );
    until("the channel's removal", || !channel.exists()).await;
    assert!(governed.tier.live().is_empty());
    let terminal = governed.terminal();
    assert_eq!(terminal["completed"], false);
    assert_eq!(terminal["cause"], "cancelled by the owner");
    assert!(client.ended().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_two_connections_are_served_one_after_the_other() {
    let governed = Setup::default().start();
    let broker = serve(&governed);
    let mut first = WireClient::ready(broker.channel()).await;
    let mut second = WireClient::ready(broker.channel()).await;
    governed.tier.next_runs(Play::runs_on());
    first.start_call(1, "scale", json!({"count": 1})).await;
    governed.until_started(1).await;
    second.start_call(1, "scale", json!({"count": 2})).await;
    assert!(second.is_silent().await);
    assert!(governed.tier.end(0, Play::exits(0)));
    let answers = [first.receive().await, second.receive().await];
    assert!(answers.iter().all(|answer| !envelope(answer).1));
    broker.close().await.unwrap();
}
