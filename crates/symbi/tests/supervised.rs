//! Supervisors that are started on demand by the real program, and owners that are killed at every
//! step of a worker's life. The engine runs nothing, so that no daemon is needed.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what the tests share is test code too"
)]

#[path = "supervised/commands.rs"]
mod commands;
#[path = "supervised/kills.rs"]
mod kills;
#[path = "supervised/managers.rs"]
mod managers;
#[path = "supervised/owner.rs"]
mod owner;
#[path = "supervised/writes.rs"]
mod writes;
