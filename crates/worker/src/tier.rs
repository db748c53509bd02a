//! The interface of a tier: it starts one worker, bounds it, stops it, and confirms its removal.
//!
//! A tier never waits by itself. It lends descriptors to the session's one `poll`, and is asked
//! to [`Running::advance`] when one of them is ready.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::time::Duration;

use model::Digest;
use rustix::event::PollFd;

use crate::descriptor::{Limits, TierKind};
use crate::lower::WorkerSpec;

/// A place where workers run.
pub trait Tier: Send {
    fn kind(&self) -> TierKind;

    /// The wanted limits, each with what this host really enforces.
    fn enforceable(&self, wanted: Limits) -> Limits;

    /// Starts one fresh worker. The specification is used up.
    ///
    /// # Errors
    /// [`StartError`]: no instruction of the workload has run. What could be left never runs, and
    /// is somebody's to remove who outlives this process.
    fn start(&mut self, spec: WorkerSpec) -> Result<Box<dyn Running>, StartError>;
}

/// One live worker.
pub trait Running: Send {
    /// The descriptors whose readiness may let [`Running::advance`] make progress.
    fn poll_descriptors<'a>(&'a self, into: &mut Vec<PollFd<'a>>);

    /// What the workload wrote to its standard output so far, without the first `since` bytes.
    /// Nothing once the end was reported: [`Ended`] has all of it.
    fn stdout_since(&self, since: usize) -> Cow<'_, [u8]> {
        let _ = since;
        Cow::Borrowed(&[])
    }

    /// Takes what is ready, without blocking. `Some` once, when the workload has ended.
    fn advance(&mut self) -> Option<Ended>;

    /// Asks for an immediate end. `advance` then soon reports [`Ending::Stopped`].
    fn stop(&mut self);

    /// Waits until every process of the worker is gone, and removes what it left. Work of
    /// several workers names them all.
    ///
    /// # Errors
    /// [`RemovalError`] where that could not be confirmed of one.
    fn remove(&mut self) -> Result<Vec<RemovedWorker>, RemovalError>;
}

/// A worker that its tier has removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedWorker {
    pub worker: String,
    /// Of the specification that it was started from.
    pub call_digest: Digest,
}

/// Why a worker did not start.
#[derive(Debug)]
pub enum StartError {
    /// The host cannot run this tier: what is missing, and what to do about it.
    Unavailable { reason: String },
    /// Others use what the worker needs; the reason says who.
    NoRoom { reason: String },
    /// The program on disk is not the one that was bound.
    ProgramChanged { path: String },
    /// The worker could not be made; the step and the operating system's reason.
    Failed { step: String, reason: String },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable { reason } => write!(f, "isolation is not available: {reason}"),
            Self::NoRoom { reason } => {
                write!(f, "there is no room for another worker: {reason}")
            }
            Self::ProgramChanged { path } => {
                write!(
                    f,
                    "the program `{path}` is no longer the file that was authorized"
                )
            }
            Self::Failed { step, reason } => {
                write!(f, "the worker did not start: {step}: {reason}")
            }
        }
    }
}

impl std::error::Error for StartError {}

/// The removal of a worker could not be confirmed.
#[derive(Debug)]
pub struct RemovalError {
    pub worker: String,
    pub reason: String,
}

impl fmt::Display for RemovalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the removal of worker {} is not confirmed: {}",
            self.worker, self.reason
        )
    }
}

impl std::error::Error for RemovalError {}

/// How a workload ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Exited {
        code: i32,
    },
    Signaled {
        signal: i32,
    },
    /// [`Running::stop`] ended it.
    Stopped,
    /// The tier lost sight of it.
    Lost,
}

/// A limit that a workload ran into, as far as the tier can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitReached {
    Memory,
    Cpu,
    FileBytes,
    StreamBytes,
}

impl LimitReached {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory_mib",
            Self::Cpu => "cpu_milli",
            Self::FileBytes => "file_bytes",
            Self::StreamBytes => "stream_bytes",
        }
    }
}

/// One output stream, bounded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stream {
    /// At most the stream's limit.
    pub bytes: Vec<u8>,
    /// More came than the limit allows; the worker was stopped.
    pub over_limit: bool,
}

/// The file that a worker wrote at its output's path. Read it only after removal.
#[derive(Debug)]
pub enum OutputFile {
    /// No output was granted.
    NotGranted,
    /// The one regular file with one link; `bytes` is its size at the end.
    Written { file: File, bytes: u64 },
    /// Nothing that can be published, and why (`fresh` mode: absent, a link, a folder, …).
    Unusable { reason: String },
}

/// The end of a workload.
#[derive(Debug)]
pub struct Ended {
    pub ending: Ending,
    pub limit: Option<LimitReached>,
    pub stdout: Stream,
    pub stderr: Stream,
    pub output: OutputFile,
    /// From the workload's first instruction to its end.
    pub ran_for: Duration,
    /// Where a parser read the output; only a command that ended well comes to it.
    pub parser: Option<ParserEnd>,
}

/// What became of a command's output parser.
#[derive(Debug)]
pub enum ParserEnd {
    NotStarted(StartError),
    Ended(Box<Ended>),
}

/// Proof that every process of one worker is gone.
#[derive(Debug)]
pub struct WorkerGone {
    worker: String,
    call_digest: Digest,
}

impl WorkerGone {
    #[must_use]
    pub fn worker(&self) -> &str {
        &self.worker
    }

    #[must_use]
    pub const fn call_digest(&self) -> Digest {
        self.call_digest
    }
}

/// Asks the tier to remove every worker of `running`, and takes its word as proof. Whose workers
/// they were is the tier's to say, and the caller's to compare.
///
/// # Errors
/// [`RemovalError`] where a removal could not be confirmed.
pub fn confirm_removal(running: &mut dyn Running) -> Result<Vec<WorkerGone>, RemovalError> {
    let gone = |removed: RemovedWorker| WorkerGone {
        worker: removed.worker,
        call_digest: removed.call_digest,
    };
    Ok(running.remove()?.into_iter().map(gone).collect())
}
