//! The verdict on a journal, for people who trust neither the file nor its place.
//!
//! Every checkpoint is checked with `verify_strict`, or on request the last one only. Memory is
//! bounded by one chunk of pairs; pairs are parsed and checked in parallel, their order and tree
//! in one line after it.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use model::{Digest, RunId};
use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::Serialize;

use crate::chain::{Chain, Fault, FaultReason, check_pair};
use crate::evidence::EvidenceFile;
use crate::key::PublicKey;
use crate::ledger_read::LedgerRun;
use crate::limits::{
    JOURNAL_BYTES_MAX, RECORD_BYTES_MAX, VERIFY_CHUNK_BYTES_MAX, VERIFY_CHUNK_RECORDS_MAX,
    VERIFY_THREADS_MAX,
};
use crate::lines::{Pair, PairError, PairReader, Step, Tail};
use crate::note::Checkpoint;
use crate::verdict::Verdict;
use crate::verify_head::verify_head;

/// What is known besides the file.
#[derive(Debug, Clone, Default)]
pub struct VerifyOptions {
    /// From the auditor, never from beside the file. Without it signatures are not checked.
    pub public_key: Option<PublicKey>,
    /// The run that the file must hold.
    pub run: Option<RunId>,
    /// What a ledger that was itself verified says of the run.
    pub ledger: Option<LedgerRun>,
    /// Heads of the run that somebody else keeps.
    pub anchors: Vec<Checkpoint>,
    /// How much of the file is checked.
    pub depth: Depth,
}

impl VerifyOptions {
    /// The run that the file must hold, however it is known.
    pub(crate) fn wanted(&self) -> Option<RunId> {
        self.run.or(self.ledger.as_ref().map(|ledger| ledger.run))
    }
}

/// How much of a journal is checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Depth {
    /// Every record by itself, and every checkpoint.
    #[default]
    Every,
    /// The last checkpoint, which vouches for all record lines; the first and the last record.
    Last,
}

/// Everything that a verification found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    pub verdict: Verdict,
    /// The second half: somebody else keeps the last record's head.
    pub anchored: bool,
    /// No key was given: only the file's agreement with itself is known.
    pub self_consistent_only: bool,
    pub run: Option<RunId>,
    pub principal: Option<String>,
    /// Whole, checked records.
    pub records: u64,
    /// Their head.
    pub checkpoint: Checkpoint,
    /// Its writer held the file's lock.
    pub live: bool,
    /// What the terminal record says.
    pub completed: Option<bool>,
    /// The evidence files that the checked records name; with [`Depth::Last`] they are not read.
    pub evidence: Vec<EvidenceFile>,
    pub fault: Option<Fault>,
    pub depth: Depth,
    /// A write that did not finish.
    pub tail: Option<Tail>,
    /// Size and hash of the whole file: what a later recovery is bound to.
    pub file_bytes: u64,
    pub file_sha256: Digest,
}

impl Report {
    /// The command line's exit code: 0, 5 (not sure) or 6 (not what was written).
    #[must_use]
    pub const fn exit_code(&self, require_anchor: bool) -> u8 {
        match self.verdict {
            Verdict::Truncated | Verdict::Forked | Verdict::Corrupt => 6,
            Verdict::Unterminated | Verdict::Live => 5,
            Verdict::Intact if self.self_consistent_only => 5,
            Verdict::Intact if require_anchor && !self.anchored => 5,
            Verdict::Intact => 0,
        }
    }

    /// The report on a run that the ledger knows and whose file is gone.
    #[must_use]
    pub fn absent(ledger: &LedgerRun, public_key: Option<&PublicKey>) -> Self {
        let mut report = Self::of(
            &Chain::new(public_key.cloned(), Some(ledger.run), true),
            0,
            Digest::of(b""),
        );
        report.verdict = Verdict::Truncated;
        report.fault = Some(Fault {
            line: 0,
            reason: FaultReason::Absent,
        });
        report.self_consistent_only = public_key.is_none();
        report
    }

    /// The report on a file before anything of it is known to be good.
    pub(crate) fn empty(options: &VerifyOptions, file_bytes: u64, file_sha256: Digest) -> Self {
        let chain = Chain::new(options.public_key.clone(), options.wanted(), true);
        Self {
            self_consistent_only: options.public_key.is_none(),
            depth: options.depth,
            ..Self::of(&chain, file_bytes, file_sha256)
        }
    }

    /// Bytes before the tail: without a fault, those of the whole records.
    #[must_use]
    pub fn whole_bytes(&self) -> u64 {
        let tail = self.tail.as_ref().map_or(0, |tail| tail.bytes);
        self.file_bytes.saturating_sub(tail)
    }

    fn of(chain: &Chain, file_bytes: u64, file_sha256: Digest) -> Self {
        Self {
            verdict: Verdict::Corrupt,
            anchored: false,
            self_consistent_only: false,
            run: chain.run(),
            principal: chain.principal().map(str::to_owned),
            records: chain.records(),
            checkpoint: chain.head(),
            live: false,
            completed: chain.completed(),
            evidence: chain.evidence(),
            fault: None,
            depth: Depth::Every,
            tail: None,
            file_bytes,
            file_sha256,
        }
    }
}

/// Verifies the journal in `reader`, which nobody writes to.
///
/// # Errors
/// Only the reader's own; whatever the bytes are, they get a verdict.
pub fn verify_run(reader: impl Read, options: &VerifyOptions) -> io::Result<Report> {
    verify(reader, options, false)
}

/// Verifies the journal file `path`. A run whose lock is held is [`Verdict::Live`].
///
/// # Errors
/// The file cannot be opened or read, or is no regular file.
pub fn verify_file(path: &Path, options: &VerifyOptions) -> io::Result<Report> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let before = file.metadata()?;
    if !before.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    let live = is_locked(&file)?;
    let mut report = verify(&file, options, live)?;
    if !live && identity(&before) != identity(&file.metadata()?) {
        report.verdict = Verdict::Corrupt;
        report.fault = Some(Fault {
            line: 0,
            reason: FaultReason::Changed,
        });
    }
    Ok(report)
}

fn identity(stat: &Metadata) -> (u64, i64, i64, i64, i64) {
    (
        stat.size(),
        stat.mtime(),
        stat.mtime_nsec(),
        stat.ctime(),
        stat.ctime_nsec(),
    )
}

/// Whether somebody writes to the file: its writer holds the lock for the run's life.
pub(crate) fn is_locked(file: &File) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            rustix::fs::flock(file, FlockOperation::Unlock)?;
            Ok(false)
        }
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

fn verify(reader: impl Read, options: &VerifyOptions, live: bool) -> io::Result<Report> {
    if options.depth == Depth::Last {
        return verify_head(reader, options, live);
    }
    let mut pairs = PairReader::new(reader, RECORD_BYTES_MAX, JOURNAL_BYTES_MAX);
    let mut chain = Chain::new(options.public_key.clone(), options.wanted(), true);
    let witnessed = witnessed(options);
    let outcome = walk(
        &mut pairs,
        &mut chain,
        &witnessed,
        options.public_key.as_ref(),
    )?;
    let (file_bytes, file_sha256) = pairs.finish()?;
    let mut report = Report::of(&chain, file_bytes, file_sha256);
    report.self_consistent_only = options.public_key.is_none();
    report.live = live;
    match outcome {
        Walked::Fault(fault) => report.fault = Some(fault),
        Walked::Fork(fault) => {
            report.verdict = Verdict::Forked;
            report.fault = Some(fault);
        }
        Walked::End { tail, line } => {
            report.tail = tail;
            judge(&mut report, options, &witnessed, live, line);
        }
    }
    Ok(report)
}

/// Gives the verdict on a file that is good as far as it goes.
pub(crate) fn judge(
    report: &mut Report,
    options: &VerifyOptions,
    witnessed: &[Checkpoint],
    live: bool,
    line: u64,
) {
    let found = report.records;
    let known = witnessed.iter().map(|head| head.size).max().unwrap_or(0);
    let ended = options
        .ledger
        .as_ref()
        .and_then(|ledger| ledger.ended)
        .map(|end| end.size);
    let (verdict, reason) = match report.completed {
        _ if known > found => (
            Verdict::Truncated,
            Some(FaultReason::Missing { known, found }),
        ),
        _ if found == 0 && !live => (Verdict::Corrupt, Some(FaultReason::Empty)),
        _ if ended.is_some_and(|end| end < found) => {
            let known = ended.unwrap_or(0);
            (Verdict::Forked, Some(FaultReason::Longer { known, found }))
        }
        Some(_) if report.tail.is_some() => (Verdict::Corrupt, Some(FaultReason::AfterEnd)),
        Some(_) => (Verdict::Intact, None),
        None if live => (Verdict::Live, None),
        None => (Verdict::Unterminated, None),
    };
    report.verdict = verdict;
    report.fault = reason.map(|reason| Fault { line, reason });
    report.anchored = options.anchors.contains(&report.checkpoint) && found > 0;
}

pub(crate) fn witnessed(options: &VerifyOptions) -> Vec<Checkpoint> {
    let mut heads = options.anchors.clone();
    if let Some(ledger) = &options.ledger {
        heads.push(ledger.started);
        heads.extend(ledger.sealed);
        heads.extend(ledger.ended);
    }
    heads
}

/// How a walk through the file ended.
pub(crate) enum Walked {
    Fault(Fault),
    Fork(Fault),
    End { tail: Option<Tail>, line: u64 },
}

fn walk<R: Read>(
    pairs: &mut PairReader<R>,
    chain: &mut Chain,
    witnessed: &[Checkpoint],
    key: Option<&PublicKey>,
) -> io::Result<Walked> {
    let threads = threads();
    loop {
        let (chunk, end) = read_chunk(pairs);
        let all = parallel(&chunk, threads, |pair| check_pair(pair, key));
        for (pair, checked) in chunk.iter().zip(all) {
            let checked = match checked {
                Ok(checked) => checked,
                Err(fault) => return Ok(Walked::Fault(fault)),
            };
            if let Err(fault) = chain.accept(&checked) {
                return Ok(Walked::Fault(fault));
            }
            let head = chain.head();
            if witnessed
                .iter()
                .any(|known| known.size == head.size && *known != head)
            {
                let reason = FaultReason::OtherHead { size: head.size };
                return Ok(Walked::Fork(Fault {
                    line: pair.line,
                    reason,
                }));
            }
        }
        match end {
            None => {}
            Some(Ok(tail)) => {
                return Ok(Walked::End {
                    tail,
                    line: pairs.next_line(),
                });
            }
            Some(Err(PairError::Io(error))) => return Err(error),
            Some(Err(error)) => {
                let reason = FaultReason::Size(error.to_string());
                return Ok(Walked::Fault(Fault {
                    line: pairs.next_line(),
                    reason,
                }));
            }
        }
    }
}

/// How the file ends, if the chunk is its last.
pub(crate) type ChunkEnd = Option<Result<Option<Tail>, PairError>>;

pub(crate) fn read_chunk<R: Read>(pairs: &mut PairReader<R>) -> (Vec<Pair>, ChunkEnd) {
    let mut chunk = Vec::new();
    let mut bytes = 0;
    while chunk.len() < VERIFY_CHUNK_RECORDS_MAX && bytes < VERIFY_CHUNK_BYTES_MAX {
        match pairs.step() {
            Ok(Step::Pair(pair)) => {
                bytes += pair.len();
                chunk.push(pair);
            }
            Ok(Step::End(tail)) => return (chunk, Some(Ok(tail))),
            Err(error) => return (chunk, Some(Err(error))),
        }
    }
    (chunk, None)
}

pub(crate) fn threads() -> usize {
    std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(VERIFY_THREADS_MAX)
}

/// Does `check` for each pair, on several threads. Results are in the pairs' order.
pub(crate) fn parallel<T: Send>(
    chunk: &[Pair],
    threads: usize,
    check: impl Fn(&Pair) -> T + Sync,
) -> Vec<T> {
    let part = chunk.len().div_ceil(threads).max(16);
    let check = |part: &[Pair]| part.iter().map(&check).collect::<Vec<_>>();
    let check = &check;
    let Some((first, rest)) = chunk.split_at_checked(part) else {
        return check(chunk);
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = rest
            .chunks(part)
            .map(|part| scope.spawn(move || check(part)))
            .collect();
        let mut checked = check(first);
        for other in others {
            match other.join() {
                Ok(more) => checked.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        checked
    })
}
