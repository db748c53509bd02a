//! What reaches the provider, and what never does.

use std::time::{Duration, Instant};

use inference::BaseUrl;
use inference::limits::REQUEST_BYTES_MAX;
use journal::{Journal, MemoryWriter};
use model::{Digest, Redacted, RunId};
use serde_json::json;
use symbi_runtime::cli_executor::ProtectedInference;
use symbi_runtime::cli_executor::limits::FRAME_READ_MAX;
use testkit::provider::Turn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::support::PATIENCE;
use crate::support::provider::{Answer, KEY, MODEL, Protected, ask, terms};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_headers_never_arrive_and_the_real_key_does() {
    let protected = Protected::start(vec![Turn::text("hi")]);
    let mut client = protected.client().await;
    let forged = [
        ("host", "evil.example"),
        ("x-api-key", "forged-key"),
        ("authorization", "Bearer forged-token"),
        ("anthropic-beta", "forged-beta"),
        ("anthropic-version", "1999-01-01"),
        ("x-forwarded-for", "10.0.0.1"),
        ("cookie", "forged=1"),
        ("content-type", "application/json"),
    ];
    let body = ask(5).to_string();
    let answer = client.send("POST", "/v1/messages", &forged, body).await;
    let answer = Answer::of(answer.unwrap()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let seen = protected.provider.requests().remove(0);
    assert_eq!(seen.header("x-api-key").as_deref(), Some(KEY));
    let address = protected.provider.address().to_string();
    assert_eq!(seen.header("host"), Some(address));
    assert_eq!(
        seen.header("anthropic-beta").as_deref(),
        Some("configured-2025-01-01")
    );
    assert_eq!(
        seen.header("anthropic-version").as_deref(),
        Some("2023-06-01")
    );
    let all = format!("{:?}", seen.headers);
    assert!(
        !all.contains("forged") && !all.contains("10.0.0.1"),
        "{all}"
    );
    for name in ["host", "x-api-key"] {
        assert_eq!(seen.headers.iter().filter(|(it, _)| it == name).count(), 1);
    }
    protected.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_forwarded_in_canonical_form_and_recorded_as_it_went() {
    let protected = Protected::start(vec![Turn::text("hi")]);
    let mut client = protected.client().await;
    let text = format!(
        "{{ \"messages\" : [ {{\"role\":\"user\", \"content\":\"h\\u0065llo\"}} ],\n \
         \"max_tokens\": 7, \"model\" :\"{MODEL}\" }}"
    );
    assert_eq!(client.post_text(&text).await.status, 200);
    let seen = protected.provider.requests().remove(0);
    let sent = String::from_utf8(seen.body.clone()).unwrap();
    let canonical = format!(
        r#"{{"max_tokens":7,"messages":[{{"content":"hello","role":"user"}}],"model":"{MODEL}"}}"#
    );
    assert_eq!(sent, canonical);
    let (requested, completed) = protected.pairs();
    assert_eq!(
        requested[0]["body_sha256"],
        Digest::of(&seen.body).to_string()
    );
    assert_eq!(requested[0]["body_bytes"], seen.body.len());
    assert_eq!(requested[0]["reserved_output_tokens"], 7);
    assert_eq!(
        (&completed[0]["complete"], &completed[0]["status"]),
        (&json!(true), &json!(200))
    );
    protected.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_terms_do_not_allow_is_refused_without_upstream_traffic() {
    let protected = Protected::start(Vec::new());
    let mut client = protected.client().await;
    let with = |key: &str, value: serde_json::Value| {
        let mut body = ask(5);
        body[key] = value;
        body
    };
    let url_source = json!([{"role": "user", "content": [
        {"type": "image", "source": {"type": "url", "url": "http://10.0.0.1/x.png"}}
    ]}]);
    for body in [
        with("model", json!("another-model")),
        with("max_tokens", json!(101)),
        with(
            "tools",
            json!([{"type": "web_search_20250305", "name": "web_search"}]),
        ),
        with(
            "mcp_servers",
            json!([{"type": "url", "url": "http://x", "name": "x"}]),
        ),
        with("container", json!("c")),
        with("messages", url_source),
        with(
            "context_management",
            json!({"edits": [{"type": "unknown_20250101"}]}),
        ),
        json!([]),
    ] {
        let answer = client.post(&body).await;
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
        assert!(answer.body.contains("invalid_request_error"), "{answer:?}");
    }
    for (method, path) in [
        ("GET", "/v1/models"),
        ("POST", "/v1/messages/batches"),
        ("POST", "/v1/complete"),
        ("DELETE", "/v1/messages"),
        ("POST", "/v1/files"),
    ] {
        let answer = client.send(method, path, &[], ask(5).to_string()).await;
        let answer = Answer::of(answer.unwrap()).await;
        assert!(
            (400..404).contains(&answer.status),
            "{method} {path}: {answer:?}"
        );
    }
    assert!(protected.provider.requests().is_empty());
    let (requested, completed) = protected.pairs();
    assert!(requested.is_empty() && completed.is_empty());
    protected.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_harmless_context_hint_is_forwarded() {
    let protected = Protected::start(vec![Turn::text("hi")]);
    let mut body = ask(5);
    let keep = json!({"type": "clear_thinking_20251015", "keep": "all"});
    body["context_management"] = json!({"edits": [keep]});
    let answer = protected.client().await.post(&body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    protected.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_over_its_bound_is_refused_without_upstream_traffic() {
    let protected = Protected::start(Vec::new());
    let mut client = protected.client().await;
    let body = " ".repeat(REQUEST_BYTES_MAX + 1);
    let headers = [("content-type", "application/json")];
    if let Some(answer) = client.send("POST", "/v1/messages", &headers, body).await {
        assert_eq!(Answer::of(answer).await.status, 400);
    }
    assert!(protected.provider.requests().is_empty());
    protected.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_output_reservation_is_spent_by_good_and_failed_requests_alike() {
    let mut terms = terms();
    terms.max_total_output_tokens = 10;
    let script = vec![Turn::DropMidStream, Turn::text("hi"), Turn::text("never")];
    let protected = Protected::with(script, terms, PATIENCE);
    let mut client = protected.client().await;
    assert_eq!(
        client.post(&ask(5)).await.status,
        403,
        "the provider broke off"
    );
    assert_eq!(client.post(&ask(5)).await.status, 200);
    let third = client.post(&ask(5)).await;
    assert_eq!(third.status, 403, "{third:?}");
    assert!(third.body.contains("permission_error"), "{third:?}");
    assert_eq!(protected.provider.requests().len(), 2);
    assert_eq!(protected.pairs().0.len(), 2);
    protected.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_number_of_requests_is_bounded() {
    let mut terms = terms();
    terms.max_requests = 1;
    let protected = Protected::with(vec![Turn::text("hi"), Turn::text("no")], terms, PATIENCE);
    let mut client = protected.client().await;
    assert_eq!(client.post(&ask(5)).await.status, 200);
    assert_eq!(client.post(&ask(5)).await.status, 403);
    assert_eq!(protected.provider.requests().len(), 1);
    protected.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn head_is_answered_here_and_tokens_are_counted_there() {
    let protected = Protected::start(Vec::new());
    let mut client = protected.client().await;
    let head = client.send("HEAD", "/", &[], "").await.unwrap();
    assert_eq!(head.status(), 200);
    let count = json!({"model": MODEL, "messages": [{"role": "user", "content": "hello"}]});
    let headers = [("content-type", "application/json")];
    let path = "/v1/messages/count_tokens?beta=true";
    let answer = client.send("POST", path, &headers, count.to_string()).await;
    let answer = Answer::of(answer.unwrap()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.body.contains("input_tokens"), "{answer:?}");
    assert_eq!(protected.provider.requests().len(), 1);
    let (requested, completed) = protected.pairs();
    assert_eq!((requested.len(), completed.len()), (1, 1));
    assert_eq!(requested[0]["reserved_output_tokens"], 0);
    protected.close().await;
}

#[test]
fn a_credential_or_terms_that_cannot_be_used_are_refused_and_not_repeated() {
    let make = |key: &str, max_requests| {
        let mut terms = terms();
        terms.max_requests = max_requests;
        let run = RunId::new();
        let journal = Journal::new(Box::new(MemoryWriter::new()), None, run, "x".to_owned());
        ProtectedInference::new(
            BaseUrl::parse("http://127.0.0.1:1").unwrap(),
            Redacted::new(key.to_owned()),
            terms,
            PATIENCE,
            journal,
        )
    };
    for bad in ["", "two words", "line\nfeed", "ünicode"] {
        let error = make(bad, 1).unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(bad.is_empty() || !shown.contains(bad), "{shown}");
    }
    assert!(make(KEY, 0).is_err());
    let good = make(KEY, 1).unwrap();
    assert!(!format!("{good:?}").contains(KEY));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_connection_may_be_idle_longer_than_a_head_may_take() {
    let protected = Protected::start(vec![Turn::text("one"), Turn::text("two")]);
    let mut client = protected.client().await;
    assert_eq!(client.post(&ask(5)).await.status, 200);
    tokio::time::sleep(FRAME_READ_MAX + Duration::from_secs(1)).await;
    assert_eq!(client.post(&ask(5)).await.status, 200);
    protected.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_head_ends_its_connection_at_the_read_deadline() {
    let protected = Protected::start(Vec::new());
    let socket = protected.broker.channel().join("inference.sock");
    let mut stream = UnixStream::connect(socket).await.unwrap();
    let began = Instant::now();
    stream
        .write_all(b"POST /v1/messages HTTP/1.1\r\nho")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let ended = timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok());
    assert!(began.elapsed() < FRAME_READ_MAX + Duration::from_secs(3));
    assert!(protected.provider.requests().is_empty());
    protected.close().await;
}
