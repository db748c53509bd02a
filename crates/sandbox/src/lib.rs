//! Tiers: places that start one worker, bound it, stop it, and confirm its removal.
//!
//! The namespace tier needs nothing but the kernel. Its helper is the crate `sandbox-init`; this
//! crate is the owner's side. The container tiers ask a local engine, and take a lease for each
//! container before it is made. Every wait is on a descriptor; nothing here polls by interval.

#![forbid(unsafe_code)]

mod bounded;
mod cgroup;
pub mod container;
pub mod engine;
mod filters;
mod host;
mod launch;
pub mod lease;
pub mod limits;
mod locate;
pub mod probes;
pub mod programs;
mod running;
mod slots;
mod tier;

pub use container::{ContainerKind, ContainerSpec, ContainerTier};
pub use locate::locate_init;
pub use programs::{ProgramCache, ProgramError};
pub use tier::{NamespaceConfig, NamespaceTier};
