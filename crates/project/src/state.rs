//! `.symbiont/`: a project's own records, private to its operator.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use crate::dirs::ProjectId;
use crate::folder::{Folder, FolderError};
use crate::limits::ID_FILE_BYTES_MAX;
use crate::place::{Demand, shell_word, shown};
use crate::project::Project;

/// The folder of a project's records.
pub const STATE_FOLDER: &str = ".symbiont";
const ID_FILE: &str = "id";
const IGNORE_FILE: &str = ".gitignore";

/// The project's open private folders.
#[derive(Debug)]
pub struct ProjectState {
    folder: Folder,
    id: ProjectId,
    governed: Folder,
    evidence: Folder,
    invocations: Folder,
}

/// Why a project's own records cannot be used.
#[derive(Debug)]
pub enum StateError {
    Folder(FolderError),
    /// `.symbiont/id` holds no id.
    Id {
        path: PathBuf,
    },
    Random(getrandom::Error),
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(error) => error.fmt(f),
            Self::Id { path } => write!(
                f,
                "`{}` does not hold a project id (a UUID in lower case), and the ledger beside it is \
                 signed with that id's key\n  \
                 help: put the file back from a backup; or, to start a new history with a new \
                 key, move all the records away and trust the project again: {}",
                shown(path),
                fresh_start(path)
            ),
            Self::Random(_) => f.write_str("the system gives no random numbers"),
        }
    }
}

/// The commands that move the folder of the damaged id as a whole out of the project.
fn fresh_start(id: &Path) -> String {
    let folder = id.parent().unwrap_or(id);
    let project = folder.parent().unwrap_or(folder);
    let mut aside = project.as_os_str().to_owned();
    aside.push(".symbiont-damaged");
    format!(
        "mv -nT {} {} && symbi --project {} trust",
        shell_word(folder.as_os_str()),
        shell_word(&aside),
        shell_word(project.as_os_str())
    )
}

impl std::error::Error for StateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Folder(error) => std::error::Error::source(error),
            Self::Random(error) => Some(error),
            Self::Id { .. } => None,
        }
    }
}

impl From<FolderError> for StateError {
    fn from(error: FolderError) -> Self {
        Self::Folder(error)
    }
}

impl Project {
    /// Opens `.symbiont/`, and makes what is missing of it. Processes may race.
    ///
    /// # Errors
    /// [`StateError`] where it cannot be made, or is not the caller's own and private.
    pub fn state(&self) -> Result<ProjectState, StateError> {
        let folder = self.folder().make_private(STATE_FOLDER)?;
        if !folder.holds(IGNORE_FILE)? {
            folder.put_private(IGNORE_FILE, b"*\n", false)?;
        }
        let id = match read_id(&folder)? {
            Some(id) => id,
            None => make_id(&folder)?,
        };
        Ok(ProjectState {
            id,
            governed: folder.make_private("governed")?,
            evidence: folder.make_private("evidence")?,
            invocations: folder.make_private("invocations")?,
            folder,
        })
    }

    /// The id that the project has already; nothing is made.
    ///
    /// # Errors
    /// [`StateError`] where `.symbiont/` is not the caller's own and private.
    pub fn existing_id(&self) -> Result<Option<ProjectId>, StateError> {
        match self.folder().folder(STATE_FOLDER, Demand::Private)? {
            Some(folder) => read_id(&folder),
            None => Ok(None),
        }
    }
}

fn read_id(folder: &Folder) -> Result<Option<ProjectId>, StateError> {
    let Some(bytes) = folder.read(ID_FILE, ID_FILE_BYTES_MAX, Demand::Private)? else {
        return Ok(None);
    };
    let fault = || StateError::Id {
        path: folder.path().join(ID_FILE),
    };
    let text = std::str::from_utf8(&bytes).map_err(|_| fault())?;
    let id = text.strip_suffix('\n').unwrap_or(text);
    id.parse().map(Some).map_err(|_| fault())
}

/// Of several processes one wins; all read the winner's id.
fn make_id(folder: &Folder) -> Result<ProjectId, StateError> {
    let id = ProjectId::random().map_err(StateError::Random)?;
    folder.put_private(ID_FILE, format!("{id}\n").as_bytes(), false)?;
    read_id(folder)?.ok_or_else(|| StateError::Id {
        path: folder.path().join(ID_FILE),
    })
}

impl ProjectState {
    #[must_use]
    pub const fn project_id(&self) -> ProjectId {
        self.id
    }

    /// `.symbiont/` itself.
    #[must_use]
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.folder.fd()
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// `governed/`: the journals.
    #[must_use]
    pub const fn governed(&self) -> &Folder {
        &self.governed
    }

    /// `evidence/`: values too large for a record, by their digest.
    #[must_use]
    pub const fn evidence(&self) -> &Folder {
        &self.evidence
    }

    /// `invocations/`: a folder for each run.
    #[must_use]
    pub const fn invocations(&self) -> &Folder {
        &self.invocations
    }
}
