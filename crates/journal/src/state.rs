//! What a journal knows of its run: which event is legal next, and what room it may take.

use model::Digest;

use crate::error::JournalError;
use crate::event::sealed::Rule;
use crate::limits::{
    CALL_RESERVED_BYTES, CALLS_LENT_MAX, INFERENCE_COMPLETED_BYTES_MAX, JOURNAL_BYTES_MAX,
    REQUESTS_OPEN_MAX, RUN_ENDED_BYTES_MAX,
};
use crate::note::Checkpoint;
use crate::tree::CompactRange;

/// Everything that an append changes; replaced as a whole once the append is durable.
#[derive(Clone, Default)]
pub(crate) struct State {
    range: CompactRange,
    bytes: u64,
    ended: bool,
    unconfirmed: bool,
    calls: Vec<LentCall>,
    requests: Vec<u64>,
}

/// A call that holds a reservation.
#[derive(Clone)]
struct LentCall {
    call: Digest,
    left: u64,
    dispatched: Option<u64>,
}

impl State {
    /// Gives a call the room for all that it can still need.
    pub(crate) fn lend(&mut self, call: Digest) -> Result<(), JournalError> {
        const EVENT: &str = "CallDispatching";
        if self.ended {
            return Err(JournalError::Ended);
        }
        if self.unconfirmed {
            return Err(JournalError::EffectForbidden { event: EVENT });
        }
        let out_of_order = |reason| {
            Err(JournalError::OutOfOrder {
                event: EVENT,
                reason,
            })
        };
        if self.calls.iter().any(|lent| lent.call == call) {
            return out_of_order("the journal is lent to this call already");
        }
        if self.calls.len() >= CALLS_LENT_MAX {
            return out_of_order("the journal is lent to too many calls");
        }
        self.take_unreserved(CALL_RESERVED_BYTES)?;
        let left = CALL_RESERVED_BYTES;
        self.calls.push(LentCall {
            call,
            left,
            dispatched: None,
        });
        Ok(())
    }

    /// Takes a call's room back. A dispatched call without an outcome is unconfirmed.
    pub(crate) fn release(&mut self, call: &Digest) {
        let lost = self
            .calls
            .iter()
            .any(|lent| lent.call == *call && lent.runs());
        self.settle(call, lost);
    }

    /// A call's last record gives back what is left of its room.
    pub(crate) fn settle(&mut self, call: &Digest, unconfirmed: bool) {
        self.calls.retain(|lent| lent.call != *call);
        self.unconfirmed |= unconfirmed;
    }

    /// From now on, events that start an effect are refused.
    pub(crate) fn mark_unconfirmed(&mut self) {
        self.unconfirmed = true;
    }

    /// The sequence number of a lent call's pre-effect record.
    pub(crate) fn dispatched(&self, call: &Digest) -> Option<u64> {
        self.calls
            .iter()
            .find(|lent| lent.call == *call)
            .and_then(|lent| lent.dispatched)
    }

    /// The next record's sequence number.
    pub(crate) const fn seq(&self) -> u64 {
        self.range.size()
    }

    /// Adds a record's leaf. Returns the new head.
    pub(crate) fn push(&mut self, leaf: Digest) -> Checkpoint {
        self.range.push(leaf);
        self.checkpoint()
    }

    pub(crate) fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            size: self.range.size(),
            root: self.range.root(),
        }
    }

    /// Whether an event of this rule is legal now.
    pub(crate) fn check_order(&self, event: &'static str, rule: Rule) -> Result<(), JournalError> {
        if self.ended {
            return Err(JournalError::Ended);
        }
        let out_of_order = |reason| Err(JournalError::OutOfOrder { event, reason });
        let effect = matches!(
            rule,
            Rule::Dispatch { .. } | Rule::Publish | Rule::Request { .. }
        );
        if self.unconfirmed && effect {
            return Err(JournalError::EffectForbidden { event });
        }
        let empty = self.range.size() == 0;
        match rule {
            Rule::First if !empty => out_of_order("the run has started"),
            Rule::First => Ok(()),
            _ if empty => out_of_order("a run's first record is its start"),
            Rule::Dispatch { call } => match self.calls.iter().find(|lent| lent.call == call) {
                None => out_of_order("the journal is not lent to this call"),
                Some(lent) if lent.dispatched.is_some() => {
                    out_of_order("the call is dispatched already")
                }
                Some(_) => Ok(()),
            },
            Rule::Request { request } if self.requests.contains(&request) => {
                out_of_order("the request has no answer yet")
            }
            Rule::Request { .. } if self.requests.len() >= REQUESTS_OPEN_MAX => {
                out_of_order("too many requests have no answer yet")
            }
            Rule::Answer { request } if !self.requests.contains(&request) => {
                out_of_order("no such request waits for an answer")
            }
            Rule::Last { completed: true } if self.unconfirmed => {
                out_of_order("a run with an unconfirmed outcome did not complete")
            }
            Rule::Last { completed: true } if self.calls.iter().any(LentCall::runs) => {
                out_of_order("a dispatched call has no outcome yet")
            }
            _ => Ok(()),
        }
    }

    /// Takes an event's room from where it was reserved, or from what nobody reserved.
    pub(crate) fn take_room(
        &mut self,
        rule: Rule,
        call: Option<&Digest>,
        need: u64,
        seq: u64,
    ) -> Result<(), JournalError> {
        match rule {
            Rule::Last { .. } => {
                take(&mut (RUN_ENDED_BYTES_MAX as u64), need)?;
                self.ended = true;
            }
            Rule::OfCall | Rule::Publish => {
                let lent = self.calls.iter_mut().find(|lent| Some(&lent.call) == call);
                take(lent.map_or(&mut 0, |lent| &mut lent.left), need)?;
            }
            Rule::Answer { request } => {
                take(&mut (INFERENCE_COMPLETED_BYTES_MAX as u64), need)?;
                self.requests.retain(|open| *open != request);
            }
            Rule::Request { request } => {
                self.take_unreserved(need + INFERENCE_COMPLETED_BYTES_MAX as u64)?;
                self.requests.push(request);
            }
            Rule::Dispatch { call } => {
                self.take_unreserved(need)?;
                if let Some(lent) = self.calls.iter_mut().find(|lent| lent.call == call) {
                    lent.dispatched = Some(seq);
                }
            }
            Rule::First | Rule::Anytime => self.take_unreserved(need)?,
        }
        self.bytes += need;
        Ok(())
    }

    fn take_unreserved(&self, need: u64) -> Result<(), JournalError> {
        let calls: u64 = self.calls.iter().map(|lent| lent.left).sum();
        let answers = (self.requests.len() * INFERENCE_COMPLETED_BYTES_MAX) as u64;
        let reserved = calls + answers + RUN_ENDED_BYTES_MAX as u64;
        let mut have = JOURNAL_BYTES_MAX.saturating_sub(self.bytes + reserved);
        take(&mut have, need)
    }
}

impl LentCall {
    const fn runs(&self) -> bool {
        self.dispatched.is_some()
    }
}

fn take(have: &mut u64, need: u64) -> Result<(), JournalError> {
    match have.checked_sub(need) {
        Some(left) => {
            *have = left;
            Ok(())
        }
        None => Err(JournalError::NoRoom { need, have: *have }),
    }
}
