//! What no HTTP client of good will sends, on the agent's socket.

use testkit::provider::Turn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::support::PATIENCE;
use crate::support::provider::{KEY, Protected, ask};

/// What comes back on a connection of its own until it ends, or goes quiet.
async fn answer(protected: &Protected, bytes: &[u8]) -> String {
    let socket = protected.broker.channel().join("inference.sock");
    let mut stream = UnixStream::connect(socket).await.unwrap();
    // It may end the connection before it has read all of it.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut all = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut all))
        .await
        .unwrap();
    String::from_utf8_lossy(&all).into_owned()
}

fn post(head: &str, body: &str) -> Vec<u8> {
    format!("POST /v1/messages HTTP/1.1\r\nhost: x\r\n{head}\r\n{body}").into_bytes()
}

/// What each is, and its bytes.
fn abuse() -> Vec<(&'static str, Vec<u8>)> {
    let body = ask(5).to_string();
    let length = body.len();
    let many: String = (0..200).map(|n| format!("x-{n}: y\r\n")).collect();
    vec![
        (
            "two lengths",
            post(
                &format!("content-length: {length}\r\ncontent-length: 5\r\n"),
                &body,
            ),
        ),
        (
            "a length that is none",
            post("content-length: 0x10\r\n", &body),
        ),
        ("a negative length", post("content-length: -1\r\n", &body)),
        (
            "a chunk that has no size",
            post("transfer-encoding: chunked\r\n", "zz\r\nab\r\n0\r\n\r\n"),
        ),
        (
            "a chunk of a huge size",
            post("transfer-encoding: chunked\r\n", "ffffffffffffffff\r\nab"),
        ),
        (
            "a coding that is none",
            post("transfer-encoding: gzip\r\n", &body),
        ),
        (
            "a space before the colon",
            post("x-a : y\r\ncontent-length: 2\r\n", "{}"),
        ),
        (
            "a folded line",
            post("x-a: y\r\n z\r\ncontent-length: 2\r\n", "{}"),
        ),
        (
            "a zero byte in a name",
            post("x\0a: y\r\ncontent-length: 2\r\n", "{}"),
        ),
        ("too many header lines", post(&many, "")),
        (
            "a head without end",
            post(&format!("x-long: {}\r\n", "y".repeat(1 << 20)), ""),
        ),
        ("no version", b"POST /v1/messages\r\n\r\n".to_vec()),
        (
            "another version",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        ),
        (
            "another protocol",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        ),
        (
            "a tunnel",
            b"CONNECT evil.example:443 HTTP/1.1\r\nhost: evil.example\r\n\r\n".to_vec(),
        ),
        (
            "a body that breaks off",
            post(&format!("content-length: {}\r\n", length + 1), &body),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_can_be_read_in_two_ways_reach_nobody() {
    let protected = Protected::start(Vec::new());
    for (what, bytes) in abuse() {
        let answer = answer(&protected, &bytes).await;
        let refused = answer.is_empty() || answer.starts_with("HTTP/1.1 4");
        assert!(refused, "{what}: {answer}");
        assert!(!answer.contains(KEY), "{what}");
    }
    assert!(protected.provider.requests().is_empty());
    let (requested, completed) = protected.pairs();
    assert!(requested.is_empty() && completed.is_empty());
    protected.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_inside_a_request_is_no_request_of_ours() {
    let protected = Protected::start(vec![Turn::text("one"), Turn::text("two")]);
    let body = ask(5).to_string();
    let inner = "POST /v1/files HTTP/1.1\r\nhost: evil.example\r\nx-api-key: mine\r\n\r\n";
    // Whoever goes by the length sees one request; whoever goes by the chunks sees two.
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n{inner}", body.len());
    let head = format!(
        "content-length: {}\r\ntransfer-encoding: chunked\r\n",
        chunks.len()
    );
    answer(&protected, &post(&head, &chunks)).await;
    let seen = protected.provider.requests();
    assert!(seen.len() <= 1, "{seen:?}");
    for request in seen {
        assert_eq!(request.path, "/v1/messages");
        assert_eq!(request.header("x-api-key").as_deref(), Some(KEY));
        assert_eq!(request.header("transfer-encoding"), None);
        let length = request.body.len().to_string();
        assert_eq!(request.header("content-length"), Some(length));
        assert!(!request.body.windows(6).any(|part| part == b"/files"));
    }
    protected.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_of_another_host_goes_to_the_one_provider() {
    let protected = Protected::start(vec![Turn::text("one")]);
    let body = ask(5).to_string();
    let request = format!(
        "POST http://evil.example/v1/messages HTTP/1.1\r\nhost: evil.example\r\n\
         upgrade: websocket\r\nconnection: upgrade\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = answer(&protected, request.as_bytes()).await;
    assert!(!answer.starts_with("HTTP/1.1 101"), "{answer}");
    for seen in protected.provider.requests() {
        let address = protected.provider.address().to_string();
        assert_eq!(seen.header("host"), Some(address));
        assert_eq!(seen.header("upgrade"), None);
    }
    protected.close().await;
}
