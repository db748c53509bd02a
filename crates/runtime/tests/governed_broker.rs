//! The session as a library: real manifests, real Cedar, real journals, fake and real workers.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests"
)]

mod support;

#[path = "governed_broker/approvals.rs"]
mod approvals;
#[path = "governed_broker/calls.rs"]
mod calls;
#[path = "governed_broker/chat.rs"]
mod chat;
#[path = "governed_broker/contained.rs"]
mod contained;
#[path = "governed_broker/contracts.rs"]
mod contracts;
#[path = "governed_broker/embedding.rs"]
mod embedding;
#[path = "governed_broker/ends.rs"]
mod ends;
#[path = "governed_broker/files.rs"]
mod files;
#[path = "governed_broker/launch.rs"]
mod launch;
#[path = "governed_broker/progress.rs"]
mod progress;
#[path = "governed_broker/records.rs"]
mod records;
