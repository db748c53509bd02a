//! The system calls that no safe interface covers, and the only `unsafe` of this crate.

use std::ffi::{CStr, CString, c_int};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;
const SIGNALS: c_int = 64;
/// Size in bytes of the kernel's own signal set.
const SIGSET_BYTES: usize = 8;
const SECCOMP_SET_MODE_FILTER: libc::c_uint = 1;
const LANDLOCK_CREATE_RULESET_VERSION: u32 = 1;

/// Mount attributes, as `mount_setattr` takes them.
pub(crate) mod attribute {
    pub(crate) const RDONLY: u64 = 1;
    pub(crate) const NOSUID: u64 = 2;
    pub(crate) const NODEV: u64 = 4;
    pub(crate) const NOEXEC: u64 = 8;
}

#[repr(C)]
#[derive(Default)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// The kernel's `struct sigaction`, which differs from the C library's.
#[repr(C)]
struct KernelSigaction {
    handler: usize,
    flags: libc::c_ulong,
    restorer: usize,
    mask: u64,
}

fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Closes every descriptor from 3 on. Only before this process has opened one itself.
pub(crate) fn close_inherited() -> io::Result<()> {
    // SAFETY: called first in `main`, when no Rust value owns a descriptor above 2.
    checked(unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) }).map(drop)
}

/// Marks every descriptor from 3 on to be closed by `execve`.
pub(crate) fn close_at_exec() -> io::Result<()> {
    // SAFETY: only changes the close-on-exec flag of descriptors.
    checked(unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, CLOSE_RANGE_CLOEXEC) })
        .map(drop)
}

/// One of the two returns of a process creation.
pub(crate) enum Forked {
    Child,
    Parent { pid: i32 },
}

/// Makes init: a sibling of this process, in new namespaces of every kind.
/// The descriptor is init's pidfd, in the parent only.
pub(crate) fn clone_init() -> io::Result<(Forked, Option<OwnedFd>)> {
    let flags = libc::CLONE_PARENT
        | libc::CLONE_PIDFD
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS;
    let mut pidfd: c_int = -1;
    // SAFETY: all fields of the kernel's structure are integers; zero is valid for each.
    let mut arguments: libc::clone_args = unsafe { zeroed() };
    arguments.flags = u64::from(flags.cast_unsigned());
    arguments.pidfd = ptr::from_mut(&mut pidfd) as u64;
    // SAFETY: without CLONE_VM this is a fork; the process has one thread, so the child may go
    // on in Rust; `pidfd` outlives the call.
    let pid = checked(unsafe {
        libc::syscall(
            libc::SYS_clone3,
            ptr::from_ref(&arguments),
            size_of::<libc::clone_args>(),
        )
    })?;
    if pid == 0 {
        return Ok((Forked::Child, None));
    }
    // SAFETY: the kernel has just made this descriptor for us.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    Ok((Forked::Parent { pid }, Some(pidfd)))
}

/// Makes the workload's process.
pub(crate) fn fork() -> io::Result<Forked> {
    // SAFETY: the process has one thread, so the child may go on in Rust.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent { pid }),
    }
}

/// Begins a session of its own. gVisor tells no id of it, which `rustix` takes for granted.
pub(crate) fn new_session() -> io::Result<()> {
    // SAFETY: no pointer is passed.
    checked(unsafe { libc::setsid() }.into()).map(drop)
}

/// Ends this process at once, without any handler.
pub(crate) fn exit(code: c_int) -> ! {
    // SAFETY: never returns and touches no memory.
    unsafe { libc::_exit(code) }
}

/// Sets mount attributes of what `at` and `path` name.
pub(crate) fn set_mount_attributes(
    at: BorrowedFd<'_>,
    path: &CStr,
    set: u64,
    recursive: bool,
) -> io::Result<()> {
    let attributes = MountAttr {
        set,
        ..MountAttr::default()
    };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: path and structure are valid for the whole call and only read.
    checked(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            at.as_raw_fd(),
            path.as_ptr(),
            flags,
            ptr::from_ref(&attributes),
            size_of::<MountAttr>(),
        )
    })
    .map(drop)
}

/// Moves this process to a cgroup namespace of its own, rooted where it now is.
pub(crate) fn unshare_cgroup() -> io::Result<()> {
    // SAFETY: changes only this process's cgroup namespace.
    checked(unsafe { libc::unshare(libc::CLONE_NEWCGROUP) }.into()).map(drop)
}

/// Raises the loopback interface of this network namespace.
pub(crate) fn raise_loopback() -> io::Result<()> {
    // SAFETY: the new descriptor is owned below; the structure is plain integers; the ioctl
    // reads it during the call only.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        checked(socket.into())?;
        let socket = OwnedFd::from_raw_fd(socket);
        let mut request: libc::ifreq = zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
            *to = from.cast_signed();
        }
        // IFF_UP | IFF_RUNNING is 0x41 and fits.
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        checked(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &request).into()).map(drop)
    }
}

/// Blocks SIGCHLD and returns the descriptor that reports it.
pub(crate) fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset; the descriptor is ours alone.
    unsafe {
        let mut set: libc::sigset_t = zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        checked(libc::sigprocmask(libc::SIG_BLOCK, &set, ptr::null_mut()).into())?;
        let descriptor = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        checked(descriptor.into())?;
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}

/// Gives every signal its default action and empties the mask, past what Rust, the C library and
/// the parent left behind (SIGPIPE ignored, 32 and 33 reserved).
pub(crate) fn reset_signals() -> io::Result<()> {
    let default = KernelSigaction {
        handler: libc::SIG_DFL,
        flags: 0,
        restorer: 0,
        mask: 0,
    };
    for signal in 1..=SIGNALS {
        if signal == libc::SIGKILL || signal == libc::SIGSTOP {
            continue;
        }
        // SAFETY: the structure has the kernel's layout and is only read; no handler is set.
        checked(unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                ptr::from_ref(&default),
                ptr::null_mut::<KernelSigaction>(),
                SIGSET_BYTES,
            )
        })?;
    }
    let none: u64 = 0;
    // SAFETY: the mask has the kernel's size and is only read.
    checked(unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            ptr::from_ref(&none),
            ptr::null_mut::<u64>(),
            SIGSET_BYTES,
        )
    })
    .map(drop)
}

/// Kills every process of this pid namespace but the caller, which must be its PID 1.
pub(crate) fn kill_all() -> io::Result<()> {
    // SAFETY: sends a signal; inside a pid namespace it reaches nothing outside.
    match checked(unsafe { libc::kill(-1, libc::SIGKILL) }.into()) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        other => other.map(drop),
    }
}

/// Loads one seccomp filter: instructions as the kernel lays them out, eight bytes each.
pub(crate) fn load_filter(instructions: &[u64]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(instructions.len()).map_err(io::Error::other)?,
        filter: instructions.as_ptr().cast_mut().cast(),
    };
    // SAFETY: `sock_filter` is eight bytes with an alignment of four, which a u64 satisfies;
    // the kernel copies and checks the program during the call.
    checked(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            SECCOMP_SET_MODE_FILTER,
            0u32,
            ptr::from_ref(&program),
        )
    })
    .map(drop)
}

/// Becomes `program`. Returns only where that failed.
pub(crate) fn execute(program: &CStr, argv: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
        let ends = std::iter::once(ptr::null());
        texts.iter().map(|text| text.as_ptr()).chain(ends).collect()
    };
    let (argv, environment) = (pointers(argv), pointers(environment));
    // SAFETY: both arrays end with a null pointer, and their texts outlive the call.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// The kernel's Landlock version; 0 where it has none or does not use it.
pub(crate) fn landlock_abi() -> u32 {
    // SAFETY: with this flag the call takes no structure and returns a number.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            ptr::null::<u8>(),
            0usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    };
    u32::try_from(version).unwrap_or(0)
}
