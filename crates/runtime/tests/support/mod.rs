//! A project on disk, a session's parts, and the words that all tests of this crate use.

#![allow(
    dead_code,
    clippy::allow_attributes,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    unreachable_pub,
    unused_imports,
    reason = "each test program uses a part of its helpers"
)]

pub mod project;
pub mod provider;
pub mod session;
pub mod wire;

pub use project::Project;
pub use session::{Governed, Setup, approver, call, refused, settled, started_log};

use std::time::{Duration, Instant};

/// The only agent of these tests.
pub const TESTER: &str = "tester";
/// Longer than anything takes that works.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `wanted` holds, at most [`PATIENCE`].
pub async fn until(what: &str, wanted: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !wanted() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
