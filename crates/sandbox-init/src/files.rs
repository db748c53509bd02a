//! Scratch space, inputs and the output of one worker.
//!
//! Inputs are copied, never bound: a bind would show the workload the host's path of the file.
//! The output is a file that init holds open from its creation on, or a private folder in which
//! init looks for one name once everybody else is dead.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, chown};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::mount::{MountFlags, UnmountFlags, unmount};

use crate::halt::{At, Halt};
use crate::limits::{FRESH_INODES, SCRATCH_INODES, SLACK_BYTES};
use crate::root::{below_root, bind, make_folders, make_parents, mount_tmpfs, write_new};
use crate::sys::attribute::{NODEV, NOEXEC, NOSUID, RDONLY};
use crate::wire::{Output, OutputMode, OutputReport, Plan};

/// The workload's id inside the worker.
pub(crate) const WORKLOAD_ID: u32 = 65534;
/// Where files lie that are only reached through their binds. Detached before the workload runs.
const HIDDEN: &str = "/run/files";
const COPY_BYTES: usize = 128 << 10;

/// The output as init holds it while the workload runs.
pub(crate) enum HeldOutput {
    None,
    File { file: OwnedFd },
    Fresh { folder: OwnedFd, name: String },
}

/// Makes scratch space, inputs and output below the new root.
pub(crate) fn place(plan: &Plan, inputs: &[File]) -> Result<HeldOutput, Halt> {
    make_scratch(plan)?;
    let fresh = make_fresh(plan)?;
    let needs_hidden = plan
        .output
        .as_ref()
        .is_some_and(|it| it.mode == OutputMode::File)
        || plan
            .inputs
            .iter()
            .any(|input| is_writable_place(plan, &input.path));
    if needs_hidden {
        let inputs: u64 = plan
            .inputs
            .iter()
            .map(|it| it.bytes.next_multiple_of(4096))
            .sum();
        let size = inputs + plan.bounds.file_bytes.next_multiple_of(4096) + SLACK_BYTES;
        make_folders(&below_root(HIDDEN))?;
        mount_tmpfs(
            &below_root(HIDDEN),
            MountFlags::empty(),
            &format!("mode=0755,size={size},nr_inodes=256"),
        )?;
    }
    for (index, (input, content)) in plan.inputs.iter().zip(inputs).enumerate() {
        let place = below_root(&input.path);
        make_parents(&place)?;
        if is_writable_place(plan, &input.path) {
            let hidden = below_root(&format!("{HIDDEN}/input-{index}"));
            copy_input(content, input.bytes, &hidden)?;
            write_new(&place, b"", 0o444)?;
            bind(&hidden, &place, RDONLY | NOSUID | NODEV | NOEXEC)?;
        } else {
            copy_input(content, input.bytes, &place)?;
        }
    }
    let held = match (fresh, &plan.output) {
        (Some(fresh), _) => fresh,
        (None, Some(output)) => make_file(output)?,
        (None, None) => HeldOutput::None,
    };
    if needs_hidden {
        let hidden = below_root(HIDDEN);
        unmount(hidden.as_str(), UnmountFlags::DETACH).at("detach hidden files")?;
        fs::remove_dir(&hidden).at("remove the hidden folder")?;
    }
    Ok(held)
}

/// The folders in which the workload may create, rename and remove.
pub(crate) fn writable_folders(plan: &Plan) -> Vec<&str> {
    let mut folders = vec!["/tmp", "/dev/shm"];
    if plan.working_dir_writable {
        folders.push(&plan.working_dir);
    }
    folders.extend(fresh_folder(plan));
    folders
}

fn fresh_folder(plan: &Plan) -> Option<&str> {
    let output = plan
        .output
        .as_ref()
        .filter(|it| it.mode == OutputMode::Fresh)?;
    output.path.rsplit_once('/').map(|(folder, _)| folder)
}

fn is_writable_place(plan: &Plan, path: &str) -> bool {
    let below = |folder: &str| {
        path.strip_prefix(folder)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    (plan.working_dir_writable && below(&plan.working_dir)) || fresh_folder(plan).is_some_and(below)
}

/// One bounded tmpfs, seen at every scratch place.
fn make_scratch(plan: &Plan) -> Result<(), Halt> {
    let hidden = below_root(HIDDEN);
    make_folders(&hidden)?;
    let size = plan.bounds.scratch_bytes;
    mount_tmpfs(
        &hidden,
        MountFlags::empty(),
        &format!("mode=0755,size={size},nr_inodes={SCRATCH_INODES}"),
    )?;
    make_folders(&below_root(&plan.working_dir))?;
    let mut places = vec![("tmp", "/tmp", 0o1777), ("shm", "/dev/shm", 0o1777)];
    if plan.working_dir_writable {
        places.push(("work", &plan.working_dir, 0o755));
    }
    for (name, place, mode) in places {
        let folder = format!("{hidden}/{name}");
        fs::create_dir(&folder).at_path("make", place)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).at_path("chmod", place)?;
        chown(&folder, Some(WORKLOAD_ID), Some(WORKLOAD_ID)).at_path("chown", place)?;
        bind(&folder, &below_root(place), NOSUID | NODEV | NOEXEC)?;
    }
    unmount(hidden.as_str(), UnmountFlags::DETACH).at("detach scratch")?;
    fs::remove_dir(&hidden).at("remove the hidden folder")
}

/// The private folder of a fresh output, held open.
fn make_fresh(plan: &Plan) -> Result<Option<HeldOutput>, Halt> {
    let (Some(folder), Some(output)) = (fresh_folder(plan), &plan.output) else {
        return Ok(None);
    };
    let place = below_root(folder);
    make_folders(&place)?;
    // Twice the output: a program may write its second version beside the first.
    let size = plan.bounds.file_bytes.next_multiple_of(4096) * 2 + SLACK_BYTES;
    let id = WORKLOAD_ID;
    mount_tmpfs(
        &place,
        MountFlags::empty(),
        &format!("mode=0755,uid={id},gid={id},size={size},nr_inodes={FRESH_INODES}"),
    )?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let held = rustix::fs::open(place.as_str(), flags, Mode::empty()).at("open output folder")?;
    let name = output
        .path
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .to_owned();
    Ok(Some(HeldOutput::Fresh { folder: held, name }))
}

/// The empty output file at its path, held open.
fn make_file(output: &Output) -> Result<HeldOutput, Halt> {
    let hidden = below_root(&format!("{HIDDEN}/output"));
    let place = below_root(&output.path);
    write_new(&hidden, b"", 0o644)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(hidden.as_str(), flags, Mode::empty()).at("open output")?;
    // The workload's id, not init's: otherwise it could not open the file.
    chown(&hidden, Some(WORKLOAD_ID), Some(WORKLOAD_ID)).at("chown output")?;
    make_parents(&place)?;
    write_new(&place, b"", 0o444)?;
    bind(&hidden, &place, NOSUID | NODEV | NOEXEC)?;
    Ok(HeldOutput::File { file })
}

/// Copies exactly `bytes` bytes from the start of `content` to a new file.
fn copy_input(content: &File, bytes: u64, to: &str) -> Result<(), Halt> {
    let copied = || -> io::Result<()> {
        let mut options = fs::OpenOptions::new();
        let into = options.write(true).create_new(true).mode(0o444).open(to)?;
        let mut buffer = vec![0; COPY_BYTES];
        let mut at = 0;
        while at < bytes {
            let want = usize::try_from(bytes - at)
                .unwrap_or(COPY_BYTES)
                .min(COPY_BYTES);
            let part = buffer.get_mut(..want).unwrap_or_default();
            content.read_exact_at(part, at)?;
            into.write_all_at(part, at)?;
            at += want as u64;
        }
        Ok(())
    };
    copied().at_path("copy input", to)
}

/// Looks at the output when only init is left, and says what it is.
pub(crate) fn collect(held: HeldOutput) -> (OutputReport, Option<OwnedFd>) {
    let unusable = |reason: String| (OutputReport::Unusable { reason }, None);
    match held {
        HeldOutput::None => (OutputReport::NotGranted, None),
        HeldOutput::File { file } => (OutputReport::Written, Some(file)),
        HeldOutput::Fresh { folder, name } => match open_fresh(&folder, &name) {
            Ok(file) => (OutputReport::Written, Some(file)),
            Err(reason) => unusable(reason),
        },
    }
}

fn open_fresh(folder: &OwnedFd, name: &str) -> Result<OwnedFd, String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    use rustix::io::Errno;
    let file =
        openat2(folder, name, flags, Mode::empty(), resolve).map_err(|errno| match errno {
            Errno::NOENT => format!("the program left no file `{name}`"),
            Errno::LOOP => format!("`{name}` is a symbolic link"),
            Errno::NXIO => format!("`{name}` is not a regular file"),
            other => format!("`{name}` cannot be opened: {other}"),
        })?;
    let stat = rustix::fs::fstat(&file).map_err(|errno| format!("`{name}`: {errno}"))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if stat.st_nlink == 1 => Ok(file),
        FileType::RegularFile => Err(format!("`{name}` has {} links", stat.st_nlink)),
        FileType::Directory => Err(format!("`{name}` is a folder")),
        _ => Err(format!("`{name}` is not a regular file")),
    }
}
