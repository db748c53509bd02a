//! The life of one call, and the rules of a session. Synchronous, no I/O of its own.
//!
//! ```text
//! BrokerToolCall -> ProposedCall -> PreparedCall -> ApprovedCall -> AuthorizedCall
//!                -> RecordedCall -> DispatchedCall -> SettledCall
//! ```
//!
//! Each state is a struct with private fields, each transition consumes the state before it:
//! a step that is left out does not compile. Until dispatch a transition may end in a
//! [`Refusal`], which consumes the call. Services are parameters of the transition that needs
//! them, so a verdict is always made beside its own call.

#![forbid(unsafe_code)]
#![expect(
    clippy::result_large_err,
    reason = "a refusal is an answer that is made at most once a call, and is read field by field"
)]

mod call;
mod executor;
mod gate;
pub mod limits;
mod mode_hint;
mod outcome;
mod proposal;
mod receipt;
mod redaction;
mod refusal;
mod result;
mod rules;
mod settle;

pub use call::{
    ApprovedCall, AuthorizedCall, DispatchedCall, PreparedCall, RecordFailure, RecordedCall,
};
pub use executor::{ActionExecutor, FrozenContext, Lowered, ToolDefinition};
pub use gate::{Approval, PolicyQuestion, ReasoningPolicyGate, Verdict};
pub use outcome::{CreatedFile, Lack, Outcome, StopCause, ToolOutput};
pub use proposal::{BrokerToolCall, PreparedWork, ProposedCall};
pub use receipt::{Approver, Receipt};
pub use refusal::{Refusal, RefusalKind};
pub use result::{ResultReader, ResultRefused, ResultTerms};
pub use rules::{
    Admission, EndCause, LoopConfig, LoopState, SessionRules, StartRefusal, tool_set_digest,
};
pub use settle::{RecordedOutcome, SettledCall};
