//! One ledger line: what it says, and what makes it right by itself.

use model::{Digest, RunId};
use serde::{Deserialize, Serialize};

use crate::chain::FaultReason;
use crate::key::PublicKey;
use crate::ledger_error::LedgerError;
use crate::limits::OPEN_RUNS_MAX;
use crate::lines::{Pair, Tail};
use crate::note::{Checkpoint, Note, NoteError};
use crate::record::RECORD_VERSION;
use crate::tree::{self, CompactRange};
use crate::verdict::Verdict;

/// The last part of a ledger's origin.
pub(crate) const ORIGIN: &str = "ledger";

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
    /// The run's journal was moved out of the project; this is what it was.
    RunArchived(Archived),
    /// The project signs with another key from the next line on. Both are verifier keys, and
    /// both sign this line's checkpoint.
    KeyRotated { from: String, to: String },
}

/// What an archived journal was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Archived {
    pub run: RunId,
    pub checkpoint: Checkpoint,
    pub verdict: Verdict,
    pub file_bytes: u64,
    pub file_sha256: Digest,
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
pub(crate) struct LedgerRecord {
    pub(crate) v: u64,
    pub(crate) seq: u64,
    pub(crate) time: String,
    /// An unfinished write that was cut away before this line.
    pub(crate) torn: Option<Tail>,
    /// The tree before this line.
    pub(crate) range: Vec<Digest>,
    /// The runs without an end after this line.
    pub(crate) open: Vec<RunId>,
    pub(crate) event: LedgerEvent,
}

/// Changes the open set as a line says.
pub(crate) fn apply(open: &mut Vec<RunId>, event: &LedgerEvent) -> Result<(), LedgerError> {
    let place = |run: &RunId| open.iter().position(|other| other == run);
    match event {
        LedgerEvent::RunStarted { run, .. } => {
            if place(run).is_some() {
                return Err(LedgerError::AlreadyOpen { run: *run });
            }
            if open.len() >= OPEN_RUNS_MAX {
                return Err(LedgerError::TooManyOpenRuns { max: OPEN_RUNS_MAX });
            }
            open.push(*run);
        }
        LedgerEvent::RunEnded { run, .. } | LedgerEvent::RunSealed(Seal { run, .. }) => {
            let at = place(run).ok_or(LedgerError::NotOpen { run: *run })?;
            open.remove(at);
        }
        LedgerEvent::RunArchived(Archived { run, .. }) if place(run).is_some() => {
            return Err(LedgerError::AlreadyOpen { run: *run });
        }
        // A run that lives would go on with the old key.
        LedgerEvent::KeyRotated { .. } if !open.is_empty() => {
            return Err(LedgerError::RunsOpen { runs: open.len() });
        }
        LedgerEvent::RunArchived(_) | LedgerEvent::KeyRotated { .. } => {}
    }
    Ok(())
}

pub(crate) fn parse(line: &[u8]) -> Result<LedgerRecord, FaultReason> {
    let record: LedgerRecord = serde_json::from_slice(line)
        .map_err(|error| FaultReason::Record(format!("not a ledger line: {error}")))?;
    match record.v {
        RECORD_VERSION => Ok(record),
        other => Err(FaultReason::Record(format!(
            "the line has version {other}; this program knows {RECORD_VERSION}"
        ))),
    }
}

pub(crate) struct CheckedLine {
    pub(crate) record: LedgerRecord,
    /// The tree after the line.
    pub(crate) range: CompactRange,
    /// The key that the next line is signed with, where this one changes it.
    pub(crate) next_key: Option<PublicKey>,
}

/// The keys that a rotation names.
pub(crate) fn rotation(from: &str, to: &str) -> Result<(PublicKey, PublicKey), FaultReason> {
    let read = |text| PublicKey::parse(text).map_err(|e| FaultReason::Record(e.to_string()));
    Ok((read(from)?, read(to)?))
}

/// Checks one pair of a ledger by itself: its form, its range against its root, its signature by
/// `key`; a rotation's by the key that it names too, whichever of the two `key` is.
pub(crate) fn check(pair: &Pair, key: Option<&PublicKey>) -> Result<CheckedLine, FaultReason> {
    let record = parse(&pair.record)?;
    let mut range = CompactRange::from_parts(record.seq, record.range.clone())
        .ok_or_else(|| FaultReason::Record("its range does not fit its number".to_owned()))?;
    range.push(tree::leaf(&pair.record));
    let (note, next_key) = check_note(&record.event, &pair.checkpoint)?;
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
        true => Ok(CheckedLine {
            record,
            range,
            next_key,
        }),
        false => Err(FaultReason::Root),
    }
}

/// Reads a line's note. A rotation's has two signatures, and both must be good.
fn check_note(event: &LedgerEvent, line: &[u8]) -> Result<(Note, Option<PublicKey>), FaultReason> {
    let LedgerEvent::KeyRotated { from, to } = event else {
        let note = Note::parse(line).map_err(FaultReason::Checkpoint)?;
        return Ok((note, None));
    };
    let (from, to) = rotation(from, to)?;
    let note = Note::parse_cosigned(line).map_err(FaultReason::Checkpoint)?;
    for key in [&from, &to] {
        note.verify(key).map_err(FaultReason::Checkpoint)?;
    }
    Ok((note, Some(to)))
}
