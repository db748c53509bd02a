//! Who is at the other end of the gate's socket: our user, in our user and pid namespaces.
//!
//! A number alone proves nothing: inside a user namespace a worker's id can be the operator's
//! own. The process is held by a pidfd while its namespaces are read, so that its number cannot
//! become another process's meanwhile.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, statat};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};
use tokio::net::unix::UCred;

/// The namespaces of a process, by device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Namespaces {
    user: (u64, u64),
    pid: (u64, u64),
}

/// A process that may decide.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer {
    pub(super) uid: u32,
}

/// Why the other end may not decide.
#[derive(Debug)]
pub(super) enum PeerRefused {
    Uid {
        peer: u32,
        ours: u32,
    },
    /// It is in no pid namespace of ours, or has ended.
    Unseen,
    Unreadable(io::Error),
    Elsewhere,
}

impl fmt::Display for PeerRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uid { peer, ours } => {
                write!(f, "the run belongs to uid {ours}, and you are uid {peer}")
            }
            Self::Unseen => f.write_str("your process cannot be seen from the run"),
            Self::Unreadable(error) => write!(f, "your namespaces cannot be read: {error}"),
            Self::Elsewhere => {
                f.write_str("your process is in other user or pid namespaces than the run")
            }
        }
    }
}

impl Namespaces {
    /// Those of this process.
    pub(super) fn ours() -> io::Result<Self> {
        Self::read(open_process("self")?.as_fd())
    }

    fn read(process: BorrowedFd<'_>) -> io::Result<Self> {
        let read = |name: &str| {
            let found = statat(process, name, AtFlags::empty())?;
            Ok::<_, io::Error>((found.st_dev, found.st_ino))
        };
        Ok(Self {
            user: read("ns/user")?,
            pid: read("ns/pid")?,
        })
    }
}

fn open_process(name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, format!("/proc/{name}"), flags, Mode::empty())?)
}

/// Checks who connected.
pub(super) fn check(peer: UCred, ours: Namespaces) -> Result<Peer, PeerRefused> {
    let our_uid = geteuid().as_raw();
    if peer.uid() != our_uid {
        return Err(PeerRefused::Uid {
            peer: peer.uid(),
            ours: our_uid,
        });
    }
    let pid = peer
        .pid()
        .and_then(Pid::from_raw)
        .ok_or(PeerRefused::Unseen)?;
    let held = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| PeerRefused::Unseen)?;
    let process =
        open_process(&pid.as_raw_nonzero().to_string()).map_err(PeerRefused::Unreadable)?;
    let theirs = Namespaces::read(process.as_fd()).map_err(PeerRefused::Unreadable)?;
    if has_ended(&held) {
        return Err(PeerRefused::Unseen);
    }
    if theirs != ours {
        return Err(PeerRefused::Elsewhere);
    }
    Ok(Peer { uid: peer.uid() })
}

fn has_ended(process: &OwnedFd) -> bool {
    let mut watched = [PollFd::new(process, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    !matches!(poll(&mut watched, Some(&now)), Ok(0))
}
