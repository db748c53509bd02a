//! No tool writes what decides over tools: a writable ceiling never reaches a control file, nor
//! the user's own folders.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::config::{SandboxSettings, Volume, VolumeAccess};
use crate::dirs::UserDirs;
use crate::place::shown;
use crate::project::{CONTROL_NAMES, Project};

/// A writable ceiling over, or inside, a place that decides what tools may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CeilingError {
    /// The ceiling's folder on the host.
    pub ceiling: PathBuf,
    /// What it would make writable.
    pub place: PathBuf,
}

impl fmt::Display for CeilingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the writable volume `{}` would let tools write in `{}`\n  \
             help: name a folder without control files, like \"./out:/workspace/out:rw\"",
            shown(&self.ceiling),
            shown(&self.place)
        )
    }
}

impl std::error::Error for CeilingError {}

impl Project {
    /// Compares the writable ceilings of the chosen tier, links resolved, with the project's
    /// control files and the user's folders. A missing folder is compared by its name.
    ///
    /// # Errors
    /// [`CeilingError`] for the first that reaches one of them.
    pub fn check_ceilings(
        &self,
        sandbox: &SandboxSettings,
        dirs: &UserDirs,
    ) -> Result<(), CeilingError> {
        let control = CONTROL_NAMES.map(|name| self.path().join(name));
        let own = [&dirs.config, &dirs.state, &dirs.runtime].map(|folder| real(folder));
        let places: Vec<PathBuf> = control.into_iter().chain(own).collect();
        let writable = |volume: &&Volume| volume.access == VolumeAccess::ReadWrite;
        for volume in sandbox.volumes().iter().filter(writable) {
            let ceiling = real(&volume.host.resolve(self.path()));
            let reached =
                |place: &&PathBuf| place.starts_with(&ceiling) || ceiling.starts_with(place);
            if let Some(place) = places.iter().find(reached) {
                return Err(CeilingError {
                    place: place.clone(),
                    ceiling,
                });
            }
        }
        Ok(())
    }
}

/// The path without links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    let resolved = path.ancestors().find_map(|known| {
        let real = std::fs::canonicalize(known).ok()?;
        let rest = path.strip_prefix(known).ok()?;
        Some(if rest.as_os_str().is_empty() {
            real
        } else {
            real.join(rest)
        })
    });
    resolved.unwrap_or_else(|| path.to_owned())
}
