//! One call's records, with the proof that they stand in a signed journal, and nothing else.
//!
//! The file needs no journal to be checked: a signed checkpoint, the call's record lines, and the
//! audit path of each (RFC 6962 section 2.1.1) to the checkpoint's root.

use std::fmt;
use std::io::{self, Read};

use model::{Digest, RunId};
use serde::{Deserialize, Serialize};

use crate::chain::{Chain, Fault, FaultReason, check_pair};
use crate::event::Event;
use crate::key::PublicKey;
use crate::limits::{JOURNAL_BYTES_MAX, PROOF_BYTES_MAX, PROOF_RECORDS_MAX, RECORD_BYTES_MAX};
use crate::lines::{PairError, PairReader, Step};
use crate::note::{Checkpoint, Note, NoteError};
use crate::record::{Record, RecordError};
use crate::tree;

/// What a proof file says it is.
const KIND: &str = "symbi-call-proof";
const VERSION: u64 = 1;

/// Why a proof could not be made.
#[derive(Debug)]
pub enum ProveError {
    Io(io::Error),
    /// The journal is not what was signed.
    Fault(Fault),
    /// No record of the run belongs to such a call.
    NoSuchCall {
        call: String,
    },
    /// More records than a call can have.
    TooManyRecords {
        max: usize,
    },
}

impl fmt::Display for ProveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(_) => f.write_str("the journal could not be read"),
            Self::Fault(fault) => fault.fmt(f),
            Self::NoSuchCall { call } => {
                write!(f, "the run has no call `{}`", call.escape_debug())
            }
            Self::TooManyRecords { max } => write!(f, "the call has more than {max} records"),
        }
    }
}

impl std::error::Error for ProveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// Why a proof file proves nothing.
#[derive(Debug)]
pub enum ProofError {
    TooLarge {
        max: usize,
    },
    /// Not a proof file of this version.
    Format(String),
    Checkpoint(NoteError),
    /// The checkpoint is of another run, or its origin is not its signer's.
    Origin {
        found: String,
    },
    Record {
        index: u64,
        error: RecordError,
    },
    /// A record's own run, number or principal is not what the proof says, or it belongs to
    /// another call.
    OtherRecord {
        index: u64,
        what: &'static str,
    },
    /// The path does not lead from the record to the signed root.
    Path {
        index: u64,
    },
}

impl fmt::Display for ProofError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { max } => write!(f, "the proof file is larger than {max} bytes"),
            Self::Format(reason) => write!(f, "not a proof file: {}", reason.escape_debug()),
            Self::Checkpoint(error) => error.fmt(f),
            Self::Origin { found } => write!(
                f,
                "the checkpoint's origin `{}` is not that of the proof's run and key",
                found.escape_debug()
            ),
            Self::Record { index, error } => {
                write!(f, "record {index}: {}", error.to_string().escape_debug())
            }
            Self::OtherRecord { index, what } => {
                write!(f, "record {index} has another {what} than the proof says")
            }
            Self::Path { index } => write!(
                f,
                "record {index} is not in the signed journal: its path leads elsewhere"
            ),
        }
    }
}

impl std::error::Error for ProofError {}

/// A proof file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallProof {
    kind: String,
    v: u64,
    run: RunId,
    /// The call's id, or its digest in hexadecimal.
    call: String,
    /// A C2SP signed note.
    checkpoint: String,
    records: Vec<ProvedRecord>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProvedRecord {
    /// Place in the journal, from 0.
    index: u64,
    /// The record line, byte for byte, without its line feed.
    record: String,
    /// From the sibling up.
    path: Vec<Digest>,
}

/// What a good proof proves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckedProof {
    pub run: RunId,
    pub call: String,
    /// The head that the records are under.
    pub checkpoint: Checkpoint,
    /// No key was given: only the file's agreement with itself is known.
    pub self_consistent_only: bool,
    /// From the call's first record to its last: nothing of it is held back.
    pub complete: bool,
    pub records: Vec<Record>,
}

/// Which records are one call's. Publications are tied to it by its digest and their own id.
#[derive(Debug)]
pub struct CallFilter<'a> {
    call: &'a str,
    digest: Option<Digest>,
    publications: Vec<model::PublicationId>,
}

impl<'a> CallFilter<'a> {
    /// By the call's id, or its digest in hexadecimal.
    #[must_use]
    pub fn new(call: &'a str) -> Self {
        Self {
            call,
            digest: call.parse().ok(),
            publications: Vec::new(),
        }
    }

    /// Whether the event is the call's. A run's events come in their order.
    pub fn owns(&mut self, event: &Event) -> bool {
        let named = |id: &model::CallId| id.as_str() == self.call;
        match event {
            Event::CallDispatching(it) => {
                let own = named(&it.call_id) || self.digest == Some(it.call_sha256);
                if own {
                    self.digest = Some(it.call_sha256);
                }
                own
            }
            Event::CallRefused(it) => {
                named(&it.call_id) || (it.call_sha256.is_some() && it.call_sha256 == self.digest)
            }
            Event::CallWithdrawn(it) => named(&it.call_id),
            Event::FilePublicationPrepared(it) => {
                let own = self.digest == Some(it.call_sha256);
                if own {
                    self.publications.push(it.publication_id);
                }
                own
            }
            Event::FilePublicationFinished(it) => self.publications.contains(&it.publication_id),
            Event::CallSettled(it) => named(&it.call_id) || self.digest == Some(it.call_sha256),
            _ => false,
        }
    }
}

/// Makes the proof of one call (by its id or its digest) from the journal of `run`, up to the
/// journal's last whole record. Every record is checked on the way.
///
/// # Errors
/// [`ProveError`].
pub fn prove_call(
    reader: impl Read,
    run: Option<RunId>,
    key: Option<&PublicKey>,
    call: &str,
) -> Result<CallProof, ProveError> {
    let mut pairs = PairReader::new(reader, RECORD_BYTES_MAX, JOURNAL_BYTES_MAX);
    let mut chain = Chain::new(key.cloned(), run, true);
    let mut owner = CallFilter::new(call);
    let (mut leaves, mut found, mut last) = (Vec::new(), Vec::new(), None);
    loop {
        let line = pairs.next_line();
        let pair = match pairs.step() {
            Ok(Step::Pair(pair)) => pair,
            Ok(Step::End(_)) => break,
            Err(PairError::Io(error)) => return Err(ProveError::Io(error)),
            Err(error) => {
                let reason = FaultReason::Size(error.to_string());
                return Err(ProveError::Fault(Fault { line, reason }));
            }
        };
        let checked = check_pair(&pair, key).map_err(ProveError::Fault)?;
        chain.accept(&checked).map_err(ProveError::Fault)?;
        leaves.push(checked.record.digest);
        if owner.owns(&checked.record.event) {
            if found.len() >= PROOF_RECORDS_MAX {
                let max = PROOF_RECORDS_MAX;
                return Err(ProveError::TooManyRecords { max });
            }
            let text = String::from_utf8_lossy(&pair.record).into_owned();
            found.push((leaves.len() - 1, text));
        }
        last = Some(checked.note_text());
    }
    let no_such_call = || ProveError::NoSuchCall {
        call: call.to_owned(),
    };
    let (Some(run), Some(checkpoint), false) = (chain.run(), last, found.is_empty()) else {
        return Err(no_such_call());
    };
    let proved = |(index, record)| {
        let path = tree::audit_path(&leaves, index).ok_or_else(no_such_call)?;
        let index = index as u64;
        Ok(ProvedRecord {
            index,
            record,
            path,
        })
    };
    Ok(CallProof {
        kind: KIND.to_owned(),
        v: VERSION,
        run,
        call: call.to_owned(),
        checkpoint,
        records: found.into_iter().map(proved).collect::<Result<_, _>>()?,
    })
}

impl CallProof {
    /// The call's records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Reads a proof file, strictly. Nothing is proved yet.
    ///
    /// # Errors
    /// [`ProofError::TooLarge`], [`ProofError::Format`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ProofError> {
        if bytes.len() > PROOF_BYTES_MAX {
            let max = PROOF_BYTES_MAX;
            return Err(ProofError::TooLarge { max });
        }
        let proof: Self =
            serde_json::from_slice(bytes).map_err(|e| ProofError::Format(e.to_string()))?;
        let format = |reason: &str| Err(ProofError::Format(reason.to_owned()));
        match (proof.kind.as_str(), proof.v, proof.records.len()) {
            (KIND, VERSION, 1..=PROOF_RECORDS_MAX) => Ok(proof),
            (KIND, VERSION, _) => format("it has no records, or more than a call can have"),
            (KIND, _, _) => format("its version is not known"),
            _ => format("it is of another kind"),
        }
    }

    /// Checks that the records are one call's and stand in the journal that the checkpoint
    /// signs. Without a key the signature is not checked.
    ///
    /// # Errors
    /// [`ProofError`] says what does not fit.
    pub fn check(&self, key: Option<&PublicKey>) -> Result<CheckedProof, ProofError> {
        let note = Note::parse_note(&self.checkpoint).map_err(ProofError::Checkpoint)?;
        let signer = note
            .signed_by()
            .ok_or(ProofError::Checkpoint(NoteError::Unsigned))?;
        if let Some(key) = key {
            note.verify(key).map_err(ProofError::Checkpoint)?;
        }
        let name = signer.split_once('+').map_or("", |(name, _)| name);
        if note.origin != format!("{name}/{}", self.run) {
            return Err(ProofError::Origin { found: note.origin });
        }
        let head = note.checkpoint;
        let mut owner = CallFilter::new(&self.call);
        let mut records: Vec<Record> = Vec::with_capacity(self.records.len());
        for proved in &self.records {
            let record = proved.check(&head)?;
            let index = proved.index;
            let other = |what| ProofError::OtherRecord { index, what };
            if record.run != self.run {
                return Err(other("run"));
            }
            if let Some(before) = records.last()
                && (before.seq >= record.seq || before.principal != record.principal)
            {
                return Err(other("order or principal"));
            }
            if !owner.owns(&record.event) {
                return Err(other("call"));
            }
            records.push(record);
        }
        Ok(CheckedProof {
            run: self.run,
            call: self.call.clone(),
            checkpoint: head,
            self_consistent_only: key.is_none(),
            complete: is_complete(&records),
            records,
        })
    }
}

impl ProvedRecord {
    fn check(&self, head: &Checkpoint) -> Result<Record, ProofError> {
        let index = self.index;
        let line = self.record.as_bytes();
        let record = Record::parse(line).map_err(|error| ProofError::Record { index, error })?;
        if record.seq != index {
            let what = "number";
            return Err(ProofError::OtherRecord { index, what });
        }
        match tree::head_of_path(record.digest, index, head.size, &self.path) {
            Some(root) if root == head.root => Ok(record),
            _ => Err(ProofError::Path { index }),
        }
    }
}

/// A refusal or withdrawal alone, or all from the pre-effect record to the outcome, with the end
/// of each publication and an intent for each receipt.
fn is_complete(records: &[Record]) -> bool {
    let events: Vec<&Event> = records.iter().map(|record| &record.event).collect();
    let (intents, ends) = events.iter().fold((0, 0), |(intents, ends), it| match it {
        Event::FilePublicationPrepared(_) => (intents + 1, ends),
        Event::FilePublicationFinished(_) => (intents, ends + 1),
        _ => (intents, ends),
    });
    match events.as_slice() {
        [Event::CallRefused(_) | Event::CallWithdrawn(_)] => true,
        [Event::CallDispatching(_), .., Event::CallSettled(end)] => {
            intents == ends && intents >= end.created_files.len()
        }
        _ => false,
    }
}
