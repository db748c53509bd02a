//! The project's ledger: which runs there were, and how far each got.
//!
//! A journal cannot show that its own tail is missing; the ledger can. Each line carries its
//! compact range and the set of open runs, so that an append reads the last pair only.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use faults::{Point, reach};
use model::{Canonical, Digest, RunId};
use rustix::fs::FlockOperation;

use crate::chain::FaultReason;
use crate::folder::{PrivateFolder, StorageError};
use crate::journal::origin;
use crate::key::{ProjectKey, RunSigner};
use crate::ledger_error::LedgerError;
use crate::ledger_line::{Archived, LedgerEvent, LedgerRecord, ORIGIN, Seal, apply, check, parse};
use crate::ledger_read::{LedgerReport, read_ledger, started_runs};
use crate::limits::{CHECKPOINT_LINE_BYTES_MAX, LEDGER_BYTES_MAX, LEDGER_LINE_BYTES_MAX};
use crate::lines::{Pair, Tail};
use crate::note::{Checkpoint, Note, NoteError, checkpoint_line};
use crate::record::{RECORD_VERSION, now};
use crate::tree::{self, CompactRange};
use crate::writer::lock;

/// Largest pair of a ledger, and so its largest torn tail.
const PAIR_BYTES_MAX: usize = LEDGER_LINE_BYTES_MAX + CHECKPOINT_LINE_BYTES_MAX + 2;

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
        self.append(vec![LedgerEvent::RunStarted { run, checkpoint }], None)
    }

    /// Enters a run's terminal head.
    ///
    /// # Errors
    /// [`LedgerError::NotOpen`], and whatever makes the file unfit.
    pub fn run_ended(&mut self, run: RunId, checkpoint: Checkpoint) -> Result<(), LedgerError> {
        self.append(vec![LedgerEvent::RunEnded { run, checkpoint }], None)
    }

    /// Enters what dead runs left; those that another process entered meanwhile are passed over.
    ///
    /// # Errors
    /// Whatever makes the file unfit.
    pub fn seal(&mut self, seals: Vec<Seal>) -> Result<(), LedgerError> {
        match seals.is_empty() {
            true => Ok(()),
            false => {
                let seals = seals.into_iter().map(LedgerEvent::RunSealed);
                self.append(seals.collect(), None)
            }
        }
    }

    /// Enters dead runs that the ledger does not know yet, each as started and sealed at once.
    /// Returns those that it entered.
    pub(crate) fn adopt(&mut self, mut seals: Vec<Seal>) -> Result<Vec<Seal>, LedgerError> {
        if seals.is_empty() {
            return Ok(seals);
        }
        // Under the lock: another process may have been first.
        let events = |file: &File| {
            let known = started_runs(file)?;
            seals.retain(|seal| !known.contains(&seal.run));
            let both = seals.iter().flat_map(|seal| {
                let (run, checkpoint) = (seal.run, seal.checkpoint);
                let started = LedgerEvent::RunStarted { run, checkpoint };
                [started, LedgerEvent::RunSealed(seal.clone())]
            });
            Ok(both.collect())
        };
        self.append_with(events, None)?;
        Ok(seals)
    }

    /// Enters that a run's journal was copied elsewhere: before the original is removed.
    ///
    /// # Errors
    /// [`LedgerError::AlreadyOpen`] for a run without an end, and whatever makes the file unfit.
    pub fn run_archived(&mut self, archived: Archived) -> Result<(), LedgerError> {
        self.append(vec![LedgerEvent::RunArchived(archived)], None)
    }

    /// Enters the change to the key `to`, signed by both, and signs with it from then on.
    ///
    /// # Errors
    /// [`LedgerError::RunsOpen`], and whatever makes the file unfit.
    pub fn rotate(&mut self, to: &ProjectKey) -> Result<(), LedgerError> {
        let event = LedgerEvent::KeyRotated {
            from: self.signer.public().vkey(),
            to: to.vkey(),
        };
        self.append(vec![event], Some(&to.signer()))?;
        self.signer = to.signer();
        Ok(())
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

    fn append(
        &mut self,
        events: Vec<LedgerEvent>,
        cosigner: Option<&RunSigner>,
    ) -> Result<(), LedgerError> {
        self.append_with(|_| Ok(events), cosigner)
    }

    /// Appends what `events` makes of the locked file.
    fn append_with(
        &mut self,
        events: impl FnOnce(&File) -> io::Result<Vec<LedgerEvent>>,
        cosigner: Option<&RunSigner>,
    ) -> Result<(), LedgerError> {
        if self.failed {
            return Err(LedgerError::Failed);
        }
        let file = self.open_or_create()?;
        self.lock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let mut end = self.read_end(&file)?;
        let events = events(&file).map_err(self.io("read"))?;
        let lines = self.lines(&mut end, events, cosigner)?;
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

    fn lines(
        &self,
        end: &mut End,
        events: Vec<LedgerEvent>,
        cosigner: Option<&RunSigner>,
    ) -> Result<Vec<u8>, LedgerError> {
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
                &checkpoint_line(&origin, &head, [&self.signer].into_iter().chain(cosigner)),
            ] {
                bytes.extend_from_slice(line.as_bytes());
                bytes.push(b'\n');
            }
        }
        Ok(bytes)
    }

    /// Finds the last whole pair and checks it, reading no more than two pairs can take.
    fn read_end(&self, file: &File) -> Result<End, LedgerError> {
        let (window, start) = last_window(file).map_err(self.io("read"))?;
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
        let checked = check(&pair, Some(self.signer.public())).map_err(|reason| {
            self.rotated(&pair).unwrap_or_else(|| match reason {
                FaultReason::Checkpoint(NoteError::OtherKey { found, expected }) => {
                    LedgerError::OtherKey {
                        path: self.shown(),
                        found,
                        ours: expected,
                    }
                }
                reason => corrupt(reason.to_string()),
            })
        })?;
        if let Some(to) = checked.next_key.filter(|to| to != self.signer.public()) {
            return Err(LedgerError::Rotated { to: to.vkey() });
        }
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

    /// Whether the last pair is a good change of the key, of which this handle knows nothing.
    fn rotated(&self, pair: &Pair) -> Option<LedgerError> {
        let to = check(pair, None).ok()?.next_key?;
        Some(LedgerError::Rotated { to: to.vkey() })
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
    let written = faults::write(Point::LedgerWrite, &mut file, lines)?;
    if written != lines.len() {
        let text = format!("only {written} of {} bytes were written", lines.len());
        return Err(io::Error::new(io::ErrorKind::WriteZero, text));
    }
    reach(Point::LedgerSync)?;
    file.sync_data()
}

fn torn(tail: &[u8]) -> Option<Tail> {
    (!tail.is_empty()).then(|| Tail {
        bytes: tail.len() as u64,
        sha256: Digest::of(tail),
    })
}

/// The key that signs the ledger at `path` by now, as its last line names it; `None` where there is
/// no line. No signature is checked.
///
/// # Errors
/// [`LedgerError`] where the file cannot be read.
pub fn ledger_signer(path: &Path) -> Result<Option<String>, LedgerError> {
    let (folder, name) = PrivateFolder::open_for(path)?;
    if !folder.contains(&name)? {
        return Ok(None);
    }
    let file = folder.open_file(&name)?;
    let (window, _) = last_window(&file).map_err(|source| LedgerError::Io {
        action: "read",
        path: folder.shown(&name),
        source,
    })?;
    let pair = last_pair(&window).map(|(pair, _)| pair);
    let note = pair.and_then(|pair| Note::parse_cosigned(&pair.checkpoint).ok());
    Ok(note.and_then(|note| note.last_signer()))
}

/// The end of a ledger's file, no more than two pairs can take, and where it begins.
fn last_window(file: &File) -> io::Result<(Vec<u8>, u64)> {
    let size = file.metadata()?.len();
    let start = size.saturating_sub(2 * PAIR_BYTES_MAX as u64);
    let mut window = vec![0; usize::try_from(size - start).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut window, start)?;
    Ok((window, start))
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
