//! No tool writes what decides over tools: a writable ceiling never reaches a control file. And no
//! ceiling at all reaches the system's own views, a container engine's socket, or the user's
//! private folders.

use std::fmt;
use std::path::{Path, PathBuf};

use model::SourceError;

use crate::config::{SandboxSettings, Volume, VolumeAccess};
use crate::dirs::UserDirs;
use crate::place::shown;
use crate::project::{CONFIG_FILE, CONTROL_NAMES, Project};

/// Places of the host from which no file is ever granted, nor from a folder above them.
const PROTECTED: [&str; 6] = [
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/var/lib/docker",
    "/var/lib/containerd",
];

/// A ceiling over, or inside, a place that it must not reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CeilingError {
    /// The ceiling's folder on the host.
    pub ceiling: PathBuf,
    /// What it would show or make writable.
    pub place: PathBuf,
    /// Whether reading there is refused too.
    pub is_private: bool,
    /// The volume in the configuration, and what to do.
    pub fault: Box<SourceError>,
}

impl fmt::Display for CeilingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fault.fmt(f)
    }
}

fn fault(
    config: &str,
    volume: &Volume,
    ceiling: &Path,
    place: &Path,
    private: bool,
) -> SourceError {
    let (ceiling, place) = (shown(ceiling), shown(place));
    let (message, help) = match private {
        true => (
            format!("the volume `{ceiling}` would let tools reach `{place}`, which no tool may"),
            "name a folder of data, like \"./data:/workspace/data:ro\"",
        ),
        false => (
            format!("the writable volume `{ceiling}` would let tools write in `{place}`"),
            "name a folder without control files, like \"./out:/workspace/out:rw\"",
        ),
    };
    SourceError::at(CONFIG_FILE, config, volume.span.clone(), message).help(help)
}

impl std::error::Error for CeilingError {}

impl Project {
    /// Compares the ceilings of the chosen tier, links resolved, with the project's control files,
    /// the user's folders and the host's own. A missing folder is compared by its name.
    ///
    /// # Errors
    /// [`CeilingError`] for the first that reaches one of them.
    pub fn check_ceilings(
        &self,
        sandbox: &SandboxSettings,
        dirs: &UserDirs,
    ) -> Result<(), CeilingError> {
        let control = CONTROL_NAMES.map(|name| self.path().join(name)).to_vec();
        let own = [&dirs.config, &dirs.state, &dirs.runtime].map(|folder| real(folder));
        let mut private: Vec<PathBuf> = PROTECTED.map(|path| real(Path::new(path))).into();
        private.extend(own);
        private.extend(sandbox.sockets().map(|it| real(&it.resolve(self.path()))));
        for volume in sandbox.volumes() {
            let ceiling = real(&volume.host.resolve(self.path()));
            let writable: &[PathBuf] = match volume.access {
                VolumeAccess::ReadWrite => &control,
                VolumeAccess::ReadOnly => &[],
            };
            for (places, is_private) in [(private.as_slice(), true), (writable, false)] {
                let reached =
                    |place: &&PathBuf| place.starts_with(&ceiling) || ceiling.starts_with(place);
                if let Some(place) = places.iter().find(reached) {
                    let text = self.config_text();
                    return Err(CeilingError {
                        fault: Box::new(fault(text, volume, &ceiling, place, is_private)),
                        place: place.clone(),
                        ceiling,
                        is_private,
                    });
                }
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
