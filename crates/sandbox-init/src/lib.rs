//! The tiny helper that becomes PID 1 of a worker, and the wire that its owner speaks with it.
//!
//! Three processes run this code: the *helper*, which the owner execs; *init*, which the helper
//! makes in new namespaces; and the *workload*, init's child until it becomes the program. Kept
//! apart from everything else, because all of it runs beside an untrusted program.

#![deny(unsafe_code)]

mod bootstrap;
mod files;
mod halt;

mod init;
pub mod limits;
pub mod probe;
mod root;
pub mod socket;
#[expect(unsafe_code, reason = "system calls without a safe interface")]
mod sys;
pub mod wire;
mod workload;

pub use bootstrap::run;

/// The Landlock version that the rules of a worker use in full.
pub const LANDLOCK_ABI_WHOLE: u32 = 6;

/// The kernel's Landlock version; 0 where it has none or does not use it.
#[must_use]
pub fn landlock_abi() -> u32 {
    sys::landlock_abi()
}
