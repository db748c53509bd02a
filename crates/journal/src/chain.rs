//! What makes pairs of lines one run: each pair by itself, then their order.

use std::collections::BTreeSet;
use std::fmt;

use model::RunId;
use serde::{Serialize, Serializer};

use crate::event::Event;
use crate::evidence::EvidenceFile;
use crate::journal::origin;
use crate::key::PublicKey;
use crate::lines::Pair;
use crate::note::{Checkpoint, Note, NoteError};
use crate::record::{Record, RecordError};
use crate::tree::CompactRange;

/// The first thing that is wrong with a journal, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Line number, from 1.
    pub line: u64,
    pub reason: FaultReason,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultReason {
    /// The line is too long, or the file too large.
    Size(String),
    /// The line is no record that this program knows.
    Record(String),
    Checkpoint(NoteError),
    Sequence {
        expected: u64,
        found: u64,
    },
    Run {
        expected: RunId,
        found: RunId,
    },
    Principal {
        expected: String,
        found: String,
    },
    Origin {
        expected: String,
        found: String,
    },
    TreeSize {
        expected: u64,
        found: u64,
    },
    /// The records up to here are not those that were signed.
    Root,
    /// The first record is not the run's start.
    NotStarted,
    /// A second start.
    StartedAgain,
    /// Something follows the terminal record.
    AfterEnd,
    /// There is no whole record.
    Empty,
    /// The ledger or an anchor knows another head of this size.
    OtherHead {
        size: u64,
    },
    /// The ledger or an anchor knows more records.
    Missing {
        known: u64,
        found: u64,
    },
    /// The ledger or an anchor knows an end before these records.
    Longer {
        known: u64,
        found: u64,
    },
    /// The file changed while it was read.
    Changed,
    /// The file is not there.
    Absent,
}

impl From<RecordError> for FaultReason {
    fn from(error: RecordError) -> Self {
        Self::Record(error.to_string())
    }
}

impl Serialize for FaultReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for FaultReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(reason) | Self::Record(reason) => write!(f, "{}", reason.escape_debug()),
            Self::Checkpoint(error) => error.fmt(f),
            Self::Sequence { expected, found } => {
                write!(
                    f,
                    "the record has number {found} where {expected} must stand"
                )
            }
            Self::Run { expected, found } => {
                write!(f, "the record belongs to run {found}, not to {expected}")
            }
            Self::Principal { expected, found } => write!(
                f,
                "the record's principal is `{}`, not `{}`",
                found.escape_debug(),
                expected.escape_debug()
            ),
            Self::Origin { expected, found } => write!(
                f,
                "the checkpoint's origin is `{}`, not `{}`",
                found.escape_debug(),
                expected.escape_debug()
            ),
            Self::TreeSize { expected, found } => {
                write!(
                    f,
                    "the checkpoint counts {found} records where there are {expected}"
                )
            }
            Self::Root => f.write_str("the records up to here are not those that were signed"),
            Self::NotStarted => f.write_str("the first record is not the run's start"),
            Self::StartedAgain => f.write_str("the run starts a second time"),
            Self::AfterEnd => f.write_str("something follows the terminal record"),
            Self::Empty => f.write_str("there is no whole record"),
            Self::OtherHead { size } => {
                write!(f, "another history of {size} records was witnessed")
            }
            Self::Missing { known, found } => {
                write!(f, "{known} records were witnessed, and {found} are here")
            }
            Self::Longer { known, found } => {
                write!(
                    f,
                    "the run ended with {known} records, and {found} are here"
                )
            }
            Self::Changed => f.write_str("the file changed while it was read"),
            Self::Absent => f.write_str("the file is not there"),
        }
    }
}

/// A pair whose record, note and signature are good by themselves.
pub(crate) struct CheckedPair {
    pub(crate) record: Record,
    line: u64,
    note: Note,
}

impl CheckedPair {
    /// The pair's signed note.
    pub(crate) fn note_text(&self) -> String {
        self.note.to_text()
    }
}

/// Checks what one pair says by itself: the part that runs in parallel.
pub(crate) fn check_pair(pair: &Pair, key: Option<&PublicKey>) -> Result<CheckedPair, Fault> {
    let line = pair.line;
    let record = Record::parse(&pair.record).map_err(|e| Fault {
        line,
        reason: FaultReason::from(e),
    })?;
    let note = Note::parse(&pair.checkpoint)
        .and_then(|note| key.map_or(Ok(()), |key| note.verify(key)).map(|()| note))
        .map_err(|error| Fault {
            line: line + 1,
            reason: FaultReason::Checkpoint(error),
        })?;
    Ok(CheckedPair { record, line, note })
}

/// A run's records so far.
pub(crate) struct Chain {
    key: Option<PublicKey>,
    signed: bool,
    wanted: Option<RunId>,
    run: Option<RunId>,
    principal: Option<String>,
    signed_by: Option<String>,
    range: CompactRange,
    good: Option<Checkpoint>,
    ended: Option<bool>,
    completed: Option<bool>,
    evidence: BTreeSet<EvidenceFile>,
}

impl Chain {
    /// A chain of `run`, or of whatever run its first record names. `signed`: unsigned notes
    /// are a fault also where no key is known.
    pub(crate) fn new(key: Option<PublicKey>, run: Option<RunId>, signed: bool) -> Self {
        Self {
            key,
            signed,
            wanted: run,
            run,
            principal: None,
            signed_by: None,
            range: CompactRange::default(),
            good: None,
            ended: None,
            completed: None,
            evidence: BTreeSet::new(),
        }
    }

    /// Takes the next pair, if it is the one that must follow.
    pub(crate) fn accept(&mut self, pair: &CheckedPair) -> Result<(), Fault> {
        self.accept_record(&pair.record).map_err(|reason| Fault {
            line: pair.line,
            reason,
        })?;
        let head = self.accept_note(&pair.note).map_err(|reason| Fault {
            line: pair.line + 1,
            reason,
        })?;
        self.good = Some(head);
        self.completed = self.ended;
        self.evidence.extend(pair.record.event.evidence());
        Ok(())
    }

    fn accept_record(&mut self, record: &Record) -> Result<(), FaultReason> {
        if self.completed.is_some() {
            return Err(FaultReason::AfterEnd);
        }
        let (expected, found) = (self.range.size(), record.seq);
        if found != expected {
            return Err(FaultReason::Sequence { expected, found });
        }
        let (expected, found) = (*self.run.get_or_insert(record.run), record.run);
        if found != expected {
            return Err(FaultReason::Run { expected, found });
        }
        let expected = self
            .principal
            .get_or_insert_with(|| record.principal.clone());
        if *expected != record.principal {
            let (expected, found) = (expected.clone(), record.principal.clone());
            return Err(FaultReason::Principal { expected, found });
        }
        match (&record.event, record.seq) {
            (Event::RunStarted(_), 0) => {}
            (_, 0) => return Err(FaultReason::NotStarted),
            (Event::RunStarted(_), _) => return Err(FaultReason::StartedAgain),
            (Event::RunEnded(end), _) => self.ended = Some(end.completed),
            _ => {}
        }
        self.range.push(record.digest);
        Ok(())
    }

    fn accept_note(&mut self, note: &Note) -> Result<Checkpoint, FaultReason> {
        let signed_by = note.signed_by();
        if self.signed && signed_by.is_none() {
            return Err(FaultReason::Checkpoint(NoteError::Unsigned));
        }
        let name = signed_by.clone().unwrap_or_default();
        match &self.signed_by {
            None => self.signed_by = Some(name),
            Some(expected) if *expected != name => {
                let (expected, found) = (expected.clone(), name);
                return Err(FaultReason::Checkpoint(NoteError::OtherKey {
                    expected,
                    found,
                }));
            }
            Some(_) => {}
        }
        let run = self.run.map(|run| run.to_string()).unwrap_or_default();
        let expected = match (&self.key, &signed_by) {
            (None, Some(name)) => {
                format!(
                    "{}/{run}",
                    name.split_once('+').map_or("", |(name, _)| name)
                )
            }
            (key, _) => origin(key.as_ref(), &run),
        };
        if note.origin != expected {
            let found = note.origin.clone();
            return Err(FaultReason::Origin { expected, found });
        }
        let (expected, found) = (self.range.size(), note.checkpoint.size);
        if found != expected {
            return Err(FaultReason::TreeSize { expected, found });
        }
        match note.checkpoint.root == self.range.root() {
            true => Ok(note.checkpoint),
            false => Err(FaultReason::Root),
        }
    }

    /// The wanted run, or the one that the checked records name.
    pub(crate) fn run(&self) -> Option<RunId> {
        self.wanted.or(self.good.and(self.run))
    }

    /// The principal of the checked records.
    pub(crate) fn principal(&self) -> Option<&str> {
        self.good.and(self.principal.as_deref())
    }

    /// How many records are whole and checked.
    pub(crate) fn records(&self) -> u64 {
        self.head().size
    }

    /// Their head.
    pub(crate) fn head(&self) -> Checkpoint {
        self.good.unwrap_or_else(|| Checkpoint {
            size: 0,
            root: CompactRange::default().root(),
        })
    }

    /// The evidence files that the checked records name.
    pub(crate) fn evidence(&self) -> Vec<EvidenceFile> {
        self.evidence.iter().copied().collect()
    }

    /// What the terminal record says, once it was seen.
    pub(crate) const fn completed(&self) -> Option<bool> {
        self.completed
    }
}
