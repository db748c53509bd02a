//! Which file a program's name means in the worker, and what that file is.
//!
//! A program is bound by content: its hash, owner and mode stand in the descriptor, and its
//! script interpreter's likewise. Before a worker starts, the same question is asked again, and
//! init compares the file's state once more immediately before it runs.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use model::{Digest, Hasher};
use sandbox_init::wire::{BoundFile, FileStamp};
use worker::{ProgramFile, ProgramIdentity, WorkerRoot};

use crate::limits::{
    FIRST_LINE_BYTES_MAX, INTERPRETERS_MAX, LINKS_MAX, PROGRAM_BYTES_MAX, PROGRAMS_CACHED_MAX,
    READ_BYTES, SETTLED_AFTER,
};

/// Where a bare name is looked up, in this order: the worker's `PATH`.
const SEARCHED: [&str; 2] = ["/usr/bin", "/bin"];
const VISIBLE: [&str; 8] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/lib32",
    "/libx32",
    "/etc/alternatives",
];
/// Hidden in the worker unless its root lists them.
const HIDDEN: [&str; 2] = ["/usr/local", "/usr/src"];
const ENV: &str = "env";

/// Why a name is no program of the worker.
#[derive(Debug)]
pub enum ProgramError {
    /// No file of that name in the worker's `PATH`.
    NotFound {
        name: String,
    },
    /// A relative path, or no name at all.
    NotAName {
        name: String,
    },
    /// The path leads to a file that the worker does not see.
    NotVisible {
        path: String,
        target: String,
    },
    /// No regular file with an execute bit.
    NotExecutable {
        path: String,
        found: &'static str,
    },
    /// The path passes more links, or the script more interpreters, than the kernel follows.
    TooDeep {
        path: String,
    },
    TooLarge {
        path: String,
        bytes: u64,
        max: u64,
    },
    Io {
        path: String,
        error: io::Error,
    },
    /// Programs of this kind of root are not looked up here.
    Root,
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { name } => write!(
                f,
                "no program `{name}` in the worker's PATH (/usr/bin:/bin); install it there, or \
                 give its absolute path and list its folder under `system`"
            ),
            Self::NotAName { name } => {
                write!(
                    f,
                    "`{name}` is neither a program's name nor an absolute path"
                )
            }
            Self::NotVisible { path, target } => write!(
                f,
                "the program `{path}` leads to `{target}`, which the worker does not see; list \
                 its folder under `system`"
            ),
            Self::NotExecutable { path, found } => {
                write!(f, "the program `{path}` cannot be run: it is {found}")
            }
            Self::TooDeep { path } => {
                write!(f, "the program `{path}` has too many links or interpreters")
            }
            Self::TooLarge { path, bytes, max } => {
                write!(
                    f,
                    "the program `{path}` has {bytes} bytes, more than the {max} allowed"
                )
            }
            Self::Io { path, .. } => write!(f, "the program `{path}` cannot be read"),
            Self::Root => f.write_str("programs are only looked up in a root of the system"),
        }
    }
}

impl std::error::Error for ProgramError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// Hashes of program files that have not changed since. Clones share one store.
#[derive(Debug, Clone, Default)]
pub struct ProgramCache(Arc<Mutex<BTreeMap<FileStamp, Content>>>);

/// What was read of one file.
#[derive(Debug, Clone)]
struct Content {
    sha256: Digest,
    first_line: Option<FirstLine>,
}

/// A script's first line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FirstLine {
    interpreter: String,
    argument: Option<String>,
}

/// A program with the states of all its files.
#[derive(Debug)]
pub(crate) struct Located {
    pub(crate) identity: ProgramFile,
    pub(crate) files: Vec<BoundFile>,
}

/// Looks `argv0` up in the worker's root, without a cache.
///
/// # Errors
/// [`ProgramError`] says why it is no program there.
pub fn resolve(argv0: &str, root: &WorkerRoot) -> Result<ProgramIdentity, ProgramError> {
    ProgramCache::default().resolve(argv0, root)
}

/// Identifies a program outside the worker's root, without a cache.
///
/// # Errors
/// [`ProgramError`] says why it is no program.
pub fn identify_file(
    host: &Path,
    path: &str,
    root: &WorkerRoot,
) -> Result<ProgramFile, ProgramError> {
    ProgramCache::default().identify_file(host, path, root)
}

impl ProgramCache {
    /// Looks `argv0` up in the worker's root: a bare name in `/usr/bin` and `/bin`, or an
    /// absolute path of the worker.
    ///
    /// # Errors
    /// [`ProgramError`] says why it is no program there.
    pub fn resolve(&self, argv0: &str, root: &WorkerRoot) -> Result<ProgramIdentity, ProgramError> {
        if matches!(root, WorkerRoot::Image { .. }) {
            return image_program(argv0);
        }
        let view = View::of(root)?;
        let path = view.look_up(argv0)?;
        let located = self.locate(&view, &path, 0)?;
        Ok(ProgramIdentity::Content(located.identity))
    }

    /// Identifies the host file `host` that the worker will see at `path`; an interpreter is
    /// looked up in the root.
    ///
    /// # Errors
    /// [`ProgramError`] says why it is no program.
    pub fn identify_file(
        &self,
        host: &Path,
        path: &str,
        root: &WorkerRoot,
    ) -> Result<ProgramFile, ProgramError> {
        Ok(self.locate_file(host, path, root)?.identity)
    }

    /// Like [`Self::identify_file`], with the files' states.
    pub(crate) fn locate_file(
        &self,
        host: &Path,
        path: &str,
        root: &WorkerRoot,
    ) -> Result<Located, ProgramError> {
        self.identify(&View::of(root)?, host, path, 0)
    }

    /// The program at `path` of the worker, with the files' states.
    pub(crate) fn locate_path(
        &self,
        path: &str,
        root: &WorkerRoot,
    ) -> Result<Located, ProgramError> {
        self.locate(&View::of(root)?, path, 0)
    }

    fn locate(&self, view: &View, path: &str, depth: usize) -> Result<Located, ProgramError> {
        let target = view.follow(path)?;
        self.identify(view, &target, path, depth)
    }

    fn identify(
        &self,
        view: &View,
        host: &Path,
        path: &str,
        depth: usize,
    ) -> Result<Located, ProgramError> {
        if depth > INTERPRETERS_MAX {
            return Err(ProgramError::TooDeep {
                path: path.to_owned(),
            });
        }
        let wrong = |found| ProgramError::NotExecutable {
            path: path.to_owned(),
            found,
        };
        let failed = |error| ProgramError::Io {
            path: path.to_owned(),
            error,
        };
        let mut options = File::options();
        options
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW);
        let mut file = options.open(host).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(wrong("not a regular file"));
        }
        if metadata.mode() & 0o111 == 0 {
            return Err(wrong("without an execute bit"));
        }
        if metadata.len() > PROGRAM_BYTES_MAX {
            let (bytes, max) = (metadata.len(), PROGRAM_BYTES_MAX);
            return Err(ProgramError::TooLarge {
                path: path.to_owned(),
                bytes,
                max,
            });
        }
        let stamp = stamp_of(&metadata);
        let content = self.content(&mut file, stamp).map_err(failed)?;
        if stamp_of(&file.metadata().map_err(failed)?) != stamp {
            return Err(wrong("being changed"));
        }
        let mut files = vec![BoundFile {
            path: path.to_owned(),
            stamp,
        }];
        let mut interpreter = None;
        if let Some(next) = content
            .first_line
            .and_then(|line| view.interpreter_of(path, &line))
        {
            let located = self.locate(view, &next?, depth + 1)?;
            files.extend(located.files);
            interpreter = Some(Box::new(located.identity));
        }
        Ok(Located {
            identity: ProgramFile {
                path: path.to_owned(),
                sha256: content.sha256,
                owner_uid: metadata.uid(),
                mode: metadata.mode() & 0o7777,
                interpreter,
            },
            files,
        })
    }

    fn content(&self, file: &mut File, stamp: FileStamp) -> io::Result<Content> {
        let known = |cache: &Self| cache.lock().get(&stamp).cloned();
        if let Some(content) = known(self) {
            return Ok(content);
        }
        let content = read_content(file)?;
        if is_settled(stamp) {
            let mut kept = self.lock();
            if kept.len() >= PROGRAMS_CACHED_MAX {
                kept.clear();
            }
            kept.insert(stamp, content.clone());
        }
        Ok(content)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<FileStamp, Content>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A program of an image: the worker looks it up there, and the image's id binds what it finds.
fn image_program(argv0: &str) -> Result<ProgramIdentity, ProgramError> {
    if !argv0.starts_with('/') || argv0.contains('\0') {
        check_name(argv0)?;
    }
    Ok(ProgramIdentity::Image {
        path: argv0.to_owned(),
    })
}

/// A bare name, as the worker's `PATH` looks it up.
fn check_name(name: &str) -> Result<(), ProgramError> {
    let is_bare = !name.contains(['/', '\0']) && !matches!(name, "" | "." | "..");
    is_bare.then_some(()).ok_or_else(|| ProgramError::NotAName {
        name: name.to_owned(),
    })
}

/// What a system root shows of the host.
struct View<'a> {
    also: &'a [String],
}

impl<'a> View<'a> {
    fn of(root: &'a WorkerRoot) -> Result<Self, ProgramError> {
        match root {
            WorkerRoot::System { also } => Ok(Self { also }),
            WorkerRoot::Directory { .. } | WorkerRoot::Image { .. } => Err(ProgramError::Root),
        }
    }

    fn look_up(&self, name: &str) -> Result<String, ProgramError> {
        if name.starts_with('/') {
            return Ok(name.to_owned());
        }
        check_name(name)?;
        let candidates = SEARCHED.map(|folder| format!("{folder}/{name}"));
        let found = candidates
            .into_iter()
            .find(|path| fs::symlink_metadata(path).is_ok());
        found.ok_or_else(|| ProgramError::NotFound {
            name: name.to_owned(),
        })
    }

    /// The file that `path` leads to, link by link, through what the worker sees.
    fn follow(&self, path: &str) -> Result<PathBuf, ProgramError> {
        let too_deep = || ProgramError::TooDeep {
            path: path.to_owned(),
        };
        let hidden = |target: &Path| ProgramError::NotVisible {
            path: path.to_owned(),
            target: target.to_string_lossy().into_owned(),
        };
        let mut left: Vec<PathBuf> = components_reversed(Path::new(path));
        let mut at = PathBuf::from("/");
        let mut links = 0;
        while let Some(component) = left.pop() {
            if component == Path::new("..") {
                at.pop();
                continue;
            }
            let next = at.join(&component);
            match fs::read_link(&next) {
                Ok(target) => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(too_deep());
                    }
                    if !self.shows(&next) {
                        return Err(hidden(&next));
                    }
                    if target.is_absolute() {
                        at = PathBuf::from("/");
                    }
                    left.extend(components_reversed(&target));
                }
                Err(_) => at = next,
            }
        }
        if !self.shows(&at) {
            return Err(hidden(&at));
        }
        Ok(at)
    }

    fn shows(&self, path: &Path) -> bool {
        let listed = self.also.iter().any(|also| path.starts_with(also));
        let system = VISIBLE.iter().any(|folder| path.starts_with(folder));
        listed || (system && !HIDDEN.iter().any(|folder| path.starts_with(folder)))
    }

    /// The interpreter's path in the worker. `env NAME` is followed to what it will run.
    fn interpreter_of(
        &self,
        script: &str,
        line: &FirstLine,
    ) -> Option<Result<String, ProgramError>> {
        let through_env = line.interpreter.rsplit('/').next() == Some(ENV);
        // A script may be named like its interpreter's argument only once: env does not loop.
        match (&line.argument, through_env) {
            (Some(name), true) if !name.starts_with('-') && !name.contains(['=', ' ', '\t']) => {
                Some(self.look_up(name))
            }
            _ if line.interpreter.starts_with('/') && line.interpreter != script => {
                Some(Ok(line.interpreter.clone()))
            }
            _ => None,
        }
    }
}

fn components_reversed(path: &Path) -> Vec<PathBuf> {
    let kept = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(PathBuf::from(name)),
        Component::ParentDir => Some(PathBuf::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    let mut kept: Vec<_> = kept.collect();
    kept.reverse();
    kept
}

/// The state of a file.
pub(crate) fn stamp_of(metadata: &fs::Metadata) -> FileStamp {
    let nanos = |nanos: i64| u32::try_from(nanos).unwrap_or(u32::MAX);
    FileStamp {
        device: metadata.dev(),
        inode: metadata.ino(),
        bytes: metadata.len(),
        modified: (metadata.mtime(), nanos(metadata.mtime_nsec())),
        changed: (metadata.ctime(), nanos(metadata.ctime_nsec())),
    }
}

/// Whether a later change would surely show in the state.
fn is_settled(stamp: FileStamp) -> bool {
    let (seconds, nanos) = stamp.changed;
    let changed = Duration::new(u64::try_from(seconds).unwrap_or(0), nanos);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.is_ok_and(|now| {
        now.checked_sub(changed)
            .is_some_and(|age| age > SETTLED_AFTER)
    })
}

fn read_content(file: &mut File) -> io::Result<Content> {
    let mut hasher = Hasher::new();
    let mut head = Vec::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let bytes = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let part = buffer.get(..bytes).unwrap_or_default();
        hasher.update(part);
        let missing = FIRST_LINE_BYTES_MAX.saturating_sub(head.len());
        head.extend(part.iter().take(missing));
    }
    Ok(Content {
        sha256: hasher.finish(),
        first_line: first_line(&head),
    })
}

fn first_line(head: &[u8]) -> Option<FirstLine> {
    let line = head
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let line = std::str::from_utf8(line)
        .ok()?
        .trim_matches([' ', '\t', '\r']);
    let (interpreter, argument) = match line.split_once([' ', '\t']) {
        Some((interpreter, argument)) => (interpreter, Some(argument.trim().to_owned())),
        None => (line, None),
    };
    let interpreter = interpreter.to_owned();
    Some(FirstLine {
        interpreter,
        argument,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn system() -> WorkerRoot {
        WorkerRoot::System { also: vec![] }
    }

    fn script(folder: &Path, text: &str) -> PathBuf {
        let path = folder.join("tool");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_bare_name_is_the_file_in_usr_bin_by_content() {
        let found = resolve("true", &system()).unwrap();
        let found = found.file().unwrap();
        assert_eq!(found.path, "/usr/bin/true");
        assert_eq!(
            found.sha256,
            Digest::of(&fs::read("/usr/bin/true").unwrap())
        );
        assert_eq!(found.owner_uid, 0);
        assert!(found.interpreter.is_none());
    }

    #[test]
    fn a_program_of_an_image_is_bound_by_the_images_id() {
        let root = WorkerRoot::Image {
            id: "sha256:1".to_owned(),
        };
        for path in ["cp", "/opt/tool/run"] {
            let found = resolve(path, &root).unwrap();
            assert!(found.path() == path && found.file().is_none());
        }
        for name in ["", ".", "..", "./x", "a/b", "a\0b", "/a\0b"] {
            assert!(resolve(name, &root).is_err(), "{name:?}");
        }
    }

    #[test]
    fn names_that_are_no_programs_are_refused() {
        assert!(matches!(
            resolve("no-such-tool", &system()),
            Err(ProgramError::NotFound { .. })
        ));
        for name in ["", ".", "..", "./x", "a/b"] {
            assert!(matches!(
                resolve(name, &system()),
                Err(ProgramError::NotAName { .. })
            ));
        }
        assert!(matches!(
            resolve("/usr/lib", &system()),
            Err(ProgramError::NotExecutable { .. })
        ));
        for hidden in ["/etc/passwd", "/usr/local/bin/x", "/usr/../home/x"] {
            assert!(
                matches!(
                    resolve(hidden, &system()),
                    Err(ProgramError::NotVisible { .. })
                ),
                "{hidden}"
            );
        }
    }

    #[test]
    fn a_listed_folder_is_visible() {
        let root = WorkerRoot::System {
            also: vec!["/usr/local".to_owned()],
        };
        assert!(matches!(
            resolve("/usr/local/bin/none", &root),
            Err(ProgramError::Io { .. })
        ));
    }

    #[test]
    fn a_script_is_bound_with_its_interpreter_also_through_env() {
        let folder = tempfile::tempdir().unwrap();
        for (text, path) in [
            ("#!/bin/sh\n", "/bin/sh"),
            ("#! /bin/sh -e\n", "/bin/sh"),
            ("#!/usr/bin/env sh\n", "/usr/bin/sh"),
            ("#!/usr/bin/env -S sh -e\n", "/usr/bin/env"),
        ] {
            let host = script(folder.path(), text);
            let found = identify_file(&host, "/opt/tool", &system()).unwrap();
            assert_eq!(found.interpreter.unwrap().path, path, "{text}");
        }
    }

    #[test]
    fn a_changed_file_has_another_identity_also_with_a_cache() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ProgramCache::default();
        let host = script(folder.path(), "#!/bin/sh\necho a\n");
        let before = cache.identify_file(&host, "/opt/tool", &system()).unwrap();
        script(folder.path(), "#!/bin/sh\necho b\n");
        let after = cache.identify_file(&host, "/opt/tool", &system()).unwrap();
        assert_ne!(before.sha256, after.sha256);
    }

    #[test]
    fn links_are_followed_to_their_bound_and_not_past_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = WorkerRoot::System {
            also: vec![folder.path().to_str().unwrap().to_owned()],
        };
        let mut last = script(folder.path(), "#!/bin/sh\n");
        for number in 0..=LINKS_MAX {
            let next = folder.path().join(format!("link{number}"));
            std::os::unix::fs::symlink(&last, &next).unwrap();
            last = next;
        }
        let at = folder.path().join(format!("link{}", LINKS_MAX - 1));
        assert!(resolve(at.to_str().unwrap(), &root).is_ok());
        assert!(matches!(
            resolve(last.to_str().unwrap(), &root),
            Err(ProgramError::TooDeep { .. })
        ));
    }

    #[test]
    fn interpreters_are_followed_to_their_bound_and_not_past_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = WorkerRoot::System {
            also: vec![folder.path().to_str().unwrap().to_owned()],
        };
        let mut last = "/bin/sh".to_owned();
        let mut found = vec![];
        for number in 0..=INTERPRETERS_MAX {
            let path = folder.path().join(format!("s{number}"));
            fs::write(&path, format!("#!{last}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            last = path.to_str().unwrap().to_owned();
            found.push(resolve(&last, &root));
        }
        let last = found.pop().unwrap();
        assert!(
            matches!(last, Err(ProgramError::TooDeep { .. })),
            "{last:?}"
        );
        assert!(found.iter().all(Result::is_ok), "{found:?}");
    }

    #[test]
    fn a_file_past_the_size_bound_is_not_hashed() {
        let folder = tempfile::tempdir().unwrap();
        let path = script(folder.path(), "");
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(PROGRAM_BYTES_MAX + 1)
            .unwrap();
        assert!(matches!(
            identify_file(&path, "/opt/tool", &system()),
            Err(ProgramError::TooLarge { .. })
        ));
    }

    #[test]
    fn the_first_line_is_read_as_the_kernel_reads_it() {
        let line = |text: &str| first_line(text.as_bytes());
        let of = |interpreter: &str, argument: Option<&str>| {
            Some(FirstLine {
                interpreter: interpreter.to_owned(),
                argument: argument.map(str::to_owned),
            })
        };
        assert_eq!(line("#!/bin/sh"), of("/bin/sh", None));
        assert_eq!(line("#! /bin/awk -f\nx"), of("/bin/awk", Some("-f")));
        assert_eq!(line("#!/a b c\n"), of("/a", Some("b c")));
        assert_eq!(line("\x7fELF"), None);
    }
}
