//! Ceilings as held folders: opened once, compared ever after.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::beneath::{self, BELOW, BELOW_ACROSS_MOUNTS, FOLDER, Identity, NAME_ONLY, Obstacle};
use crate::ceiling::{Access, Ceiling, Host, control_names, reserved_component};
use crate::limits::ANCESTORS_MAX;

/// File systems that show the kernel or a service instead of files (`statfs(2)`): proc, sysfs,
/// cgroup, cgroup2, devpts, debugfs, tracefs, securityfs, bpf, binfmt_misc, efivarfs.
const KERNEL_FILE_SYSTEMS: [u64; 11] = [
    0x9fa0,
    0x6265_6572,
    0x27_e0eb,
    0x6367_7270,
    0x1cd1,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0xcafe_4a11,
    0x4249_4e4d,
    0xde5e_81e4,
];

/// Why the ceilings' host folders could not be opened and held.
#[derive(Debug)]
pub enum OpenError {
    /// The host folder of a volume.
    Folder { entry: String, obstacle: Obstacle },
    /// The volume is not an ordinary folder of files.
    KernelFileSystem { entry: String },
    /// The volume leads into a control folder of the project.
    Control { entry: String, name: String },
    /// A writable volume contains control files.
    WritableControl { entry: String, name: String },
    /// A writable volume contains the project.
    WritableProject { entry: String },
    /// The staging folder.
    Staging { folder: String, fault: StagingFault },
    Io {
        step: &'static str,
        source: io::Error,
    },
}

/// Why a folder cannot take private snapshots.
#[derive(Debug)]
pub enum StagingFault {
    Open(io::Error),
    NotPrivate { mode: u32 },
    NotOurs { owner: u32, user: u32 },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder { entry, obstacle } => {
                write!(
                    f,
                    "volume `{}`: the host folder {obstacle}",
                    entry.escape_debug()
                )
            }
            Self::KernelFileSystem { entry } => write!(
                f,
                "volume `{}`: its file system shows the kernel, not files; \
                 name a folder of ordinary files",
                entry.escape_debug()
            ),
            Self::Control { entry, name } => write!(
                f,
                "volume `{}`: it leads into `{name}` of the project, which no call may read or \
                 write; put the files of calls into a folder of their own, such as `./data`",
                entry.escape_debug()
            ),
            Self::WritableControl { entry, name } => write!(
                f,
                "volume `{}`: the host folder contains `{name}`, a control file, so it cannot be \
                 writable; name a folder for outputs only, or write `ro`",
                entry.escape_debug()
            ),
            Self::WritableProject { entry } => write!(
                f,
                "volume `{}`: the host folder contains the project, so it cannot be writable; \
                 name a folder for outputs only, such as `./out`",
                entry.escape_debug()
            ),
            Self::Staging { folder, fault } => {
                write!(f, "the staging folder `{}` ", folder.escape_debug())?;
                match fault {
                    StagingFault::Open(_) => {
                        f.write_str("cannot be opened; its parent must exist, and be writable once")
                    }
                    StagingFault::NotPrivate { mode } => {
                        write!(
                            f,
                            "has mode {mode:04o}; others could see snapshots: make it 0700"
                        )
                    }
                    StagingFault::NotOurs { owner, user } => write!(
                        f,
                        "belongs to user {owner}, not to {user}; give it to the operator's user"
                    ),
                }
            }
            Self::Io { step, .. } => write!(f, "cannot {step}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Folder { obstacle, .. } => std::error::Error::source(obstacle),
            Self::Staging {
                fault: StagingFault::Open(source),
                ..
            }
            | Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

fn io_step(step: &'static str) -> impl FnOnce(rustix::io::Errno) -> OpenError {
    move |errno| OpenError::Io {
        step,
        source: errno.into(),
    }
}

/// The folders that hosts' paths start at.
pub(crate) struct Anchors {
    project: Arc<OwnedFd>,
    project_identity: Identity,
    host_root: Arc<OwnedFd>,
}

impl Anchors {
    pub(crate) fn hold(project: OwnedFd) -> Result<Self, OpenError> {
        let project_identity = Identity::of(&project).map_err(|source| OpenError::Io {
            step: "look at the project's folder",
            source,
        })?;
        let host_root = open_ambient_root().map_err(io_step("open `/`"))?;
        Ok(Self {
            project: Arc::new(project),
            project_identity,
            host_root: Arc::new(host_root),
        })
    }

    /// Whether `folder` is the project's folder or above it.
    fn project_is_in(&self, folder: Identity) -> Result<bool, OpenError> {
        let failed = io_step("look at the folders above the project");
        let walk = || {
            let mut level = beneath::open(&self.project, "", FOLDER, ResolveFlags::empty())?;
            let mut identity = self.project_identity;
            for _ in 0..ANCESTORS_MAX {
                if identity == folder {
                    return Ok(true);
                }
                let above = rustix::fs::openat(&level, "..", FOLDER, Mode::empty())?;
                let above_identity = Identity::from_stat(&rustix::fs::fstat(&above)?);
                if above_identity == identity {
                    return Ok(false);
                }
                (level, identity) = (above, above_identity);
            }
            Err(rustix::io::Errno::NAMETOOLONG)
        };
        walk().map_err(failed)
    }
}

fn open_ambient_root() -> Result<OwnedFd, rustix::io::Errno> {
    rustix::fs::open("/", FOLDER, Mode::empty())
}

/// A ceiling whose host folder is held open.
#[derive(Debug)]
pub(crate) struct HeldCeiling {
    pub(crate) ceiling: Ceiling,
    anchor: Arc<OwnedFd>,
    root: OwnedFd,
    identity: Identity,
}

impl HeldCeiling {
    pub(crate) fn open(ceiling: Ceiling, anchors: &Anchors) -> Result<Self, OpenError> {
        let (anchor, path, resolve) = place(&ceiling, anchors);
        let entry = || ceiling.entry.clone();
        refuse_control(&ceiling, anchors)?;
        let root = beneath::open(&**anchor, path, FOLDER, resolve).map_err(|errno| {
            let prefix = match ceiling.host {
                Host::Project(_) => ".",
                Host::Absolute(_) => "/",
            };
            let obstacle = beneath::obstacle(anchor.as_fd(), path, resolve, errno).under(prefix);
            OpenError::Folder {
                entry: entry(),
                obstacle,
            }
        })?;
        let kind = rustix::fs::fstatfs(&root).map_err(io_step("look at a volume's file system"))?;
        if u64::try_from(kind.f_type).is_ok_and(|magic| KERNEL_FILE_SYSTEMS.contains(&magic)) {
            return Err(OpenError::KernelFileSystem { entry: entry() });
        }
        let identity = Identity::of(&root).map_err(|source| OpenError::Io {
            step: "look at a volume's folder",
            source,
        })?;
        let anchor = Arc::clone(anchor);
        let held = Self {
            ceiling,
            anchor,
            root,
            identity,
        };
        if held.ceiling.access == Access::Create {
            held.check_writable(anchors)?;
        }
        Ok(held)
    }

    fn check_writable(&self, anchors: &Anchors) -> Result<(), OpenError> {
        let entry = || self.ceiling.entry.clone();
        if anchors.project_is_in(self.identity)? {
            return Err(OpenError::WritableProject { entry: entry() });
        }
        for name in control_names() {
            let found = beneath::look(&self.root, name)
                .map_err(io_step("look for control files in a volume"))?;
            if found.is_some() {
                return Err(OpenError::WritableControl {
                    entry: entry(),
                    name: name.to_owned(),
                });
            }
        }
        Ok(())
    }

    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    pub(crate) const fn identity(&self) -> Identity {
        self.identity
    }

    /// Whether the host path still leads to the held folder.
    pub(crate) fn is_in_place(&self) -> io::Result<bool> {
        let (path, resolve) = below_anchor(&self.ceiling.host);
        beneath::leads_to(&*self.anchor, path, resolve, self.identity)
    }
}

fn below_anchor(host: &Host) -> (&str, ResolveFlags) {
    match host {
        Host::Project(path) => (path, BELOW),
        Host::Absolute(path) => (path, BELOW_ACROSS_MOUNTS),
    }
}

fn place<'a>(
    ceiling: &'a Ceiling,
    anchors: &'a Anchors,
) -> (&'a Arc<OwnedFd>, &'a str, ResolveFlags) {
    let (path, resolve) = below_anchor(&ceiling.host);
    let anchor = match ceiling.host {
        Host::Project(_) => &anchors.project,
        Host::Absolute(_) => &anchors.host_root,
    };
    (anchor, path, resolve)
}

/// An absolute path that passes through the project meets the names of its control files there.
fn refuse_control(ceiling: &Ceiling, anchors: &Anchors) -> Result<(), OpenError> {
    let Host::Absolute(path) = &ceiling.host else {
        return Ok(());
    };
    for (at, _) in path.match_indices('/') {
        let (Some(prefix), Some(rest)) = (path.get(..at), path.get(at + 1..)) else {
            continue;
        };
        let flags = NAME_ONLY.union(OFlags::DIRECTORY);
        let Ok(folder) = beneath::open(&*anchors.host_root, prefix, flags, BELOW_ACROSS_MOUNTS)
        else {
            return Ok(()); // the open that follows says why
        };
        let is_project =
            Identity::of(&folder).is_ok_and(|identity| identity == anchors.project_identity);
        if is_project && let Some(name) = reserved_component(rest) {
            let (entry, name) = (ceiling.entry.clone(), name.to_owned());
            return Err(OpenError::Control { entry, name });
        }
    }
    Ok(())
}
