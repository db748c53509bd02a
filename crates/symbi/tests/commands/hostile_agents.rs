//! Agents that do their worst with all they have at once, on each tier: `./test` has the engine of
//! two of them.

use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::provider::{ScriptedProvider, Turn};

use crate::containers::{self, on_both, told};
use crate::desk::{Desk, Ended, append, until, wait};
use crate::run::provider;

/// What every attack begins with.
const TOOLKIT: &str = r#"
import json, os, signal, socket, sys, threading, time
BROKER, MODEL = "/channel/broker.sock", "/channel/inference.sock"
META = {"progressToken": "p", "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}}
class Client:
    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(BROKER)
        self.lines = self.socket.makefile("rb")
    def send(self, id, tool, arguments):
        params = {"name": tool, "arguments": arguments, "_meta": META}
        frame = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
        self.socket.sendall(json.dumps(frame).encode() + b"\n")
    def call(self, id, tool, arguments):
        self.send(id, tool, arguments)
        while True:
            said = json.loads(self.lines.readline())
            if "result" in said:
                return said["result"]["isError"]
def tell(**said):
    print(json.dumps(said), flush=True)
COUNT = ("word_count", {"input": "data/example.csv"})
"#;

/// Floods both sockets, takes all processes and all scratch space, writes 7 MiB of escapes, and
/// after all of that asks on the one connection that it kept.
const WORST: &str = r#"
kept, over = Client(), time.monotonic() + 3
first = kept.call(1, *COUNT)
def flood(path, pieces):
    while time.monotonic() < over:
        try:
            channel = socket.socket(socket.AF_UNIX)
            channel.settimeout(0.2)
            channel.connect(path)
            for piece in pieces:
                channel.sendall(piece)
        except OSError:
            time.sleep(0.001)
head = b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n"
floods = [(BROKER, [b"{" * 65536] * 4), (BROKER, [b"\xff\n\x1b[2J\n" * 900]), (BROKER, [b""]),
          (MODEL, [head, b"x" * 65536]), (MODEL, [b"GET / HTTP/1.1\r\nA: "]), (MODEL, [b"\0" * 9000])]
threads = [threading.Thread(target=flood, args=it, daemon=True) for it in floods]
for thread in threads:
    thread.start()
filled = 0
for folder in ("/workspace", "/tmp", "/dev/shm"):
    try:
        with open(folder + "/full", "wb", buffering=0) as full:
            while filled < 300 << 20:
                filled += full.write(b"x" * (1 << 20))
    except OSError as error:
        pass
for name in ("/workspace/full", "/tmp/full", "/dev/shm/full"):
    try:
        os.unlink(name)
    except OSError:
        pass
children = 0
try:
    while children < 4000:
        if os.fork() == 0:
            for number in range(1, 32):
                try:
                    signal.signal(number, signal.SIG_IGN)
                except OSError:
                    pass
            os.setsid()
            time.sleep(600)
        children += 1
except OSError:
    pass
for thread in threads:
    thread.join()
escapes = b"\x1b]0;owned\x07\x1b[2J\x9b31m\r\0" * (7 << 20 >> 5)
sys.stderr.buffer.write(escapes)
sys.stderr.buffer.flush()
tell(first=first, last=kept.call(2, *COUNT), children=children, filled=filled >> 20)
"#;

const HELD: &str = r#"
client = Client()
client.send(1, "copy_csv", {"input": "data/example.csv", "output": "out/new.csv"})
time.sleep(SECONDS)
tell(left=True)
"#;

/// A project on a tier whose agent `hostile` is this script.
fn hostile(tier: &str, script: &str) -> Desk {
    let command = json!(["python3", "-I", "-c", format!("{TOOLKIT}{script}")]);
    let agent = format!(
        "[agents.hostile]\nexecutor = \"command\"\ncommand = {command}\nallowed_tools = \
         [\"word_count\", \"copy_csv\", \"slow\"]\n[managed_cli.inference]\nprovider = \"work\"\nmodel \
         = \"m-1\"\nmax_output_tokens = 64\n"
    );
    let desk = match tier {
        "namespace" => Desk::with_agents(""),
        _ => containers::on(tier, &told("SYMBI_TEST_IMAGE"), ""),
    };
    // Sixty processes and a full scratch space at once are a lot with a kernel of their own.
    let config = desk.project().join("symbiont.toml");
    let text = fs::read_to_string(&config).unwrap();
    let text = text.replace("memory_mib = 256", "memory_mib = 1024");
    fs::write(config, text + &agent).unwrap();
    append(
        &desk.project().join("policies/run/agents.cedar"),
        "permit(principal, action in [Action::\"tool_call::word_count\", \
         Action::\"tool_call::copy_csv\", Action::\"tool_call::slow\"], resource);\n",
    );
    containers::add_tool(&desk, "slow", 30, &["sleep", "4"], "");
    desk
}

fn nothing_is_left(tier: &str, desk: &Desk) {
    match tier {
        "namespace" => desk.nothing_is_left(),
        _ => containers::nothing_is_left(desk),
    }
}

fn an_agent_that_floods_fills_forks_and_paints_at_once_is_served_to_its_end(tier: &str) {
    let desk = hostile(tier, WORST);
    let model = ScriptedProvider::interactive(|_, _| Turn::text("hello")).unwrap();
    provider(&desk, &model.url());
    let began = Instant::now();
    let ended = desk.run("hostile", &[]);
    let took = began.elapsed();
    let ended = ended.expect(0).says("agent: succeeded");
    assert!(took < Duration::from_secs(60), "{took:?}");
    for text in [&ended.stdout, &ended.stderr] {
        let painted = |it: char| it.is_control() && it != '\n';
        assert!(!text.contains(painted), "{text}");
    }
    let said = ended.stdout.lines().find(|line| line.starts_with('{'));
    let said: Value = serde_json::from_str(said.unwrap()).unwrap();
    assert_eq!(
        (&said["first"], &said["last"]),
        (&json!(false), &json!(false))
    );
    let children = said["children"].as_u64().unwrap();
    assert!((8..4000).contains(&children), "{said}");
    assert!(
        (1..300).contains(&said["filled"].as_u64().unwrap()),
        "{said}"
    );
    assert!(model.requests().is_empty());
    let journal = desk.verified_journal();
    assert_eq!(journal.matches("\"kind\":\"CallDispatching\"").count(), 3);
    assert!(journal.contains("\"completed\":true"), "{journal}");
    nothing_is_left(tier, &desk);
}

const RUNNING: &str = r#"
first, second = Client(), Client()
first.send(1, "slow", {})
while b'"runs"' not in first.lines.readline():
    pass
second.send(1, *COUNT)
time.sleep(0.3)
tell(left=True)
"#;

fn an_agent_that_leaves_its_calls_behind_ends_with_the_one_that_runs(tier: &str) {
    let desk = hostile(tier, RUNNING);
    provider(&desk, "http://127.0.0.1:9");
    let ended = desk.run("hostile", &[]).expect(0).says("agent: succeeded");
    assert!(ended.stdout.contains("left"), "{}", ended.stdout);
    let journal = desk.verified_journal();
    // The launch and the call that runs; the one behind it is taken back.
    for (kind, times) in [
        ("CallDispatching", 2),
        ("CallSettled", 2),
        ("CallWithdrawn", 1),
    ] {
        let kind = format!("\"kind\":\"{kind}\"");
        assert_eq!(journal.matches(&kind).count(), times, "{kind}: {journal}");
    }
    assert_eq!(
        journal.matches("\"status\":\"succeeded\"").count(),
        2,
        "{journal}"
    );
    assert!(journal.contains("\"completed\":true"), "{journal}");
    nothing_is_left(tier, &desk);
}

/// A project whose copies wait for a person, and a run of its agent.
fn asks_and_leaves(tier: &str, seconds: u32) -> (Desk, Child) {
    let desk = hostile(tier, &HELD.replace("SECONDS", &seconds.to_string()));
    let manifest = desk.project().join("tools/copy_csv.clad.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    let asking = text.replacen("[tool]\n", "[tool]\nhuman_approval = true\n", 1);
    fs::write(&manifest, asking).unwrap();
    provider(&desk, "http://127.0.0.1:9");
    desk.trust();
    let words = ["--project", "project", "run", "hostile", "--task", "t"];
    let run = desk.start(&[&words[..], &["--approval-gate"]].concat());
    (desk, run)
}

fn listed(desk: &Desk) -> Vec<Value> {
    let listed = desk.symbi(&["gate", "list", "--json"]).expect(0);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    listed["held"].as_array().unwrap().clone()
}

fn an_agent_that_leaves_while_its_call_is_held_takes_it_along(tier: &str) {
    let (desk, run) = asks_and_leaves(tier, 6);
    until("a held call", || !listed(&desk).is_empty());
    let held = listed(&desk)[0]["held_id"].as_str().unwrap().to_owned();
    let ended: Ended = wait(run);
    let ended = ended.expect(0).says("agent: succeeded");
    assert!(ended.stdout.contains("left"), "{}", ended.stdout);
    let late = desk.symbi(&["gate", "approve", &held]);
    assert_ne!(late.code, Some(0), "{}", late.stdout);
    assert!(listed(&desk).is_empty());
    assert!(!desk.project().join("out/new.csv").exists());
    let journal = desk.verified_journal();
    assert_eq!(journal.matches("\"kind\":\"CallDispatching\"").count(), 1);
    assert_eq!(journal.matches("\"kind\":\"CallWithdrawn\"").count(), 1);
    nothing_is_left(tier, &desk);
}

#[test]
fn an_agent_that_floods_fills_forks_and_paints_is_served_to_its_end() {
    an_agent_that_floods_fills_forks_and_paints_at_once_is_served_to_its_end("namespace");
}

#[test]
fn an_agent_that_leaves_while_its_call_is_held_withdraws_it() {
    an_agent_that_leaves_while_its_call_is_held_takes_it_along("namespace");
}

#[test]
fn an_agent_that_leaves_its_calls_behind_ends_with_the_running_one() {
    an_agent_that_leaves_its_calls_behind_ends_with_the_one_that_runs("namespace");
}

on_both!(
    an_agent_that_leaves_its_calls_behind_ends_with_the_one_that_runs,
    an_agent_that_floods_fills_forks_and_paints_at_once_is_served_to_its_end,
    an_agent_that_leaves_while_its_call_is_held_takes_it_along,
);
