//! Where a journal's bytes go. Storage only: order, signatures and room are the journal's.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use faults::{Point, reach};
use model::RunId;
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;

use crate::folder::{PrivateFolder, StorageError};
use crate::limits::{
    APPEND_BYTES_MAX, JOURNAL_BYTES_MAX, LOCK_RETRY_MS, LOCK_WAIT_MS_MAX, PREALLOCATED_BYTES,
    PREALLOCATED_BYTES_MIN,
};
use crate::places::file_name;

/// What survives when [`JournalWriter::make_durable`] has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Nothing survives the process.
    Memory,
    /// The bytes are on stable storage, and so is their file's name.
    Storage,
}

/// Storage of one journal: bytes in order, nothing else.
pub trait JournalWriter: Send {
    /// Appends all of `bytes`, or fails. After a failure nothing more is asked of it.
    ///
    /// # Errors
    /// The operating system's; a short write is an error.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything appended so far as durable as [`JournalWriter::durability`] says.
    ///
    /// # Errors
    /// The operating system's. What was appended may or may not survive.
    fn make_durable(&mut self) -> io::Result<()>;

    fn durability(&self) -> Durability;
}

/// A journal in memory, for tests and for programs that want no file. Clones share its bytes.
#[derive(Debug, Clone, Default)]
pub struct MemoryWriter {
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl MemoryWriter {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A copy of what was appended.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.bytes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl JournalWriter for MemoryWriter {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut held = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        check_room(held.len() as u64, bytes.len())?;
        held.extend_from_slice(bytes);
        Ok(())
    }

    fn make_durable(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn durability(&self) -> Durability {
        Durability::Memory
    }
}

fn check_room(size: u64, more: usize) -> io::Result<()> {
    if more > APPEND_BYTES_MAX {
        let text = format!("one append has {more} bytes, more than the {APPEND_BYTES_MAX} allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    if size.saturating_add(more as u64) > JOURNAL_BYTES_MAX {
        let text = format!("the journal would pass {JOURNAL_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(())
}

/// The journal file of one run: created once, 0600 in a private folder, locked for its life.
#[derive(Debug)]
pub struct ProtectedJournal {
    file: File,
    folder: PrivateFolder,
    /// Whether the folder's entry of this file is durable.
    named: bool,
    seen: Seen,
    allocated: u64,
}

/// What a change from outside would change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    links: u64,
    mode: u32,
    owner: u32,
}

impl Seen {
    fn of(file: &File) -> io::Result<Self> {
        let stat = file.metadata()?;
        Ok(Self {
            size: stat.size(),
            modified: (stat.mtime(), stat.mtime_nsec()),
            changed: (stat.ctime(), stat.ctime_nsec()),
            links: stat.nlink(),
            mode: stat.mode(),
            owner: stat.uid(),
        })
    }
}

impl ProtectedJournal {
    /// Creates `<folder>/<run>.jsonl` and locks it; the folder is made (0700) where absent.
    ///
    /// # Errors
    /// [`StorageError::Exists`] for a run that has a journal already, and whatever makes the
    /// folder unfit: another owner, another mode, a link.
    pub fn create(folder: &Path, run: RunId) -> Result<Self, StorageError> {
        Self::create_with(folder, run, |file| allocate(file, 0))
    }

    /// The same with another way to reserve space. Where it fails no file remains.
    fn create_with(
        folder: &Path,
        run: RunId,
        reserve: impl FnOnce(&File) -> io::Result<u64>,
    ) -> Result<Self, StorageError> {
        let folder = PrivateFolder::create(folder)?;
        let name = file_name(run);
        reach(Point::JournalCreate).map_err(|source| StorageError::Io {
            action: "create",
            path: folder.shown(&name),
            source,
        })?;
        let file = create_locked(&folder, &name)?;
        let io = |action| {
            let path = folder.shown(&name);
            move |source| StorageError::Io {
                action,
                path,
                source,
            }
        };
        let made = reserve(&file)
            .map_err(io("reserve space for"))
            .and_then(|allocated| Ok((allocated, Seen::of(&file).map_err(io("examine"))?)));
        match made {
            Ok((allocated, seen)) => Ok(Self {
                file,
                folder,
                named: false,
                seen,
                allocated,
            }),
            Err(error) => {
                let _ = folder.remove(&name);
                Err(error)
            }
        }
    }

    /// Asks for blocks ahead of `end`. A refusal counts only where the next bytes need them.
    fn extend(&mut self, end: u64) -> io::Result<()> {
        if end.saturating_add(PREALLOCATED_BYTES_MIN) > self.allocated
            && self.allocated < JOURNAL_BYTES_MAX
        {
            match allocate(&self.file, end) {
                Ok(allocated) => self.allocated = allocated,
                Err(_) if end <= self.allocated => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn check_unchanged(&self) -> io::Result<()> {
        match Seen::of(&self.file)? == self.seen {
            true => Ok(()),
            false => Err(io::Error::other(
                "the journal file was changed from outside",
            )),
        }
    }
}

/// Makes a file and locks it. Where that fails no file remains.
pub(crate) fn create_locked(folder: &PrivateFolder, name: &OsStr) -> Result<File, StorageError> {
    let shown = folder.shown(name);
    loop {
        let file = folder.create_file(name)?;
        if let Err(error) = lock(&file, FlockOperation::NonBlockingLockExclusive, &shown) {
            let _ = folder.remove(name);
            return Err(error);
        }
        // Before it was locked, another start may have removed it as an empty one of a dead run.
        if file.metadata().is_ok_and(|stat| stat.nlink() > 0) {
            return Ok(file);
        }
    }
}

impl JournalWriter for ProtectedJournal {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        check_room(self.seen.size, bytes.len())?;
        self.check_unchanged()?;
        let end = self.seen.size + bytes.len() as u64;
        self.extend(end)?;
        let written = faults::write(Point::JournalWrite, &mut self.file, bytes)?;
        if written != bytes.len() {
            return Err(io::Error::new(
                io::ErrorKind::WriteZero,
                format!("only {written} of {} bytes were written", bytes.len()),
            ));
        }
        let seen = Seen::of(&self.file)?;
        if (seen.size, seen.links) != (end, 1) {
            return Err(io::Error::other(
                "the journal file was changed from outside",
            ));
        }
        self.seen = seen;
        Ok(())
    }

    fn make_durable(&mut self) -> io::Result<()> {
        reach(Point::JournalSync)?;
        self.file.sync_data()?;
        if !self.named {
            reach(Point::JournalSyncFolder)?;
            self.folder.sync().map_err(io::Error::other)?;
            self.named = true;
        }
        Ok(())
    }

    fn durability(&self) -> Durability {
        Durability::Storage
    }
}

impl Drop for ProtectedJournal {
    /// Gives back the blocks past the end, if the file is as we left it.
    fn drop(&mut self) {
        if self.allocated > self.seen.size && self.check_unchanged().is_ok() {
            let _ = self.file.set_len(self.seen.size);
        }
    }
}

/// Reserves blocks up to `PREALLOCATED_BYTES` past `end` without changing the file's size: a
/// full disk then shows before an effect, not after it. Returns how far the blocks reach.
fn allocate(file: &File, end: u64) -> io::Result<u64> {
    let upto = end
        .saturating_add(PREALLOCATED_BYTES)
        .min(JOURNAL_BYTES_MAX);
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, upto) {
            Ok(()) => return Ok(upto),
            Err(Errno::INTR) => {}
            // A file system without it: the writes themselves will tell.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(JOURNAL_BYTES_MAX),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Takes a lock on an open file; a reader may hold one for a moment, so it tries for a while.
pub(crate) fn lock(file: &File, how: FlockOperation, shown: &str) -> Result<(), StorageError> {
    let deadline = Instant::now() + Duration::from_millis(LOCK_WAIT_MS_MAX);
    loop {
        match rustix::fs::flock(file, how) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(LOCK_RETRY_MS));
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(StorageError::Locked {
                    path: shown.to_owned(),
                });
            }
            Err(error) => {
                return Err(StorageError::Io {
                    action: "lock",
                    path: shown.to_owned(),
                    source: error.into(),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_whose_space_cannot_be_reserved_leaves_no_file() {
        let home = tempfile::tempdir().unwrap();
        let (folder, run) = (home.path().join("governed"), RunId::new());
        let full = |_: &File| Err(io::Error::from(io::ErrorKind::StorageFull));
        let error = ProtectedJournal::create_with(&folder, run, full).unwrap_err();
        assert!(error.to_string().contains("reserve space"), "{error}");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        ProtectedJournal::create(&folder, run).unwrap();
    }
}
