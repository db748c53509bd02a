//! The journal as its users and its attackers meet it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "what the tests share is test code too"
)]

mod crash;
mod histories;
mod keys;
mod ledger;

mod order;
mod python;
mod room;
mod support;
mod verdicts;
