//! Time that a suspended machine and a set clock do not bend, and which start of it that is.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds since the machine's start.
pub(crate) fn boot_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let millis = u64::try_from(now.tv_nsec / 1_000_000).unwrap_or(0);
    seconds.saturating_mul(1000).saturating_add(millis)
}

/// The machine's start, by its random name.
pub(crate) fn boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    text.unwrap_or_default().trim().to_owned()
}

/// Seconds since 1970, for people.
pub(crate) fn unix_seconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |it| it.as_secs())
}
