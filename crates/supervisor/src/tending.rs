//! Threads that remove what is dead, each until that is done.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use crate::clock;
use crate::leases::LeaseRecord;
use crate::limits::{RETRY_PAUSE, SWEEP_ATTEMPTS_MAX};
use crate::removal::{self, Found};
use crate::server::House;

/// Removes what a lease's owner left, and ends the lease.
pub(crate) fn remove_in_background(house: &Arc<House>, record: LeaseRecord) {
    let (lease, shared) = (record.lease.clone(), Arc::clone(house));
    let begun = std::thread::Builder::new().spawn(move || {
        remove(&shared, &record);
        shared.ended.notify_all();
        shared.wake();
    });
    if let Err(error) = begun {
        house.say(&format!("lease {lease} cannot be attended to yet: {error}"));
        house.book().neglect(&lease);
    }
}

fn remove(house: &House, record: &LeaseRecord) {
    let lease = &record.lease;
    house.say(&format!("lease {lease} of {} ends", record.owner));
    let mut search = Search::default();
    // Its owner may release it meanwhile.
    while !house.is_over() && house.book().holds(lease) {
        match search.attempt(house, record) {
            Ok(true) => {
                let mut book = house.book();
                // The next supervisor may be at the files by now; it sees that nothing is left.
                if house.is_over() {
                    return;
                }
                let ended = book.end(lease);
                drop(book);
                match ended {
                    Ok(()) => house.say(&format!("lease {lease} has ended")),
                    Err(reason) => house.say(&format!("lease {lease}: {reason}")),
                }
                return;
            }
            Ok(false) => house.book().unseen(lease),
            Err(reason) => house.book().waits_for(lease, reason, clock::boot_ms()),
        }
        house.ended.notify_all();
        std::thread::sleep(RETRY_PAUSE);
    }
}

/// What was found so far.
#[derive(Debug, Default)]
struct Search {
    /// Its container was there, and is gone.
    was_seen: bool,
    /// Since when the engine has said that there is none.
    unseen_since: Option<Instant>,
}

impl Search {
    /// Whether nothing is left of the lease.
    fn attempt(&mut self, house: &House, record: &LeaseRecord) -> Result<bool, String> {
        let found = removal::remove_container(record).inspect_err(|_| self.unseen_since = None)?;
        if found == Found::Removed {
            self.was_seen = true;
        }
        let since = *self.unseen_since.get_or_insert_with(Instant::now);
        // What another start of the machine asked for, no engine will make any more.
        let is_old = record.boot != house.book().boot();
        let may_come = !self.was_seen && !is_old && removal::may_come(record);
        if may_come && since.elapsed() < house.terms.unseen {
            return Ok(false);
        }
        removal::remove_files(record)?;
        Ok(true)
    }
}

/// Removes what nobody claims at one engine.
pub(crate) fn sweep(house: &House, engine: &Path) -> Result<Vec<String>, String> {
    let is_claimed = |lease: &str| house.book().holds(lease);
    let removed = removal::remove_unclaimed(engine, &house.store, is_claimed)?;
    for what in &removed {
        house.say(&format!("removed {what}"));
    }
    Ok(removed)
}

pub(crate) fn sweep_in_background(house: &Arc<House>, engine: PathBuf) {
    let shared = Arc::clone(house);
    let begun = std::thread::Builder::new().spawn(move || {
        for _ in 0..SWEEP_ATTEMPTS_MAX {
            if shared.is_over() {
                return;
            }
            match sweep(&shared, &engine) {
                Ok(_) => return,
                Err(reason) => shared.say(&format!("{}: {reason}", engine.display())),
            }
            std::thread::sleep(RETRY_PAUSE);
        }
    });
    if let Err(error) = begun {
        house.say(&format!("an engine cannot be looked at: {error}"));
    }
}
