//! What a session is started with, what it is sent, and what it answers.

use std::fmt;
use std::sync::Arc;

use governance::{
    ActionExecutor, BrokerToolCall, EndCause, LoopConfig, LoopState, ReasoningPolicyGate,
    RecordedOutcome, Refusal, StartRefusal,
};
use journal::{Client, Journal};
use model::Digest;
use tokio::sync::oneshot;

use crate::session::dispatcher::RunRegister;
use crate::session::progress::RunObserver;
use crate::session::ticket::{Standing, Ticket};

/// What a session answers to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It ran, or could not start after its record.
    Settled(RecordedOutcome),
    /// It ended before any effect; the session goes on.
    Refused(Refusal),
}

/// The end of an agent's launch.
#[derive(Debug)]
pub enum LaunchEnd {
    /// It ran and ended.
    Ended(RecordedOutcome),
    /// It never ran.
    Refused(Refusal),
    /// The session ended first.
    Session(EndCause),
}

/// Whom a held call is shown to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approvals {
    /// Nobody: calls that demand approval are refused at once, with this advice.
    Nobody { advice: String },
    /// Calls are held for [`crate::session::GovernedToolSession::decide`].
    Desk,
}

pub(crate) type CallReply = oneshot::Sender<Result<Answer, EndCause>>;
pub(crate) type CloseReply = oneshot::Sender<Result<(), EndCause>>;

pub(crate) enum Job {
    Call {
        call: BrokerToolCall,
        ticket: Arc<Ticket>,
        reply: CallReply,
    },
    Launch {
        executor: String,
        ticket: Arc<Ticket>,
        started: oneshot::Sender<Started>,
    },
    /// The run's first record is to be written now.
    Begin(oneshot::Sender<()>),
}

impl Job {
    /// Whether somebody still waits for it.
    pub(crate) fn is_wanted(&self) -> bool {
        match self {
            Self::Call { ticket, .. } | Self::Launch { ticket, .. } => {
                ticket.standing() == Standing::Open
            }
            Self::Begin(_) => false,
        }
    }

    /// Answers a job that was never served.
    pub(crate) fn end(self, cause: EndCause) {
        match self {
            Self::Begin(begun) => drop(begun),
            Self::Call { reply, .. } => drop(reply.send(Err(cause))),
            Self::Launch { started, .. } => {
                drop(started.send(Started::Not(Box::new(LaunchEnd::Session(cause)))));
            }
        }
    }
}

/// Whether a launch got its worker.
pub(crate) enum Started {
    Running(oneshot::Receiver<LaunchEnd>),
    Not(Box<LaunchEnd>),
}

pub(crate) enum Message {
    Job(Job),
    Close(CloseReply),
}

/// What a session is started with. All of it is the trusted owner's.
pub struct SessionParts {
    pub executor: Box<dyn ActionExecutor>,
    pub gate: Box<dyn ReasoningPolicyGate>,
    /// Of `state`'s run and principal.
    pub journal: Journal,
    pub register: Option<Box<dyn RunRegister>>,
    pub state: LoopState,
    pub config: LoopConfig,
    pub approvals: Approvals,
    /// Label of the project, for the first record.
    pub project: String,
    pub client: Client,
    /// Digest of the worker helper, where there is one.
    pub init_sha256: Option<Digest>,
    /// The session takes one call and ends with it.
    pub one_shot: bool,
    /// Who is told what happens, while it happens.
    pub observer: Option<Arc<dyn RunObserver>>,
}

impl fmt::Debug for SessionParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionParts")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl SessionParts {
    /// Refuses an executor that was made for another session.
    pub(crate) fn check_executor(&self, tool_set: Digest) -> Result<(), SessionStartError> {
        let frozen = self.executor.frozen();
        let (state, config) = (&self.state, &self.config);
        contradicted("run", &state.run, frozen.run.as_ref())?;
        contradicted("principal", &state.principal, frozen.principal.as_ref())?;
        contradicted(
            "policy set",
            &self.gate.digest(),
            frozen.policy_sha256.as_ref(),
        )?;
        contradicted("tool set", &tool_set, frozen.tool_set_sha256.as_ref())?;
        contradicted(
            "number of calls",
            &config.max_calls,
            frozen.max_calls.as_ref(),
        )?;
        let millis = |it: &std::time::Duration| it.as_millis();
        let lifetime = frozen.lifetime.as_ref().map(millis);
        contradicted(
            "lifetime in ms",
            &millis(&config.lifetime),
            lifetime.as_ref(),
        )
    }

    /// Refuses a journal that would speak of another run or principal than the session's.
    pub(crate) fn check_journal(&self) -> Result<(), SessionStartError> {
        let state = (self.state.run.to_string(), self.state.principal.clone());
        let journal = (
            self.journal.run().to_string(),
            self.journal.principal().to_owned(),
        );
        let contradiction = |what, session, journal| SessionStartError::OtherJournal {
            what,
            session,
            journal,
        };
        if state.0 != journal.0 {
            return Err(contradiction("run", state.0, journal.0));
        }
        if state.1 != journal.1 {
            return Err(contradiction("principal", state.1, journal.1));
        }
        Ok(())
    }
}

fn contradicted<T: PartialEq + fmt::Display>(
    what: &'static str,
    session: &T,
    executor: Option<&T>,
) -> Result<(), SessionStartError> {
    match executor {
        Some(executor) if executor != session => Err(SessionStartError::OtherExecutor {
            what,
            session: session.to_string(),
            executor: executor.to_string(),
        }),
        _ => Ok(()),
    }
}

/// Why a session did not start.
#[derive(Debug)]
pub enum SessionStartError {
    Refused(StartRefusal),
    /// The journal is another run's or another principal's.
    OtherJournal {
        what: &'static str,
        session: String,
        journal: String,
    },
    /// The executor was made for another session than the owner describes.
    OtherExecutor {
        what: &'static str,
        session: String,
        executor: String,
    },
    Io(std::io::Error),
}

impl fmt::Display for SessionStartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(_) => f.write_str("the session's bounds or tools are not acceptable"),
            Self::OtherJournal {
                what,
                session,
                journal,
            } => write!(
                f,
                "the session's {what} is `{session}`, its journal's is `{journal}`"
            ),
            Self::OtherExecutor {
                what,
                session,
                executor,
            } => write!(
                f,
                "the session's {what} is `{session}`, and the executor was made for `{executor}`"
            ),
            Self::Io(_) => f.write_str("the session's thread could not be made"),
        }
    }
}

impl std::error::Error for SessionStartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(error) => Some(error),
            Self::OtherJournal { .. } | Self::OtherExecutor { .. } => None,
            Self::Io(error) => Some(error),
        }
    }
}
