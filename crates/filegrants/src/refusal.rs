//! Why a call's files are refused, before anything has happened.

use std::fmt;
use std::io;

use model::RelativePath;

use crate::beneath::Obstacle;
use crate::candidate::FolderFault;
use crate::pool::PoolRefusal;

/// A no to one call's files. No worker has started and nothing is left of it.
#[derive(Debug)]
pub enum FileRefusal {
    FileLimit {
        bytes: u64,
        max: u64,
    },
    TooManyInputs {
        count: usize,
        max: usize,
    },
    TooManyOutputs {
        count: usize,
        max: usize,
    },
    TotalTooLarge {
        bytes: u64,
        max: u64,
    },
    Duplicate {
        path: RelativePath,
    },
    OutsideCeilings {
        path: RelativePath,
    },
    /// The path is the folder of a volume itself.
    CeilingItself {
        path: RelativePath,
    },
    /// The host folder of the path's volume is not the one that was opened.
    CeilingReplaced {
        path: RelativePath,
        entry: String,
    },
    Reserved {
        path: RelativePath,
        name: String,
    },
    /// No room for the private copies.
    Staging(PoolRefusal),
    Input {
        path: RelativePath,
        fault: InputFault,
    },
    Output {
        path: RelativePath,
        fault: OutputFault,
    },
}

/// Why a file cannot be an input.
#[derive(Debug)]
pub enum InputFault {
    Unreachable(Obstacle),
    NotRegular {
        kind: &'static str,
    },
    HardLinks {
        links: u64,
    },
    TooLarge {
        bytes: u64,
        max: u64,
    },
    Changed,
    StagingFull,
    Io {
        step: &'static str,
        source: io::Error,
    },
}

/// Why no new file can come to be at a path.
#[derive(Debug)]
pub enum OutputFault {
    /// The volume, by its entry, permits reading only.
    ReadOnly {
        entry: String,
    },
    Parent(Obstacle),
    Exists {
        kind: &'static str,
    },
    ParentNotWritable(io::Error),
    OtherDevice,
    CandidateFolder(FolderFault),
    RenameUnproven(io::Error),
    FoldsCase,
    /// The file system is full, or the user's quota is used up.
    NoRoom {
        bytes: u64,
        source: io::Error,
    },
    NoLiveAudit,
    Io {
        step: &'static str,
        source: io::Error,
    },
}

impl FileRefusal {
    /// Whether room ran out: the same call can succeed when others have ended.
    #[must_use]
    pub const fn is_capacity(&self) -> bool {
        matches!(
            self,
            Self::Staging(_)
                | Self::Input {
                    fault: InputFault::StagingFull,
                    ..
                }
                | Self::Output {
                    fault: OutputFault::NoRoom { .. },
                    ..
                }
        )
    }
}

impl fmt::Display for FileRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FileLimit { bytes, max } => write!(
                f,
                "`max_file_bytes` is {bytes}; it must be from 1 to {max}: correct the manifest"
            ),
            Self::TooManyInputs { count, max } => write!(
                f,
                "{count} input files are declared, more than the {max} of one call; \
                 split the work into several calls"
            ),
            Self::TooManyOutputs { count, max } => write!(
                f,
                "{count} output files are declared, more than the {max} of one call; \
                 split the work into several calls"
            ),
            Self::TotalTooLarge { bytes, max } => write!(
                f,
                "the inputs have {bytes} bytes together, more than the {max} of one call; \
                 split the work into several calls"
            ),
            Self::Duplicate { path } => write!(
                f,
                "`{path}` is granted twice; name each file once, and another name for the output"
            ),
            Self::OutsideCeilings { path } => {
                write!(
                    f,
                    "`{path}` is in no volume; use a path in one, or add one to `volumes`"
                )
            }
            Self::CeilingItself { path } => {
                write!(f, "`{path}` is the folder of a volume; name a file in it")
            }
            Self::CeilingReplaced { path, entry } => write!(
                f,
                "the host folder of volume `{}`, where `{path}` would be, was moved or replaced \
                 since this run began; put it back, or start a new run",
                entry.escape_debug()
            ),
            Self::Reserved { path, name } => write!(
                f,
                "`{path}` has the component `{name}`, a reserved name that no call may use; \
                 keep the file elsewhere"
            ),
            Self::Staging(refusal) => refusal.fmt(f),
            Self::Input { path, fault } => write!(f, "input `{path}`: {fault}"),
            Self::Output { path, fault } => write!(f, "output `{path}`: {fault}"),
        }
    }
}

impl fmt::Display for InputFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(obstacle) => obstacle.fmt(f),
            Self::NotRegular { kind } => {
                write!(
                    f,
                    "it is {kind}, and only regular files can be inputs; name a file"
                )
            }
            Self::HardLinks { links } => write!(
                f,
                "it has {links} hard links, so it may be another file under a second name; \
                 make a copy (`cp`) and name that"
            ),
            Self::TooLarge { bytes, max } => write!(
                f,
                "it has {bytes} bytes, more than the {max} of `max_file_bytes`; \
                 use a smaller file, or raise the limit in the manifest"
            ),
            Self::Changed => {
                f.write_str("it changed while it was read; try again when nobody writes it")
            }
            Self::StagingFull => f.write_str(
                "there is no room for its snapshot; \
                 free space on the staging folder's file system and try again",
            ),
            Self::Io { step, .. } => write!(f, "the operating system failed to {step}"),
        }
    }
}

impl fmt::Display for OutputFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadOnly { entry } => write!(
                f,
                "volume `{}` is read-only; use a path in a volume with `rw`",
                entry.escape_debug()
            ),
            Self::Parent(obstacle) => write!(f, "its parent folder must exist: {obstacle}"),
            Self::Exists { kind } => write!(
                f,
                "it exists already ({kind}) and is never replaced; use a new name, or move it away"
            ),
            Self::ParentNotWritable(_) => f.write_str(
                "its parent folder is not writable for the operator's user; \
                 change its owner, mode or mount",
            ),
            Self::OtherDevice => f.write_str(
                "its parent folder is on another file system than its volume, so no atomic rename \
                 leads there; give that folder a volume of its own",
            ),
            Self::CandidateFolder(fault) => fault.fmt(f),
            Self::RenameUnproven(_) => f.write_str(
                "its file system has no rename that never replaces; \
                 put the volume on ext4, xfs, btrfs, tmpfs or overlayfs",
            ),
            Self::FoldsCase => f.write_str(
                "its file system takes names in small letters and in capitals for one; \
                 put the volume on one that does not",
            ),
            Self::NoRoom { bytes, .. } => write!(
                f,
                "there is no room for the {bytes} bytes of `max_file_bytes` on its file system; \
                 free some, or lower the limit in the manifest"
            ),
            Self::NoLiveAudit => f.write_str(
                "an output needs live audit authority, a signed and durable journal, and this \
                 call has none; run it through a governed session",
            ),
            Self::Io { step, .. } => write!(f, "the operating system failed to {step}"),
        }
    }
}

impl std::error::Error for FileRefusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Input { fault, .. } => match fault {
                InputFault::Unreachable(obstacle) => obstacle.source(),
                InputFault::Io { source, .. } => Some(source),
                _ => None,
            },
            Self::Output { fault, .. } => match fault {
                OutputFault::Parent(obstacle) => obstacle.source(),
                OutputFault::CandidateFolder(fault) => fault.source(),
                OutputFault::ParentNotWritable(source)
                | OutputFault::RenameUnproven(source)
                | OutputFault::NoRoom { source, .. }
                | OutputFault::Io { source, .. } => Some(source),
                _ => None,
            },
            _ => None,
        }
    }
}
