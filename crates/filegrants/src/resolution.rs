//! Resolution: an operator closes an invocation whose end nobody recorded, and says why.
//!
//! It changes no file of anybody. After it nothing of the invocation is published or run.

use std::fmt;

use journal::PublicKey;
use model::{Digest, RunId};
use serde::{Deserialize, Serialize};

use crate::invocation::{InvocationError, InvocationFolder};
use crate::limits::{RATIONALE_BYTES_MAX, STATEMENT_BYTES_MAX};
use crate::recovery::{OperatorKeys, RecoverError};
use crate::statement::{self, StatementError};

const RESOLUTION_KIND: &str = "invocation_resolved";
const RESOLUTION_NAME: &str = "resolved.jsonl";

/// A file that speaks for the decision, by its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvidenceFact {
    pub bytes: u64,
    pub sha256: Digest,
}

/// What a resolution says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResolutionFact {
    pub run: RunId,
    /// The whole journal file as it was; `None` where there is none.
    pub journal_sha256: Option<Digest>,
    pub rationale: String,
    pub evidence: Option<EvidenceFact>,
}

/// The signed decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Resolution {
    /// When it was signed: RFC 3339, UTC.
    pub time: String,
    #[serde(flatten)]
    pub fact: ResolutionFact,
}

/// Why an invocation was not resolved.
#[derive(Debug)]
pub enum ResolveError {
    /// The rationale says nothing, or too much, or has characters that are not text.
    Rationale {
        bytes: usize,
        max: usize,
    },
    /// It is resolved already.
    Resolved {
        time: String,
    },
    /// What stands beside the run cannot be used.
    Beside(RecoverError),
    Folder(InvocationError),
    Statement(StatementError),
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rationale { bytes, max } => write!(
                f,
                "the rationale has {bytes} bytes; it needs 1 to {max}, all of them of plain text"
            ),
            Self::Resolved { time } => {
                write!(f, "the operator resolved the invocation at {time} already")
            }
            Self::Beside(error) => error.fmt(f),
            Self::Folder(error) => error.fmt(f),
            Self::Statement(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ResolveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Beside(error) => std::error::Error::source(error),
            Self::Folder(error) => std::error::Error::source(error),
            Self::Statement(error) => std::error::Error::source(error),
            Self::Rationale { .. } | Self::Resolved { .. } => None,
        }
    }
}

/// The resolution beside a run, if there is one.
///
/// # Errors
/// [`RecoverError::Forged`] where something else has its name.
pub fn read(
    folder: &InvocationFolder,
    trusted: &[PublicKey],
) -> Result<Option<Resolution>, RecoverError> {
    let bytes = folder
        .read(RESOLUTION_NAME, STATEMENT_BYTES_MAX)
        .map_err(RecoverError::Folder)?;
    let Some(bytes) = bytes else {
        return Ok(None);
    };
    let forged = |forgery| RecoverError::Forged {
        file: format!("invocations/{}/{RESOLUTION_NAME}", folder.run()),
        forgery,
    };
    let stated =
        statement::read::<ResolutionFact>(&bytes, RESOLUTION_KIND, trusted).map_err(forged)?;
    if stated.fact.run != folder.run() {
        return Err(forged(statement::Forgery::OtherSubject));
    }
    Ok(Some(Resolution {
        time: stated.time,
        fact: stated.fact,
    }))
}

/// Closes the invocation for good. Its owner must be gone: the caller has read its dead run, or
/// found that it has no journal.
///
/// # Errors
/// [`ResolveError`].
pub fn resolve(
    folder: &InvocationFolder,
    fact: ResolutionFact,
    keys: &OperatorKeys,
) -> Result<Resolution, ResolveError> {
    let bytes = fact.rationale.len();
    let is_text = !fact.rationale.trim().is_empty() && !fact.rationale.contains(char::is_control);
    if !is_text || bytes > RATIONALE_BYTES_MAX {
        return Err(ResolveError::Rationale {
            bytes,
            max: RATIONALE_BYTES_MAX,
        });
    }
    let _lock = folder.lock().map_err(ResolveError::Folder)?;
    let found = || read(folder, &keys.trusted).map_err(ResolveError::Beside);
    if let Some(Resolution { time, .. }) = found()? {
        return Err(ResolveError::Resolved { time });
    }
    let fact = statement::fact(RESOLUTION_KIND, &fact).map_err(ResolveError::Statement)?;
    let bytes = statement::sign(fact, keys.signer.clone()).map_err(ResolveError::Statement)?;
    folder
        .create_whole(RESOLUTION_NAME, &bytes)
        .map_err(ResolveError::Folder)?;
    found()?.ok_or(ResolveError::Folder(InvocationError::Io {
        step: "find",
        name: RESOLUTION_NAME.to_owned(),
        source: std::io::ErrorKind::NotFound.into(),
    }))
}
