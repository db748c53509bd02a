//! Cedar decides: a prepared call's descriptor becomes a typed request, and the policies of a
//! session answer it with reasons.
//!
//! The schema is generated from the tools, so that a misspelt attribute or a comparison of
//! different types is an error when the policies are loaded, and not a rule that never acts.
//! What still fails while it is evaluated is a refusal. This is the only crate that knows Cedar.

#![forbid(unsafe_code)]

mod decide;
mod fault;
pub mod limits;
mod lint;
mod load;
mod parse;
mod request;
mod schema;
mod shape;
mod shown;
mod verdict;

pub use load::Policies;
pub use model::PolicyType;
pub use request::{ApprovalFact, Request, RequestError};
pub use shape::{LaunchShape, PolicySource, ToolKind, ToolShape};
pub use shown::ShownRequest;
pub use verdict::{Denial, PolicyNote, Verdict};

#[cfg(test)]
mod tests;
