//! A run's life on disk: its journal, its ledger lines, and the seals of runs that died.

use std::path::{Path, PathBuf};

use model::{Digest, RunId};

use crate::anchor::Anchors;
use crate::evidence::Evidence;
use crate::folder::StorageError;
use crate::journal::Journal;
use crate::key::ProjectKey;
use crate::ledger::Ledger;
use crate::ledger_line::Seal;
use crate::note::Checkpoint;
use crate::places::{journal_path, ledger_path, runs_folder};
use crate::run_files_error::RunFilesError;
use crate::strays::{Mark, is_no_journal, settle_strays};
use crate::tree::CompactRange;
use crate::verdict::Verdict;
use crate::verify::{VerifyOptions, verify_file};
use crate::writer::ProtectedJournal;

/// The files of one run, from its start to its end. The file's lock is held as long as this or
/// a handle on its journal lives.
#[derive(Debug)]
pub struct RunFiles {
    journal: Journal,
    ledger: Ledger,
    path: PathBuf,
    anchors: Option<Anchors>,
    /// Until the ledger knows the run.
    mark: Option<Mark>,
}

impl RunFiles {
    /// Seals the project's dead runs, then creates the journal of `run` for `principal` below
    /// `state` (the project's `.symbiont`, 0700). Nothing is recorded yet.
    ///
    /// # Errors
    /// [`RunFilesError`]; a run that has a journal already is refused.
    pub fn create(
        state: &Path,
        run: RunId,
        principal: &str,
        key: &ProjectKey,
    ) -> Result<Self, RunFilesError> {
        Self::create_anchored(state, run, principal, key, None)
    }

    /// The same for a run whose start (where an anchor is required), publications and end go to
    /// `anchors`, and the seals of dead runs before it.
    ///
    /// # Errors
    /// [`RunFilesError`].
    pub fn create_anchored(
        state: &Path,
        run: RunId,
        principal: &str,
        key: &ProjectKey,
        anchors: Option<Anchors>,
    ) -> Result<Self, RunFilesError> {
        let mut ledger =
            Ledger::open(&ledger_path(state), key.signer()).map_err(RunFilesError::Ledger)?;
        seal_dead_runs(state, &mut ledger, key, anchors.as_ref())?;
        let evidence = Evidence::open(state).map_err(RunFilesError::Storage)?;
        let mark = Mark::set(state, run).map_err(|error| match error {
            // Another process starts the same run.
            StorageError::Exists { .. } => RunFilesError::Storage(StorageError::Exists {
                path: journal_path(state, run).display().to_string(),
            }),
            error => RunFilesError::Storage(error),
        })?;
        let writer = match ProtectedJournal::create(&runs_folder(state), run) {
            Ok(writer) => writer,
            Err(error) => {
                mark.lift().map_err(RunFilesError::Storage)?;
                return Err(RunFilesError::Storage(error));
            }
        };
        let signer = Some(key.signer());
        let journal = Journal::new(Box::new(writer), signer, run, principal.to_owned());
        journal.keep_evidence(evidence);
        if let Some(anchors) = anchors.clone() {
            journal.on_publication(move |head| anchors.post(run, head));
        }
        Ok(Self {
            journal,
            ledger,
            path: journal_path(state, run),
            anchors,
            mark: Some(mark),
        })
    }

    #[must_use]
    pub const fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The journal's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Enters the run in the ledger: after its first records, before its first dispatch.
    ///
    /// # Errors
    /// [`RunFilesError`]; then nothing may be dispatched.
    pub fn started(&mut self) -> Result<(), RunFilesError> {
        let head = self.journal.checkpoint().map_err(RunFilesError::Journal)?;
        let run = self.journal.run();
        self.ledger
            .run_started(run, head)
            .map_err(RunFilesError::Ledger)?;
        if let Some(mark) = self.mark.take() {
            mark.lift().map_err(RunFilesError::Storage)?;
        }
        match self.anchors.as_ref().filter(|it| it.is_required()) {
            None => Ok(()),
            Some(anchors) => anchors.confirm(run, head).map_err(RunFilesError::Anchor),
        }
    }

    /// Enters the terminal head in the ledger: after the journal has its `RunEnded`.
    ///
    /// # Errors
    /// [`RunFilesError`].
    pub fn ended(mut self) -> Result<Checkpoint, RunFilesError> {
        let head = self.journal.checkpoint().map_err(RunFilesError::Journal)?;
        self.ledger
            .run_ended(self.journal.run(), head)
            .map_err(RunFilesError::Ledger)?;
        if let Some(anchors) = &self.anchors {
            anchors
                .confirm(self.journal.run(), head)
                .map_err(RunFilesError::Anchor)?;
        }
        Ok(head)
    }
}

/// Enters in the ledger what each open run without a live owner left, so that a later cut shows;
/// then what runs left that died before the ledger knew them.
pub(crate) fn seal_dead_runs(
    state: &Path,
    ledger: &mut Ledger,
    key: &ProjectKey,
    anchors: Option<&Anchors>,
) -> Result<(), RunFilesError> {
    let mut seals = Vec::new();
    for run in ledger.open_runs().map_err(RunFilesError::Ledger)? {
        let path = journal_path(state, run);
        let public_key = Some(key.public().clone());
        let options = VerifyOptions {
            public_key,
            run: Some(run),
            ..VerifyOptions::default()
        };
        match verify_file(&path, &options) {
            Ok(report) if report.live => {}
            Ok(report) => seals.push(Seal {
                run,
                checkpoint: report.checkpoint,
                verdict: report.verdict,
                file_bytes: report.file_bytes,
                file_sha256: report.file_sha256,
            }),
            // Gone, or something else stands in its place: the run is not there either way.
            Err(error) if is_no_journal(&error) => seals.push(gone(run)),
            Err(source) => return Err(RunFilesError::Seal { path, source }),
        }
    }
    ledger.seal(seals.clone()).map_err(RunFilesError::Ledger)?;
    seals.extend(settle_strays(state, ledger, key)?);
    if let Some(anchors) = anchors {
        for seal in seals.iter().filter(|seal| seal.checkpoint.size > 0) {
            anchors
                .confirm(seal.run, seal.checkpoint)
                .map_err(RunFilesError::Anchor)?;
        }
    }
    Ok(())
}

/// The seal of a run whose file is not there.
fn gone(run: RunId) -> Seal {
    Seal {
        run,
        checkpoint: Checkpoint {
            size: 0,
            root: CompactRange::default().root(),
        },
        verdict: Verdict::Truncated,
        file_bytes: 0,
        file_sha256: Digest::of(b""),
    }
}
