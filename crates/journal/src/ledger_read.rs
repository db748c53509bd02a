//! Reads a whole ledger: every run with its heads, every line checked against the one before.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;

use model::RunId;
use rustix::fs::FlockOperation;
use serde::{Serialize, Serializer};

use crate::chain::{Fault, FaultReason};
use crate::folder::{PrivateFolder, StorageError};
use crate::key::PublicKey;
use crate::ledger_error::LedgerError;
use crate::ledger_line::{
    Archived, CheckedLine, LedgerEvent, LedgerRecord, apply, check, parse, rotation,
};
use crate::limits::{LEDGER_BYTES_MAX, LEDGER_LINE_BYTES_MAX};
use crate::lines::{LineReader, Pair, PairError, PairReader, Step, Tail};
use crate::note::Checkpoint;
use crate::places::ledger_path;
use crate::tree::CompactRange;
use crate::writer::lock;

/// What the ledger knows of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LedgerRun {
    pub run: RunId,
    /// When the run's line was written, by the writer's clock.
    pub time: String,
    pub started: Checkpoint,
    pub ended: Option<Checkpoint>,
    pub sealed: Option<Checkpoint>,
    /// Its journal was moved out of the project.
    pub archived: Option<Archived>,
    /// The key that signs its journal; known where the ledger was read with a key.
    #[serde(serialize_with = "as_vkey")]
    pub public_key: Option<PublicKey>,
}

fn as_vkey<S: Serializer>(key: &Option<PublicKey>, serializer: S) -> Result<S::Ok, S::Error> {
    key.as_ref().map(PublicKey::vkey).serialize(serializer)
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
/// `key` is any key that the project signs or signed with: each change of the key is signed by
/// the old and the new one, so trust in one reaches the others.
///
/// # Errors
/// Only the reader's own.
pub fn read_ledger(
    mut reader: impl Read + Seek,
    key: Option<&PublicKey>,
) -> io::Result<LedgerReport> {
    let keys = match key {
        None => Keys::default(),
        Some(key) => Keys::around(key, claimed_keys(&mut reader)?),
    };
    let mut pairs = PairReader::new(reader, LEDGER_LINE_BYTES_MAX, LEDGER_BYTES_MAX);
    let mut reading = Reading {
        keys,
        ..Reading::default()
    };
    loop {
        let line = pairs.next_line();
        let fault = match pairs.step() {
            Ok(Step::Pair(pair)) => match reading.accept(&pair) {
                Ok(()) => continue,
                Err(reason) => Fault { line, reason },
            },
            Ok(Step::End(tail)) => match pairs.unpaired().map(parse) {
                // No write of this program ends so.
                Some(Err(reason)) => Fault { line, reason },
                None | Some(Ok(_)) => return Ok(reading.report(None, tail)),
            },
            Err(PairError::Io(error)) => return Err(error),
            Err(error) => Fault {
                line,
                reason: FaultReason::Size(error.to_string()),
            },
        };
        return Ok(reading.report(Some(fault), None));
    }
}

/// Reads the ledger of the project with the private folder `state`; `None` where there is none.
/// A file that no run would write to is refused: a link, no regular file, somebody else's.
///
/// # Errors
/// The file is unfit or cannot be read. What is wrong inside it stands in the report.
pub fn read_project_ledger(
    state: &Path,
    key: &PublicKey,
) -> Result<Option<LedgerReport>, LedgerError> {
    let opened = PrivateFolder::open_for(&ledger_path(state)).and_then(|(folder, name)| {
        let shown = folder.shown(&name);
        Ok((folder.open_file(&name)?, shown))
    });
    let (file, path) = match opened {
        Ok(opened) => opened,
        Err(StorageError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    lock(&file, FlockOperation::NonBlockingLockShared, &path)?;
    let action = "read";
    read_ledger(file, Some(key))
        .map(Some)
        .map_err(|source| LedgerError::Io {
            action,
            path,
            source,
        })
}

/// The runs that any line starts; nothing is checked.
pub(crate) fn started_runs(mut file: &File) -> io::Result<BTreeSet<RunId>> {
    // In a canonical line only a head of bounded length stands before it.
    const MARK: &[u8] = b"\"kind\":\"RunStarted\"";
    const MARK_WITHIN: usize = 512;
    file.rewind()?;
    let mut lines = LineReader::new(file);
    let mut runs = BTreeSet::new();
    while let Some(line) = lines.next(LEDGER_LINE_BYTES_MAX + 1)? {
        let start = line.get(..MARK_WITHIN).unwrap_or(&line);
        if !start.windows(MARK.len()).any(|part| part == MARK) {
            continue;
        }
        if let Ok(LedgerEvent::RunStarted { run, .. }) = parse(&line).map(|it| it.event) {
            runs.insert(run);
        }
    }
    Ok(runs)
}

/// The keys that the ledger's changes of the key name, oldest first. Nothing is checked yet.
fn claimed_keys(reader: &mut (impl Read + Seek)) -> io::Result<Vec<PublicKey>> {
    const MARK: &[u8] = b"\"kind\":\"KeyRotated\"";
    let mut keys = Vec::new();
    let mut pairs = PairReader::new(&mut *reader, LEDGER_LINE_BYTES_MAX, LEDGER_BYTES_MAX);
    loop {
        match pairs.step() {
            Ok(Step::Pair(pair)) if pair.record.windows(MARK.len()).any(|part| part == MARK) => {
                let Some((from, to)) = claimed_rotation(&pair.record) else {
                    break;
                };
                if keys.is_empty() {
                    keys.push(from);
                }
                keys.push(to);
            }
            Ok(Step::Pair(_)) => {}
            Err(PairError::Io(error)) => return Err(error),
            Ok(Step::End(_)) | Err(_) => break,
        }
    }
    reader.rewind()?;
    Ok(keys)
}

fn claimed_rotation(line: &[u8]) -> Option<(PublicKey, PublicKey)> {
    match parse(line).ok()?.event {
        LedgerEvent::KeyRotated { from, to } => rotation(&from, &to).ok(),
        _ => None,
    }
}

/// The keys of a ledger, and which line's turn it is.
#[derive(Default)]
struct Keys {
    /// Oldest first; empty where signatures are not checked.
    all: Vec<PublicKey>,
    /// Place of the key that the reader was given.
    trusted: usize,
    /// Place of the key that signs the next line.
    now: usize,
}

impl Keys {
    fn around(key: &PublicKey, claimed: Vec<PublicKey>) -> Self {
        match claimed.iter().position(|other| other == key) {
            Some(trusted) => Self {
                all: claimed,
                trusted,
                now: 0,
            },
            None => Self {
                all: vec![key.clone()],
                ..Self::default()
            },
        }
    }

    fn now(&self) -> Option<&PublicKey> {
        self.all.get(self.now)
    }

    /// Whether the lines so far are signed by the given key, or reached from it.
    const fn reached(&self) -> bool {
        self.now >= self.trusted
    }
}

/// The ledger up to some line.
#[derive(Default)]
struct Reading {
    keys: Keys,
    range: CompactRange,
    open: Vec<RunId>,
    runs: BTreeMap<u64, LedgerRun>,
    by_run: BTreeMap<RunId, u64>,
}

impl Reading {
    fn accept(&mut self, pair: &Pair) -> Result<(), FaultReason> {
        let CheckedLine {
            record,
            range,
            next_key,
        } = check(pair, self.keys.now())?;
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
        self.enter(record)?;
        if let (Some(to), false) = (next_key, self.keys.all.is_empty()) {
            self.keys.now += 1;
            if self.keys.now() != Some(&to) {
                return Err(FaultReason::Record(
                    "its key is not the next one".to_owned(),
                ));
            }
        }
        self.range = range;
        Ok(())
    }

    fn enter(&mut self, record: LedgerRecord) -> Result<(), FaultReason> {
        match record.event {
            LedgerEvent::RunStarted { run, checkpoint } => {
                if self.by_run.insert(run, record.seq).is_some() {
                    return Err(FaultReason::StartedAgain);
                }
                let known = LedgerRun {
                    run,
                    time: record.time,
                    started: checkpoint,
                    ended: None,
                    sealed: None,
                    archived: None,
                    public_key: self.keys.now().cloned(),
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
            LedgerEvent::RunArchived(archived) => {
                let known = self.run(archived.run).ok_or_else(|| {
                    FaultReason::Record("it archives a run that never started".to_owned())
                })?;
                known.archived = Some(archived);
            }
            LedgerEvent::KeyRotated { .. } => {}
        }
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
        // Of lines that the given key does not vouch for, nothing is said.
        let runs = match self.keys.reached() {
            true => self.runs.into_values().collect(),
            false => Vec::new(),
        };
        LedgerReport {
            runs,
            records: checkpoint.size,
            checkpoint,
            fault,
            tail,
        }
    }
}
