//! A governed call against its bare worker: the same helper, namespaces, limits, cgroup and
//! command, one after the other in one loop, so that both see the same machine.
//!
//! `cargo bench -p symbi-runtime --bench governed_call [-- COUNT]`

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use filegrants::{Ceilings, FileBroker};
use governance::{BrokerToolCall, LoopConfig, LoopState};
use journal::{Client, ProjectKey, RunFiles};
use model::{Digest, OutputFormat, RiskTier, RunId, ToolName};
use policy::{Policies, PolicySource, ToolShape};
use rustix::event::poll;
use sandbox::{NamespaceConfig, NamespaceTier, ProgramCache};
use symbi_runtime::reasoning::governed_session::{
    Answer, Approvals, GovernedToolSession, SessionParts,
};
use symbi_runtime::tools::{BoundarySettings, ToolExecutor, worker_environment};
use symbi_runtime::{CedarGate, LedgerRegister};
use toolclad::ContractSet;
use worker::{
    CommandBoundary, CommandDescriptor, Descriptor, Filesystem, Limits, Network, Tier, TierKind,
    WorkerHoldings, WorkerRoot, confirm_removal, lower,
};

const MANIFEST: &str = "[tool]\nname = \"nothing\"\nversion = \"1.0.0\"\ndescription = \"Nothing\"\n\
                        binary = \"true\"\ntimeout_seconds = 10\n\n[command]\nexec = [\"true\"]\n";
const POLICY: &str = "permit(principal == Agent::\"operator\", \
                      action == Action::\"tool_call::nothing\", resource);";

fn limits() -> Limits {
    Limits::wanted([512, 1000, 64, 64 << 20, 64 << 20, 8 << 20, 10_000])
}

fn root() -> WorkerRoot {
    WorkerRoot::System { also: Vec::new() }
}

fn tier() -> Result<NamespaceTier, Box<dyn Error>> {
    let executable = std::env::current_exe()?;
    let init = sandbox::locate_init(&executable, None)?;
    Ok(NamespaceTier::new(NamespaceConfig::new(init))?)
}

/// Starts the worker, waits for it, and confirms that it is gone.
fn bare(tier: &mut NamespaceTier, descriptor: &Descriptor) -> Result<Duration, Box<dyn Error>> {
    let start = Instant::now();
    let spec = lower(descriptor, WorkerHoldings::default())?.first;
    let mut running = tier.start(spec)?;
    while running.advance().is_none() {
        let mut descriptors = Vec::new();
        running.poll_descriptors(&mut descriptors);
        poll(&mut descriptors, None)?;
    }
    confirm_removal(&mut *running)?;
    Ok(start.elapsed())
}

fn descriptor(tier: &NamespaceTier) -> Result<Descriptor, Box<dyn Error>> {
    Ok(Descriptor::Command(Box::new(CommandDescriptor {
        tool: ToolName::new("nothing")?,
        version: "1.0.0".to_owned(),
        contract_sha256: Digest::of(MANIFEST.as_bytes()),
        risk_tier: RiskTier::Low,
        human_approval: false,
        arguments: BTreeMap::new(),
        argv: vec!["true".to_owned()],
        sealed: worker::SealedValues::default(),
        environment: worker_environment(),
        program: ProgramCache::default().resolve("true", &root())?,
        output_format: OutputFormat::Text,
        boundary: CommandBoundary {
            tier: TierKind::Namespace,
            root: root(),
            network: Network::None,
            working_dir: "/workspace".to_owned(),
            limits: tier.enforceable(limits()),
            filesystem: Filesystem::default(),
        },
        parser: None,
    })))
}

fn session(folder: &std::path::Path) -> Result<GovernedToolSession, Box<dyn Error>> {
    let contracts = ContractSet::parse([("nothing.clad.toml".to_owned(), MANIFEST.to_owned())])?;
    let source = PolicySource {
        file: "p.cedar".to_owned(),
        text: POLICY.to_owned(),
    };
    let shape = ToolShape {
        name: ToolName::new("nothing")?,
        kind: policy::ToolKind::Command,
        action: None,
        resource: None,
        arguments: Vec::new(),
        read_keys: Vec::new(),
        create_keys: Vec::new(),
        needs_approval: false,
    };
    let policies = Policies::load(&[source], &[shape], &[], &["operator".to_owned()], &[])?;
    let state = folder.join("state");
    std::fs::create_dir(&state)?;
    std::fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    let run = RunId::new();
    let files = RunFiles::create(&state, run, "operator", &ProjectKey::generate()?)?;
    let project = std::fs::File::open(folder)?.into();
    let broker = FileBroker::open(
        project,
        &folder.join("staging"),
        Ceilings::parse(&[], "/workspace")?,
    )?;
    let settings = BoundarySettings {
        root: root(),
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
    Ok(GovernedToolSession::start(SessionParts {
        executor: Box::new(ToolExecutor::new(
            contracts,
            None,
            broker,
            Box::new(tier()?),
            settings,
        )),
        gate: Box::new(CedarGate::new(Arc::new(policies))),
        journal: files.journal().clone(),
        register: Some(Box::new(LedgerRegister::new(files))),
        state: LoopState {
            run,
            principal: "operator".to_owned(),
            trusted: BTreeMap::new(),
        },
        config: LoopConfig {
            max_calls: 1000,
            ..LoopConfig::default()
        },
        approvals: Approvals::Desk,
        project: "bench".to_owned(),
        client: Client::Library,
        init_sha256: None,
        one_shot: false,
        observer: None,
    })?)
}

fn governed(session: &GovernedToolSession, number: usize) -> Result<Duration, Box<dyn Error>> {
    let call = BrokerToolCall {
        call_id: format!("bench-{number}"),
        name: "nothing".to_owned(),
        arguments: serde_json::json!({}),
    };
    let start = Instant::now();
    let answer = session.call_blocking(call)?;
    let taken = start.elapsed();
    match answer {
        Answer::Settled(outcome) if outcome.outcome == governance::Outcome::Succeeded => Ok(taken),
        other => Err(format!("{other:?}").into()),
    }
}

fn median(times: &mut [Duration]) -> (f64, f64) {
    times.sort();
    let millis = |at: usize| {
        times
            .get(at)
            .map_or(0.0, |time| time.as_secs_f64() * 1000.0)
    };
    (millis(times.len() / 2), millis(0))
}

fn main() -> Result<(), Box<dyn Error>> {
    let count = std::env::args()
        .filter_map(|it| it.parse().ok())
        .next()
        .unwrap_or(100);
    let folder = tempfile::tempdir()?;
    let mut floor = tier()?;
    let descriptor = descriptor(&floor)?;
    let session = session(folder.path())?;
    let (mut bare_times, mut governed_times) = (Vec::new(), Vec::new());
    for number in 0..count + 5 {
        let (bare, governed) = (bare(&mut floor, &descriptor)?, governed(&session, number)?);
        if number >= 5 {
            bare_times.push(bare);
            governed_times.push(governed);
        }
    }
    session.close_blocking()?;
    let (bare, bare_min) = median(&mut bare_times);
    let (governed, governed_min) = median(&mut governed_times);
    println!("{count} pairs, ms: median (min)");
    println!("bare worker    {bare:.2} ({bare_min:.2})");
    println!("governed call  {governed:.2} ({governed_min:.2})");
    println!(
        "ratio          {:.2} ({:.2})",
        governed / bare,
        governed_min / bare_min
    );
    Ok(())
}
