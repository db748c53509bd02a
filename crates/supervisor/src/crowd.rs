//! The connections of a supervisor: whoever says nothing yields to whoever comes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::{CONNECTIONS_MAX, IDLE_YIELD_TIME};

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It has not said who it is.
    Greeting,
    /// It asks nothing, since then.
    Idle(Instant),
    /// Its request is being answered.
    Answered,
}

#[derive(Debug)]
struct Guest {
    stage: Stage,
    stream: UnixStream,
}

/// The connections, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Crowd(Mutex<BTreeMap<u64, Guest>>);

impl Crowd {
    fn guests(&self) -> MutexGuard<'_, BTreeMap<u64, Guest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.guests().is_empty()
    }

    /// Makes room for one more where there is none: the oldest that has not said who it is goes,
    /// else the one that has asked nothing for longest, unless it is among `owners` of leases.
    /// False where none can go.
    pub(crate) fn has_room(&self, owners: &BTreeSet<u64>, now: Instant) -> bool {
        let mut guests = self.guests();
        if guests.len() < CONNECTIONS_MAX {
            return true;
        }
        let greeting = guests.iter().find(|(_, it)| it.stage == Stage::Greeting);
        let idle = guests.iter().filter_map(|(id, guest)| match guest.stage {
            Stage::Idle(since) if !owners.contains(id) => Some((since, *id)),
            _ => None,
        });
        let idle = idle.min().filter(|(since, _)| is_long(*since, now));
        let first = greeting.map(|(id, _)| *id).or(idle.map(|(_, id)| id));
        let Some(gone) = first.and_then(|id| guests.remove(&id)) else {
            return false;
        };
        // Its thread sees the end of its stream.
        let _ = gone.stream.shutdown(Shutdown::Both);
        true
    }

    pub(crate) fn admit(&self, id: u64, stream: UnixStream) {
        let guest = Guest {
            stage: Stage::Greeting,
            stream,
        };
        self.guests().insert(id, guest);
    }

    /// Whether it is still there.
    #[must_use]
    pub(crate) fn reaches(&self, id: u64, stage: Stage) -> bool {
        let mut guests = self.guests();
        let guest = guests.get_mut(&id);
        guest.map(|guest| guest.stage = stage).is_some()
    }

    pub(crate) fn leaves(&self, id: u64) {
        self.guests().remove(&id);
    }
}

fn is_long(since: Instant, now: Instant) -> bool {
    now.saturating_duration_since(since) >= IDLE_YIELD_TIME
}

const _: () = assert!(IDLE_YIELD_TIME.as_millis() > Duration::ZERO.as_millis());

#[cfg(test)]
mod tests {
    use super::*;

    /// A crowd of the most that there may be, and the other ends of their streams.
    fn full() -> (Crowd, Vec<UnixStream>) {
        let (crowd, none) = (Crowd::default(), BTreeSet::new());
        let ends = (0..CONNECTIONS_MAX as u64).map(|id| {
            assert!(crowd.has_room(&none, Instant::now()));
            let (one, other) = UnixStream::pair().unwrap();
            crowd.admit(id, one);
            other
        });
        let ends = ends.collect();
        (crowd, ends)
    }

    fn is_closed(mut end: &UnixStream) -> bool {
        end.set_nonblocking(true).unwrap();
        matches!(std::io::Read::read(&mut end, &mut [0]), Ok(0))
    }

    #[test]
    fn at_the_bound_all_stay_and_past_it_the_oldest_that_did_not_greet_goes() {
        let (crowd, ends) = full();
        assert!(!ends.iter().any(is_closed));
        assert!(crowd.reaches(0, Stage::Answered));
        assert!(crowd.has_room(&BTreeSet::new(), Instant::now()));
        let closed: Vec<bool> = ends.iter().map(is_closed).collect();
        assert!(closed[1] && closed.iter().filter(|it| **it).count() == 1);
        assert!(!crowd.reaches(1, Stage::Answered), "it is not there");
    }

    #[test]
    fn who_greeted_goes_only_after_a_while_without_a_request_and_never_with_a_lease() {
        let (crowd, ends) = full();
        let begun = Instant::now();
        for id in 0..CONNECTIONS_MAX as u64 {
            let later = begun + Duration::from_millis(CONNECTIONS_MAX as u64 - id);
            assert!(crowd.reaches(id, Stage::Idle(later)));
        }
        let last = CONNECTIONS_MAX as u64 - 1;
        let owners = BTreeSet::from([last]);
        let next_to_last = begun + Duration::from_millis(2) + IDLE_YIELD_TIME;
        let too_early = next_to_last - Duration::from_millis(1);
        assert!(!crowd.has_room(&owners, too_early));
        assert!(crowd.has_room(&owners, next_to_last));
        assert!(is_closed(&ends[CONNECTIONS_MAX - 2]) && !is_closed(&ends[CONNECTIONS_MAX - 1]));
        let owners = (0..=last).collect();
        crowd.admit(last + 1, UnixStream::pair().unwrap().0);
        assert!(crowd.reaches(last + 1, Stage::Answered));
        assert!(
            !crowd.has_room(&owners, next_to_last),
            "all have leases or are at work"
        );
    }
}
