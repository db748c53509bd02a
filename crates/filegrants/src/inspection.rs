//! Where an unfinished publication stands: judged through held folders, never by names alone.
//!
//! An inspection changes nothing. It ends in one hash over everything that it saw, so that a
//! person who read it approves exactly that, and nothing that came later.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use journal::FilePublicationPrepared;
use model::{Canonical, Digest, PublicationId, RunId};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::beneath::{self, BELOW, FOLDER, Identity, READ};
use crate::broker::FileBroker;
use crate::candidate::{CandidateFolder, CandidateName, FolderFault};
use crate::ceiling::{Access, CANDIDATES_NAME};
use crate::dead_run::{DeadRun, RecordedPublication};
use crate::held::HeldCeiling;
use crate::output::{identity_texts, parent_on_host};
use crate::refusal::FileRefusal;
use crate::snapshot::{Chunk, CopyError, is_same_state};

/// Where an unfinished publication stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PublicationState {
    /// The intended candidate is whole and its target is free.
    ReadyToPublish,
    /// The intended file stands at its target.
    Published,
    /// Neither the candidate nor anything at the target.
    Missing,
    /// Something is not as the intent says, and nobody can tell why.
    Conflict,
}

impl PublicationState {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadyToPublish => "ready_to_publish",
            Self::Published => "published",
            Self::Missing => "missing",
            Self::Conflict => "conflict",
        }
    }
}

/// Why a publication cannot be looked at.
#[derive(Debug)]
pub enum InspectError {
    /// The run's journal has no such intent.
    Unknown {
        publication: PublicationId,
        known: Vec<PublicationId>,
    },
    /// Its end is recorded: there is nothing to recover.
    Finished {
        publication: PublicationId,
        confirmed: bool,
    },
    /// The volumes of the configuration do not lead to the intended folder.
    Volumes {
        path: String,
        parent: String,
    },
    Refused(FileRefusal),
    Candidates(FolderFault),
    Io {
        step: &'static str,
        source: io::Error,
    },
}

impl fmt::Display for InspectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { publication, known } => {
                write!(
                    f,
                    "the run's journal has no intent of publication {publication}"
                )?;
                match known.as_slice() {
                    [] => f.write_str("; it has none at all"),
                    [one] => write!(f, "; it has {one}"),
                    [one, others @ ..] => write!(f, "; it has {one} and {} more", others.len()),
                }
            }
            Self::Finished {
                publication,
                confirmed,
            } => {
                let end = if *confirmed {
                    "published"
                } else {
                    "not published"
                };
                write!(
                    f,
                    "the end of publication {publication} is recorded ({end}): \
                     there is nothing to recover"
                )
            }
            Self::Volumes { path, parent } => write!(
                f,
                "the volumes of symbiont.toml do not lead `{}` to `{}` any more, where it was to \
                 be published; give that volume back its entry",
                path.escape_debug(),
                parent.escape_debug()
            ),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Candidates(fault) => fault.fmt(f),
            Self::Io { step, .. } => write!(f, "cannot {step}"),
        }
    }
}

impl std::error::Error for InspectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(error) => std::error::Error::source(error),
            Self::Candidates(error) => std::error::Error::source(error),
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

pub(crate) fn io_step(step: &'static str) -> impl FnOnce(io::Error) -> InspectError {
    move |source| InspectError::Io { step, source }
}

/// What one look found.
#[derive(Debug)]
pub struct Inspection {
    pub run: RunId,
    pub intent: FilePublicationPrepared,
    pub state: PublicationState,
    /// What is not as it should be, for a person.
    pub reasons: Vec<String>,
    /// Hash over everything that was seen: what a recovery is bound to.
    pub snapshot_sha256: Digest,
    pub(crate) place: HeldPlace,
    /// The candidate, held open: while it is, no other file can get its inode number.
    pub(crate) candidate: Option<File>,
}

/// The folders that the publication is between.
#[derive(Debug)]
pub(crate) struct HeldPlace {
    pub(crate) parent: Option<OwnedFd>,
    pub(crate) candidates: Option<CandidateFolder>,
    pub(crate) expected: Expected,
}

/// The one file that may be published.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    pub(crate) identity: Identity,
    pub(crate) bytes: u64,
    pub(crate) sha256: Digest,
}

/// What stands at one name.
#[derive(Debug)]
enum Found {
    Absent,
    Exact(File, Facts),
    Other(String, Facts),
}

/// A file's state as a snapshot hashes it. Numbers are texts: they can pass 2^53.
#[derive(Debug, Serialize)]
struct Facts {
    device: String,
    inode: String,
    mode: u32,
    links: String,
    owner: u32,
    group: u32,
    bytes: String,
    modified: String,
    changed: String,
    sha256: Option<Digest>,
}

#[derive(Serialize)]
struct Snapshot<'a> {
    v: u64,
    run: RunId,
    publication_id: PublicationId,
    journal_bytes: String,
    journal_sha256: Digest,
    intent_sha256: Digest,
    volume: Option<[String; 2]>,
    parent: Option<[String; 2]>,
    candidates: Option<[String; 2]>,
    candidate: Option<&'a Facts>,
    target: Option<&'a Facts>,
    state: PublicationState,
}

impl FileBroker {
    /// Looks at an unfinished publication of `run`. Changes nothing.
    ///
    /// # Errors
    /// [`InspectError`] where there is nothing to look at, or it cannot be looked at.
    pub fn inspect(
        &self,
        run: &DeadRun,
        publication: PublicationId,
    ) -> Result<Inspection, InspectError> {
        let recorded = open_publication(run, publication)?;
        let intent = &recorded.intent;
        let (ceiling, parent_path) = self.place_of(intent)?;
        let mut reasons = Vec::new();
        let in_place = ceiling.is_in_place().map_err(io_step("find the volume"))?;
        if !in_place {
            reasons.push("the volume's folder was replaced".to_owned());
        }
        let place = HeldPlace::open(&ceiling, parent_path, intent, &mut reasons)?;
        let name = CandidateName {
            run: run.run,
            publication,
        };
        if intent.candidate.name != name.to_string() {
            reasons.push("the intent names the candidate of another publication".to_owned());
        }
        let candidate = look(place.candidates.as_ref(), &intent.candidate.name, &place)?;
        let target = look(place.parent.as_ref(), &intent.target_name, &place)?;
        let state = judge(&candidate, &target, &mut reasons);
        let identity = |it: Identity| [it.device.to_string(), it.inode.to_string()];
        let parent = place.parent.as_ref().map(Identity::of).transpose();
        let snapshot = Snapshot {
            v: 1,
            run: run.run,
            publication_id: publication,
            journal_bytes: run.journal_bytes.to_string(),
            journal_sha256: run.journal_sha256,
            intent_sha256: recorded.record,
            volume: in_place.then(|| identity(ceiling.identity())),
            parent: parent
                .map_err(io_step("look at the parent folder"))?
                .map(identity),
            candidates: place.candidates.as_ref().map(|it| identity(it.identity())),
            candidate: candidate.facts(),
            target: target.facts(),
            state,
        };
        let snapshot = Canonical::of(&snapshot)
            .map_err(|error| io_step("hash what was seen")(io::Error::other(error)))?;
        Ok(Inspection {
            run: run.run,
            intent: intent.clone(),
            state,
            reasons,
            snapshot_sha256: snapshot.digest(),
            place,
            candidate: match candidate {
                Found::Exact(file, _) => Some(file),
                Found::Absent | Found::Other(..) => None,
            },
        })
    }

    /// The volume that the intent's path is in today, and its parent folder below that.
    fn place_of<'i>(
        &self,
        intent: &'i FilePublicationPrepared,
    ) -> Result<(Arc<HeldCeiling>, &'i str), InspectError> {
        let (ceiling, rest) = self
            .ceiling_of(&intent.path)
            .map_err(InspectError::Refused)?;
        let (parent_path, name) = rest.rsplit_once('/').unwrap_or(("", rest));
        let parent = parent_on_host(&ceiling.ceiling.host, parent_path);
        match ceiling.ceiling.access == Access::Create
            && name == intent.target_name
            && parent == intent.parent_path
        {
            true => Ok((Arc::clone(ceiling), parent_path)),
            false => Err(InspectError::Volumes {
                path: intent.path.to_string(),
                parent: intent.parent_path.clone(),
            }),
        }
    }
}

fn open_publication(
    run: &DeadRun,
    publication: PublicationId,
) -> Result<&RecordedPublication, InspectError> {
    let Some(recorded) = run.publication(publication) else {
        let known = run.publications.iter();
        return Err(InspectError::Unknown {
            publication,
            known: known.map(|it| it.intent.publication_id).collect(),
        });
    };
    match &recorded.finished {
        None => Ok(recorded),
        Some(end) => Err(InspectError::Finished {
            publication,
            confirmed: end.confirmed,
        }),
    }
}

impl HeldPlace {
    fn open(
        ceiling: &HeldCeiling,
        parent_path: &str,
        intent: &FilePublicationPrepared,
        reasons: &mut Vec<String>,
    ) -> Result<Self, InspectError> {
        let parent = match beneath::open(ceiling.root(), parent_path, FOLDER, BELOW) {
            Ok(parent) => {
                let found = Identity::of(&parent).map_err(io_step("look at the parent folder"))?;
                let found = identity_texts(found);
                let intended = &intent.parent;
                let same = (&found.device, &found.inode) == (&intended.device, &intended.inode);
                same.then_some(parent)
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => None,
            Err(errno) => return Err(io_step("open the parent folder")(errno.into())),
        };
        if parent.is_none() {
            reasons.push("the parent folder is not the one that was intended".to_owned());
        }
        let candidates = match beneath::look(ceiling.root(), CANDIDATES_NAME) {
            Ok(None) => None,
            Ok(Some(_)) => Some(
                CandidateFolder::open_existing(ceiling.root()).map_err(InspectError::Candidates)?,
            ),
            Err(errno) => return Err(io_step("look for the candidates")(errno.into())),
        };
        let number = |text: &str| text.parse::<u64>().ok();
        let file = &intent.candidate;
        let identity = number(&file.device).zip(number(&file.inode));
        let (device, inode) = identity.ok_or_else(|| {
            io_step("read the intent")(io::Error::other("it names no device and inode"))
        })?;
        Ok(Self {
            parent,
            candidates,
            expected: Expected {
                identity: Identity { device, inode },
                bytes: intent.bytes,
                sha256: intent.sha256,
            },
        })
    }
}

fn look(folder: Option<&impl AsFd>, name: &str, place: &HeldPlace) -> Result<Found, InspectError> {
    match folder {
        None => Ok(Found::Absent),
        Some(folder) => {
            find(folder, name, &place.expected).map_err(io_step("look at the publication's files"))
        }
    }
}

/// What stands at `name`, compared with the one file that may.
fn find(folder: impl AsFd, name: &str, expected: &Expected) -> io::Result<Found> {
    let Some(stat) = beneath::look(&folder, name)? else {
        return Ok(Found::Absent);
    };
    let other = |why: &str| Ok(Found::Other(why.to_owned(), Facts::of(&stat, None)));
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind != FileType::RegularFile {
        return other(beneath::kind_name(kind));
    }
    if Identity::from_stat(&stat) != expected.identity {
        return other("another file than the intended one");
    }
    if beneath::links(&stat) != 1 {
        return other("the intended file, with more than one name");
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return other("the intended file, which another user owns by now");
    }
    if u64::try_from(stat.st_size) != Ok(expected.bytes) {
        return other("the intended file with another size");
    }
    let mut file = File::from(beneath::open(&folder, name, READ, BELOW)?);
    let copied = Chunk::new().copy(&mut file, &mut io::sink(), expected.bytes);
    let (bytes, sha256) = match copied {
        Ok(copied) => copied,
        Err(CopyError::Longer) => return other("the intended file, which changes"),
        Err(CopyError::Read(error) | CopyError::Write(error)) => return Err(error),
    };
    if !is_same_state(&stat, &rustix::fs::fstat(&file)?) {
        return other("a file that changes");
    }
    let facts = Facts::of(&stat, Some(sha256));
    match (bytes, sha256) == (expected.bytes, expected.sha256) {
        true => Ok(Found::Exact(file, facts)),
        false => Ok(Found::Other(
            "the intended file with other bytes".to_owned(),
            facts,
        )),
    }
}

/// Whether exactly the intended file stands at `name`.
pub(crate) fn is_exact(folder: impl AsFd, name: &str, expected: &Expected) -> io::Result<bool> {
    Ok(matches!(find(folder, name, expected)?, Found::Exact(..)))
}

fn judge(candidate: &Found, target: &Found, reasons: &mut Vec<String>) -> PublicationState {
    let mut say = |name: &str, found: &Found| {
        if let Found::Other(what, _) = found {
            reasons.push(format!("at the {name} stands {what}"));
        }
    };
    say("candidate's name", candidate);
    say("target", target);
    if !reasons.is_empty() {
        return PublicationState::Conflict;
    }
    match (candidate, target) {
        (Found::Exact(..), Found::Absent) => PublicationState::ReadyToPublish,
        (Found::Absent, Found::Exact(..)) => PublicationState::Published,
        (Found::Absent, Found::Absent) => PublicationState::Missing,
        // One inode with one name cannot stand at two: the names changed while we looked.
        _ => PublicationState::Conflict,
    }
}

impl Found {
    const fn facts(&self) -> Option<&Facts> {
        match self {
            Self::Absent => None,
            Self::Exact(_, facts) | Self::Other(_, facts) => Some(facts),
        }
    }
}

impl Facts {
    fn of(stat: &Stat, sha256: Option<Digest>) -> Self {
        Self {
            device: stat.st_dev.to_string(),
            inode: stat.st_ino.to_string(),
            mode: stat.st_mode,
            links: beneath::links(stat).to_string(),
            owner: stat.st_uid,
            group: stat.st_gid,
            bytes: stat.st_size.to_string(),
            modified: format!("{}.{:09}", stat.st_mtime, stat.st_mtime_nsec),
            changed: format!("{}.{:09}", stat.st_ctime, stat.st_ctime_nsec),
            sha256,
        }
    }
}
