//! Typed records of a journal, one after the other: for people who read it, and for recovery.

use std::fmt;
use std::io::{self, Read};

use model::RunId;

use crate::chain::{Chain, Fault, FaultReason, check_pair};
use crate::key::PublicKey;
use crate::limits::{JOURNAL_BYTES_MAX, RECORD_BYTES_MAX};
use crate::lines::{PairError, PairReader, Step, Tail};
use crate::record::Record;

/// Why the next record cannot be read.
#[derive(Debug)]
pub enum ReadError {
    Io(io::Error),
    Fault(Fault),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(_) => f.write_str("the journal cannot be read"),
            Self::Fault(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Fault(_) => None,
        }
    }
}

/// The records of a journal, each checked before it is given: order, tree and, with a key, the
/// signature. Ends after the last whole pair or the first error.
pub struct RunReader<R> {
    pairs: PairReader<R>,
    chain: Chain,
    key: Option<PublicKey>,
    done: bool,
    tail: Option<Tail>,
}

impl<R> fmt::Debug for RunReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunReader(after {} records)", self.chain.records())
    }
}

/// Reads the journal of `run` (of whatever run, without). Without a key no signature is checked.
pub fn read_run<R: Read>(
    reader: R,
    run: Option<RunId>,
    public_key: Option<&PublicKey>,
) -> RunReader<R> {
    RunReader {
        pairs: PairReader::new(reader, RECORD_BYTES_MAX, JOURNAL_BYTES_MAX),
        chain: Chain::new(public_key.cloned(), run, public_key.is_some()),
        key: public_key.cloned(),
        done: false,
        tail: None,
    }
}

impl<R> RunReader<R> {
    /// After the end: the bytes of a write that did not finish.
    pub const fn tail(&self) -> Option<&Tail> {
        self.tail.as_ref()
    }
}

impl<R: Read> Iterator for RunReader<R> {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let line = self.pairs.next_line();
        let read = match self.pairs.step() {
            Ok(Step::Pair(pair)) => check_pair(&pair, self.key.as_ref())
                .and_then(|checked| self.chain.accept(&checked).map(|()| checked.record))
                .map_err(ReadError::Fault),
            Ok(Step::End(tail)) => {
                self.done = true;
                self.tail = tail;
                return None;
            }
            Err(PairError::Io(error)) => Err(ReadError::Io(error)),
            Err(error) => {
                let reason = FaultReason::Size(error.to_string());
                Err(ReadError::Fault(Fault { line, reason }))
            }
        };
        self.done = read.is_err();
        Some(read)
    }
}
