//! Bounds of a session. Unit and bound stand last in each name.

use std::time::Duration;

/// Most calls of one session.
pub const CALLS_MAX: u64 = 1000;
/// Calls of one session where nobody says otherwise.
pub const CALLS_DEFAULT: u64 = 100;
/// Held calls of one tool in an hour, where the owner names no number.
pub const HOLDS_PER_HOUR_DEFAULT: u64 = 8;
/// Longest life of one session.
pub const LIFETIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Life of one session where nobody says otherwise.
pub const LIFETIME_DEFAULT: Duration = Duration::from_secs(30 * 60);
/// Most tools that a session advertises.
pub const TOOLS_MAX: usize = 256;
/// Most bytes of all advertised tool definitions together.
pub const TOOL_SET_BYTES_MAX: usize = 1 << 20;
/// Longest reason that is recorded, in bytes; a longer one is cut with a mark.
pub const REASON_BYTES_MAX: usize = 4096;
/// Shortest beginning of a sensitive value that is masked where an output was cut within it.
pub const CUT_SECRET_BYTES_MIN: usize = 4;
/// Longest time that an ended worker's removal may take before it counts as unconfirmed.
pub const STOP_WAIT_MAX: Duration = Duration::from_secs(10);

const _: () = assert!(CALLS_DEFAULT <= CALLS_MAX && REASON_BYTES_MAX < 16 << 10);
