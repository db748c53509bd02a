//! Publication: from a dead worker's bytes to the operator's new file.
//!
//! The order is the whole point. A complete, synced candidate comes first, then the signed intent
//! that names it, then one rename that never replaces, then the proof that the right bytes stand
//! there, then the signed end. Killed between any two of these, the destination is absent or
//! complete, and whatever an intent may name is still on disk.

use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::AsFd;

use faults::{At, Point, reach};
use journal::{
    CallJournal, CandidateIdentity, CreatedFile, FileIdentity, FilePublicationFinished,
    FilePublicationPrepared, JournalError, Recorded, shortened,
};
use model::{Digest, PublicationId};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::beneath::{self, BELOW, Identity, READ};
use crate::candidate::{self, Candidate, CandidateName, KeptCandidate};
use crate::failure::{Doubt, Kept, PublicationRefusal, PublishFailure};
use crate::output::{NameChange, OutputTarget, identity_texts, parent_on_host};
use crate::snapshot::{Chunk, CopyError};

/// The steps of a publication in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    MakeCandidate,
    CopyBytes,
    SyncCandidate,
    SyncCandidateFolder,
    CheckNames,
    RecordIntent,
    Rename,
    SyncFolders,
    CompareDestination,
    RecordEnd,
}

impl Step {
    const fn as_str(self) -> &'static str {
        match self {
            Self::MakeCandidate => "make the candidate",
            Self::CopyBytes => "copy the worker's bytes",
            Self::SyncCandidate => "sync the candidate",
            Self::SyncCandidateFolder => "sync the candidate's folder",
            Self::CheckNames => "check the names",
            Self::RecordIntent => "record the intent",
            Self::Rename => "rename the candidate",
            Self::SyncFolders => "sync both folders",
            Self::CompareDestination => "compare the published file",
            Self::RecordEnd => "record the end",
        }
    }

    fn reach(self) -> io::Result<()> {
        reach(match self {
            Self::MakeCandidate => Point::CandidateMake,
            // Each of its writes is a point.
            Self::CopyBytes => return Ok(()),
            Self::SyncCandidate => Point::CandidateSync,
            Self::SyncCandidateFolder => Point::CandidateSyncFolder,
            Self::CheckNames => Point::PublishCheckNames,
            Self::RecordIntent => Point::PublishRecordIntent,
            Self::Rename => Point::PublishRename,
            Self::SyncFolders => Point::PublishSyncFolders,
            Self::CompareDestination => Point::PublishCompare,
            Self::RecordEnd => Point::PublishRecordEnd,
        })
    }
}

/// Called before each step; a test fails, interferes or dies there.
pub(crate) type Hook<'h> = &'h mut dyn FnMut(Step) -> io::Result<()>;

/// The proof that the intent is on disk.
type Intent = Recorded<FilePublicationPrepared>;

impl OutputTarget {
    /// Publishes the `bytes` bytes of `output`, the file of a worker that is gone, as a new file
    /// at this place, for the call `call` whose authority `journal` is.
    ///
    /// # Errors
    /// [`PublishFailure`] tells apart what certainly did not happen, what nobody knows, and what
    /// could not be recorded.
    pub fn publish(
        self,
        output: &mut File,
        bytes: u64,
        call: Digest,
        journal: &mut CallJournal,
    ) -> Result<CreatedFile, PublishFailure> {
        self.publish_with(output, bytes, call, journal, &mut Step::reach)
    }

    pub(crate) fn publish_with(
        self,
        output: &mut File,
        bytes: u64,
        call: Digest,
        journal: &mut CallJournal,
        hook: Hook<'_>,
    ) -> Result<CreatedFile, PublishFailure> {
        let id = PublicationId::new();
        Publication {
            target: &self,
            journal,
            hook,
            id,
            call,
        }
        .run(output, bytes)
    }
}

/// One publication under way.
struct Publication<'a> {
    target: &'a OutputTarget,
    journal: &'a mut CallJournal,
    hook: Hook<'a>,
    id: PublicationId,
    call: Digest,
}

/// What the candidate holds, and what must stand at the destination.
#[derive(Clone, Copy)]
struct Content {
    bytes: u64,
    sha256: Digest,
}

impl<'a> Publication<'a> {
    fn run(mut self, output: &mut File, bytes: u64) -> Result<CreatedFile, PublishFailure> {
        self.check_authority()?;
        self.check_output(output, bytes)?;
        let (candidate, content) = self.copy(output, bytes)?;
        self.sync(&candidate)?;
        self.check_names(&candidate, content)?;
        let (candidate, intent) = self.record_intent(candidate.keep(), content)?;
        let candidate = self.rename(candidate, content, &intent)?;
        self.confirm(&candidate, content)?;
        self.record_end(&intent)?;
        Ok(CreatedFile {
            path: self.target.path.clone(),
            bytes: content.bytes,
            sha256: content.sha256,
        })
    }

    /// Records must be signed and durable, and of this call.
    fn check_authority(&self) -> Result<(), PublishFailure> {
        if !self.journal.publishes() {
            return Err(self.refused(PublicationRefusal::NoLiveAudit));
        }
        let (expected, found) = (self.journal.call_sha256(), self.call);
        if expected != found {
            let refusal = JournalError::OtherCall { expected, found };
            return Err(self.refused(PublicationRefusal::NotRecorded(refusal)));
        }
        Ok(())
    }

    /// The worker's file must be one plain file of the size that its tier saw.
    fn check_output(&self, output: &mut File, bytes: u64) -> Result<(), PublishFailure> {
        let stat = rustix::fs::fstat(&*output)
            .map_err(|errno| self.io_refused("look at the worker's output")(errno.into()))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::RegularFile {
            let kind = beneath::kind_name(kind);
            return Err(self.refused(PublicationRefusal::OutputKind { kind }));
        }
        let links = beneath::links(&stat);
        if links > 1 {
            return Err(self.refused(PublicationRefusal::OutputLinks { links }));
        }
        let found = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        let max = self.target.limit;
        if found > max {
            return Err(self.refused(PublicationRefusal::OutputTooLarge { bytes: found, max }));
        }
        if found != bytes {
            let reported = bytes;
            return Err(self.refused(PublicationRefusal::OutputSize { reported, found }));
        }
        output
            .rewind()
            .map_err(self.io_refused("read the worker's output"))
    }

    /// The worker's bytes in a fresh inode: it could have changed the mode and times of its own.
    fn copy(
        &mut self,
        output: &mut File,
        bytes: u64,
    ) -> Result<(Candidate<'a>, Content), PublishFailure> {
        let target = self.target;
        let name = CandidateName {
            run: self.journal.run(),
            publication: self.id,
        };
        self.at(Step::MakeCandidate)?;
        let mut candidate = target
            .candidates
            .create(name)
            .map_err(self.io_refused(Step::MakeCandidate.as_str()))?;
        self.at(Step::CopyBytes)?;
        let mut to = At {
            point: Point::CandidateWrite,
            writer: &mut candidate.file,
        };
        let copied = Chunk::new().copy(output, &mut to, bytes);
        let (found, sha256) = copied.map_err(|error| match error {
            CopyError::Longer => self.refused(PublicationRefusal::OutputChanged),
            CopyError::Read(error) => self.io_refused("read the worker's output")(error),
            CopyError::Write(error) => self.io_refused("write the candidate")(error),
        })?;
        if found != bytes {
            return Err(self.refused(PublicationRefusal::OutputChanged));
        }
        Ok((candidate, Content { bytes, sha256 }))
    }

    /// Durable, with its name, before any record speaks of it.
    fn sync(&mut self, candidate: &Candidate<'_>) -> Result<(), PublishFailure> {
        self.at(Step::SyncCandidate)?;
        candidate
            .sync()
            .map_err(self.io_refused(Step::SyncCandidate.as_str()))?;
        self.at(Step::SyncCandidateFolder)?;
        candidate
            .sync_folder()
            .map_err(self.io_refused(Step::SyncCandidateFolder.as_str()))
    }

    fn check_names(
        &mut self,
        candidate: &Candidate<'_>,
        content: Content,
    ) -> Result<(), PublishFailure> {
        self.at(Step::CheckNames)?;
        let name = candidate.name();
        match self.look_at_names(name, candidate.identity(), content.bytes) {
            Ok(None) => Ok(()),
            Ok(Some(reason)) => Err(self.refused(reason)),
            Err(error) => Err(self.io_refused(Step::CheckNames.as_str())(error)),
        }
    }

    /// Why the rename must not be tried: a name leads elsewhere, or the target is taken.
    fn look_at_names(
        &self,
        candidate: &str,
        identity: Identity,
        bytes: u64,
    ) -> io::Result<Option<PublicationRefusal>> {
        let target = self.target;
        if let Some(what) = target.changed_name()? {
            return Ok(Some(PublicationRefusal::NameChanged { what }));
        }
        if !candidate::stands(target.candidates.handle(), candidate, identity, bytes)? {
            return Ok(Some(PublicationRefusal::NameChanged {
                what: NameChange::Candidate,
            }));
        }
        let taken = beneath::look(&target.parent, &target.name)?;
        Ok(taken.map(|_| PublicationRefusal::Exists))
    }

    /// From the attempt to append it, the candidate stays, unless the journal wrote nothing.
    fn record_intent(
        &mut self,
        candidate: KeptCandidate,
        content: Content,
    ) -> Result<(KeptCandidate, Intent), PublishFailure> {
        let intent = self.intent(&candidate, content);
        match (self.hook)(Step::RecordIntent)
            .map_err(JournalError::Store)
            .and_then(|()| self.journal.publication_prepared(intent))
        {
            Ok(intent) => Ok((candidate, intent)),
            Err(source @ (JournalError::Store(_) | JournalError::Failed)) => {
                Err(self.unrecorded(Kept::Candidate, source))
            }
            Err(refusal) => {
                // No record names it: what stays here is swept later.
                let _ = candidate.remove(&self.target.candidates);
                Err(self.refused(PublicationRefusal::NotRecorded(refusal)))
            }
        }
    }

    fn intent(&self, candidate: &KeptCandidate, content: Content) -> FilePublicationPrepared {
        let target = self.target;
        let parent = identity_texts(target.parent_identity);
        let file = identity_texts(candidate.identity);
        FilePublicationPrepared {
            publication_id: self.id,
            call_sha256: self.call,
            path: target.path.clone(),
            parent_path: parent_on_host(&target.ceiling.ceiling.host, &target.parent_path),
            parent: FileIdentity {
                device: parent.device,
                inode: parent.inode,
            },
            candidate: CandidateIdentity {
                name: candidate.name.clone(),
                device: file.device,
                inode: file.inode,
            },
            target_name: target.name.clone(),
            bytes: content.bytes,
            sha256: content.sha256,
        }
    }

    /// The rename, after one more look at the names: the record in between took its time.
    fn rename(
        &mut self,
        candidate: KeptCandidate,
        content: Content,
        intent: &Intent,
    ) -> Result<KeptCandidate, PublishFailure> {
        let target = self.target;
        let KeptCandidate { name, identity, .. } = &candidate;
        if let Err(error) = (self.hook)(Step::Rename) {
            return Err(self.give_up(candidate, PublicationRefusal::Rename(error), intent));
        }
        match self.look_at_names(name, *identity, content.bytes) {
            Ok(None) => {}
            Ok(Some(PublicationRefusal::NameChanged {
                what: NameChange::Candidate,
            })) => {
                return Err(self.unconfirmed(Kept::Candidate, Doubt::CandidateGone));
            }
            Ok(Some(reason)) => return Err(self.give_up(candidate, reason, intent)),
            Err(error) => {
                let step = Step::CheckNames.as_str();
                let reason = PublicationRefusal::Io {
                    step,
                    source: error,
                };
                return Err(self.give_up(candidate, reason, intent));
            }
        }
        let renamed = target
            .candidates
            .rename_to(name, target.parent.as_fd(), &target.name);
        let Err(errno) = renamed else {
            return Ok(candidate);
        };
        let stands = candidate::stands(target.candidates.handle(), name, *identity, content.bytes);
        if is_doubtful(errno) || !stands.unwrap_or(false) {
            return Err(self.unconfirmed(Kept::Unknown, Doubt::Io(errno.into())));
        }
        let reason = match errno {
            Errno::EXIST => PublicationRefusal::Exists,
            other => PublicationRefusal::Rename(other.into()),
        };
        Err(self.give_up(candidate, reason, intent))
    }

    /// Nothing was published for certain: say so in a record, then remove the candidate.
    fn give_up(
        &mut self,
        candidate: KeptCandidate,
        reason: PublicationRefusal,
        intent: &Intent,
    ) -> PublishFailure {
        let error = Some(shortened(
            &reason.to_string(),
            journal::limits::NOTE_TEXT_BYTES_MAX,
        ));
        let end = FilePublicationFinished {
            publication_id: self.id,
            confirmed: false,
            error,
        };
        match self.journal.publication_finished(intent, end) {
            Err(source) => self.unrecorded(Kept::Candidate, source),
            Ok(_) => {
                // A closed intent protects nothing: what stays here is swept later.
                let _ = candidate.remove(&self.target.candidates);
                self.refused(reason)
            }
        }
    }

    /// Proves that the right bytes stand durably at the path.
    fn confirm(
        &mut self,
        candidate: &KeptCandidate,
        content: Content,
    ) -> Result<(), PublishFailure> {
        let target = self.target;
        let synced = (self.hook)(Step::SyncFolders)
            .and_then(|()| Ok(rustix::fs::fsync(&target.parent)?))
            .and_then(|()| Ok(rustix::fs::fsync(target.candidates.handle())?));
        synced.map_err(|error| self.unconfirmed(Kept::Published, Doubt::Io(error)))?;
        match (self.hook)(Step::CompareDestination)
            .and_then(|()| target.has_published(candidate, content))
        {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.unconfirmed(Kept::Unknown, Doubt::OtherFile)),
            Err(error) => Err(self.unconfirmed(Kept::Published, Doubt::Io(error))),
        }
    }

    fn record_end(&mut self, intent: &Intent) -> Result<(), PublishFailure> {
        let end = FilePublicationFinished {
            publication_id: self.id,
            confirmed: true,
            error: None,
        };
        (self.hook)(Step::RecordEnd)
            .map_err(JournalError::Store)
            .and_then(|()| self.journal.publication_finished(intent, end))
            .map_err(|source| self.unrecorded(Kept::Published, source))
            .map(drop)
    }

    /// The hook of a step before the intent: a failure there leaves nothing.
    fn at(&mut self, step: Step) -> Result<(), PublishFailure> {
        (self.hook)(step).map_err(self.io_refused(step.as_str()))
    }

    fn refused(&self, reason: PublicationRefusal) -> PublishFailure {
        PublishFailure::NotPublished {
            path: self.target.path.clone(),
            reason,
        }
    }

    fn io_refused(&self, step: &'static str) -> impl FnOnce(io::Error) -> PublishFailure + use<> {
        let path = self.target.path.clone();
        move |source| PublishFailure::NotPublished {
            path,
            reason: PublicationRefusal::Io { step, source },
        }
    }

    fn unconfirmed(&self, kept: Kept, doubt: Doubt) -> PublishFailure {
        PublishFailure::Unconfirmed {
            path: self.target.path.clone(),
            publication_id: self.id,
            kept,
            doubt,
        }
    }

    fn unrecorded(&self, kept: Kept, source: JournalError) -> PublishFailure {
        PublishFailure::Journal {
            path: self.target.path.clone(),
            publication_id: self.id,
            kept,
            source,
        }
    }
}

/// Answers of a rename that do not say whether it happened.
pub(crate) const fn is_doubtful(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::IO | Errno::INTR | Errno::TIMEDOUT | Errno::STALE
    )
}

impl OutputTarget {
    /// Whether the candidate's inode, with its bytes, stands at the output's path, reached through
    /// the names as well as through the held folder.
    fn has_published(&self, candidate: &KeptCandidate, content: Content) -> io::Result<bool> {
        if self.changed_name()?.is_some()
            || !candidate::stands(
                self.parent.as_fd(),
                &self.name,
                candidate.identity,
                content.bytes,
            )?
        {
            return Ok(false);
        }
        let opened = beneath::open(&self.parent, &self.name, READ, BELOW)?;
        if Identity::of(&opened)? != candidate.identity {
            return Ok(false);
        }
        match Chunk::new().copy(&mut File::from(opened), &mut io::sink(), content.bytes) {
            Ok(found) => Ok(found == (content.bytes, content.sha256)),
            Err(CopyError::Longer) => Ok(false),
            Err(CopyError::Read(error) | CopyError::Write(error)) => Err(error),
        }
    }
}
