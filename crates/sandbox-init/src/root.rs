//! The worker's root file system: what of the host it shows, and nothing else.
//!
//! The order matters. Trees of the host are opened first, while init still has the caller's
//! host id and may pass private folders; the new root is made after init has taken its ids in
//! the namespace, because before that every creation on a tmpfs is refused.

use std::ffi::CString;
use std::fs;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, symlink};

use rustix::fs::{CWD, FileType};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount,
    mount_change, move_mount, open_tree, unmount,
};

use crate::halt::{At, Halt};
use crate::limits::{ROOT_BYTES, ROOT_INODES};
use crate::sys::attribute::{NODEV, NOEXEC, NOSUID, RDONLY};
use crate::sys::set_mount_attributes;
use crate::wire::{FileStamp, Plan};

/// Where the new root is put together, in init's own mount namespace.
const NEW_ROOT: &str = "/tmp";
/// Where an agent finds its broker.
const CHANNEL: &str = "/channel";

/// Folders of `/usr` that hold what the host's administrator added.
const HIDDEN: [&str; 2] = ["/usr/local", "/usr/src"];
const SYSTEM_LINKS: [&str; 6] = ["/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32"];
const SYSTEM_ETC: [&str; 6] = [
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
];
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];
const FOLDERS: [&str; 8] = [
    "/usr", "/etc", "/dev", "/dev/shm", "/proc", "/tmp", "/run", "/var",
];
const LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
    ("/tmp", "/var/tmp"),
];
const GENERATED: [(&str, &str); 7] = [
    (
        "/etc/passwd",
        "root:x:0:0:root:/:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n",
    ),
    ("/etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    ("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
    (
        "/etc/nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files\n",
    ),
    ("/etc/resolv.conf", ""),
    ("/etc/hostname", "worker\n"),
    ("/etc/host.conf", "multi on\n"),
];
/// Parts of `/proc` that say something about the host, as container runtimes hide them.
const MASKED: [&str; 18] = [
    "acpi",
    "asound",
    "config.gz",
    "interrupts",
    "kallsyms",
    "kcore",
    "keys",
    "kmsg",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "latency_stats",
    "sched_debug",
    "scsi",
    "slabinfo",
    "timer_list",
    "timer_stats",
    "vmallocinfo",
];
const READ_ONLY: [&str; 5] = ["bus", "fs", "irq", "sys", "sysrq-trigger"];

/// A part of the host, cloned and not yet attached.
struct Tree {
    tree: OwnedFd,
    path: String,
}

/// What of the host the worker will see.
pub(crate) struct Trees {
    trees: Vec<Tree>,
    links: Vec<(String, String)>,
}

/// `path` of the worker below the root that is being made.
pub(crate) fn below_root(path: &str) -> String {
    format!("{NEW_ROOT}{path}")
}

/// Opens all that the worker will see of the host.
pub(crate) fn open_trees(plan: &Plan) -> Result<Trees, Halt> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).at("make mounts private")?;
    let mut seen = Trees {
        trees: Vec::new(),
        links: Vec::new(),
    };
    seen.open("/usr", RDONLY | NOSUID | NODEV)?;
    for path in SYSTEM_LINKS {
        if let Ok(target) = fs::read_link(path) {
            let target = target.to_string_lossy().into_owned();
            seen.links.push((target, path.to_owned()));
        } else {
            seen.open_if_there(path, RDONLY | NOSUID | NODEV)?;
        }
    }
    for path in SYSTEM_ETC {
        seen.open_if_there(path, RDONLY | NOSUID | NODEV | NOEXEC)?;
    }
    match fs::read_link("/etc/localtime") {
        Ok(target) if target.starts_with("/usr") || target.starts_with("../usr") => {
            let target = target.to_string_lossy().into_owned();
            seen.links.push((target, "/etc/localtime".to_owned()));
        }
        _ => seen.open_if_there("/etc/localtime", RDONLY | NOSUID | NODEV | NOEXEC)?,
    }
    for device in DEVICES {
        // Not nodev: opening it would be refused.
        seen.open(&format!("/dev/{device}"), NOSUID | NOEXEC)?;
    }
    for path in &plan.also {
        if !HIDDEN.contains(&path.as_str()) {
            seen.open(path, RDONLY | NOSUID | NODEV)?;
        }
    }
    if let Some(folder) = &plan.channel {
        seen.open_as(folder, CHANNEL, RDONLY | NOSUID | NODEV | NOEXEC)?;
    }
    if let Some(file) = &plan.program_file {
        seen.open_as(&file.host, &file.path, RDONLY | NOSUID | NODEV)?;
        let opened = seen.trees.last().map(|it| stamp_of(it.tree.as_fd()));
        if opened.transpose().at_path("stat", &file.path)? != Some(file.stamp) {
            return Err(Halt::Changed {
                path: file.path.clone(),
            });
        }
    }
    Ok(seen)
}

impl Trees {
    fn open_as(&mut self, host: &str, path: &str, attributes: u64) -> Result<(), Halt> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE;
        let tree = open_tree(CWD, host, flags).at_path("open_tree", host)?;
        set_mount_attributes(tree.as_fd(), c"", attributes, true).at_path("mount_setattr", host)?;
        let path = path.to_owned();
        self.trees.push(Tree { tree, path });
        Ok(())
    }

    fn open(&mut self, path: &str, attributes: u64) -> Result<(), Halt> {
        self.open_as(path, path, attributes)
    }

    fn open_if_there(&mut self, path: &str, attributes: u64) -> Result<(), Halt> {
        match fs::metadata(path) {
            Ok(_) => self.open(path, attributes),
            Err(_) => Ok(()),
        }
    }
}

/// Makes the root and attaches the trees; `/proc` included, scratch and files not.
pub(crate) fn build(plan: &Plan, seen: &Trees) -> Result<(), Halt> {
    let inputs: u64 = plan
        .inputs
        .iter()
        .map(|input| input.bytes.next_multiple_of(4096))
        .sum();
    let (size, inodes) = (ROOT_BYTES + inputs, ROOT_INODES);
    mount_tmpfs(
        NEW_ROOT,
        MountFlags::empty(),
        &format!("mode=0755,size={size},nr_inodes={inodes}"),
    )?;
    for folder in FOLDERS {
        make_folders(&below_root(folder))?;
    }
    let fixed = LINKS.iter().map(|(target, path)| (*target, *path));
    let found = seen
        .links
        .iter()
        .map(|(target, path)| (target.as_str(), path.as_str()));
    for (target, path) in fixed.chain(found) {
        symlink(target, below_root(path)).at_path("link", path)?;
    }
    for (path, text) in GENERATED {
        write_new(&below_root(path), text.as_bytes(), 0o644)?;
    }
    for Tree { tree, path } in &seen.trees {
        attach(tree, path)?;
        if path == "/usr" {
            hide_local(plan)?;
        }
    }
    make_proc()
}

/// Makes the root read-only and enters it; the host's root is gone afterwards.
pub(crate) fn enter() -> Result<(), Halt> {
    let root = CString::new(NEW_ROOT).map_err(|_| Halt::step("root path"))?;
    set_mount_attributes(CWD, &root, RDONLY | NOSUID | NODEV, false).at("seal the root")?;
    rustix::process::chdir(NEW_ROOT).at("enter the root")?;
    rustix::process::pivot_root(".", ".").at("pivot_root")?;
    unmount(".", UnmountFlags::DETACH).at("leave the old root")?;
    rustix::process::chdir("/").at("enter the root")
}

fn hide_local(plan: &Plan) -> Result<(), Halt> {
    for path in HIDDEN {
        let place = below_root(path);
        if !plan.also.iter().any(|also| also == path) && fs::metadata(&place).is_ok() {
            mount_tmpfs(&place, MountFlags::RDONLY, "mode=0755,size=4k,nr_inodes=2")?;
        }
    }
    Ok(())
}

/// Attaches a cloned tree at the worker's `path`, making its mount point.
fn attach(tree: &OwnedFd, path: &str) -> Result<(), Halt> {
    let place = below_root(path);
    let stat = rustix::fs::fstat(tree).at_path("stat", path)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        make_folders(&place)?;
    } else {
        make_parents(&place)?;
        write_new(&place, b"", 0o444)?;
    }
    move_mount(
        tree,
        "",
        CWD,
        place.as_str(),
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )
    .at_path("move_mount", path)
}

/// Clones what `from` names and attaches it at `to`, which must exist; both below the new root.
pub(crate) fn bind(from: &str, to: &str, attributes: u64) -> Result<(), Halt> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(CWD, from, flags).at_path("open_tree", from)?;
    set_mount_attributes(tree.as_fd(), c"", attributes, true).at_path("mount_setattr", from)?;
    move_mount(&tree, "", CWD, to, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .at_path("move_mount", to)
}

fn make_proc() -> Result<(), Halt> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", below_root("/proc").as_str(), "proc", flags, None).at("mount proc")?;
    // A second lock beside seccomp: no user namespace below this one.
    fs::write(below_root("/proc/sys/user/max_user_namespaces"), "0")
        .at("forbid nested user namespaces")?;
    for name in MASKED {
        let place = below_root(&format!("/proc/{name}"));
        match fs::metadata(&place) {
            Err(_) => {}
            Ok(it) if it.is_dir() => {
                mount_tmpfs(&place, MountFlags::RDONLY, "size=0,nr_inodes=1,mode=0555")?;
            }
            Ok(_) => bind(&below_root("/dev/null"), &place, RDONLY | NOSUID | NOEXEC)?,
        }
    }
    for name in READ_ONLY {
        let place = below_root(&format!("/proc/{name}"));
        if fs::metadata(&place).is_ok() {
            bind(&place, &place, RDONLY | NOSUID | NODEV | NOEXEC)?;
        }
    }
    Ok(())
}

/// Mounts a tmpfs that is nosuid, nodev, noexec.
pub(crate) fn mount_tmpfs(place: &str, more: MountFlags, options: &str) -> Result<(), Halt> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | more;
    let options = CString::new(options).map_err(|_| Halt::step("tmpfs options"))?;
    mount("tmpfs", place, "tmpfs", flags, options.as_c_str()).at_path("mount tmpfs", place)
}

/// Makes a folder and those above it, 0755, as init.
pub(crate) fn make_folders(path: &str) -> Result<(), Halt> {
    fs::create_dir_all(path).at_path("make folder", path)
}

/// Makes the folders above `path`.
pub(crate) fn make_parents(path: &str) -> Result<(), Halt> {
    match path.rsplit_once('/') {
        Some((parent, _)) if !parent.is_empty() => make_folders(parent),
        _ => Ok(()),
    }
}

/// Makes a file that must not exist.
pub(crate) fn write_new(path: &str, content: &[u8], mode: u32) -> Result<(), Halt> {
    let mut options = fs::OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(mode).open(path);
    opened
        .and_then(|mut file| file.write_all(content))
        .at_path("create", path)
}

/// The state of an open file.
pub(crate) fn stamp_of(file: impl AsFd) -> rustix::io::Result<FileStamp> {
    let stat = rustix::fs::fstat(file)?;
    let nanos = |nanos: u64| u32::try_from(nanos).unwrap_or(u32::MAX);
    Ok(FileStamp {
        device: stat.st_dev,
        inode: stat.st_ino,
        bytes: stat.st_size.cast_unsigned(),
        modified: (stat.st_mtime, nanos(stat.st_mtime_nsec)),
        changed: (stat.st_ctime, nanos(stat.st_ctime_nsec)),
    })
}

/// The state of the file that `path` leads to.
pub(crate) fn stamp_at(path: &str) -> rustix::io::Result<FileStamp> {
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    stamp_of(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?)
}
