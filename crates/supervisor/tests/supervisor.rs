//! Supervisors in this process, engines that run nothing, and clients that come, go and lie.

#[path = "supervisor/engines.rs"]
mod engines;
#[path = "supervisor/fixture.rs"]
mod fixture;
#[path = "supervisor/leases.rs"]
mod leases;
#[path = "supervisor/sockets.rs"]
mod sockets;
