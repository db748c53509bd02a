//! A keeper of leases in memory, for tests that need no clean-up after a death.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandbox::lease::{Lease, LeaseFailed, LeaseId, LeaseKeeper, LeaseRefused, LeaseTerms};

/// Charges workers against a number of places. Clones share one store.
#[derive(Debug, Clone)]
pub struct MemoryKeeper {
    places: usize,
    held: Arc<Mutex<BTreeMap<LeaseId, LeaseTerms>>>,
}

impl MemoryKeeper {
    /// Room for `places` workers at a time.
    #[must_use]
    pub fn new(places: usize) -> Self {
        Self {
            places,
            held: Arc::default(),
        }
    }

    /// The leases that are taken and not released.
    #[must_use]
    pub fn held(&self) -> Vec<LeaseId> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<LeaseId, LeaseTerms>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeaseKeeper for MemoryKeeper {
    fn take(&mut self, terms: &LeaseTerms) -> Result<Lease, LeaseRefused> {
        let id = LeaseId::random().map_err(|error| LeaseRefused::Unavailable {
            reason: error.to_string(),
        })?;
        let mut held = self.lock();
        if held.len() >= self.places {
            let count = held.len();
            return Err(LeaseRefused::Exhausted {
                reason: format!("{count} of {} workers are this test's", self.places),
            });
        }
        held.insert(id.clone(), terms.clone());
        Ok(Lease::recorded(id))
    }

    fn release(&mut self, lease: Lease) -> Result<(), LeaseFailed> {
        match self.lock().remove(lease.id()) {
            Some(_) => Ok(()),
            None => Err(LeaseFailed {
                reason: format!("there is no lease {}", lease.id()),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use worker::TierKind;

    #[test]
    fn one_lease_more_than_there_are_places_is_refused_until_one_is_released() {
        let terms = LeaseTerms {
            tier: TierKind::Docker,
            socket: "/engine.sock".into(),
            staging: "/staging".into(),
            memory_mib: 1,
            cpu_milli: 1,
            lifetime: Duration::from_secs(1),
        };
        let mut keeper = MemoryKeeper::new(1);
        let lease = keeper.take(&terms).unwrap();
        let refused = keeper.clone().take(&terms).unwrap_err();
        assert!(matches!(refused, LeaseRefused::Exhausted { .. }));
        keeper.release(lease).unwrap();
        assert!(keeper.held().is_empty() && keeper.take(&terms).is_ok());
    }
}
