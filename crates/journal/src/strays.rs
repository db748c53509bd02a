//! Journals that the ledger does not know: of runs that died before their line in it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use model::RunId;
use rustix::fs::FlockOperation;

use crate::folder::PrivateFolder;
use crate::key::ProjectKey;
use crate::ledger::Ledger;
use crate::ledger_line::Seal;
use crate::limits::ADOPTED_RUNS_MAX;
use crate::run_files::{RunFilesError, journal_path, runs_folder};
use crate::verify::{Verdict, VerifyOptions, verify_file};
use crate::writer::file_name;

/// Removes the empty ones, where nothing was ever recorded, and enters the others in the ledger:
/// as started and sealed. What is not whole, or not signed by `key`, stays for an investigation.
pub(crate) fn settle_strays(
    state: &Path,
    ledger: &mut Ledger,
    key: &ProjectKey,
) -> Result<Vec<Seal>, RunFilesError> {
    let path = runs_folder(state);
    let mut runs = match journals(&path) {
        Ok(runs) if runs.is_empty() => return Ok(Vec::new()),
        Ok(runs) => runs,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(RunFilesError::Seal { path, source }),
    };
    for known in ledger.started_runs().map_err(RunFilesError::Ledger)? {
        runs.remove(&known);
    }
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let folder = PrivateFolder::open(&path).map_err(RunFilesError::Storage)?;
    let mut seals = Vec::new();
    for run in runs {
        if seals.len() >= ADOPTED_RUNS_MAX {
            break;
        }
        // A stray that cannot be used must not hold up the next run: a list names it.
        if let Ok(false) = removes_empty(&folder, run) {
            seals.extend(left_by(state, run, key));
        }
    }
    ledger.adopt(seals).map_err(RunFilesError::Ledger)
}

fn journals(folder: &Path) -> io::Result<BTreeSet<RunId>> {
    let mut runs = BTreeSet::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(".jsonl"));
        let run = stem.and_then(|stem| stem.parse::<RunId>().ok());
        runs.extend(run.filter(|run| file_name(*run) == name));
    }
    Ok(runs)
}

/// Removes the journal of `run` if it is empty and nobody holds it. True where it was empty.
fn removes_empty(folder: &PrivateFolder, run: RunId) -> io::Result<bool> {
    let name = file_name(run);
    let file = folder.open_file(&name).map_err(io::Error::other)?;
    if size(&file)? != 0 {
        return Ok(false);
    }
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    if size(&file)? == 0 {
        folder.remove(&name).map_err(io::Error::other)?;
    }
    Ok(true)
}

fn size(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.size())
}

/// The seal of a dead run whose records are whole.
fn left_by(state: &Path, run: RunId, key: &ProjectKey) -> Option<Seal> {
    let options = VerifyOptions {
        public_key: Some(key.public().clone()),
        run: Some(run),
        ..VerifyOptions::default()
    };
    let report = verify_file(&journal_path(state, run), &options).ok()?;
    let is_whole = matches!(report.verdict, Verdict::Intact | Verdict::Unterminated);
    (is_whole && !report.live && report.records > 0).then_some(Seal {
        run,
        checkpoint: report.checkpoint,
        verdict: report.verdict,
        file_bytes: report.file_bytes,
        file_sha256: report.file_sha256,
    })
}
