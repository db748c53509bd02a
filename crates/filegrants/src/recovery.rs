//! Recovery: an operator finishes exactly one recorded publication of a dead run.
//!
//! Nothing runs again. The rename is the one that the journal's intent allowed, through held
//! folders and never over anything, and only while everything is as the operator saw it. What
//! was done is told in a signed receipt beside the run; the journal gets no byte more.

use std::fmt;
use std::io;
use std::os::fd::AsFd;

use faults::{Point, reach};
use journal::{PublicKey, RunSigner};
use model::{Digest, PublicationId, RunId};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::broker::FileBroker;
use crate::dead_run::DeadRun;
use crate::inspection::{InspectError, Inspection, PublicationState, is_exact};
use crate::invocation::{InvocationError, InvocationFolder};
use crate::limits::STATEMENT_BYTES_MAX;
use crate::resolution::{self, Resolution};
use crate::statement::{self, Forgery, StatementError};

const RECEIPT_KIND: &str = "file_recovery";

/// Whose statements count, and who signs new ones.
#[derive(Debug, Clone)]
pub struct OperatorKeys {
    /// The project's key, and the run's own where it is an older one.
    pub trusted: Vec<PublicKey>,
    pub signer: RunSigner,
}

/// The steps of a recovery in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecoveryStep {
    Rename,
    SyncFolders,
    CompareDestination,
    WriteReceipt,
    PlaceReceipt,
    End,
}

impl RecoveryStep {
    fn reach(self) -> io::Result<()> {
        reach(match self {
            Self::Rename => Point::RecoverRename,
            Self::SyncFolders => Point::RecoverSyncFolders,
            Self::CompareDestination => Point::RecoverCompare,
            Self::WriteReceipt => Point::RecoverWriteReceipt,
            Self::PlaceReceipt => Point::RecoverPlaceReceipt,
            Self::End => Point::RecoverEnd,
        })
    }
}

/// Called before each step; a test fails, interferes or dies there.
pub(crate) type RecoveryHook<'h> = &'h mut dyn FnMut(RecoveryStep) -> io::Result<()>;

/// What a receipt says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecoveryFact {
    pub run: RunId,
    pub publication_id: PublicationId,
    /// Leaf hash of the intent's record in the run's journal.
    pub intent_sha256: Digest,
    pub call_sha256: Digest,
    /// The whole journal file as it was, with a torn tail.
    pub journal_sha256: Digest,
    /// What the operator had seen.
    pub snapshot_sha256: Digest,
    /// Published by the recovery, or found published and acknowledged.
    pub found: PublicationState,
    pub bytes: u64,
    pub sha256: Digest,
    pub device: String,
    pub inode: String,
}

/// The signed receipt of a recovery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Receipt {
    /// When it was signed: RFC 3339, UTC.
    pub time: String,
    #[serde(flatten)]
    pub fact: RecoveryFact,
    /// Below the project's private folder.
    pub file: String,
}

/// Why nothing was recovered.
#[derive(Debug)]
pub enum RecoverError {
    Inspect(InspectError),
    /// Its operator closed the invocation.
    Resolved {
        time: String,
    },
    /// A statement beside the run is not one of its operator.
    Forged {
        file: String,
        forgery: Forgery,
    },
    /// Something is not as it was when the operator looked.
    Changed {
        reviewed: Digest,
        now: Digest,
    },
    NotRecoverable {
        state: PublicationState,
        reasons: Vec<String>,
    },
    /// Somebody else's file came first; it was not touched.
    Taken,
    /// The rename may have happened, or its file is elsewhere by now.
    Unconfirmed {
        step: &'static str,
        source: Option<io::Error>,
    },
    Folder(InvocationError),
    Statement(StatementError),
}

impl fmt::Display for RecoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inspect(error) => error.fmt(f),
            Self::Resolved { time } => write!(
                f,
                "the operator resolved the invocation at {time}: nothing of it is published any \
                 more"
            ),
            Self::Forged { file, forgery } => write!(
                f,
                "`{file}` is no statement of the project's operator: {forgery}"
            ),
            Self::Changed { reviewed, now } => write!(
                f,
                "something has changed since the review: it saw {reviewed}, now it is {now}; \
                 inspect the publication again"
            ),
            Self::NotRecoverable { state, reasons } => {
                write!(f, "the publication is `{}`", state.as_str())?;
                match reasons.is_empty() {
                    true => Ok(()),
                    false => write!(f, ": {}", reasons.join("; ")),
                }
            }
            Self::Taken => f.write_str(
                "something stands at the target by now, and it is never replaced; inspect again",
            ),
            Self::Unconfirmed { step, .. } => write!(
                f,
                "nobody knows whether it is published: cannot {step}; inspect it again"
            ),
            Self::Folder(error) => error.fmt(f),
            Self::Statement(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RecoverError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Inspect(error) => std::error::Error::source(error),
            Self::Folder(error) => std::error::Error::source(error),
            Self::Statement(error) => std::error::Error::source(error),
            Self::Unconfirmed { source, .. } => source
                .as_ref()
                .map(|it| it as &(dyn std::error::Error + 'static)),
            _ => None,
        }
    }
}

/// The receipt of a publication, if its recovery is complete.
///
/// # Errors
/// [`RecoverError::Forged`] where something else has its name.
pub fn receipt(
    run: &DeadRun,
    folder: &InvocationFolder,
    publication: PublicationId,
    trusted: &[PublicKey],
) -> Result<Option<Receipt>, RecoverError> {
    let name = receipt_name(publication);
    let file = format!("invocations/{}/{name}", run.run);
    let bytes = folder
        .read(&name, STATEMENT_BYTES_MAX)
        .map_err(RecoverError::Folder)?;
    let Some(bytes) = bytes else {
        return Ok(None);
    };
    let forged = |forgery| RecoverError::Forged {
        file: file.clone(),
        forgery,
    };
    let stated = statement::read::<RecoveryFact>(&bytes, RECEIPT_KIND, trusted).map_err(forged)?;
    let intent = run.publication(publication).map(|it| it.record);
    let fact = stated.fact;
    if (fact.run, fact.publication_id, Some(fact.intent_sha256)) != (run.run, publication, intent) {
        return Err(forged(Forgery::OtherSubject));
    }
    Ok(Some(Receipt {
        time: stated.time,
        fact,
        file,
    }))
}

fn receipt_name(publication: PublicationId) -> String {
    format!("recovered-{publication}.jsonl")
}

impl FileBroker {
    /// Finishes one publication that an operator inspected and found to be `reviewed`. Repeated,
    /// it returns the receipt of the first time and does nothing.
    ///
    /// # Errors
    /// [`RecoverError`]; all but `Unconfirmed`, and failures to write the receipt, come before
    /// the rename.
    pub fn recover(
        &self,
        run: &DeadRun,
        folder: &InvocationFolder,
        publication: PublicationId,
        reviewed: Digest,
        keys: &OperatorKeys,
    ) -> Result<Receipt, RecoverError> {
        let request = RecoveryRequest {
            run,
            folder,
            publication,
            reviewed,
            keys,
        };
        self.recover_with(&request, &mut RecoveryStep::reach)
    }

    pub(crate) fn recover_with(
        &self,
        request: &RecoveryRequest<'_>,
        hook: RecoveryHook<'_>,
    ) -> Result<Receipt, RecoverError> {
        let _lock = request.folder.lock().map_err(RecoverError::Folder)?;
        request.refuse_resolved()?;
        let earlier = request.receipt()?;
        if let Some(earlier) = earlier.filter(|it| it.fact.snapshot_sha256 == request.reviewed) {
            return Ok(earlier);
        }
        let seen = self
            .inspect(request.run, request.publication)
            .map_err(RecoverError::Inspect)?;
        if seen.snapshot_sha256 != request.reviewed {
            return Err(RecoverError::Changed {
                reviewed: request.reviewed,
                now: seen.snapshot_sha256,
            });
        }
        if let Some(earlier) = request.receipt()? {
            return Ok(earlier);
        }
        match seen.state {
            PublicationState::ReadyToPublish => seen.rename(hook)?,
            PublicationState::Published => {}
            state @ (PublicationState::Missing | PublicationState::Conflict) => {
                return Err(RecoverError::NotRecoverable {
                    state,
                    reasons: seen.reasons,
                });
            }
        }
        seen.confirm(hook)?;
        request.write_receipt(&seen, hook)
    }
}

/// One recovery that is asked for.
pub(crate) struct RecoveryRequest<'a> {
    pub(crate) run: &'a DeadRun,
    pub(crate) folder: &'a InvocationFolder,
    pub(crate) publication: PublicationId,
    pub(crate) reviewed: Digest,
    pub(crate) keys: &'a OperatorKeys,
}

impl RecoveryRequest<'_> {
    fn refuse_resolved(&self) -> Result<(), RecoverError> {
        match resolution::read(self.folder, &self.keys.trusted)? {
            None => Ok(()),
            Some(Resolution { time, .. }) => Err(RecoverError::Resolved { time }),
        }
    }

    fn receipt(&self) -> Result<Option<Receipt>, RecoverError> {
        receipt(self.run, self.folder, self.publication, &self.keys.trusted)
    }

    fn write_receipt(
        &self,
        seen: &Inspection,
        hook: RecoveryHook<'_>,
    ) -> Result<Receipt, RecoverError> {
        let io = |step| move |source| RecoverError::Inspect(InspectError::Io { step, source });
        let intent_sha256 = match self.run.publication(self.publication) {
            Some(recorded) => recorded.record,
            None => {
                return Err(RecoverError::Inspect(InspectError::Unknown {
                    publication: self.publication,
                    known: Vec::new(),
                }));
            }
        };
        let intent = &seen.intent;
        let fact = RecoveryFact {
            run: self.run.run,
            publication_id: self.publication,
            intent_sha256,
            call_sha256: intent.call_sha256,
            journal_sha256: self.run.journal_sha256,
            snapshot_sha256: self.reviewed,
            found: seen.state,
            bytes: intent.bytes,
            sha256: intent.sha256,
            device: intent.candidate.device.clone(),
            inode: intent.candidate.inode.clone(),
        };
        hook(RecoveryStep::WriteReceipt).map_err(io("write the receipt"))?;
        let fact = statement::fact(RECEIPT_KIND, &fact).map_err(RecoverError::Statement)?;
        let bytes =
            statement::sign(fact, self.keys.signer.clone()).map_err(RecoverError::Statement)?;
        let name = receipt_name(self.publication);
        let mut before_name = || hook(RecoveryStep::PlaceReceipt);
        self.folder
            .create_whole_with(&name, &bytes, &mut before_name)
            .map_err(RecoverError::Folder)?;
        hook(RecoveryStep::End).map_err(io("end the recovery"))?;
        // What is on disk counts, not what we meant to write.
        self.receipt()?.ok_or(RecoverError::Unconfirmed {
            step: "find the receipt",
            source: None,
        })
    }
}

impl Inspection {
    /// The rename that the intent allowed.
    fn rename(&self, hook: RecoveryHook<'_>) -> Result<(), RecoverError> {
        let before = |source| {
            RecoverError::Inspect(InspectError::Io {
                step: "rename the candidate",
                source,
            })
        };
        hook(RecoveryStep::Rename).map_err(before)?;
        let (Some(parent), Some(candidates), Some(_)) =
            (&self.place.parent, &self.place.candidates, &self.candidate)
        else {
            return Err(before(io::ErrorKind::NotFound.into()));
        };
        let name = &self.intent.candidate.name;
        match candidates.rename_to(name, parent.as_fd(), &self.intent.target_name) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => Err(RecoverError::Taken),
            Err(errno) if crate::publish::is_doubtful(errno) => Err(RecoverError::Unconfirmed {
                step: "rename the candidate",
                source: Some(errno.into()),
            }),
            Err(errno) => Err(before(errno.into())),
        }
    }

    /// Proves that the intended file stands durably at its target.
    fn confirm(&self, hook: RecoveryHook<'_>) -> Result<(), RecoverError> {
        let doubt = |step| {
            move |source| RecoverError::Unconfirmed {
                step,
                source: Some(source),
            }
        };
        let Some(parent) = &self.place.parent else {
            return Err(doubt("sync the folders")(io::ErrorKind::NotFound.into()));
        };
        hook(RecoveryStep::SyncFolders)
            .and_then(|()| Ok(rustix::fs::fsync(parent)?))
            .and_then(|()| match &self.place.candidates {
                Some(candidates) => Ok(rustix::fs::fsync(candidates)?),
                None => Ok(()),
            })
            .map_err(doubt("sync the folders"))?;
        let exact = hook(RecoveryStep::CompareDestination)
            .and_then(|()| is_exact(parent, &self.intent.target_name, &self.place.expected))
            .map_err(doubt("compare the published file"))?;
        match exact {
            true => Ok(()),
            false => Err(RecoverError::Unconfirmed {
                step: "find the intended file at its target",
                source: None,
            }),
        }
    }
}
