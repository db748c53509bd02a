use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use model::JsonObject;
use serde_json::{Value, json};

use super::*;

/// What came back on the wire until the connection ended.
struct Got {
    head: String,
    body: Vec<u8>,
}

impl Got {
    fn status(&self) -> u16 {
        self.head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

fn send_raw(provider: &ScriptedProvider, method: &str, path: &str, body: &str) -> Got {
    let mut stream = TcpStream::connect(provider.address()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-api-key: sk-test-key\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .unwrap();
    Got {
        head: String::from_utf8(bytes[..end].to_vec()).unwrap(),
        body: bytes[end + 4..].to_vec(),
    }
}

fn ask(provider: &ScriptedProvider, stream: bool) -> Got {
    let body = json!({"model": "m", "max_tokens": 5, "stream": stream,
        "messages": [{"role": "user", "content": "hi"}]});
    send_raw(
        provider,
        "POST",
        "/v1/messages?beta=true",
        &body.to_string(),
    )
}

fn input(path: &str) -> JsonObject {
    JsonObject::from_map([("path".to_owned(), json!(path))].into_iter().collect())
}

fn start(script: Vec<Turn>) -> ScriptedProvider {
    ScriptedProvider::start(script).unwrap()
}

#[test]
fn the_script_is_played_in_order_as_json_or_as_a_stream() {
    let provider = start(vec![
        Turn::text("one"),
        Turn::ToolUses(vec![
            ToolUse {
                name: "a".to_owned(),
                input: input("x"),
            },
            ToolUse {
                name: "b".to_owned(),
                input: input("y"),
            },
        ]),
    ]);
    let message = ask(&provider, false).json();
    assert_eq!(message["content"][0]["text"], "one");
    assert_eq!(message["model"], "m");
    let stream = ask(&provider, true);
    assert!(stream.head.contains("text/event-stream"), "{}", stream.head);
    let text = stream.text();
    assert!(
        text.contains("toolu_2_1") && text.contains("toolu_2_2"),
        "{text}"
    );
    assert!(text.contains("event: message_stop"));
    let end = ask(&provider, false);
    assert_eq!(end.status(), 400);
    assert!(end.text().contains("the_script_is_at_its_end"));
}

#[test]
fn requests_are_kept_as_they_arrived() {
    let provider = start(vec![]);
    assert_eq!(send_raw(&provider, "HEAD", "/", "").status(), 200);
    let count = send_raw(&provider, "POST", "/v1/messages/count_tokens", "{}");
    assert!(count.json()["input_tokens"].is_u64());
    assert_eq!(send_raw(&provider, "GET", "/v1/models", "").status(), 404);
    let seen = provider.requests();
    let lines: Vec<(&str, &str)> = seen
        .iter()
        .map(|request| (request.method.as_str(), request.path.as_str()))
        .collect();
    assert_eq!(
        lines,
        [
            ("HEAD", "/"),
            ("POST", "/v1/messages/count_tokens"),
            ("GET", "/v1/models")
        ]
    );
    assert_eq!(seen[1].body, b"{}");
    assert_eq!(seen[1].header("x-api-key").unwrap(), "sk-test-key");
}

#[test]
fn failures_of_every_kind_are_played() {
    let provider = start(vec![
        Turn::status(429, "rate_limit_error"),
        Turn::Redirect("https://elsewhere.example/".to_owned()),
        Turn::Raw {
            status: 200,
            headers: vec![("content-encoding".to_owned(), "gzip".to_owned())],
            body: b"\x1f\x8b".to_vec(),
        },
    ]);
    let limited = ask(&provider, true);
    assert_eq!(limited.status(), 429);
    assert_eq!(limited.json()["error"]["type"], "rate_limit_error");
    let redirect = ask(&provider, true);
    assert_eq!(redirect.status(), 302);
    assert!(
        redirect
            .head
            .contains("location: https://elsewhere.example/")
    );
    let raw = ask(&provider, true);
    assert!(raw.head.contains("content-encoding: gzip"));
    assert_eq!(raw.body, b"\x1f\x8b");
}

#[test]
fn a_dropped_stream_has_a_beginning_and_no_end() {
    let provider = start(vec![Turn::DropMidStream, Turn::DropMidStream]);
    let stream = ask(&provider, true);
    assert_eq!(stream.status(), 200);
    let text = stream.text();
    assert!(text.contains("message_start") && !text.contains("message_stop"));
    assert!(!text.ends_with("0\r\n\r\n"), "the chunked body has no end");
    let message = ask(&provider, false);
    assert!(!message.text().ends_with("0\r\n\r\n"));
}

#[test]
fn a_slow_turn_waits_before_its_head_and_a_trickle_between_its_events() {
    let pause = Duration::from_millis(30);
    let provider = start(vec![
        Turn::Slow {
            delay: pause,
            then: Box::new(Turn::text("late")),
        },
        Turn::Trickle {
            text: "drops".to_owned(),
            pause,
        },
    ]);
    let begun = Instant::now();
    assert_eq!(ask(&provider, false).json()["content"][0]["text"], "late");
    assert!(begun.elapsed() >= pause);
    let begun = Instant::now();
    assert!(ask(&provider, true).text().contains("drops"));
    assert!(begun.elapsed() >= pause * 5);
}

#[test]
fn the_credential_comes_back_where_the_script_says_so() {
    let provider = start(vec![
        Turn::EchoCredential { status: 401 },
        Turn::EchoCredential { status: 200 },
    ]);
    let failure = ask(&provider, true);
    assert_eq!(failure.status(), 401);
    assert!(failure.head.contains("request-id: req_sk-test-key"));
    let stream = ask(&provider, true);
    assert!(
        !stream.text().contains("sk-test-key"),
        "it is cut in two chunks"
    );
    assert!(stream.text().contains("sk-te"));
}

#[test]
fn an_oversized_answer_is_one_byte_too_large() {
    let provider = start(vec![Turn::Oversize]);
    let got = ask(&provider, true);
    assert!(!got.head.contains("content-length"));
    let spaces = got.body.iter().filter(|byte| **byte == b' ').count();
    assert_eq!(spaces as u64, inference::limits::RESPONSE_BYTES_MAX + 1);
}

#[test]
fn an_author_chooses_the_next_step_from_earlier_results() {
    let provider = ScriptedProvider::interactive(|_, asked| match asked.results.last() {
        None => Turn::tool_use("read", input("data.csv")),
        Some(result) => Turn::text(&format!("it says {}", result.text)),
    })
    .unwrap();
    let first = ask(&provider, false).json();
    assert_eq!(first["content"][0]["input"]["path"], "data.csv");
    let id = first["content"][0]["id"].clone();
    let next = json!({"model": "m", "messages": [{"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": id, "content": "42"}]}]});
    let got = send_raw(&provider, "POST", "/v1/messages", &next.to_string());
    assert_eq!(got.json()["content"][0]["text"], "it says 42");
}

#[test]
fn dropping_the_provider_closes_its_port_and_its_connections() {
    let provider = start(vec![Turn::Slow {
        delay: Duration::from_secs(60),
        then: Box::new(Turn::text("never")),
    }]);
    let address = provider.address();
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
        .unwrap();
    while provider.requests().is_empty() {
        std::thread::yield_now();
    }
    drop(provider);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(rest, b"");
    assert!(TcpStream::connect(address).is_err());
}
