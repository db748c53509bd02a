//! Why the ledger could not be used.

use std::fmt;
use std::io;

use model::RunId;

use crate::folder::StorageError;

/// Why the ledger could not be used.
#[derive(Debug)]
pub enum LedgerError {
    Storage(StorageError),
    Io {
        action: &'static str,
        path: String,
        source: io::Error,
    },
    /// Its end is not what this project's key signed.
    Corrupt {
        path: String,
        reason: String,
    },
    /// Its end is signed by another key than this project's here.
    OtherKey {
        path: String,
        found: String,
        ours: String,
    },
    /// Too many runs have no end.
    TooManyOpenRuns {
        max: usize,
    },
    /// The run is in the ledger's open set already.
    AlreadyOpen {
        run: RunId,
    },
    /// The run is not in the ledger's open set.
    NotOpen {
        run: RunId,
    },
    /// Runs without an end, which the event does not allow.
    RunsOpen {
        runs: usize,
    },
    /// The ledger goes on with another key than this handle's.
    Rotated {
        to: String,
    },
    Full {
        path: String,
        max: u64,
    },
    /// An earlier append of this handle failed.
    Failed,
}

impl fmt::Display for LedgerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Storage(_) => f.write_str("the ledger cannot be used"),
            Self::Io { action, path, .. } => write!(f, "cannot {action} the ledger `{path}`"),
            Self::Corrupt { path, reason } => write!(
                f,
                "the end of the ledger `{path}` is not what this project's key signed: {reason}; \
                 keep the file for an investigation and restore it from a backup"
            ),
            Self::OtherKey { path, found, ours } => write!(
                f,
                "the end of the ledger `{path}` is signed by `{}`, and this project's key here is \
                 `{ours}`; where XDG_STATE_HOME was changed, set it back, or put the key of before \
                 in the place of this one; otherwise keep the file for an investigation and \
                 restore it from a backup",
                found.escape_debug()
            ),
            Self::TooManyOpenRuns { max } => write!(
                f,
                "{max} runs of this project have no end, as many as may be; wait for one to end"
            ),
            Self::AlreadyOpen { run } => write!(f, "run {run} is open in the ledger already"),
            Self::NotOpen { run } => write!(f, "run {run} is not open in the ledger"),
            Self::RunsOpen { runs } => write!(
                f,
                "{runs} runs have no end yet; wait for them, the key is changed between runs"
            ),
            Self::Rotated { to } => write!(
                f,
                "the project's key was changed to `{to}`; try again, and if it stays so, finish \
                 an interrupted change with: symbi audit key rotate"
            ),
            Self::Full { path, max } => {
                write!(
                    f,
                    "the ledger `{path}` would pass {max} bytes; archive old runs"
                )
            }
            Self::Failed => f.write_str("the ledger failed earlier and takes no more lines"),
        }
    }
}

impl std::error::Error for LedgerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Storage(error) => Some(error),
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<StorageError> for LedgerError {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}
