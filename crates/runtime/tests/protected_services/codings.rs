//! Answers that come compressed although none was asked for.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use inference::limits::RESPONSE_BYTES_MAX;
use testkit::provider::Turn;

use crate::support::provider::{KEY, Protected, ask, ask_stream};

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn deflate(text: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn coded(coding: &str, kind: &str, body: Vec<u8>) -> Turn {
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    Turn::Raw {
        status: 200,
        headers: vec![
            header("content-type", kind),
            header("content-encoding", coding),
        ],
        body,
    }
}

const JSON: &str = "application/json";
const STREAM: &str = "text/event-stream";
const TEXT: &[u8] = b"event: ping\ndata: {\"type\": \"ping\"}\n\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compressed_answer_arrives_as_what_it_says_and_is_recorded_so() {
    let protected = Protected::start(vec![
        coded("gzip", JSON, gzip(TEXT)),
        coded("deflate", JSON, deflate(TEXT)),
        coded("gzip", STREAM, gzip(TEXT)),
    ]);
    let mut client = protected.client().await;
    for body in [ask(5), ask(5), ask_stream()] {
        let answer = client.post(&body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.body.as_bytes(), TEXT);
        assert!(answer.lacks("content-encoding"), "{answer:?}");
    }
    for seen in protected.provider.requests() {
        assert_eq!(seen.header("accept-encoding").as_deref(), Some("identity"));
    }
    let (_, completed) = protected.pairs();
    for event in completed {
        assert_eq!(event["complete"], true);
        assert_eq!(event["body_bytes"], TEXT.len());
        assert_eq!(event["body_sha256"], model::Digest::of(TEXT).to_string());
    }
    protected.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_is_found_in_a_compressed_answer_and_a_small_one_cannot_be_huge() {
    let bomb = vec![b' '; usize::try_from(RESPONSE_BYTES_MAX).unwrap() + 1];
    let echo = format!("data: {KEY}\n\n");
    let protected = Protected::start(vec![
        coded("gzip", JSON, gzip(echo.as_bytes())),
        coded("gzip", STREAM, gzip(echo.as_bytes())),
        coded("gzip", JSON, gzip(&bomb)),
        coded("deflate", STREAM, deflate(&bomb)),
    ]);
    let mut client = protected.client().await;
    for body in [ask(5), ask_stream(), ask(5), ask_stream()] {
        let answer = client.post(&body).await;
        assert!(answer.lacks(KEY), "{answer:?}");
        let told = answer.status == 403 || answer.body.contains("event: error");
        assert!(told && answer.body.len() as u64 <= RESPONSE_BYTES_MAX + 1024);
    }
    let (_, completed) = protected.pairs();
    assert_eq!(completed.len(), 4);
    assert!(completed.iter().all(|event| event["complete"] == false));
    protected.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coding_that_is_not_undone_or_not_true_is_refused_in_words() {
    let cut = gzip(TEXT);
    let cut = cut[..cut.len() - 4].to_vec();
    let protected = Protected::start(vec![
        coded("br", JSON, TEXT.to_vec()),
        coded("zstd", STREAM, TEXT.to_vec()),
        coded("gzip", JSON, TEXT.to_vec()),
        coded("gzip", JSON, cut),
    ]);
    let mut client = protected.client().await;
    for (body, words) in [
        (ask(5), "compressed its answer"),
        (ask_stream(), "compressed its answer"),
        (ask(5), "malformed"),
        (ask(5), "broke off"),
    ] {
        let answer = client.post(&body).await;
        assert_eq!(answer.status, 403, "{answer:?}");
        assert!(answer.body.contains(words), "{answer:?}");
    }
    let (_, completed) = protected.pairs();
    assert!(completed.iter().all(|event| event["complete"] == false));
    protected.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_provider_s_own_noes_pass_with_what_clients_need_to_try_again() {
    let statuses = [
        (400, "invalid_request_error"),
        (403, "permission_error"),
        (429, "rate_limit_error"),
        (529, "overloaded_error"),
    ];
    let script = statuses.map(|(status, error)| Turn::status(status, error));
    let protected = Protected::start(script.to_vec());
    let mut client = protected.client().await;
    for (status, error) in statuses {
        let answer = client.post(&ask_stream()).await;
        assert_eq!(answer.status, status);
        assert!(answer.body.contains(error), "{answer:?}");
    }
    let (_, completed) = protected.pairs();
    let seen: Vec<_> = completed
        .iter()
        .map(|it| it["status"].as_u64().unwrap())
        .collect();
    assert_eq!(seen, statuses.map(|(status, _)| u64::from(status)));
    protected.close().await;
}
