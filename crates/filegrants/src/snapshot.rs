//! Snapshots: a call's inputs as bytes that nobody can change any more.
//!
//! A snapshot is a file without a name in the private staging folder. Its bytes are hashed while
//! they are copied, so the digest is that of what the worker gets; dropping it frees its space.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use faults::{At, Point, reach};
use model::{Digest, Hasher};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::beneath::{self, BELOW, FOLDER, Identity, NAME_ONLY, Obstacle, READ};
use crate::held::{HeldCeiling, OpenError, StagingFault};
use crate::limits::CHUNK_BYTES_MAX;
use crate::pool::StagingPool;
use crate::refusal::InputFault;

/// Snapshots have no write bits, whoever looks.
const SNAPSHOT_MODE: Mode = Mode::RUSR;

/// The private folder that snapshots take their space from.
#[derive(Debug)]
pub(crate) struct Staging {
    folder: OwnedFd,
}

impl Staging {
    /// Opens the folder, which must be ours and mode 0700; makes it where it is missing.
    pub(crate) fn open_ambient(path: &Path) -> Result<Self, OpenError> {
        let fail = |fault| OpenError::Staging {
            folder: path.display().to_string(),
            fault,
        };
        let open = || {
            match rustix::fs::mkdir(path, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(other) => return Err(other),
            }
            let folder = rustix::fs::open(path, FOLDER, Mode::empty())?;
            let stat = rustix::fs::fstat(&folder)?;
            Ok((folder, stat))
        };
        let (folder, stat) =
            open().map_err(|errno: Errno| fail(StagingFault::Open(errno.into())))?;
        let user = rustix::process::geteuid().as_raw();
        if stat.st_uid != user {
            return Err(fail(StagingFault::NotOurs {
                owner: stat.st_uid,
                user,
            }));
        }
        let mode = stat.st_mode & 0o7777;
        if mode & 0o077 != 0 {
            return Err(fail(StagingFault::NotPrivate { mode }));
        }
        Ok(Self { folder })
    }

    pub(crate) fn into_folder(self) -> OwnedFd {
        self.folder
    }

    /// The folder as a bounded space.
    pub(crate) fn pool(&self, bytes_max: u64) -> Result<StagingPool, OpenError> {
        let folder = self.folder.try_clone().map_err(|source| OpenError::Io {
            step: "hold the staging folder",
            source,
        })?;
        Ok(StagingPool::new(folder, bytes_max))
    }

    /// A new file without a name: a handle to fill it, and one that can only read.
    fn nameless_file(&self) -> Result<(File, File), Errno> {
        match self.nameless_file_of_kernel() {
            Ok(pair) => Ok(pair),
            Err(full @ (Errno::NOSPC | Errno::DQUOT | Errno::MFILE | Errno::NFILE)) => Err(full),
            Err(_) => self.nameless_file_by_unlink(),
        }
    }

    fn nameless_file_of_kernel(&self) -> Result<(File, File), Errno> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::EXCL | OFlags::CLOEXEC;
        let writer = rustix::fs::openat(&self.folder, ".", flags, SNAPSHOT_MODE)?;
        let name = format!("/proc/self/fd/{}", writer.as_raw_fd());
        let reader = rustix::fs::open(name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let same = |a: &Stat, b: &Stat| Identity::from_stat(a) == Identity::from_stat(b);
        if !same(&rustix::fs::fstat(&writer)?, &rustix::fs::fstat(&reader)?) {
            return Err(Errno::STALE); // something else is mounted at /proc
        }
        Ok((writer.into(), reader.into()))
    }

    /// For file systems without `O_TMPFILE`: the name lives between three system calls.
    fn nameless_file_by_unlink(&self) -> Result<(File, File), Errno> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|_| Errno::IO)?;
        let name = format!("snapshot-{:032x}", u128::from_ne_bytes(random));
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let writer = rustix::fs::openat(&self.folder, &name, flags, SNAPSHOT_MODE)?;
        let reader = beneath::open(&self.folder, &name, READ, BELOW);
        rustix::fs::unlinkat(&self.folder, &name, AtFlags::empty())?;
        Ok((writer.into(), reader?.into()))
    }
}

/// An input that has been opened and found fit, but not yet read.
pub(crate) struct Input {
    file: File,
    stat: Stat,
    pub(crate) bytes: u64,
}

impl Input {
    /// Opens `rest` below `ceiling`. A link, a folder, a FIFO, a device, a second hard link, a
    /// file over `max` is refused, and none of them is waited for.
    pub(crate) fn open(rest: &str, ceiling: &HeldCeiling, max: u64) -> Result<Self, InputFault> {
        let unreachable = |errno| {
            let obstacle = beneath::obstacle(ceiling.root(), rest, BELOW, errno);
            InputFault::Unreachable(obstacle.under(&ceiling.ceiling.guest))
        };
        let named = beneath::open(ceiling.root(), rest, NAME_ONLY, BELOW).map_err(unreachable)?;
        let stat = fstat(&named)?;
        check_kind(&stat, ceiling, rest)?;
        let file = beneath::open(ceiling.root(), rest, READ, BELOW).map_err(unreachable)?;
        let opened = fstat(&file)?;
        if !is_same_state(&stat, &opened) {
            return Err(InputFault::Changed);
        }
        let bytes = u64::try_from(opened.st_size).unwrap_or(u64::MAX);
        if bytes > max {
            return Err(InputFault::TooLarge { bytes, max });
        }
        Ok(Self {
            file: file.into(),
            stat: opened,
            bytes,
        })
    }

    /// Copies and hashes the bytes, and refuses a file that changed meanwhile.
    pub(crate) fn snapshot(
        mut self,
        staging: &Staging,
        chunk: &mut Chunk,
    ) -> Result<Snapshot, InputFault> {
        let (mut writer, reader) = reach(Point::SnapshotOpen)
            .and_then(|()| Ok(staging.nameless_file()?))
            .map_err(staging_fault)?;
        let mut to = At {
            point: Point::SnapshotWrite,
            writer: &mut writer,
        };
        let copied = chunk.copy(&mut self.file, &mut to, self.bytes);
        let (copied, sha256) = copied.map_err(|error| match error {
            CopyError::Longer => InputFault::Changed,
            CopyError::Read(source) => InputFault::Io {
                step: "read it",
                source,
            },
            CopyError::Write(source) => staging_fault(source),
        })?;
        if copied != self.bytes || !is_same_state(&self.stat, &fstat(&self.file)?) {
            return Err(InputFault::Changed);
        }
        Ok(Snapshot {
            file: reader,
            bytes: copied,
            sha256,
        })
    }
}

/// The bytes of one input, fixed.
pub(crate) struct Snapshot {
    pub(crate) file: File,
    pub(crate) bytes: u64,
    pub(crate) sha256: Digest,
}

fn fstat(file: impl AsFd) -> Result<Stat, InputFault> {
    rustix::fs::fstat(file).map_err(|errno| InputFault::Io {
        step: "look at it",
        source: errno.into(),
    })
}

fn check_kind(stat: &Stat, ceiling: &HeldCeiling, rest: &str) -> Result<(), InputFault> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => match beneath::links(stat) {
            1 => Ok(()),
            links => Err(InputFault::HardLinks { links }),
        },
        FileType::Symlink => {
            let link = Obstacle::Link {
                component: rest.to_owned(),
            };
            Err(InputFault::Unreachable(link.under(&ceiling.ceiling.guest)))
        }
        other => Err(InputFault::NotRegular {
            kind: beneath::kind_name(other),
        }),
    }
}

/// One inode in one state: nobody wrote, linked or changed it between the two looks.
pub(crate) fn is_same_state(a: &Stat, b: &Stat) -> bool {
    let state = |it: &Stat| {
        let times = (it.st_mtime, it.st_mtime_nsec, it.st_ctime, it.st_ctime_nsec);
        (
            it.st_dev,
            it.st_ino,
            it.st_mode,
            it.st_nlink,
            it.st_size,
            times,
        )
    };
    state(a) == state(b)
}

fn staging_fault(source: io::Error) -> InputFault {
    match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => InputFault::StagingFull,
        _ => InputFault::Io {
            step: "make a snapshot of it",
            source,
        },
    }
}

/// The buffer of a copy, made once for all files of a call.
pub(crate) struct Chunk(Vec<u8>);

/// How a bounded copy ended badly.
#[derive(Debug)]
pub(crate) enum CopyError {
    /// The source has more bytes than it was said to have.
    Longer,
    Read(io::Error),
    Write(io::Error),
}

impl Chunk {
    pub(crate) fn new() -> Self {
        Self(vec![0; CHUNK_BYTES_MAX])
    }

    /// Copies `from` to its end, hashing; stops with [`CopyError::Longer`] past `max` bytes.
    pub(crate) fn copy(
        &mut self,
        from: &mut impl Read,
        to: &mut impl Write,
        max: u64,
    ) -> Result<(u64, Digest), CopyError> {
        let mut hasher = Hasher::new();
        let mut copied = 0_u64;
        loop {
            let count = match from.read(&mut self.0) {
                Ok(0) => return Ok((copied, hasher.finish())),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(CopyError::Read(error)),
            };
            copied += count as u64;
            if copied > max {
                return Err(CopyError::Longer);
            }
            let bytes = self.0.get(..count).unwrap_or_default();
            hasher.update(bytes);
            to.write_all(bytes).map_err(CopyError::Write)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::DirBuilderExt;

    use super::*;
    use crate::ceiling::Ceilings;
    use crate::held::Anchors;

    struct Scene {
        folder: tempfile::TempDir,
        ceiling: HeldCeiling,
        staging: Staging,
    }

    fn scene() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let staging = folder.path().join("staging");
        fs::DirBuilder::new().mode(0o700).create(&staging).unwrap();
        fs::create_dir(folder.path().join("data")).unwrap();
        fs::write(folder.path().join("data/x"), [1; 4096]).unwrap();
        let project = OwnedFd::from(File::open(folder.path()).unwrap());
        let mut ceilings = Ceilings::parse(&["./data:/w:ro".to_owned()], "/w").unwrap();
        let anchors = Anchors::hold(project).unwrap();
        let ceiling = HeldCeiling::open(ceilings.0.remove(0), &anchors).unwrap();
        Scene {
            folder,
            ceiling,
            staging: Staging::open_ambient(&staging).unwrap(),
        }
    }

    #[test]
    fn growth_shrinkage_rewriting_and_a_new_link_while_reading_are_refused() {
        type Change = fn(&Path);
        let changes: [Change; 4] = [
            |path| fs::write(path, [1; 4097]).unwrap(),
            |path| fs::write(path, [1; 4095]).unwrap(),
            |path| fs::write(path, [2; 4096]).unwrap(),
            |path| fs::hard_link(path, path.with_extension("second")).unwrap(),
        ];
        for change in changes {
            let scene = scene();
            let input = Input::open("x", &scene.ceiling, 1 << 20).unwrap();
            change(&scene.folder.path().join("data/x"));
            let snapshot = input.snapshot(&scene.staging, &mut Chunk::new());
            assert!(matches!(snapshot, Err(InputFault::Changed)));
        }
    }

    #[test]
    fn a_file_system_without_nameless_files_leaves_no_name_either() {
        let scene = scene();
        let (mut writer, mut reader) = scene.staging.nameless_file_by_unlink().unwrap();
        assert_eq!(
            fs::read_dir(scene.folder.path().join("staging"))
                .unwrap()
                .count(),
            0
        );
        writer.write_all(b"bytes").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "bytes");
        let stat = rustix::fs::fstat(&reader).unwrap();
        assert_eq!((stat.st_mode & 0o777, beneath::links(&stat)), (0o400, 0));
    }

    #[test]
    fn a_copy_stops_past_its_bound_and_hashes_what_it_copied() {
        let copy = |max| {
            let mut to = Vec::new();
            let copied = Chunk::new().copy(&mut [5_u8; 10].as_slice(), &mut to, max);
            (copied, to)
        };
        let (copied, to) = copy(10);
        assert_eq!(copied.unwrap(), (10, Digest::of(&[5; 10])));
        assert_eq!(to, [5; 10]);
        assert!(matches!(copy(9).0, Err(CopyError::Longer)));
    }
}
