//! Control groups, where this process may make them: version 1 beside its own group in each
//! hierarchy, version 2 in the nearest group that is delegated to it.
//!
//! Without any, memory and CPU are only partly bounded, and the tier says so. A transient scope
//! of the service manager is not asked for.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::limits::{CPU_PERIOD_MICROS, CPU_QUOTA_MICROS_MIN, GROUP_REMOVALS_MAX};
use crate::slots::lock_file;

/// What a group can bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Controller {
    Memory,
    Pids,
    Cpu,
}

const CONTROLLERS: [(&str, Controller); 3] = [
    ("memory", Controller::Memory),
    ("pids", Controller::Pids),
    ("cpu", Controller::Cpu),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A folder in which groups of workers are made.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Home {
    version: Version,
    folder: PathBuf,
    controllers: BTreeSet<Controller>,
}

/// All that this process may make groups in.
#[derive(Debug)]
pub(crate) struct Cgroups {
    homes: Vec<Home>,
    /// Names the groups of this owner; held locked, so that a later owner can tell them from
    /// those of a dead one.
    tag: String,
    lock: Option<(PathBuf, File)>,
}

/// The bounds of one worker's groups.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupBounds {
    pub(crate) memory_mib: u64,
    pub(crate) cpu_milli: u64,
    pub(crate) pids: u64,
}

/// The groups of one worker. Removed when dropped.
#[derive(Debug, Default)]
pub(crate) struct WorkerGroups {
    groups: Vec<Group>,
}

#[derive(Debug)]
struct Group {
    folder: PathBuf,
    home: Home,
}

impl Cgroups {
    /// Finds the homes, and removes what dead owners left there. `locks` is the folder of this
    /// user's lock files.
    pub(crate) fn find(tag: String, locks: Option<&Path>) -> io::Result<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mut homes = homes_of(&own, &mounts);
        homes.retain(Home::works);
        let mut lock = None;
        if let (Some(locks), false) = (locks, homes.is_empty()) {
            let path = locks.join(format!("owner-{tag}.lock"));
            lock = lock_file(&path)?.map(|file| (path, file));
            sweep(&homes, locks);
        }
        Ok(Self { homes, tag, lock })
    }

    pub(crate) fn can(&self, controller: Controller) -> bool {
        self.homes
            .iter()
            .any(|home| home.controllers.contains(&controller))
    }

    /// Makes the groups of the worker `number`, with their bounds.
    pub(crate) fn create(&self, number: u64, bounds: GroupBounds) -> io::Result<WorkerGroups> {
        let mut made = WorkerGroups::default();
        for home in &self.homes {
            let folder = home.folder.join(format!("symbi-{}-{number}", self.tag));
            fs::create_dir(&folder)?;
            made.groups.push(Group {
                folder: folder.clone(),
                home: home.clone(),
            });
            home.bound(&folder, bounds)?;
        }
        Ok(made)
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        if let Some((path, _)) = &self.lock {
            // Where it stays, a later owner removes it.
            let _removed = fs::remove_file(path);
        }
    }
}

impl Home {
    /// Whether groups can be made and joined here.
    fn works(&self) -> bool {
        let procs = self.folder.join("cgroup.procs");
        let may = |path: &Path, access| accessat(CWD, path, access, AtFlags::EACCESS).is_ok();
        may(&self.folder, Access::WRITE_OK | Access::EXEC_OK) && may(&procs, Access::WRITE_OK)
    }

    /// Whether no group of that owner is left.
    fn remove_groups_of(&self, tag: &str) -> bool {
        let prefix = format!("symbi-{tag}-");
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut groups =
            entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
        groups.all(|entry| fs::remove_dir(entry.path()).is_ok())
    }

    fn bound(&self, folder: &Path, bounds: GroupBounds) -> io::Result<()> {
        let write = |file: &str, text: String| set(&folder.join(file), &text);
        let memory = bounds.memory_mib.saturating_mul(1 << 20).to_string();
        let quota =
            (bounds.cpu_milli.saturating_mul(CPU_PERIOD_MICROS) / 1000).max(CPU_QUOTA_MICROS_MIN);
        // Init is in the group too.
        let pids = bounds.pids.saturating_add(1).to_string();
        for controller in &self.controllers {
            match (self.version, controller) {
                (Version::One, Controller::Memory) => {
                    write("memory.limit_in_bytes", memory.clone())?;
                    if_there(write("memory.memsw.limit_in_bytes", memory.clone()))?;
                }
                (Version::Two, Controller::Memory) => {
                    write("memory.max", memory.clone())?;
                    if_there(write("memory.swap.max", "0".to_owned()))?;
                }
                (_, Controller::Pids) => write("pids.max", pids.clone())?,
                (Version::One, Controller::Cpu) => {
                    write("cpu.cfs_period_us", CPU_PERIOD_MICROS.to_string())?;
                    write("cpu.cfs_quota_us", quota.to_string())?;
                }
                (Version::Two, Controller::Cpu) => {
                    write("cpu.max", format!("{quota} {CPU_PERIOD_MICROS}"))?;
                }
            }
        }
        Ok(())
    }
}

/// Removes the groups of owners that are dead, and then their locks. A group whose owner has no
/// lock here is somebody else's and stays.
fn sweep(homes: &[Home], locks: &Path) {
    for entry in fs::read_dir(locks).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let tag = name
            .strip_prefix("owner-")
            .and_then(|rest| rest.strip_suffix(".lock"));
        let Some(tag) = tag else { continue };
        // Held while the groups are removed; a live owner's is not to be had.
        let Ok(Some(_lock)) = lock_file(&entry.path()) else {
            continue;
        };
        let is_clean = homes.iter().all(|home| home.remove_groups_of(tag));
        if is_clean {
            let _removed = fs::remove_file(entry.path());
        }
    }
}

impl WorkerGroups {
    /// The files by which a process joins.
    pub(crate) fn open_members(&self) -> io::Result<Vec<File>> {
        let open = |group: &Group| {
            OpenOptions::new()
                .write(true)
                .open(group.folder.join("cgroup.procs"))
        };
        self.groups.iter().map(open).collect()
    }

    /// Whether the kernel killed a process of the worker for its memory.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        self.groups.iter().any(|group| {
            let file = match group.home.version {
                Version::One => "memory.oom_control",
                Version::Two => "memory.events",
            };
            fs::read_to_string(group.folder.join(file)).is_ok_and(|text| oom_kills(&text) > 0)
        })
    }

    /// Removes the groups; every process must be gone.
    pub(crate) fn remove(&mut self) -> io::Result<()> {
        while let Some(group) = self.groups.last() {
            remove_group(&group.folder)?;
            self.groups.pop();
        }
        Ok(())
    }
}

impl Drop for WorkerGroups {
    fn drop(&mut self) {
        // Where one stays, the next owner sweeps it.
        let _removed = self.remove();
    }
}

fn remove_group(folder: &Path) -> io::Result<()> {
    let mut attempts = 0;
    loop {
        match fs::remove_dir(folder) {
            // The kernel still counts the last process for a moment after its parent has
            // reaped it.
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && attempts < GROUP_REMOVALS_MAX =>
            {
                attempts += 1;
                rustix::thread::sched_yield();
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => return other,
        }
    }
}

fn set(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(text.as_bytes())
}

/// Success also where the kernel has no such file.
fn if_there(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn oom_kills(text: &str) -> u64 {
    let value = |line: &str| line.strip_prefix("oom_kill ")?.trim().parse().ok();
    text.lines().find_map(value).unwrap_or(0)
}

/// One mounted hierarchy.
struct Mounted<'a> {
    /// The group that is seen at the mount point.
    root: &'a str,
    place: &'a str,
    version: Version,
    options: &'a str,
}

fn homes_of(own: &str, mounts: &str) -> Vec<Home> {
    let mounted: Vec<Mounted<'_>> = mounts.lines().filter_map(mounted).collect();
    let mut homes = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(names), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        homes.extend(if names.is_empty() {
            home_two(path, &mounted)
        } else {
            home_one(names, path, &mounted)
        });
    }
    homes
}

/// Version 1: groups are made below this process's own.
fn home_one(names: &str, path: &str, mounted: &[Mounted<'_>]) -> Option<Home> {
    let known = |name: &str| CONTROLLERS.iter().find(|(known, _)| *known == name);
    let controllers: BTreeSet<_> = names
        .split(',')
        .filter_map(known)
        .map(|(_, controller)| *controller)
        .collect();
    let first = names.split(',').next()?;
    if controllers.is_empty() {
        return None;
    }
    let folder = mounted
        .iter()
        .filter(|it| it.version == Version::One)
        .find_map(|it| {
            let same = it.options.split(',').any(|option| option == first);
            if same { folder_of(it, path) } else { None }
        })?;
    Some(Home {
        version: Version::One,
        folder,
        controllers,
    })
}

/// Version 2: a group with processes hands no controllers down, so groups are made in the
/// nearest one above that does.
fn home_two(path: &str, mounted: &[Mounted<'_>]) -> Option<Home> {
    let mount = mounted.iter().find(|it| it.version == Version::Two)?;
    let own = folder_of(mount, path)?;
    let mut at = own.as_path();
    loop {
        let handed = fs::read_to_string(at.join("cgroup.subtree_control")).unwrap_or_default();
        let known = |name: &str| CONTROLLERS.iter().find(|(known, _)| *known == name);
        let controllers: BTreeSet<_> = handed
            .split_whitespace()
            .filter_map(known)
            .map(|(_, it)| *it)
            .collect();
        if !controllers.is_empty() {
            return Some(Home {
                version: Version::Two,
                folder: at.to_path_buf(),
                controllers,
            });
        }
        at = at
            .parent()
            .filter(|parent| parent.starts_with(mount.place))?;
    }
}

/// Where the group `path` is seen below a mount.
fn folder_of(mount: &Mounted<'_>, path: &str) -> Option<PathBuf> {
    let below = if mount.root == "/" {
        path.strip_prefix('/')?
    } else {
        let rest = path.strip_prefix(mount.root)?;
        if !rest.is_empty() && !rest.starts_with('/') {
            return None;
        }
        rest.trim_start_matches('/')
    };
    Some(Path::new(mount.place).join(below))
}

/// `id parent dev ROOT PLACE options … - TYPE source OPTIONS`
fn mounted(line: &str) -> Option<Mounted<'_>> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let (root, place) = (left.next()?, left.next()?);
    let mut right = right.split(' ');
    let version = match right.next()? {
        "cgroup" => Version::One,
        "cgroup2" => Version::Two,
        _ => return None,
    };
    let options = right.nth(1)?;
    Some(Mounted {
        root,
        place,
        version,
        options,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
33 32 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
37 32 0:34 /ours /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
42 32 0:39 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
43 32 0:40 / /proc rw - proc proc rw";

    #[test]
    fn version_1_homes_are_this_process_own_groups() {
        let own = "5:memory:/ours/a\n2:cpu,cpuacct:/\n1:freezer:/\n0::/";
        let homes = homes_of(own, MOUNTS);
        let folders: Vec<_> = homes
            .iter()
            .map(|home| home.folder.to_str().unwrap())
            .collect();
        assert_eq!(
            folders,
            ["/sys/fs/cgroup/memory/a", "/sys/fs/cgroup/cpu,cpuacct/"]
        );
        assert_eq!(homes[1].controllers, BTreeSet::from([Controller::Cpu]));
    }

    #[test]
    fn a_group_outside_the_mounts_root_has_no_home() {
        assert!(homes_of("5:memory:/oursish", MOUNTS).is_empty());
        assert!(homes_of("5:memory:/other", MOUNTS).is_empty());
    }

    #[test]
    fn the_version_2_home_is_the_nearest_that_hands_controllers_down() {
        let root = tempfile::tempdir().unwrap();
        let leaf = root.path().join("user/shell");
        fs::create_dir_all(&leaf).unwrap();
        fs::write(leaf.join("cgroup.subtree_control"), "\n").unwrap();
        let place = root.path().to_str().unwrap();
        let mounts = format!("42 32 0:39 / {place} rw - cgroup2 cgroup2 rw");
        assert!(homes_of("0::/user/shell", &mounts).is_empty());
        fs::write(
            root.path().join("user/cgroup.subtree_control"),
            "cpu memory pids\n",
        )
        .unwrap();
        let homes = homes_of("0::/user/shell", &mounts);
        assert_eq!(homes.len(), 1);
        assert_eq!(homes[0].folder, root.path().join("user"));
        assert_eq!(homes[0].controllers.len(), 3);
    }

    #[test]
    fn version_2_bounds_have_their_own_files_and_spelling() {
        let root = tempfile::tempdir().unwrap();
        for file in ["memory.max", "pids.max", "cpu.max"] {
            fs::write(root.path().join(file), "max").unwrap();
        }
        let home = Home {
            version: Version::Two,
            folder: root.path().to_path_buf(),
            controllers: BTreeSet::from([Controller::Memory, Controller::Pids, Controller::Cpu]),
        };
        let bounds = GroupBounds {
            memory_mib: 64,
            cpu_milli: 500,
            pids: 7,
        };
        home.bound(root.path(), bounds).unwrap();
        let read = |file: &str| fs::read_to_string(root.path().join(file)).unwrap();
        assert_eq!(read("memory.max"), "67108864");
        assert!(read("pids.max").starts_with('8'));
        assert_eq!(read("cpu.max"), "50000 100000");
    }

    #[test]
    fn kills_are_read_in_both_spellings() {
        assert_eq!(
            oom_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
            3
        );
        assert_eq!(oom_kills("low 0\noom 4\noom_kill 2\noom_group_kill 0\n"), 2);
        assert_eq!(oom_kills(""), 0);
    }
}
