//! A record line: the envelope around an event, canonical when written, strict when read.

use std::fmt;

use model::json::CanonicalError;
use model::{Canonical, Digest, RunId};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::event::{Event, Payload};
use crate::tree;

/// The version of the record format.
pub const RECORD_VERSION: u64 = 1;

#[derive(Serialize)]
struct Written<'a, T> {
    v: u64,
    run: &'a RunId,
    seq: u64,
    time: &'a str,
    principal: &'a str,
    event: Tagged<'a, T>,
}

#[derive(Serialize)]
struct Tagged<'a, T> {
    kind: &'static str,
    #[serde(flatten)]
    payload: &'a T,
}

/// The envelope of a new record.
pub(crate) struct Envelope<'a> {
    pub(crate) run: &'a RunId,
    pub(crate) seq: u64,
    pub(crate) principal: &'a str,
}

impl Envelope<'_> {
    /// The record line of `payload`, without its line feed.
    pub(crate) fn write<T: Payload>(&self, payload: &T) -> Result<Canonical, CanonicalError> {
        let line = Written {
            v: RECORD_VERSION,
            run: self.run,
            seq: self.seq,
            time: &now(),
            principal: self.principal,
            event: Tagged {
                kind: T::KIND,
                payload,
            },
        };
        Canonical::of(&line)
    }
}

/// The wall clock as RFC 3339 in UTC with microseconds.
pub(crate) fn now() -> String {
    let now = OffsetDateTime::now_utc();
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z",
        now.year(),
        u8::from(now.month()),
        now.day(),
        now.hour(),
        now.minute(),
        now.second(),
        now.microsecond()
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    v: u64,
    run: RunId,
    seq: u64,
    time: String,
    principal: String,
    event: Event,
}

/// A record as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Record {
    pub run: RunId,
    pub seq: u64,
    /// RFC 3339, UTC: what the writer's clock said. Nothing relies on it.
    pub time: String,
    pub principal: String,
    pub event: Event,
    /// The record's leaf hash: what a [`crate::Recorded`] calls its digest.
    pub digest: Digest,
}

/// Why a line is not a record.
#[derive(Debug)]
pub enum RecordError {
    /// Another format than this program knows.
    Version { found: u64 },
    /// Not strict JSON, an unknown event or field, or a value outside its type.
    Json(serde_json::Error),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { found } => {
                write!(
                    f,
                    "the record has version {found}; this program knows {RECORD_VERSION}"
                )
            }
            Self::Json(error) => write!(f, "not a record: {error}"),
        }
    }
}

impl std::error::Error for RecordError {}

#[derive(Deserialize)]
struct Version {
    v: u64,
}

impl Record {
    /// Reads a record line (without its line feed), strictly.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, RecordError> {
        match serde_json::from_slice::<Read>(line) {
            Ok(Read {
                v: RECORD_VERSION,
                run,
                seq,
                time,
                principal,
                event,
            }) => Ok(Self {
                run,
                seq,
                time,
                principal,
                event,
                digest: tree::leaf(line),
            }),
            Ok(Read { v, .. }) => Err(RecordError::Version { found: v }),
            Err(error) => match serde_json::from_slice::<Version>(line) {
                Ok(Version { v }) if v != RECORD_VERSION => Err(RecordError::Version { found: v }),
                _ => Err(RecordError::Json(error)),
            },
        }
    }
}
