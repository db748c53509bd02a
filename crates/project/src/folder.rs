//! Folders by held handle: nothing below them is found by a path that could change meanwhile.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::limits::FOLDER_ENTRIES_MAX;
use crate::place::{self, Demand, UnsafePlace, UnsafeReason, shown};

const PRIVATE_FOLDER: Mode = Mode::RWXU;
const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

/// An open folder whose owner, mode and ancestors were checked.
#[derive(Debug)]
pub struct Folder {
    handle: OwnedFd,
    path: PathBuf,
}

/// Why a folder or a file in one could not be used.
#[derive(Debug)]
pub enum FolderError {
    Unsafe(UnsafePlace),
    TooLarge {
        path: PathBuf,
        max: u64,
    },
    TooManyEntries {
        path: PathBuf,
        max: usize,
    },
    /// A name that is not UTF-8. Bytes of the name.
    Name {
        folder: PathBuf,
        name: Vec<u8>,
    },
    Io {
        /// A verb: `open`, `read`.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl fmt::Display for FolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsafe(place) => place.fmt(f),
            Self::TooLarge { path, max } => {
                let path = shown(path);
                write!(
                    f,
                    "`{path}` has more than the {max} bytes allowed\n  help: shorten it, or move \
                     it away; data stands in files of its own"
                )
            }
            Self::TooManyEntries { path, max } => {
                let path = shown(path);
                write!(
                    f,
                    "`{path}` has more than the {max} entries allowed\n  help: move what is not \
                     needed out of it"
                )
            }
            Self::Name { folder, name } => write!(
                f,
                "`{}` holds the name `{}`, which is not UTF-8\n  help: rename it, or move it away: \
                 mv {}/{} NEW",
                shown(folder),
                name.escape_ascii(),
                place::shell_word(folder.as_os_str()),
                place::shell_word(OsStr::from_bytes(name))
            ),
            Self::Io { action, path, .. } => write!(f, "cannot {action} `{}`", shown(path)),
        }
    }
}

impl std::error::Error for FolderError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<UnsafePlace> for FolderError {
    fn from(place: UnsafePlace) -> Self {
        Self::Unsafe(place)
    }
}

impl FolderError {
    pub(crate) fn io(action: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source: source.into(),
        }
    }

    fn place(path: &Path, reason: UnsafeReason) -> Self {
        Self::Unsafe(UnsafePlace {
            path: path.to_owned(),
            caller: place::caller(),
            reason,
        })
    }

    /// Whether the file or folder is simply not there.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

impl Folder {
    /// Opens an ambient path: links in it are resolved first, then each folder from the root
    /// down is opened without following links, and checked.
    pub(crate) fn open_ambient(path: &Path, demand: Demand) -> Result<Self, FolderError> {
        let real =
            std::fs::canonicalize(path).map_err(|error| FolderError::io("open", path, error))?;
        let way = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut here = PathBuf::from("/");
        let mut handle = rustix::fs::openat(CWD, "/", way, Mode::empty())
            .map_err(|error| FolderError::io("open", &here, error))?;
        for component in real.components() {
            let Component::Normal(name) = component else {
                continue;
            };
            place::judge(&here, &stat_of(handle.as_fd(), &here)?, Demand::Ancestor)?;
            here.push(name);
            handle = rustix::fs::openat(&handle, name, way, Mode::empty())
                .map_err(|error| open_error(handle.as_fd(), name, &here, error))?;
        }
        place::judge(&here, &stat_of(handle.as_fd(), &here)?, demand)?;
        let readable = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(&handle, ".", readable, Mode::empty())
            .map_err(|error| FolderError::io("open", &here, error))?;
        Ok(Self { handle, path: here })
    }

    /// The held handle.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// The absolute path at which it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn stat(&self) -> Result<Stat, FolderError> {
        stat_of(self.fd(), &self.path)
    }

    /// The folder `name` in this one, if it is there.
    pub(crate) fn folder(&self, name: &str, demand: Demand) -> Result<Option<Self>, FolderError> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.handle, name, flags, Mode::empty()) {
            Ok(handle) => {
                place::judge(&path, &stat_of(handle.as_fd(), &path)?, demand)?;
                Ok(Some(Self { handle, path }))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.entry_error(name, demand, &path, error)),
        }
    }

    /// An error of an entry: rather its owner or mode, where they are the cause.
    fn entry_error(&self, name: &str, demand: Demand, path: &Path, error: Errno) -> FolderError {
        let looked = rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW);
        match (error, looked) {
            (Errno::ACCESS, Ok(stat)) => match place::judge(path, &stat, demand) {
                Err(place) => place.into(),
                Ok(()) => FolderError::io("open", path, error),
            },
            _ => open_error(self.fd(), OsStr::new(name), path, error),
        }
    }

    /// The private folder `name` in this one, made where it is missing.
    pub(crate) fn make_private(&self, name: &str) -> Result<Self, FolderError> {
        self.make(name, PRIVATE_FOLDER, Demand::Private)
    }

    pub(crate) fn make(&self, name: &str, mode: Mode, demand: Demand) -> Result<Self, FolderError> {
        let path = self.path.join(name);
        match rustix::fs::mkdirat(&self.handle, name, mode) {
            Ok(()) => self.sync()?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(FolderError::io("make the folder", &path, error)),
        }
        self.folder(name, demand)?
            .ok_or_else(|| FolderError::io("open", &path, Errno::NOENT))
    }

    /// The bytes of the regular file `name`, at most `max`, if it is there.
    pub(crate) fn read(
        &self,
        name: &str,
        max: u64,
        demand: Demand,
    ) -> Result<Option<Vec<u8>>, FolderError> {
        let path = self.path.join(name);
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let handle = match rustix::fs::openat(&self.handle, name, flags, Mode::empty()) {
            Ok(handle) => handle,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NXIO) => return Err(FolderError::place(&path, UnsafeReason::NotFile)),
            Err(error) => return Err(self.entry_error(name, demand, &path, error)),
        };
        let stat = stat_of(handle.as_fd(), &path)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(FolderError::place(&path, UnsafeReason::NotFile));
        }
        place::judge(&path, &stat, demand)?;
        let mut bytes = Vec::new();
        File::from(handle)
            .take(max + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| FolderError::io("read", &path, error))?;
        if bytes.len() as u64 > max {
            return Err(FolderError::TooLarge { path, max });
        }
        Ok(Some(bytes))
    }

    /// Names in this folder with their kind, sorted, hidden ones too.
    pub(crate) fn entries(&self) -> Result<Vec<(String, FileType)>, FolderError> {
        let fault = |error: Errno| FolderError::io("list", &self.path, error);
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.handle).map_err(fault)? {
            let entry = entry.map_err(fault)?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let Ok(name) = std::str::from_utf8(name) else {
                return Err(FolderError::Name {
                    folder: self.path.clone(),
                    name: name.to_owned(),
                });
            };
            if names.len() >= FOLDER_ENTRIES_MAX {
                return Err(FolderError::TooManyEntries {
                    path: self.path.clone(),
                    max: FOLDER_ENTRIES_MAX,
                });
            }
            let kind = match entry.file_type() {
                FileType::Unknown => self.kind_of(name)?,
                known => known,
            };
            names.push((name.to_owned(), kind));
        }
        names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(names)
    }

    fn kind_of(&self, name: &str) -> Result<FileType, FolderError> {
        rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW)
            .map(|stat| FileType::from_raw_mode(stat.st_mode))
            .map_err(|error| FolderError::io("look at", &self.path.join(name), error))
    }

    /// Whether anything, also a dangling link, has that name.
    pub(crate) fn holds(&self, name: &str) -> Result<bool, FolderError> {
        match rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(FolderError::io("look at", &self.path.join(name), error)),
        }
    }

    /// Writes a new file durably; fails where the name is taken.
    pub(crate) fn create(&self, name: &str, bytes: &[u8], mode: Mode) -> Result<(), FolderError> {
        let path = self.path.join(name);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(&self.handle, name, flags, mode)
            .map_err(|error| FolderError::io("create", &path, error))?;
        let mut file = File::from(handle);
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        written.map_err(|error| {
            let _ = self.remove(name);
            FolderError::io("write", &path, error)
        })
    }

    /// Writes a private file that appears whole or not at all. An existing one is replaced
    /// only if `replace`; otherwise it stays, and `false` is returned.
    pub(crate) fn put_private(
        &self,
        name: &str,
        bytes: &[u8],
        replace: bool,
    ) -> Result<bool, FolderError> {
        let aside = format!(".{name}.{}", random_hex(&self.path)?);
        self.create(&aside, bytes, PRIVATE_FILE)?;
        let flags = if replace {
            RenameFlags::empty()
        } else {
            RenameFlags::NOREPLACE
        };
        match rustix::fs::renameat_with(&self.handle, &aside, &self.handle, name, flags) {
            Ok(()) => self.sync().map(|()| true),
            Err(error) => {
                self.remove(&aside)?;
                if error == Errno::EXIST {
                    return Ok(false);
                }
                Err(FolderError::io("write", &self.path.join(name), error))
            }
        }
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), FolderError> {
        rustix::fs::unlinkat(&self.handle, name, AtFlags::empty())
            .map_err(|error| FolderError::io("remove", &self.path.join(name), error))
    }

    pub(crate) fn remove_folder(&self, name: &str) -> Result<(), FolderError> {
        rustix::fs::unlinkat(&self.handle, name, AtFlags::REMOVEDIR)
            .map_err(|error| FolderError::io("remove", &self.path.join(name), error))
    }

    pub(crate) fn sync(&self) -> Result<(), FolderError> {
        rustix::fs::fsync(&self.handle).map_err(|error| FolderError::io("sync", &self.path, error))
    }
}

fn stat_of(handle: BorrowedFd<'_>, path: &Path) -> Result<Stat, FolderError> {
    rustix::fs::fstat(handle).map_err(|error| FolderError::io("look at", path, error))
}

/// An open that failed because of what stands there says so.
fn open_error(folder: BorrowedFd<'_>, name: &OsStr, path: &Path, error: Errno) -> FolderError {
    if error != Errno::LOOP && error != Errno::NOTDIR {
        return FolderError::io("open", path, error);
    }
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
            FolderError::place(path, UnsafeReason::Link)
        }
        _ => FolderError::place(path, UnsafeReason::NotFolder),
    }
}

/// Sixteen random hexadecimal digits, for a name that nobody else takes.
fn random_hex(path: &Path) -> Result<String, FolderError> {
    let number =
        getrandom::u64().map_err(|error| FolderError::io("name a file in", path, error))?;
    Ok(format!("{number:016x}"))
}
