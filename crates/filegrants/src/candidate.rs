//! Candidates: complete, synced, private copies of outputs that wait for their rename.
//!
//! They live in a folder of mode 0700 at the root of their volume, so that the rename stays on one
//! file system and no worker ever sees them. A name says the run and the publication.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::str::FromStr;

use model::{PublicationId, RunId};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::beneath::{self, BELOW, FOLDER, Identity};
use crate::ceiling::CANDIDATES_NAME;
use crate::limits::{PROBE_AGE_SECONDS_MIN, SWEEP_ENTRIES_MAX};

const PROBE_PREFIX: &str = "probe-";

/// Why the folder for candidates cannot be used.
#[derive(Debug)]
pub enum FolderFault {
    Make(io::Error),
    /// It is a link, a file, or on another file system.
    NotFolder(io::Error),
    NotOurs {
        owner: u32,
        user: u32,
    },
    NotPrivate {
        mode: u32,
    },
}

impl fmt::Display for FolderFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = CANDIDATES_NAME;
        match self {
            Self::Make(_) => write!(
                f,
                "`{name}` cannot be made at the root of its volume; \
                 make that folder writable for the operator's user"
            ),
            Self::NotFolder(_) => write!(
                f,
                "`{name}` at the root of its volume is not a plain folder; move it away"
            ),
            Self::NotOurs { owner, user } => write!(
                f,
                "`{name}` at the root of its volume belongs to user {owner}, not to {user}; \
                 let its owner look at it and remove it"
            ),
            Self::NotPrivate { mode } => write!(
                f,
                "`{name}` at the root of its volume has mode {mode:04o}, so others could change \
                 what is published; look at its content and make it 0700"
            ),
        }
    }
}

impl std::error::Error for FolderFault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Make(error) | Self::NotFolder(error) => Some(error),
            _ => None,
        }
    }
}

/// The name of a candidate: `RUN.PUBLICATION`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CandidateName {
    pub run: RunId,
    pub publication: PublicationId,
}

impl fmt::Display for CandidateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.run, self.publication)
    }
}

impl FromStr for CandidateName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (run, publication) = text.split_once('.').ok_or(())?;
        Ok(Self {
            run: run.parse().map_err(drop)?,
            publication: publication.parse().map_err(drop)?,
        })
    }
}

/// Why a volume's file system cannot take an output.
#[derive(Debug)]
pub(crate) enum Unfit {
    Rename(io::Error),
    FoldsCase,
    Room(io::Error),
}

/// Whether the file `name` is found under the same name in capitals.
fn answers_to_other_case(folder: BorrowedFd<'_>, name: &str) -> Result<bool, Errno> {
    let same = beneath::look(folder, name)?.zip(beneath::look(folder, &name.to_uppercase())?);
    Ok(same.is_some_and(|(a, b)| Identity::from_stat(&a) == Identity::from_stat(&b)))
}

/// The held folder of one volume's candidates.
#[derive(Debug)]
pub(crate) struct CandidateFolder {
    folder: OwnedFd,
    identity: Identity,
}

impl CandidateFolder {
    /// Opens the folder at `root`, makes it where it is missing, and checks that it is private.
    pub(crate) fn open_or_make(root: BorrowedFd<'_>) -> Result<Self, FolderFault> {
        match rustix::fs::mkdirat(root, CANDIDATES_NAME, Mode::RWXU) {
            Ok(()) => rustix::fs::fsync(root).map_err(|it| FolderFault::Make(it.into()))?,
            Err(Errno::EXIST) => {}
            Err(other) => return Err(FolderFault::Make(other.into())),
        }
        Self::open_existing(root)
    }

    /// Opens the folder at `root`, which must be there, and checks that it is private.
    pub(crate) fn open_existing(root: BorrowedFd<'_>) -> Result<Self, FolderFault> {
        let not_folder = |errno: Errno| FolderFault::NotFolder(errno.into());
        let folder = beneath::open(root, CANDIDATES_NAME, FOLDER, BELOW).map_err(not_folder)?;
        let stat = rustix::fs::fstat(&folder).map_err(not_folder)?;
        let user = rustix::process::geteuid().as_raw();
        if stat.st_uid != user {
            return Err(FolderFault::NotOurs {
                owner: stat.st_uid,
                user,
            });
        }
        let mode = stat.st_mode & 0o7777;
        if mode & 0o077 != 0 {
            return Err(FolderFault::NotPrivate { mode });
        }
        Ok(Self {
            folder,
            identity: Identity::from_stat(&stat),
        })
    }

    pub(crate) fn handle(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    pub(crate) const fn identity(&self) -> Identity {
        self.identity
    }

    /// Shows on two files that a rename works here and never replaces, that names differ by
    /// the case of their letters, and that there is room for `bytes`.
    pub(crate) fn prove(&self, bytes: u64) -> Result<(), Unfit> {
        let mut random = [0; 16];
        getrandom::fill(&mut random)
            .map_err(|error| Unfit::Rename(io::Error::other(error.to_string())))?;
        let name = |role| format!("{PROBE_PREFIX}{:032x}-{role}", u128::from_ne_bytes(random));
        let (from, taken, free) = (name("from"), name("taken"), name("free"));
        let proof = self
            .try_rename(&from, &taken, &free)
            .map_err(Unfit::Rename)
            .and_then(|()| self.try_names_and_room(&free, bytes));
        for name in [from, taken, free] {
            // Absent is as good as removed; anything left is swept later.
            let _ = rustix::fs::unlinkat(&self.folder, name, AtFlags::empty());
        }
        proof
    }

    fn try_rename(&self, from: &str, taken: &str, free: &str) -> io::Result<()> {
        for name in [from, taken] {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            rustix::fs::openat(&self.folder, name, flags, Mode::RUSR | Mode::WUSR)?;
        }
        match self.rename_to(from, self.handle(), taken) {
            Err(Errno::EXIST) => {}
            Err(other) => return Err(other.into()),
            Ok(()) => {
                return Err(io::Error::other(
                    "a rename replaced a file in spite of its flag",
                ));
            }
        }
        Ok(self.rename_to(from, self.handle(), free)?)
    }

    fn try_names_and_room(&self, name: &str, bytes: u64) -> Result<(), Unfit> {
        let rename = |errno: Errno| Unfit::Rename(errno.into());
        if answers_to_other_case(self.handle(), name).map_err(rename)? {
            return Err(Unfit::FoldsCase);
        }
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.folder, name, flags, Mode::empty()).map_err(rename)?;
        // Reserving the blocks would say it for certain, and takes ext4 a disk's sync.
        let stat = rustix::fs::fstatvfs(&file).map_err(rename)?;
        let free = match rustix::process::geteuid().is_root() {
            true => stat.f_bfree,
            false => stat.f_bavail,
        };
        let is_known = stat.f_blocks > 0;
        if is_known && free.saturating_mul(stat.f_frsize) < bytes {
            return Err(Unfit::Room(Errno::NOSPC.into()));
        }
        match rustix::io::pwrite(&file, b"x", 0) {
            // A quota shows here.
            Err(full @ (Errno::NOSPC | Errno::DQUOT)) => Err(Unfit::Room(full.into())),
            // Whatever else there is, the copy will meet it.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// The one rename of this crate: atomic, and never over anything.
    pub(crate) fn rename_to(
        &self,
        name: &str,
        folder: BorrowedFd<'_>,
        target: &str,
    ) -> Result<(), Errno> {
        rustix::fs::renameat_with(&self.folder, name, folder, target, RenameFlags::NOREPLACE)
    }

    /// A new empty candidate of our own, mode 0666 minus the umask: no inode that a worker had.
    pub(crate) fn create(&self, name: CandidateName) -> io::Result<Candidate<'_>> {
        let name = name.to_string();
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.folder, &name, flags, Mode::from_raw_mode(0o666))?;
        let removal = Removal { folder: self, name };
        let identity = Identity::of(&file)?;
        Ok(Candidate {
            file: file.into(),
            identity,
            removal,
        })
    }

    fn sweep(&self, mut is_kept: impl FnMut(CandidateName) -> bool) -> io::Result<Swept> {
        let mut swept = Swept::default();
        for entry in Dir::read_from(&self.folder)?.take(SWEEP_ENTRIES_MAX) {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                swept.unknown += 1;
                continue;
            };
            if name == "." || name == ".." {
                continue;
            }
            let is_garbage = match name.parse::<CandidateName>() {
                Ok(candidate) => !is_kept(candidate),
                Err(()) if name.starts_with(PROBE_PREFIX) => self.is_old(name)?,
                Err(()) => {
                    swept.unknown += 1;
                    continue;
                }
            };
            if !is_garbage {
                swept.kept += 1;
                continue;
            }
            match rustix::fs::unlinkat(&self.folder, name, AtFlags::empty()) {
                Ok(()) => swept.removed += 1,
                Err(Errno::NOENT) => {}
                Err(other) => return Err(other.into()),
            }
        }
        if swept.removed > 0 {
            rustix::fs::fsync(&self.folder)?;
        }
        Ok(swept)
    }

    fn is_old(&self, name: &str) -> io::Result<bool> {
        let Some(stat) = beneath::look(&self.folder, name)? else {
            return Ok(false);
        };
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec;
        // A clock that was set back makes a left probe come from far ahead.
        Ok(now.abs_diff(stat.st_mtime) >= PROBE_AGE_SECONDS_MIN)
    }
}

impl AsFd for CandidateFolder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    pub removed: usize,
    pub kept: usize,
    /// Entries that are not ours to judge; they stay.
    pub unknown: usize,
}

impl Swept {
    pub(crate) const fn add(&mut self, other: Self) {
        self.removed += other.removed;
        self.kept += other.kept;
        self.unknown += other.unknown;
    }
}

/// Sweeps the candidates at `root`, if there is such a folder.
pub(crate) fn sweep(
    root: BorrowedFd<'_>,
    is_kept: impl FnMut(CandidateName) -> bool,
) -> Result<Swept, SweepError> {
    match beneath::look(root, CANDIDATES_NAME) {
        Ok(None) => return Ok(Swept::default()),
        Ok(Some(_)) => {}
        Err(other) => return Err(SweepError::Io(other.into())),
    }
    CandidateFolder::open_existing(root)
        .map_err(SweepError::Folder)?
        .sweep(is_kept)
        .map_err(SweepError::Io)
}

/// Why left candidates could not be swept.
#[derive(Debug)]
pub enum SweepError {
    Folder(FolderFault),
    Io(io::Error),
}

impl fmt::Display for SweepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(fault) => write!(f, "left candidates cannot be swept: {fault}"),
            Self::Io(_) => f.write_str("left candidates cannot be swept"),
        }
    }
}

impl std::error::Error for SweepError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Folder(fault) => std::error::Error::source(fault),
            Self::Io(error) => Some(error),
        }
    }
}

/// A candidate that no record names yet: dropping it removes it.
pub(crate) struct Candidate<'f> {
    pub(crate) file: File,
    identity: Identity,
    removal: Removal<'f>,
}

struct Removal<'f> {
    folder: &'f CandidateFolder,
    name: String,
}

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        // What cannot be removed now is swept later: no record names it.
        let _ = rustix::fs::unlinkat(&self.folder.folder, &self.name, AtFlags::empty());
    }
}

impl Candidate<'_> {
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    pub(crate) fn sync_folder(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.removal.folder.folder)?)
    }

    pub(crate) const fn identity(&self) -> Identity {
        self.identity
    }

    pub(crate) fn name(&self) -> &str {
        &self.removal.name
    }

    /// From here on nothing but [`KeptCandidate::remove`] removes it.
    pub(crate) fn keep(self) -> KeptCandidate {
        let Self {
            file,
            identity,
            mut removal,
        } = self;
        let name = std::mem::take(&mut removal.name);
        std::mem::forget(removal);
        KeptCandidate {
            name,
            identity,
            _pin: file,
        }
    }
}

/// A candidate that an intent may name: it stays on every exit but one.
pub(crate) struct KeptCandidate {
    pub(crate) name: String,
    pub(crate) identity: Identity,
    /// While it is open no other file can get the same inode number.
    _pin: File,
}

impl KeptCandidate {
    /// Removes it, after a record has said that nothing was published.
    pub(crate) fn remove(self, folder: &CandidateFolder) -> io::Result<()> {
        rustix::fs::unlinkat(&folder.folder, &self.name, AtFlags::empty())?;
        Ok(rustix::fs::fsync(&folder.folder)?)
    }
}

/// Whether `name` in `folder` is the file `identity` with one link and `bytes` bytes.
pub(crate) fn stands(
    folder: BorrowedFd<'_>,
    name: &str,
    identity: Identity,
    bytes: u64,
) -> io::Result<bool> {
    Ok(beneath::look(folder, name)?.is_some_and(|stat| {
        Identity::from_stat(&stat) == identity
            && beneath::links(&stat) == 1
            && u64::try_from(stat.st_size) == Ok(bytes)
    }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_folder_where_a_name_in_capitals_is_the_same_file_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let held = File::open(folder.path()).unwrap();
        let answers = |name| answers_to_other_case(held.as_fd(), name).unwrap();
        fs::write(folder.path().join("probe-a"), "").unwrap();
        fs::write(folder.path().join("probe-b"), "").unwrap();
        assert!(!answers("probe-a") && !answers("none"));
        fs::write(folder.path().join("PROBE-A"), "").unwrap();
        assert!(!answers("probe-a"), "another file");
        fs::hard_link(folder.path().join("probe-b"), folder.path().join("PROBE-B")).unwrap();
        assert!(answers("probe-b"));
    }
}
