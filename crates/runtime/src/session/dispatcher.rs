//! One call's way through the house.

use std::sync::Arc;
use std::time::Instant;

use approval::HoldBudget;
use governance::{
    ActionExecutor, Admission, ApprovedCall, AuthorizedCall, BrokerToolCall, DispatchedCall,
    EndCause, LoopConfig, LoopState, Outcome, PreparedCall, ProposedCall, ReasoningPolicyGate,
    RecordFailure, RecordedCall, RecordedOutcome, Refusal, RefusalKind, SessionRules, SettledCall,
    StopCause,
};
use journal::{AnswerRefused, CallWithdrawn, Journal, JournalError, RunEnded, RunStarted, Stage};
use worker::Ended;

use crate::session::attendant::{Attendant, Decision, Waited};
use crate::session::laps::Laps;
use crate::session::parts::Approvals;
use crate::session::progress::{CallStep, Observed};
use crate::session::ticket::{Standing, Ticket};

/// Why the register took no entry.
pub type RegisterError = Box<dyn std::error::Error + Send + Sync>;

/// Where a run's start and end are registered besides its own journal: the ledger.
pub trait RunRegister: Send {
    /// Called once, after the first records are durable and before anything runs.
    ///
    /// # Errors
    /// Any error ends the session.
    fn run_started(&mut self) -> Result<(), RegisterError>;

    /// Called once, after the terminal record is durable.
    ///
    /// # Errors
    /// Reported by the session's close.
    fn run_ended(&mut self) -> Result<(), RegisterError>;
}

/// Why a call did not come to a recorded outcome.
#[derive(Debug)]
pub(crate) enum Halt {
    /// The call alone ends; the session goes on.
    Refused(Box<Refusal>),
    /// The session ends.
    End(EndCause),
}

impl From<Refusal> for Halt {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl From<EndCause> for Halt {
    fn from(cause: EndCause) -> Self {
        Self::End(cause)
    }
}

/// Holds what decides about calls, and takes each through all its steps.
pub struct GovernedToolDispatcher {
    pub(crate) executor: Box<dyn ActionExecutor>,
    pub(crate) gate: Box<dyn ReasoningPolicyGate>,
    pub(crate) journal: Journal,
    pub(crate) register: Option<Box<dyn RunRegister>>,
    pub(crate) rules: SessionRules,
    pub(crate) state: LoopState,
    pub(crate) config: LoopConfig,
    pub(crate) approvals: Approvals,
    pub(crate) holds: HoldBudget,
    /// The run's first record, until it is written.
    pub(crate) first: Option<RunStarted>,
    pub(crate) registered: bool,
    /// The session ends with its only call: both records go in one write.
    pub(crate) one_shot: bool,
    pub(crate) end_recorded: bool,
    pub(crate) observed: Observed,
}

impl std::fmt::Debug for GovernedToolDispatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GovernedToolDispatcher")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl GovernedToolDispatcher {
    /// Parse, prepare, approve, authorize, record, dispatch, settle.
    pub(crate) fn govern(
        &mut self,
        call: BrokerToolCall,
        ticket: &Ticket,
        attendant: &mut Attendant,
    ) -> Result<RecordedOutcome, Halt> {
        let mut laps = Laps::begin();
        let proposed = still_wanted(self.admit(call)?, ticket)?;
        let prepared = laps.after("prepare", self.prepare(proposed)?);
        let approved = laps.after("approve", self.approve(prepared, ticket, attendant)?);
        let authorized = approved.authorize(&mut *self.gate, &self.state)?;
        let authorized = laps.after("authorize", authorized);
        let recorded = laps.after("record", self.record(authorized, ticket, attendant)?);
        let settled = match laps.after("start", recorded.dispatch(&mut *self.executor)) {
            Ok(dispatched) => {
                self.observed
                    .call(dispatched.id(), dispatched.tool(), CallStep::Running);
                self.run_to_end(dispatched, ticket, attendant, &mut laps)
            }
            Err(not_started) => *not_started,
        };
        // The last record of a one-shot run is its outcome's, where a failed journal shows too.
        let uncounted = attendant.take_uncounted();
        if !uncounted.is_empty() {
            let _ = self.note_uncounted(uncounted);
        }
        let mut outcome = self.settle(settled)?;
        outcome.timings = laps.end("settle");
        Ok(outcome)
    }

    /// The same way for the owner's launch of its agent, up to a worker that runs.
    pub(crate) fn launch(
        &mut self,
        executor: &str,
        ticket: &Ticket,
        attendant: &mut Attendant,
    ) -> Result<Result<DispatchedCall, RecordedOutcome>, Halt> {
        self.rules.check_registry(self.executor.tools())?;
        let proposed = still_wanted(self.rules.admit_launch(executor)?, ticket)?;
        let prepared = self.prepare(proposed)?;
        let approved = self.approve(prepared, ticket, attendant)?;
        let authorized = approved.authorize(&mut *self.gate, &self.state)?;
        let recorded = self.record(authorized, ticket, attendant)?;
        match recorded.dispatch(&mut *self.executor) {
            Ok(dispatched) => {
                self.observed
                    .call(dispatched.id(), dispatched.tool(), CallStep::Running);
                Ok(Ok(dispatched))
            }
            Err(not_started) => self.settle(*not_started).map(Err),
        }
    }

    fn admit(&mut self, call: BrokerToolCall) -> Result<ProposedCall, Halt> {
        self.rules.check_registry(self.executor.tools())?;
        match self.rules.admit(call) {
            Admission::Admitted(proposed) => Ok(proposed),
            Admission::Refused(refusal) => Err(Halt::Refused(refusal)),
            Admission::OverBudget => Err(Halt::End(EndCause::Budget {
                max_calls: self.config.max_calls,
            })),
        }
    }

    fn prepare(&mut self, proposed: ProposedCall) -> Result<PreparedCall, Halt> {
        let prepared = self.executor.prepare(proposed)?;
        let step = CallStep::Prepared {
            call: &prepared,
            spent: self.rules.spent(),
        };
        self.observed.call(prepared.id(), prepared.tool(), step);
        Ok(prepared)
    }

    fn approve(
        &mut self,
        prepared: PreparedCall,
        ticket: &Ticket,
        attendant: &mut Attendant,
    ) -> Result<ApprovedCall, Halt> {
        if !prepared.needs_approval() {
            return Ok(prepared.approval_not_needed()?);
        }
        let prepared = prepared.worth_asking(&mut *self.gate, &self.state)?;
        let no = |prepared: PreparedCall, kind, reason: &str| {
            Halt::from(prepared.refuse(Stage::Approve, kind, reason))
        };
        if let Approvals::Nobody { advice } = &self.approvals {
            let reason = "the tool demands a person's approval, and nobody can be asked here";
            let refusal = prepared.refuse(Stage::Approve, RefusalKind::NotApproved, reason);
            return Err(refusal.advice(advice.clone()).into());
        }
        let timeout = self.config.approval_timeout;
        if let Err(spent) = self.holds.take(prepared.tool(), Instant::now()) {
            return Err(no(prepared, RefusalKind::NotApproved, &spent.to_string()));
        }
        let (held, until) = match attendant.hold(&prepared, ticket, &self.state, timeout) {
            Ok(held) => held,
            Err(error) => return Err(no(prepared, RefusalKind::NotApproved, &error.to_string())),
        };
        match self.await_decision(ticket, until, attendant) {
            Decision::Answered(answer) if answer.approved => {
                Ok(prepared.approve(held.receipt(answer))?)
            }
            Decision::Answered(answer) => Err(prepared.deny(&held.receipt(answer)).into()),
            Decision::Expired => {
                let reason = format!(
                    "nobody answered within the timeout of {} s",
                    timeout.as_secs_f64()
                );
                Err(no(prepared, RefusalKind::NotApproved, &reason))
            }
            Decision::Withdrawn(by) => Err(no(
                prepared,
                RefusalKind::Withdrawn,
                &format!("{by} while it waited for approval"),
            )),
            Decision::SessionEnds(cause) => {
                let reason = format!("the session ended while it waited for approval: {cause}");
                let refusal = prepared.refuse(Stage::Approve, RefusalKind::Withdrawn, &reason);
                self.note_refusal(&refusal)?;
                Err(Halt::End(cause))
            }
        }
    }

    /// Waits for a person, and records meanwhile what came and did not count.
    fn await_decision(
        &mut self,
        ticket: &Ticket,
        until: Instant,
        attendant: &mut Attendant,
    ) -> Decision {
        loop {
            match attendant.await_decision(ticket, until) {
                Waited::Over(decision) => return decision,
                Waited::Uncounted(answers) => {
                    if let Err(cause) = self.note_uncounted(answers) {
                        return attendant.give_up(cause);
                    }
                }
            }
        }
    }

    /// The last look at the ticket and the session, the pre-effect record, and the run's entry
    /// in the ledger: after this the call runs.
    fn record(
        &mut self,
        authorized: AuthorizedCall,
        ticket: &Ticket,
        attendant: &mut Attendant,
    ) -> Result<RecordedCall, Halt> {
        // What was judged and shown is of the tools as they were.
        if let Err(cause) = self.rules.check_registry(self.executor.tools()) {
            self.note_refusal(&authorized.withdraw("the session's tools changed before it ran"))?;
            return Err(Halt::End(cause));
        }
        if let Some(cause) = attendant.last_look() {
            self.note_refusal(&authorized.withdraw("the session ended before it ran"))?;
            return Err(Halt::End(cause));
        }
        if !ticket.commit() {
            return Err(authorized.withdraw("withdrawn before it ran").into());
        }
        let recorded = match authorized.record(&self.journal, &mut self.first) {
            Ok(recorded) => recorded,
            Err(RecordFailure::Refused(refusal)) => return Err(Halt::Refused(refusal)),
            Err(RecordFailure::Journal(error)) => return Err(journal_failed(&error).into()),
        };
        if let Err(cause) = self.register_start() {
            let settled = recorded.not_started(format!("the run was not registered: {cause}"));
            let _ = self.settle(settled);
            return Err(Halt::End(cause));
        }
        Ok(recorded)
    }

    fn run_to_end(
        &mut self,
        mut dispatched: DispatchedCall,
        ticket: &Ticket,
        attendant: &mut Attendant,
        laps: &mut Laps,
    ) -> SettledCall {
        let bound = self.config.tool_time_limit;
        let limit = dispatched.time_limit().map_or(bound, |own| own.min(bound));
        let (ended, stopped) = attendant.await_end(&mut dispatched, ticket, limit);
        // A journal that failed says so itself, when the outcome is recorded.
        if let Some(StopCause::Owner | StopCause::Lifetime) = stopped {
            let call_id = dispatched.id().to_string();
            let cause = attendant.last_look();
            self.rules
                .end(cause.unwrap_or(EndCause::AbandonedCall { call_id }));
        }
        laps.after("run", ());
        laps.after("remove", dispatched.settle(ended, stopped))
    }

    /// Settles the agent's launch, which ended by itself or was stopped.
    pub(crate) fn settle_launch(
        &mut self,
        call: DispatchedCall,
        ended: Ended,
        stopped: Option<StopCause>,
    ) -> Result<RecordedOutcome, Halt> {
        self.settle(call.settle(ended, stopped))
    }

    /// Records the outcome; one that nobody can know ends the session.
    fn settle(&mut self, settled: SettledCall) -> Result<RecordedOutcome, Halt> {
        if settled.journal_failed() {
            let reason = "a publication record could not be written".to_owned();
            self.rules.end(EndCause::Journal { reason });
        }
        if let Outcome::Unconfirmed { reason } = settled.outcome() {
            self.journal.mark_unconfirmed();
            let call_id = settled.id().to_string();
            self.rules.end(EndCause::Unconfirmed {
                call_id,
                reason: reason.clone(),
            });
        }
        let recorded = if self.one_shot && !settled.journal_failed() {
            self.end_recorded = true;
            settled.record_and_end(self.terminal())
        } else {
            settled.record()
        };
        match recorded {
            Ok(outcome) => {
                let step = CallStep::Ended(&outcome);
                self.observed.call(&outcome.id, &outcome.tool, step);
                Ok(outcome)
            }
            Err(failed) => {
                let (mut outcome, error) = *failed;
                self.end_recorded = false;
                self.rules.end(journal_failed(&error));
                let reason = format!(
                    "the call ended ({}), but its outcome could not be recorded: {error}",
                    outcome.outcome.reason().unwrap_or("succeeded")
                );
                outcome.outcome = Outcome::Unconfirmed { reason };
                Ok(outcome)
            }
        }
    }

    /// Records a refusal, and tells it.
    pub(crate) fn refuse(&mut self, refusal: &Refusal) -> Result<(), EndCause> {
        self.note_refusal(refusal)?;
        let spent = self.rules.spent();
        let step = CallStep::Refused { refusal, spent };
        self.observed.call(&refusal.call_id, &refusal.tool, step);
        Ok(())
    }

    /// Records a refusal, with the run's first record where it is the first.
    fn note_refusal(&mut self, refusal: &Refusal) -> Result<(), EndCause> {
        let written = if refusal.kind == RefusalKind::Withdrawn {
            self.note(CallWithdrawn {
                call_id: refusal.call_id.clone(),
                tool: refusal.tool.clone(),
                cause: refusal.reason.clone(),
            })
        } else {
            self.note(refusal.record())
        };
        written.map_err(|error| journal_failed(&error))?;
        self.register_start()
    }

    /// Records answers that did not count. A journal without room for them goes on without.
    pub(crate) fn note_uncounted(&mut self, answers: Vec<AnswerRefused>) -> Result<(), EndCause> {
        for answer in answers {
            match self.note(answer) {
                Ok(()) | Err(JournalError::NoRoom { .. }) => {}
                Err(error) => return Err(journal_failed(&error)),
            }
        }
        self.register_start()
    }

    /// Writes the run's first record, for records that no call of ours precedes.
    pub(crate) fn begin(&mut self) -> Result<(), EndCause> {
        if let Some(first) = self.first.clone() {
            let written = self.journal.record(first).map(drop);
            written.map_err(|error| journal_failed(&error))?;
            self.first = None;
        }
        self.register_start()
    }

    fn note<T: journal::Recordable>(&mut self, event: T) -> Result<(), JournalError> {
        // Cloned: where the journal refuses `event`, its first record is still to be written.
        match self.first.clone() {
            Some(first) => self.journal.record2(first, event).map(drop)?,
            None => self.journal.record(event).map(drop)?,
        }
        self.first = None;
        Ok(())
    }

    fn register_start(&mut self) -> Result<(), EndCause> {
        if self.registered {
            return Ok(());
        }
        self.registered = true;
        match &mut self.register {
            Some(register) => register.run_started().map_err(register_failed),
            None => Ok(()),
        }
    }

    fn terminal(&self) -> RunEnded {
        let cause = self.rules.cause().map(ToString::to_string);
        RunEnded {
            completed: cause.is_none(),
            cause,
            calls: self.rules.spent(),
        }
    }

    /// Writes the terminal record and registers it.
    pub(crate) fn end(&mut self) -> Result<(), EndCause> {
        if !self.end_recorded {
            self.note(self.terminal())
                .map_err(|error| journal_failed(&error))?;
        }
        self.register_start()?;
        match &mut self.register {
            Some(register) => register.run_ended().map_err(register_failed),
            None => Ok(()),
        }
    }
}

/// Refuses a queued call that was taken back before anything of it began.
fn still_wanted(proposed: ProposedCall, ticket: &Ticket) -> Result<ProposedCall, Refusal> {
    match ticket.standing() {
        Standing::Withdrawn => Err(proposed.refuse(
            RefusalKind::Withdrawn,
            "withdrawn by the client while it waited",
        )),
        Standing::Abandoned => Err(proposed.refuse(
            RefusalKind::Withdrawn,
            "dropped by its owner while it waited",
        )),
        Standing::Open | Standing::Committed | Standing::CommittedAbandoned => Ok(proposed),
    }
}

fn journal_failed(error: &JournalError) -> EndCause {
    let source = std::error::Error::source(error).map(|source| format!(": {source}"));
    EndCause::Journal {
        reason: format!("{error}{}", source.unwrap_or_default()),
    }
}

/// An error and its sources.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let sources = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = sources.map(ToString::to_string).collect();
    texts.join(": ")
}

fn register_failed(error: RegisterError) -> EndCause {
    EndCause::Journal {
        reason: format!("the run could not be registered: {}", chain(&*error)),
    }
}

/// Wakes the session when its journal fails in another thread.
pub(crate) fn watch_journal(journal: &Journal, signals: &Arc<crate::session::signals::Signals>) {
    let signals = Arc::clone(signals);
    journal.on_failure(move || {
        let reason = "a record could not be written".to_owned();
        signals.cancel(EndCause::Journal { reason });
    });
}
