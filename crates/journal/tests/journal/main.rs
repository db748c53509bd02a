//! The journal as its users and its attackers meet it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "what the tests share is test code too"
)]

mod anchors;
mod archive;
mod crash;
mod evidence;
mod histories;
mod keys;
mod ledger;
mod mutants;
mod order;
mod proofs;
mod python;
mod room;
mod rotation;
mod support;
mod verdicts;
