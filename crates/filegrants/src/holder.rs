//! A process that cannot be mistaken for a later one of the same number.

use std::fmt;
use std::fs;

use serde::{Deserialize, Serialize};

/// A process by its number and the time of its start, in ticks since the machine's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    pub pid: u32,
    pub started: u64,
}

impl Holder {
    /// This process.
    #[must_use]
    pub fn this() -> Self {
        let pid = std::process::id();
        Self::of(pid).unwrap_or(Self { pid, started: 0 })
    }

    /// The process that has the number now, unless it has ended.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let started = start_of(&stat)?;
        Some(Self { pid, started })
    }

    /// Whether this very process still runs.
    #[must_use]
    pub fn lives(self) -> bool {
        Self::of(self.pid) == Some(self)
    }
}

/// The 22nd field of `/proc/PID/stat`, unless the state says that the process has ended. The
/// second, the name in parentheses, may hold anything.
fn start_of(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    match fields.next()? {
        "Z" | "X" | "x" => None,
        _ => fields.nth(18)?.parse().ok(),
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_number_and_its_start() {
        let this = Holder::this();
        assert!(this.started > 0 && this.lives());
        let later = Holder {
            started: this.started + 1,
            ..this
        };
        assert!(!later.lives());
    }

    #[test]
    fn an_ended_process_that_nobody_waited_for_does_not_live() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let holder = Holder::of(child.id());
        rustix::process::waitid(
            rustix::process::WaitId::Pid(rustix::process::Pid::from_child(&child)),
            rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT,
        )
        .unwrap();
        assert!(!holder.is_some_and(Holder::lives));
        child.wait().unwrap();
    }

    #[test]
    fn a_name_with_parentheses_and_blanks_hides_nothing() {
        let fields: Vec<String> = (4..40).map(|n: u32| n.to_string()).collect();
        let stat = |state| format!("7 (a) Z 1 (b) {state} {}", fields.join(" "));
        assert_eq!(start_of(&stat("S")), Some(22));
        assert_eq!(start_of(&stat("Z")), None);
        assert_eq!(start_of("7"), None);
    }
}
