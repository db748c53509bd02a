//! The quick verdict: one signature, the last one, and the tree under it.
//!
//! A signed root vouches for every record line before it. What it does not vouch for is the other
//! checkpoint lines, and that each record by itself is one that this program knows; the full
//! verification looks at those.

use std::io::{self, Read};

use crate::chain::{Fault, FaultReason};
use crate::event::Event;
use crate::journal::origin;
use crate::limits::{JOURNAL_BYTES_MAX, RECORD_BYTES_MAX};
use crate::lines::{Pair, PairError, PairReader};
use crate::note::{Checkpoint, Note, NoteError};
use crate::record::Record;
use crate::tree::{self, CompactRange};
use crate::verdict::Verdict;
use crate::verify::{
    Report, VerifyOptions, Walked, judge, parallel, read_chunk, threads, witnessed,
};

/// Verifies with the last whole checkpoint only.
pub(crate) fn verify_head(
    reader: impl Read,
    options: &VerifyOptions,
    live: bool,
) -> io::Result<Report> {
    let mut pairs = PairReader::new(reader, RECORD_BYTES_MAX, JOURNAL_BYTES_MAX);
    let witnessed = witnessed(options);
    let mut head = Head::default();
    let end = head.walk(&mut pairs, &witnessed)?;
    let (file_bytes, file_sha256) = pairs.finish()?;
    let found = head.judge(options);
    let mut report = Report::empty(options, file_bytes, file_sha256);
    report.live = live;
    if let Ok(found) = &found {
        report.run = Some(found.record.run);
        report.principal = Some(found.record.principal.clone());
        report.records = found.checkpoint.size;
        report.checkpoint = found.checkpoint;
        report.completed = match &found.record.event {
            Event::RunEnded(end) => Some(end.completed),
            _ => None,
        };
    }
    match (end, found) {
        (Walked::Fault(fault), _) => report.fault = Some(fault),
        (_, Err(Some(fault))) => report.fault = Some(fault),
        (Walked::Fork(fault), _) => {
            report.verdict = Verdict::Forked;
            report.fault = Some(fault);
        }
        (Walked::End { tail, line }, _) => {
            report.tail = tail;
            judge(&mut report, options, &witnessed, live, line);
        }
    }
    Ok(report)
}

/// The records so far: their tree, the first and the last pair.
#[derive(Default)]
struct Head {
    range: CompactRange,
    first: Option<Pair>,
    last: Option<Pair>,
}

/// The last record and its checkpoint, both good.
struct Found {
    record: Record,
    checkpoint: Checkpoint,
}

impl Head {
    fn walk<R: Read>(
        &mut self,
        pairs: &mut PairReader<R>,
        witnessed: &[Checkpoint],
    ) -> io::Result<Walked> {
        let threads = threads();
        let mut fork = None;
        loop {
            let (chunk, end) = read_chunk(pairs);
            let leaves = parallel(&chunk, threads, |pair| tree::leaf(&pair.record));
            for (pair, leaf) in chunk.iter().zip(leaves) {
                self.range.push(leaf);
                let size = self.range.size();
                let other = |known: &Checkpoint| known.size == size && !self.is_head(known);
                if fork.is_none() && witnessed.iter().any(other) {
                    let reason = FaultReason::OtherHead { size };
                    let line = pair.line;
                    fork = Some(Fault { line, reason });
                }
            }
            for pair in chunk {
                let before = self.last.replace(pair);
                self.first = self.first.take().or(before);
            }
            match end {
                None => {}
                Some(Ok(tail)) => {
                    let line = pairs.next_line();
                    return Ok(fork.map_or(Walked::End { tail, line }, Walked::Fork));
                }
                Some(Err(PairError::Io(error))) => return Err(error),
                Some(Err(error)) => {
                    let reason = FaultReason::Size(error.to_string());
                    let line = pairs.next_line();
                    return Ok(Walked::Fault(Fault { line, reason }));
                }
            }
        }
    }

    fn is_head(&self, known: &Checkpoint) -> bool {
        known.root == self.range.root()
    }

    /// Checks the first and the last record, and the last checkpoint. `Err(None)`: no record.
    fn judge(&self, options: &VerifyOptions) -> Result<Found, Option<Fault>> {
        let last = self.last.as_ref().ok_or(None)?;
        let at = |line, reason| Some(Fault { line, reason });
        let size = self.range.size();
        let record = Record::parse(&last.record).map_err(|e| at(last.line, e.into()))?;
        let first = match &self.first {
            None => record.clone(),
            Some(first) => Record::parse(&first.record).map_err(|e| at(first.line, e.into()))?,
        };
        if !matches!(first.event, Event::RunStarted(_)) || first.seq != 0 {
            return Err(at(1, FaultReason::NotStarted));
        }
        let (expected, found) = (size - 1, record.seq);
        if expected != found {
            return Err(at(last.line, FaultReason::Sequence { expected, found }));
        }
        for (line, found) in [(1, first.run), (last.line, record.run)] {
            let expected = options.wanted().unwrap_or(first.run);
            if expected != found {
                return Err(at(line, FaultReason::Run { expected, found }));
            }
        }
        if first.principal != record.principal {
            let (expected, found) = (first.principal, record.principal);
            return Err(at(last.line, FaultReason::Principal { expected, found }));
        }
        let note = self
            .note(last, &record, options)
            .map_err(|reason| at(last.line + 1, reason))?;
        Ok(Found {
            record,
            checkpoint: note.checkpoint,
        })
    }

    fn note(
        &self,
        last: &Pair,
        record: &Record,
        options: &VerifyOptions,
    ) -> Result<Note, FaultReason> {
        let note = Note::parse(&last.checkpoint).map_err(FaultReason::Checkpoint)?;
        let signer = note
            .signed_by()
            .ok_or(FaultReason::Checkpoint(NoteError::Unsigned))?;
        if let Some(key) = &options.public_key {
            note.verify(key).map_err(FaultReason::Checkpoint)?;
        }
        let expected = match &options.public_key {
            Some(key) => origin(Some(key), &record.run.to_string()),
            None => {
                let name = signer.split_once('+').map_or("", |(name, _)| name);
                format!("{name}/{}", record.run)
            }
        };
        if note.origin != expected {
            let found = note.origin;
            return Err(FaultReason::Origin { expected, found });
        }
        let (expected, found) = (self.range.size(), note.checkpoint.size);
        if expected != found {
            return Err(FaultReason::TreeSize { expected, found });
        }
        match self.is_head(&note.checkpoint) {
            true => Ok(note),
            false => Err(FaultReason::Root),
        }
    }
}
