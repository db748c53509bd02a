//! One call's life as others see it. A single atomic decides the race between a client that
//! takes its call back and the session that is about to record it.

use std::sync::atomic::{AtomicU8, Ordering};

const OPEN: u8 = 0;
const WITHDRAWN: u8 = 1;
const ABANDONED: u8 = 2;
const COMMITTED: u8 = 3;
const COMMITTED_ABANDONED: u8 = 4;

/// What a ticket says when the session looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Open,
    /// The client took it back, before its effect.
    Withdrawn,
    /// The owner dropped it, before its effect.
    Abandoned,
    /// It is being recorded, or runs.
    Committed,
    /// The owner dropped it after that.
    CommittedAbandoned,
}

/// Shared by a call's owner and the session.
#[derive(Debug, Default)]
pub(crate) struct Ticket(AtomicU8);

impl Ticket {
    /// Takes the call back. False once it is committed: then it runs to its end.
    pub(crate) fn withdraw(&self) -> bool {
        self.0
            .compare_exchange(OPEN, WITHDRAWN, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// The owner is gone.
    pub(crate) fn abandon(&self) {
        let _ = self
            .0
            .compare_exchange(OPEN, ABANDONED, Ordering::SeqCst, Ordering::SeqCst);
        let _ = self.0.compare_exchange(
            COMMITTED,
            COMMITTED_ABANDONED,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
    }

    /// The last look before the pre-effect record. False: it was taken back.
    pub(crate) fn commit(&self) -> bool {
        self.0
            .compare_exchange(OPEN, COMMITTED, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    pub(crate) fn standing(&self) -> Standing {
        match self.0.load(Ordering::SeqCst) {
            OPEN => Standing::Open,
            WITHDRAWN => Standing::Withdrawn,
            ABANDONED => Standing::Abandoned,
            COMMITTED_ABANDONED => Standing::CommittedAbandoned,
            _ => Standing::Committed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_withdrawn_call_cannot_be_committed() {
        let ticket = Ticket::default();
        assert!(ticket.withdraw());
        assert!(!ticket.commit());
        assert_eq!(ticket.standing(), Standing::Withdrawn);
    }

    #[test]
    fn a_committed_call_cannot_be_withdrawn() {
        let ticket = Ticket::default();
        assert!(ticket.commit());
        assert!(!ticket.withdraw());
        assert_eq!(ticket.standing(), Standing::Committed);
    }

    #[test]
    fn an_owner_that_goes_is_seen_before_and_after_commitment() {
        let before = Ticket::default();
        before.abandon();
        assert_eq!(before.standing(), Standing::Abandoned);
        assert!(!before.commit());
        let after = Ticket::default();
        assert!(after.commit());
        after.abandon();
        assert_eq!(after.standing(), Standing::CommittedAbandoned);
    }
}
