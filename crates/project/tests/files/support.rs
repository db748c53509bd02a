//! A project and its user's folders in a fresh temporary folder.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use project::UserDirs;

pub(crate) struct Home {
    _folder: tempfile::TempDir,
    pub(crate) root: PathBuf,
}

impl Home {
    /// A home with an empty folder `p`.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir(root.join("p")).unwrap();
        chmod(&root.join("p"), 0o755);
        Self {
            _folder: folder,
            root,
        }
    }

    /// A home whose project `p` is what `symbi init` writes.
    pub(crate) fn with_project() -> Self {
        let home = Self::new();
        project::scaffold(&home.project()).unwrap();
        home
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.root.join("p")
    }

    pub(crate) fn dirs(&self) -> UserDirs {
        UserDirs {
            config: self.root.join("config/symbi"),
            state: self.root.join("state/symbi"),
            runtime: self.root.join("run/symbi"),
        }
    }

    pub(crate) fn write(&self, path: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.project().join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).unwrap();
            chmod(parent, 0o755);
        }
        fs::write(&path, text).unwrap();
        chmod(&path, 0o644);
        path
    }

    /// A message without the name of this temporary folder.
    pub(crate) fn shown(&self, message: impl ToString) -> String {
        message
            .to_string()
            .replace(&self.root.display().to_string(), "/home/me")
    }
}

pub(crate) fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

pub(crate) fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Gives `path` to somebody else; `false` where only root could.
pub(crate) fn give_away(path: &Path) -> bool {
    is_root() && std::os::unix::fs::lchown(path, Some(1001), Some(1001)).is_ok()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
