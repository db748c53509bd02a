//! One call's life as others see it. A single atomic decides the race between a client that
//! takes its call back and the session that is about to record it.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

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

/// How far a call is, for whoever waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallPhase {
    /// It waits for its turn, or is being checked.
    Queued,
    /// It waits for a person.
    Held,
    /// It is being recorded, or runs.
    Running,
}

/// Shared by a call's owner and the session.
#[derive(Debug, Default)]
pub(crate) struct Ticket {
    standing: AtomicU8,
    held: AtomicBool,
}

impl Ticket {
    /// Takes the call back. False once it is committed: then it runs to its end.
    pub(crate) fn withdraw(&self) -> bool {
        self.standing
            .compare_exchange(OPEN, WITHDRAWN, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// The owner is gone.
    pub(crate) fn abandon(&self) {
        let _ = self
            .standing
            .compare_exchange(OPEN, ABANDONED, Ordering::SeqCst, Ordering::SeqCst);
        let _ = self.standing.compare_exchange(
            COMMITTED,
            COMMITTED_ABANDONED,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
    }

    /// The last look before the pre-effect record. False: it was taken back.
    pub(crate) fn commit(&self) -> bool {
        self.standing
            .compare_exchange(OPEN, COMMITTED, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Whether a person is being asked. It decides nothing.
    pub(crate) fn set_held(&self, held: bool) {
        self.held.store(held, Ordering::SeqCst);
    }

    pub(crate) fn phase(&self) -> CallPhase {
        match self.standing() {
            Standing::Committed | Standing::CommittedAbandoned => CallPhase::Running,
            _ if self.held.load(Ordering::SeqCst) => CallPhase::Held,
            _ => CallPhase::Queued,
        }
    }

    pub(crate) fn standing(&self) -> Standing {
        match self.standing.load(Ordering::SeqCst) {
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
    fn the_phase_goes_from_the_queue_over_a_person_to_the_run() {
        let ticket = Ticket::default();
        assert_eq!(ticket.phase(), CallPhase::Queued);
        ticket.set_held(true);
        assert_eq!(ticket.phase(), CallPhase::Held);
        ticket.set_held(false);
        assert!(ticket.commit());
        assert_eq!(ticket.phase(), CallPhase::Running);
        ticket.abandon();
        assert_eq!(ticket.phase(), CallPhase::Running);
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
