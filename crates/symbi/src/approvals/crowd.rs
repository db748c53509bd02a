//! The connections of a gate: whoever says nothing yields to whoever comes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

/// Connections that are held at once.
pub(super) const CONNECTIONS_MAX: usize = 32;

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// It has asked nothing yet.
    Silent,
    /// It is told of every change.
    Watching,
    /// Its request is being answered.
    Answered,
}

/// The connections, oldest first.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    members: Mutex<Members>,
}

#[derive(Debug, Default)]
struct Members {
    all: BTreeMap<u64, Member>,
    next: u64,
}

#[derive(Debug)]
struct Member {
    stage: Stage,
    /// A new one has none for a moment.
    task: Option<AbortHandle>,
}

impl Crowd {
    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for one more where there is none: the oldest that asked nothing goes, else the
    /// oldest that watches. False where all are being answered.
    pub(super) fn has_room(&self) -> bool {
        let mut members = self.members();
        if members.all.len() < CONNECTIONS_MAX {
            return true;
        }
        let yields = |it: &Member| it.task.is_some() && it.stage != Stage::Answered;
        let yielding = members.all.iter().filter(|(_, it)| yields(it));
        let first = yielding.map(|(id, it)| (it.stage, *id)).min();
        let gone = first.and_then(|(_, id)| members.all.remove(&id)?.task);
        drop(members);
        gone.inspect(AbortHandle::abort).is_some()
    }

    /// Takes in a connection, and the task that `begin` starts for its number.
    pub(super) fn admit(&self, begin: impl FnOnce(u64) -> AbortHandle) {
        let id = {
            let mut members = self.members();
            let id = members.next;
            members.next += 1;
            let member = Member {
                stage: Stage::Silent,
                task: None,
            };
            members.all.insert(id, member);
            id
        };
        let task = begin(id);
        // It may have left by now.
        if let Some(member) = self.members().all.get_mut(&id) {
            member.task = Some(task);
        }
    }

    pub(super) fn reaches(&self, id: u64, stage: Stage) {
        if let Some(member) = self.members().all.get_mut(&id) {
            member.stage = stage;
        }
    }

    pub(super) fn leaves(&self, id: u64) {
        self.members().all.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(_: u64) -> AbortHandle {
        tokio::spawn(std::future::pending::<()>()).abort_handle()
    }

    #[tokio::test]
    async fn at_the_bound_all_stay_and_past_it_the_oldest_that_says_nothing_goes_first() {
        let crowd = Crowd::default();
        for _ in 0..CONNECTIONS_MAX {
            assert!(crowd.has_room());
            crowd.admit(waiting);
        }
        assert_eq!(crowd.members().all.len(), CONNECTIONS_MAX);
        crowd.reaches(0, Stage::Watching);
        crowd.reaches(1, Stage::Answered);
        for gone in 2..CONNECTIONS_MAX as u64 {
            assert!(crowd.has_room());
            assert!(!crowd.members().all.contains_key(&gone), "{gone}");
            crowd.admit(waiting);
        }
        assert!(crowd.members().all.contains_key(&0));
        let last = crowd.members().next;
        (2..last).for_each(|id| crowd.reaches(id, Stage::Answered));
        assert!(crowd.has_room());
        assert!(!crowd.members().all.contains_key(&0));
        crowd.admit(waiting);
        crowd.reaches(last, Stage::Answered);
        assert!(!crowd.has_room(), "all are being answered");
        crowd.leaves(1);
        assert!(crowd.has_room());
    }
}
