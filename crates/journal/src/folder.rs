//! Private folders and files: the caller's own, open to nobody else, never behind a link.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// Why a private file or folder could not be used.
#[derive(Debug)]
pub enum StorageError {
    /// The operating system refused `action`.
    Io {
        action: &'static str,
        path: String,
        source: io::Error,
    },
    /// It is there already, and nothing is ever replaced.
    Exists { path: String },
    /// It is not a regular file, or not a folder, or it is a link.
    Kind {
        path: String,
        expected: &'static str,
    },
    /// Somebody else's.
    Owner {
        path: String,
        owner: u32,
        expected: u32,
    },
    /// Others may use it.
    Mode {
        path: String,
        mode: u32,
        expected: u32,
    },
    /// Another name leads to the same file.
    Links { path: String, links: u64 },
    /// Another process holds its lock.
    Locked { path: String },
    /// The path names no file.
    Name { path: String },
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { action, path, .. } => write!(f, "cannot {action} `{path}`"),
            Self::Exists { path } => write!(f, "`{path}` exists already and is never replaced"),
            Self::Kind { path, expected } => write!(f, "`{path}` is not {expected}"),
            Self::Owner {
                path,
                owner,
                expected,
            } => {
                write!(
                    f,
                    "`{path}` belongs to user {owner}, not to user {expected}"
                )
            }
            Self::Mode {
                path,
                mode,
                expected,
            } => write!(
                f,
                "`{path}` has mode {mode:04o}; run `chmod {expected:04o}` on it, if nobody else \
                 has used it"
            ),
            Self::Links { path, links } => {
                write!(f, "`{path}` has {links} names; a private file has one")
            }
            Self::Locked { path } => write!(f, "`{path}` is in use by another process"),
            Self::Name { path } => write!(f, "`{path}` does not name a file in a folder"),
        }
    }
}

impl std::error::Error for StorageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// A held folder: mode 0700, owned by the caller.
#[derive(Debug)]
pub(crate) struct PrivateFolder {
    handle: OwnedFd,
    path: PathBuf,
}

impl PrivateFolder {
    /// Opens the folder `path`, or makes it (and its parents) with mode 0700.
    pub(crate) fn create(path: &Path) -> Result<Self, StorageError> {
        if let Some(parent) = path.parent()
            && !parent.as_os_str().is_empty()
            && !parent.exists()
        {
            Self::create(parent)?;
        }
        match rustix::fs::mkdirat(CWD, path, Mode::from_raw_mode(FOLDER_MODE)) {
            Ok(()) => sync_parent(path)?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(io_error("make the folder", path, error)),
        }
        Self::open(path)
    }

    /// Opens the folder `path` and checks that it is private.
    pub(crate) fn open(path: &Path) -> Result<Self, StorageError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle =
            rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(|error| match error {
                Errno::NOTDIR | Errno::LOOP => StorageError::Kind {
                    path: path.display().to_string(),
                    expected: "a folder (or it is a link)",
                },
                other => io_error("open the folder", path, other),
            })?;
        let stat = rustix::fs::fstat(&handle).map_err(|e| io_error("examine", path, e))?;
        check_owner(path, stat.st_uid)?;
        check_mode(path, stat.st_mode, FOLDER_MODE)?;
        Ok(Self {
            handle,
            path: path.to_owned(),
        })
    }

    /// The folder of the file `path`, made if absent, and the file's name.
    pub(crate) fn create_for(path: &Path) -> Result<(Self, OsString), StorageError> {
        let (parent, name) = split(path)?;
        Ok((Self::create(parent)?, name))
    }

    /// The folder of the file `path`, and the file's name.
    pub(crate) fn open_for(path: &Path) -> Result<(Self, OsString), StorageError> {
        let (parent, name) = split(path)?;
        Ok((Self::open(parent)?, name))
    }

    pub(crate) fn shown(&self, name: &OsStr) -> String {
        self.path.join(name).display().to_string()
    }

    pub(crate) fn contains(&self, name: &OsStr) -> Result<bool, StorageError> {
        match rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(self.error("examine", name, error)),
        }
    }

    /// Makes the file `name` (0600), which must not exist, to append to.
    pub(crate) fn create_file(&self, name: &OsStr) -> Result<File, StorageError> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.handle, name, flags, Mode::from_raw_mode(FILE_MODE))
            .map_err(|error| match error {
                Errno::EXIST => StorageError::Exists {
                    path: self.shown(name),
                },
                other => self.error("create", name, other),
            })?;
        // A umask may have taken more away.
        rustix::fs::fchmod(&file, Mode::from_raw_mode(FILE_MODE)).map_err(|error| {
            let _ = rustix::fs::unlinkat(&self.handle, name, AtFlags::empty());
            self.error("set the mode of", name, error)
        })?;
        Ok(File::from(file))
    }

    /// Opens the file `name` to read, and checks that it is private.
    pub(crate) fn open_file(&self, name: &OsStr) -> Result<File, StorageError> {
        self.open_with(name, OFlags::RDONLY)
    }

    /// Opens the file `name` to read and append, and checks that it is private.
    pub(crate) fn open_to_append(&self, name: &OsStr) -> Result<File, StorageError> {
        self.open_with(name, OFlags::RDWR | OFlags::APPEND)
    }

    fn open_with(&self, name: &OsStr, access: OFlags) -> Result<File, StorageError> {
        // NONBLOCK: a FIFO that somebody put there must not hold us.
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let regular = || StorageError::Kind {
            path: self.shown(name),
            expected: "a regular file (or it is a link)",
        };
        let file = match rustix::fs::openat(&self.handle, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::LOOP | Errno::NXIO) => return Err(regular()),
            Err(error) => return Err(self.error("open", name, error)),
        };
        let file = File::from(file);
        let stat = file.metadata().map_err(|source| StorageError::Io {
            action: "examine",
            path: self.shown(name),
            source,
        })?;
        if !stat.is_file() {
            return Err(regular());
        }
        let path = self.path.join(name);
        check_owner(&path, stat.uid())?;
        check_mode(&path, stat.mode(), FILE_MODE)?;
        match stat.nlink() {
            1 => Ok(file),
            links => Err(StorageError::Links {
                path: self.shown(name),
                links,
            }),
        }
    }

    /// Makes the file `name` appear whole and synced, or leaves the one that was first.
    pub(crate) fn create_whole(
        &self,
        name: &OsStr,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<(), StorageError> {
        let temporary = OsString::from(format!(".new-{}", model::PublicationId::new()));
        let mut file = self.create_file(&temporary)?;
        let placed = write(&mut file)
            .and_then(|()| file.sync_all())
            .map_err(|source| StorageError::Io {
                action: "write",
                path: self.shown(&temporary),
                source,
            })
            .and_then(|()| self.rename_new(&temporary, name));
        match placed {
            Ok(()) => self.sync(),
            Err(error) => {
                // The loser of a race uses the winner's file.
                let _ = rustix::fs::unlinkat(&self.handle, &temporary, AtFlags::empty());
                match error {
                    StorageError::Exists { .. } => Ok(()),
                    other => Err(other),
                }
            }
        }
    }

    fn rename_new(&self, from: &OsStr, to: &OsStr) -> Result<(), StorageError> {
        let folder = &self.handle;
        rustix::fs::renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE).map_err(
            |error| match error {
                Errno::EXIST => StorageError::Exists {
                    path: self.shown(to),
                },
                other => self.error("place", to, other),
            },
        )
    }

    /// Puts the file `from` in the place of the file `to`, durably.
    pub(crate) fn replace(&self, from: &OsStr, to: &OsStr) -> Result<(), StorageError> {
        rustix::fs::renameat(&self.handle, from, &self.handle, to)
            .map_err(|error| self.error("place", to, error))?;
        self.sync()
    }

    /// Removes the file `name`, durably.
    pub(crate) fn remove(&self, name: &OsStr) -> Result<(), StorageError> {
        self.unlink(name)?;
        self.sync()
    }

    /// Removes the file `name`; after a power cut it may be there again.
    pub(crate) fn unlink(&self, name: &OsStr) -> Result<(), StorageError> {
        rustix::fs::unlinkat(&self.handle, name, AtFlags::empty())
            .map_err(|error| self.error("remove", name, error))
    }

    /// Makes the folder's names durable.
    pub(crate) fn sync(&self) -> Result<(), StorageError> {
        rustix::fs::fsync(&self.handle).map_err(|e| io_error("sync the folder", &self.path, e))
    }

    fn error(&self, action: &'static str, name: &OsStr, error: Errno) -> StorageError {
        io_error(action, &self.path.join(name), error)
    }
}

fn split(path: &Path) -> Result<(&Path, OsString), StorageError> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if !parent.as_os_str().is_empty() => {
            Ok((parent, name.to_owned()))
        }
        (Some(_), Some(name)) => Ok((Path::new("."), name.to_owned())),
        _ => Err(StorageError::Name {
            path: path.display().to_string(),
        }),
    }
}

fn sync_parent(path: &Path) -> Result<(), StorageError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(parent)
        .and_then(|folder| folder.sync_all())
        .map_err(|source| StorageError::Io {
            action: "sync the folder",
            path: parent.display().to_string(),
            source,
        })
}

fn check_owner(path: &Path, owner: u32) -> Result<(), StorageError> {
    let expected = rustix::process::geteuid().as_raw();
    match owner == expected {
        true => Ok(()),
        false => Err(StorageError::Owner {
            path: path.display().to_string(),
            owner,
            expected,
        }),
    }
}

fn check_mode(path: &Path, mode: u32, expected: u32) -> Result<(), StorageError> {
    let mode = mode & 0o7777;
    match mode == expected {
        true => Ok(()),
        false => Err(StorageError::Mode {
            path: path.display().to_string(),
            mode,
            expected,
        }),
    }
}

fn io_error(action: &'static str, path: &Path, error: Errno) -> StorageError {
    StorageError::Io {
        action,
        path: path.display().to_string(),
        source: error.into(),
    }
}
