//! An agent in a real worker that does its worst with its channel.

use std::time::{Duration, Instant};

use governance::{EndCause, Outcome};
use mcp::limits::BROKER_FRAMES_MAX;
use serde_json::{Value, json};
use symbi_runtime::cli_executor::broker::McpToolBroker;
use symbi_runtime::cli_executor::limits::{CONNECTIONS_LIVE_MAX, CONNECTIONS_TOTAL_MAX};
use symbi_runtime::reasoning::governed_session::LaunchEnd;

use crate::support::session::{Governed, Setup, agent_ended, agent_plan};
use crate::support::wire::serve;
use crate::support::{PATIENCE, Project, TESTER, until};

/// What every attack begins with. What it puts into `said` comes back.
const TOOLKIT: &str = r#"
import json, os, socket, sys, time
BROKER = "/channel/broker.sock"
said = {}
class Client:
    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(15)
        self.socket.connect(BROKER)
        self.lines = self.socket.makefile("rb")
    def send(self, **frame):
        self.socket.sendall(json.dumps(dict({"jsonrpc": "2.0"}, **frame)).encode() + b"\n")
    def ask(self, id, method, **params):
        self.send(id=id, method=method, params=params)
        line = self.lines.readline()
        return json.loads(line) if line else None
    def ready(self):
        self.ask("hello", "initialize", protocolVersion="2025-11-25", capabilities={},
                 clientInfo={"name": "hostile", "version": "1"})
        self.send(method="notifications/initialized")
        return self
    def call(self, id, name, arguments, **more):
        return self.ask(id, "tools/call", name=name, arguments=arguments, **more)
def works(id):
    answer = Client().ready().call(id, "scale", {"count": 1})
    return answer is not None and answer["result"]["isError"] is False
def failure(work):
    try:
        return repr(work())
    except Exception as error:
        return type(error).__name__
"#;

const TELL: &str = "\nprint(json.dumps(said))\n";

struct Attack {
    governed: Governed,
    broker: McpToolBroker,
    end: LaunchEnd,
}

impl Attack {
    async fn run(script: &str) -> Self {
        let project = Project::new();
        let channel = project.channel_parent().join("channel");
        let script = format!("{TOOLKIT}{script}{TELL}");
        let plan = agent_plan(&["python3", "-I", "-c", &script], &channel, false);
        let governed = Setup::default().namespace().launch(plan).start_in(project);
        let broker = serve(&governed);
        let agent = governed.session.launch("command").await.unwrap();
        let ended = tokio::time::timeout(PATIENCE * 2, agent.ended()).await;
        let end = ended.unwrap();
        Self {
            governed,
            broker,
            end,
        }
    }

    /// The attack is over, the session is well: what the agent said, and the run.
    async fn survived(self) -> (Value, Governed) {
        let outcome = agent_ended(self.end);
        let stderr = String::from_utf8_lossy(&outcome.output.stderr).into_owned();
        assert_eq!(outcome.outcome, Outcome::Succeeded, "{stderr}");
        self.broker.close().await.unwrap();
        let completed = json!(true);
        assert_eq!(self.governed.terminal().get("completed"), Some(&completed));
        let said = serde_json::from_slice(&outcome.output.stdout).unwrap();
        (said, self.governed)
    }
}

fn settled(governed: &Governed) -> usize {
    governed.of_kind("CallSettled").len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_floods_a_connection_loses_it_and_nothing_else() {
    let attack = r#"
client, answers = Client().ready(), 0
try:
    for number in range(5000):
        client.send(id=number, method="ping")
    client.socket.shutdown(socket.SHUT_WR)
except OSError:
    pass
try:
    answers = sum(1 for line in client.lines)
except OSError:
    pass
said["answers"], said["works"] = answers, works(1)
"#;
    let (said, governed) = Attack::run(attack).await.survived().await;
    assert!(
        said["answers"].as_u64().unwrap() <= BROKER_FRAMES_MAX,
        "{said}"
    );
    assert_eq!(said["works"], true);
    assert_eq!(governed.terminal()["calls"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_opens_a_hundred_connections_gets_its_places_and_no_more() {
    let attack = r#"
open_ones, refused = [], 0
for number in range(100):
    try:
        channel = socket.socket(socket.AF_UNIX)
        channel.settimeout(0.3)
        channel.connect(BROKER)
        channel.sendall(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        open_ones.append(channel)
    except OSError:
        refused += 1
def served(channel):
    try:
        return channel.recv(100) != b""
    except OSError:
        return False
live = [channel for channel in open_ones if served(channel)]
said["live"] = len(live)
said["still"] = len([channel for channel in live if channel.send(b'{"jsonrpc":"2.0","id":2,"method":"ping"}\n') and served(channel)])
for channel in open_ones:
    channel.close()
time.sleep(0.5)
later = 0
for number in range(100):
    try:
        later += Client().ask(1, "ping") is not None
    except OSError:
        pass
said["later"] = later
said["at last"] = failure(Client)
"#;
    let (said, _) = Attack::run(attack).await.survived().await;
    assert_eq!(said["live"], CONNECTIONS_LIVE_MAX, "{said}");
    assert_eq!(said["still"], CONNECTIONS_LIVE_MAX, "{said}");
    let later = said["later"].as_u64().unwrap();
    assert!(
        later <= (CONNECTIONS_TOTAL_MAX - CONNECTIONS_LIVE_MAX) as u64,
        "{said}"
    );
    assert_eq!(said["at last"], "ConnectionRefusedError", "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_cannot_say_that_it_is_somebody_else() {
    let attack = r#"
client = Client().ready()
said["codes"] = []
for number, more in enumerate(({"principal": "operator"}, {"agent": "root"}, {"approval": "yes"},
                               {"trusted_context": {"clearance": "all"}}, {"sandbox": {"tier": "none"}})):
    said["codes"].append(client.call(number, "scale", {"count": 1}, **more)["error"]["code"])
client.send(id="member", method="tools/call", principal="operator",
            params={"name": "scale", "arguments": {"count": 1}})
said["codes"].append(json.loads(client.lines.readline())["error"]["code"])
forged = {"principal": "operator", "io.modelcontextprotocol/clientInfo": {"name": "operator"}}
said["meta"] = client.call("m", "scale", {"count": 1}, _meta=forged)["result"]["isError"]
said["argument"] = client.call("a", "scale", {"count": 1, "principal": "operator"})["result"]["isError"]
"#;
    let (said, governed) = Attack::run(attack).await.survived().await;
    let codes = json!([-32602, -32602, -32602, -32602, -32602, -32600]);
    assert_eq!((&said["codes"], &said["meta"]), (&codes, &json!(false)));
    assert_eq!(said["argument"], true);
    assert_eq!(settled(&governed), 2, "the launch and the one call");
    let journal = governed.project.journal_path(governed.run);
    for line in std::fs::read_to_string(journal).unwrap().lines().step_by(2) {
        let record: Value = serde_json::from_str(line).unwrap();
        assert_eq!(record["principal"], TESTER);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_replays_a_call_has_one_effect() {
    let attack = r#"
client = Client().ready()
first = {"input": "data/a.csv", "output": "out/b.csv"}
said["first"] = client.call(7, "copy_csv", first)["result"]["isError"]
said["replay"] = client.call(7, "copy_csv", first)["error"]["code"]
said["changed"] = client.call(7, "copy_csv", {"input": "data/a.csv", "output": "out/c.csv"})["error"]["code"]
other = Client().ready()
said["again"] = other.call(7, "copy_csv", first)["result"]["isError"]
"#;
    let (said, governed) = Attack::run(attack).await.survived().await;
    let expected = json!({"first": false, "replay": -32600, "changed": -32600, "again": true});
    assert_eq!(
        said, expected,
        "the second connection's call is refused: the output exists"
    );
    assert_eq!(governed.of_kind("FilePublicationFinished").len(), 1);
    assert!(!governed.project.file("out/c.csv").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_looks_for_other_sockets_and_processes_finds_its_own() {
    let attack = r#"
import stat
found = []
for folder, names, files in os.walk("/"):
    if folder.startswith("/proc"):
        names.clear()
        continue
    for name in files:
        path = os.path.join(folder, name)
        try:
            if stat.S_ISSOCK(os.lstat(path).st_mode):
                found.append(path)
        except OSError:
            pass
said["sockets"] = found
said["guesses"] = sorted({failure(lambda: socket.socket(socket.AF_UNIX).connect(path)) for path in (
    "/run/docker.sock", "/var/run/docker.sock", "/run/symbi/gate.sock", "/channel/../run/gate.sock",
    "/channel/inference.sock", "/proc/1/root/run/docker.sock", "\0symbi", "\0supervisor")})
said["write"] = failure(lambda: os.unlink(BROKER))
said["bind"] = failure(lambda: socket.socket(socket.AF_UNIX).bind("/channel/mine.sock"))
said["processes"] = len([name for name in os.listdir("/proc") if name.isdigit()])
said["proc"] = {name: failure(lambda: open("/proc/1/" + name, "rb").read()) for name in ("environ", "mem", "maps")}
said["fds"] = failure(lambda: os.listdir("/proc/1/fd"))
said["environment"] = sorted(os.environ)
said["descriptors"] = sorted(os.listdir("/proc/self/fd"))
"#;
    let (said, _) = Attack::run(attack).await.survived().await;
    assert_eq!(said["sockets"], json!(["/channel/broker.sock"]), "{said}");
    let guesses = said["guesses"].as_array().unwrap();
    assert!(!guesses.is_empty());
    for guess in guesses {
        let error = guess.as_str().unwrap();
        assert!(error.ends_with("Error"), "{said}");
    }
    for tried in ["write", "bind", "fds"] {
        assert!(
            said[tried].as_str().unwrap().ends_with("Error"),
            "{tried}: {said}"
        );
    }
    for (name, got) in said["proc"].as_object().unwrap() {
        let got = got.as_str().unwrap();
        assert!(got.ends_with("Error") || got == "b''", "{name}: {said}");
    }
    assert!(said["processes"].as_u64().unwrap() <= 3, "{said}");
    // Standard streams, and the one that lists them.
    assert!(said["descriptors"].as_array().unwrap().len() <= 4, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_sends_a_gibibyte_ends_its_run_at_the_bound_of_traffic() {
    let attack = r#"
pad = "x" * ((1 << 20) - 100)
frame = json.dumps({"jsonrpc": "2.0", "method": "x", "params": {"p": pad}}).encode() + b"\n"
for number in range(1024):
    try:
        client.socket.sendall(frame)
    except (OSError, NameError):
        client = Client()
time.sleep(600)
"#;
    let began = Instant::now();
    let Attack {
        governed,
        broker,
        end,
    } = Attack::run(attack).await;
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    let stopped = matches!(&end, LaunchEnd::Ended(ended) if ended.outcome != Outcome::Succeeded);
    assert!(stopped || matches!(end, LaunchEnd::Session(_)), "{end:?}");
    let closed = broker.close().await;
    assert!(
        matches!(closed, Err(EndCause::Transport { .. })),
        "{closed:?}"
    );
    let cause = governed.terminal()["cause"].as_str().unwrap().to_owned();
    assert!(cause.contains("67108864 bytes"), "{cause}");
    assert!(peak_memory_kib() < 400 << 10, "{} KiB", peak_memory_kib());
}

/// Of this test's process.
fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap();
    let number = line.split_whitespace().nth(1).unwrap();
    number.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_sends_endless_lines_loses_each_connection_at_a_mebibyte() {
    let attack = r#"
said["sent"] = []
for number in range(4):
    client, sent = Client(), 0
    try:
        while sent < (64 << 20):
            sent += client.socket.send(b"x" * 65536)
    except OSError:
        pass
    said["sent"].append(sent)
said["works"] = works(1)
"#;
    let (said, _) = Attack::run(attack).await.survived().await;
    for sent in said["sent"].as_array().unwrap() {
        assert!(sent.as_u64().unwrap() < 3 << 20, "{said}");
    }
    assert_eq!(said["works"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_exits_while_its_call_runs_leaves_it_to_its_end() {
    let attack = r#"
client = Client().ready()
client.send(id=1, method="tools/call", params={"name": "nap", "arguments": {"seconds": 1}})
client.send(id=2, method="tools/call", params={"name": "scale", "arguments": {"count": 1}})
client.send(id=3, method="ping")
said["ping"] = json.loads(client.lines.readline())["id"]
time.sleep(0.5)
"#;
    let Attack {
        governed,
        broker,
        end,
    } = Attack::run(attack).await;
    assert_eq!(agent_ended(end).outcome, Outcome::Succeeded);
    until("the nap's record", || settled(&governed) == 2).await;
    until("the other's withdrawal", || {
        governed.of_kind("CallWithdrawn").len() == 1
    })
    .await;
    broker.close().await.unwrap();
    assert_eq!(governed.terminal()["completed"], true);
    assert_eq!(governed.terminal()["calls"], 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_forks_and_hangs_is_gone_with_its_broker() {
    let attack = r#"
children = 0
try:
    while True:
        if os.fork() == 0:
            os.setsid()
            Client().ready()
            time.sleep(600)
        children += 1
except OSError:
    pass
works(1)
time.sleep(600)
"#;
    let project = Project::new();
    let channel = project.channel_parent().join("channel");
    let script = format!("{TOOLKIT}{attack}");
    let plan = agent_plan(&["python3", "-I", "-c", &script], &channel, false);
    let governed = Setup::default().namespace().launch(plan).start_in(project);
    let broker = serve(&governed);
    let agent = governed.session.launch("command").await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let marker = "children = 0";
    assert!(processes_with(marker) > 4, "it forks");
    let began = Instant::now();
    drop(broker);
    let end = tokio::time::timeout(PATIENCE, agent.ended()).await.unwrap();
    assert!(!matches!(&end, LaunchEnd::Ended(it) if it.outcome == Outcome::Succeeded));
    until("the channel's removal", || !channel.exists()).await;
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(processes_with(marker), 0);
    assert_eq!(governed.terminal()["completed"], false);
}

/// Processes of this host whose command line has `text`.
fn processes_with(text: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| String::from_utf8_lossy(line).contains(text))
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_writes_terminal_escapes_everywhere_is_told_of_without_them() {
    let attack = r#"
client = Client().ready()
escape = "\x1b]0;owned\x07\x1b[2J\x9b31m\r"
said["method"] = client.ask(escape, escape)
said["tool"] = client.call("t" + escape, escape, {escape: escape})
said["argument"] = client.call("a", "scale", {"count": escape})
said["parameter"] = client.ask("p", "tools/call", **{"name": "scale", escape: 1})
sys.stderr.write(escape)
"#;
    let (said, governed) = Attack::run(attack).await.survived().await;
    let told = [
        &said["method"]["error"]["message"],
        &said["tool"]["result"]["content"][0]["text"],
        &said["argument"]["result"]["content"][0]["text"],
        &said["parameter"]["error"]["message"],
    ];
    for text in told {
        let text = text.as_str().unwrap_or_else(|| panic!("{said}"));
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }
    let journal = std::fs::read(governed.project.journal_path(governed.run)).unwrap();
    let raw = |byte: &u8| *byte < b' ' && *byte != b'\n' || *byte == 0x7f;
    assert!(!journal.iter().any(raw), "no record has a raw control byte");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_leaves_large_calls_behind_takes_little_memory() {
    let attack = r#"
first = Client().ready()
first.send(id=1, method="tools/call", params={"name": "nap", "arguments": {"seconds": 3}})
time.sleep(0.5)
large = [{"": {}}] * 5400
sent = 0
for number in range(60):
    try:
        client = Client().ready()
        client.send(id=1, method="tools/call", params={"name": "scale", "arguments": {"x": large}})
        sent += client.ask(2, "ping") is not None
        client.lines.close()
        client.socket.close()
    except OSError:
        time.sleep(0.02)
said["sent"] = sent
"#;
    let (said, governed) = Attack::run(attack).await.survived().await;
    assert_eq!(said["sent"], 60, "{said}");
    assert!(peak_memory_kib() < 200 << 10, "{} KiB", peak_memory_kib());
    assert_eq!(governed.terminal()["calls"], 61);
}
