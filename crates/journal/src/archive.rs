//! Moving old journals out of a project: copied, entered in the ledger, then removed.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use model::{Digest, Hasher, RunId};

use crate::folder::{PrivateFolder, StorageError};
use crate::ledger::Ledger;
use crate::ledger_error::LedgerError;
use crate::ledger_line::Archived;
use crate::ledger_read::LedgerRun;
use crate::limits::JOURNAL_BYTES_MAX;
use crate::places::{file_name, runs_folder};
use crate::verdict::Verdict;
use crate::verify::{Report, VerifyOptions, verify_file};

/// Why a run was not archived. Its journal is where it was.
#[derive(Debug)]
pub enum ArchiveError {
    Storage(StorageError),
    Ledger(LedgerError),
    Io {
        path: PathBuf,
        source: io::Error,
    },
    /// Only a whole or a sealed run moves.
    Unfit {
        run: RunId,
        verdict: Verdict,
    },
    /// Neither ended nor sealed yet.
    NoEnd {
        run: RunId,
    },
    /// Another file has the copy's place.
    Occupied {
        path: PathBuf,
    },
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Storage(error) => error.fmt(f),
            Self::Ledger(error) => error.fmt(f),
            Self::Io { path, .. } => write!(f, "cannot copy to or from `{}`", path.display()),
            Self::Unfit { run, verdict } => write!(
                f,
                "the journal of run {run} is {verdict}; it stays for an investigation"
            ),
            Self::NoEnd { run } => write!(f, "run {run} has no end in the ledger yet"),
            Self::Occupied { path } => write!(
                f,
                "`{}` exists already with another content, and nothing is ever replaced",
                path.display()
            ),
        }
    }
}

impl std::error::Error for ArchiveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Storage(error) => error.source(),
            Self::Ledger(error) => error.source(),
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Moves the journal of `run` from the project folder `state` into the folder `to` (0700, made
/// where absent). Done again after an interruption, it finishes.
///
/// # Errors
/// [`ArchiveError`]; the original is removed last.
pub fn archive_run(
    state: &Path,
    run: &LedgerRun,
    to: &Path,
    ledger: &mut Ledger,
) -> Result<Archived, ArchiveError> {
    if run.ended.or(run.sealed).is_none() {
        return Err(ArchiveError::NoEnd { run: run.run });
    }
    let name = file_name(run.run);
    let from = PrivateFolder::open(&runs_folder(state)).map_err(ArchiveError::Storage)?;
    let to = PrivateFolder::create(to).map_err(ArchiveError::Storage)?;
    let path = runs_folder(state).join(&name);
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| ArchiveError::Io { path, source }
    };
    let source = from.open_file(&name).map_err(ArchiveError::Storage)?;
    let report = checked(run, &path).map_err(io(&path))?;
    if !matches!(report.verdict, Verdict::Intact | Verdict::Unterminated) {
        let (run, verdict) = (run.run, report.verdict);
        return Err(ArchiveError::Unfit { run, verdict });
    }
    let mut bytes = (&source).take(JOURNAL_BYTES_MAX);
    to.create_whole(&name, |file| io::copy(&mut bytes, file).map(drop))
        .map_err(ArchiveError::Storage)?;
    let copy = to.open_file(&name).map_err(ArchiveError::Storage)?;
    let shown = PathBuf::from(to.shown(&name));
    if hash_of(&copy).map_err(io(&shown))? != (report.file_bytes, report.file_sha256) {
        return Err(ArchiveError::Occupied { path: shown });
    }
    let archived = Archived {
        run: run.run,
        checkpoint: report.checkpoint,
        verdict: report.verdict,
        file_bytes: report.file_bytes,
        file_sha256: report.file_sha256,
    };
    if run.archived.is_none() {
        ledger
            .run_archived(archived.clone())
            .map_err(ArchiveError::Ledger)?;
    }
    from.remove(&name).map_err(ArchiveError::Storage)?;
    Ok(archived)
}

fn checked(run: &LedgerRun, path: &Path) -> io::Result<Report> {
    let options = VerifyOptions {
        public_key: run.public_key.clone(),
        run: Some(run.run),
        ledger: Some(run.clone()),
        ..VerifyOptions::default()
    };
    verify_file(path, &options)
}

fn hash_of(mut file: &File) -> io::Result<(u64, Digest)> {
    let size = file.metadata()?.size();
    let mut hasher = HashWriter(Hasher::new());
    io::copy(&mut (&mut file).take(JOURNAL_BYTES_MAX + 1), &mut hasher)?;
    Ok((size, hasher.0.finish()))
}

struct HashWriter(Hasher);

impl Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
