//! `symbi init`: a small project that works at once, and explains itself.

use std::fmt;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

use crate::folder::{Folder, FolderError};
use crate::place::{Demand, shown};

const FOLDER_MODE: Mode = Mode::from_raw_mode(0o755);
const FILE_MODE: Mode = Mode::from_raw_mode(0o644);

/// Folders, parents first.
const FOLDERS: [&str; 7] = [
    "tools",
    "policies",
    "policies/call",
    "policies/mcp",
    "policies/run",
    "data",
    "out",
];

const FILES: [(&str, &str); 8] = [
    (
        "data/example.csv",
        include_str!("template/data/example.csv"),
    ),
    (
        "policies/call/copy.cedar",
        include_str!("template/policies/call/copy.cedar"),
    ),
    (
        "policies/call/count.cedar",
        include_str!("template/policies/call/count.cedar"),
    ),
    (
        "policies/mcp/clients.cedar",
        include_str!("template/policies/mcp/clients.cedar"),
    ),
    (
        "policies/run/agents.cedar",
        include_str!("template/policies/run/agents.cedar"),
    ),
    (
        "tools/copy_csv.clad.toml",
        include_str!("template/tools/copy_csv.clad.toml"),
    ),
    (
        "tools/word_count.clad.toml",
        include_str!("template/tools/word_count.clad.toml"),
    ),
    // Last: a folder is a project only when it is whole.
    ("symbiont.toml", include_str!("template/symbiont.toml")),
];

/// Why no project was made. Nothing of it is left.
#[derive(Debug)]
pub enum ScaffoldError {
    /// Files that are there already; relative to the folder.
    Exists {
        folder: PathBuf,
        names: Vec<&'static str>,
    },
    Folder(FolderError),
}

impl fmt::Display for ScaffoldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists { folder, names } => write!(
                f,
                "`{}` has already: {}\n  help: nothing is overwritten; name another folder",
                shown(folder),
                names.join(", ")
            ),
            Self::Folder(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ScaffoldError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Folder(error) => std::error::Error::source(error),
            Self::Exists { .. } => None,
        }
    }
}

impl From<FolderError> for ScaffoldError {
    fn from(error: FolderError) -> Self {
        Self::Folder(error)
    }
}

/// Writes a project that works at once into `dir`, which is made if it is missing. Returns
/// the paths of the files, relative to `dir`.
///
/// # Errors
/// [`ScaffoldError`] where a file is there already or cannot be written; then what was
/// written is removed again.
pub fn scaffold(dir: &Path) -> Result<Vec<PathBuf>, ScaffoldError> {
    let (folder, made) = open_or_make(dir)?;
    let mut written = Written {
        folder: &folder,
        files: Vec::new(),
        folders: Vec::new(),
    };
    let done = refuse_existing(&folder).and_then(|()| written.write_all());
    if let Err(error) = done {
        written.undo();
        if made {
            // Only an empty folder goes: it is ours.
            let _ = std::fs::remove_dir(folder.path());
        }
        return Err(error);
    }
    Ok(FILES.iter().map(|(path, _)| PathBuf::from(path)).collect())
}

fn open_or_make(dir: &Path) -> Result<(Folder, bool), FolderError> {
    use std::os::unix::fs::DirBuilderExt as _;
    let made = match std::fs::DirBuilder::new().mode(0o755).create(dir) {
        Ok(()) => true,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
        Err(source) => {
            return Err(FolderError::Io {
                action: "make the folder",
                path: dir.to_owned(),
                source,
            });
        }
    };
    let opened = Folder::open_ambient(dir, Demand::Controlled);
    if made && opened.is_err() {
        let _ = std::fs::remove_dir(dir);
    }
    opened.map(|folder| (folder, made))
}

/// The folder of a path below `root`, and the last name. `None` if the folder is missing.
fn locate<'p>(
    root: &Folder,
    path: &'p str,
) -> Result<Option<(Option<Folder>, &'p str)>, FolderError> {
    let mut folder: Option<Folder> = None;
    let (parents, name) = path.rsplit_once('/').unwrap_or(("", path));
    for component in parents.split('/').filter(|component| !component.is_empty()) {
        let next = folder
            .as_ref()
            .unwrap_or(root)
            .folder(component, Demand::Controlled)?;
        match next {
            Some(next) => folder = Some(next),
            None => return Ok(None),
        }
    }
    Ok(Some((folder, name)))
}

fn refuse_existing(root: &Folder) -> Result<(), ScaffoldError> {
    let mut names = Vec::new();
    for (path, _) in FILES {
        if let Some((folder, name)) = locate(root, path)?
            && folder.as_ref().unwrap_or(root).holds(name)?
        {
            names.push(path);
        }
    }
    if names.is_empty() {
        return Ok(());
    }
    Err(ScaffoldError::Exists {
        folder: root.path().to_owned(),
        names,
    })
}

/// What was made so far.
struct Written<'a> {
    folder: &'a Folder,
    files: Vec<&'static str>,
    folders: Vec<&'static str>,
}

impl Written<'_> {
    fn write_all(&mut self) -> Result<(), ScaffoldError> {
        for path in FOLDERS {
            let folder = self.parent_of(path)?;
            let (parent, name) = (folder.0.as_ref().unwrap_or(self.folder), folder.1);
            if !parent.holds(name)? {
                parent.make(name, FOLDER_MODE, Demand::Controlled)?;
                self.folders.push(path);
            }
        }
        for (path, text) in FILES {
            let folder = self.parent_of(path)?;
            let (parent, name) = (folder.0.as_ref().unwrap_or(self.folder), folder.1);
            parent.create(name, text.as_bytes(), FILE_MODE)?;
            self.files.push(path);
        }
        self.folder.sync()?;
        Ok(())
    }

    fn parent_of(&self, path: &'static str) -> Result<(Option<Folder>, &'static str), FolderError> {
        locate(self.folder, path)?.ok_or_else(|| FolderError::Io {
            action: "open the folder of",
            path: self.folder.path().join(path),
            source: std::io::ErrorKind::NotFound.into(),
        })
    }

    fn undo(&self) {
        let gone = |path: &'static str, folder: bool| {
            let Ok((parent, name)) = self.parent_of(path) else {
                return;
            };
            let parent = parent.as_ref().unwrap_or(self.folder);
            let _ = if folder {
                parent.remove_folder(name)
            } else {
                parent.remove(name)
            };
        };
        self.files.iter().for_each(|path| gone(path, false));
        self.folders.iter().rev().for_each(|path| gone(path, true));
    }
}
