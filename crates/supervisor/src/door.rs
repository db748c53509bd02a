//! The socket at which clients find a supervisor, and whether they still find this one there.

use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

use faults::{Point, reach};
use rustix::fs::AtFlags;

use crate::folder::{FolderFault, PrivateFolder, io_fault};

/// A listener with its name.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) listener: UnixListener,
    name: String,
    inode: Option<(u64, u64)>,
    /// It lost its name, and could not get it back.
    pub(crate) is_stuck: bool,
}

/// The socket's name: supervisors of several state folders may share the folder of sockets.
pub(crate) fn name(store: &str) -> String {
    format!("supervisor-{store}")
}

impl Door {
    /// Listens in the folder `at` as `name`, under a hidden name first, so that whoever sees the
    /// socket can connect to it. With the lock held, whatever else has that name is a dead one's.
    pub(crate) fn open(at: &Path, name: &str) -> Result<Self, FolderFault> {
        let sockets = PrivateFolder::open_or_make(at)?;
        let hidden = format!(".{name}");
        let path = sockets.path(name);
        for stale in [hidden.as_str(), name] {
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
                let named = rustix::fs::renameat(sockets.fd(), &hidden, sockets.fd(), name);
                Ok(named?)
            })
            .map_err(io_fault("name", &path))?;
        Ok(Self {
            listener,
            name: name.to_owned(),
            inode,
            is_stuck: false,
        })
    }

    /// Whether it is what clients find in the folder `at`.
    pub(crate) fn is_in_place(&self, at: &Path) -> bool {
        let found = PrivateFolder::open(at)
            .ok()
            .and_then(|it| it.inode(&self.name));
        found.is_some() && found == self.inode
    }

    /// Takes its name away, and nobody else's.
    pub(crate) fn remove(&self, at: &Path) {
        if self.is_in_place(at)
            && let Ok(sockets) = PrivateFolder::open(at)
        {
            let _ = rustix::fs::unlinkat(sockets.fd(), &self.name, AtFlags::empty());
        }
    }
}
