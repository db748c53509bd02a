//! Joins the parts: sessions, the executor of manifests, the broker and the inference proxy.

#![forbid(unsafe_code)]
#![expect(
    clippy::result_large_err,
    reason = "a refusal is an answer that is made at most once a call, and is read field by field"
)]

pub mod chat;
pub mod cli_executor;
pub mod clock;
pub mod envelope;
mod gate;
mod parsed;
mod register;
mod resolver;
mod sealing;
mod session;
pub mod tools;

pub use gate::CedarGate;
pub use register::LedgerRegister;

/// Governed sessions and what their owner supplies.
///
/// The trusted owner gives an [`ActionExecutor`](reasoning::ActionExecutor) (the tools), a
/// [`ReasoningPolicyGate`](reasoning::ReasoningPolicyGate) (who may call what), a journal over a
/// [`JournalWriter`](reasoning::JournalWriter), a [`LoopState`](reasoning::LoopState) (who acts, in
/// which run) and a bounded [`LoopConfig`](reasoning::LoopConfig) to
/// [`GovernedToolSession::start`](reasoning::governed_session::GovernedToolSession::start). What an
/// untrusted client sends is a
/// [`BrokerToolCall`](reasoning::governed_session::BrokerToolCall) and nothing else; each goes
/// through the [`GovernedToolDispatcher`](reasoning::GovernedToolDispatcher), one at a time. The
/// owner awaits `close` and takes its error seriously: only then is the terminal record written.
///
/// `examples/governed_session.rs` is a whole program.
pub mod reasoning {
    pub use crate::session::GovernedToolDispatcher;
    pub use governance::{ActionExecutor, LoopConfig, LoopState, ReasoningPolicyGate};
    pub use journal::{JournalWriter, ProtectedJournal};

    /// The session that an untrusted client's calls go through.
    pub mod governed_session {
        pub use crate::session::{
            Answer, Approvals, CallHandle, CallPhase, CallStep, DecideError, GovernedToolSession,
            HeldCall, HeldCalls, HeldEnd, InputPart, LaunchEnd, LaunchedAgent, ModelStep,
            PendingCall, Progress, ReadInputError, RegisterError, RunObserver, RunRegister,
            SessionParts, SessionStartError, UncountedAnswer,
        };
        pub use governance::{BrokerToolCall, EndCause, RecordedOutcome, Refusal};
    }
}
