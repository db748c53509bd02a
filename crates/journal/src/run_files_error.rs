//! Why a run's files could not be made or ended.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::anchor::AnchorError;
use crate::error::JournalError;
use crate::folder::StorageError;
use crate::ledger_error::LedgerError;

/// Why a run's files could not be made or ended.
#[derive(Debug)]
pub enum RunFilesError {
    Storage(StorageError),
    Journal(JournalError),
    Ledger(LedgerError),
    /// A required anchor did not take the run's start or end.
    Anchor(AnchorError),
    /// The journal of an earlier, dead run cannot be read to be sealed.
    Seal {
        path: PathBuf,
        source: io::Error,
    },
}

impl fmt::Display for RunFilesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Storage(StorageError::Exists { path }) => write!(
                f,
                "the run has a journal already (`{path}`); a run id is used once"
            ),
            Self::Storage(error) => error.fmt(f),
            Self::Journal(error) => error.fmt(f),
            Self::Ledger(error) => error.fmt(f),
            Self::Anchor(error) => error.fmt(f),
            Self::Seal { path, .. } => {
                write!(
                    f,
                    "the journal `{}` of an earlier run cannot be read",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for RunFilesError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Storage(error) => error.source(),
            Self::Journal(error) => error.source(),
            Self::Ledger(error) => error.source(),
            Self::Anchor(error) => error.source(),
            Self::Seal { source, .. } => Some(source),
        }
    }
}
