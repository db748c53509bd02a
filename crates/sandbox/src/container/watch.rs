//! How much a worker puts into the folder of its fresh output.
//!
//! The folder is on the host's disk, and each file in it has the worker's file limit; how many
//! there are is watched here, by the kernel's events. A folder of the worker's own is not allowed
//! there: what is below it would not be seen.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{AtFlags, Dir, FileType, statat};

use crate::limits::{FRESH_ENTRIES_MAX, FRESH_SLACK_BYTES};

/// Bytes of events that are taken at a time.
const EVENTS_BYTES: usize = 4096;

/// One watched folder.
#[derive(Debug)]
pub(super) struct FreshWatch {
    events: OwnedFd,
    folder: OwnedFd,
    bytes_max: u64,
}

/// Why a worker is stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Excess {
    Bytes,
    Entries,
    Folder,
}

impl std::fmt::Display for Excess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bytes => "the worker was stopped: it wrote too much beside its output",
            Self::Entries => "the worker was stopped: it made too many files beside its output",
            Self::Folder => "the worker was stopped: it made a folder beside its output",
        })
    }
}

impl FreshWatch {
    /// Watches `folder`, in which one file of `file_bytes` is expected.
    pub(super) fn new(folder: BorrowedFd<'_>, file_bytes: u64) -> io::Result<Self> {
        let folder = folder.try_clone_to_owned()?;
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&folder));
        // Owners too: gVisor's file server makes a folder as itself, and then gives it away.
        let wanted =
            WatchFlags::CREATE | WatchFlags::MODIFY | WatchFlags::MOVED_TO | WatchFlags::ATTRIB;
        inotify::add_watch(&events, path.as_str(), wanted | WatchFlags::ONLYDIR)?;
        Ok(Self {
            events,
            folder,
            // Twice: a program may write its second version beside the first.
            bytes_max: file_bytes
                .saturating_mul(2)
                .saturating_add(FRESH_SLACK_BYTES),
        })
    }

    /// Looks again if something has happened.
    pub(super) fn advance(&mut self) -> io::Result<Option<Excess>> {
        if !self.has_news()? {
            return Ok(None);
        }
        self.excess()
    }

    fn has_news(&mut self) -> io::Result<bool> {
        let mut buffer = [std::mem::MaybeUninit::uninit(); EVENTS_BYTES];
        let mut reader = inotify::Reader::new(&self.events, &mut buffer);
        let mut has_news = false;
        loop {
            match reader.next() {
                // Also one that says that there were too many.
                Ok(_) => has_news = true,
                Err(rustix::io::Errno::AGAIN) => return Ok(has_news),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn excess(&self) -> io::Result<Option<Excess>> {
        let mut bytes = 0u64;
        let mut entries = 0;
        for entry in Dir::read_from(&self.folder)? {
            let entry = entry?;
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            entries += 1;
            if entries > FRESH_ENTRIES_MAX {
                return Ok(Some(Excess::Entries));
            }
            let Ok(stat) = statat(&self.folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
            else {
                continue;
            };
            let is_ours = stat.st_uid == rustix::process::geteuid().as_raw();
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory && !is_ours {
                return Ok(Some(Excess::Folder));
            }
            // Blocks can be taken past a file's end, and a file can end past its blocks.
            let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
            let blocks = u64::try_from(stat.st_blocks).unwrap_or(u64::MAX);
            bytes = bytes.saturating_add(size.max(blocks.saturating_mul(512)));
        }
        Ok((bytes > self.bytes_max).then_some(Excess::Bytes))
    }
}

impl AsFd for FreshWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
