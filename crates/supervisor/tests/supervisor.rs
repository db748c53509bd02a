//! Supervisors in this process, engines that run nothing, and clients that come, go and lie.

#![expect(clippy::unwrap_used, reason = "what the tests share is test code too")]

#[path = "supervisor/engines.rs"]
mod engines;
#[path = "supervisor/fixture.rs"]
mod fixture;
#[path = "supervisor/leases.rs"]
mod leases;
#[path = "supervisor/sockets.rs"]
mod sockets;
