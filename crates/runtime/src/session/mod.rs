//! A governed session: one thread that serves calls, one at a time, and waits for all of it.

mod attendant;
mod desk;
mod dispatcher;
mod handle;
mod signals;
mod ticket;

pub use desk::{DecideError, HeldCall};
pub use dispatcher::{GovernedToolDispatcher, RegisterError, RunRegister};
pub use handle::{
    Answer, Approvals, GovernedToolSession, LaunchEnd, LaunchedAgent, PendingCall, SessionParts,
    SessionStartError, Withdrawal,
};
