//! Signed statements about a dead run: what its operator did or decided after it.
//!
//! The run's own journal is evidence and gets no byte more. A statement is a small journal of
//! its own, complete when it appears: a start without tools, its facts, an end. So whatever
//! verifies a run verifies a statement.

use std::fmt;

use journal::{
    Client, Custom, Event, Fault, Journal, JournalError, MemoryWriter, PublicKey, ReadError,
    Record, RunEnded, RunSigner, RunStarted, Verdict, VerifyOptions, read_run, verify_run,
};
use model::{Canonical, Digest, RunId};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Who makes statements.
const PRINCIPAL: &str = "operator";

/// Why a statement could not be made.
#[derive(Debug)]
pub enum StatementError {
    Journal(JournalError),
    Encode(model::json::CanonicalError),
}

impl fmt::Display for StatementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the statement cannot be signed")
    }
}

impl std::error::Error for StatementError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Journal(error) => Some(error),
            Self::Encode(error) => Some(error),
        }
    }
}

/// Why bytes are no statement of the project's operator.
#[derive(Debug)]
pub enum Forgery {
    Unreadable,
    Verdict(Verdict, Option<Fault>),
    /// It is signed, and it speaks of something else.
    OtherSubject,
}

impl fmt::Display for Forgery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable => f.write_str("it cannot be read"),
            Self::Verdict(verdict, Some(fault)) => write!(f, "it is {verdict}: {fault}"),
            Self::Verdict(verdict, None) => write!(f, "it is {verdict}"),
            Self::OtherSubject => f.write_str("it speaks of something else"),
        }
    }
}

/// One fact as the event that carries it.
pub(crate) fn fact<T: Serialize>(kind: &str, value: &T) -> Result<Custom, StatementError> {
    let value = Canonical::of(value).map_err(StatementError::Encode)?;
    Ok(Custom {
        custom_kind: kind.to_owned(),
        digest: value.digest(),
        value: value.as_str().to_owned(),
    })
}

/// The bytes of a statement of `fact`, signed.
pub(crate) fn sign(fact: Custom, signer: RunSigner) -> Result<Vec<u8>, StatementError> {
    let writer = MemoryWriter::default();
    let journal = Journal::new(
        Box::new(writer.clone()),
        Some(signer),
        RunId::new(),
        PRINCIPAL.to_owned(),
    );
    let nothing = Digest::of(b"");
    let start = RunStarted {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        project: String::new(),
        client: Client::Operator,
        tools: Vec::new(),
        tool_set_sha256: nothing,
        policy_sha256: nothing,
        init_sha256: None,
        max_calls: 0,
        lifetime_ms: 0,
        tool_time_ms: 0,
    };
    let end = RunEnded {
        completed: true,
        cause: None,
        calls: 0,
    };
    let (_, _) = journal
        .record2(start, fact)
        .map_err(StatementError::Journal)?;
    let _ = journal.record(end).map_err(StatementError::Journal)?;
    Ok(writer.bytes())
}

/// A fact of a statement that one of `keys` signed.
#[derive(Debug, Clone)]
pub(crate) struct Stated<T> {
    /// When it was signed, by the signer's clock: RFC 3339, UTC.
    pub(crate) time: String,
    pub(crate) fact: T,
}

/// Checks and reads a statement whose fact has this kind.
pub(crate) fn read<T: DeserializeOwned>(
    bytes: &[u8],
    kind: &str,
    keys: &[PublicKey],
) -> Result<Stated<T>, Forgery> {
    let mut refused = Forgery::Unreadable;
    for key in keys {
        let options = VerifyOptions {
            public_key: Some(key.clone()),
            ..VerifyOptions::default()
        };
        let report = verify_run(bytes, &options).map_err(|_| Forgery::Unreadable)?;
        if report.verdict == Verdict::Intact {
            return of_records(read_run(bytes, None, Some(key)), kind);
        }
        refused = Forgery::Verdict(report.verdict, report.fault);
    }
    Err(refused)
}

fn of_records<T: DeserializeOwned>(
    records: impl Iterator<Item = Result<Record, ReadError>>,
    kind: &str,
) -> Result<Stated<T>, Forgery> {
    for record in records {
        let Record { time, event, .. } = record.map_err(|_| Forgery::Unreadable)?;
        if let Event::Custom(it) = event {
            let fact = match it.custom_kind == kind {
                true => serde_json::from_str(&it.value).map_err(|_| Forgery::Unreadable)?,
                false => return Err(Forgery::OtherSubject),
            };
            return Ok(Stated { time, fact });
        }
    }
    Err(Forgery::OtherSubject)
}
