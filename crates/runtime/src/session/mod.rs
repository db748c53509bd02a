//! A governed session: one thread that serves calls, one at a time, and waits for all of it.

mod attendant;
mod desk;
mod dispatcher;
mod handle;
mod inputs;
mod laps;
mod parts;
mod pending;
mod progress;
mod signals;
mod thread;
mod ticket;

pub use desk::{DecideError, HeldCall, HeldCalls, HeldEnd, UncountedAnswer};
pub use dispatcher::{GovernedToolDispatcher, RegisterError, RunRegister};
pub use handle::GovernedToolSession;
pub use inputs::{InputPart, ReadInputError};
pub use parts::{Answer, Approvals, LaunchEnd, SessionParts, SessionStartError};
pub use pending::{CallHandle, LaunchedAgent, PendingCall};
pub(crate) use progress::Observed;
pub use progress::{CallStep, ModelStep, Progress, RunObserver};
pub use ticket::CallPhase;
