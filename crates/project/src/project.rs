//! Finding a project, and reading its control files once.
//!
//! What is read here is what is checked, trusted and used: nothing reads a control file again.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use model::{Digest, SourceError, SourceErrors, nearest};
use rustix::fs::FileType;

use crate::folder::{Folder, FolderError};
use crate::limits::{CONTROL_FILE_BYTES_MAX, CONTROL_FILES_MAX, CONTROL_TOTAL_BYTES_MAX};
use crate::place::{self, Demand, UnsafePlace, shown};

/// The file that makes a folder a project.
pub const CONFIG_FILE: &str = "symbiont.toml";

/// Names, at the top of a project, that decide what an agent may do. No tool may write them.
pub const CONTROL_NAMES: [&str; 8] = [
    CONFIG_FILE,
    "tools",
    "policies",
    "scope",
    "toolclad.toml",
    "mcp-config.toml",
    ".symbiont",
    ".git",
];

/// How the names of manifests end, in `tools/`.
const MANIFEST: &str = ".clad.toml";
/// How the names of policies end.
const POLICY: &str = ".cedar";

/// Who asks for calls: each has policies of its own beside the common ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Surface {
    /// `symbi call`
    Call,
    /// `symbi run`
    Run,
    /// `symbi mcp`
    Mcp,
}

impl Surface {
    pub const ALL: [Self; 3] = [Self::Call, Self::Run, Self::Mcp];

    /// The name of its folder in `policies/`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Run => "run",
            Self::Mcp => "mcp",
        }
    }
}

/// One file of the operator's, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlFile {
    /// Relative to the project's folder, `/` between components.
    pub path: String,
    pub text: String,
    /// Digest of the text's bytes.
    pub sha256: Digest,
}

/// An open project: its folder is held, its control files are read and were writable by
/// nobody but the caller and root.
#[derive(Debug)]
pub struct Project {
    folder: Folder,
    config: ControlFile,
    files: Vec<ControlFile>,
}

/// Why there is no project, or not one that can be believed.
#[derive(Debug)]
pub enum ProjectError {
    /// No parent has a `symbiont.toml`.
    NotFound {
        start: PathBuf,
        stopped: Option<SearchEnd>,
    },
    /// The place that was named is not there.
    NoFolder {
        path: PathBuf,
    },
    /// The place that was named is a file.
    NotFolder {
        path: PathBuf,
    },
    /// The folder has no `symbiont.toml`.
    NoConfig {
        folder: PathBuf,
    },
    /// All places that others could have written.
    Unsafe(Vec<UnsafePlace>),
    Folder(FolderError),
    /// Files that are not UTF-8, with the place.
    Text(SourceErrors),
    /// A folder in `policies/` that no surface reads: its policies would silently not count.
    PolicyFolder {
        path: String,
    },
    /// A file that is meant to count, by a name that nothing reads.
    FileName {
        path: String,
        suffix: &'static str,
    },
    /// The same, since its name begins with a dot.
    Hidden {
        path: String,
    },
    /// A folder with the name of a control file.
    FolderName {
        path: String,
    },
    /// A manifest in a folder of `tools/`, where nothing looks.
    ManifestBelow {
        path: String,
    },
    TooManyFiles {
        max: usize,
    },
    TooManyBytes {
        max: u64,
    },
}

/// Where and why the upward search ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchEnd {
    Owner {
        folder: PathBuf,
        uid: u32,
    },
    /// A folder like /tmp, in which anybody can put a file.
    Shared {
        folder: PathBuf,
    },
}

impl fmt::Display for ProjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { start, stopped } => {
                let start = shown(start);
                write!(f, "no `{CONFIG_FILE}` in `{start}` or a folder above it")?;
                match stopped {
                    Some(SearchEnd::Owner { folder, uid }) => {
                        let folder = shown(folder);
                        write!(
                            f,
                            "; the search stopped at `{folder}`, which belongs to uid {uid}"
                        )?;
                    }
                    Some(SearchEnd::Shared { folder }) => {
                        let folder = shown(folder);
                        write!(
                            f,
                            "; the search stopped at `{folder}`, which everybody can write"
                        )?;
                    }
                    None => {}
                }
                f.write_str(
                    "\n  help: name a project with --project DIR, or make one: symbi init DIR",
                )
            }
            Self::NoFolder { .. } | Self::NotFolder { .. } | Self::NoConfig { .. } => {
                self.write_absent(f)
            }
            Self::Unsafe(places) => {
                for (index, place) in places.iter().enumerate() {
                    let line = if index > 0 { "\n" } else { "" };
                    write!(f, "{line}{place}")?;
                }
                Ok(())
            }
            Self::Folder(error) => error.fmt(f),
            Self::Text(faults) => faults.fmt(f),
            Self::PolicyFolder { path } => write_policy_folder(f, path),
            Self::FileName { .. }
            | Self::Hidden { .. }
            | Self::FolderName { .. }
            | Self::ManifestBelow { .. } => self.write_unread(f),
            Self::TooManyFiles { max } => {
                write!(
                    f,
                    "the project has more than the {max} control files allowed\n  help: move tools \
                     or policies that are not needed away, or into another project"
                )
            }
            Self::TooManyBytes { max } => {
                write!(
                    f,
                    "the project's control files have more than the {max} bytes allowed\n  help: \
                     shorten them, or split the project"
                )
            }
        }
    }
}

impl ProjectError {
    /// What was named is no project.
    fn write_absent(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFolder { path } => write!(
                f,
                "there is no folder `{}`\n  help: name a project's folder, or make a project: \
                 symbi init {}",
                shown(path),
                place::shell_word(path.as_os_str())
            ),
            Self::NotFolder { path } => write!(
                f,
                "`{}` is a file, and a project is a folder\n  help: name the folder that holds its \
                 `{CONFIG_FILE}`",
                shown(path)
            ),
            Self::NoConfig { folder } => write!(
                f,
                "`{}` has no `{CONFIG_FILE}`\n  help: make a project: symbi init {}",
                shown(folder),
                place::shell_word(folder.as_os_str())
            ),
            _ => Ok(()),
        }
    }

    /// Something that is meant to count, and that nothing would read.
    fn write_unread(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let safe = |path: &str| shown(Path::new(path));
        match self {
            Self::FileName { path, suffix } => write!(
                f,
                "nothing reads `{}`: names there end in `{suffix}`, in small letters\n  \
                 help: rename it, or move it away",
                safe(path)
            ),
            Self::Hidden { path } => write!(
                f,
                "nothing reads `{}`: its name begins with a dot\n  \
                 help: rename it, or move it away",
                safe(path)
            ),
            Self::FolderName { path } => write!(
                f,
                "nothing reads `{}`: it is a folder, and a file should have that name\n  \
                 help: move it away",
                safe(path)
            ),
            Self::ManifestBelow { path } => write!(
                f,
                "nothing reads `{}`: manifests stand in tools/ itself, not in a folder of it\n  \
                 help: move it to tools/, or away",
                safe(path)
            ),
            _ => Ok(()),
        }
    }
}

/// Whether a file of this name is meant to be read, if by a wrong name: in another case of
/// letters, as any `.toml` where manifests are, as `.tml`, or as `.toml.txt`. What an editor
/// leaves beside a file (`x.toml~`, `.x.toml.swp`, `.#x.toml`) is not.
fn seems_meant(name: &str, suffix: &str) -> bool {
    let wanted = suffix.rsplit('.').next().unwrap_or(suffix);
    let name = name.to_lowercase();
    let name = name.strip_suffix(".txt").unwrap_or(&name);
    let Some((stem, last)) = name.rsplit_once('.') else {
        return false;
    };
    let editors = stem.starts_with(".#") || stem.starts_with("._") || stem.is_empty();
    let letters = last.bytes().all(|byte| byte.is_ascii_alphabetic());
    !editors && letters && nearest(last, [wanted]).is_some()
}

fn write_policy_folder(f: &mut fmt::Formatter<'_>, path: &str) -> fmt::Result {
    write!(f, "no surface reads the policies in `{path}`\n  help: ")?;
    let name = path.rsplit('/').next().unwrap_or(path);
    let surfaces = Surface::ALL.map(Surface::as_str);
    match nearest(name, surfaces) {
        Some(surface) if path.matches('/').count() == 1 => {
            write!(f, "did you mean `policies/{surface}`?")
        }
        _ => write!(
            f,
            "policies stand in policies/ or policies/{{call,run,mcp}}/"
        ),
    }
}

impl std::error::Error for ProjectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Folder(error) => std::error::Error::source(error),
            _ => None,
        }
    }
}

impl From<FolderError> for ProjectError {
    fn from(error: FolderError) -> Self {
        match error {
            FolderError::Unsafe(place) => Self::Unsafe(vec![place]),
            other => Self::Folder(other),
        }
    }
}

impl Project {
    /// The project of the nearest folder from `start` upwards that has a `symbiont.toml`.
    /// Another owner's folder, or one that everybody can write, ends the search.
    ///
    /// # Errors
    /// [`ProjectError::NotFound`], or why the found one cannot be believed.
    pub fn find(start: &Path) -> Result<Self, ProjectError> {
        let opened = |path: &Path, source: io::Error| FolderError::Io {
            action: "open",
            path: path.to_owned(),
            source,
        };
        let real = std::fs::canonicalize(start).map_err(|error| opened(start, error))?;
        let mut stopped = None;
        for folder in real.ancestors() {
            let seen = std::fs::symlink_metadata(folder).map_err(|error| opened(folder, error))?;
            if seen.uid() != place::caller() && seen.uid() != 0 {
                stopped = Some(SearchEnd::Owner {
                    folder: folder.to_owned(),
                    uid: seen.uid(),
                });
                break;
            }
            if seen.mode() & 0o1002 == 0o1002 {
                stopped = Some(SearchEnd::Shared {
                    folder: folder.to_owned(),
                });
                break;
            }
            if std::fs::symlink_metadata(folder.join(CONFIG_FILE)).is_ok() {
                return Self::open(folder);
            }
        }
        Err(ProjectError::NotFound {
            start: real,
            stopped,
        })
    }

    /// The project in `dir` itself: its folder, checked from the root down, and its control
    /// files, read.
    ///
    /// # Errors
    /// [`ProjectError`] names each place that others could have written, and the remedy.
    pub fn open(dir: &Path) -> Result<Self, ProjectError> {
        match std::fs::metadata(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ProjectError::NoFolder {
                    path: dir.to_owned(),
                });
            }
            Ok(seen) if !seen.is_dir() => {
                return Err(ProjectError::NotFolder {
                    path: dir.to_owned(),
                });
            }
            _ => {}
        }
        let folder = Folder::open_ambient(dir, Demand::Controlled)?;
        let mut files = Reading::of(&folder)?.finish()?;
        match files.iter().position(|file| file.path == CONFIG_FILE) {
            Some(index) => Ok(Self {
                config: files.remove(index),
                folder,
                files,
            }),
            None => Err(ProjectError::NoConfig {
                folder: folder.path().to_owned(),
            }),
        }
    }

    /// The held folder.
    #[must_use]
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.folder.fd()
    }

    /// The folder's absolute path, free of links, when it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) const fn folder(&self) -> &Folder {
        &self.folder
    }

    /// All control files: `symbiont.toml` first, the others sorted by path.
    pub fn control_files(&self) -> impl Iterator<Item = &ControlFile> {
        std::iter::once(&self.config).chain(&self.files)
    }

    /// The text of `symbiont.toml`.
    #[must_use]
    pub fn config_text(&self) -> &str {
        &self.config.text
    }

    /// The control file at `path`, relative to the project's folder.
    #[must_use]
    pub fn control_file(&self, path: &str) -> Option<&ControlFile> {
        self.control_files().find(|file| file.path == path)
    }

    /// `tools/*.clad.toml`, sorted by name.
    pub fn manifests(&self) -> impl Iterator<Item = &ControlFile> {
        self.files
            .iter()
            .filter(|file| file.path.starts_with("tools/"))
    }

    /// `policies/*.cedar` and `policies/<surface>/*.cedar`, sorted by path.
    pub fn policies(&self, surface: Surface) -> impl Iterator<Item = &ControlFile> {
        self.files.iter().filter(move |file| {
            let below = file.path.strip_prefix("policies/");
            below.is_some_and(|below| match below.split_once('/') {
                Some((folder, _)) => folder == surface.as_str(),
                None => true,
            })
        })
    }
}

/// Control files so far, and what was found wrong on the way.
#[derive(Default)]
struct Reading {
    files: Vec<ControlFile>,
    bytes: u64,
    unsafe_places: Vec<UnsafePlace>,
    text_faults: Vec<SourceError>,
}

impl Reading {
    fn of(folder: &Folder) -> Result<Self, ProjectError> {
        let mut reading = Self::default();
        for name in [CONFIG_FILE, "toolclad.toml", "mcp-config.toml"] {
            reading.file(folder, name, name)?;
        }
        if let Some(scope) = reading.folder(folder, "scope")? {
            reading.file(&scope, "scope.toml", "scope/scope.toml")?;
        }
        if let Some(tools) = reading.folder(folder, "tools")? {
            reading.matching(&tools, "tools", MANIFEST)?;
            reading.no_manifest_below(&tools)?;
        }
        if let Some(policies) = reading.folder(folder, "policies")? {
            reading.matching(&policies, "policies", POLICY)?;
            for name in reading.subfolders(&policies)? {
                let path = format!("policies/{name}");
                if !Surface::ALL.iter().any(|surface| surface.as_str() == name) {
                    return Err(ProjectError::PolicyFolder { path });
                }
                let Some(surface) = reading.folder(&policies, &name)? else {
                    continue;
                };
                if let Some(inner) = reading.subfolders(&surface)?.first() {
                    let path = format!("{path}/{inner}");
                    return Err(ProjectError::PolicyFolder { path });
                }
                reading.matching(&surface, &path, POLICY)?;
            }
        }
        Ok(reading)
    }

    /// Keeps an unsafe place for the report and goes on; other errors end the reading.
    fn gather<T>(
        &mut self,
        found: Result<Option<T>, FolderError>,
    ) -> Result<Option<T>, FolderError> {
        match found {
            Err(FolderError::Unsafe(place)) => {
                self.unsafe_places.push(place);
                Ok(None)
            }
            other => other,
        }
    }

    fn folder(&mut self, parent: &Folder, name: &str) -> Result<Option<Folder>, FolderError> {
        self.gather(parent.folder(name, Demand::Controlled))
    }

    /// Folders in one of `policies/`. A link counts as unsafe: it could be one.
    fn subfolders(&mut self, folder: &Folder) -> Result<Vec<String>, FolderError> {
        let mut names = Vec::new();
        for (name, kind) in folder.entries()? {
            match kind {
                _ if name.starts_with('.') => {}
                FileType::Directory => names.push(name),
                FileType::Symlink if !name.ends_with(".cedar") => {
                    self.folder(folder, &name)?;
                }
                _ => {}
            }
        }
        Ok(names)
    }

    /// The files of one folder whose names end in `suffix`. One that would silently not count is
    /// refused: `X.CLAD.TOML`, `notes.toml`, or a folder of such a name.
    fn matching(
        &mut self,
        folder: &Folder,
        path: &str,
        suffix: &'static str,
    ) -> Result<(), ProjectError> {
        for (name, kind) in folder.entries()? {
            let place = format!("{path}/{name}");
            if name.starts_with('.') {
                if seems_meant(&name, suffix) && kind != FileType::Directory {
                    return Err(ProjectError::Hidden { path: place });
                }
            } else if name.ends_with(suffix) && kind != FileType::Directory {
                self.file(folder, &name, &place)?;
            } else if name.ends_with(suffix) {
                return Err(ProjectError::FolderName { path: place });
            } else if seems_meant(&name, suffix) && kind != FileType::Directory {
                return Err(ProjectError::FileName {
                    path: place,
                    suffix,
                });
            }
        }
        Ok(())
    }

    /// Manifests stand in `tools/` itself: one in a folder below would silently not count.
    fn no_manifest_below(&mut self, tools: &Folder) -> Result<(), ProjectError> {
        for (name, kind) in tools.entries()? {
            if kind != FileType::Directory || name.starts_with('.') {
                continue;
            }
            let Some(inner) = self.folder(tools, &name)? else {
                continue;
            };
            for (file, kind) in inner.entries()? {
                if seems_meant(&file, MANIFEST) && kind != FileType::Directory {
                    let path = format!("tools/{name}/{file}");
                    return Err(ProjectError::ManifestBelow { path });
                }
            }
        }
        Ok(())
    }

    fn file(&mut self, folder: &Folder, name: &str, path: &str) -> Result<(), ProjectError> {
        let read = folder.read(name, CONTROL_FILE_BYTES_MAX, Demand::Controlled);
        let Some(bytes) = self.gather(read)? else {
            return Ok(());
        };
        if self.files.len() >= CONTROL_FILES_MAX {
            return Err(ProjectError::TooManyFiles {
                max: CONTROL_FILES_MAX,
            });
        }
        self.bytes += bytes.len() as u64;
        if self.bytes > CONTROL_TOTAL_BYTES_MAX {
            return Err(ProjectError::TooManyBytes {
                max: CONTROL_TOTAL_BYTES_MAX,
            });
        }
        let sha256 = Digest::of(&bytes);
        match utf8(path, bytes) {
            Ok(text) => self.files.push(ControlFile {
                path: path.to_owned(),
                text,
                sha256,
            }),
            Err(fault) => self.text_faults.push(fault),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<ControlFile>, ProjectError> {
        if !self.unsafe_places.is_empty() {
            return Err(ProjectError::Unsafe(self.unsafe_places));
        }
        SourceErrors::check(self.text_faults).map_err(ProjectError::Text)?;
        self.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(self.files)
    }
}

/// The bytes as text, or the place of the first that is none.
pub(crate) fn utf8(file: &str, bytes: Vec<u8>) -> Result<String, SourceError> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let byte = error.as_bytes().get(at).copied().unwrap_or_default();
        let lossy = String::from_utf8_lossy(error.as_bytes());
        let end = at + char::REPLACEMENT_CHARACTER.len_utf8();
        SourceError::at(
            file,
            &lossy,
            at..end,
            format!("the byte 0x{byte:02x} is not UTF-8"),
        )
        .help("save the file as UTF-8")
    })
}
