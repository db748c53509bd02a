//! The calls that were handed out and have no answer yet.

use std::collections::BTreeMap;

use crate::identity::{ProgressToken, WireId};
use crate::limits::{CALLS_OUTSTANDING_BYTES_MAX, CALLS_OUTSTANDING_MAX};

/// Names one call of one connection to its owner. Never used twice on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    handed_out: u64,
    memory_bytes: usize,
    calls: BTreeMap<Ticket, Call>,
}

#[derive(Debug)]
struct Call {
    memory_bytes: usize,
    progress: u64,
    reader: Reader,
}

/// Who reads the answer. A withdrawn call keeps its place until its owner has ended it: the
/// client cannot make more room by cancelling.
#[derive(Debug)]
enum Reader {
    Client {
        id: WireId,
        progress_token: Option<ProgressToken>,
    },
    Nobody,
}

impl Outstanding {
    /// Takes a call whose arguments take `memory_bytes`, or `None` where too many wait already.
    pub(crate) fn admit(
        &mut self,
        id: WireId,
        progress_token: Option<ProgressToken>,
        memory_bytes: usize,
    ) -> Option<Ticket> {
        let held = self.memory_bytes + memory_bytes;
        if self.calls.len() >= CALLS_OUTSTANDING_MAX || held > CALLS_OUTSTANDING_BYTES_MAX {
            return None;
        }
        let ticket = Ticket(self.handed_out);
        self.handed_out += 1;
        self.memory_bytes = held;
        let call = Call {
            memory_bytes,
            progress: 0,
            reader: Reader::Client { id, progress_token },
        };
        self.calls.insert(ticket, call);
        Some(ticket)
    }

    /// The client wants no answer for `id` any more. `None` where no such call waits.
    pub(crate) fn withdraw(&mut self, id: &WireId) -> Option<Ticket> {
        let (ticket, call) = self.calls.iter_mut().find(
            |(_, call)| matches!(&call.reader, Reader::Client { id: waiting, .. } if waiting == id),
        )?;
        call.reader = Reader::Nobody;
        Some(*ticket)
    }

    /// The call has ended. The id to answer, where somebody reads the answer.
    pub(crate) fn settle(&mut self, ticket: Ticket) -> Option<WireId> {
        let call = self.calls.remove(&ticket)?;
        self.memory_bytes -= call.memory_bytes;
        match call.reader {
            Reader::Client { id, .. } => Some(id),
            Reader::Nobody => None,
        }
    }

    /// The token and the next, larger value of a call whose client asked for progress.
    pub(crate) fn advance(&mut self, ticket: Ticket) -> Option<(&ProgressToken, u64)> {
        let call = self.calls.get_mut(&ticket)?;
        match &call.reader {
            Reader::Client {
                progress_token: Some(token),
                ..
            } => {
                call.progress += 1;
                Some((token, call.progress))
            }
            _ => None,
        }
    }

    /// The calls whose answer is still wanted, oldest first.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = Ticket> {
        self.calls
            .iter()
            .filter(|(_, call)| matches!(call.reader, Reader::Client { .. }))
            .map(|(ticket, _)| *ticket)
    }

    /// Nobody reads any answer any more.
    pub(crate) fn forget_readers(&mut self) {
        for call in self.calls.values_mut() {
            call.reader = Reader::Nobody;
        }
    }

    /// Calls that have not ended, withdrawn ones included.
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(value: i64) -> WireId {
        WireId::integer(value).unwrap()
    }

    #[test]
    fn the_memory_of_waiting_calls_is_bounded_at_the_limit_and_one_byte_past_it() {
        let mut outstanding = Outstanding::default();
        let first = outstanding.admit(id(1), None, 1000).unwrap();
        let rest = CALLS_OUTSTANDING_BYTES_MAX - 1000;
        assert_eq!(outstanding.admit(id(2), None, rest + 1), None);
        assert!(outstanding.admit(id(3), None, rest).is_some());
        assert_eq!(outstanding.admit(id(4), None, 1), None);
        assert_eq!(outstanding.settle(first), Some(id(1)));
        assert!(outstanding.admit(id(5), None, 1000).is_some());
    }

    #[test]
    fn a_withdrawn_call_holds_its_memory_until_it_has_ended() {
        let mut outstanding = Outstanding::default();
        let ticket = outstanding
            .admit(id(1), None, CALLS_OUTSTANDING_BYTES_MAX)
            .unwrap();
        assert_eq!(outstanding.withdraw(&id(1)), Some(ticket));
        assert_eq!(outstanding.admit(id(2), None, 1), None);
        assert_eq!(outstanding.settle(ticket), None);
        assert!(outstanding.admit(id(2), None, 1).is_some());
    }
}
