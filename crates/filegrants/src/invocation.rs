//! `.symbiont/invocations/RUN/`: what is kept of a run beside its journal.
//!
//! The claim of its id, its saved result, and the signed statements of an operator. Files appear
//! whole and synced, and none is ever replaced. The folder's lock says who may add to it: the
//! process that runs the invocation holds it to its end, a recovery for its own time.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{BorrowedFd, OwnedFd};

use faults::{Point, reach};
use model::{PublicationId, RunId};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::beneath::{self, BELOW, FOLDER, READ};

/// Why a run's folder, or a file in it, cannot be used.
#[derive(Debug)]
pub enum InvocationError {
    Io {
        step: &'static str,
        name: String,
        source: io::Error,
    },
    NotOurs {
        name: String,
        owner: u32,
        user: u32,
    },
    NotPrivate {
        name: String,
        mode: u32,
    },
    NotRegular {
        name: String,
    },
    TooLarge {
        name: String,
        max: u64,
    },
    /// The process that runs the invocation, or another recovery.
    Owned {
        run: RunId,
    },
}

impl fmt::Display for InvocationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { step, name, .. } => write!(f, "cannot {step} `invocations/{name}`"),
            Self::NotOurs { name, owner, user } => write!(
                f,
                "`invocations/{name}` belongs to user {owner}, not to {user}; \
                 let its owner look at it"
            ),
            Self::NotPrivate { name, mode } => write!(
                f,
                "`invocations/{name}` has mode {mode:04o}, so others could have changed it; \
                 look at its content, then take the rights of others away"
            ),
            Self::NotRegular { name } => write!(
                f,
                "`invocations/{name}` is no plain file with one name; nothing of ours made it"
            ),
            Self::TooLarge { name, max } => {
                write!(f, "`invocations/{name}` has more than {max} bytes")
            }
            Self::Owned { run } => write!(
                f,
                "the invocation {run} is still owned by a live process; wait for its end"
            ),
        }
    }
}

impl std::error::Error for InvocationError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// The held folder of one run.
#[derive(Debug)]
pub struct InvocationFolder {
    handle: OwnedFd,
    run: RunId,
}

/// While it lives, nobody else runs, recovers or resolves the invocation.
#[derive(Debug)]
#[must_use]
pub struct InvocationLock(OwnedFd);

impl Drop for InvocationLock {
    fn drop(&mut self) {
        // Closing the handle would do it as well, were it not shared with a child for a moment.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl InvocationFolder {
    /// The folder of `run` in the held folder `invocations`, if there is one.
    ///
    /// # Errors
    /// [`InvocationError`] where it is not ours and private.
    pub fn open(invocations: BorrowedFd<'_>, run: RunId) -> Result<Option<Self>, InvocationError> {
        let name = run.to_string();
        let handle = match beneath::open(invocations, &name, FOLDER, BELOW) {
            Ok(handle) => handle,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(io_error("open", &name)(errno.into())),
        };
        let stat =
            rustix::fs::fstat(&handle).map_err(|it| io_error("look at", &name)(it.into()))?;
        check_private(&stat, &name)?;
        Ok(Some(Self { handle, run }))
    }

    /// The same; made, durably, where it is missing.
    ///
    /// # Errors
    /// [`InvocationError`].
    pub fn open_or_make(invocations: BorrowedFd<'_>, run: RunId) -> Result<Self, InvocationError> {
        let name = run.to_string();
        match rustix::fs::mkdirat(invocations, &name, Mode::RWXU) {
            Ok(()) => rustix::fs::fsync(invocations)
                .map_err(|errno| io_error("sync the folder of", &name)(errno.into()))?,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(io_error("make", &name)(errno.into())),
        }
        Self::open(invocations, run)?
            .ok_or_else(|| io_error("open", &name)(io::ErrorKind::NotFound.into()))
    }

    #[must_use]
    pub const fn run(&self) -> RunId {
        self.run
    }

    /// Takes the folder's lock, without waiting.
    ///
    /// # Errors
    /// [`InvocationError::Owned`] where somebody else has it.
    pub fn lock(&self) -> Result<InvocationLock, InvocationError> {
        let fail = |errno: Errno| io_error("lock", &self.run.to_string())(errno.into());
        let handle = beneath::open(&self.handle, "", FOLDER, BELOW).map_err(fail)?;
        match rustix::fs::flock(&handle, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(InvocationLock(handle)),
            Err(Errno::WOULDBLOCK) => Err(InvocationError::Owned { run: self.run }),
            Err(errno) => Err(fail(errno)),
        }
    }

    /// The bytes of the private file `name`, at most `max`, if it is there.
    ///
    /// # Errors
    /// [`InvocationError`].
    pub fn read(&self, name: &str, max: u64) -> Result<Option<Vec<u8>>, InvocationError> {
        let shown = self.shown(name);
        let file = match beneath::open(&self.handle, name, READ, BELOW) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NXIO) => {
                return Err(InvocationError::NotRegular { name: shown });
            }
            Err(errno) => return Err(io_error("open", &shown)(errno.into())),
        };
        let stat = rustix::fs::fstat(&file).map_err(|it| io_error("look at", &shown)(it.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile
            || beneath::links(&stat) != 1
        {
            return Err(InvocationError::NotRegular { name: shown });
        }
        check_private(&stat, &shown)?;
        let mut bytes = Vec::new();
        file.take(max.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(io_error("read", &shown))?;
        match bytes.len() as u64 > max {
            true => Err(InvocationError::TooLarge { name: shown, max }),
            false => Ok(Some(bytes)),
        }
    }

    /// Whether anything has that name.
    ///
    /// # Errors
    /// [`InvocationError::Io`].
    pub fn holds(&self, name: &str) -> Result<bool, InvocationError> {
        beneath::look(&self.handle, name)
            .map(|found| found.is_some())
            .map_err(|errno| io_error("look at", &self.shown(name))(errno.into()))
    }

    /// Makes the file `name` (0600) appear whole and synced; false where the name is taken.
    ///
    /// # Errors
    /// [`InvocationError::Io`]; then the name may have appeared or not.
    pub fn create_whole(&self, name: &str, bytes: &[u8]) -> Result<bool, InvocationError> {
        self.create_whole_with(name, bytes, &mut || Ok(()))
    }

    /// The same; `before_name` is called between the synced bytes and the name.
    pub(crate) fn create_whole_with(
        &self,
        name: &str,
        bytes: &[u8],
        before_name: &mut dyn FnMut() -> io::Result<()>,
    ) -> Result<bool, InvocationError> {
        let aside = format!(".new-{}", PublicationId::new());
        let placed = self.write_aside(&aside, bytes).and_then(|()| {
            before_name()?;
            reach(Point::InvocationName)?;
            let flags = RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(&self.handle, &aside, &self.handle, name, flags) {
                Ok(()) => Ok(true),
                Err(Errno::EXIST) => Ok(false),
                Err(errno) => Err(errno.into()),
            }
        });
        if !matches!(placed, Ok(true)) {
            // Nobody reads a file of that name: what stays is only a few bytes.
            let _ = rustix::fs::unlinkat(&self.handle, &aside, AtFlags::empty());
        }
        placed
            .and_then(|placed| {
                reach(Point::InvocationSyncFolder)?;
                rustix::fs::fsync(&self.handle)?;
                Ok(placed)
            })
            .map_err(io_error("write", &self.shown(name)))
    }

    fn write_aside(&self, aside: &str, bytes: &[u8]) -> io::Result<()> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR.union(Mode::WUSR);
        let mut file = File::from(rustix::fs::openat(&self.handle, aside, flags, mode)?);
        faults::write_all(Point::InvocationWrite, &mut file, bytes)?;
        reach(Point::InvocationSync)?;
        file.sync_all()
    }

    /// Removes the file `name`, durably.
    ///
    /// # Errors
    /// [`InvocationError::Io`].
    pub fn remove(&self, name: &str) -> Result<(), InvocationError> {
        rustix::fs::unlinkat(&self.handle, name, AtFlags::empty())
            .and_then(|()| rustix::fs::fsync(&self.handle))
            .map_err(|errno| io_error("remove", &self.shown(name))(errno.into()))
    }

    fn shown(&self, name: &str) -> String {
        format!("{}/{name}", self.run)
    }
}

fn check_private(stat: &Stat, name: &str) -> Result<(), InvocationError> {
    let user = rustix::process::geteuid().as_raw();
    if stat.st_uid != user {
        return Err(InvocationError::NotOurs {
            name: name.to_owned(),
            owner: stat.st_uid,
            user,
        });
    }
    match stat.st_mode & 0o7777 {
        mode if mode & 0o077 != 0 => Err(InvocationError::NotPrivate {
            name: name.to_owned(),
            mode,
        }),
        _ => Ok(()),
    }
}

fn io_error(step: &'static str, name: &str) -> impl FnOnce(io::Error) -> InvocationError + use<> {
    let name = name.to_owned();
    move |source| InvocationError::Io { step, name, source }
}
