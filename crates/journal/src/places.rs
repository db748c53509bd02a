//! Where a project's journals and ledger lie, below its private folder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use model::RunId;

/// The folder of the runs' journals, below a project's private folder.
#[must_use]
pub fn runs_folder(state: &Path) -> PathBuf {
    state.join("governed")
}

/// The file of a run's journal.
#[must_use]
pub fn journal_path(state: &Path, run: RunId) -> PathBuf {
    runs_folder(state).join(file_name(run))
}

/// The project's ledger.
#[must_use]
pub fn ledger_path(state: &Path) -> PathBuf {
    state.join("ledger.jsonl")
}

/// The name of a run's journal in its folder.
pub(crate) fn file_name(run: RunId) -> OsString {
    OsString::from(format!("{run}.jsonl"))
}
