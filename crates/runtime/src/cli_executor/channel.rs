//! The channel folder: two sockets and two static scripts, and nothing else.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use tokio::net::UnixListener;

/// The folder's place inside the worker.
pub(crate) const CHANNEL_IN_WORKER: &str = "/channel";
/// Name of the folder below its private parent.
const FOLDER: &str = "channel";
const BROKER_SOCKET: &str = "broker.sock";
const INFERENCE_SOCKET: &str = "inference.sock";
const BRIDGE: &str = "bridge.py";
const ADAPTER: &str = "adapter.py";
const ADAPTER_PY: &str = include_str!("adapter.py");
/// The loopback port of the adapter in the worker's own network namespace.
pub(crate) const ADAPTER_PORT: u16 = 8091;

/// Why the channel could not be made.
#[derive(Debug)]
pub enum ChannelError {
    /// The parent is not a private folder of the runtime's user.
    Parent { path: PathBuf, reason: String },
    Io {
        what: &'static str,
        path: PathBuf,
        error: io::Error,
    },
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parent { path, reason } => write!(
                f,
                "`{}` cannot hold an agent's channel: {reason}; it must be a folder of the \
                 runtime's user with mode 0700",
                path.display()
            ),
            Self::Io { what, path, .. } => write!(f, "cannot {what} `{}`", path.display()),
        }
    }
}

impl std::error::Error for ChannelError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Parent { .. } => None,
            Self::Io { error, .. } => Some(error),
        }
    }
}

/// The folder, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Channel {
    path: PathBuf,
    parent: OwnedFd,
    folder: OwnedFd,
}

impl Channel {
    /// Makes the folder below `parent`, with its scripts.
    pub(crate) fn create(parent: &Path) -> Result<Self, ChannelError> {
        let path = parent.join(FOLDER);
        let fail = |what, error: rustix::io::Errno| ChannelError::Io {
            what,
            path: path.clone(),
            error: error.into(),
        };
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let held = rustix::fs::open(parent, flags, Mode::empty())
            .map_err(|error| fail("open the parent of", error))?;
        check_private(parent, &held)?;
        rustix::fs::mkdirat(&held, FOLDER, Mode::from_raw_mode(0o755))
            .map_err(|error| fail("make", error))?;
        let folder = rustix::fs::openat(&held, FOLDER, flags, Mode::empty())
            .map_err(|error| fail("open", error))?;
        rustix::fs::fchmod(&folder, Mode::from_raw_mode(0o755))
            .map_err(|error| fail("set the mode of", error))?;
        let channel = Self {
            path,
            parent: held,
            folder,
        };
        channel.write(BRIDGE, mcp::BRIDGE_PY)?;
        channel.write(ADAPTER, ADAPTER_PY)?;
        Ok(channel)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), ChannelError> {
        let fail = |error: io::Error| ChannelError::Io {
            what: "write a script to",
            path: self.path.clone(),
            error,
        };
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.folder, name, flags, Mode::from_raw_mode(0o444))
            .map_err(|error| fail(error.into()))?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o444))
            .map_err(|error| fail(error.into()))?;
        io::Write::write_all(&mut std::fs::File::from(file), text.as_bytes()).map_err(fail)
    }

    /// Binds the broker's socket. Only the worker can reach it: the folder's parent is private.
    pub(crate) fn bind_broker(&self) -> Result<UnixListener, ChannelError> {
        self.bind(BROKER_SOCKET)
    }

    /// Binds the inference socket.
    pub(crate) fn bind_inference(&self) -> Result<UnixListener, ChannelError> {
        self.bind(INFERENCE_SOCKET)
    }

    /// Binds through the held folder, so that the path may be as long as it likes (an address
    /// holds 107 bytes).
    fn bind(&self, name: &str) -> Result<UnixListener, ChannelError> {
        let fail = |error: io::Error| ChannelError::Io {
            what: "bind a socket in",
            path: self.path.clone(),
            error,
        };
        let address = format!("/proc/self/fd/{}/{name}", self.folder.as_raw_fd());
        let listener = UnixListener::bind(address).map_err(fail)?;
        let mode = Mode::from_raw_mode(0o666);
        rustix::fs::chmodat(&self.folder, name, mode, AtFlags::empty())
            .map_err(|error| fail(error.into()))?;
        Ok(listener)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        for name in [BROKER_SOCKET, INFERENCE_SOCKET, BRIDGE, ADAPTER] {
            let _ = rustix::fs::unlinkat(&self.folder, name, AtFlags::empty());
        }
        let _ = rustix::fs::unlinkat(&self.parent, FOLDER, AtFlags::REMOVEDIR);
    }
}

fn check_private(path: &Path, folder: &OwnedFd) -> Result<(), ChannelError> {
    let refuse = |reason: String| ChannelError::Parent {
        path: path.to_owned(),
        reason,
    };
    let stat = rustix::fs::fstat(folder).map_err(|error| refuse(error.to_string()))?;
    let user = rustix::process::geteuid().as_raw();
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(refuse("it is not a folder".to_owned()));
    }
    if stat.st_uid != user {
        return Err(refuse(format!(
            "it belongs to user {}, not to {user}",
            stat.st_uid
        )));
    }
    if stat.st_mode & 0o077 != 0 {
        return Err(refuse(format!("its mode is {:04o}", stat.st_mode & 0o7777)));
    }
    Ok(())
}

/// Path of a channel file inside the worker.
#[must_use]
pub(crate) fn bridge_in_worker() -> String {
    format!("{CHANNEL_IN_WORKER}/{BRIDGE}")
}

pub(crate) fn broker_in_worker() -> String {
    format!("{CHANNEL_IN_WORKER}/{BROKER_SOCKET}")
}

pub(crate) fn inference_in_worker() -> String {
    format!("{CHANNEL_IN_WORKER}/{INFERENCE_SOCKET}")
}

pub(crate) fn adapter_in_worker() -> String {
    format!("{CHANNEL_IN_WORKER}/{ADAPTER}")
}
