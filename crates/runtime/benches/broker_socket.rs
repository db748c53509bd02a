//! What a client of the broker's socket waits for `ping` and for the list of 64 tools.
//!
//! `cargo bench -p symbi-runtime --bench broker_socket`

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use filegrants::{Ceilings, FileBroker};
use governance::{LoopConfig, LoopState};
use journal::{Client, Journal, MemoryWriter};
use model::{RunId, ToolName};
use policy::{Policies, PolicySource, ToolKind, ToolShape};
use symbi_runtime::CedarGate;
use symbi_runtime::cli_executor::broker::McpToolBroker;
use symbi_runtime::reasoning::governed_session::{Approvals, GovernedToolSession, SessionParts};
use symbi_runtime::tools::{BoundarySettings, ToolExecutor};
use testkit::tier::FakeTier;
use toolclad::ContractSet;
use worker::WorkerRoot;

const TOOLS: usize = 64;
/// Of one connection, below the frames that it may have.
const ROUNDS: usize = 1000;

const HELLO: &str = concat!(
    r#"{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    "\n"
);
const META: &str = concat!(
    r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
    r#""io.modelcontextprotocol/clientCapabilities":{}}}"#
);

fn manifest(number: usize) -> (String, String) {
    let text = format!(
        "[tool]\nname = \"tool_{number}\"\nversion = \"1.0.0\"\ndescription = \"Copy one file below \
         data to one new file below out\"\nbinary = \"cp\"\ntimeout_seconds = 10\n\
         [args.input]\nposition = 1\nrequired = true\ntype = \"string\"\n\
         description = \"the file to read\"\n\
         [args.output]\nposition = 2\nrequired = true\ntype = \"string\"\n\
         description = \"the file to create\"\n\
         [command]\nexec = [\"cp\", \"{{input}}\", \"{{output}}\"]\n"
    );
    (format!("tool_{number}.clad.toml"), text)
}

fn gate() -> Result<CedarGate, Box<dyn Error>> {
    let source = PolicySource {
        file: "p.cedar".to_owned(),
        text: "permit(principal, action, resource);".to_owned(),
    };
    let shape = |number| -> Result<ToolShape, Box<dyn Error>> {
        Ok(ToolShape {
            name: ToolName::new(format!("tool_{number}"))?,
            kind: ToolKind::Command,
            action: None,
            arguments: Vec::new(),
            read_keys: Vec::new(),
            create_keys: Vec::new(),
            needs_approval: false,
            resource: None,
        })
    };
    let shapes = (0..TOOLS).map(shape).collect::<Result<Vec<_>, _>>()?;
    let policies = Policies::load(&[source], &shapes, &[], &["agent".to_owned()], &[])?;
    Ok(CedarGate::new(Arc::new(policies)))
}

fn session(folder: &Path, run: RunId) -> Result<GovernedToolSession, Box<dyn Error>> {
    let broker = FileBroker::open(
        std::fs::File::open(folder)?.into(),
        &folder.join("staging"),
        Ceilings::parse(&[], "/workspace")?,
    )?;
    let settings = BoundarySettings {
        root: WorkerRoot::System { also: Vec::new() },
        network: worker::Network::None,
        working_dir: "/workspace".to_owned(),
        memory_mib: 512,
        cpu_milli: 1000,
        pids: 64,
        file_bytes: 64 << 20,
        scratch_bytes: 64 << 20,
        stream_bytes: 8 << 20,
        time_ms: 10_000,
        require_enforced: false,
        parsers: Vec::new(),
    };
    let contracts = ContractSet::parse((0..TOOLS).map(manifest))?;
    let tier = Box::new(FakeTier::new());
    Ok(GovernedToolSession::start(SessionParts {
        executor: Box::new(ToolExecutor::new(contracts, None, broker, tier, settings)),
        gate: Box::new(gate()?),
        journal: Journal::new(Box::new(MemoryWriter::new()), None, run, "agent".to_owned()),
        register: None,
        state: LoopState {
            run,
            principal: "agent".to_owned(),
            trusted: BTreeMap::new(),
        },
        config: LoopConfig::default(),
        approvals: Approvals::Desk,
        project: "bench".to_owned(),
        client: Client::Library,
        init_sha256: None,
        one_shot: false,
        observer: None,
    })?)
}

/// Asks the same over and over on one connection; one line to the table.
fn ask(
    channel: &Path,
    what: &str,
    hello: &str,
    method: &str,
    params: &str,
) -> Result<(), Box<dyn Error>> {
    let mut stream = UnixStream::connect(channel.join("broker.sock"))?;
    let mut lines = BufReader::with_capacity(1 << 20, stream.try_clone()?);
    let mut answer = String::new();
    if !hello.is_empty() {
        stream.write_all(hello.as_bytes())?;
        lines.read_line(&mut answer)?;
    }
    let mut times: Vec<Duration> = Vec::with_capacity(ROUNDS);
    for id in 0..ROUNDS {
        let frame = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}\n"
        );
        answer.clear();
        let start = Instant::now();
        stream.write_all(frame.as_bytes())?;
        lines.read_line(&mut answer)?;
        times.push(start.elapsed());
        if !answer.contains("\"result\"") {
            return Err(format!("{what}: {answer}").into());
        }
    }
    times.sort();
    let micros = |share: usize| {
        let at = times.get(times.len() * share / 100);
        at.map_or(0.0, |time| time.as_secs_f64() * 1e6)
    };
    let (median, slow, bytes) = (micros(50), micros(99), answer.len());
    println!("{what:<36} median {median:>7.1} µs   p99 {slow:>7.1} µs   answer {bytes} bytes");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let folder = tempfile::tempdir()?;
    let parent = folder.path().join("parent");
    std::fs::DirBuilder::new().mode(0o700).create(&parent)?;
    let run = RunId::new();
    let guard = runtime.enter();
    let broker = McpToolBroker::start(session(folder.path(), run)?, run, &parent)?;
    let channel = broker.channel().to_owned();
    ask(&channel, "ping", HELLO, "ping", "{}")?;
    ask(&channel, "ping, once more", HELLO, "ping", "{}")?;
    ask(
        &channel,
        "server/discover, 2026-07-28",
        "",
        "server/discover",
        META,
    )?;
    ask(
        &channel,
        "tools/list of 64 tools, 2025-11-25",
        HELLO,
        "tools/list",
        "{}",
    )?;
    ask(
        &channel,
        "tools/list of 64 tools, 2026-07-28",
        "",
        "tools/list",
        META,
    )?;
    drop(guard);
    runtime.block_on(broker.close())?;
    Ok(())
}
