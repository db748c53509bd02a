//! The project's ledger: which runs there were, and how far each got.
//!
//! A journal cannot show that its own tail is missing; the ledger can. Each line carries its
//! compact range and the set of open runs, so that an append reads the last pair only.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use model::{Canonical, Digest, RunId};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::chain::{Fault, FaultReason};
use crate::folder::{PrivateFolder, StorageError};
use crate::journal::origin;
use crate::key::{PublicKey, RunSigner};
use crate::limits::{
    CHECKPOINT_LINE_BYTES_MAX, LEDGER_BYTES_MAX, LEDGER_LINE_BYTES_MAX, OPEN_RUNS_MAX,
};
use crate::lines::{Pair, PairError, PairReader, Step, Tail};
use crate::note::{Checkpoint, Note, NoteError, checkpoint_line};
use crate::record::{RECORD_VERSION, now};
use crate::tree::{self, CompactRange};
use crate::verify::Verdict;
use crate::writer::lock;

/// Largest pair of a ledger, and so its largest torn tail.
const PAIR_BYTES_MAX: usize = LEDGER_LINE_BYTES_MAX + CHECKPOINT_LINE_BYTES_MAX + 2;
const ORIGIN: &str = "ledger";

/// What a ledger line says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields)]
pub enum LedgerEvent {
    /// The run's journal is durable up to this head; its first effect comes later.
    RunStarted { run: RunId, checkpoint: Checkpoint },
    /// The run's terminal record is the last one under this head.
    RunEnded { run: RunId, checkpoint: Checkpoint },
    /// The run's owner is dead; this is what it left.
    RunSealed(Seal),
}

/// What a dead run left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seal {
    pub run: RunId,
    pub checkpoint: Checkpoint,
    pub verdict: Verdict,
    pub file_bytes: u64,
    pub file_sha256: Digest,
}

/// One line of the ledger, before its checkpoint.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LedgerRecord {
    v: u64,
    seq: u64,
    time: String,
    /// An unfinished write that was cut away before this line.
    torn: Option<Tail>,
    /// The tree before this line.
    range: Vec<Digest>,
    /// The runs without an end after this line.
    open: Vec<RunId>,
    event: LedgerEvent,
}

/// What the ledger knows of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LedgerRun {
    pub run: RunId,
    /// When the run's line was written, by the writer's clock.
    pub time: String,
    pub started: Checkpoint,
    pub ended: Option<Checkpoint>,
    pub sealed: Option<Checkpoint>,
}

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
            Self::TooManyOpenRuns { max } => write!(
                f,
                "{max} runs of this project have no end, as many as may be; wait for one to end"
            ),
            Self::AlreadyOpen { run } => write!(f, "run {run} is in the ledger already"),
            Self::NotOpen { run } => write!(f, "run {run} is not open in the ledger"),
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

/// A handle to append to a project's ledger. Processes share the file by its lock.
#[derive(Debug)]
pub struct Ledger {
    folder: PrivateFolder,
    name: OsString,
    signer: RunSigner,
    failed: bool,
}

/// The end of a ledger.
#[derive(Debug, Default)]
struct End {
    range: CompactRange,
    open: Vec<RunId>,
    /// Where the last whole pair ends, in bytes.
    at: u64,
    torn: Option<Tail>,
}

impl Ledger {
    /// The ledger in the file `path` (0600, in a private folder), made at its first line.
    ///
    /// # Errors
    /// [`LedgerError::Storage`] where the folder is not fit.
    pub fn open(path: &Path, signer: RunSigner) -> Result<Self, LedgerError> {
        let (folder, name) = PrivateFolder::create_for(path)?;
        Ok(Self {
            folder,
            name,
            signer,
            failed: false,
        })
    }

    /// Enters a run: after its first records are durable, before its first dispatch.
    ///
    /// # Errors
    /// [`LedgerError::TooManyOpenRuns`], and whatever makes the file unfit.
    pub fn run_started(&mut self, run: RunId, checkpoint: Checkpoint) -> Result<(), LedgerError> {
        self.append(vec![LedgerEvent::RunStarted { run, checkpoint }])
    }

    /// Enters a run's terminal head.
    ///
    /// # Errors
    /// [`LedgerError::NotOpen`], and whatever makes the file unfit.
    pub fn run_ended(&mut self, run: RunId, checkpoint: Checkpoint) -> Result<(), LedgerError> {
        self.append(vec![LedgerEvent::RunEnded { run, checkpoint }])
    }

    /// Enters what dead runs left; those that another process entered meanwhile are passed over.
    ///
    /// # Errors
    /// Whatever makes the file unfit.
    pub fn seal(&mut self, seals: Vec<Seal>) -> Result<(), LedgerError> {
        match seals.is_empty() {
            true => Ok(()),
            false => self.append(seals.into_iter().map(LedgerEvent::RunSealed).collect()),
        }
    }

    /// The runs without an end, from the last line alone.
    ///
    /// # Errors
    /// Whatever makes the file unfit.
    pub fn open_runs(&self) -> Result<Vec<RunId>, LedgerError> {
        if !self.folder.contains(&self.name)? {
            return Ok(Vec::new());
        }
        let file = self.folder.open_file(&self.name)?;
        self.lock(&file, FlockOperation::NonBlockingLockShared)?;
        Ok(self.read_end(&file)?.open)
    }

    /// All runs, oldest first, from the whole ledger.
    ///
    /// # Errors
    /// The file cannot be opened or read. What is wrong inside it stands in the report.
    pub fn runs(&self) -> Result<LedgerReport, LedgerError> {
        if !self.folder.contains(&self.name)? {
            return Ok(LedgerReport::default());
        }
        let file = self.folder.open_file(&self.name)?;
        self.lock(&file, FlockOperation::NonBlockingLockShared)?;
        read_ledger(&file, Some(self.signer.public())).map_err(self.io("read"))
    }

    fn append(&mut self, events: Vec<LedgerEvent>) -> Result<(), LedgerError> {
        if self.failed {
            return Err(LedgerError::Failed);
        }
        let file = self.open_or_create()?;
        self.lock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let mut end = self.read_end(&file)?;
        let lines = self.lines(&mut end, events)?;
        if lines.is_empty() {
            return Ok(());
        }
        if end.at.saturating_add(lines.len() as u64) > LEDGER_BYTES_MAX {
            return Err(LedgerError::Full {
                path: self.shown(),
                max: LEDGER_BYTES_MAX,
            });
        }
        let stored = store(&file, &end, &lines);
        self.failed = stored.is_err();
        stored.map_err(self.io("write"))?;
        if end.at == 0 {
            self.folder.sync()?;
        }
        Ok(())
    }

    fn open_or_create(&self) -> Result<File, LedgerError> {
        if !self.folder.contains(&self.name)? {
            match self.folder.create_file(&self.name) {
                Ok(file) => return Ok(file),
                // Another process was first.
                Err(StorageError::Exists { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.folder.open_to_append(&self.name)?)
    }

    fn lines(&self, end: &mut End, events: Vec<LedgerEvent>) -> Result<Vec<u8>, LedgerError> {
        let origin = origin(Some(self.signer.public()), ORIGIN);
        let mut torn = end.torn.clone();
        let mut bytes = Vec::new();
        for event in events {
            match (&event, apply(&mut end.open, &event)) {
                (_, Ok(())) => {}
                (LedgerEvent::RunSealed(_), Err(LedgerError::NotOpen { .. })) => continue,
                (_, Err(error)) => return Err(error),
            }
            let record = LedgerRecord {
                v: RECORD_VERSION,
                seq: end.range.size(),
                time: now(),
                torn: torn.take(),
                range: end.range.roots().to_vec(),
                open: end.open.clone(),
                event,
            };
            let record = Canonical::of(&record)
                .map_err(|error| io::Error::other(error.to_string()))
                .map_err(self.io("write"))?;
            end.range.push(tree::leaf(record.as_str().as_bytes()));
            let head = Checkpoint {
                size: end.range.size(),
                root: end.range.root(),
            };
            for line in [
                record.as_str(),
                &checkpoint_line(&origin, &head, Some(&self.signer)),
            ] {
                bytes.extend_from_slice(line.as_bytes());
                bytes.push(b'\n');
            }
        }
        Ok(bytes)
    }

    /// Finds the last whole pair and checks it, reading no more than two pairs can take.
    fn read_end(&self, file: &File) -> Result<End, LedgerError> {
        let size = file.metadata().map_err(self.io("examine"))?.len();
        let start = size.saturating_sub(2 * PAIR_BYTES_MAX as u64);
        let mut window = vec![0; usize::try_from(size - start).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut window, start)
            .map_err(self.io("read"))?;
        let corrupt = |reason: String| LedgerError::Corrupt {
            path: self.shown(),
            reason,
        };
        let Some((pair, length)) = last_pair(&window) else {
            if window.len() > PAIR_BYTES_MAX || !is_first_attempt(&window) {
                return Err(corrupt("it has no whole pair of lines".to_owned()));
            }
            return Ok(End {
                torn: torn(&window),
                ..End::default()
            });
        };
        let checked = check(&pair, Some(self.signer.public()))
            .map_err(|reason| corrupt(reason.to_string()))?;
        let tail = window.get(length..).unwrap_or_default();
        if tail.len() > PAIR_BYTES_MAX {
            return Err(corrupt(
                "more follows its last whole pair than one write".to_owned(),
            ));
        }
        let at = start + length as u64;
        Ok(End {
            range: checked.range,
            open: checked.record.open,
            at,
            torn: torn(tail),
        })
    }

    fn lock(&self, file: &File, how: FlockOperation) -> Result<(), LedgerError> {
        Ok(lock(file, how, &self.shown())?)
    }

    fn shown(&self) -> String {
        self.folder.shown(&self.name)
    }

    fn io(&self, action: &'static str) -> impl FnOnce(io::Error) -> LedgerError {
        let path = self.shown();
        move |source| LedgerError::Io {
            action,
            path,
            source,
        }
    }
}

/// Cuts a torn tail away, appends, syncs.
fn store(mut file: &File, end: &End, lines: &[u8]) -> io::Result<()> {
    if end.torn.is_some() {
        file.set_len(end.at)?;
    }
    let written = file.write(lines)?;
    if written != lines.len() {
        let text = format!("only {written} of {} bytes were written", lines.len());
        return Err(io::Error::new(io::ErrorKind::WriteZero, text));
    }
    file.sync_data()
}

fn torn(tail: &[u8]) -> Option<Tail> {
    (!tail.is_empty()).then(|| Tail {
        bytes: tail.len() as u64,
        sha256: Digest::of(tail),
    })
}

/// The last whole pair of `window`, and where it ends in it.
fn last_pair(window: &[u8]) -> Option<(Pair, usize)> {
    let whole = window.iter().rposition(|byte| *byte == b'\n')? + 1;
    let mut end = whole;
    let mut lines = window
        .get(..whole.saturating_sub(1))?
        .rsplit(|byte| *byte == b'\n')
        .peekable();
    // A record whose checkpoint was not written yet belongs to the tail.
    if let Some(record) = lines.next_if(|line| parse(line).is_ok()) {
        end = end.checked_sub(record.len() + 1)?;
    }
    let (checkpoint, record) = (lines.next()?, lines.next()?);
    let pair = Pair {
        line: 0,
        record: record.to_vec(),
        checkpoint: checkpoint.to_vec(),
    };
    Some((pair, end))
}

/// Whether `window` can be the beginning of a ledger's first pair: at most its record is whole.
fn is_first_attempt(window: &[u8]) -> bool {
    match window.iter().position(|byte| *byte == b'\n') {
        None => true,
        Some(at) => window.get(..at).is_some_and(|line| parse(line).is_ok()),
    }
}

fn parse(line: &[u8]) -> Result<LedgerRecord, FaultReason> {
    let record: LedgerRecord = serde_json::from_slice(line)
        .map_err(|error| FaultReason::Record(format!("not a ledger line: {error}")))?;
    match record.v {
        RECORD_VERSION => Ok(record),
        other => Err(FaultReason::Record(format!(
            "the line has version {other}; this program knows {RECORD_VERSION}"
        ))),
    }
}

/// Changes the open set as a line says.
fn apply(open: &mut Vec<RunId>, event: &LedgerEvent) -> Result<(), LedgerError> {
    let (run, starts) = match event {
        LedgerEvent::RunStarted { run, .. } => (*run, true),
        LedgerEvent::RunEnded { run, .. } => (*run, false),
        LedgerEvent::RunSealed(seal) => (seal.run, false),
    };
    match (open.iter().position(|other| *other == run), starts) {
        (Some(_), true) => return Err(LedgerError::AlreadyOpen { run }),
        (None, true) if open.len() >= OPEN_RUNS_MAX => {
            return Err(LedgerError::TooManyOpenRuns { max: OPEN_RUNS_MAX });
        }
        (None, true) => open.push(run),
        (Some(at), false) => {
            open.remove(at);
        }
        (None, false) => return Err(LedgerError::NotOpen { run }),
    }
    Ok(())
}

struct CheckedLine {
    record: LedgerRecord,
    /// The tree after the line.
    range: CompactRange,
}

/// Checks one pair of a ledger by itself: its form, its range against its root, its signature.
fn check(pair: &Pair, key: Option<&PublicKey>) -> Result<CheckedLine, FaultReason> {
    let record: LedgerRecord = serde_json::from_slice(&pair.record)
        .map_err(|error| FaultReason::Record(format!("not a ledger line: {error}")))?;
    if record.v != RECORD_VERSION {
        let text = format!(
            "the line has version {}; known is {RECORD_VERSION}",
            record.v
        );
        return Err(FaultReason::Record(text));
    }
    let mut range = CompactRange::from_parts(record.seq, record.range.clone())
        .ok_or_else(|| FaultReason::Record("its range does not fit its number".to_owned()))?;
    range.push(tree::leaf(&pair.record));
    let note = Note::parse(&pair.checkpoint).map_err(FaultReason::Checkpoint)?;
    match (key, note.signed_by()) {
        (Some(key), _) => note.verify(key).map_err(FaultReason::Checkpoint)?,
        (None, None) => return Err(FaultReason::Checkpoint(NoteError::Unsigned)),
        (None, Some(_)) => {}
    }
    let name = note.signed_by().unwrap_or_default();
    let expected = format!(
        "{}/{ORIGIN}",
        name.split_once('+').map_or("", |(name, _)| name)
    );
    if note.origin != expected {
        return Err(FaultReason::Origin {
            expected,
            found: note.origin,
        });
    }
    let (expected, found) = (range.size(), note.checkpoint.size);
    if expected != found {
        return Err(FaultReason::TreeSize { expected, found });
    }
    match note.checkpoint.root == range.root() {
        true => Ok(CheckedLine { record, range }),
        false => Err(FaultReason::Root),
    }
}

/// What a whole ledger says, and whether it may be believed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LedgerReport {
    /// Oldest first; up to the fault, if there is one.
    pub runs: Vec<LedgerRun>,
    pub records: u64,
    pub checkpoint: Checkpoint,
    pub fault: Option<Fault>,
    /// A write that did not finish; the next line will name it.
    pub tail: Option<Tail>,
}

impl Default for LedgerReport {
    fn default() -> Self {
        let checkpoint = Checkpoint {
            size: 0,
            root: CompactRange::default().root(),
        };
        Self {
            runs: Vec::new(),
            records: 0,
            checkpoint,
            fault: None,
            tail: None,
        }
    }
}

/// Reads a whole ledger and checks every line. Without a key no signature is checked.
///
/// # Errors
/// Only the reader's own.
pub fn read_ledger(reader: impl Read, key: Option<&PublicKey>) -> io::Result<LedgerReport> {
    let mut pairs = PairReader::new(reader, LEDGER_LINE_BYTES_MAX, LEDGER_BYTES_MAX);
    let mut reading = Reading::default();
    loop {
        let line = pairs.next_line();
        let fault = match pairs.step() {
            Ok(Step::Pair(pair)) => match reading.accept(&pair, key) {
                Ok(()) => continue,
                Err(reason) => Fault { line, reason },
            },
            Ok(Step::End(tail)) => return Ok(reading.report(None, tail)),
            Err(PairError::Io(error)) => return Err(error),
            Err(error) => Fault {
                line,
                reason: FaultReason::Size(error.to_string()),
            },
        };
        return Ok(reading.report(Some(fault), None));
    }
}

/// The ledger up to some line.
#[derive(Default)]
struct Reading {
    range: CompactRange,
    open: Vec<RunId>,
    runs: BTreeMap<u64, LedgerRun>,
    by_run: BTreeMap<RunId, u64>,
}

impl Reading {
    fn accept(&mut self, pair: &Pair, key: Option<&PublicKey>) -> Result<(), FaultReason> {
        let CheckedLine { record, range } = check(pair, key)?;
        let (expected, found) = (self.range.size(), record.seq);
        if expected != found {
            return Err(FaultReason::Sequence { expected, found });
        }
        if record.range != self.range.roots() {
            return Err(FaultReason::Root);
        }
        apply(&mut self.open, &record.event)
            .map_err(|error| FaultReason::Record(error.to_string()))?;
        if self.open != record.open {
            return Err(FaultReason::Record(
                "its set of open runs is not the real one".to_owned(),
            ));
        }
        match record.event {
            LedgerEvent::RunStarted {
                run,
                checkpoint: started,
            } => {
                if self.by_run.insert(run, record.seq).is_some() {
                    return Err(FaultReason::StartedAgain);
                }
                let time = record.time;
                let known = LedgerRun {
                    run,
                    time,
                    started,
                    ended: None,
                    sealed: None,
                };
                self.runs.insert(record.seq, known);
            }
            LedgerEvent::RunEnded { run, checkpoint } => {
                if let Some(known) = self.run(run) {
                    known.ended = Some(checkpoint);
                }
            }
            LedgerEvent::RunSealed(seal) => {
                if let Some(known) = self.run(seal.run) {
                    known.sealed = Some(seal.checkpoint);
                }
            }
        }
        self.range = range;
        Ok(())
    }

    fn run(&mut self, run: RunId) -> Option<&mut LedgerRun> {
        self.runs.get_mut(self.by_run.get(&run)?)
    }

    fn report(self, fault: Option<Fault>, tail: Option<Tail>) -> LedgerReport {
        let checkpoint = Checkpoint {
            size: self.range.size(),
            root: self.range.root(),
        };
        let runs = self.runs.into_values().collect();
        LedgerReport {
            runs,
            records: checkpoint.size,
            checkpoint,
            fault,
            tail,
        }
    }
}
