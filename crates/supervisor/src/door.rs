//! The socket at which clients find a supervisor, and whether they still find this one there.

use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

use faults::{Point, reach};
use rustix::fs::AtFlags;

use crate::folder::{FolderFault, PrivateFolder, io_fault};

pub(crate) const SOCKET: &str = "supervisor";

/// A listener with its name.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) listener: UnixListener,
    inode: Option<(u64, u64)>,
    /// It lost its name, and could not get it back.
    pub(crate) is_stuck: bool,
}

impl Door {
    /// Listens in the folder `at` under a hidden name first, so that whoever sees the socket can
    /// connect to it. With the lock held, whatever else has that name is a dead one's.
    pub(crate) fn open(at: &Path) -> Result<Self, FolderFault> {
        let sockets = PrivateFolder::open_or_make(at)?;
        let hidden = format!(".{SOCKET}");
        let path = sockets.path(SOCKET);
        for stale in [hidden.as_str(), SOCKET] {
            let _ = rustix::fs::unlinkat(sockets.fd(), stale, AtFlags::empty());
        }
        // Through the held folder: its own path may be longer than a socket's address.
        let bound = format!("/proc/self/fd/{}/{hidden}", sockets.fd().as_raw_fd());
        let listener = reach(Point::SupervisorListen).and_then(|()| UnixListener::bind(bound));
        let listener = listener.map_err(io_fault("listen at", &path))?;
        listener
            .set_nonblocking(true)
            .map_err(io_fault("listen at", &path))?;
        let inode = sockets.inode(&hidden);
        reach(Point::SupervisorNameSocket)
            .and_then(|()| {
                let named = rustix::fs::renameat(sockets.fd(), &hidden, sockets.fd(), SOCKET);
                Ok(named?)
            })
            .map_err(io_fault("name", &path))?;
        Ok(Self {
            listener,
            inode,
            is_stuck: false,
        })
    }

    /// Whether it is what clients find in the folder `at`.
    pub(crate) fn is_in_place(&self, at: &Path) -> bool {
        let found = PrivateFolder::open(at).ok().and_then(|it| it.inode(SOCKET));
        found.is_some() && found == self.inode
    }

    /// Takes its name away, and nobody else's.
    pub(crate) fn remove(&self, at: &Path) {
        if self.is_in_place(at)
            && let Ok(sockets) = PrivateFolder::open(at)
        {
            let _ = rustix::fs::unlinkat(sockets.fd(), SOCKET, AtFlags::empty());
        }
    }
}
