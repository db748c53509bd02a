//! What one worker is shown of the host: private copies of its inputs, and the place of its
//! output, in a folder of its own that is gone with it.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use model::{CreateMode, RelativePath};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, openat2};
use worker::{Network, OutputFile, WorkerSpec};

use super::request::bind;
use crate::engine::{ContainerId, MountRequest};
use crate::lease::{LeaseId, MADE_MARK};
use crate::limits::COPY_BYTES;

/// The workload's default id, as the host sees it where the engine maps none.
const NOBODY: u32 = 65534;

/// Names of a worker without a network: its own.
const HOSTS: &str = "127.0.0.1 localhost\n::1 localhost\n";
const HOSTS_PLACE: &str = "/etc/hosts";

/// A worker's folder. It is removed by [`Self::remove`], or with its owner.
#[derive(Debug)]
pub(super) struct Staged {
    folder: PathBuf,
    binds: Vec<MountRequest>,
    output: HeldOutput,
    is_there: bool,
}

/// The output, held open since before the worker.
#[derive(Debug)]
pub(super) enum HeldOutput {
    NotGranted,
    File(File),
    Fresh { folder: OwnedFd, name: String },
}

impl Staged {
    /// Makes the folder below `pool`, named by the lease, with all that the worker gets.
    pub(super) fn make(pool: &Path, lease: &LeaseId, spec: &WorkerSpec) -> io::Result<Self> {
        let mut staged = Self {
            folder: fs::canonicalize(pool)?.join(lease.as_str()),
            binds: Vec::new(),
            output: HeldOutput::NotGranted,
            is_there: true,
        };
        make_folder(&staged.folder, 0o700)?;
        staged.make_output(spec)?;
        staged.copy_inputs(spec)?;
        staged.write_hosts(spec)?;
        Ok(staged)
    }

    pub(super) fn binds(&self) -> Vec<MountRequest> {
        self.binds.clone()
    }

    pub(super) fn take_output(&mut self) -> HeldOutput {
        std::mem::replace(&mut self.output, HeldOutput::NotGranted)
    }

    /// Tells whoever cleans up after this process which container the engine has made: when it is
    /// removed, its id is all that its runtime's processes are known by.
    pub(super) fn mark_made(&self, id: &ContainerId) -> io::Result<()> {
        let mark = new_file(&self.folder.join(MADE_MARK), 0o600)?;
        mark.write_all_at(id.as_str().as_bytes(), 0)
    }

    /// Deletes the folder with all that the worker left in it.
    pub(super) fn remove(mut self) -> io::Result<()> {
        self.delete()
    }

    /// Leaves the folder to its lease's keeper: its container may be there, or still come.
    pub(super) fn leave(mut self) {
        self.is_there = false;
    }

    fn delete(&mut self) -> io::Result<()> {
        if !self.is_there {
            return Ok(());
        }
        fs::remove_dir_all(&self.folder)?;
        self.is_there = false;
        Ok(())
    }

    fn copy_inputs(&mut self, spec: &WorkerSpec) -> io::Result<()> {
        let fresh = fresh_folder(spec);
        for (index, input) in spec.inputs().iter().enumerate() {
            let source = self.folder.join(format!("in-{index}"));
            copy(&input.content, input.bytes, &source)?;
            let path = below(spec, &input.path);
            // Inside a bound folder its mount needs a place there, which is ours to make.
            if let Some(inside) = fresh.as_deref().and_then(|folder| inner(&path, folder)) {
                let place = self.folder.join("fresh").join(inside);
                if let Some(parent) = place.parent() {
                    DirBuilder::new()
                        .recursive(true)
                        .mode(0o755)
                        .create(parent)?;
                }
                new_file(&place, 0o444)?;
            }
            self.binds.push(bind(&text(&source)?, &path, true));
        }
        Ok(())
    }

    /// The engine writes this file only where it makes the network.
    fn write_hosts(&mut self, spec: &WorkerSpec) -> io::Result<()> {
        if spec.network() == Network::None {
            let source = self.folder.join("hosts");
            new_file(&source, 0o444)?.write_all_at(HOSTS.as_bytes(), 0)?;
            self.binds.push(bind(&text(&source)?, HOSTS_PLACE, true));
        }
        Ok(())
    }

    fn make_output(&mut self, spec: &WorkerSpec) -> io::Result<()> {
        let Some(output) = spec.output() else {
            return Ok(());
        };
        match output.mode {
            CreateMode::File => {
                let source = self.folder.join("out");
                let file = new_file(&source, 0o666)?;
                give_away(&source)?;
                let path = below(spec, &output.path);
                self.binds.push(bind(&text(&source)?, &path, false));
                self.output = HeldOutput::File(file);
            }
            CreateMode::Fresh => {
                let source = self.folder.join("fresh");
                make_folder(&source, 0o777)?;
                give_away(&source)?;
                let target = fresh_folder(spec).unwrap_or_default();
                self.binds.push(bind(&text(&source)?, &target, false));
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                self.output = HeldOutput::Fresh {
                    folder: rustix::fs::open(&source, flags, Mode::empty())?,
                    name: output.path.name().to_owned(),
                };
            }
        }
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // What cannot be deleted is found by its lease's keeper.
        let _deleted = self.delete();
    }
}

impl HeldOutput {
    /// Whether it has taken all that it may.
    pub(super) fn is_full(&self, bytes_max: u64) -> bool {
        match self {
            Self::File(file) => file.metadata().is_ok_and(|it| it.len() >= bytes_max),
            Self::NotGranted | Self::Fresh { .. } => false,
        }
    }

    /// The output as the worker left it. Read only when all its processes are dead.
    pub(super) fn collect(self) -> OutputFile {
        let unusable = |reason: String| OutputFile::Unusable { reason };
        let file = match self {
            Self::NotGranted => return OutputFile::NotGranted,
            Self::File(file) => file,
            Self::Fresh { folder, name } => match open_fresh(&folder, &name) {
                Ok(file) => file,
                Err(reason) => return unusable(reason),
            },
        };
        match file.metadata() {
            Ok(it) if it.is_file() => OutputFile::Written {
                bytes: it.len(),
                file,
            },
            Ok(_) => unusable("it is not a regular file".to_owned()),
            Err(error) => unusable(format!("it cannot be read: {error}")),
        }
    }
}

fn open_fresh(folder: &OwnedFd, name: &str) -> Result<File, String> {
    use rustix::io::Errno;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    let stat = stat.map_err(|errno| match errno {
        Errno::NOENT => format!("the program left no file `{name}`"),
        other => format!("`{name}` cannot be looked at: {other}"),
    })?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if stat.st_nlink == 1 => {}
        FileType::RegularFile => return Err(format!("`{name}` has {} links", stat.st_nlink)),
        FileType::Directory => return Err(format!("`{name}` is a folder")),
        FileType::Symlink => return Err(format!("`{name}` is a symbolic link")),
        _ => return Err(format!("`{name}` is not a regular file")),
    }
    openat2(folder, name, flags, Mode::empty(), resolve)
        .map(File::from)
        .map_err(|errno| format!("`{name}` cannot be opened: {errno}"))
}

/// `path` of the worker, from its root.
fn below(spec: &WorkerSpec, path: &RelativePath) -> String {
    format!("{}/{path}", spec.working_dir())
}

/// The worker's folder that is bound as a whole, where the output is a fresh one.
fn fresh_folder(spec: &WorkerSpec) -> Option<String> {
    let output = spec
        .output()
        .filter(|output| output.mode == CreateMode::Fresh)?;
    let path = below(spec, &output.path);
    path.rsplit_once('/').map(|(folder, _)| folder.to_owned())
}

fn inner<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    path.strip_prefix(folder)?.strip_prefix('/')
}

fn text(path: &Path) -> io::Result<String> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| io::Error::other(format!("`{}` is not UTF-8", path.display())))
}

/// With exactly these bits, whatever the umask is.
fn make_folder(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

fn new_file(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(path)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    Ok(file)
}

/// Root's workload owns its output, as on the other tiers. An ordinary user's may only write it:
/// the folder above keeps everybody else out.
fn give_away(path: &Path) -> io::Result<()> {
    match rustix::process::geteuid().is_root() {
        true => chown(path, Some(NOBODY), Some(NOBODY)),
        false => Ok(()),
    }
}

/// Copies exactly `bytes` bytes from the start of `content` to a new read-only file.
fn copy(content: &File, bytes: u64, to: &Path) -> io::Result<()> {
    let into = new_file(to, 0o600)?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut at = 0;
    while at < bytes {
        let want = usize::try_from(bytes - at).map_or(COPY_BYTES, |left| left.min(COPY_BYTES));
        let part = buffer.get_mut(..want).unwrap_or_default();
        content.read_exact_at(part, at)?;
        into.write_all_at(part, at)?;
        at += want as u64;
    }
    into.set_permissions(Permissions::from_mode(0o444))
}
