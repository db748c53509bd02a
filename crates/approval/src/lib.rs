//! A person's yes to exactly one call: what is shown, how an answer reads, who may sign one.
//!
//! The text that is shown is the text that is signed, and the digest of that text is what an
//! answer names. It holds the whole prepared call, so that nothing can change behind it, and
//! nothing but printable ASCII, so that no screen can show anything else. Everything here is
//! pure: the surfaces that reach people are the caller's.

#![forbid(unsafe_code)]

mod answer;
pub mod chat;
mod holds;
pub mod limits;
mod operators;
mod review;
mod shown;
pub mod wire;

pub use answer::{Answer, AnswerError, HeldId, HeldIdError};
pub use holds::{HoldBudget, HoldsSpent};
pub use operators::{NAMESPACE, Operators, OperatorsError, SignatureError, Signed, Tally, Votes};
pub use review::{Review, ReviewError, ReviewParts};
pub use shown::{framed, visible_bytes};
