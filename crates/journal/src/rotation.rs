//! Changing the project's key between two runs.
//!
//! The new key is made first, then entered in the ledger with both signatures, then put in the
//! old one's place. An interruption anywhere is finished by doing it again.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use crate::folder::{PrivateFolder, StorageError};
use crate::key::{KeyError, ProjectKey, PublicKey};
use crate::ledger::Ledger;
use crate::ledger_error::LedgerError;
use crate::places::ledger_path;
use crate::run_files::seal_dead_runs;
use crate::run_files_error::RunFilesError;

/// Why the key was not changed.
#[derive(Debug)]
pub enum RotationError {
    Storage(StorageError),
    Key(KeyError),
    Ledger(LedgerError),
    /// A dead run could not be sealed first.
    Runs(Box<RunFilesError>),
}

impl fmt::Display for RotationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Storage(error) => error.fmt(f),
            Self::Key(error) => error.fmt(f),
            Self::Ledger(error) => error.fmt(f),
            Self::Runs(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RotationError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Storage(error) => error.source(),
            Self::Key(error) => error.source(),
            Self::Ledger(error) => error.source(),
            Self::Runs(error) => error.source(),
        }
    }
}

/// A change of the key that is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotation {
    pub from: PublicKey,
    pub to: PublicKey,
}

/// Replaces the signing key in the file `key` of the project with the private folder `state`.
/// The old private key is gone afterwards; its public half stays in the ledger.
///
/// # Errors
/// [`RotationError`]; [`LedgerError::RunsOpen`] while a run lives.
pub fn rotate_key(state: &Path, key: &Path) -> Result<Rotation, RotationError> {
    let old = ProjectKey::load(key).map_err(RotationError::Key)?;
    let mut next_name = OsString::from(key.file_name().unwrap_or_default());
    next_name.push(".next");
    let next_path = key.with_file_name(&next_name);
    let next = ProjectKey::load_or_create(&next_path).map_err(RotationError::Key)?;
    enter(state, &old, &next)?;
    let (folder, name) = PrivateFolder::open_for(key).map_err(RotationError::Storage)?;
    folder
        .replace(&next_name, &name)
        .map_err(RotationError::Storage)?;
    Ok(Rotation {
        from: old.public().clone(),
        to: next.public().clone(),
    })
}

/// Enters the change in the ledger, unless an interrupted attempt did.
fn enter(state: &Path, old: &ProjectKey, next: &ProjectKey) -> Result<(), RotationError> {
    let mut ledger =
        Ledger::open(&ledger_path(state), old.signer()).map_err(RotationError::Ledger)?;
    match ledger.open_runs() {
        Ok(_) => {}
        Err(LedgerError::Rotated { to }) if to == next.vkey() => return Ok(()),
        Err(error) => return Err(RotationError::Ledger(error)),
    }
    seal_dead_runs(state, &mut ledger, old, None)
        .map_err(|error| RotationError::Runs(Box::new(error)))?;
    ledger.rotate(next).map_err(RotationError::Ledger)
}
