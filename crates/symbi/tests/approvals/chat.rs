//! Answers in a chat: the platform and the relay are fixtures on this machine, all else is real.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::desk::{Desk, interrupt, until, wait};
use crate::world::{call, configure, created, guarded, records};

const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";

/// Signs a slash command as the platform does and hands it in as a relay does: to an address, or
/// to a socket. Prints the answer.
const RELAY: &str = r#"
import hashlib, hmac, socket, sys, time, urllib.parse
place, secret, user, text = sys.argv[1:]
body = urllib.parse.urlencode({"team_id": "T1", "channel_id": "C1", "user_id": user,
                               "command": "/gate", "text": text}).encode()
now = str(int(time.time()))
signature = hmac.new(secret.encode(), b"v0:" + now.encode() + b":" + body, hashlib.sha256)
if place.startswith("/"):
    relay = socket.socket(socket.AF_UNIX)
    relay.connect(place)
else:
    relay = socket.create_connection(place.split(":"))
relay.sendall(("POST / HTTP/1.1\r\nHost: relay\r\nX-Slack-Request-Timestamp: %s\r\n"
               "X-Slack-Signature: v0=%s\r\nContent-Length: %d\r\n\r\n"
               % (now, signature.hexdigest(), len(body))).encode() + body)
print(relay.makefile().read())
"#;

fn relay(place: &str, secret: &str, user: &str, text: &str) -> String {
    let ended = Command::new("python3")
        .args(["-c", RELAY, place, secret, user, text])
        .output()
        .unwrap();
    assert!(ended.status.success(), "{ended:?}");
    String::from_utf8(ended.stdout).unwrap()
}

/// A platform that keeps what is posted to it.
#[derive(Clone, Default)]
struct Platform(Arc<Mutex<Vec<String>>>);

impl Platform {
    /// Serves; returns its address.
    fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let kept = Arc::clone(&self.0);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = Vec::new();
                let mut chunk = [0; 4096];
                while !is_whole(&request) {
                    let count = stream.read(&mut chunk).unwrap();
                    assert!(count > 0);
                    request.extend_from_slice(&chunk[..count]);
                }
                kept.lock()
                    .unwrap()
                    .push(String::from_utf8(request).unwrap());
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            }
        });
        address
    }

    /// The text of the only message.
    fn message(&self) -> String {
        until("a message", || !self.0.lock().unwrap().is_empty());
        let kept = self.0.lock().unwrap();
        assert_eq!(kept.len(), 1);
        let (head, body) = kept[0].split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /services/T1/B1/hush"), "{head}");
        let body: Value = serde_json::from_str(body).unwrap();
        body["text"].as_str().unwrap().to_owned()
    }
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let head = head.to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).unwrap();
    let length: usize = length.lines().next().unwrap().parse().unwrap();
    body.len() >= length
}

/// A project that asks in the chat `ops`, which listens at `listen`.
fn asks_in_a_chat(platform: &str, listen: &str) -> Desk {
    let desk = guarded();
    let webhook = desk.configure(
        "ops.webhook",
        &format!("http://{platform}/services/T1/B1/hush\n"),
    );
    let secret = desk.configure("ops.secret", &format!("{SECRET}\n"));
    desk.configure(
        "config.toml",
        &format!(
            "[chat.ops]\nplatform = \"slack\"\nwebhook_file = \"{}\"\nsigning_secret_file = \
             \"{}\"\nlisten = \"{listen}\"\nsenders = [\"T1/C1/U1\"]\n",
            webhook.display(),
            secret.display()
        ),
    );
    configure(&desk, "[approval]\nsurfaces = [\"chat\"]\nchat = \"ops\"\n");
    desk
}

/// The line of the message that answers with `word`.
fn answer_line(message: &str, word: &str) -> String {
    let start = message.find(&format!("/gate {word} ")).unwrap() + "/gate ".len();
    let line = &message[start..];
    line[..line.find('`').unwrap()].to_owned()
}

fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

#[test]
fn a_call_is_shown_whole_in_the_chat_and_runs_on_an_allowed_members_yes() {
    let platform = Platform::default();
    let address = free_address();
    let desk = asks_in_a_chat(&platform.serve(), &address);
    let child = desk.start(&call(&[]));
    let message = platform.message();
    assert!(message.contains("\"out/new.csv\"") && message.contains("\"argv\": ["));
    assert!(!created(&desk));
    let yes = answer_line(&message, "approve");
    let said = relay(&address, "another-secret-of-16", "U1", &yes);
    assert!(said.starts_with("HTTP/1.1 401"), "{said}");
    let said = relay(&address, SECRET, "U2", &yes);
    assert!(said.contains("may not answer"), "{said}");
    assert!(!created(&desk));
    let said = relay(&address, SECRET, "U1", &yes);
    assert!(said.contains("approved held-"), "{said}");
    wait(child).expect(0);
    assert!(created(&desk));
    let approval = &records(&desk, "CallDispatching")[0]["approval"];
    assert_eq!(approval["surface"], "chat");
    assert_eq!(approval["approver"], "slack/T1/C1/U1");
    assert_eq!(records(&desk, "AnswerRefused").len(), 2);
    let journal = desk.verified_journal();
    assert!(!journal.contains("hush") && !journal.contains(SECRET));
    desk.nothing_is_left();
}

#[test]
fn a_client_that_is_not_contained_is_served_what_the_chat_approved() {
    let platform = Platform::default();
    let desk = asks_in_a_chat(&platform.serve(), "socket");
    let folder = desk.project().join("policies/mcp");
    fs::create_dir_all(&folder).unwrap();
    let shared = desk.project().join("policies/call/guarded.cedar");
    fs::copy(shared, folder.join("guarded.cedar")).unwrap();
    desk.trust();
    let mut child = desk.start_client(&["--project", "project", "mcp"]);
    let frames = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"}}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
            "name": "guarded",
            "arguments": {"input": "data/example.csv", "output": "out/new.csv"}}}),
    ];
    let mut client = child.stdin.take().unwrap();
    for frame in frames {
        client.write_all(format!("{frame}\n").as_bytes()).unwrap();
    }
    let yes = answer_line(&platform.message(), "approve");
    let run = desk.path("run/symbi");
    let sockets: Vec<_> = fs::read_dir(&run)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    // No gate is open, where the client itself could answer.
    assert_eq!(sockets.len(), 1, "{sockets:?}");
    let socket = sockets[0].to_str().unwrap();
    assert!(socket.ends_with(".chat"), "{socket}");
    let said = relay(socket, SECRET, "U1", &yes);
    assert!(said.contains("approved held-"), "{said}");
    until("the file is published", || created(&desk));
    drop(client);
    wait(child).expect(0);
    assert!(desk.verified_journal().contains("slack/T1/C1/U1"));
    assert!(fs::read_dir(&run).unwrap().next().is_none());
}

#[test]
fn a_chat_that_is_not_there_is_named_before_anything_runs() {
    let desk = asks_in_a_chat("127.0.0.1:9", "socket");
    let path = desk.path("config/symbi/config.toml");
    let good = fs::read_to_string(&path).unwrap();
    for (from, to, why) in [
        ("[chat.ops]", "[chat.other]", "[chat.ops]"),
        ("ops.secret", "no.secret", "is missing"),
        ("\"socket\"", "\"0.0.0.0:80\"", "no loopback address"),
        ("T1/C1/U1", "everybody", "WORKSPACE/CHANNEL/USER"),
        ("\"slack\"", "\"pigeon\"", "the platforms are"),
    ] {
        desk.configure("config.toml", &good.replace(from, to));
        desk.symbi(&call(&[])).expect(2).says(why);
    }
    desk.configure("config.toml", &good);
    desk.configure("ops.secret", "short\n");
    desk.symbi(&call(&[])).expect(2).says("fewer than 16 bytes");
    assert!(!created(&desk) && desk.journals().is_empty());
    // A call that asks nobody does not need the chat.
    let plain = [
        "--project",
        "project",
        "call",
        "word_count",
        "--arg",
        "input=data/example.csv",
    ];
    desk.symbi(&plain).expect(0);
}

#[test]
fn two_runs_cannot_listen_on_one_address_and_the_second_says_so() {
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap().to_string();
    let desk = asks_in_a_chat("127.0.0.1:9", &address);
    desk.symbi(&call(&[]))
        .expect(2)
        .says(&address)
        .says("one run at a time");
}

#[test]
fn a_run_that_is_killed_while_its_call_is_held_leaves_no_socket_to_the_next_start_and_no_effect() {
    let platform = Platform::default();
    let desk = asks_in_a_chat(&platform.serve(), "socket");
    let run = desk.path("run/symbi");
    let sockets = || fs::read_dir(&run).map_or(0, Iterator::count);
    let mut killed = desk.start(&call(&[]));
    let yes = answer_line(&platform.message(), "approve");
    let other = desk.start(&call(&[]));
    until("both sockets", || sockets() == 2);
    killed.kill().unwrap();
    killed.wait().unwrap();
    desk.symbi(&[
        "--project",
        "project",
        "call",
        "word_count",
        "--arg",
        "input=data/example.csv",
    ])
    .expect(0);
    until("the dead one's socket is gone", || sockets() == 1);
    // The other one lives, and is not asked what the dead one was.
    let left = fs::read_dir(&run).unwrap().next().unwrap().unwrap().path();
    let said = relay(left.to_str().unwrap(), SECRET, "U1", &yes);
    assert!(said.contains("no call is held"), "{said}");
    assert!(!created(&desk));
    interrupt(other);
    assert_eq!(sockets(), 0);
}
