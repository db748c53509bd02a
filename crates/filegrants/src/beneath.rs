//! Opening by name below a held folder, without leaving it and without following a link.
//!
//! Every path that a call names goes through [`open`]: the kernel refuses links, magic links and
//! other mounts at each component in one step, so no check can be raced. Only when it refused do
//! we look again, component by component, to tell a person which one stands in the way.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::limits::OPEN_ATTEMPTS_MAX;

/// Below a folder: no `..` out of it, no link of any kind, no other mount.
pub(crate) const BELOW: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// The same, but mounts may be crossed: for a host folder that the operator names absolutely.
pub(crate) const BELOW_ACROSS_MOUNTS: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// A handle of a folder: it can be searched, listed and synced.
pub(crate) const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// A handle that only names a file: opening it has no effect on a FIFO or a device.
pub(crate) const NAME_ONLY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A handle for reading, which never waits for a FIFO's writer and never takes a terminal.
pub(crate) const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// What makes two names mean one file: its device and its inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl Identity {
    pub(crate) fn of(file: impl AsFd) -> io::Result<Self> {
        Ok(Self::from_stat(&rustix::fs::fstat(file)?))
    }

    pub(crate) const fn from_stat(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }
}

/// What stands at one component of a path and keeps us from opening it.
#[derive(Debug)]
pub enum Obstacle {
    Missing {
        component: String,
    },
    Link {
        component: String,
    },
    NotFolder {
        component: String,
        kind: &'static str,
    },
    OtherFileSystem {
        component: String,
    },
    NotPermitted {
        component: String,
    },
    /// The kernel has no `openat2`, or a filter around us forbids it.
    NoOpenat2,
    Other(io::Error),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { component } => {
                write!(
                    f,
                    "`{component}` does not exist; create it, or correct the path"
                )
            }
            Self::Link { component } => write!(
                f,
                "`{component}` is a symbolic link, and links are never followed; \
                 name the real path, or put a copy there"
            ),
            Self::NotFolder { component, kind } => {
                write!(f, "`{component}` is {kind}, not a folder; correct the path")
            }
            Self::OtherFileSystem { component } => write!(
                f,
                "`{component}` is on another file system; \
                 give that folder a volume of its own, by its absolute path"
            ),
            Self::NotPermitted { component } => write!(
                f,
                "`{component}` may not be opened by the operator's user; change its owner or mode"
            ),
            Self::NoOpenat2 => f.write_str(
                "the system call `openat2` is not available; \
                 use Linux 5.6 or later, or a container profile that allows it",
            ),
            Self::Other(_) => f.write_str("cannot be opened"),
        }
    }
}

impl std::error::Error for Obstacle {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Other(error) => Some(error),
            _ => None,
        }
    }
}

impl Obstacle {
    /// The same, with `prefix` before its component: what the folder is called outside.
    pub(crate) fn under(self, prefix: &str) -> Self {
        let whole = |component: String| match prefix {
            "" => component,
            prefix => {
                let whole = format!("{}/{component}", prefix.trim_end_matches('/'));
                whole.trim_end_matches('/').to_owned()
            }
        };
        match self {
            Self::Missing { component } => Self::Missing {
                component: whole(component),
            },
            Self::Link { component } => Self::Link {
                component: whole(component),
            },
            Self::NotFolder { component, kind } => Self::NotFolder {
                component: whole(component),
                kind,
            },
            Self::OtherFileSystem { component } => Self::OtherFileSystem {
                component: whole(component),
            },
            Self::NotPermitted { component } => Self::NotPermitted {
                component: whole(component),
            },
            other @ (Self::NoOpenat2 | Self::Other(_)) => other,
        }
    }
}

/// Opens `path` below `folder`; the empty path is the folder itself.
pub(crate) fn open(
    folder: impl AsFd,
    path: &str,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { "." } else { path };
    let mut attempts = 1;
    loop {
        match rustix::fs::openat2(folder.as_fd(), path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) if attempts < OPEN_ATTEMPTS_MAX => attempts += 1,
            done => return done,
        }
    }
}

/// Why `open` refused: finds the component. For messages only, nothing is decided by it.
pub(crate) fn obstacle(
    folder: BorrowedFd<'_>,
    path: &str,
    resolve: ResolveFlags,
    errno: Errno,
) -> Obstacle {
    if errno == Errno::NOSYS {
        return Obstacle::NoOpenat2;
    }
    let ends = path
        .match_indices('/')
        .map(|(at, _)| at)
        .chain([path.len()]);
    for prefix in ends.filter_map(|end| path.get(..end)) {
        let component = prefix.to_owned();
        let found = match open(folder, prefix, NAME_ONLY, resolve) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Obstacle::Missing { component },
            Err(Errno::LOOP) => return Obstacle::Link { component },
            Err(Errno::XDEV) => return Obstacle::OtherFileSystem { component },
            Err(Errno::ACCESS | Errno::PERM) => return Obstacle::NotPermitted { component },
            Err(other) => return Obstacle::Other(other.into()),
        };
        match rustix::fs::fstat(&found).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::Symlink) => return Obstacle::Link { component },
            Ok(FileType::Directory) => {}
            Ok(other) if errno == Errno::NOTDIR => {
                return Obstacle::NotFolder {
                    component,
                    kind: kind_name(other),
                };
            }
            _ => {}
        }
    }
    match errno {
        Errno::ACCESS | Errno::PERM => Obstacle::NotPermitted {
            component: path.to_owned(),
        },
        other => Obstacle::Other(other.into()),
    }
}

/// What stands at `name` in `folder`, without following it.
pub(crate) fn look(folder: impl AsFd, name: &str) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(other) => Err(other),
    }
}

/// Whether `path` below `folder` is the folder `identity`.
pub(crate) fn leads_to(
    folder: impl AsFd,
    path: &str,
    resolve: ResolveFlags,
    identity: Identity,
) -> io::Result<bool> {
    match open(folder, path, NAME_ONLY.union(OFlags::DIRECTORY), resolve) {
        Ok(found) => Ok(Identity::of(&found)? == identity),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => Ok(false),
        Err(other) => Err(other.into()),
    }
}

/// How many names the inode has. The field's width depends on the machine.
pub(crate) fn links(stat: &Stat) -> u64 {
    fn wide(value: impl Into<u64>) -> u64 {
        value.into()
    }
    wide(stat.st_nlink)
}

/// A file type in words.
pub(crate) const fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a folder",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "something unknown",
    }
}
