//! Host ids of root's workers: two for each, never shared by two that live.
//!
//! A slot is a lock file. The kernel frees the lock with its owner, so a crash leaves nothing to
//! clean; the empty files stay and are used again.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::limits::{ID_SLOTS_MAX, IDS_PER_SLOT};

/// Two host ids, ours while this lives.
#[derive(Debug)]
pub(crate) struct IdSlot {
    first: u32,
    _lock: File,
}

impl IdSlot {
    /// Takes the first free pair of the range that begins at `range`.
    pub(crate) fn take(folder: &Path, range: u32) -> io::Result<Self> {
        for slot in 0..ID_SLOTS_MAX {
            if let Some(lock) = lock_file(&folder.join(format!("ids-{slot}.lock")))? {
                let first = range.saturating_add(slot * IDS_PER_SLOT);
                return Ok(Self { first, _lock: lock });
            }
        }
        Err(io::Error::other("every pair of worker ids is in use"))
    }

    pub(crate) const fn first(&self) -> u32 {
        self.first
    }
}

/// The file's lock, or `None` where another process has it.
pub(crate) fn lock_file(path: &Path) -> io::Result<Option<File>> {
    let mut options = File::options();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    let file = options.custom_flags(libc::O_NOFOLLOW).open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Makes the private folder of the locks, or checks that it is ours alone.
pub(crate) fn private_folder(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let found = fs::symlink_metadata(path)?;
    let ours = found.uid() == rustix::process::geteuid().as_raw();
    if found.is_dir() && ours && found.mode() & 0o022 == 0 {
        Ok(())
    } else {
        Err(io::Error::other(
            "it is not a folder of this user that nobody else can write",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn two_live_slots_share_no_id_and_a_freed_one_is_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let first = IdSlot::take(folder.path(), 1000).unwrap();
        let second = IdSlot::take(folder.path(), 1000).unwrap();
        assert_eq!(first.first(), 1000);
        assert_eq!(second.first(), 1000 + IDS_PER_SLOT);
        drop(first);
        assert_eq!(IdSlot::take(folder.path(), 1000).unwrap().first(), 1000);
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slots");
        private_folder(&path).unwrap();
        private_folder(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(private_folder(&path).is_err());
        std::os::unix::fs::symlink("/tmp", folder.path().join("link")).unwrap();
        assert!(private_folder(&folder.path().join("link")).is_err());
    }
}
