//! Interrupted, late and unrecordable requests, and what they mean for the run.

use std::io::Write;
use std::time::Duration;

use governance::EndCause;
use journal::Verdict;
use serde_json::json;
use testkit::provider::{ScriptedProvider, Turn};

use crate::support::provider::{Http, KEY, Protected, ask, ask_stream, terms};
use crate::support::session::{settled, succeeded};
use crate::support::wire::WireClient;
use crate::support::{PATIENCE, until};

fn trickle() -> Turn {
    Turn::Trickle {
        text: "one two three".to_owned(),
        pause: Duration::from_millis(100),
    }
}

fn slow() -> Turn {
    Turn::Slow {
        delay: Duration::from_secs(60),
        then: Box::new(Turn::text("late")),
    }
}

async fn send(
    client: &mut Http,
    body: serde_json::Value,
) -> Option<hyper::Response<hyper::body::Incoming>> {
    let headers = [("content-type", "application/json")];
    client
        .send("POST", "/v1/messages", &headers, body.to_string())
        .await
}

async fn until_completed(protected: &Protected, count: usize) {
    until("the completion", || protected.pairs().1.len() == count).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_stops_reading_leaves_an_incomplete_pair_and_the_run_goes_on() {
    let protected = Protected::start(vec![trickle(), slow(), Turn::text("hi")]);
    let mut client = protected.client().await;
    let answer = send(&mut client, ask_stream()).await.unwrap();
    drop((answer, client));
    until_completed(&protected, 1).await;
    let mut waiting = protected.client().await;
    let asked = tokio::spawn(async move { send(&mut waiting, ask(5)).await.is_none() });
    until("the second request", || {
        protected.provider.requests().len() == 2
    })
    .await;
    asked.abort();
    until_completed(&protected, 2).await;
    assert_eq!(protected.client().await.post(&ask(5)).await.status, 200);
    succeeded(
        protected
            .governed
            .call("1", "scale", json!({"count": 1}))
            .await,
    );
    let (requested, completed) = protected.pairs();
    assert_eq!((requested.len(), completed.len()), (3, 3));
    for event in &completed[..2] {
        assert_eq!(event["complete"], false);
        assert!(event["reason"].is_string(), "{event}");
    }
    let (governed, _) = protected.close().await;
    assert_eq!(governed.terminal()["completed"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_slower_than_the_limit_ends_the_run() {
    let limit = Duration::from_millis(300);
    for (turn, body) in [
        (slow(), ask(5)),
        (slow(), ask_stream()),
        (trickle(), ask_stream()),
    ] {
        let late_in_stream = matches!(turn, Turn::Trickle { .. });
        let protected = Protected::with(vec![turn], terms(), limit);
        let answer = protected.client().await.post(&body).await;
        match late_in_stream {
            false => assert_ne!(answer.status, 200, "{answer:?}"),
            true => assert!(!answer.body.contains("message_stop"), "{answer:?}"),
        }
        let after = protected
            .governed
            .call("1", "scale", json!({"count": 1}))
            .await;
        assert!(
            matches!(after, Err(EndCause::Inference { .. })),
            "{after:?}"
        );
        let Protected {
            governed,
            broker,
            provider,
        } = protected;
        let closed = broker.close().await;
        assert!(
            matches!(closed, Err(EndCause::Inference { .. })),
            "{closed:?}"
        );
        assert_eq!(governed.of_kind("InferenceRequested").len(), 1);
        assert_eq!(governed.of_kind("InferenceCompleted").len(), 0);
        let cause = governed.terminal()["cause"].as_str().unwrap().to_owned();
        assert!(cause.contains("did not answer within 0.3 s"), "{cause}");
        assert_eq!(governed.tier.started(), 0);
        assert_eq!(provider.requests().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_damaged_from_outside_stops_requests_and_the_close_fails() {
    let protected = Protected::start(vec![Turn::text("first"), Turn::text("second")]);
    let mut client = protected.client().await;
    assert_eq!(client.post(&ask(5)).await.status, 200);
    let path = protected
        .governed
        .project
        .journal_path(protected.governed.run);
    let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(b"x").unwrap();
    drop(file);
    let refused = client.post(&ask(5)).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    assert_eq!(protected.provider.requests().len(), 1);
    let after = protected
        .governed
        .call("1", "scale", json!({"count": 1}))
        .await;
    assert!(matches!(after, Err(EndCause::Journal { .. })), "{after:?}");
    let closed = protected.broker.close().await;
    assert!(
        matches!(closed, Err(EndCause::Journal { .. })),
        "{closed:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_completes_the_requests_that_it_interrupts_before_the_terminal_record() {
    for (turn, body) in [(slow(), ask(5)), (trickle(), ask_stream())] {
        let protected = Protected::start(vec![turn]);
        let mut client = protected.client().await;
        let asked = tokio::spawn(async move {
            let answer = send(&mut client, body).await;
            tokio::time::sleep(PATIENCE).await;
            drop((answer, client));
        });
        until("the request", || protected.provider.requests().len() == 1).await;
        let (governed, _) = protected.close().await;
        asked.abort();
        let kinds = governed.kinds();
        assert!(
            kinds.ends_with(&["InferenceCompleted".to_owned(), "RunEnded".to_owned()]),
            "{kinds:?}"
        );
        assert_eq!(governed.of_kind("InferenceCompleted")[0]["complete"], false);
        assert_eq!(
            governed.project.verify(governed.run).verdict,
            Verdict::Intact
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_and_calls_at_once_leave_a_verifiable_journal_without_the_key() {
    let provider = ScriptedProvider::interactive(|_, _| Turn::text("hi")).unwrap();
    let protected = Protected::before(provider, terms(), PATIENCE);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let mut client = protected.client().await;
        tasks.spawn(async move {
            for _ in 0..10 {
                assert_eq!(client.post(&ask(5)).await.status, 200);
            }
        });
    }
    for id in 0..20 {
        let id = id.to_string();
        let answer = protected.governed.call(&id, "scale", json!({"count": 1}));
        settled(answer.await);
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let (governed, _) = protected.close().await;
    let report = governed.project.verify(governed.run);
    assert_eq!(
        (report.verdict, report.completed),
        (Verdict::Intact, Some(true))
    );
    assert_eq!(report.records, 2 + 20 * 2 + 60 * 2);
    let bytes = std::fs::read(governed.project.journal_path(governed.run)).unwrap();
    assert!(!bytes.windows(KEY.len()).any(|it| it == KEY.as_bytes()));
    assert_eq!(governed.of_kind("InferenceCompleted").len(), 60);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sockets_share_the_bound_of_live_connections() {
    let protected = Protected::start(vec![Turn::text("hi")]);
    let channel = protected.broker.channel().to_owned();
    let mut live = Vec::new();
    for _ in 0..8 {
        live.push(WireClient::ready(&channel).await);
    }
    let mut client = protected.client().await;
    let asked = tokio::spawn(async move { client.post(&ask(5)).await.status });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(protected.provider.requests().is_empty() && !asked.is_finished());
    drop(live.pop());
    assert_eq!(asked.await.unwrap(), 200);
    protected.close().await;
}
