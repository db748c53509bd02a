//! Reads a journal or ledger as pairs of lines, trusting no length that the file claims.

use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read};

use model::{Digest, Hasher};
use serde::{Deserialize, Serialize};

use crate::limits::CHECKPOINT_LINE_BYTES_MAX;

/// A record line and its checkpoint line, without their line feeds.
#[derive(Debug)]
pub(crate) struct Pair {
    /// Line number of the record, from 1.
    pub(crate) line: u64,
    pub(crate) record: Vec<u8>,
    pub(crate) checkpoint: Vec<u8>,
}

impl Pair {
    pub(crate) fn len(&self) -> usize {
        self.record.len() + self.checkpoint.len() + 2
    }
}

/// What follows the last whole pair: a write that did not finish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tail {
    pub bytes: u64,
    pub sha256: Digest,
}

/// Why the file cannot be read as pairs.
#[derive(Debug)]
pub(crate) enum PairError {
    Io(io::Error),
    LineTooLong { max: usize },
    FileTooLarge { max: u64 },
}

impl fmt::Display for PairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::LineTooLong { max } => {
                write!(f, "the line is longer than the {max} bytes allowed")
            }
            Self::FileTooLarge { max } => write!(f, "the file is larger than {max} bytes"),
        }
    }
}

pub(crate) enum Step {
    Pair(Pair),
    End(Option<Tail>),
}

pub(crate) struct PairReader<R> {
    reader: BufReader<R>,
    line: u64,
    bytes: u64,
    record_max: usize,
    file_max: u64,
    whole: Hasher,
    unpaired: Option<Vec<u8>>,
}

impl<R: Read> PairReader<R> {
    pub(crate) fn new(reader: R, record_max: usize, file_max: u64) -> Self {
        let reader = BufReader::with_capacity(64 << 10, reader);
        Self {
            reader,
            line: 0,
            bytes: 0,
            record_max,
            file_max,
            whole: Hasher::new(),
            unpaired: None,
        }
    }

    /// The next pair, or what stands after the last one.
    pub(crate) fn step(&mut self) -> Result<Step, PairError> {
        let mut record = Vec::new();
        if !self.read_line(&mut record, self.record_max)? {
            return Ok(Step::End(tail(&record, &[])));
        }
        let line = self.line;
        let mut checkpoint = Vec::new();
        if !self.read_line(&mut checkpoint, CHECKPOINT_LINE_BYTES_MAX)? {
            let line = record.clone();
            record.push(b'\n');
            self.unpaired = Some(line);
            return Ok(Step::End(tail(&record, &checkpoint)));
        }
        Ok(Step::Pair(Pair {
            line,
            record,
            checkpoint,
        }))
    }

    /// Reads the rest without looking at it. Returns the size and hash of the whole file.
    pub(crate) fn finish(mut self) -> io::Result<(u64, Digest)> {
        let mut buffer = Vec::new();
        while self.bytes <= self.file_max {
            buffer.clear();
            let read = self
                .reader
                .by_ref()
                .take(64 << 10)
                .read_to_end(&mut buffer)?;
            if read == 0 {
                break;
            }
            self.bytes = self.bytes.saturating_add(read as u64);
            self.whole.update(&buffer);
        }
        Ok((self.bytes, self.whole.finish()))
    }

    /// Reads one line into `into`, its line feed removed; false where the file ended before it.
    fn read_line(&mut self, into: &mut Vec<u8>, max: usize) -> Result<bool, PairError> {
        let limit = max as u64 + 1;
        let read = self
            .reader
            .by_ref()
            .take(limit)
            .read_until(b'\n', into)
            .map_err(PairError::Io)?;
        self.whole.update(into);
        self.bytes = self.bytes.saturating_add(read as u64);
        if self.bytes > self.file_max {
            return Err(PairError::FileTooLarge { max: self.file_max });
        }
        if into.last() == Some(&b'\n') {
            into.pop();
            self.line += 1;
            return Ok(true);
        }
        match read as u64 == limit {
            true => Err(PairError::LineTooLong { max }),
            false => Ok(false),
        }
    }

    /// The whole line that the tail begins with, if there is one.
    pub(crate) fn unpaired(&self) -> Option<&[u8]> {
        self.unpaired.as_deref()
    }

    /// Number of the line that comes next, from 1.
    pub(crate) const fn next_line(&self) -> u64 {
        self.line + 1
    }
}

/// Lines of a file that anybody may have written, in bounded memory.
pub(crate) struct LineReader<R> {
    reader: BufReader<R>,
}

impl<R: Read> LineReader<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self {
            reader: BufReader::new(reader),
        }
    }

    /// The last `max` bytes, or a little more, of the next line, without its line feed; `None`
    /// at the end.
    pub(crate) fn next(&mut self, max: usize) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        loop {
            let limit = max as u64;
            let read = self
                .reader
                .by_ref()
                .take(limit)
                .read_until(b'\n', &mut line)?;
            if line.last() == Some(&b'\n') {
                line.pop();
                return Ok(Some(line));
            }
            if read == 0 {
                return Ok((!line.is_empty()).then_some(line));
            }
            // Of a longer line the end counts.
            let drop = line.len().saturating_sub(max);
            line.drain(..drop);
        }
    }
}

fn tail(first: &[u8], second: &[u8]) -> Option<Tail> {
    let bytes = (first.len() + second.len()) as u64;
    let mut hasher = Hasher::new();
    hasher.update(first);
    hasher.update(second);
    (bytes > 0).then(|| Tail {
        bytes,
        sha256: hasher.finish(),
    })
}
