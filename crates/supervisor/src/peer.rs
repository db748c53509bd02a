//! Who is at the other end of a unix socket: our user, in our user and pid namespaces.
//!
//! A number alone proves nothing: inside a user namespace a worker's id can be the operator's
//! own. The process is held by a pidfd while its namespaces are read, so that its number cannot
//! become another process's meanwhile.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, statat};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};

use crate::sys;

/// The namespaces of a process, by device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespaces {
    user: (u64, u64),
    pid: (u64, u64),
}

/// A process of our user in our namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub uid: u32,
    pub pid: u32,
}

/// Why the other end is none of us.
#[derive(Debug)]
pub enum PeerRefused {
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
                write!(
                    f,
                    "this side belongs to uid {ours}, and the other to uid {peer}"
                )
            }
            Self::Unseen => f.write_str("the other process cannot be seen from here"),
            Self::Unreadable(error) => {
                write!(f, "the other process's namespaces cannot be read: {error}")
            }
            Self::Elsewhere => {
                f.write_str("the other process is in other user or pid namespaces than this one")
            }
        }
    }
}

impl std::error::Error for PeerRefused {}

impl Namespaces {
    /// Those of this process.
    ///
    /// # Errors
    /// `/proc` is not there or not ours.
    pub fn ours() -> io::Result<Self> {
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

/// Checks a peer that lets its namespaces be seen: one that holds no secret.
///
/// # Errors
/// [`PeerRefused`]
pub fn check(socket: impl AsFd, ours: Namespaces) -> Result<Peer, PeerRefused> {
    checked(socket, |process, _| {
        let theirs = Namespaces::read(process).map_err(PeerRefused::Unreadable)?;
        if theirs == ours {
            Ok(())
        } else {
            Err(PeerRefused::Elsewhere)
        }
    })
}

/// Checks a peer that may not be looked into, as `symbi` itself: the kernel tells everybody how
/// deep in pid namespaces it is, and which ids its user namespace maps.
///
/// # Errors
/// [`PeerRefused`]
pub fn check_guarded(socket: impl AsFd, ours: Namespaces) -> Result<Peer, PeerRefused> {
    checked(socket, |process, pid| match Namespaces::read(process) {
        Ok(theirs) if theirs == ours => Ok(()),
        Ok(_) => Err(PeerRefused::Elsewhere),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let theirs = Outline::of(&pid.to_string()).map_err(PeerRefused::Unreadable)?;
            match Outline::of("self").map_err(PeerRefused::Unreadable)? == theirs {
                true => Ok(()),
                false => Err(PeerRefused::Elsewhere),
            }
        }
        Err(error) => Err(PeerRefused::Unreadable(error)),
    })
}

fn checked(
    socket: impl AsFd,
    is_here: impl FnOnce(BorrowedFd<'_>, u32) -> Result<(), PeerRefused>,
) -> Result<Peer, PeerRefused> {
    let found = sys::peer_credentials(socket).map_err(|_| PeerRefused::Unseen)?;
    let ((uid, raw), our_uid) = (found, geteuid().as_raw());
    if uid != our_uid {
        return Err(PeerRefused::Uid {
            peer: uid,
            ours: our_uid,
        });
    }
    let pid = u32::try_from(raw).map_err(|_| PeerRefused::Unseen)?;
    let held = Pid::from_raw(raw)
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
        .ok_or(PeerRefused::Unseen)?;
    let process = open_process(&pid.to_string()).map_err(PeerRefused::Unreadable)?;
    is_here(process.as_fd(), pid)?;
    if has_ended(&held) {
        return Err(PeerRefused::Unseen);
    }
    Ok(Peer { uid, pid })
}

/// What everybody may read of a process's namespaces. Two processes that we see with one outline
/// are in one pid namespace; a worker's user namespace never maps the ids that ours does.
#[derive(Debug, PartialEq, Eq)]
struct Outline {
    pid_depth: usize,
    uid_map: String,
}

impl Outline {
    fn of(process: &str) -> io::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let pid_depth = numbers.map_or(0, |numbers| numbers.split_whitespace().count());
        let uid_map = fs::read_to_string(format!("/proc/{process}/uid_map"))?;
        match pid_depth {
            0 => Err(io::ErrorKind::InvalidData.into()),
            _ => Ok(Self { pid_depth, uid_map }),
        }
    }
}

fn has_ended(process: &OwnedFd) -> bool {
    let mut watched = [PollFd::new(process, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    !matches!(poll(&mut watched, Some(&now)), Ok(0))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn this_process_is_its_own_peer_by_namespaces_and_by_outline() {
        let (one, _other) = UnixStream::pair().unwrap();
        let ours = Namespaces::ours().unwrap();
        let pid = std::process::id();
        assert_eq!(check(&one, ours).unwrap().pid, pid);
        assert_eq!(check_guarded(&one, ours).unwrap().pid, pid);
        assert_eq!(
            Outline::of("self").unwrap(),
            Outline::of(&pid.to_string()).unwrap()
        );
    }

    #[test]
    fn other_namespaces_are_refused() {
        let (one, _other) = UnixStream::pair().unwrap();
        let ours = Namespaces::ours().unwrap();
        let elsewhere = Namespaces {
            pid: (ours.pid.0, ours.pid.1 + 1),
            ..ours
        };
        for refused in [check(&one, elsewhere), check_guarded(&one, elsewhere)] {
            assert!(matches!(refused, Err(PeerRefused::Elsewhere)));
        }
    }

    #[test]
    fn a_process_in_namespaces_of_its_own_has_another_outline() {
        let mut child = std::process::Command::new("unshare")
            .args([
                "--user",
                "--map-root-user",
                "--pid",
                "--fork",
                "--kill-child",
                "cat",
            ])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let inner = std::iter::repeat_with(|| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            let children = format!("/proc/{0}/task/{0}/children", child.id());
            fs::read_to_string(children)
                .unwrap_or_default()
                .trim()
                .to_owned()
        });
        let inner = inner.take(500).find(|pid| !pid.is_empty()).unwrap();
        let outline = Outline::of(&inner).unwrap();
        let ours = Outline::of("self").unwrap();
        assert!(outline.pid_depth > ours.pid_depth);
        assert_ne!(outline.uid_map, ours.uid_map);
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
