//! The user's own folders. Their places come from the command line's reading of the
//! environment; this crate reads none.

use std::fmt;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use uuid::{Builder, Uuid};

use crate::folder::{Folder, FolderError};
use crate::place::Demand;

/// Where the user's configuration, state and sockets are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserDirs {
    /// `$XDG_CONFIG_HOME/symbi`
    pub config: PathBuf,
    /// `$XDG_STATE_HOME/symbi`
    pub state: PathBuf,
    /// `$XDG_RUNTIME_DIR/symbi`, or a private folder instead of it
    pub runtime: PathBuf,
}

impl UserDirs {
    /// The private signing key of a project, never in its work tree.
    #[must_use]
    pub fn key_path(&self, project: &ProjectId) -> PathBuf {
        self.state.join("keys").join(format!("{project}.ed25519"))
    }

    /// The folder of the signing keys, made private where it is missing.
    ///
    /// # Errors
    /// [`FolderError`] where it cannot be made, or is not the caller's own and private.
    pub fn keys(&self) -> Result<Folder, FolderError> {
        make_own(&self.state, Demand::Own)?.make_private("keys")
    }

    /// The private folder of the supervisor.
    #[must_use]
    pub fn supervisor(&self) -> PathBuf {
        self.state.join("supervisor")
    }

    /// The folder of sockets, made private where it is missing.
    ///
    /// # Errors
    /// [`FolderError`] where it cannot be made, or is not the caller's own and private.
    pub fn sockets(&self) -> Result<Folder, FolderError> {
        make_own(&self.runtime, Demand::Private)
    }

    /// The folder of input snapshots, made private where it is missing.
    ///
    /// # Errors
    /// [`FolderError`] where it cannot be made, or is not the caller's own and private.
    pub fn staging(&self) -> Result<Folder, FolderError> {
        make_own(&self.state, Demand::Own)?.make_private("staging")
    }

    /// The folder of what container workers are shown, made private where it is missing.
    ///
    /// # Errors
    /// [`FolderError`] where it cannot be made, or is not the caller's own and private.
    pub fn workers(&self) -> Result<Folder, FolderError> {
        make_own(&self.state, Demand::Own)?.make_private("workers")
    }

    /// The folder of the trust records, made private where it is missing.
    pub(crate) fn make_trust(&self) -> Result<Folder, FolderError> {
        make_own(&self.state, Demand::Own)?.make_private("trust")
    }

    /// The folder of the trust records, if there is one.
    pub(crate) fn trust(&self) -> Result<Option<Folder>, FolderError> {
        match Folder::open_ambient(&self.state, Demand::Own) {
            Ok(state) => state.folder("trust", Demand::Private),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Makes a folder of the user's with its parents, all private where they are new.
fn make_own(path: &Path, demand: Demand) -> Result<Folder, FolderError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| FolderError::Io {
            action: "make the folder",
            path: path.to_owned(),
            source,
        })?;
    Folder::open_ambient(path, demand)
}

/// A project's random identity (UUID version 4), in `.symbiont/id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProjectId(Uuid);

/// Text that is no project id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectIdError;

impl fmt::Display for ProjectIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a project id is a UUID in lower case with hyphens")
    }
}

impl std::error::Error for ProjectIdError {}

impl ProjectId {
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(Builder::from_random_bytes(bytes).into_uuid()))
    }
}

impl fmt::Display for ProjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl FromStr for ProjectId {
    type Err = ProjectIdError;

    /// Accepts only what `Display` prints.
    fn from_str(text: &str) -> Result<Self, ProjectIdError> {
        match Uuid::parse_str(text) {
            Ok(uuid) if uuid.hyphenated().to_string() == text => Ok(Self(uuid)),
            _ => Err(ProjectIdError),
        }
    }
}
