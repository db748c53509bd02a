//! The supervisor: a process of its own that outlives every runtime, and removes the containers
//! that dead ones leave.
//!
//! A container is made only after its lease is on disk here. The connection of the process that
//! took a lease keeps it alive; its end ends the lease. A lease goes away when its container is
//! gone, or was clearly never made.

#![deny(unsafe_code)]

mod book;
mod capacity;
mod client;
mod clock;
mod conversation;
mod crowd;
mod door;
mod folder;
mod leases;
pub mod limits;
mod line;
pub mod peer;
mod processes;
mod removal;
mod server;
mod start;
mod survey;
#[expect(unsafe_code, reason = "system calls that have no wrapper which fits")]
mod sys;
mod tending;
mod wire;

pub use client::{Client, ConnectError, Keeper};
pub use folder::FolderFault;
pub use leases::LEASES;
pub use server::{Readiness, Terms, serve};
pub use start::{Launch, StartFault, UnitLaunch, begin_anew, detach, harden, say_ready};
pub use survey::{Claim, ContainerSurvey, EngineSurvey, Survey, survey};
pub use wire::{CapacityLimits, LeaseState, LeaseStatus, Status};
