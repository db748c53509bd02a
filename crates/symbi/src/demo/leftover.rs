//! Temporary folders of demonstrations that were killed: the next one removes them.

use std::fs::{DirEntry, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

/// What the folders' names begin with.
pub(crate) const PREFIX: &str = "symbi-demo-";
/// The file in each that its owner keeps locked.
const MARK: &str = "in-use";
const PRIVATE_FOLDER: u32 = 0o040_700;

/// Marks a new folder as in use while the file is open.
pub(crate) fn mark(folder: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(folder.join(MARK))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    // A sweep may have locked it first, and removed the folder.
    if file.metadata()?.nlink() == 0 {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(file)
}

/// Removes what is ours, private, and in use by nobody. What cannot be removed stays.
pub(crate) fn sweep(parent: &Path) {
    let entries = std::fs::read_dir(parent).into_iter().flatten();
    for entry in entries.flatten() {
        if let Some(_held) = abandoned(&entry) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// The lock of a marked folder whose owner is gone.
fn abandoned(entry: &DirEntry) -> Option<File> {
    let name = entry.file_name();
    let found = entry.metadata().ok()?;
    let is_ours = name.to_str()?.starts_with(PREFIX)
        && found.uid() == rustix::process::geteuid().as_raw()
        && found.mode() == PRIVATE_FOLDER;
    if !is_ours {
        return None;
    }
    let mark = File::open(entry.path().join(MARK)).ok()?;
    flock(&mark, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(mark)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn folder(parent: &Path, name: &str, mode: u32) -> std::path::PathBuf {
        let path = parent.join(name);
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn only_a_marked_private_folder_without_a_living_owner_goes() {
        let parent = tempfile::tempdir().unwrap();
        let made = |name, mode| folder(parent.path(), name, mode);
        let dead = made("symbi-demo-dead", 0o700);
        let alive = made("symbi-demo-alive", 0o700);
        let open = made("symbi-demo-open", 0o755);
        let other = made("other", 0o700);
        let unmarked = made("symbi-demo-unmarked", 0o700);
        for path in [&dead, &open, &other] {
            drop(mark(path).unwrap());
        }
        let _held = mark(&alive).unwrap();
        std::os::unix::fs::symlink(&other, parent.path().join("symbi-demo-link")).unwrap();
        sweep(parent.path());
        assert!(!dead.exists());
        for path in [alive, open, other, unmarked] {
            assert!(path.exists(), "{path:?}");
        }
    }
}
