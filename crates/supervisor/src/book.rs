//! All leases, in memory as on disk, and what each of them waits for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use filegrants::{Holder, StagingPool};
use sandbox::lease::LeaseId;
use worker::TierKind;

use crate::capacity::{self, Charge};
use crate::clock;
use crate::folder::{FolderFault, remedy};
use crate::leases::{LeaseFile, LeaseRecord};
use crate::limits::{LIFETIME_MAX, PATH_BYTES_MAX};
use crate::wire::{CapacityLimits, LeaseState, LeaseStatus, Response, Terms};

/// Why a lease stays whose container nobody has seen.
const UNSEEN: &str = "its owner died, and the engine knows no container of it: it was asked for, \
                      and is perhaps still to be made; it is looked for until it is seen, or for \
                      two minutes in which the engine knows none";

/// What keeps a lease alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// Its owner's connection.
    Connection(u64),
    /// Its owner's process: this supervisor was started after the lease was taken.
    Process,
    /// Nothing: its container is to be removed. Whether somebody is at it already.
    Ending { attended: bool },
}

#[derive(Debug)]
struct Entry {
    record: LeaseRecord,
    keeping: Keeping,
    /// Why it is still there, where it ends.
    waits_for: Option<String>,
    /// The engine knows no container of it, and may still make one.
    is_unseen: bool,
    /// Since when every attempt to end it has failed.
    fails_since_ms: Option<u64>,
}

impl Entry {
    const fn new(record: LeaseRecord, keeping: Keeping) -> Self {
        Self {
            record,
            keeping,
            waits_for: None,
            is_unseen: false,
            fails_since_ms: None,
        }
    }

    /// Whether it makes work: its owner lives, or an end of it is to be hoped for.
    fn makes_work(&self, now_ms: u64, forsaken: Duration) -> bool {
        let Some(since_ms) = self.fails_since_ms else {
            return true;
        };
        let fails_for = u128::from(now_ms.saturating_sub(since_ms));
        !matches!(self.keeping, Keeping::Ending { .. }) || fails_for <= forsaken.as_millis()
    }
}

#[derive(Debug)]
pub(crate) struct Book {
    file: LeaseFile,
    entries: BTreeMap<String, Entry>,
    boot: String,
    /// References of leases that are not there may be.
    has_strays: bool,
    /// The user's staging pool: it learns which charges outlive their processes.
    pool: StagingPool,
}

impl Book {
    /// Leases of before: those whose owner still lives wait for its connection, the others end.
    pub(crate) fn new(
        file: LeaseFile,
        found: BTreeMap<String, LeaseRecord>,
        pool: StagingPool,
    ) -> Self {
        let boot = clock::boot_id();
        let keeping = |record: &LeaseRecord| match record.boot == boot && record.owner.lives() {
            true => Keeping::Process,
            false => Keeping::Ending { attended: false },
        };
        let entries = found.into_iter().map(|(lease, record)| {
            let keeping = keeping(&record);
            (lease, Entry::new(record, keeping))
        });
        Self {
            entries: entries.collect(),
            file,
            boot,
            has_strays: true,
            pool,
        }
    }

    /// Dismisses the references of leases that are not there any more, where some may be.
    pub(crate) fn dismiss_strays(&mut self) {
        if !self.has_strays {
            return;
        }
        let Ok(references) = self.pool.references() else {
            return;
        };
        let mut strays = references
            .iter()
            .filter(|it| !self.entries.contains_key(*it));
        self.has_strays = !strays.all(|lease| self.pool.dismiss(lease).is_ok());
    }

    /// One that stays keeps a charge: it is tried again.
    fn dismiss(&mut self, lease: &str) {
        self.has_strays |= self.pool.dismiss(lease).is_err();
    }

    /// Whether a lease is there that something can still be done for. Those whose attempts have
    /// all failed for longer than `forsaken` are not.
    pub(crate) fn has_work(&self, now_ms: u64, forsaken: Duration) -> bool {
        let mut entries = self.entries.values();
        entries.any(|entry| entry.makes_work(now_ms, forsaken))
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn holds(&self, lease: &str) -> bool {
        self.entries.contains_key(lease)
    }

    pub(crate) fn boot(&self) -> &str {
        &self.boot
    }

    /// Takes a lease for `owner` on `connection`; the same again where it has it already.
    pub(crate) fn take(
        &mut self,
        lease: LeaseId,
        terms: &Terms,
        (owner, connection): (Holder, u64),
        limits: CapacityLimits,
    ) -> Response {
        let kept = Keeping::Connection(connection);
        if let Some(entry) = self.entries.get_mut(lease.as_str()) {
            return match entry.keeping {
                Keeping::Connection(_) | Keeping::Process if entry.record.owner == owner => {
                    entry.keeping = kept;
                    Response::Done {}
                }
                _ => unavailable("the lease is another's, or ends"),
            };
        }
        if let Err(reason) = check(terms) {
            return unavailable(reason);
        }
        let wanted = Charge {
            owner,
            memory_mib: terms.memory_mib,
            cpu_milli: terms.cpu_milli,
            is_ending: false,
        };
        if let Err(no_room) = capacity::check(limits, &self.charges(), wanted) {
            return Response::Exhausted {
                reason: no_room.to_string(),
            };
        }
        let record = self.record(&lease, terms, owner);
        match self.write(&record) {
            Ok(()) => {
                let entry = Entry::new(record, kept);
                self.entries.insert(lease.to_string(), entry);
                Response::Done {}
            }
            Err(reason) => unavailable(&reason),
        }
    }

    fn record(&self, lease: &LeaseId, terms: &Terms, owner: Holder) -> LeaseRecord {
        LeaseRecord {
            lease: lease.to_string(),
            tier: terms.tier,
            socket: terms.socket.clone(),
            staging: terms.staging.clone(),
            memory_mib: terms.memory_mib,
            cpu_milli: terms.cpu_milli,
            owner,
            boot: self.boot.clone(),
            until_ms: clock::boot_ms().saturating_add(terms.lifetime_ms),
            taken_at: clock::unix_seconds(),
        }
    }

    /// The reference that keeps the owner's staging space charged, then the lease itself.
    fn write(&mut self, record: &LeaseRecord) -> Result<(), String> {
        let referred = self.pool.refer(&record.lease, record.owner);
        let referred = referred.map_err(|error| {
            let remedy = remedy(&error);
            format!(
                "the folder of staging space, `symbi/staging` in the state folder: cannot write a \
                 reference{remedy}: {error}"
            )
        });
        // What may be on disk all the same ends with a restart: nobody was told of it.
        let taken = referred.and_then(|()| self.file.take(record).map_err(|fault| said(&fault)));
        taken.inspect_err(|_| self.dismiss(&record.lease))
    }

    /// Ends a lease whose container is gone. One that is not there has ended.
    pub(crate) fn end(&mut self, lease: &str) -> Result<(), String> {
        if self.entries.remove(lease).is_none() {
            return Ok(());
        }
        let left = self.entries.values().map(|entry| &entry.record);
        let ended = self.file.end(lease, left).map_err(|fault| said(&fault));
        self.dismiss(lease);
        ended
    }

    /// Whether `owner` may end the lease.
    pub(crate) fn is_of(&self, lease: &str, owner: Holder) -> bool {
        let entry = self.entries.get(lease);
        entry.is_none_or(|entry| entry.record.owner == owner)
    }

    pub(crate) fn attach(&mut self, leases: &[String], owner: Holder, connection: u64) {
        for lease in leases {
            if let Some(entry) = self.entries.get_mut(lease)
                && entry.record.owner == owner
                && !matches!(entry.keeping, Keeping::Ending { .. })
            {
                entry.keeping = Keeping::Connection(connection);
            }
        }
    }

    /// The connections that keep leases alive.
    pub(crate) fn owners(&self) -> BTreeSet<u64> {
        let connection = |entry: &Entry| match entry.keeping {
            Keeping::Connection(id) => Some(id),
            Keeping::Process | Keeping::Ending { .. } => None,
        };
        self.entries.values().filter_map(connection).collect()
    }

    /// The connection is gone: its leases end. Whether there were any.
    pub(crate) fn abandon(&mut self, connection: u64) -> bool {
        self.begin_ends(|entry| entry.keeping == Keeping::Connection(connection))
    }

    /// Leases past their time, and those of processes that are dead, end.
    pub(crate) fn expire(&mut self, now_ms: u64) {
        self.begin_ends(|entry| {
            let is_dead = entry.keeping == Keeping::Process && !entry.record.owner.lives();
            is_dead || entry.record.until_ms <= now_ms
        });
    }

    fn begin_ends(&mut self, is_over: impl Fn(&Entry) -> bool) -> bool {
        let mut any = false;
        for entry in self.entries.values_mut() {
            let live = !matches!(entry.keeping, Keeping::Ending { .. });
            if live && is_over(entry) {
                entry.keeping = Keeping::Ending { attended: false };
                any = true;
            }
        }
        any
    }

    /// The ending leases that nobody attends to; from now on the caller does.
    pub(crate) fn unattended(&mut self) -> Vec<LeaseRecord> {
        let entries = self.entries.values_mut();
        let waiting = entries.filter(|it| it.keeping == Keeping::Ending { attended: false });
        let take = |entry: &mut Entry| {
            entry.keeping = Keeping::Ending { attended: true };
            entry.record.clone()
        };
        waiting.map(take).collect()
    }

    /// Nobody attends to it any more.
    pub(crate) fn neglect(&mut self, lease: &str) {
        if let Some(entry) = self.entries.get_mut(lease) {
            entry.keeping = Keeping::Ending { attended: false };
        }
    }

    /// An attempt to end it has failed.
    pub(crate) fn waits_for(&mut self, lease: &str, what: String, now_ms: u64) {
        if let Some(entry) = self.entries.get_mut(lease) {
            entry.waits_for = Some(what);
            entry.is_unseen = false;
            entry.fails_since_ms.get_or_insert(now_ms);
        }
    }

    /// The engine answered that there is no container of it.
    pub(crate) fn unseen(&mut self, lease: &str) {
        if let Some(entry) = self.entries.get_mut(lease) {
            entry.waits_for = Some(UNSEEN.to_owned());
            entry.is_unseen = true;
            entry.fails_since_ms = None;
        }
    }

    /// Whether a lease ends whose container may be there.
    pub(crate) fn ends_soon(&self) -> bool {
        let is_soon =
            |entry: &Entry| matches!(entry.keeping, Keeping::Ending { .. }) && !entry.is_unseen;
        self.entries.values().any(is_soon)
    }

    /// Ids of the leases that end.
    pub(crate) fn ending(&self) -> Vec<String> {
        let is_ending = |entry: &Entry| matches!(entry.keeping, Keeping::Ending { .. });
        let ending = self.entries.iter().filter(|(_, entry)| is_ending(entry));
        ending.map(|(lease, _)| lease.clone()).collect()
    }

    /// Processes that keep leases alive by living.
    pub(crate) fn watched(&self) -> Vec<u32> {
        let kept = self.entries.values();
        let kept = kept.filter(|entry| entry.keeping == Keeping::Process);
        let mut pids: Vec<u32> = kept.map(|entry| entry.record.owner.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// When the next live lease is over.
    pub(crate) fn next_end_ms(&self) -> Option<u64> {
        let live = self.entries.values();
        let live = live.filter(|entry| !matches!(entry.keeping, Keeping::Ending { .. }));
        live.map(|entry| entry.record.until_ms).min()
    }

    pub(crate) fn statuses(&self) -> Vec<LeaseStatus> {
        self.entries
            .values()
            .map(|entry| {
                let state = match entry.keeping {
                    Keeping::Connection(_) | Keeping::Process => LeaseState::Live,
                    Keeping::Ending { .. } => LeaseState::Ending,
                };
                entry.record.status(state, entry.waits_for.clone())
            })
            .collect()
    }

    fn charges(&self) -> Vec<Charge> {
        let charge = |entry: &Entry| Charge {
            owner: entry.record.owner,
            memory_mib: entry.record.memory_mib,
            cpu_milli: entry.record.cpu_milli,
            is_ending: matches!(entry.keeping, Keeping::Ending { .. }),
        };
        self.entries.values().map(charge).collect()
    }
}

impl LeaseRecord {
    pub(crate) fn status(&self, state: LeaseState, waits_for: Option<String>) -> LeaseStatus {
        LeaseStatus {
            lease: self.lease.clone(),
            tier: self.tier,
            socket: self.socket.clone(),
            owner: self.owner,
            memory_mib: self.memory_mib,
            cpu_milli: self.cpu_milli,
            taken_at: self.taken_at,
            state,
            waits_for,
        }
    }
}

fn check(terms: &Terms) -> Result<(), &'static str> {
    let fits = |path: &Path| path.is_absolute() && path.as_os_str().len() <= PATH_BYTES_MAX;
    if !matches!(terms.tier, TierKind::Docker | TierKind::Gvisor) {
        return Err("only workers in containers have leases");
    }
    if !fits(&terms.socket) || !fits(&terms.staging) {
        return Err("a path of the lease is not absolute, or too long");
    }
    match u128::from(terms.lifetime_ms) > LIFETIME_MAX.as_millis() {
        true => Err("the lifetime of the lease is too long"),
        false => Ok(()),
    }
}

fn unavailable(reason: &str) -> Response {
    Response::Unavailable {
        reason: reason.to_owned(),
    }
}

/// A fault with its cause.
pub(crate) fn said(fault: &FolderFault) -> String {
    match std::error::Error::source(fault) {
        Some(source) => format!("{fault}: {source}"),
        None => fault.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::PrivateFolder;
    use crate::leases::tests::record;
    use crate::limits::FORSAKEN_TIME_MAX;

    fn book_of(place: &tempfile::TempDir, records: &[LeaseRecord]) -> Book {
        let folder = PrivateFolder::open_or_make(&place.path().join("s")).unwrap();
        let (file, _) = LeaseFile::open(folder).unwrap();
        let pool = StagingPool::open_ambient(&place.path().join("pool"), 0).unwrap();
        let found = records.iter().map(|it| (it.lease.clone(), it.clone()));
        Book::new(file, found.collect(), pool)
    }

    #[test]
    fn a_lease_that_nothing_can_be_done_for_makes_no_work_after_its_time_and_one_answer_renews_it()
    {
        let place = tempfile::tempdir().unwrap();
        // Of another start of the machine: their owners are dead.
        let mut book = book_of(&place, &[record("one"), record("two")]);
        let last = 5 + u64::try_from(FORSAKEN_TIME_MAX.as_millis()).unwrap();
        let has_work = |book: &Book, now_ms| book.has_work(now_ms, FORSAKEN_TIME_MAX);
        book.waits_for("one", "silence".to_owned(), 5);
        assert!(has_work(&book, last + 1), "nobody has tried the other one");
        book.waits_for("two", "silence".to_owned(), 5);
        // Only the first of a row of failures counts.
        book.waits_for("two", "silence".to_owned(), last);
        assert!(has_work(&book, last));
        assert!(!has_work(&book, last + 1));
        book.unseen("two");
        assert!(has_work(&book, last + 1));
        book.waits_for("two", "silence".to_owned(), last + 1);
        assert!(has_work(&book, last + 1));
        assert_eq!(book.len(), 2);
    }

    #[test]
    fn a_lease_whose_owner_lives_makes_work_for_ever() {
        let place = tempfile::tempdir().unwrap();
        let mut living = record("one");
        living.boot = clock::boot_id();
        let mut book = book_of(&place, &[living]);
        book.waits_for("one", "silence".to_owned(), 0);
        assert!(book.has_work(u64::MAX, FORSAKEN_TIME_MAX));
    }
}
