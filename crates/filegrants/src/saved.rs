//! The saved result of an invocation: what a repeated id is answered with, signed.
//!
//! First a statement (its lines are counted, so its end is known), then the text whose hash it
//! has. So a result that somebody edited, or made, is not given out as ours.

use std::fmt;

use journal::{PublicKey, RunSigner};
use model::{Digest, RunId};
use serde::{Deserialize, Serialize};

use crate::invocation::{InvocationError, InvocationFolder};
use crate::statement::{self, Forgery, StatementError};

/// The saved result's name in its invocation's folder.
pub const RESULT_NAME: &str = "result";
const RESULT_KIND: &str = "saved_result";
/// A start, a fact and an end, each with its checkpoint.
const STATEMENT_LINES: usize = 6;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResultFact {
    run: RunId,
    exit_code: u8,
    result_sha256: Digest,
}

/// How an invocation ended, as its caller was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedResult {
    pub exit_code: u8,
    pub text: String,
}

/// Why a result cannot be saved, or what is saved cannot be given out.
#[derive(Debug)]
pub enum SavedResultError {
    Folder(InvocationError),
    Statement(StatementError),
    /// It is not signed by the project, or not what was signed.
    Damaged(Forgery),
}

impl fmt::Display for SavedResultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(error) => error.fmt(f),
            Self::Statement(error) => error.fmt(f),
            Self::Damaged(forgery) => write!(f, "the saved result is damaged: {forgery}"),
        }
    }
}

impl std::error::Error for SavedResultError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Folder(error) => std::error::Error::source(error),
            Self::Statement(error) => std::error::Error::source(error),
            Self::Damaged(_) => None,
        }
    }
}

impl SavedResult {
    /// Saves it, once: an earlier one stays.
    ///
    /// # Errors
    /// [`SavedResultError`].
    pub fn save(
        &self,
        folder: &InvocationFolder,
        signer: RunSigner,
    ) -> Result<(), SavedResultError> {
        let fact = ResultFact {
            run: folder.run(),
            exit_code: self.exit_code,
            result_sha256: Digest::of(self.text.as_bytes()),
        };
        let bytes = statement::fact(RESULT_KIND, &fact)
            .and_then(|fact| statement::sign(fact, signer))
            .map_err(SavedResultError::Statement)?;
        folder
            .create_whole(RESULT_NAME, &[&bytes, self.text.as_bytes()].concat())
            .map_err(SavedResultError::Folder)?;
        Ok(())
    }

    /// The saved result of at most `max` bytes, if there is one.
    ///
    /// # Errors
    /// [`SavedResultError`].
    pub fn read(
        folder: &InvocationFolder,
        max: u64,
        trusted: &[PublicKey],
    ) -> Result<Option<Self>, SavedResultError> {
        let damaged = SavedResultError::Damaged;
        let bytes = folder.read(RESULT_NAME, max);
        let Some(bytes) = bytes.map_err(SavedResultError::Folder)? else {
            return Ok(None);
        };
        let (statement, text) = split(&bytes).ok_or_else(|| damaged(Forgery::Unreadable))?;
        let stated = statement::read::<ResultFact>(statement, RESULT_KIND, trusted);
        let fact = stated.map_err(damaged)?.fact;
        if (fact.run, fact.result_sha256) != (folder.run(), Digest::of(text.as_bytes())) {
            return Err(damaged(Forgery::OtherSubject));
        }
        Ok(Some(Self {
            exit_code: fact.exit_code,
            text: text.to_owned(),
        }))
    }
}

fn split(bytes: &[u8]) -> Option<(&[u8], &str)> {
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let end = ends.map(|(at, _)| at + 1).nth(STATEMENT_LINES - 1)?;
    let (statement, text) = bytes.split_at_checked(end)?;
    Some((statement, std::str::from_utf8(text).ok()?))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, DirBuilder, File};
    use std::os::fd::AsFd;
    use std::os::unix::fs::DirBuilderExt;

    use journal::ProjectKey;

    use super::*;

    #[test]
    fn a_saved_result_is_given_back_and_an_edited_forged_or_foreign_one_is_not() {
        let home = tempfile::tempdir().unwrap();
        let invocations = home.path().join("invocations");
        DirBuilder::new().mode(0o700).create(&invocations).unwrap();
        let held = File::open(&invocations).unwrap();
        let key = ProjectKey::from_seed(&[1; 32]);
        let trusted = [key.public().clone()];
        let (run, other) = (RunId::new(), RunId::new());
        let open = |run| InvocationFolder::open_or_make(held.as_fd(), run).unwrap();
        let read = |run| SavedResult::read(&open(run), 1 << 20, &trusted);
        let saved = SavedResult {
            exit_code: 1,
            text: "{\"status\":\"failed\"}\nand more".to_owned(),
        };
        assert_eq!(read(run).unwrap(), None);
        saved.save(&open(run), key.signer()).unwrap();
        assert_eq!(read(run).unwrap(), Some(saved.clone()));

        let place = |run: RunId| invocations.join(run.to_string()).join(RESULT_NAME);
        let bytes = fs::read(place(run)).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            fs::write(place(run), changed).unwrap();
            assert!(read(run).is_err(), "byte {at}");
        }
        fs::write(place(run), &bytes).unwrap();
        open(other).create_whole(RESULT_NAME, &bytes).unwrap();
        assert!(read(other).is_err());
        fs::remove_file(place(run)).unwrap();
        let forger = ProjectKey::from_seed(&[2; 32]);
        saved.save(&open(run), forger.signer()).unwrap();
        assert!(read(run).is_err());
    }
}
