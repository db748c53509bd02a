//! What governance promises, rule by rule.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests"
)]

mod parse;
mod session;
mod settle;
#[path = "../support/mod.rs"]
mod support;
mod transitions;
mod world;
