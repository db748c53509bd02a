//! The supervisor's private folder, and the lock that only one process has.

use std::fmt;
use std::fs::{DirBuilder, File};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use faults::{Point, reach};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, open, openat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use crate::limits::{LOCK_ATTEMPTS_MAX, LOCK_PAUSE, STORE_DIGITS};

const LOCK: &str = "lock";
const STORE: &str = "store";
const LOCK_BYTES_MAX: u64 = 8 << 10;

/// Why a folder or a file of the supervisor cannot be used.
#[derive(Debug)]
pub enum FolderFault {
    Io {
        step: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    NotOurs {
        path: PathBuf,
        owner: u32,
    },
    NotPrivate {
        path: PathBuf,
        mode: u32,
    },
    /// Another supervisor has the lock.
    Taken,
    /// A file holds what no supervisor wrote.
    Damaged {
        path: PathBuf,
    },
}

impl fmt::Display for FolderFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { step, path, source } => {
                let remedy = remedy(source);
                write!(f, "cannot {step} `{}`{remedy}", path.display())
            }
            Self::NotOurs { path, owner } => {
                let (path, ours) = (path.display(), geteuid().as_raw());
                write!(
                    f,
                    "`{path}` belongs to uid {owner}, and this is uid {ours}: run it as that \
                     user, or take the folder over: chown -R {ours} {path}"
                )
            }
            Self::NotPrivate { path, mode } => write!(
                f,
                "`{}` has mode {mode:04o}; others must have no right there: chmod go= it",
                path.display()
            ),
            Self::Taken => f.write_str("a supervisor runs already"),
            Self::Damaged { path } => write!(
                f,
                "`{}` holds what no supervisor of this version writes; when no container of \
                 `symbi` runs any more, move it away",
                path.display()
            ),
        }
    }
}

/// What a person can do about it.
pub(crate) fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; make room there, and try again"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; make it writable for this user, and try again"
        }
        _ => "",
    }
}

impl std::error::Error for FolderFault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// A private folder (ours, 0700), held.
#[derive(Debug)]
pub(crate) struct PrivateFolder {
    handle: OwnedFd,
    path: PathBuf,
}

/// What the lock's holder says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Running {
    pub(crate) pid: u32,
    /// The folder of its socket.
    pub(crate) sockets: PathBuf,
    /// Its name there.
    pub(crate) name: String,
}

/// The lock. Nobody else is a supervisor while it lives.
#[derive(Debug)]
pub(crate) struct Lock(File);

/// Who has a folder's lock, if anybody has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holding {
    Nobody,
    /// One that has not said where it listens.
    Beginner,
    Supervisor(Running),
}

impl Lock {
    /// Whether it is still what others find who look for the lock of `state`.
    pub(crate) fn is_in_place(&self, state: &Path) -> bool {
        let found = PrivateFolder::open(state)
            .ok()
            .and_then(|it| it.inode(LOCK));
        found.is_some() && found == inode_of(&self.0)
    }

    pub(crate) fn say(&self, running: &Running) -> io::Result<()> {
        let text = serde_json::to_vec(running)?;
        self.0.set_len(0)?;
        faults::write_all(Point::SupervisorLock, &mut &self.0, &text)
    }
}

impl PrivateFolder {
    pub(crate) fn open_or_make(path: &Path) -> Result<Self, FolderFault> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(io_fault("make the folder", path))?;
        Self::open(path)
    }

    pub(crate) fn open(path: &Path) -> Result<Self, FolderFault> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = open(path, flags, Mode::empty()).map_err(io_fault("open", path))?;
        check(&handle, path)?;
        Ok(Self {
            handle,
            path: path.to_owned(),
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A private file of ours; made where it is missing and `flags` say so.
    pub(crate) fn file(&self, name: &str, flags: OFlags) -> Result<File, FolderFault> {
        let path = self.path(name);
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = openat(&self.handle, name, flags, mode).map_err(io_fault("open", &path))?;
        check(&file, &path)?;
        Ok(File::from(file))
    }

    /// The bytes of a private file, if it is there.
    pub(crate) fn read(&self, name: &str, max: u64) -> Result<Option<Vec<u8>>, FolderFault> {
        let file = match self.file(name, OFlags::RDONLY) {
            Ok(file) => file,
            Err(FolderFault::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(fault) => return Err(fault),
        };
        let mut bytes = Vec::new();
        let read = file.take(max + 1).read_to_end(&mut bytes);
        read.map_err(io_fault("read", &self.path(name)))?;
        match bytes.len() as u64 > max {
            true => Err(self.damaged(name)),
            false => Ok(Some(bytes)),
        }
    }

    /// Makes `name` have exactly these bytes, durably: a crash leaves the old ones or the new.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), FolderFault> {
        let aside = format!(".{name}");
        let path = self.path(name);
        let file = self.file(&aside, OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY)?;
        faults::write_all(Point::SupervisorWriteAside, &mut &file, bytes)
            .and_then(|()| reach(Point::SupervisorSyncAside))
            .and_then(|()| file.sync_all())
            .and_then(|()| reach(Point::SupervisorReplace))
            .map_err(io_fault("write", &path))?;
        rustix::fs::renameat(&self.handle, &aside, &self.handle, name)
            .map_err(io_fault("write", &path))?;
        reach(Point::SupervisorSyncFolder)
            .and_then(|()| Ok(rustix::fs::fsync(&self.handle)?))
            .map_err(io_fault("write", &path))
    }

    pub(crate) fn sync(&self) -> Result<(), FolderFault> {
        rustix::fs::fsync(&self.handle).map_err(io_fault("sync", &self.path))
    }

    pub(crate) fn damaged(&self, name: &str) -> FolderFault {
        FolderFault::Damaged {
            path: self.path(name),
        }
    }

    /// Takes the lock, without waiting. A file that is left of a dead one is no obstacle.
    pub(crate) fn lock(&self) -> Result<Lock, FolderFault> {
        let file = self.file(LOCK, OFlags::CREATE | OFlags::RDWR)?;
        for _ in 0..LOCK_ATTEMPTS_MAX {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return self.begun(file),
                // Who looks whether somebody has it has it for a moment.
                Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
                Err(errno) => return Err(io_fault("lock", &self.path(LOCK))(errno)),
            }
        }
        Err(FolderFault::Taken)
    }

    /// Takes the lock at the end of whoever has it.
    pub(crate) fn lock_when_free(&self) -> Result<Lock, FolderFault> {
        loop {
            let file = self.file(LOCK, OFlags::CREATE | OFlags::RDWR)?;
            match flock(&file, FlockOperation::LockExclusive) {
                // It may have been replaced meanwhile: then another one has the lock.
                Ok(()) if inode_of(&file) == self.inode(LOCK) => return self.begun(file),
                Ok(()) | Err(Errno::INTR) => {}
                Err(errno) => return Err(io_fault("lock", &self.path(LOCK))(errno)),
            }
        }
    }

    /// What the last one said of itself is not true of who has the lock now.
    fn begun(&self, file: File) -> Result<Lock, FolderFault> {
        let cut = file.set_len(0);
        cut.map_err(io_fault("write", &self.path(LOCK)))?;
        Ok(Lock(file))
    }

    /// Who has the lock.
    pub(crate) fn holding(&self) -> Result<Holding, FolderFault> {
        let Some(bytes) = self.read(LOCK, LOCK_BYTES_MAX)? else {
            return Ok(Holding::Nobody);
        };
        let file = self.file(LOCK, OFlags::RDONLY)?;
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => {
                Ok(serde_json::from_slice(&bytes).map_or(Holding::Beginner, Holding::Supervisor))
            }
            _ => Ok(Holding::Nobody),
        }
    }

    /// Which file `name` is, if it is there.
    pub(crate) fn inode(&self, name: &str) -> Option<(u64, u64)> {
        let found = statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((found.st_dev, found.st_ino))
    }

    /// What the ids of this folder's leases begin with, if that was made.
    pub(crate) fn existing_store(&self) -> Result<Option<String>, FolderFault> {
        let Some(bytes) = self.read(STORE, STORE_DIGITS as u64 + 1)? else {
            return Ok(None);
        };
        let text = String::from_utf8(bytes).unwrap_or_default();
        let digits = text.trim_end_matches('\n');
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        match digits.len() == STORE_DIGITS && digits.bytes().all(is_hex) {
            true => Ok(Some(digits.to_owned())),
            false => Err(self.damaged(STORE)),
        }
    }

    /// The same; random, and made once.
    pub(crate) fn store(&self) -> Result<String, FolderFault> {
        if let Some(digits) = self.existing_store()? {
            return Ok(digits);
        }
        let digits = random_digits(STORE_DIGITS).map_err(io_fault("make", &self.path(STORE)))?;
        self.replace(STORE, format!("{digits}\n").as_bytes())?;
        Ok(digits)
    }
}

/// Random lower-case hexadecimal digits, an even number of them.
pub(crate) fn random_digits(count: usize) -> io::Result<String> {
    let mut bytes = vec![0_u8; count / 2];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn inode_of(file: impl AsFd) -> Option<(u64, u64)> {
    let found = fstat(file).ok()?;
    Some((found.st_dev, found.st_ino))
}

fn check(file: impl AsFd, path: &Path) -> Result<(), FolderFault> {
    let stat = fstat(file).map_err(io_fault("look at", path))?;
    let path = path.to_owned();
    if stat.st_uid != geteuid().as_raw() {
        let owner = stat.st_uid;
        return Err(FolderFault::NotOurs { path, owner });
    }
    match stat.st_mode & 0o7777 {
        mode if mode & 0o077 != 0 => Err(FolderFault::NotPrivate { path, mode }),
        _ => Ok(()),
    }
}

pub(crate) fn io_fault<E: Into<io::Error>>(
    step: &'static str,
    path: &Path,
) -> impl FnOnce(E) -> FolderFault + use<E> {
    let path = path.to_owned();
    move |error| FolderFault::Io {
        step,
        path,
        source: error.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn one_has_the_lock_and_a_lock_file_that_is_left_stops_nobody() {
        let place = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::open_or_make(&place.path().join("s")).unwrap();
        let running = Running {
            pid: 7,
            sockets: "/run/x".into(),
            name: "supervisor-1".to_owned(),
        };
        let lock = folder.lock().unwrap();
        lock.say(&running).unwrap();
        assert!(matches!(folder.lock(), Err(FolderFault::Taken)));
        assert_eq!(folder.holding().unwrap(), Holding::Supervisor(running));
        drop(lock);
        assert_eq!(folder.holding().unwrap(), Holding::Nobody);
        let again = folder.lock().unwrap();
        assert_eq!(folder.holding().unwrap(), Holding::Beginner);
        assert!(again.is_in_place(&place.path().join("s")));
        fs::remove_file(place.path().join("s/lock")).unwrap();
        assert!(!again.is_in_place(&place.path().join("s")));
    }

    #[test]
    fn who_looks_whether_there_is_a_supervisor_keeps_none_from_beginning() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("s");
        let folder = PrivateFolder::open_or_make(&path).unwrap();
        drop(folder.lock().unwrap());
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let (looked, has_looked) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let folder = PrivateFolder::open(&path).unwrap();
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    folder.holding().unwrap();
                    looked.send(()).unwrap();
                }
            });
            has_looked.recv().unwrap();
            let locked: Vec<bool> = (0..5000).map(|_| folder.lock().is_ok()).collect();
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(locked.iter().all(|it| *it));
        });
    }

    #[test]
    fn a_folder_or_file_that_others_can_reach_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("s");
        let folder = PrivateFolder::open_or_make(&path).unwrap();
        folder.replace("x", b"1").unwrap();
        fs::set_permissions(path.join("x"), fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(
            folder.read("x", 10),
            Err(FolderFault::NotPrivate { .. })
        ));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(matches!(
            PrivateFolder::open(&path),
            Err(FolderFault::NotPrivate { .. })
        ));
        std::os::unix::fs::symlink("/tmp", place.path().join("link")).unwrap();
        assert!(PrivateFolder::open(&place.path().join("link")).is_err());
    }

    #[test]
    fn a_store_has_one_name_for_good() {
        let place = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::open_or_make(&place.path().join("s")).unwrap();
        let store = folder.store().unwrap();
        assert_eq!(store.len(), STORE_DIGITS);
        assert_eq!(folder.store().unwrap(), store);
        folder.replace("store", b"../../xy\n").unwrap();
        assert!(matches!(folder.store(), Err(FolderFault::Damaged { .. })));
    }
}
