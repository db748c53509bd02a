//! The one new file that a call may create: its place, held and proven before anything runs.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use faults::{Point, reach};
use model::RelativePath;
use rustix::fs::{Access as Right, AtFlags, FileType};
use worker::ParentIdentity;

use crate::beneath::{self, BELOW, FOLDER, Identity};
use crate::candidate::{CandidateFolder, FolderFault, Unfit};
use crate::ceiling::{Access, CANDIDATES_NAME, Host};
use crate::held::HeldCeiling;
use crate::refusal::OutputFault;

/// Where an output will be published, held by handles: no later change of a name leads elsewhere.
#[derive(Debug)]
pub struct OutputTarget {
    pub(crate) path: RelativePath,
    pub(crate) ceiling: Arc<HeldCeiling>,
    /// The parent folder below the ceiling; empty for the ceiling's own folder.
    pub(crate) parent_path: String,
    pub(crate) parent: OwnedFd,
    pub(crate) parent_identity: Identity,
    pub(crate) name: String,
    pub(crate) candidates: CandidateFolder,
    /// Most bytes of the output.
    pub(crate) limit: u64,
}

impl OutputTarget {
    /// The output's path below the working directory.
    #[must_use]
    pub const fn path(&self) -> &RelativePath {
        &self.path
    }

    /// The identity of the held parent folder, as a descriptor binds it.
    #[must_use]
    pub fn parent(&self) -> ParentIdentity {
        identity_texts(self.parent_identity)
    }
}

pub(crate) fn identity_texts(identity: Identity) -> ParentIdentity {
    ParentIdentity {
        device: identity.device.to_string(),
        inode: identity.inode.to_string(),
    }
}

/// A parent folder as the operator wrote its volume: `./…` or absolute.
pub(crate) fn parent_on_host(host: &Host, parent_path: &str) -> String {
    let host = match host {
        Host::Project(path) => format!("./{path}"),
        Host::Absolute(path) => format!("/{path}"),
    };
    match parent_path {
        "" => host,
        below => format!("{}/{below}", host.trim_end_matches('/')),
    }
}

/// An output's place that has been looked at; nothing has been made.
pub(crate) struct OutputPlace {
    path: RelativePath,
    ceiling: Arc<HeldCeiling>,
    parent_path: String,
    parent: OwnedFd,
    parent_identity: Identity,
    name: String,
}

impl OutputPlace {
    /// Opens the parent of `rest` below `ceiling`, and refuses where no new file can come to be.
    pub(crate) fn open(
        path: &RelativePath,
        rest: &str,
        ceiling: &Arc<HeldCeiling>,
    ) -> Result<Self, OutputFault> {
        if ceiling.ceiling.access != Access::Create {
            return Err(OutputFault::ReadOnly {
                entry: ceiling.ceiling.entry.clone(),
            });
        }
        let (parent_path, name) = rest.rsplit_once('/').unwrap_or(("", rest));
        let parent =
            beneath::open(ceiling.root(), parent_path, FOLDER, BELOW).map_err(|errno| {
                let obstacle = beneath::obstacle(ceiling.root(), parent_path, BELOW, errno);
                OutputFault::Parent(obstacle.under(&ceiling.ceiling.guest))
            })?;
        let parent_identity = Identity::of(&parent).map_err(|source| OutputFault::Io {
            step: "look at its folder",
            source,
        })?;
        if let Some(stat) = beneath::look(&parent, name).map_err(|errno| OutputFault::Io {
            step: "look for it",
            source: errno.into(),
        })? {
            let kind = beneath::kind_name(FileType::from_raw_mode(stat.st_mode));
            return Err(OutputFault::Exists { kind });
        }
        if parent_identity.device != ceiling.identity().device {
            return Err(OutputFault::OtherDevice);
        }
        let rights = Right::WRITE_OK | Right::EXEC_OK;
        rustix::fs::accessat(&parent, ".", rights, AtFlags::EACCESS)
            .map_err(|errno| OutputFault::ParentNotWritable(errno.into()))?;
        Ok(Self {
            path: path.clone(),
            ceiling: Arc::clone(ceiling),
            parent_path: parent_path.to_owned(),
            parent,
            parent_identity,
            name: name.to_owned(),
        })
    }

    /// Makes the folder for the candidate, and proves that a rename works there.
    pub(crate) fn prepare(self, limit: u64) -> Result<OutputTarget, OutputFault> {
        let candidates = reach(Point::PlaceCandidates)
            .map_err(FolderFault::Make)
            .and_then(|()| CandidateFolder::open_or_make(self.ceiling.root()))
            .map_err(OutputFault::CandidateFolder)?;
        if candidates.identity().device != self.parent_identity.device {
            return Err(OutputFault::OtherDevice);
        }
        reach(Point::PlaceProve)
            .map_err(Unfit::Rename)
            .and_then(|()| candidates.prove(limit))
            .map_err(|unfit| match unfit {
                Unfit::Rename(error) => OutputFault::RenameUnproven(error),
                Unfit::FoldsCase => OutputFault::FoldsCase,
                Unfit::Room(source) => OutputFault::NoRoom {
                    bytes: limit,
                    source,
                },
            })?;
        Ok(OutputTarget {
            path: self.path,
            ceiling: self.ceiling,
            parent_path: self.parent_path,
            parent: self.parent,
            parent_identity: self.parent_identity,
            name: self.name,
            candidates,
            limit,
        })
    }
}

/// A name that no longer leads to what was held when the call was prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameChange {
    Volume,
    Parent,
    Candidates,
    Candidate,
}

impl NameChange {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Volume => "the volume's folder",
            Self::Parent => "the output's parent folder",
            Self::Candidates => "the folder for candidates",
            Self::Candidate => "the candidate",
        }
    }
}

impl OutputTarget {
    /// Whether every name on the way still leads to the held folders.
    pub(crate) fn changed_name(&self) -> std::io::Result<Option<NameChange>> {
        if !self.ceiling.is_in_place()? {
            return Ok(Some(NameChange::Volume));
        }
        let leads_to =
            |path, identity| beneath::leads_to(self.ceiling.root(), path, BELOW, identity);
        if !leads_to(&self.parent_path, self.parent_identity)? {
            return Ok(Some(NameChange::Parent));
        }
        if !leads_to(CANDIDATES_NAME, self.candidates.identity())? {
            return Ok(Some(NameChange::Candidates));
        }
        Ok(None)
    }
}
