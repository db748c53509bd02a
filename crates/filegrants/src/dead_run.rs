//! What the journal of a run without an owner says of its effects, verified.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek as _};
use std::path::Path;

use journal::{
    Event, Fault, FaultReason, FilePublicationFinished, FilePublicationPrepared, OutcomeStatus,
    Record, Tail, Verdict, VerifyOptions, read_run, verify_run,
};
use model::{Digest, Hasher, PublicationId, RunId};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// Why a run's effects cannot be known.
#[derive(Debug)]
pub enum DeadRunError {
    /// There is no journal of that run.
    Unknown {
        run: RunId,
    },
    /// Its journal has no whole record: it died before anything could happen.
    Empty {
        run: RunId,
    },
    /// Its owner lives: only the owner may go on.
    Live {
        run: RunId,
    },
    /// The journal is not what was signed.
    NotWhole {
        verdict: Verdict,
        fault: Option<Fault>,
    },
    /// No key was given, so nobody's signature is proved.
    NoKey,
    Read(io::Error),
    /// The file changed while it was read.
    Changed,
}

impl fmt::Display for DeadRunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { run } => write!(f, "the project has no journal of run {run}"),
            Self::Empty { run } => write!(
                f,
                "the journal of run {run} has no whole record: it died before anything could happen"
            ),
            Self::Live { run } => write!(
                f,
                "the run {run} is still owned by a live process; wait for its end, or stop it"
            ),
            Self::NotWhole { verdict, fault } => {
                write!(f, "its journal is {verdict}, so nothing may rely on it")?;
                fault
                    .as_ref()
                    .map_or(Ok(()), |fault| write!(f, ": {fault}"))
            }
            Self::NoKey => f.write_str("its journal was read without a key"),
            Self::Read(_) => f.write_str("its journal cannot be read"),
            Self::Changed => f.write_str("its journal changed while it was read"),
        }
    }
}

impl std::error::Error for DeadRunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read(error) => Some(error),
            _ => None,
        }
    }
}

/// A recorded intent to publish, and its recorded end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedPublication {
    pub intent: FilePublicationPrepared,
    /// Leaf hash of the intent's record.
    pub record: Digest,
    pub finished: Option<FilePublicationFinished>,
}

/// A run without an owner. While this lives, nobody can take the journal's lock.
#[derive(Debug)]
pub struct DeadRun {
    pub run: RunId,
    pub verdict: Verdict,
    pub records: u64,
    /// Size and hash of the whole file, with a torn tail.
    pub journal_bytes: u64,
    pub journal_sha256: Digest,
    pub tail: Option<Tail>,
    /// In the order of their intents.
    pub publications: Vec<RecordedPublication>,
    /// Calls whose outcome nobody recorded, or recorded as unconfirmed.
    pub open_calls: u64,
    _lock: File,
}

impl DeadRun {
    /// Verifies the journal at `path`, which must be that of `run`.
    ///
    /// # Errors
    /// [`DeadRunError`]; a run with a live owner is refused.
    pub fn read(path: &Path, run: RunId, options: &VerifyOptions) -> Result<Self, DeadRunError> {
        let mut file = open(path, run)?;
        let options = VerifyOptions {
            run: Some(run),
            ..options.clone()
        };
        let report = verify_run(&file, &options).map_err(DeadRunError::Read)?;
        if report.self_consistent_only {
            return Err(DeadRunError::NoKey);
        }
        // A run that the ledger has seen would be truncated instead.
        if matches!(&report.fault, Some(fault) if matches!(fault.reason, FaultReason::Empty)) {
            return Err(DeadRunError::Empty { run });
        }
        if !matches!(report.verdict, Verdict::Intact | Verdict::Unterminated) {
            return Err(DeadRunError::NotWhole {
                verdict: report.verdict,
                fault: report.fault,
            });
        }
        file.rewind().map_err(DeadRunError::Read)?;
        let mut reader = Hashing {
            inner: &file,
            hasher: Hasher::new(),
        };
        let mut effects = Effects::default();
        for record in read_run(&mut reader, Some(run), options.public_key.as_ref()) {
            effects.take(record.map_err(|_| DeadRunError::Changed)?);
        }
        if reader.hasher.finish() != report.file_sha256 {
            return Err(DeadRunError::Changed);
        }
        Ok(Self {
            run,
            verdict: report.verdict,
            records: report.records,
            journal_bytes: report.file_bytes,
            journal_sha256: report.file_sha256,
            tail: report.tail,
            open_calls: effects.open_calls(),
            publications: effects.publications,
            _lock: file,
        })
    }

    /// The publication of that id.
    #[must_use]
    pub fn publication(&self, id: PublicationId) -> Option<&RecordedPublication> {
        self.publications
            .iter()
            .find(|it| it.intent.publication_id == id)
    }

    /// The publications whose end nobody recorded.
    pub fn open_publications(&self) -> impl Iterator<Item = &RecordedPublication> {
        self.publications.iter().filter(|it| it.finished.is_none())
    }
}

fn open(path: &Path, run: RunId) -> Result<File, DeadRunError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Err(DeadRunError::Unknown { run }),
        Err(errno) => return Err(DeadRunError::Read(errno.into())),
    };
    if !file.metadata().map_err(DeadRunError::Read)?.is_file() {
        let kind = io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
        return Err(DeadRunError::Read(kind));
    }
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(DeadRunError::Live { run }),
        Err(errno) => Err(DeadRunError::Read(errno.into())),
    }
}

/// What the records so far did to the world.
#[derive(Default)]
struct Effects {
    publications: Vec<RecordedPublication>,
    /// By the sequence number of their dispatch; false while their outcome is not known.
    calls: BTreeMap<u64, bool>,
}

impl Effects {
    fn take(&mut self, record: Record) {
        match record.event {
            Event::CallDispatching(_) => {
                self.calls.insert(record.seq, false);
            }
            Event::CallSettled(it) => {
                let known = it.outcome.status != OutcomeStatus::Unconfirmed;
                self.calls.insert(it.dispatched_seq, known);
            }
            Event::FilePublicationPrepared(intent) => self.publications.push(RecordedPublication {
                intent,
                record: record.digest,
                finished: None,
            }),
            Event::FilePublicationFinished(end) => {
                let id = end.publication_id;
                let of_end = |it: &&mut RecordedPublication| it.intent.publication_id == id;
                if let Some(publication) = self.publications.iter_mut().find(of_end) {
                    publication.finished = Some(end);
                }
            }
            _ => {}
        }
    }

    fn open_calls(&self) -> u64 {
        self.calls.values().filter(|known| !**known).count() as u64
    }
}

struct Hashing<R> {
    inner: R,
    hasher: Hasher,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hasher.update(buffer.get(..read).unwrap_or_default());
        Ok(read)
    }
}
