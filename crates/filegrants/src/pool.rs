//! The staging pool: the space that all private copies of files of one user's live calls share.
//!
//! A charge is a locked file in the staging folder. The kernel frees the lock with its process,
//! so a dead charge is one that can be locked, unless a reference says that a container may still
//! have the files: its lease outlives the process. Whoever reserves holds the folder's own lock.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use faults::{Point, reach};
use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::beneath::{self, BELOW, FOLDER, READ};
use crate::held::OpenError;
use crate::holder::Holder;
use crate::limits::{CHARGE_BYTES_MAX, CHARGES_MAX, HOLDERS_NAMED_MAX, POOL_PAUSE, POOL_WAIT_MAX};
use crate::snapshot::Staging;

const CHARGE: &str = "charge-";
const REFERENCE: &str = "reference-";

/// The staging folder as a bounded space.
#[derive(Debug)]
pub struct StagingPool {
    folder: OwnedFd,
    bytes_max: u64,
}

/// Space that is ours until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct StagingCharge {
    folder: OwnedFd,
    name: String,
    lock: Option<File>,
}

impl StagingCharge {
    /// Keeps the charge to the end of this process, where nobody knows whether the files are gone.
    pub fn keep(mut self) {
        // A descriptor that is never closed: the kernel does it.
        std::mem::forget(self.lock.take());
    }
}

impl Drop for StagingCharge {
    fn drop(&mut self) {
        if let Some(lock) = self.lock.take() {
            // A file that stays is dead, and the next one that reserves removes it.
            let _ = rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty());
            // Closing would do it as well, were the lock not shared with a child for a moment.
            let _ = flock(&lock, FlockOperation::Unlock);
        }
    }
}

/// Why there is no staging space for a call.
#[derive(Debug)]
pub enum PoolRefusal {
    /// More than the whole pool.
    TooLarge {
        wanted: u64,
        max: u64,
    },
    Full {
        wanted: u64,
        held: u64,
        max: u64,
        holders: Vec<(Holder, u64)>,
    },
    TooManyCharges,
    /// Another process has the pool and does not let go.
    Busy,
    Io {
        step: &'static str,
        source: io::Error,
    },
}

impl fmt::Display for PoolRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { wanted, max } => write!(
                f,
                "the call's files need {wanted} bytes of staging space, and all calls together \
                 may have {max}; raise `staging_mib` under [capacity] of your own config.toml"
            ),
            Self::Full {
                wanted,
                held,
                max,
                holders,
            } => {
                write!(
                    f,
                    "the call's files need {wanted} bytes of staging space, and {held} of {max} \
                     are held"
                )?;
                for (index, (holder, bytes)) in holders.iter().enumerate() {
                    let before = if index == 0 { " by" } else { "," };
                    write!(f, "{before} {holder} ({bytes} bytes)")?;
                }
                f.write_str(
                    "; wait for a call to end, or raise `staging_mib` under [capacity] of your \
                     own config.toml",
                )
            }
            Self::TooManyCharges => write!(
                f,
                "{CHARGES_MAX} calls hold staging space already; wait for one to end"
            ),
            Self::Busy => f.write_str(
                "another process has held the lock of the staging folder for seconds; let it go \
                 on if it is stopped, and try again",
            ),
            Self::Io { step, source } => write!(
                f,
                "the folder of staging space, `symbi/staging` in the state folder: cannot {step}: \
                 {source}; make room there, or make it writable, and try again"
            ),
        }
    }
}

impl std::error::Error for PoolRefusal {}

fn io_step<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> PoolRefusal {
    move |error| PoolRefusal::Io {
        step,
        source: error.into(),
    }
}

/// What a charge's file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChargeRecord {
    holder: Holder,
    bytes: u64,
}

/// Whether somebody still needs a charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChargeState {
    /// Its process lives.
    Live,
    /// Its process is dead, and a container of it may still have the files.
    Referenced,
    Dead,
}

/// One charge of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChargeEntry {
    /// Unknown where the process died before it wrote the record.
    pub holder: Option<Holder>,
    pub bytes: u64,
    pub state: ChargeState,
}

impl StagingPool {
    /// Opens the staging folder (ours, 0700), made where it is missing, with room for `bytes_max`.
    ///
    /// # Errors
    /// [`OpenError::Staging`].
    pub fn open_ambient(path: &Path, bytes_max: u64) -> Result<Self, OpenError> {
        let folder = Staging::open_ambient(path)?.into_folder();
        Ok(Self { folder, bytes_max })
    }

    pub(crate) const fn new(folder: OwnedFd, bytes_max: u64) -> Self {
        Self { folder, bytes_max }
    }

    /// Takes `bytes` of the pool. What dead processes left of theirs is reclaimed on the way.
    ///
    /// # Errors
    /// [`PoolRefusal`] says who holds the space; nothing is charged.
    pub fn reserve(&self, bytes: u64) -> Result<StagingCharge, PoolRefusal> {
        let max = self.bytes_max;
        if bytes > max {
            return Err(PoolRefusal::TooLarge { wanted: bytes, max });
        }
        let pool = self.lock()?;
        let charges = self.charges(Dead::Remove)?;
        if charges.len() >= CHARGES_MAX {
            return Err(PoolRefusal::TooManyCharges);
        }
        let held = charges
            .iter()
            .fold(0_u64, |sum, charge| sum.saturating_add(charge.bytes));
        if held.saturating_add(bytes) > max {
            return Err(PoolRefusal::Full {
                wanted: bytes,
                held,
                max,
                holders: by_holder(&charges),
            });
        }
        let charge = self.charge(bytes)?;
        drop(pool);
        Ok(charge)
    }

    fn charge(&self, bytes: u64) -> Result<StagingCharge, PoolRefusal> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|_| io_step("take random bytes")(Errno::IO))?;
        let name = format!("{CHARGE}{:032x}", u128::from_ne_bytes(random));
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = self
            .folder
            .try_clone()
            .map_err(io_step("hold its folder"))?;
        let file = rustix::fs::openat(&self.folder, &name, flags, OWNER)
            .map_err(io_step("write a charge"))?;
        let mut charge = StagingCharge {
            folder,
            name,
            lock: Some(File::from(file)),
        };
        let record = ChargeRecord {
            holder: Holder::this(),
            bytes,
        };
        if let Some(file) = &mut charge.lock {
            flock(&*file, FlockOperation::NonBlockingLockExclusive)
                .map_err(io_step("lock a charge"))?;
            let text = serde_json::to_vec(&record).map_err(io_step("write a charge"))?;
            file.write_all(&text).map_err(io_step("write a charge"))?;
        }
        Ok(charge)
    }

    /// Says that a container of `holder` may have its files: its charges outlive it until
    /// [`StagingPool::dismiss`]. `name` is the lease's.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn refer(&self, name: &str, holder: Holder) -> io::Result<()> {
        let flags =
            OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.folder, reference(name)?, flags, OWNER)?;
        let text = serde_json::to_vec(&holder)?;
        faults::write_all(Point::SupervisorRefer, &mut File::from(file), &text)
    }

    /// Takes the reference back, once its container and its files are gone.
    ///
    /// # Errors
    /// What the operating system says; a missing reference is none.
    pub fn dismiss(&self, name: &str) -> io::Result<()> {
        reach(Point::SupervisorDismiss)?;
        match rustix::fs::unlinkat(&self.folder, reference(name)?, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The names of all references.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn references(&self) -> io::Result<Vec<String>> {
        let names = names(&self.folder)?;
        let name = |it: String| it.strip_prefix(REFERENCE).map(str::to_owned);
        Ok(names.into_iter().filter_map(name).collect())
    }

    /// All charges; changes nothing.
    ///
    /// # Errors
    /// [`PoolRefusal`].
    pub fn survey(&self) -> Result<Vec<ChargeEntry>, PoolRefusal> {
        let _pool = self.lock()?;
        self.charges(Dead::Keep)
    }

    /// Removes the dead charges, and says which these were.
    ///
    /// # Errors
    /// [`PoolRefusal`].
    pub fn reclaim(&self) -> Result<Vec<ChargeEntry>, PoolRefusal> {
        let _pool = self.lock()?;
        let mut dead = self.charges(Dead::Keep)?;
        dead.retain(|it| it.state == ChargeState::Dead);
        self.charges(Dead::Remove)?;
        Ok(dead)
    }

    #[must_use]
    pub const fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// The folder's lock, on a handle of its own: threads exclude each other too.
    fn lock(&self) -> Result<PoolLock, PoolRefusal> {
        let handle =
            beneath::open(&self.folder, "", FOLDER, BELOW).map_err(io_step("open its folder"))?;
        let until = Instant::now() + POOL_WAIT_MAX;
        loop {
            match flock(&handle, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(PoolLock(handle)),
                Err(Errno::WOULDBLOCK) if Instant::now() >= until => return Err(PoolRefusal::Busy),
                // A holder needs microseconds, and a lock that waits cannot be bounded.
                Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::sleep(POOL_PAUSE),
                Err(errno) => return Err(io_step("lock its folder")(errno)),
            }
        }
    }

    fn charges(&self, dead: Dead) -> Result<Vec<ChargeEntry>, PoolRefusal> {
        let fail = io_step::<io::Error>;
        let names = names(&self.folder).map_err(fail("list its folder"))?;
        let referring: Vec<Holder> = names
            .iter()
            .filter(|name| name.starts_with(REFERENCE))
            .filter_map(|name| self.read::<Holder>(name).ok()?.1)
            .collect();
        let mut charges = Vec::new();
        for name in names.iter().filter(|name| name.starts_with(CHARGE)) {
            let (lock, record) = match self.read::<ChargeRecord>(name) {
                Ok(read) => read,
                // Returned while we looked.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(io_step("read a charge")(errno)),
            };
            let entry = entry(&lock, record, &referring);
            if entry.state == ChargeState::Dead && dead == Dead::Remove {
                match rustix::fs::unlinkat(&self.folder, name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => continue,
                    Err(errno) => return Err(io_step("remove a dead charge")(errno)),
                }
            }
            charges.push(entry);
        }
        Ok(charges)
    }

    /// The file and what it says, if it is whole.
    fn read<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Result<(File, Option<T>), Errno> {
        let file = File::from(beneath::open(&self.folder, name, READ, BELOW)?);
        let mut text = Vec::new();
        let read = (&file).take(CHARGE_BYTES_MAX as u64).read_to_end(&mut text);
        read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let record = serde_json::from_slice(&text).ok();
        Ok((file, record))
    }
}

const OWNER: Mode = Mode::RUSR.union(Mode::WUSR);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dead {
    Keep,
    Remove,
}

fn entry(lock: &File, record: Option<ChargeRecord>, referring: &[Holder]) -> ChargeEntry {
    let holder = record.map(|record| record.holder);
    let state = match flock(lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            let _ = flock(lock, FlockOperation::Unlock);
            match holder {
                Some(holder) if referring.contains(&holder) => ChargeState::Referenced,
                _ => ChargeState::Dead,
            }
        }
        Err(_) => ChargeState::Live,
    };
    ChargeEntry {
        holder,
        bytes: record.map_or(0, |record| record.bytes),
        state,
    }
}

/// The holders with most bytes first, few of them.
fn by_holder(charges: &[ChargeEntry]) -> Vec<(Holder, u64)> {
    let mut sums: Vec<(Holder, u64)> = Vec::new();
    for charge in charges {
        let Some(holder) = charge.holder else {
            continue;
        };
        match sums.iter_mut().find(|(it, _)| *it == holder) {
            Some((_, sum)) => *sum = sum.saturating_add(charge.bytes),
            None => sums.push((holder, charge.bytes)),
        }
    }
    sums.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    sums.truncate(HOLDERS_NAMED_MAX);
    sums
}

fn names(folder: impl AsFd) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        if let Ok(name) = entry?.file_name().to_str() {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// The file of a reference: a name with a `/` would lead elsewhere.
fn reference(name: &str) -> io::Result<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    match !name.is_empty() && name.bytes().all(plain) {
        true => Ok(format!("{REFERENCE}{name}")),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Nobody else reserves while it lives.
struct PoolLock(OwnedFd);

impl Drop for PoolLock {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}
