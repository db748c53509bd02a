//! How a publication ends without a confirmed file.

use std::fmt;
use std::io;

use journal::JournalError;
use model::{PublicationId, RelativePath};

use crate::output::NameChange;

/// Three ends that must not be confused: certainly nothing, nobody knows, and no record.
#[derive(Debug)]
pub enum PublishFailure {
    /// Nothing was published and nothing stays open: no candidate is left, and an intent, if one
    /// was recorded, is closed by `FilePublicationFinished { confirmed: false }`.
    NotPublished {
        path: RelativePath,
        reason: PublicationRefusal,
    },
    /// The intent stays open; what is kept waits for the operator's recovery.
    Unconfirmed {
        path: RelativePath,
        publication_id: PublicationId,
        kept: Kept,
        doubt: Doubt,
    },
    /// A record could not be written, so the intent may or may not be on disk.
    Journal {
        path: RelativePath,
        publication_id: PublicationId,
        kept: Kept,
        source: JournalError,
    },
}

/// What is on disk after a publication that is not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// The candidate; the target is not ours.
    Candidate,
    /// The file at its target.
    Published,
    /// One of the two.
    Unknown,
}

/// Why nothing was published.
#[derive(Debug)]
pub enum PublicationRefusal {
    /// No signed and durable journal.
    NoLiveAudit,
    /// The journal refused the intent and wrote nothing.
    NotRecorded(JournalError),
    OutputKind {
        kind: &'static str,
    },
    OutputLinks {
        links: u64,
    },
    OutputTooLarge {
        bytes: u64,
        max: u64,
    },
    OutputSize {
        reported: u64,
        found: u64,
    },
    OutputChanged,
    NameChanged {
        what: NameChange,
    },
    /// Somebody else's file, link or folder stands at the target; it was not touched.
    Exists,
    Rename(io::Error),
    Io {
        step: &'static str,
        source: io::Error,
    },
}

/// Why nobody knows.
#[derive(Debug)]
pub enum Doubt {
    CandidateGone,
    /// What stands at the target is not the candidate with its bytes, or is elsewhere by now.
    OtherFile,
    Io(io::Error),
}

impl fmt::Display for PublishFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPublished { path, reason } => {
                write!(f, "`{path}` was not published: {reason}")
            }
            Self::Unconfirmed {
                path,
                publication_id,
                kept,
                doubt,
            } => write!(
                f,
                "the publication of `{path}` is not confirmed: {doubt}; {kept}; \
                 inspect publication {publication_id} before anything else is done with it"
            ),
            Self::Journal {
                path,
                publication_id,
                kept,
                ..
            } => write!(
                f,
                "the publication of `{path}` could not be recorded; {kept}; \
                 inspect publication {publication_id} before anything else is done with it"
            ),
        }
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Candidate => "its candidate is kept",
            Self::Published => "the file stands at its path",
            Self::Unknown => "the candidate or the file is kept",
        })
    }
}

impl fmt::Display for PublicationRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLiveAudit => f.write_str(
                "it needs live audit authority, a signed and durable journal, and there is none",
            ),
            Self::NotRecorded(error) => write!(f, "the journal refused its intent: {error}"),
            Self::OutputKind { kind } => {
                write!(
                    f,
                    "the worker left {kind}; only a regular file is published"
                )
            }
            Self::OutputLinks { links } => write!(
                f,
                "the worker's file has {links} hard links; only a file with one is published"
            ),
            Self::OutputTooLarge { bytes, max } => write!(
                f,
                "the worker's file has {bytes} bytes, more than the {max} of `max_file_bytes`"
            ),
            Self::OutputSize { reported, found } => {
                write!(
                    f,
                    "the worker's file has {found} bytes, but its end reported {reported}"
                )
            }
            Self::OutputChanged => f.write_str("the worker's file changed after its end"),
            Self::NameChanged { what } => write!(
                f,
                "{} is not the one that the call was prepared with; prepare the call again",
                what.as_str()
            ),
            Self::Exists => f.write_str(
                "something stands at that name by now, and it is never replaced; use a new name",
            ),
            Self::Rename(error) => write!(f, "the kernel refused the rename: {error}"),
            Self::Io { step, source } => write!(f, "cannot {step}: {source}"),
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CandidateGone => {
                f.write_str("the candidate was changed or taken away after its intent")
            }
            Self::OtherFile => f.write_str("its path does not lead to the file with its bytes"),
            Self::Io(error) => write!(f, "the operating system failed: {error}"),
        }
    }
}

impl std::error::Error for PublicationRefusal {}

impl std::error::Error for PublishFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Journal { source, .. } => Some(source),
            Self::NotPublished { .. } | Self::Unconfirmed { .. } => None,
        }
    }
}
