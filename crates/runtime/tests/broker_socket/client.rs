//! A client over a pair of streams: governed, not contained.

use std::future::pending;

use governance::EndCause;
use serde_json::json;
use symbi_runtime::cli_executor::broker::McpToolBroker;
use testkit::tier::Play;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, split};
use tokio::sync::oneshot;

use crate::support::session::Setup;
use crate::support::wire::hello;

const PIPE_BYTES: usize = 64 << 10;

fn call(id: u64) -> String {
    let params = json!({"name": "scale", "arguments": {"count": 1}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

fn opening(calls: &[u64]) -> String {
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let open = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello()});
    let mut lines = vec![open.to_string(), ready.to_string()];
    lines.extend(calls.iter().map(|id| call(*id)));
    lines.join("\n") + "\n"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_gets_the_answer_of_what_runs_and_completes_the_session() {
    let governed = Setup::default().start();
    governed.tier.next_runs(Play::runs_on());
    let (mut client, server) = duplex(PIPE_BYTES);
    let (session, run) = (governed.session.clone(), governed.run);
    let served = tokio::spawn(async move {
        McpToolBroker::serve_client(session, run, split(server), pending()).await
    });
    client.write_all(opening(&[1]).as_bytes()).await.unwrap();
    governed.until_started(1).await;
    client.shutdown().await.unwrap();
    assert!(governed.tier.end(0, Play::exits(0)));
    let mut said = String::new();
    client.read_to_string(&mut said).await.unwrap();
    assert_eq!(served.await.unwrap(), Ok(()));
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(said.contains("succeeded"), "{said}");
    assert_eq!(governed.terminal()["completed"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_from_outside_completes_an_idle_session_and_stops_what_runs_in_another() {
    for runs in [false, true] {
        let governed = Setup::default().start();
        governed.tier.next_runs(Play::runs_on());
        let (mut client, server) = duplex(PIPE_BYTES);
        let (stop, stopped) = oneshot::channel::<()>();
        let (session, run) = (governed.session.clone(), governed.run);
        let served = tokio::spawn(async move {
            let stop = async { drop(stopped.await) };
            McpToolBroker::serve_client(session, run, split(server), stop).await
        });
        let calls: &[u64] = if runs { &[1] } else { &[] };
        client.write_all(opening(calls).as_bytes()).await.unwrap();
        if runs {
            governed.until_started(1).await;
        }
        drop(stop);
        let end = served.await.unwrap();
        assert_eq!(end.is_err(), runs, "{end:?}");
        assert_eq!(governed.terminal()["completed"], !runs);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_nothing_or_breaks_a_frame_off_is_at_fault() {
    let governed = Setup::default().start();
    let (mut client, server) = duplex(PIPE_BYTES);
    client.write_all(b"{\"jsonrpc\":").await.unwrap();
    client.shutdown().await.unwrap();
    let session = governed.session.clone();
    let end = McpToolBroker::serve_client(session, governed.run, split(server), pending()).await;
    assert!(matches!(end, Err(EndCause::Transport { .. })), "{end:?}");

    let governed = Setup::default().start();
    let (mut client, server) = duplex(16);
    let session = governed.session.clone();
    let served = McpToolBroker::serve_client(session, governed.run, split(server), pending());
    let hello = opening(&[]);
    let (end, _) = tokio::join!(served, client.write_all(hello.as_bytes()));
    assert!(matches!(end, Err(EndCause::Transport { .. })), "{end:?}");
}
