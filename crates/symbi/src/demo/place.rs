//! Where the demonstration happens: a private temporary folder, and the project in it or in a
//! folder that the user keeps.

use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use model::{Redacted, Untrusted};
use project::UserDirs;

use crate::demo::leftover;
use crate::exit::{Exit, Failure};

/// Bytes of a random text that is hidden or used as a name.
const RANDOM_BYTES: usize = 16;

/// Everything on disk. The temporary folder goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    temporary: PathBuf,
    /// Held as long as the folder is in use.
    _mark: File,
    pub(crate) project: PathBuf,
    pub(crate) kept: bool,
    /// Where symbi keeps its state: the user's own only for a project that is kept.
    pub(crate) dirs: UserDirs,
}

impl Place {
    /// Makes the folders. `keep` is absent or empty.
    pub(crate) fn make(keep: Option<&Path>) -> Result<Self, Failure> {
        let storage = |path: &Path, error: io::Error| {
            let shown = Untrusted::new(path.to_string_lossy()).escaped();
            Failure::new(Exit::Storage, format!("cannot make `{shown}`: {error}"))
        };
        let user_state = keep
            .map(|_| crate::dirs::user_dirs().map(|dirs| dirs.state))
            .transpose()?;
        if let Some(dir) = keep {
            check_empty(dir)?;
        }
        leftover::sweep(&std::env::temp_dir());
        let temporary = std::env::temp_dir().join(format!("{}{}", leftover::PREFIX, random()?));
        let temporary =
            std::path::absolute(&temporary).map_err(|error| storage(&temporary, error))?;
        make_private(&temporary).map_err(|error| storage(&temporary, error))?;
        let mark = leftover::mark(&temporary).map_err(|error| storage(&temporary, error))?;
        let place = Self {
            project: keep.map_or_else(|| temporary.join("project"), Path::to_owned),
            kept: keep.is_some(),
            dirs: UserDirs {
                config: temporary.join("config"),
                state: user_state.unwrap_or_else(|| temporary.join("state")),
                runtime: temporary.join("run"),
            },
            temporary,
            _mark: mark,
        };
        for dir in [&place.project, &place.dirs.config] {
            make_private(dir).map_err(|error| storage(dir, error))?;
        }
        Ok(place)
    }

    /// A file beside the project, which the agent must not see.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.temporary.join(name)
    }

    /// Removes the temporary folder, and says so where it could not.
    pub(crate) fn remove(self) -> Result<(), Failure> {
        let removed = std::fs::remove_dir_all(&self.temporary);
        removed.map_err(|error| {
            let path = self.temporary.display();
            Failure::new(Exit::Storage, format!("cannot remove `{path}`: {error}"))
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.temporary);
    }
}

/// Makes a folder that only its owner can use; one that is there stays as it is.
fn make_private(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(path)
}

fn check_empty(dir: &Path) -> Result<(), Failure> {
    let shown = Untrusted::new(dir.to_string_lossy()).escaped();
    let refuse = |what: String| {
        Err(Failure::new(Exit::Usage, format!("`{shown}` {what}"))
            .help("name a folder that is absent or empty: --keep DIR"))
    };
    match std::fs::read_dir(dir) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => refuse("is not empty, and nothing in it is overwritten".to_owned()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => refuse(format!("cannot hold the project: {error}")),
    }
}

/// A random text in hex.
pub(crate) fn random() -> Result<String, Failure> {
    let mut bytes = [0_u8; RANDOM_BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::new(Exit::Storage, format!("no random numbers: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A random text that must stay where it is put: whoever finds it elsewhere has found a leak.
pub(crate) fn canary(name: &str) -> Result<Redacted<String>, Failure> {
    Ok(Redacted::new(format!("canary-{name}-{}", random()?)))
}
