//! What comes back: as it arrives, bounded, and never with the key.

use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use inference::limits::RESPONSE_BYTES_MAX;
use serde_json::json;
use testkit::provider::{ScriptedProvider, Turn};

use crate::support::PATIENCE;
use crate::support::provider::{Answer, KEY, Protected, ask, ask_stream, serve, terms};
use crate::support::session::Setup;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_stream_passes_as_it_arrives() {
    let pause = Duration::from_millis(100);
    let text = "one two three".to_owned();
    let protected = Protected::start(vec![Turn::Trickle { text, pause }]);
    let mut client = protected.client().await;
    let began = Instant::now();
    let headers = [("content-type", "application/json")];
    let body = ask_stream().to_string();
    let answer = client.send("POST", "/v1/messages", &headers, body).await;
    let mut body = answer.unwrap().into_body();
    let (mut first, mut all) = (None, String::new());
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(data) = frame.into_data() {
            first.get_or_insert(began.elapsed());
            all.push_str(&String::from_utf8_lossy(&data));
        }
    }
    let (first, whole) = (first.unwrap(), began.elapsed());
    assert!(
        first * 2 < whole,
        "first piece after {first:?} of {whole:?}"
    );
    assert!(
        all.contains("message_start") && all.contains("message_stop"),
        "{all}"
    );
    let (_, completed) = protected.pairs();
    assert_eq!(completed[0]["complete"], true);
    assert_eq!(completed[0]["body_bytes"], all.len());
    protected.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirect_is_not_followed_and_its_place_is_not_told() {
    let elsewhere = ScriptedProvider::start(vec![Turn::text("leaked")]).unwrap();
    let place = format!("{}/v1/messages", elsewhere.url());
    let protected = Protected::start(vec![Turn::Redirect(place.clone())]);
    let answer = protected.client().await.post(&ask(5)).await;
    assert_eq!(answer.status, 403, "{answer:?}");
    assert!(
        answer.lacks(&place) && answer.lacks("location"),
        "{answer:?}"
    );
    assert!(elsewhere.requests().is_empty());
    let (requested, completed) = protected.pairs();
    assert_eq!((requested.len(), completed.len()), (1, 1));
    assert_eq!(completed[0]["complete"], false);
    assert_eq!(completed[0]["status"], 302);
    protected.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_with_the_key_in_it_does_not_come_back() {
    let echo = |status| Turn::EchoCredential { status };
    let protected = Protected::start(vec![echo(200), echo(401), echo(200)]);
    let mut client = protected.client().await;
    for body in [ask(5), ask(5), ask_stream()] {
        let answer = client.post(&body).await;
        assert!(answer.lacks(KEY), "{answer:?}");
        assert!(answer.lacks(&KEY[..KEY.len() / 2 + 1]), "{answer:?}");
    }
    let (requested, completed) = protected.pairs();
    assert_eq!((requested.len(), completed.len()), (3, 3));
    for event in &completed {
        assert_eq!(event["complete"], false);
        assert!(event["reason"].is_string(), "{event}");
    }
    protected.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_oversized_answer_is_cut_and_said_to_be() {
    let protected = Protected::start(vec![Turn::Oversize, Turn::Oversize]);
    let mut client = protected.client().await;
    let whole = client.post(&ask(5)).await;
    assert_eq!(whole.status, 403, "{}", whole.status);
    let stream = client.post(&ask_stream()).await;
    assert!(stream.body.len() as u64 <= RESPONSE_BYTES_MAX + 1024);
    assert!(stream.body.contains("event: error"), "the agent is told");
    let (_, completed) = protected.pairs();
    assert_eq!(completed.len(), 2);
    assert!(completed.iter().all(|event| event["complete"] == false));
    protected.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_breaks_off_is_completed_as_incomplete() {
    let protected = Protected::start(vec![Turn::DropMidStream, Turn::DropMidStream]);
    let mut client = protected.client().await;
    assert_eq!(client.post(&ask(5)).await.status, 403);
    let stream = client.post(&ask_stream()).await;
    assert!(stream.body.contains("event: error"), "{stream:?}");
    let (requested, completed) = protected.pairs();
    assert_eq!((requested.len(), completed.len()), (2, 2));
    assert!(completed.iter().all(|event| event["complete"] == false));
    protected.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_providers_own_error_passes_with_its_status() {
    let protected = Protected::start(vec![Turn::status(429, "rate_limit_error")]);
    let answer = protected.client().await.post(&ask(5)).await;
    assert_eq!(answer.status, 429);
    assert!(answer.body.contains("rate_limit_error"), "{answer:?}");
    assert_eq!(protected.pairs().1[0]["complete"], true);
    protected.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_is_not_there_is_a_completed_failure() {
    let governed = Setup::default().start_durable();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let broker = serve(&governed, &url, terms(), PATIENCE);
    let mut client = crate::support::provider::Http::connect(broker.channel()).await;
    let answer = client.post(&ask(5)).await;
    assert_eq!(answer.status, 403, "{answer:?}");
    broker.close().await.unwrap();
    let completed = &governed.of_kind("InferenceCompleted")[0];
    assert_eq!(
        (&completed["complete"], &completed["status"]),
        (&json!(false), &json!(0))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_share_a_connection() {
    let protected = Protected::start((0..20).map(|_| Turn::text("hi")).collect());
    let mut client = protected.client().await;
    for _ in 0..20 {
        let headers = [("content-type", "application/json")];
        let body = ask(5).to_string();
        let answer = client.send("POST", "/v1/messages", &headers, body).await;
        assert_eq!(Answer::of(answer.unwrap()).await.status, 200);
    }
    let (requested, completed) = protected.pairs();
    let numbers = |events: &[serde_json::Value]| -> Vec<u64> {
        events
            .iter()
            .map(|event| event["request"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(numbers(&requested), numbers(&completed));
    assert_eq!(
        numbers(&requested),
        (requested[0]["request"].as_u64().unwrap()..)
            .take(20)
            .collect::<Vec<_>>()
    );
    protected.close().await;
}
