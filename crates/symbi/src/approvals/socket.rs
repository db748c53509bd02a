//! A run's socket in the user's private folder.

use std::fmt;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixListener;

use model::RunId;
use project::{Folder, FolderError, UserDirs};
use rustix::fs::{AtFlags, Dir, unlinkat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// Most entries of the folder that are looked at.
const ENTRIES_MAX: usize = 4096;

/// Why there is no socket.
#[derive(Debug)]
pub(crate) enum SocketError {
    Folder(FolderError),
    Io {
        action: &'static str,
        source: io::Error,
    },
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(_) => f.write_str("the folder of the run's sockets"),
            Self::Io { action, .. } => write!(f, "the run's socket: cannot {action}"),
        }
    }
}

impl std::error::Error for SocketError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Folder(error) => Some(error),
            Self::Io { source, .. } => Some(source),
        }
    }
}

/// A socket's name, removed when this is dropped.
#[derive(Debug)]
pub(super) struct SocketName {
    folder: Folder,
    name: String,
}

impl Drop for SocketName {
    fn drop(&mut self) {
        let _ = unlinkat(self.folder.fd(), self.name.as_str(), AtFlags::empty());
    }
}

/// Listens under a hidden name first, so that whoever sees the socket can connect to it.
pub(super) fn listen(
    dirs: &UserDirs,
    run: RunId,
    suffix: &str,
) -> Result<(UnixListener, SocketName), SocketError> {
    let failed = |action: &'static str| move |source: io::Error| SocketError::Io { action, source };
    let folder = dirs.sockets().map_err(SocketError::Folder)?;
    let hidden = format!(".{run}{suffix}");
    let name = format!("{run}{suffix}");
    // Through the held folder: its own path may be longer than a socket's address.
    let path = format!("/proc/self/fd/{}/{hidden}", folder.fd().as_raw_fd());
    let listener = UnixListener::bind(path).map_err(failed("be made"))?;
    listener.set_nonblocking(true).map_err(failed("be used"))?;
    rustix::fs::renameat(folder.fd(), &hidden, folder.fd(), &name)
        .map_err(|error| failed("get its name")(error.into()))?;
    Ok((listener, SocketName { folder, name }))
}

/// Removes the sockets with this suffix of killed runs: nobody listens there, and no run has
/// another's id.
pub(super) fn sweep(dirs: &UserDirs, suffix: &str) -> Result<(), SocketError> {
    let failed = |error: Errno| SocketError::Io {
        action: "be looked for among others",
        source: error.into(),
    };
    let folder = dirs.sockets_that_are_there().map_err(SocketError::Folder)?;
    let Some(folder) = folder else {
        return Ok(());
    };
    for entry in Dir::read_from(folder.fd())
        .map_err(failed)?
        .take(ENTRIES_MAX)
    {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        let run = name.strip_suffix(suffix).map(str::parse::<RunId>);
        if matches!(run, Some(Ok(_))) && is_deserted(&folder, name).map_err(failed)? {
            unlinkat(folder.fd(), name, AtFlags::empty()).map_err(failed)?;
        }
    }
    Ok(())
}

/// Never waits.
fn is_deserted(folder: &Folder, name: &str) -> Result<bool, Errno> {
    let path = format!("/proc/self/fd/{}/{name}", folder.fd().as_raw_fd());
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok(connect(&socket, &SocketAddrUnix::new(path)?) == Err(Errno::CONNREFUSED))
}
