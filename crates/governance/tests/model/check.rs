//! The invariants, by name.

use std::collections::{BTreeMap, BTreeSet};

use journal::{Event, OutcomeStatus, Verdict, VerifyOptions, read_run, verify_run};
use model::Digest;

use crate::driver::Finale;
use crate::support::{Disk, key};

/// What an onlooker saw of one history.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) starts: Vec<Digest>,
    pub(crate) refused: BTreeSet<Digest>,
    pub(crate) abandoned: BTreeSet<Digest>,
    pub(crate) unconfirmed: bool,
    pub(crate) journal_failed: bool,
    admitted: BTreeSet<String>,
    identities: BTreeMap<Digest, String>,
    violation: Option<String>,
}

impl Trace {
    pub(crate) fn violation(&self) -> Option<String> {
        self.violation.clone()
    }

    pub(crate) fn expect(&mut self, invariant: &str, holds: bool) {
        if !holds {
            self.violation.get_or_insert_with(|| invariant.to_owned());
        }
    }

    pub(crate) fn admit(&mut self, id: &str) {
        let fresh = self.admitted.insert(id.to_owned());
        self.expect("an identity is admitted once", fresh);
    }

    pub(crate) fn prepare(&mut self, call: Digest, id: &str) {
        self.identities.insert(call, id.to_owned());
    }

    /// A worker starts, now, with `disk` as it is.
    pub(crate) fn start(&mut self, call: Digest, disk: &Disk) {
        let durable = &disk.bytes[..disk.durable];
        let recorded = pre_effect_records(durable, call);
        self.expect(
            "no start without a durable pre-effect record of that digest",
            recorded == 1,
        );
        self.expect(
            "a refused or withdrawn call never starts",
            !self.refused.contains(&call),
        );
        self.expect(
            "nothing starts after an unconfirmed outcome",
            !self.unconfirmed,
        );
        self.expect(
            "nothing starts after the journal failed",
            !self.journal_failed,
        );
        self.expect("a digest starts once", !self.starts.contains(&call));
        let identity = self.identities.get(&call);
        self.expect("what starts was prepared", identity.is_some());
        let identity = self.identities.get(&call).cloned();
        let again = self
            .starts
            .iter()
            .any(|other| self.identities.get(other) == identity.as_ref());
        self.expect("an identity starts once", !again);
        self.starts.push(call);
    }

    /// The whole history against what is left of its journal.
    pub(crate) fn check_end(
        &self,
        finale: Finale,
        survived: &[u8],
        signed: bool,
    ) -> Result<(), String> {
        if let Some(violation) = &self.violation {
            return Err(violation.clone());
        }
        let mut events = Vec::new();
        for record in read_run(survived, None, None) {
            let record = record.map_err(|error| format!("the prefix can be read ({error})"))?;
            events.push(record.event);
        }
        self.check_calls(finale, &events)?;
        check_terminal(finale, &events)?;
        if signed {
            check_signatures(survived)?;
        }
        Ok(())
    }

    fn check_calls(&self, finale: Finale, events: &[Event]) -> Result<(), String> {
        let mut dispatched = BTreeMap::new();
        let mut settled = BTreeMap::new();
        let mut unconfirmed = false;
        for (seq, event) in events.iter().enumerate() {
            match event {
                Event::CallDispatching(it) => {
                    let first = dispatched.insert(it.call_sha256, seq as u64).is_none();
                    hold("a call is dispatched once", first)?;
                    hold(
                        "nothing is dispatched after an unconfirmed outcome",
                        !unconfirmed,
                    )?;
                    let own = it.descriptor.digest() == it.call_sha256;
                    hold("a record has all that its digest names", own)?;
                }
                Event::CallSettled(it) => {
                    let first = settled.insert(it.call_sha256, it.outcome.status).is_none();
                    hold("a call is settled once", first)?;
                    let before = dispatched.get(&it.call_sha256) == Some(&it.dispatched_seq);
                    hold("an outcome follows its own pre-effect record", before)?;
                    unconfirmed |= it.outcome.status == OutcomeStatus::Unconfirmed;
                }
                Event::CallRefused(it) => {
                    let ran = it
                        .call_sha256
                        .is_some_and(|call| self.starts.contains(&call));
                    hold("a refused call has not started", !ran)?;
                }
                _ => {}
            }
        }
        for call in &self.starts {
            hold(
                "the verified prefix explains every start",
                dispatched.contains_key(call),
            )?;
            let excused =
                self.journal_failed || self.abandoned.contains(call) || finale == Finale::Crashed;
            let has_outcome = settled.contains_key(call);
            hold("every started call has its outcome", excused || has_outcome)?;
        }
        Ok(())
    }
}

fn check_terminal(finale: Finale, events: &[Event]) -> Result<(), String> {
    let at = events
        .iter()
        .position(|event| matches!(event, Event::RunEnded(_)));
    let last = at.is_none_or(|at| at + 1 == events.len());
    hold("the terminal record is the last", last)?;
    if finale == (Finale::Closed { recorded: true }) {
        hold("a closed run has its terminal record", at.is_some())?;
    }
    hold(
        "a crash writes no terminal record",
        finale != Finale::Crashed || at.is_none(),
    )?;
    let mut open = BTreeSet::new();
    let mut doubt = false;
    for event in events {
        match event {
            Event::CallDispatching(it) => {
                open.insert(it.call_sha256);
            }
            Event::CallSettled(it) => {
                open.remove(&it.call_sha256);
                doubt |= it.outcome.status == OutcomeStatus::Unconfirmed;
            }
            Event::RunEnded(it) if it.completed => {
                hold(
                    "a completed run has no open call and no doubt",
                    open.is_empty() && !doubt,
                )?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_signatures(survived: &[u8]) -> Result<(), String> {
    let public_key = Some(key().public().clone());
    let options = VerifyOptions {
        public_key,
        ..VerifyOptions::default()
    };
    let report = verify_run(survived, &options).map_err(|error| error.to_string())?;
    let fine = matches!(report.verdict, Verdict::Intact | Verdict::Unterminated);
    // A crash before anything was durable leaves nothing to verify.
    hold(
        "an auditor can verify what a crash leaves",
        fine || report.records == 0,
    )
}

fn hold(invariant: &str, holds: bool) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(invariant.to_owned())
    }
}

/// How many whole lines of `durable` are pre-effect records of `call`.
fn pre_effect_records(durable: &[u8], call: Digest) -> usize {
    let text = std::str::from_utf8(durable).unwrap();
    let named = format!("\"call_sha256\":\"{call}\"");
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .filter(|line| line.contains("\"kind\":\"CallDispatching\"") && line.contains(&named))
        .count()
}
