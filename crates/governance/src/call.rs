//! The states of one call, from what a client asked to a worker that runs.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use filegrants::OutputTarget;
use journal::{CallDispatching, CallJournal, Journal, JournalError, PolicyNote, RunStarted, Stage};
use model::json::CanonicalError;
use model::limits::CALL_BYTES_MAX;
use model::{CallId, Canonical, Digest, JsonObject, ToolName, Untrusted};
use serde::Deserialize;
use worker::{Descriptor, LowerError, Running, StartError, WorkerHoldings, lower};

use crate::executor::{ActionExecutor, Lowered};
use crate::gate::{Approval, PolicyQuestion, ReasoningPolicyGate, Verdict};
use crate::outcome::Outcome;
use crate::receipt::Receipt;
use crate::refusal::{Refusal, RefusalKind};
use crate::rules::LoopState;
use crate::settle::SettledCall;

/// Most characters of an unusable tool name that a refusal repeats.
const SHOWN_CHARS_MAX: usize = 128;

/// A call as an untrusted client sends it. Nothing else can be said in it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrokerToolCall {
    pub call_id: String,
    pub name: String,
    /// Must be an object.
    pub arguments: serde_json::Value,
}

/// A call with a valid identity, name and shape.
#[derive(Debug)]
pub struct ProposedCall {
    id: CallId,
    tool: ToolName,
    arguments: JsonObject,
    launch: bool,
}

impl ProposedCall {
    /// Checks the shape: identity, name, object-valued arguments, at most
    /// [`CALL_BYTES_MAX`] in all.
    ///
    /// # Errors
    /// A [`Refusal`] at stage `parse`.
    pub fn parse(call: BrokerToolCall) -> Result<Self, Refusal> {
        let escaped = Untrusted::new(call.name.as_str()).escaped();
        let shown: String = escaped.chars().take(SHOWN_CHARS_MAX).collect();
        let refused = |id: &CallId, reason: &str| {
            Refusal::new(id, &shown, Stage::Parse, RefusalKind::Invalid, reason)
        };
        let id = CallId::new(call.call_id.as_str()).map_err(|error| {
            refused(&CallId::of_unusable(&call.call_id), &error.to_string())
        })?;
        let refuse = |reason: &str| refused(&id, reason);
        let tool = ToolName::new(call.name).map_err(|error| refuse(&error.to_string()))?;
        let serde_json::Value::Object(arguments) = call.arguments else {
            return Err(refuse("`arguments` is not an object"));
        };
        let arguments = JsonObject::from_map(arguments);
        let bytes = serde_json::to_vec(&arguments).map_or(usize::MAX, |text| text.len());
        if bytes > CALL_BYTES_MAX {
            return Err(refuse(&format!(
                "`arguments` has {bytes} bytes, more than the {CALL_BYTES_MAX} allowed"
            )));
        }
        Ok(Self { id, tool, arguments, launch: false })
    }

    /// The launch of the contained agent: proposed by the trusted owner, never by a client.
    pub(crate) fn launch(executor: ToolName, id: CallId) -> Self {
        Self { id, tool: executor, arguments: JsonObject::default(), launch: true }
    }

    #[must_use]
    pub const fn id(&self) -> &CallId {
        &self.id
    }

    #[must_use]
    pub fn tool(&self) -> &str {
        self.tool.as_str()
    }

    #[must_use]
    pub const fn arguments(&self) -> &JsonObject {
        &self.arguments
    }

    /// Whether the owner proposes its agent's launch. A client cannot make such a call.
    #[must_use]
    pub const fn is_launch(&self) -> bool {
        self.launch
    }

    /// Refuses at stage `prepare`.
    #[must_use]
    pub fn refuse(self, kind: RefusalKind, reason: &str) -> Refusal {
        Refusal::new(&self.id, self.tool.as_str(), Stage::Prepare, kind, reason)
    }

    /// Freezes what will run.
    ///
    /// # Errors
    /// A [`Refusal`] where the descriptor has no canonical form.
    pub fn prepared(self, work: PreparedWork) -> Result<PreparedCall, Refusal> {
        let canonical = match work.descriptor.canonical() {
            Ok(canonical) => canonical,
            Err(CanonicalError { .. }) => {
                return Err(self.refuse(RefusalKind::Invalid, "the call has no canonical form"));
            }
        };
        let call_sha256 = canonical.digest();
        Ok(PreparedCall { id: self.id, tool: self.tool, canonical, call_sha256, work })
    }
}

/// What an executor's preparation yields.
#[derive(Debug)]
pub struct PreparedWork {
    pub descriptor: Descriptor,
    pub holdings: WorkerHoldings,
    /// Where the worker's new file goes.
    pub target: Option<OutputTarget>,
    pub needs_approval: bool,
    /// `None` for a launch, which lives as long as its run.
    pub time_limit: Option<Duration>,
    /// Remarks for the caller: values that were clamped.
    pub notes: BTreeMap<String, String>,
}

/// A call whose whole effect is frozen in one descriptor with one digest.
#[derive(Debug)]
pub struct PreparedCall {
    id: CallId,
    tool: ToolName,
    canonical: Canonical,
    call_sha256: Digest,
    work: PreparedWork,
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
    pub const fn needs_approval(&self) -> bool {
        self.work.needs_approval
    }

    #[must_use]
    pub const fn creates_file(&self) -> bool {
        self.work.target.is_some()
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
            Verdict::Deny { policies, reason, advice } => {
                Err(self.denied(policies, &reason, advice))
            }
        }
    }

    /// The way of a call that demands nobody's yes.
    ///
    /// # Errors
    /// A [`Refusal`] at stage `approve` where the call does demand one.
    pub fn approval_not_needed(self) -> Result<ApprovedCall, Refusal> {
        if self.work.needs_approval {
            let reason = "the tool demands a person's approval, and there is none";
            return Err(self.refuse(Stage::Approve, RefusalKind::NotApproved, reason));
        }
        Ok(ApprovedCall { prepared: self, receipt: None })
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
        Ok(ApprovedCall { prepared: self, receipt: Some(receipt) })
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
        refusal.policies = policies;
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
        let approval = self.receipt.as_ref().map_or(Approval::None, Approval::Given);
        match gate.evaluate(&self.prepared.question(state, approval)) {
            Verdict::Permit { policies } => {
                Ok(AuthorizedCall { prepared: self.prepared, receipt: self.receipt, policies })
            }
            Verdict::Deny { policies, reason, advice } => {
                Err(self.prepared.denied(policies, &reason, advice))
            }
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

impl AuthorizedCall {
    /// Refuses a call that was withdrawn at the last moment.
    #[must_use]
    pub fn withdraw(self, reason: &str) -> Refusal {
        self.prepared.refuse(Stage::Record, RefusalKind::Withdrawn, reason)
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
        let refused = |prepared: PreparedCall, kind, reason: &str| {
            RecordFailure::Refused(Box::new(prepared.refuse(Stage::Record, kind, reason)))
        };
        if self.prepared.creates_file() && !journal.publishes() {
            let reason = "the call creates a file, and this session has no live audit authority \
                          (a signed and durable journal)";
            return Err(refused(self.prepared, RefusalKind::Capacity, reason));
        }
        let call_journal = match journal.lend(self.prepared.call_sha256) {
            Ok(lent) => lent,
            Err(error @ JournalError::NoRoom { .. }) => {
                return Err(refused(self.prepared, RefusalKind::Capacity, &error.to_string()));
            }
            Err(error) => return Err(RecordFailure::Journal(error)),
        };
        let event = CallDispatching {
            call_id: self.prepared.id.clone(),
            tool: self.prepared.tool.clone(),
            call_sha256: self.prepared.call_sha256,
            descriptor: self.prepared.canonical.clone(),
            policies: self.policies,
            approval: self.receipt.as_ref().map(Receipt::fact),
        };
        let recorded = match first.take() {
            Some(started) => journal.record2(started, event).map(|(_, second)| second),
            None => journal.record(event),
        };
        match recorded {
            Ok(record) => {
                Ok(RecordedCall { prepared: self.prepared, seq: record.seq(), journal: call_journal })
            }
            Err(error) => Err(RecordFailure::Journal(error)),
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
    /// Ends a recorded call that must not start any more.
    #[must_use]
    pub fn not_started(self, reason: String) -> SettledCall {
        let PreparedCall { id, tool, call_sha256, work, .. } = self.prepared;
        let argv = argv_of(&work.descriptor);
        let notes = work.notes;
        let identity = CallIdentity { id, tool, call_sha256, seq: self.seq, notes, argv };
        SettledCall::not_started(identity, Outcome::NotStarted { reason }, self.journal, false)
    }

    /// Starts exactly what was recorded.
    ///
    /// # Errors
    /// The settled call with [`Outcome::NotStarted`], where nothing has run.
    pub fn dispatch(
        self,
        executor: &mut dyn ActionExecutor,
    ) -> Result<DispatchedCall, Box<SettledCall>> {
        let PreparedCall { id, tool, call_sha256, work, .. } = self.prepared;
        let argv = argv_of(&work.descriptor);
        let notes = work.notes;
        let identity = CallIdentity { id, tool, call_sha256, seq: self.seq, notes, argv };
        let started = lowered(&work.descriptor, work.holdings, call_sha256)
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
                time_limit: work.time_limit,
                journal: self.journal,
                running,
            }),
            Err(error) => {
                let unavailable = matches!(error, StartError::Unavailable { .. });
                let outcome = Outcome::NotStarted { reason: error.to_string() };
                Err(Box::new(SettledCall::not_started(identity, outcome, self.journal, unavailable)))
            }
        }
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
            lower(descriptor, holdings).map(|spec| Lowered::Worker(Box::new(spec)))
        }
    }
}

fn argv_of(descriptor: &Descriptor) -> Vec<String> {
    match descriptor {
        Descriptor::Command(command) => command.argv.clone(),
        Descriptor::Launch(launch) => launch.argv.clone(),
        Descriptor::Custom { .. } => Vec::new(),
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
    pub(crate) argv: Vec<String>,
}

/// A call that runs.
pub struct DispatchedCall {
    pub(crate) identity: CallIdentity,
    pub(crate) descriptor: Descriptor,
    pub(crate) target: Option<OutputTarget>,
    time_limit: Option<Duration>,
    pub(crate) journal: CallJournal,
    pub(crate) running: Box<dyn Running>,
}

impl fmt::Debug for DispatchedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DispatchedCall").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl DispatchedCall {
    #[must_use]
    pub const fn id(&self) -> &CallId {
        &self.identity.id
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

    /// The running work, to poll it.
    #[must_use]
    pub fn watched(&self) -> &dyn Running {
        &*self.running
    }
}
