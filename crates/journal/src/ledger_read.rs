//! Reads a whole ledger: every run with its heads, every line checked against the one before.

use std::collections::BTreeMap;
use std::io::{self, Read};

use model::RunId;
use serde::Serialize;

use crate::chain::{Fault, FaultReason};
use crate::key::PublicKey;
use crate::ledger_line::{CheckedLine, LedgerEvent, apply, check};
use crate::limits::{LEDGER_BYTES_MAX, LEDGER_LINE_BYTES_MAX};
use crate::lines::{Pair, PairError, PairReader, Step, Tail};
use crate::note::Checkpoint;
use crate::tree::CompactRange;

/// What the ledger knows of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LedgerRun {
    pub run: RunId,
    /// When the run's line was written, by the writer's clock.
    pub time: String,
    pub started: Checkpoint,
    pub ended: Option<Checkpoint>,
    pub sealed: Option<Checkpoint>,
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
/// # Errors
/// Only the reader's own.
pub fn read_ledger(reader: impl Read, key: Option<&PublicKey>) -> io::Result<LedgerReport> {
    let mut pairs = PairReader::new(reader, LEDGER_LINE_BYTES_MAX, LEDGER_BYTES_MAX);
    let mut reading = Reading::default();
    loop {
        let line = pairs.next_line();
        let fault = match pairs.step() {
            Ok(Step::Pair(pair)) => match reading.accept(&pair, key) {
                Ok(()) => continue,
                Err(reason) => Fault { line, reason },
            },
            Ok(Step::End(tail)) => return Ok(reading.report(None, tail)),
            Err(PairError::Io(error)) => return Err(error),
            Err(error) => Fault {
                line,
                reason: FaultReason::Size(error.to_string()),
            },
        };
        return Ok(reading.report(Some(fault), None));
    }
}

/// The ledger up to some line.
#[derive(Default)]
struct Reading {
    range: CompactRange,
    open: Vec<RunId>,
    runs: BTreeMap<u64, LedgerRun>,
    by_run: BTreeMap<RunId, u64>,
}

impl Reading {
    fn accept(&mut self, pair: &Pair, key: Option<&PublicKey>) -> Result<(), FaultReason> {
        let CheckedLine { record, range } = check(pair, key)?;
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
        match record.event {
            LedgerEvent::RunStarted {
                run,
                checkpoint: started,
            } => {
                if self.by_run.insert(run, record.seq).is_some() {
                    return Err(FaultReason::StartedAgain);
                }
                let time = record.time;
                let known = LedgerRun {
                    run,
                    time,
                    started,
                    ended: None,
                    sealed: None,
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
        }
        self.range = range;
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
        let runs = self.runs.into_values().collect();
        LedgerReport {
            runs,
            records: checkpoint.size,
            checkpoint,
            fault,
            tail,
        }
    }
}
