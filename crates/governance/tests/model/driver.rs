//! Walks calls through the real transitions, one event at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use governance::{
    ActionExecutor, Admission, ApprovedCall, Approver, AuthorizedCall, BrokerToolCall,
    DispatchedCall, EndCause, LoopConfig, LoopState, Lowered, Outcome, PolicyQuestion,
    PreparedCall, PreparedWork, ReasoningPolicyGate, Receipt, RecordFailure, RecordedCall, Refusal,
    RefusalKind, SessionRules, SettledCall, StopCause, ToolDefinition, Verdict,
};
use journal::{CallWithdrawn, Journal, JournalError, RunEnded, RunStarted, Stage};
use model::{Canonical, Digest};
use serde_json::json;
use testkit::executor::{ECHO, FAIL, GUARDED, InProcessExecutor};
use testkit::tier::{FakeTier, Play};
use worker::{Descriptor, Ending, Running, StartError, WorkerHoldings};

use crate::Random;
use crate::check::Trace;
use crate::support::{FaultyStore, journal, started, state};

const MAX_CALLS: u64 = 4;

/// What may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Propose {
        id: u8,
        tool: &'static str,
    },
    ProposeNonsense {
        id: u8,
    },
    ProposeLaunch,
    AskPolicyFirst,
    GoWithoutApproval,
    Approve,
    ApproveWithAnothersReceipt,
    /// By somebody whose name no record can hold.
    ApproveUnrecordably,
    Deny,
    Expire,
    Withdraw,
    Authorize,
    Record,
    LedgerFails,
    Dispatch,
    DispatchFails,
    Ends {
        ending: Ending,
        removed: bool,
        stopped: bool,
    },
    AgentEnds {
        removed: bool,
    },
    OwnerDropsTheCall,
    PolicyFlips,
    RegistryChanges,
    AppendWillFail {
        after: u32,
    },
    SyncWillFail {
        after: u32,
    },
    Cancel,
    Close,
    Crash,
}

enum Phase {
    Idle,
    Prepared(PreparedCall),
    Approved(ApprovedCall),
    Authorized(AuthorizedCall),
    Recorded(RecordedCall),
    Running(DispatchedCall),
}

/// How the history ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finale {
    Closed { recorded: bool },
    Crashed,
}

struct FlippingGate {
    permits: bool,
}

impl ReasoningPolicyGate for FlippingGate {
    fn evaluate(&mut self, _question: &PolicyQuestion<'_>) -> Verdict {
        if self.permits {
            Verdict::Permit {
                policies: Vec::new(),
            }
        } else {
            let reason = "denied".to_owned();
            Verdict::Deny {
                policies: Vec::new(),
                reason,
                advice: None,
            }
        }
    }

    fn digest(&self) -> Digest {
        Digest::of(b"policy")
    }
}

/// An executor whose every start is checked at that moment.
struct Watched {
    inner: InProcessExecutor,
    store: FaultyStore,
    trace: Arc<Mutex<Trace>>,
}

impl ActionExecutor for Watched {
    fn tools(&self) -> &[ToolDefinition] {
        self.inner.tools()
    }

    fn prepare(&mut self, call: governance::ProposedCall) -> Result<PreparedCall, Refusal> {
        if call.tool() != GUARDED {
            return self.inner.prepare(call);
        }
        // The same demand on smaller work: there are many histories.
        let value = Canonical::of(call.arguments()).unwrap();
        call.prepared(PreparedWork {
            descriptor: Descriptor::Custom {
                custom_kind: GUARDED.to_owned(),
                value,
            },
            holdings: WorkerHoldings::default(),
            target: None,
            charge: None,
            needs_approval: true,
            time_limit: None,
            notes: BTreeMap::new(),
            result: governance::ResultTerms::default(),
        })
    }

    fn start(&mut self, work: Lowered) -> Result<Box<dyn Running>, StartError> {
        let digest = match &work {
            Lowered::Worker(spec) | Lowered::Parsed { command: spec, .. } => spec.call_digest(),
            Lowered::InProcess { call_sha256, .. } => *call_sha256,
        };
        let started = self.inner.start(work)?;
        let disk = self.store.disk.lock().unwrap();
        self.trace.lock().unwrap().start(digest, &disk);
        Ok(started)
    }
}

/// One session. Dropping it in mid-flight is the crash.
pub(crate) struct Driver {
    /// Leaves it to governance and the journal to stop after a bad end.
    careless: bool,
    signed: bool,
    store: FaultyStore,
    journal: Journal,
    first: Option<RunStarted>,
    state: LoopState,
    rules: SessionRules,
    gate: FlippingGate,
    tier: FakeTier,
    executor: Watched,
    trace: Arc<Mutex<Trace>>,
    phase: Phase,
    launching: bool,
    agent: Option<DispatchedCall>,
    nonce: u64,
    finale: Option<Finale>,
}

impl Driver {
    pub(crate) fn new(signed: bool, careless: bool) -> Self {
        let store = FaultyStore::default();
        let journal = journal(&store, signed);
        let state = state(&journal);
        let tier = FakeTier::new();
        let inner = InProcessExecutor::new(tier.clone());
        let config = LoopConfig {
            max_calls: MAX_CALLS,
            ..LoopConfig::default()
        };
        let rules = SessionRules::new(&state, &config, inner.tools()).unwrap();
        let trace = Arc::new(Mutex::new(Trace::default()));
        Self {
            careless,
            signed,
            executor: Watched {
                inner,
                store: store.clone(),
                trace: Arc::clone(&trace),
            },
            store,
            journal,
            first: Some(started()),
            state,
            rules,
            gate: FlippingGate { permits: true },
            tier,
            trace,
            phase: Phase::Idle,
            launching: false,
            agent: None,
            nonce: 0,
            finale: None,
        }
    }

    pub(crate) fn trace(&self) -> std::sync::MutexGuard<'_, Trace> {
        self.trace.lock().unwrap()
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.finale.is_some()
    }

    /// An event that can happen now: mostly the call's next step, sometimes a disturbance.
    pub(crate) fn choose(&self, random: &mut Random) -> Event {
        if random.one_in(7) {
            return self.disturbance(random);
        }
        match &self.phase {
            Phase::Idle => {
                let id = u8::try_from(random.below(5)).unwrap();
                match random.below(16) {
                    0..=4 => Event::Propose { id, tool: ECHO },
                    5 | 6 => Event::Propose { id, tool: FAIL },
                    7..=9 => Event::Propose { id, tool: GUARDED },
                    10 => Event::Propose {
                        id,
                        tool: "unknown",
                    },
                    11 => Event::ProposeNonsense { id },
                    12 => Event::ProposeLaunch,
                    13 | 14 if self.agent.is_some() => Event::AgentEnds {
                        removed: !random.one_in(4),
                    },
                    13 | 14 => Event::Propose { id, tool: GUARDED },
                    _ => Event::Close,
                }
            }
            Phase::Prepared(prepared) if prepared.needs_approval() => match random.below(11) {
                0 => Event::AskPolicyFirst,
                1..=4 => Event::Approve,
                5 => Event::ApproveWithAnothersReceipt,
                6 => Event::Deny,
                7 => Event::Expire,
                8 => Event::Withdraw,
                9 => Event::ApproveUnrecordably,
                _ => Event::GoWithoutApproval,
            },
            Phase::Prepared(_) => Event::GoWithoutApproval,
            Phase::Approved(_) => Event::Authorize,
            Phase::Authorized(_) if random.one_in(8) => Event::Withdraw,
            Phase::Authorized(_) => Event::Record,
            Phase::Recorded(_) => match random.below(8) {
                0 => Event::LedgerFails,
                1 => Event::DispatchFails,
                _ => Event::Dispatch,
            },
            Phase::Running(_) if random.one_in(16) => Event::OwnerDropsTheCall,
            Phase::Running(_) => ends(random),
        }
    }

    fn disturbance(&self, random: &mut Random) -> Event {
        let after = 1 + u32::try_from(random.below(3)).unwrap();
        match random.below(9) {
            0..=2 => Event::Crash,
            3 => Event::PolicyFlips,
            4 => Event::AppendWillFail { after },
            5 => Event::SyncWillFail { after },
            6 => Event::Cancel,
            7 if random.one_in(4) => Event::RegistryChanges,
            7 => Event::OwnerDropsTheCall,
            _ => Event::Close,
        }
    }

    pub(crate) fn apply(&mut self, event: Event) {
        match event {
            Event::Propose { id, tool } => self.propose(id, tool, false),
            Event::ProposeNonsense { id } => self.propose(id, ECHO, true),
            Event::ProposeLaunch => self.propose_launch(),
            Event::AppendWillFail { after } => {
                let mut disk = self.store.disk.lock().unwrap();
                disk.fail_append = Some(disk.appends + after);
            }
            Event::SyncWillFail { after } => {
                let mut disk = self.store.disk.lock().unwrap();
                disk.fail_sync = Some(disk.syncs + after);
            }
            Event::PolicyFlips => self.gate.permits = !self.gate.permits,
            Event::RegistryChanges => self.executor.inner.change_tools(|tools| {
                tools.pop();
            }),
            Event::AgentEnds { removed } => {
                if let Some(agent) = self.agent.take() {
                    self.settle(agent, Ending::Exited { code: 0 }, removed, None);
                }
            }
            Event::Cancel => self.end(Some(EndCause::Cancelled)),
            Event::Close => {
                let busy = !matches!(self.phase, Phase::Idle) || self.agent.is_some();
                self.end(busy.then_some(EndCause::ClosedWithCall));
            }
            Event::Crash => self.finale = Some(Finale::Crashed),
            step => self.step(step),
        }
    }

    /// Takes the call under way one transition further.
    fn step(&mut self, event: Event) {
        self.phase = match (std::mem::replace(&mut self.phase, Phase::Idle), event) {
            (Phase::Prepared(call), step) => self.decide(call, step),
            (Phase::Approved(call), Event::Authorize) => {
                let authorized = call.authorize(&mut self.gate, &self.state);
                self.or_refuse(authorized.map(Phase::Authorized))
            }
            (Phase::Authorized(call), Event::Withdraw) => {
                self.refuse(&call.withdraw("withdrawn"));
                Phase::Idle
            }
            (Phase::Authorized(call), Event::Record) => self.record(call),
            (Phase::Recorded(call), Event::LedgerFails) => {
                self.record_outcome(call.not_started("the ledger failed".to_owned()));
                Phase::Idle
            }
            (Phase::Recorded(call), Event::Dispatch) => self.dispatch(call),
            (Phase::Recorded(call), Event::DispatchFails) => {
                self.tier.next_fails("scripted", "no worker");
                self.dispatch(call)
            }
            (
                Phase::Running(call),
                Event::Ends {
                    ending,
                    removed,
                    stopped,
                },
            ) => {
                self.settle(call, ending, removed, stopped.then_some(StopCause::Owner));
                Phase::Idle
            }
            (Phase::Recorded(call), Event::OwnerDropsTheCall) => {
                self.abandon(call.call_sha256());
                Phase::Idle
            }
            (Phase::Running(call), Event::OwnerDropsTheCall) => {
                self.abandon(call.call_sha256());
                Phase::Idle
            }
            (phase, _) => phase,
        };
    }

    fn decide(&mut self, call: PreparedCall, event: Event) -> Phase {
        let no = |kind| Some((Stage::Approve, kind));
        let refused = match event {
            Event::AskPolicyFirst => {
                let asked = call.worth_asking(&mut self.gate, &self.state);
                return self.or_refuse(asked.map(Phase::Prepared));
            }
            Event::GoWithoutApproval => {
                let demanded = call.needs_approval();
                let approved = call.approval_not_needed();
                self.trace()
                    .expect("approval cannot be skipped", demanded != approved.is_ok());
                return self.or_refuse(approved.map(Phase::Approved));
            }
            Event::Approve => {
                let receipt = receipt(call.call_sha256());
                return self.or_refuse(call.approve(receipt).map(Phase::Approved));
            }
            Event::ApproveUnrecordably => {
                let mut receipt = receipt(call.call_sha256());
                receipt.approver.identity = "x".repeat(2000);
                return self.or_refuse(call.approve(receipt).map(Phase::Approved));
            }
            Event::ApproveWithAnothersReceipt => {
                let approved = call.approve(receipt(Digest::of(b"another call")));
                self.trace()
                    .expect("a receipt is for one call", approved.is_err());
                return self.or_refuse(approved.map(Phase::Approved));
            }
            Event::Deny | Event::Expire => no(RefusalKind::NotApproved),
            Event::Withdraw | Event::OwnerDropsTheCall => no(RefusalKind::Withdrawn),
            _ => None,
        };
        match refused {
            Some((stage, kind)) => {
                self.refuse(&call.refuse(stage, kind, "no"));
                Phase::Idle
            }
            None => Phase::Prepared(call),
        }
    }

    fn or_refuse(&mut self, next: Result<Phase, Refusal>) -> Phase {
        match next {
            Ok(phase) => phase,
            Err(refusal) => {
                self.refuse(&refusal);
                Phase::Idle
            }
        }
    }

    fn propose(&mut self, id: u8, tool: &str, nonsense: bool) {
        if let Err(cause) = self.rules.check_registry(self.executor.tools()) {
            return self.end(Some(cause));
        }
        // Every attempt has a digest of its own, so a reused identity would show.
        self.nonce += 1;
        let arguments = if nonsense {
            json!([])
        } else {
            json!({ "n": self.nonce.to_string() })
        };
        let (call_id, name) = (id.to_string(), tool.to_owned());
        let spent = self.rules.spent();
        match self.rules.admit(BrokerToolCall {
            call_id,
            name,
            arguments,
        }) {
            Admission::Admitted(proposed) => {
                self.trace().admit(&id.to_string());
                let prepared = self.executor.prepare(proposed);
                if let Ok(prepared) = &prepared {
                    self.trace()
                        .prepare(prepared.call_sha256(), &id.to_string());
                }
                self.phase = self.or_refuse(prepared.map(Phase::Prepared));
                self.launching = false;
            }
            Admission::Refused(refusal) => self.refuse(&refusal),
            Admission::OverBudget => {
                self.trace()
                    .expect("the budget is whole", spent == MAX_CALLS);
                let max_calls = MAX_CALLS;
                self.end(Some(EndCause::Budget { max_calls }));
            }
        }
    }

    fn propose_launch(&mut self) {
        match self.rules.admit_launch("agent") {
            Ok(proposed) => {
                self.trace().admit("launch");
                let prepared = self.executor.prepare(proposed);
                if let Ok(prepared) = &prepared {
                    self.trace().prepare(prepared.call_sha256(), "launch");
                }
                self.phase = self.or_refuse(prepared.map(Phase::Prepared));
                self.launching = true;
            }
            Err(refusal) => self.refuse(&refusal),
        }
    }

    fn record(&mut self, call: AuthorizedCall) -> Phase {
        match call.record(&self.journal, &mut self.first) {
            Ok(recorded) => Phase::Recorded(recorded),
            Err(RecordFailure::Refused(refusal)) => {
                self.refuse(&refusal);
                Phase::Idle
            }
            Err(RecordFailure::Journal(error)) => {
                self.journal_failed(&error);
                Phase::Idle
            }
        }
    }

    fn dispatch(&mut self, call: RecordedCall) -> Phase {
        self.tier.next_runs(Play::runs_on()); // unless a failure was scripted before it
        let dispatched = call.dispatch(&mut self.executor);
        match dispatched {
            Ok(dispatched) if self.launching => {
                self.agent = Some(dispatched);
                Phase::Idle
            }
            Ok(dispatched) => Phase::Running(dispatched),
            Err(settled) => {
                self.tier.forget_script();
                self.record_outcome(*settled);
                Phase::Idle
            }
        }
    }

    fn settle(
        &mut self,
        mut call: DispatchedCall,
        ending: Ending,
        removed: bool,
        stopped: Option<StopCause>,
    ) {
        let mut play = Play::ends(ending);
        if !removed {
            play = play.removal_fails("stuck");
        }
        let worker = self.tier.worker_of(call.call_sha256()).unwrap();
        self.tier.end(worker, play);
        let ended = call.running().advance().unwrap();
        let settled = call.settle(ended, stopped);
        let known = removed && ending != Ending::Lost;
        let unconfirmed = matches!(settled.outcome(), Outcome::Unconfirmed { .. });
        self.trace()
            .expect("doubt is unconfirmed", known || unconfirmed);
        self.record_outcome(settled);
    }

    fn record_outcome(&mut self, settled: SettledCall) {
        if let Outcome::Unconfirmed { reason } = settled.outcome() {
            self.trace().unconfirmed = true;
            if !self.careless {
                self.journal.mark_unconfirmed();
                let (call_id, reason) = (settled.id().to_string(), reason.clone());
                self.rules.end(EndCause::Unconfirmed { call_id, reason });
            }
        }
        if let Err(failed) = settled.record() {
            self.journal_failed(&failed.1);
        }
    }

    /// The owner lets go of a call after its record: nobody will know.
    fn abandon(&mut self, call: Digest) {
        let mut trace = self.trace.lock().unwrap();
        trace.unconfirmed = true;
        trace.abandoned.insert(call);
        if !self.careless {
            let call_id = call.to_string();
            self.rules.end(EndCause::AbandonedCall { call_id });
        }
    }

    fn refuse(&mut self, refusal: &Refusal) {
        if let Some(call) = refusal.call_sha256 {
            self.trace().refused.insert(call);
        }
        let (call_id, tool) = (refusal.call_id.clone(), refusal.tool.clone());
        let reason = refusal.reason.clone();
        let written = if refusal.kind == RefusalKind::Withdrawn {
            self.note(CallWithdrawn {
                call_id,
                tool,
                cause: reason,
            })
        } else {
            self.note(refusal.record())
        };
        if let Err(error) = written {
            self.journal_failed(&error);
        }
    }

    fn note<T: journal::Recordable>(&mut self, event: T) -> Result<(), JournalError> {
        let written = match self.first.clone() {
            Some(first) => self.journal.record2(first, event).map(drop),
            None => self.journal.record(event).map(drop),
        };
        if written.is_ok() {
            self.first = None;
        }
        written
    }

    fn journal_failed(&mut self, error: &JournalError) {
        let broken = matches!(error, JournalError::Store(_) | JournalError::Failed);
        let forbidden = matches!(error, JournalError::EffectForbidden { .. });
        let mut trace = self.trace.lock().unwrap();
        trace.journal_failed |= broken;
        let unconfirmed = trace.unconfirmed;
        trace.expect(
            "a journal refuses for a reason",
            broken || (forbidden && unconfirmed),
        );
        drop(trace);
        if !self.careless {
            self.rules.end(EndCause::Journal {
                reason: error.to_string(),
            });
        }
    }

    /// Stops what runs, and writes the terminal record: the session's own end.
    fn end(&mut self, cause: Option<EndCause>) {
        if let Some(cause) = cause {
            self.rules.end(cause);
        }
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Prepared(call) => {
                let refusal = call.refuse(Stage::Approve, RefusalKind::Withdrawn, "it ended");
                self.refuse(&refusal);
            }
            Phase::Authorized(call) => self.refuse(&call.withdraw("it ended")),
            Phase::Recorded(call) => self.record_outcome(call.not_started("it ended".to_owned())),
            Phase::Running(call) => {
                self.settle(call, Ending::Stopped, true, Some(StopCause::Owner));
            }
            Phase::Idle | Phase::Approved(_) => {}
        }
        if let Some(agent) = self.agent.take() {
            self.settle(agent, Ending::Stopped, true, Some(StopCause::Owner));
        }
        if self.trace().unconfirmed && self.rules.cause().is_none() {
            let (call_id, reason) = ("?".to_owned(), "unconfirmed".to_owned());
            self.rules.end(EndCause::Unconfirmed { call_id, reason });
        }
        let cause = self.rules.cause().map(ToString::to_string);
        let end = RunEnded {
            completed: cause.is_none(),
            cause,
            calls: self.rules.spent(),
        };
        let recorded = match self.note(end) {
            Ok(()) => true,
            Err(error) => {
                self.journal_failed(&error);
                false
            }
        };
        self.finale = Some(Finale::Closed { recorded });
    }

    /// Closes what is still open, lets a crash take what was not durable, and checks the rest.
    pub(crate) fn finish(self, random: &mut Random, tally: &mut Tally) -> Result<(), String> {
        let mut driver = self;
        if driver.finale.is_none() {
            driver.apply(Event::Close);
        }
        let finale = driver.finale.unwrap();
        let survived = {
            let disk = driver.store.disk.lock().unwrap();
            let at_risk = (disk.bytes.len() - disk.durable) as u64;
            let torn = usize::try_from(random.below(at_risk + 1)).unwrap();
            disk.bytes[..disk.durable + torn].to_vec()
        };
        let (trace, signed) = (Arc::clone(&driver.trace), driver.signed);
        drop(driver);
        let trace = trace.lock().unwrap();
        tally.count(&trace, finale);
        // Reading back is the dearest step: every second crash, every fourth close.
        let often = if finale == Finale::Crashed { 2 } else { 4 };
        if !signed && !random.one_in(often) {
            return trace.violation().map_or(Ok(()), Err);
        }
        trace.check_end(finale, &survived, signed)
    }
}

fn ends(random: &mut Random) -> Event {
    let ending = match random.below(8) {
        0..=4 => Ending::Exited {
            code: i32::from(random.one_in(3)),
        },
        5 => Ending::Signaled { signal: 9 },
        6 => Ending::Stopped,
        _ => Ending::Lost,
    };
    let stopped = ending == Ending::Stopped || random.one_in(8);
    Event::Ends {
        ending,
        removed: !random.one_in(10),
        stopped,
    }
}

fn receipt(call_sha256: Digest) -> Receipt {
    let at = || "2026-01-01T00:00:00Z".to_owned();
    Receipt {
        held_id: "held".to_owned(),
        call_sha256,
        review_sha256: call_sha256,
        approver: Approver {
            surface: "test".to_owned(),
            identity: "test".to_owned(),
            signatures: Vec::new(),
        },
        created_at: at(),
        decided_at: at(),
        expires_at: at(),
        inputs_shown: Vec::new(),
    }
}

/// What the histories did, so that a driver that does nothing is noticed.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) histories: u64,
    pub(crate) starts: u64,
    pub(crate) refused: u64,
    pub(crate) unconfirmed: u64,
    pub(crate) abandoned: u64,
    pub(crate) journal_failed: u64,
    pub(crate) crashed: u64,
    pub(crate) crashed_after_a_start: u64,
    pub(crate) closed: u64,
}

impl Tally {
    fn count(&mut self, trace: &Trace, finale: Finale) {
        self.histories += 1;
        self.starts += trace.starts.len() as u64;
        self.refused += trace.refused.len() as u64;
        self.unconfirmed += u64::from(trace.unconfirmed);
        self.abandoned += trace.abandoned.len() as u64;
        self.journal_failed += u64::from(trace.journal_failed);
        let crashed = finale == Finale::Crashed;
        self.crashed += u64::from(crashed);
        self.crashed_after_a_start += u64::from(crashed && !trace.starts.is_empty());
        self.closed += u64::from(finale == Finale::Closed { recorded: true });
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.histories += other.histories;
        self.starts += other.starts;
        self.refused += other.refused;
        self.unconfirmed += other.unconfirmed;
        self.abandoned += other.abandoned;
        self.journal_failed += other.journal_failed;
        self.crashed += other.crashed;
        self.crashed_after_a_start += other.crashed_after_a_start;
        self.closed += other.closed;
    }

    pub(crate) fn assert_everything_happened(&self) {
        let least = self.histories / 50;
        for (what, count) in [
            ("starts", self.starts),
            ("refusals", self.refused),
            ("unconfirmed outcomes", self.unconfirmed),
            ("abandoned calls", self.abandoned),
            ("journal failures", self.journal_failed),
            ("crashes", self.crashed_after_a_start),
            ("closes", self.closed),
        ] {
            assert!(count > least, "too few {what}: {self:?}");
        }
    }
}
