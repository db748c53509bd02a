//! The client against an engine that says what a test wants.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread::JoinHandle;

use super::*;

/// An engine that gives its scripted answers, one a connection, and keeps the requests.
struct Scripted {
    engine: Engine,
    thread: JoinHandle<Vec<String>>,
    _folder: tempfile::TempDir,
}

fn scripted(answers: &[&str]) -> Scripted {
    let folder = tempfile::tempdir().unwrap();
    let socket: PathBuf = folder.path().join("engine.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let answers: Vec<String> = answers.iter().map(|&text| text.to_owned()).collect();
    let thread = std::thread::spawn(move || {
        let serve = |answer: &String| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut buffer = [0; 4096];
            while !is_whole(&request) {
                let count = stream.read(&mut buffer).unwrap();
                request.extend_from_slice(&buffer[..count]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(request).unwrap()
        };
        answers.iter().map(serve).collect()
    });
    Scripted {
        engine: Engine::at(socket),
        thread,
        _folder: folder,
    }
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    body.len() == length.map_or(0, |text| text.parse().unwrap())
}

fn answer(status: u16, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}")
}

fn some_id() -> ContainerId {
    ContainerId::new(&"ab".repeat(32)).unwrap()
}

#[test]
fn a_container_is_created_and_its_id_is_read() {
    let id = "cd".repeat(32);
    let script = scripted(&[&answer(
        201,
        &format!("{{\"Id\":\"{id}\",\"Warnings\":[]}}"),
    )]);
    let wanted = ContainerCreate {
        config: ContainerConfig {
            image: "sha256:1".to_owned(),
            ..ContainerConfig::default()
        },
        host_config: HostConfig::default(),
    };
    let created = script.engine.create("symbi-1", &wanted).unwrap();
    assert_eq!(created.as_str(), id);
    let requests = script.thread.join().unwrap();
    assert!(requests[0].starts_with("POST /containers/create?name=symbi-1 HTTP/1.1\r\n"));
    assert!(requests[0].contains("\"HostConfig\":{\"NetworkMode\":\"\""));
    assert!(requests[0].contains("\"Image\":\"sha256:1\""));
}

#[test]
fn a_refusal_did_nothing_and_a_failure_is_unknown() {
    let no_image = answer(404, "{\"message\":\"No such image: x\"}");
    let broken = answer(500, "{\"message\":\"disk full\"}");
    let script = scripted(&[&no_image, &broken, "HTTP/1.1 201 Cre", ""]);
    let wanted = ContainerCreate {
        config: ContainerConfig::default(),
        host_config: HostConfig::default(),
    };
    let mut errors = (0..4).map(|_| script.engine.create("n", &wanted).unwrap_err());
    let refused = errors.next().unwrap();
    assert!(refused.did_nothing());
    assert!(
        refused.to_string().contains("No such image: x"),
        "{refused}"
    );
    let failed = errors.next().unwrap();
    assert!(!failed.did_nothing() && failed.status() == Some(500));
    let half = errors.next().unwrap();
    assert!(!half.did_nothing(), "{half}");
    let lost = errors.next().unwrap();
    assert!(!lost.did_nothing() && !lost.is_unreachable(), "{lost}");
    script.thread.join().unwrap();
}

#[test]
fn an_engine_that_is_not_there_was_asked_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::at(folder.path().join("none.sock"));
    let error = engine.version().unwrap_err();
    assert!(error.did_nothing() && error.is_unreachable());
    assert!(error.to_string().contains("none.sock"), "{error}");
}

#[test]
fn an_engine_that_does_not_answer_in_time_leaves_it_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("engine.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    let until = Instant::now() + Duration::from_millis(100);
    let mut connection = Connection::open("ask", &socket, until).unwrap();
    connection.send("GET", "/version", None).unwrap();
    let error = connection.answer().unwrap_err();
    assert!(
        error.to_string().contains("did not answer in time"),
        "{error}"
    );
    assert!(!error.did_nothing());
}

#[test]
fn what_is_not_there_is_no_error() {
    let gone = answer(404, "{\"message\":\"No such\"}");
    let script = scripted(&[&gone, &gone, &gone]);
    assert!(script.engine.image("x:y/z").unwrap().is_none());
    assert!(script.engine.inspect("symbi-1").unwrap().is_none());
    assert_eq!(script.engine.remove("symbi-1").unwrap(), Removal::NotThere);
    let requests = script.thread.join().unwrap();
    assert!(requests[0].starts_with("GET /images/x%3Ay%2Fz/json "));
}

#[test]
fn a_removal_under_way_is_waited_for() {
    let busy = answer(
        409,
        "{\"message\":\"removal of container x is already in progress\"}",
    );
    let ended = answer(200, "{\"StatusCode\":0}");
    let gone = answer(404, "{\"message\":\"No such container\"}");
    let script = scripted(&[&busy, &ended, &gone]);
    assert_eq!(script.engine.remove("x").unwrap(), Removal::Removed);
    let requests = script.thread.join().unwrap();
    assert!(requests[1].starts_with("POST /containers/x/wait?condition=removed "));
}

#[test]
fn a_removal_that_leaves_the_container_is_none() {
    let busy = answer(409, "{\"message\":\"in use\"}");
    let ended = answer(200, "{\"StatusCode\":0}");
    let there = format!(
        "{{\"Id\":\"{}\",\"State\":{{}},\"Config\":{{\"Image\":\"x\"}},\"HostConfig\":{{}}}}",
        some_id()
    );
    let script = scripted(&[&busy, &ended, &answer(200, &there), &answer(500, "no")]);
    assert_eq!(script.engine.remove("x").unwrap_err().status(), Some(409));
    assert!(!script.engine.remove("x").unwrap_err().did_nothing());
    script.thread.join().unwrap();
}

#[test]
fn a_container_that_ended_with_a_code_is_a_result() {
    let script = scripted(&[&answer(200, "{\"StatusCode\":137,\"Error\":null}")]);
    let mut waiting = script.engine.wait(&some_id()).unwrap();
    script.thread.join().unwrap();
    let ended = waiting.advance().unwrap().unwrap();
    assert_eq!(ended.status_code, 137);
}

#[test]
fn a_kill_of_what_does_not_run_is_no_failure() {
    let idle = answer(409, "{\"message\":\"Container x is not running\"}");
    let script = scripted(&[&idle, &answer(500, "no")]);
    script.engine.kill(&some_id()).unwrap();
    assert_eq!(
        script.engine.kill(&some_id()).unwrap_err().status(),
        Some(500)
    );
    script.thread.join().unwrap();
}

#[test]
fn streams_come_from_an_upgraded_connection_and_a_refusal_is_told() {
    let upgraded = "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n\
                    \x01\0\0\0\0\0\0\x02hi";
    let refused = answer(404, "{\"message\":\"No such container\"}");
    let script = scripted(&[upgraded, &refused]);
    let mut attached = script.engine.attach(&some_id(), false).unwrap();
    let mut text = Vec::new();
    attached.drain(&mut |kind, piece| {
        assert_eq!(kind, StreamKind::Stdout);
        text.extend_from_slice(piece);
    });
    assert!(text == b"hi" && attached.is_over());
    let error = script.engine.attach(&some_id(), false).unwrap_err();
    assert_eq!(error.status(), Some(404));
    script.thread.join().unwrap();
}

#[test]
fn containers_are_listed_by_their_labels() {
    let list = format!(
        "[{{\"Id\":\"{}\",\"Names\":[\"/symbi-1\"],\"Labels\":{{\"symbi.lease\":\"1\"}}}}]",
        some_id()
    );
    let script = scripted(&[&answer(200, &list)]);
    let filter = ContainerFilter::default().with_label("symbi.lease");
    let found = script.engine.list(&filter).unwrap();
    assert_eq!(found[0].labels["symbi.lease"], "1");
    let requests = script.thread.join().unwrap();
    let wanted = "filters=%7B%22label%22%3A%5B%22symbi.lease%22%5D%7D";
    assert!(requests[0].contains(wanted), "{}", requests[0]);
}

#[test]
fn messages_of_the_engine_are_escaped_and_bounded() {
    let long = format!("{{\"message\":\"\\u001b[31m{}\"}}", "x".repeat(5000));
    let script = scripted(&[&answer(400, &long)]);
    let error = script.engine.start(&some_id()).unwrap_err().to_string();
    assert!(!error.contains('\u{1b}') && error.len() < 1000, "{error}");
    script.thread.join().unwrap();
}
