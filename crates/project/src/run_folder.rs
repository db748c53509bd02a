//! A run's private folder of sockets, and the sweep of those whose run was killed.
//!
//! Who runs holds a lock on the folder: the kernel lets go of it however the run ends. Only a
//! folder whose lock can be taken is removed, by held handles, and no link is followed.

use std::path::Path;
use std::time::Duration;

use model::RunId;
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation};
use rustix::io::Errno;

use crate::dirs::UserDirs;
use crate::folder::{Folder, FolderError};
use crate::limits::{FOLDER_ENTRIES_MAX, RUN_FOLDER_DEPTH_MAX, RUN_FOLDER_LOCK_ATTEMPTS_MAX};
use crate::place::Demand;

/// Pause while a sweep holds a folder that it is about to remove.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// One run's folder, locked. Removed when dropped.
#[derive(Debug)]
pub struct RunFolder {
    sockets: Folder,
    folder: Folder,
    name: String,
}

impl UserDirs {
    /// A new private folder for one run's sockets, which no sweep removes while it is held.
    ///
    /// # Errors
    /// [`FolderError`] where it cannot be made, is not the caller's own and private, or belongs
    /// to a process that lives.
    pub fn run_sockets(&self, run: RunId) -> Result<RunFolder, FolderError> {
        let (sockets, name) = (self.sockets()?, run.to_string());
        for _ in 0..RUN_FOLDER_LOCK_ATTEMPTS_MAX {
            let folder = match sockets.make_private(&name) {
                Ok(folder) => folder,
                // A sweep took it between its making and its opening.
                Err(error) if error.is_missing() => continue,
                Err(error) => return Err(error),
            };
            if is_locked_by_us(&sockets, &name, &folder)? {
                return Ok(RunFolder {
                    sockets,
                    folder,
                    name,
                });
            }
            std::thread::sleep(LOCK_PAUSE);
        }
        let path = sockets.path().join(&name);
        Err(FolderError::io("lock", &path, Errno::WOULDBLOCK))
    }

    /// Removes the folders of runs that were killed, and says how many. Makes nothing.
    ///
    /// # Errors
    /// The first [`FolderError`]; every folder is tried.
    pub fn sweep_run_sockets(&self) -> Result<usize, FolderError> {
        let Some(sockets) = self.sockets_that_are_there()? else {
            return Ok(0);
        };
        let (mut removed, mut fault) = (0, None);
        for (name, _) in list(&sockets)? {
            let is_run = name.parse::<RunId>().is_ok_and(|it| it.to_string() == name);
            if !is_run {
                continue;
            }
            match sweep_one(&sockets, &name) {
                Ok(swept) => removed += usize::from(swept),
                Err(error) => fault = fault.or(Some(error)),
            }
        }
        fault.map_or(Ok(removed), Err)
    }

    /// The folder of the sockets, where some run has made it.
    ///
    /// # Errors
    /// [`FolderError`]
    pub fn sockets_that_are_there(&self) -> Result<Option<Folder>, FolderError> {
        match Folder::open_ambient(&self.runtime, Demand::Private) {
            Ok(sockets) => Ok(Some(sockets)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn sweep_one(sockets: &Folder, name: &str) -> Result<bool, FolderError> {
    let Some(folder) = sockets.folder(name, Demand::Private)? else {
        return Ok(false);
    };
    if !is_locked_by_us(sockets, name, &folder)? {
        return Ok(false);
    }
    remove_tree(sockets, name, &folder, RUN_FOLDER_DEPTH_MAX)?;
    Ok(true)
}

/// Takes the lock of `folder`, which must still have that name then.
fn is_locked_by_us(sockets: &Folder, name: &str, folder: &Folder) -> Result<bool, FolderError> {
    match rustix::fs::flock(folder.fd(), FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(false),
        Err(error) => return Err(FolderError::io("lock", folder.path(), error)),
    }
    let held = folder.stat()?;
    match rustix::fs::statat(sockets.fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(named) => Ok((named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(FolderError::io("look at", folder.path(), error)),
    }
}

/// Names with their kinds, those only that are UTF-8.
fn list(folder: &Folder) -> Result<Vec<(String, FileType)>, FolderError> {
    let fault = |error: Errno| FolderError::io("list", folder.path(), error);
    let mut names = Vec::new();
    let entries = Dir::read_from(folder.fd()).map_err(fault)?;
    for entry in entries.take(FOLDER_ENTRIES_MAX) {
        let entry = entry.map_err(fault)?;
        match entry.file_name().to_str() {
            Ok("." | "..") | Err(_) => {}
            Ok(name) => names.push((name.to_owned(), entry.file_type())),
        }
    }
    Ok(names)
}

/// Removes `folder`, named `name` in `parent`, with what stands in it down to `depth`.
fn remove_tree(
    parent: &Folder,
    name: &str,
    folder: &Folder,
    depth: u32,
) -> Result<(), FolderError> {
    for (inner, kind) in list(folder)? {
        let below = match kind {
            FileType::Directory | FileType::Unknown if depth > 0 => is_folder(folder, &inner)?,
            _ => None,
        };
        match below {
            Some(below) => remove_tree(folder, &inner, &below, depth - 1)?,
            None => folder.remove(&inner)?,
        }
    }
    parent.remove_folder(name)
}

fn is_folder(folder: &Folder, name: &str) -> Result<Option<Folder>, FolderError> {
    match rustix::fs::statat(folder.fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
            folder.folder(name, Demand::Own)
        }
        _ => Ok(None),
    }
}

impl RunFolder {
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // What cannot be removed now is swept later.
        let _ = remove_tree(
            &self.sockets,
            &self.name,
            &self.folder,
            RUN_FOLDER_DEPTH_MAX,
        );
    }
}
