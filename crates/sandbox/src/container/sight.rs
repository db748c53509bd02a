//! Whether the engine sees this machine's files: where a worker is shown one, the engine must find
//! that one. Its path on the host has a random name that was made for this worker, so that another
//! machine, or another mount namespace, has no such file.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;

use crate::engine::{MountRequest, PathStat};

/// A file that the engine has to find in the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Witness {
    place: String,
    bytes: u64,
    mode: u32,
}

impl Witness {
    /// The first regular file that is bound.
    pub(super) fn among(binds: &[MountRequest]) -> io::Result<Option<Self>> {
        for bound in binds {
            let found = fs::symlink_metadata(&bound.source)?;
            if found.is_file() {
                return Ok(Some(Self {
                    place: bound.target.clone(),
                    bytes: found.len(),
                    mode: found.permissions().mode() & 0o777,
                }));
            }
        }
        Ok(None)
    }

    /// Its path in the container.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// How what the engine found there differs, if it does.
    pub(super) fn difference(&self, found: Option<&PathStat>) -> Option<String> {
        let Self { place, bytes, mode } = self;
        let found = match found {
            Some(found) if (found.size, found.mode) == (*bytes, *mode) => return None,
            Some(PathStat { size, mode }) => format!("one of {size} bytes with mode {mode:o}"),
            None => "nothing".to_owned(),
        };
        Some(format!(
            "at `{place}` it finds {found} instead of a file of {bytes} bytes with mode {mode:o}"
        ))
    }
}

/// What an operator is told of an engine that finds other files, with what it found.
pub(super) fn elsewhere(found: &str) -> String {
    format!(
        "the container engine does not see this machine's files: {found}; it must run on this \
         machine, in the same mount namespace"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::request::bind;

    #[test]
    fn the_engine_has_to_find_the_first_file_itself_and_no_folder_in_its_place() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
        fs::create_dir(path("folder")).unwrap();
        fs::write(path("file"), "1,2").unwrap();
        fs::set_permissions(path("file"), fs::Permissions::from_mode(0o444)).unwrap();
        let folder = bind(&path("folder"), "/workspace/out", false);
        let file = bind(&path("file"), "/workspace/a", true);
        assert_eq!(Witness::among(std::slice::from_ref(&folder)).unwrap(), None);
        let witness = Witness::among(&[folder, file]).unwrap().unwrap();
        assert_eq!(witness.place(), "/workspace/a");
        let (size, mode) = (3, 0o444);
        assert_eq!(witness.difference(Some(&PathStat { size, mode })), None);
        for (size, mode) in [(4, 0o444), (3, 0o644), (3, 0o444 | 1 << 31)] {
            let said = witness.difference(Some(&PathStat { size, mode })).unwrap();
            assert!(said.contains("instead of a file of 3 bytes"), "{said}");
        }
        let said = witness.difference(None).unwrap();
        assert!(
            said.contains("at `/workspace/a` it finds nothing"),
            "{said}"
        );
        assert!(Witness::among(&[bind(&path("none"), "/x", true)]).is_err());
    }
}
