//! The states of one call, from its prepared work to a worker that runs.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::time::Duration;

use filegrants::{OutputTarget, StagingCharge};
use journal::limits::NOTE_TEXT_BYTES_MAX;
use journal::{
    CallDispatching, CallJournal, Decision, Journal, JournalError, PolicyNote, RunStarted, Stage,
    shortened,
};
use model::{CallId, Canonical, Digest, ToolName};
use worker::{Descriptor, LowerError, ReadGrant, Running, StartError, WorkerHoldings, lower};

use crate::executor::{ActionExecutor, Lowered};
use crate::gate::{Approval, PolicyQuestion, ReasoningPolicyGate, Verdict, recordable};
use crate::outcome::{Lack, Outcome};
use crate::proposal::PreparedWork;
use crate::receipt::Receipt;
use crate::refusal::{Refusal, RefusalKind};
use crate::result::ResultTerms;
use crate::rules::LoopState;
use crate::settle::SettledCall;

/// A call whose whole effect is frozen in one descriptor with one digest.
#[derive(Debug)]
pub struct PreparedCall {
    pub(crate) id: CallId,
    pub(crate) tool: ToolName,
    pub(crate) canonical: Canonical,
    pub(crate) call_sha256: Digest,
    pub(crate) work: PreparedWork,
}

impl PreparedCall {
    #[must_use]
    pub const fn id(&self) -> &CallId {
        &self.id
    }

    #[must_use]
    pub fn tool(&self) -> &str {
        self.tool.as_str()
    }

    #[must_use]
    pub const fn call_sha256(&self) -> Digest {
        self.call_sha256
    }

    /// The descriptor's canonical text: what a person is shown.
    #[must_use]
    pub const fn canonical(&self) -> &Canonical {
        &self.canonical
    }

    #[must_use]
    pub const fn descriptor(&self) -> &Descriptor {
        &self.work.descriptor
    }

    #[must_use]
    pub fn needs_approval(&self) -> bool {
        let demanded = match &self.work.descriptor {
            Descriptor::Command(command) => command.human_approval,
            Descriptor::Launch(launch) => launch.human_approval,
            Descriptor::Custom { .. } => false,
        };
        demanded || self.work.needs_approval
    }

    #[must_use]
    pub const fn creates_file(&self) -> bool {
        self.work.target.is_some()
    }

    /// The call's inputs: the key of each, what the descriptor says of it, and its snapshot.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, &ReadGrant, &File)> {
        let grants = self.work.descriptor.boundary();
        let grants = grants.into_iter().flat_map(|it| &it.filesystem.read);
        grants.filter_map(|(key, grant)| {
            let snapshot = self.work.holdings.inputs.get(&grant.path)?;
            Some((key.as_str(), grant, snapshot))
        })
    }

    /// Refuses this call. Its snapshots are released here.
    #[must_use]
    pub fn refuse(self, stage: Stage, kind: RefusalKind, reason: &str) -> Refusal {
        let mut refusal = Refusal::new(&self.id, self.tool.as_str(), stage, kind, reason);
        refusal.call_sha256 = Some(self.call_sha256);
        refusal
    }

    /// Asks policy whether a person's yes would be enough, so that nobody is asked in vain.
    ///
    /// # Errors
    /// A [`Refusal`] at stage `authorize` where policy would deny it even then.
    pub fn worth_asking(
        self,
        gate: &mut dyn ReasoningPolicyGate,
        state: &LoopState,
    ) -> Result<Self, Refusal> {
        match gate.evaluate(&self.question(state, Approval::Supposed)) {
            Verdict::Permit { .. } => Ok(self),
            Verdict::Deny {
                policies,
                reason,
                advice,
            } => Err(self.denied(policies, &reason, advice)),
        }
    }

    /// The way of a call that demands nobody's yes.
    ///
    /// # Errors
    /// A [`Refusal`] at stage `approve` where the call does demand one.
    pub fn approval_not_needed(self) -> Result<ApprovedCall, Refusal> {
        if self.needs_approval() {
            let reason = "the tool demands a person's approval, and there is none";
            return Err(self.refuse(Stage::Approve, RefusalKind::NotApproved, reason));
        }
        Ok(ApprovedCall {
            prepared: self,
            receipt: None,
        })
    }

    /// The way of a call that a person approved.
    ///
    /// # Errors
    /// A [`Refusal`] at stage `approve` where the receipt is for another call.
    pub fn approve(self, receipt: Receipt) -> Result<ApprovedCall, Refusal> {
        if receipt.call_sha256 != self.call_sha256 {
            let reason = format!(
                "the approval is for call {}, not for {}",
                receipt.call_sha256, self.call_sha256
            );
            return Err(self.refuse(Stage::Approve, RefusalKind::NotApproved, &reason));
        }
        Ok(ApprovedCall {
            prepared: self,
            receipt: Some(receipt),
        })
    }

    /// The end of a call that a person denied.
    #[must_use]
    pub fn deny(self, receipt: &Receipt) -> Refusal {
        let who = &receipt.approver;
        let reason = format!("denied by {} ({})", who.identity, who.surface);
        let mut refusal = self.refuse(Stage::Approve, RefusalKind::NotApproved, &reason);
        let mut fact = receipt.fact(Decision::Denied);
        fact.approver = shortened(&fact.approver, NOTE_TEXT_BYTES_MAX);
        refusal.approval = Some(Box::new(fact));
        refusal
    }

    fn question<'a>(&'a self, state: &'a LoopState, approval: Approval<'a>) -> PolicyQuestion<'a> {
        PolicyQuestion {
            principal: &state.principal,
            trusted: &state.trusted,
            descriptor: &self.work.descriptor,
            call_sha256: self.call_sha256,
            approval,
        }
    }

    fn denied(self, policies: Vec<PolicyNote>, reason: &str, advice: Option<String>) -> Refusal {
        let mut refusal = self.refuse(Stage::Authorize, RefusalKind::Denied, reason);
        refusal.policies = recordable(policies);
        match advice {
            Some(advice) => refusal.advice(advice),
            None => refusal,
        }
    }
}

/// A call with the approval that it demands, if any.
#[derive(Debug)]
pub struct ApprovedCall {
    prepared: PreparedCall,
    receipt: Option<Receipt>,
}

impl ApprovedCall {
    /// Asks policy about exactly this call.
    ///
    /// # Errors
    /// A [`Refusal`] at stage `authorize`.
    pub fn authorize(
        self,
        gate: &mut dyn ReasoningPolicyGate,
        state: &LoopState,
    ) -> Result<AuthorizedCall, Refusal> {
        let approval = self
            .receipt
            .as_ref()
            .map_or(Approval::None, Approval::Given);
        match gate.evaluate(&self.prepared.question(state, approval)) {
            Verdict::Permit { policies } => Ok(AuthorizedCall {
                prepared: self.prepared,
                receipt: self.receipt,
                policies: recordable(policies),
            }),
            Verdict::Deny {
                policies,
                reason,
                advice,
            } => Err(self.prepared.denied(policies, &reason, advice)),
        }
    }
}

/// A call that policy permits.
#[derive(Debug)]
pub struct AuthorizedCall {
    prepared: PreparedCall,
    receipt: Option<Receipt>,
    policies: Vec<PolicyNote>,
}

/// Why a call could not be recorded.
#[derive(Debug)]
pub enum RecordFailure {
    /// The call alone is refused: no room, no signed and durable writer for its output.
    Refused(Box<Refusal>),
    /// The journal failed; the session ends.
    Journal(JournalError),
}

impl fmt::Display for RecordFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Journal(_) => f.write_str("the pre-effect record could not be written"),
        }
    }
}

impl std::error::Error for RecordFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(_) => None,
            Self::Journal(error) => Some(error),
        }
    }
}

impl RecordFailure {
    /// A journal that refused and wrote nothing refuses this call; any other end is the session's.
    fn of(prepared: PreparedCall, error: JournalError) -> Self {
        let kind = match &error {
            JournalError::Store(_)
            | JournalError::Failed
            | JournalError::Ended
            | JournalError::EffectForbidden { .. }
            | JournalError::OutOfOrder { .. }
            | JournalError::OtherCall { .. } => return Self::Journal(error),
            JournalError::Field(_) | JournalError::Encode(_) => RefusalKind::Invalid,
            // No room in it, in a record, or beside it.
            _ => RefusalKind::Capacity,
        };
        let reason = error.to_string();
        Self::Refused(Box::new(prepared.refuse(Stage::Record, kind, &reason)))
    }
}

impl AuthorizedCall {
    /// Refuses a call that was withdrawn at the last moment.
    #[must_use]
    pub fn withdraw(self, reason: &str) -> Refusal {
        self.prepared
            .refuse(Stage::Record, RefusalKind::Withdrawn, reason)
    }

    /// Puts the pre-effect record on disk, with the run's first record in the same write where
    /// this is the first.
    ///
    /// # Errors
    /// [`RecordFailure`]; in both cases nothing has run and nothing will.
    pub fn record(
        self,
        journal: &Journal,
        first: &mut Option<RunStarted>,
    ) -> Result<RecordedCall, RecordFailure> {
        let prepared = self.prepared;
        if prepared.creates_file() && !journal.publishes() {
            let reason = "the call creates a file, and this session has no live audit authority \
                          (a signed and durable journal)";
            let refusal = prepared.refuse(Stage::Record, RefusalKind::Capacity, reason);
            return Err(RecordFailure::Refused(Box::new(refusal)));
        }
        if prepared.work.result.keeps_output && !journal.keeps_evidence() {
            let reason = "the tool's output must be kept as evidence, and this session has no place \
                          for it";
            let refusal = prepared.refuse(Stage::Record, RefusalKind::Capacity, reason);
            return Err(RecordFailure::Refused(Box::new(refusal)));
        }
        let call_journal = match journal.lend(prepared.call_sha256) {
            Ok(lent) => lent,
            Err(error) => return Err(RecordFailure::of(prepared, error)),
        };
        let event = CallDispatching {
            call_id: prepared.id.clone(),
            tool: prepared.tool.clone(),
            call_sha256: prepared.call_sha256,
            descriptor: prepared.canonical.clone(),
            policies: self.policies,
            approval: self
                .receipt
                .as_ref()
                .map(|receipt| receipt.fact(Decision::Approved)),
        };
        // Cloned: where the journal refuses this call, its first record is still to be written.
        let recorded = match first.clone() {
            Some(started) => journal.record2(started, event).map(|(_, second)| second),
            None => journal.record(event),
        };
        match recorded {
            Ok(record) => {
                *first = None;
                Ok(RecordedCall {
                    prepared,
                    seq: record.seq(),
                    journal: call_journal,
                })
            }
            Err(error) => Err(RecordFailure::of(prepared, error)),
        }
    }
}

/// A call whose record is on disk. It may now run, once.
#[derive(Debug)]
pub struct RecordedCall {
    prepared: PreparedCall,
    seq: u64,
    journal: CallJournal,
}

impl RecordedCall {
    #[must_use]
    pub const fn call_sha256(&self) -> Digest {
        self.prepared.call_sha256
    }

    /// Ends a recorded call that must not start any more.
    #[must_use]
    pub fn not_started(self, reason: String) -> SettledCall {
        let identity = CallIdentity::of(&self.prepared, self.seq);
        SettledCall::not_started(identity, Outcome::NotStarted { reason }, self.journal, None)
    }

    /// Starts exactly what was recorded.
    ///
    /// # Errors
    /// The settled call with [`Outcome::NotStarted`], where nothing has run.
    pub fn dispatch(
        self,
        executor: &mut dyn ActionExecutor,
    ) -> Result<DispatchedCall, Box<SettledCall>> {
        let identity = CallIdentity::of(&self.prepared, self.seq);
        let work = self.prepared.work;
        let started = lowered(&work.descriptor, work.holdings, identity.call_sha256)
            .map_err(|error| StartError::Failed {
                step: "lowering the descriptor".to_owned(),
                reason: error.to_string(),
            })
            .and_then(|lowered| executor.start(lowered));
        match started {
            Ok(running) => Ok(DispatchedCall {
                identity,
                descriptor: work.descriptor,
                target: work.target,
                charge: work.charge,
                time_limit: work.time_limit,
                journal: self.journal,
                running,
            }),
            Err(error) => {
                let lack = lack_of(&error);
                let outcome = Outcome::NotStarted {
                    reason: error.to_string(),
                };
                Err(Box::new(SettledCall::not_started(
                    identity,
                    outcome,
                    self.journal,
                    lack,
                )))
            }
        }
    }
}

/// What the host lacked. A program that changed is no lack of the host.
const fn lack_of(error: &StartError) -> Option<Lack> {
    match error {
        StartError::ProgramChanged { .. } => None,
        StartError::NoRoom { .. } => Some(Lack::Room),
        StartError::Unavailable { .. } | StartError::Failed { .. } => Some(Lack::Isolation),
    }
}

fn lowered(
    descriptor: &Descriptor,
    holdings: WorkerHoldings,
    call_sha256: Digest,
) -> Result<Lowered, LowerError> {
    match descriptor {
        Descriptor::Custom { custom_kind, value } => Ok(Lowered::InProcess {
            custom_kind: custom_kind.clone(),
            value: value.clone(),
            call_sha256,
        }),
        Descriptor::Command(_) | Descriptor::Launch(_) => {
            let workers = lower(descriptor, holdings)?;
            let command = Box::new(workers.first);
            Ok(match workers.parser {
                None => Lowered::Worker(command),
                Some(parser) => Lowered::Parsed {
                    command,
                    parser: Box::new(parser),
                },
            })
        }
    }
}

/// What stays with a call to its end.
#[derive(Debug)]
pub(crate) struct CallIdentity {
    pub(crate) id: CallId,
    pub(crate) tool: ToolName,
    pub(crate) call_sha256: Digest,
    pub(crate) seq: u64,
    pub(crate) notes: BTreeMap<String, String>,
    pub(crate) result: ResultTerms,
    pub(crate) argv: Vec<String>,
}

impl CallIdentity {
    fn of(prepared: &PreparedCall, seq: u64) -> Self {
        let argv = match &prepared.work.descriptor {
            Descriptor::Command(command) => command.argv.clone(),
            Descriptor::Launch(launch) => launch.argv.clone(),
            Descriptor::Custom { .. } => Vec::new(),
        };
        Self {
            id: prepared.id.clone(),
            tool: prepared.tool.clone(),
            call_sha256: prepared.call_sha256,
            seq,
            notes: prepared.work.notes.clone(),
            result: prepared.work.result.clone(),
            argv,
        }
    }
}

/// A call that runs.
pub struct DispatchedCall {
    pub(crate) identity: CallIdentity,
    pub(crate) descriptor: Descriptor,
    pub(crate) target: Option<OutputTarget>,
    pub(crate) charge: Option<StagingCharge>,
    time_limit: Option<Duration>,
    pub(crate) journal: CallJournal,
    pub(crate) running: Box<dyn Running>,
}

impl fmt::Debug for DispatchedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DispatchedCall")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl DispatchedCall {
    #[must_use]
    pub const fn id(&self) -> &CallId {
        &self.identity.id
    }

    #[must_use]
    pub const fn call_sha256(&self) -> Digest {
        self.identity.call_sha256
    }

    /// The limit from its start, if it has one of its own.
    #[must_use]
    pub const fn time_limit(&self) -> Option<Duration> {
        self.time_limit
    }

    /// The running work, to wait for it and to stop it.
    pub fn running(&mut self) -> &mut dyn Running {
        &mut *self.running
    }

    #[must_use]
    pub fn tool(&self) -> &str {
        self.identity.tool.as_str()
    }

    /// The running work, to poll it.
    #[must_use]
    pub fn watched(&self) -> &dyn Running {
        &*self.running
    }
}
