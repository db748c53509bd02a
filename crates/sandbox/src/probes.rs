//! Whether a tier keeps its promises on this host: each is tried from inside a real worker.
//!
//! The probes are the helper's own program (`symbi-init probe`), so that every tier runs the same
//! ones. A worker is shown it as an agent's program is, or in its channel where programs come from
//! an image.

mod canaries;
mod verdict;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use model::{AgentName, Digest};
use rustix::event::{Timespec, poll};
use serde::Serialize;
use worker::{
    CommandBoundary, Descriptor, Ended, Filesystem, LaunchDescriptor, Limits, Network, ProgramFile,
    ProgramIdentity, Running, StartError, Tier, TierKind, WorkerHoldings, WorkerRoot, lower,
};

use crate::container::{self, RUN_PROGRAM};
use crate::limits::{PROBE_STEP_MAX, PROBE_TIME_MAX};
use crate::programs::identify_file;

use canaries::Canaries;

/// Where the probes' program lies in a worker: an agent's place, and the channel.
const SHOWN: &str = "/agent/symbi-init";
const IN_CHANNEL: &str = "/channel/symbi-init";
/// What a probe's worker is given: small, so that a probe that finds no bound ends soon.
const MEMORY_MIB: u64 = 64;
const PIDS: u64 = 24;
const FILE_BYTES: u64 = 64 << 10;
const STREAM_BYTES: u64 = 64 << 10;
const SCRATCH_BYTES: u64 = 1 << 20;

/// What was found of one promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Holds,
    /// The tier says that it does so in part only, and it does.
    Partly,
    /// It is not known: the probe could not be run.
    Untried,
    Fails,
}

/// One promise and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub probe: &'static str,
    pub verdict: Verdict,
    /// What was seen. It comes from a worker: escape it.
    pub found: String,
    /// What to do about it, where it does not hold.
    pub remedy: Option<&'static str>,
}

/// Where and of what probes are made.
#[derive(Debug)]
pub struct ProbePlace<'a> {
    /// `symbi-init`.
    pub init: &'a Path,
    /// A private, empty folder of this user.
    pub folder: &'a Path,
    pub root: WorkerRoot,
    pub working_dir: String,
}

/// Why there is no finding at all.
#[derive(Debug)]
pub enum ProbeError {
    /// The folder of the probes, or the program, cannot be used.
    Place { what: &'static str, reason: String },
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Place { what, reason } = self;
        write!(f, "the probes cannot be made: {what}: {reason}")
    }
}

impl std::error::Error for ProbeError {}

/// One probe.
struct Probe {
    name: &'static str,
    arguments: Vec<String>,
    judge: fn(&Seen) -> (Verdict, String),
    remedy: &'static str,
}

/// How workers come to the probes' program.
struct Offer {
    identity: ProgramIdentity,
    /// Where the tier shows programs of the host.
    shown: Option<ProgramFile>,
}

impl Offer {
    fn of(place: &ProbePlace<'_>, canaries: &Canaries) -> Result<Self, ProbeError> {
        let failed = |reason: String| ProbeError::Place {
            what: "`symbi-init`",
            reason,
        };
        if let WorkerRoot::Image { .. } = place.root {
            let put = canaries.put_in_channel(place.init, IN_CHANNEL);
            put.map_err(|error| failed(error.to_string()))?;
            return Ok(Self {
                identity: ProgramIdentity::Image {
                    path: IN_CHANNEL.to_owned(),
                },
                shown: None,
            });
        }
        // It is no script: no root is asked for its interpreter.
        let system = WorkerRoot::System { also: Vec::new() };
        let program = identify_file(place.init, SHOWN, &system);
        let program = program.map_err(|error| failed(error.to_string()))?;
        Ok(Self {
            identity: ProgramIdentity::Content(program.clone()),
            shown: Some(program),
        })
    }
}

/// All that came of one probe's worker.
#[derive(Debug)]
struct Seen {
    ended: Ended,
    limits: Limits,
    /// From the order to stop, or from the workload's end, to the confirmed removal.
    removal: Result<Duration, String>,
    /// Whether what it left behind was gone when its removal was confirmed; `None` where nothing
    /// was left.
    descendant_gone: Option<bool>,
}

/// Tries every promise of `tier`.
///
/// # Errors
/// [`ProbeError`]; a tier that starts no worker is a finding.
pub fn probe(tier: &mut dyn Tier, place: &ProbePlace<'_>) -> Result<Vec<Finding>, ProbeError> {
    let canaries = Canaries::lay(place.folder).map_err(|error| ProbeError::Place {
        what: "its folder",
        reason: error.to_string(),
    })?;
    let offer = Offer::of(place, &canaries)?;
    let mut findings = Vec::new();
    for probe in probes(tier.kind(), &canaries, &place.working_dir) {
        let (verdict, found) = match run(tier, place, &offer, &probe, &canaries) {
            Ok(seen) if offer.shown.is_none() && !verdict::has_run(&seen) => {
                return Ok(vec![untried(&verdict::said(&seen))]);
            }
            Ok(seen) => (probe.judge)(&seen),
            Err(StartError::Failed { step, reason }) if step == RUN_PROGRAM => {
                return Ok(vec![untried(&reason)]);
            }
            Err(error) => (Verdict::Fails, error.to_string()),
        };
        findings.push(Finding {
            probe: probe.name,
            verdict,
            found,
            remedy: (verdict != Verdict::Holds).then_some(probe.remedy),
        });
    }
    Ok(findings)
}

fn probes(kind: TierKind, canaries: &Canaries, working_dir: &str) -> Vec<Probe> {
    let probe = |name, arguments: &[&str], judge, remedy| Probe {
        name,
        arguments: arguments.iter().map(|it| (*it).to_owned()).collect(),
        judge,
        remedy,
    };
    let (memory, pids) = (MEMORY_MIB.to_string(), PIDS.to_string());
    let (file, stream) = (FILE_BYTES.to_string(), STREAM_BYTES.to_string());
    let scratch = SCRATCH_BYTES.to_string();
    let network = "a worker must have no network: do not run agents with this tier here";
    let view = "a worker must not see the host: do not run agents with this tier here";
    let groups = "delegate a cgroup with memory and cpu to this user (systemd: Delegate=yes), or \
                  run as root; require_enforced = true refuses workers without it";
    let tier = "the tier does not act as it says: report it, and use another tier";
    vec![
        probe(
            "egress",
            &[&canaries.listener, &canaries.name],
            verdict::facts,
            network,
        ),
        probe("metadata", &[], verdict::facts, network),
        probe("proc", &[&canaries.pid_namespace], verdict::facts, view),
        probe("init", &[], verdict::facts, view),
        probe("mounts", &[&canaries.file], verdict::facts, view),
        probe(
            "identity",
            &[&canaries.kernel_of(kind)],
            verdict::facts,
            tier,
        ),
        probe("memory", &[&memory], verdict::memory, groups),
        probe("pids", &[&pids], verdict::pids, groups),
        probe("file", &[&file], verdict::file, tier),
        probe("scratch", &[&scratch, working_dir], verdict::scratch, tier),
        probe("output", &[&stream], verdict::output, tier),
        probe(
            "descendants",
            &[canaries::SOCKET_IN_WORKER],
            verdict::descendants,
            match kind {
                TierKind::Gvisor => container::SOCKETS_NEED,
                _ => tier,
            },
        ),
        probe("stop", &[], verdict::stop, tier),
    ]
}

/// The image cannot run the probes' program: what its workers can do is not known from inside.
fn untried(reason: &str) -> Finding {
    Finding {
        probe: "inside",
        verdict: Verdict::Untried,
        found: format!("the image cannot run symbi-init: {reason}"),
        remedy: Some("to have the promises tried, name an image with glibc, as Debian's are"),
    }
}

/// Runs one probe's worker to its confirmed removal.
fn run(
    tier: &mut dyn Tier,
    place: &ProbePlace<'_>,
    offer: &Offer,
    probe: &Probe,
    canaries: &Canaries,
) -> Result<Seen, StartError> {
    let failed = |reason: String| StartError::Failed {
        step: "probe".to_owned(),
        reason,
    };
    let limits = tier.enforceable(limits());
    let descriptor = descriptor(tier, place, offer, probe, limits.clone()).map_err(failed)?;
    let holdings = WorkerHoldings {
        channel: Some(canaries.channel.clone()),
        shown: offer.shown.is_some().then(|| place.init.to_owned()),
        ..WorkerHoldings::default()
    };
    let spec = lower(&descriptor, holdings).map_err(|error| failed(error.to_string()))?;
    let mut running = tier.start(spec.first)?;
    let stops = probe.name == "stop";
    let waited = wait(&mut *running, stops);
    let left = canaries.left_behind();
    let began = Instant::now();
    let (ended, began) = match waited {
        Some(ended) => (ended, began),
        None => {
            running.stop();
            let ended = wait(&mut *running, false);
            let ended = ended.ok_or_else(|| failed("its worker does not end".to_owned()))?;
            (ended, began)
        }
    };
    let removal = running.remove().map_err(|error| error.to_string());
    Ok(Seen {
        ended,
        limits,
        removal: removal.map(|_| began.elapsed()),
        descendant_gone: left.map(|connection| Canaries::is_gone(&connection)),
    })
}

/// Waits for the end of a workload; where it is to be `stopped`, only until it is well on its way.
fn wait(running: &mut dyn Running, stopped: bool) -> Option<Ended> {
    let patience = if stopped {
        PROBE_STEP_MAX
    } else {
        PROBE_TIME_MAX
    };
    let until = Instant::now() + patience;
    loop {
        if let Some(ended) = running.advance() {
            return Some(ended);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut polled = Vec::new();
        running.poll_descriptors(&mut polled);
        // An interrupted wait is a wait that ended early.
        let _ = poll(&mut polled, Some(&timeout));
    }
}

fn limits() -> Limits {
    let time_ms = u64::try_from(PROBE_TIME_MAX.as_millis()).unwrap_or(u64::MAX);
    Limits::wanted([
        MEMORY_MIB,
        1000,
        PIDS,
        FILE_BYTES,
        SCRATCH_BYTES,
        STREAM_BYTES,
        time_ms,
    ])
}

/// The launch of a probe, as an agent's.
fn descriptor(
    tier: &dyn Tier,
    place: &ProbePlace<'_>,
    offer: &Offer,
    probe: &Probe,
    limits: Limits,
) -> Result<Descriptor, String> {
    let first = match offer.shown {
        Some(_) => "symbi-init",
        None => IN_CHANNEL,
    };
    let words = [first, "probe", probe.name];
    let argv = words.into_iter().map(str::to_owned);
    Ok(Descriptor::Launch(Box::new(LaunchDescriptor {
        agent: AgentName::new("doctor").map_err(|error| error.to_string())?,
        executor: "command".to_owned(),
        task: format!("probe {}", probe.name),
        argv: argv.chain(probe.arguments.iter().cloned()).collect(),
        environment: BTreeMap::new(),
        program: offer.identity.clone(),
        shown: offer.shown.clone(),
        tools: Vec::new(),
        tool_set_sha256: Digest::of(b""),
        policy_sha256: Digest::of(b""),
        max_calls: 0,
        lifetime_ms: limits.time_ms.value,
        human_approval: false,
        inference: None,
        boundary: CommandBoundary {
            tier: tier.kind(),
            root: place.root.clone(),
            network: Network::None,
            working_dir: place.working_dir.clone(),
            limits,
            filesystem: Filesystem::default(),
        },
    })))
}
