//! What a session costs beyond its journal's syncs: a signed, durable record included, through the
//! async handle. The sync's own time is taken where it happens and taken off.
//!
//! `cargo bench -p symbi-runtime --bench session [-- COUNT]`
//!
//! Bounds: a refused call its sync and 300 µs; an allowed call that does nothing, in process, its
//! two syncs and 350 µs; 64 tools with a policy each at most 1.2 times one.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use governance::{
    ActionExecutor, BrokerToolCall, LoopConfig, LoopState, Lowered, PreparedCall, PreparedWork,
    ProposedCall, Refusal, RefusalKind, ResultTerms, ToolDefinition,
};
use journal::{Client, Durability, Journal, JournalWriter, ProjectKey, ProtectedJournal};
use model::{Canonical, RunId, ToolName};
use policy::{Policies, PolicySource, ToolShape};
use symbi_runtime::CedarGate;
use symbi_runtime::reasoning::governed_session::{
    Answer, Approvals, GovernedToolSession, SessionParts,
};
use testkit::executor::tool;
use testkit::tier::{FakeTier, Play};
use worker::{Descriptor, Running, StartError, WorkerHoldings};

type Fault = Box<dyn Error>;

/// Tools that do nothing, in process.
struct Nothing {
    tools: Vec<ToolDefinition>,
    tier: FakeTier,
}

impl ActionExecutor for Nothing {
    fn tools(&self) -> &[ToolDefinition] {
        &self.tools
    }

    fn prepare(&mut self, call: ProposedCall) -> Result<PreparedCall, Refusal> {
        let Ok(value) = Canonical::of(call.arguments()) else {
            return Err(call.refuse(RefusalKind::Invalid, "no canonical form"));
        };
        let custom_kind = call.tool().to_owned();
        call.prepared(PreparedWork {
            descriptor: Descriptor::Custom { custom_kind, value },
            holdings: WorkerHoldings::default(),
            target: None,
            charge: None,
            needs_approval: false,
            time_limit: None,
            notes: BTreeMap::new(),
            result: ResultTerms::default(),
        })
    }

    fn start(&mut self, work: Lowered) -> Result<Box<dyn Running>, StartError> {
        match work {
            Lowered::InProcess {
                custom_kind,
                call_sha256,
                ..
            } => self
                .tier
                .start_in_process(vec![custom_kind], call_sha256, Play::exits(0)),
            Lowered::Worker(_) | Lowered::Parsed { .. } => Err(StartError::Failed {
                step: "starting".to_owned(),
                reason: "only in-process work".to_owned(),
            }),
        }
    }
}

/// The journal's file, and how long its syncs took.
struct Timed {
    file: ProtectedJournal,
    nanos: Arc<AtomicU64>,
}

impl JournalWriter for Timed {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.append(bytes)
    }

    fn make_durable(&mut self) -> io::Result<()> {
        let start = Instant::now();
        let done = self.file.make_durable();
        let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        done
    }

    fn durability(&self) -> Durability {
        self.file.durability()
    }
}

struct Bench {
    session: GovernedToolSession,
    syncs: Arc<AtomicU64>,
    number: usize,
}

fn name(index: usize) -> String {
    format!("nothing{index}")
}

fn permits(count: usize) -> String {
    let permit = |index| {
        format!(
            "@id(\"p{index}\") permit(principal == Agent::\"operator\", action == \
             Action::\"tool_call::{}\", resource);\n",
            name(index)
        )
    };
    (0..count).map(permit).collect()
}

fn forbids(count: usize) -> String {
    let forbid = |index| {
        format!(
            "@id(\"f{index}\") @reason(\"never\") forbid(principal, action, resource) when {{ \
             resource.name == \"other{index}\" }};\n"
        )
    };
    (0..count).map(forbid).collect()
}

fn start(folder: &std::path::Path, tools: usize, text: String) -> Result<Bench, Fault> {
    let shapes: Vec<ToolShape> = (0..tools)
        .map(|index| {
            Ok(ToolShape {
                name: ToolName::new(name(index))?,
                kind: policy::ToolKind::Custom,
                action: None,
                resource: None,
                arguments: Vec::new(),
                read_keys: Vec::new(),
                create_keys: Vec::new(),
                needs_approval: false,
            })
        })
        .collect::<Result<_, Fault>>()?;
    let source = PolicySource {
        file: "p.cedar".to_owned(),
        text,
    };
    let policies = Policies::load(&[source], &shapes, &[], &["operator".to_owned()], &[])?;
    let (run, syncs) = (RunId::new(), Arc::new(AtomicU64::new(0)));
    let writer = Timed {
        file: ProtectedJournal::create(&folder.join("runs"), run)?,
        nanos: Arc::clone(&syncs),
    };
    let signer = ProjectKey::generate()?.signer();
    let session = GovernedToolSession::start(SessionParts {
        executor: Box::new(Nothing {
            tools: (0..tools).filter_map(|index| tool(&name(index))).collect(),
            tier: FakeTier::new(),
        }),
        gate: Box::new(CedarGate::new(Arc::new(policies))),
        journal: Journal::new(Box::new(writer), Some(signer), run, "operator".to_owned()),
        register: None,
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
    })?;
    Ok(Bench {
        session,
        syncs,
        number: 0,
    })
}

impl Bench {
    /// One call: what it took besides its syncs, and its syncs.
    async fn call(&mut self, refused: bool) -> Result<(Duration, Duration), Fault> {
        self.number += 1;
        let call = BrokerToolCall {
            call_id: format!("bench-{}", self.number),
            name: name(0),
            arguments: serde_json::json!({"a": 1}),
        };
        let before = self.syncs.load(Ordering::Relaxed);
        let start = Instant::now();
        let answer = self.session.call(call).await?;
        let taken = start.elapsed();
        let syncs = Duration::from_nanos(self.syncs.load(Ordering::Relaxed) - before);
        match (answer, refused) {
            (Answer::Settled(outcome), false)
                if outcome.outcome == governance::Outcome::Succeeded => {}
            (Answer::Refused(refusal), true) if refusal.kind == RefusalKind::Denied => {}
            (other, _) => return Err(format!("{other:?}").into()),
        }
        Ok((taken.saturating_sub(syncs), syncs))
    }
}

/// Median and minimum, in µs.
fn micros(times: &mut [Duration]) -> (f64, f64) {
    times.sort();
    let at = |at: usize| times.get(at).map_or(0.0, |it| it.as_secs_f64() * 1e6);
    (at(times.len() / 2), at(0))
}

async fn measure(folder: &std::path::Path, count: usize) -> Result<(), Fault> {
    let mut scenes = [
        (
            "allowed, 1 tool, 1 policy",
            false,
            start(folder, 1, permits(1))?,
        ),
        (
            "allowed, 64 tools, a policy each",
            false,
            start(folder, 64, permits(64))?,
        ),
        (
            "refused, 1 tool, no policy permits",
            true,
            start(folder, 1, String::new())?,
        ),
        (
            "refused, 64 unscoped forbids",
            true,
            start(folder, 1, forbids(64))?,
        ),
    ];
    let mut times: [(Vec<Duration>, Vec<Duration>); 4] = Default::default();
    for round in 0..count + 20 {
        // In turn, so that a busy moment of the machine meets all of them.
        for ((_, refused, bench), (own, syncs)) in scenes.iter_mut().zip(&mut times) {
            let (took, synced) = bench.call(*refused).await?;
            if round >= 20 {
                own.push(took);
                syncs.push(synced);
            }
        }
    }
    println!("{count} calls each, µs: median (minimum) beside the syncs; the syncs");
    let mut medians = Vec::new();
    for ((name, _, bench), (own, syncs)) in scenes.into_iter().zip(&mut times) {
        let ((own, least), (synced, _)) = (micros(own), micros(syncs));
        println!("{name:36} {own:7.0} ({least:.0}); {synced:.0}");
        medians.push(own);
        bench.session.close().await?;
    }
    if let [one, many, ..] = medians.as_slice() {
        println!("64 tools to 1: {:.2}", many / one);
    }
    Ok(())
}

fn main() -> Result<(), Fault> {
    let count = std::env::args()
        .filter_map(|it| it.parse().ok())
        .next()
        .unwrap_or(500_usize)
        .min(900);
    let folder = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(measure(folder.path(), count))
}
