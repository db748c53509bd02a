//! What a supervisor and its clients say: one JSON object a line, the hello and the welcome first.
//!
//! The two first messages have `supervisor_protocol` in every version, so that each side can tell
//! the other why it does not go on. No message has a place for an environment, an argument of a
//! worker, or a secret.

use std::path::PathBuf;

use filegrants::Holder;
use serde::{Deserialize, Serialize};
use worker::TierKind;

use crate::limits::PROTOCOL_VERSION;

/// What a client says first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) supervisor_protocol: u32,
}

/// What a supervisor says first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Welcome {
    pub(crate) supervisor_protocol: u32,
    /// Of the program.
    pub(crate) version: String,
    pub(crate) pid: u32,
    /// What the ids of its leases begin with; empty where it does not go on.
    pub(crate) store: String,
    /// Why it does not go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
    /// It does not go on now; it may in a moment.
    #[serde(default)]
    pub(crate) is_crowded: bool,
}

impl Hello {
    pub(crate) const fn ours() -> Self {
        Self {
            supervisor_protocol: PROTOCOL_VERSION,
        }
    }
}

/// What a lease is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Terms {
    pub(crate) tier: TierKind,
    pub(crate) socket: PathBuf,
    pub(crate) staging: PathBuf,
    pub(crate) memory_mib: u64,
    pub(crate) cpu_milli: u64,
    pub(crate) lifetime_ms: u64,
}

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Record a lease under an id of the client's, so that asking twice takes one.
    Take {
        lease: String,
        terms: Terms,
    },
    Release {
        lease: String,
    },
    /// After a restart of the supervisor: these are this connection's.
    Attach {
        leases: Vec<String>,
    },
    /// Look at an engine for containers that belong to nobody any more.
    Sweep {
        socket: PathBuf,
    },
    Status {},
    /// Finish removing what is dead, and say what that was.
    Prune {},
}

/// What the supervisor answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Response {
    Done {},
    Exhausted { reason: String },
    Unavailable { reason: String },
    Status(Status),
    Pruned { removed: Vec<String> },
}

/// What a supervisor knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    pub version: String,
    pub pid: u32,
    /// It runs in a unit of its own, and so outlives the login that started it.
    pub independent: bool,
    pub persistent: bool,
    pub capacity: CapacityLimits,
    pub leases: Vec<LeaseStatus>,
    /// The sockets of the engines that leases were taken for.
    pub engines: Vec<PathBuf>,
}

/// What all leases may have together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapacityLimits {
    pub workers: u64,
    pub cpu_milli: u64,
    pub memory_mib: u64,
}

/// One lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseStatus {
    pub lease: String,
    pub tier: TierKind,
    pub socket: PathBuf,
    pub owner: Holder,
    pub memory_mib: u64,
    pub cpu_milli: u64,
    /// Seconds since 1970.
    pub taken_at: u64,
    pub state: LeaseState,
    /// Why a dead one is still there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
}

/// Whether a lease's owner lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseState {
    Live,
    /// Its owner is dead or its time is over: its container is being removed.
    Ending,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_versions_hello_and_welcome_can_still_be_read() {
        let hello: Hello =
            serde_json::from_str(r#"{"supervisor_protocol":7,"later":true}"#).unwrap();
        assert_eq!(hello.supervisor_protocol, 7);
        let welcome = r#"{"supervisor_protocol":7,"version":"9","pid":1,"store":"","new":[]}"#;
        assert!(
            serde_json::from_str::<Welcome>(welcome)
                .unwrap()
                .refused
                .is_none()
        );
    }

    #[test]
    fn a_message_with_an_unknown_field_is_refused() {
        for text in [
            r#"{"ask":"status","environment":{"A":"b"}}"#,
            r#"{"ask":"release","lease":"a","argv":["x"]}"#,
            r#"{"ask":"exec"}"#,
        ] {
            assert!(serde_json::from_str::<Request>(text).is_err(), "{text}");
        }
    }
}
