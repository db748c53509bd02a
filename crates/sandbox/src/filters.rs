//! The system calls that a workload may make.
//!
//! Three filters, because a filter has one answer for what it matches: calls that programs probe
//! and that are refused honestly, sockets of other families, and last the list of what is
//! allowed. The list must be loaded last, because it forbids loading, and must allow what the two
//! others refuse: of two refusals the newest filter's is the one that counts.

use std::collections::BTreeMap;
use std::fmt;

use libc::*;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use serde_json::json;

#[cfg(target_arch = "x86_64")]
const ARCH: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCH: TargetArch = TargetArch::aarch64;

/// System calls, each with its number and the name by which engines know it.
macro_rules! calls {
    ($($name:ident),* $(,)?) => {
        &[$(call!($name)),*]
    };
}
macro_rules! call {
    ($name:ident) => {
        (stringify!($name), $name)
    };
}

/// A system call's constant and its number.
type Call = (&'static str, c_long);

/// Allowed with every argument.
const ALLOWED: &[Call] = calls![
    // files
    SYS_read,
    SYS_write,
    SYS_close,
    SYS_fstat,
    SYS_lseek,
    SYS_pread64,
    SYS_pwrite64,
    SYS_readv,
    SYS_writev,
    SYS_preadv,
    SYS_pwritev,
    SYS_preadv2,
    SYS_pwritev2,
    SYS_dup,
    SYS_dup3,
    SYS_pipe2,
    SYS_sendfile,
    SYS_fcntl,
    SYS_flock,
    SYS_fsync,
    SYS_fdatasync,
    SYS_truncate,
    SYS_ftruncate,
    SYS_getcwd,
    SYS_chdir,
    SYS_fchdir,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_umask,
    SYS_statfs,
    SYS_fstatfs,
    SYS_sync,
    SYS_syncfs,
    SYS_readahead,
    SYS_fadvise64,
    SYS_openat,
    SYS_openat2,
    SYS_mkdirat,
    SYS_newfstatat,
    SYS_unlinkat,
    SYS_renameat2,
    SYS_linkat,
    SYS_symlinkat,
    SYS_readlinkat,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_utimensat,
    SYS_fallocate,
    SYS_splice,
    SYS_tee,
    SYS_sync_file_range,
    SYS_copy_file_range,
    SYS_statx,
    SYS_getdents64,
    SYS_fchown,
    SYS_fchownat,
    SYS_getxattr,
    SYS_lgetxattr,
    SYS_fgetxattr,
    SYS_listxattr,
    SYS_llistxattr,
    SYS_flistxattr,
    SYS_close_range,
    SYS_memfd_create,
    SYS_inotify_init1,
    SYS_inotify_add_watch,
    SYS_inotify_rm_watch,
    // memory
    SYS_mmap,
    SYS_mprotect,
    SYS_munmap,
    SYS_brk,
    SYS_mremap,
    SYS_msync,
    SYS_mincore,
    SYS_madvise,
    SYS_mlock,
    SYS_mlock2,
    SYS_munlock,
    SYS_pkey_alloc,
    SYS_pkey_free,
    SYS_pkey_mprotect,
    SYS_membarrier,
    // signals, time, waiting
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_rt_sigpending,
    SYS_rt_sigtimedwait,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SYS_rt_sigsuspend,
    SYS_sigaltstack,
    SYS_kill,
    SYS_tkill,
    SYS_tgkill,
    SYS_signalfd4,
    SYS_nanosleep,
    SYS_clock_nanosleep,
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_gettimeofday,
    SYS_getitimer,
    SYS_setitimer,
    SYS_timer_create,
    SYS_timer_settime,
    SYS_timer_gettime,
    SYS_timer_getoverrun,
    SYS_timer_delete,
    SYS_timerfd_create,
    SYS_timerfd_settime,
    SYS_timerfd_gettime,
    SYS_pselect6,
    SYS_ppoll,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_epoll_pwait2,
    SYS_eventfd2,
    SYS_futex,
    SYS_futex_waitv,
    SYS_set_robust_list,
    SYS_get_robust_list,
    SYS_restart_syscall,
    SYS_rseq,
    // processes
    SYS_execve,
    SYS_execveat,
    SYS_exit,
    SYS_exit_group,
    SYS_wait4,
    SYS_waitid,
    SYS_getpid,
    SYS_getppid,
    SYS_gettid,
    SYS_setpgid,
    SYS_getpgid,
    SYS_setsid,
    SYS_getsid,
    SYS_getuid,
    SYS_getgid,
    SYS_geteuid,
    SYS_getegid,
    SYS_getgroups,
    SYS_getresuid,
    SYS_getresgid,
    SYS_capget,
    SYS_prctl,
    SYS_set_tid_address,
    SYS_getrusage,
    SYS_times,
    SYS_uname,
    SYS_sysinfo,
    SYS_getcpu,
    SYS_getrandom,
    SYS_sched_yield,
    SYS_sched_getparam,
    SYS_sched_getscheduler,
    SYS_sched_get_priority_max,
    SYS_sched_get_priority_min,
    SYS_sched_rr_get_interval,
    SYS_getpriority,
    SYS_pidfd_open,
    SYS_pidfd_send_signal,
    SYS_semtimedop,
    // sockets; their family is restricted where they are made
    SYS_socket,
    SYS_socketpair,
    SYS_connect,
    SYS_accept,
    SYS_accept4,
    SYS_bind,
    SYS_listen,
    SYS_sendto,
    SYS_recvfrom,
    SYS_sendmsg,
    SYS_recvmsg,
    SYS_sendmmsg,
    SYS_recvmmsg,
    SYS_shutdown,
    SYS_getsockname,
    SYS_getpeername,
    SYS_setsockopt,
    SYS_getsockopt,
    SYS_ioctl,
];

/// Older spellings that only this architecture has.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[Call] = calls![
    SYS_open,
    SYS_stat,
    SYS_lstat,
    SYS_poll,
    SYS_access,
    SYS_pipe,
    SYS_select,
    SYS_dup2,
    SYS_pause,
    SYS_alarm,
    SYS_fork,
    SYS_vfork,
    SYS_getdents,
    SYS_rename,
    SYS_mkdir,
    SYS_rmdir,
    SYS_creat,
    SYS_link,
    SYS_unlink,
    SYS_symlink,
    SYS_readlink,
    SYS_chmod,
    SYS_chown,
    SYS_lchown,
    SYS_getrlimit,
    SYS_setrlimit,
    SYS_getpgrp,
    SYS_utime,
    SYS_utimes,
    SYS_futimesat,
    SYS_time,
    SYS_epoll_create,
    SYS_epoll_wait,
    SYS_inotify_init,
    SYS_renameat,
    SYS_signalfd,
    SYS_eventfd,
    SYS_arch_prctl,
];
#[cfg(target_arch = "aarch64")]
const ALLOWED_HERE: &[Call] = calls![SYS_renameat, SYS_getrlimit, SYS_setrlimit];

/// Refused with EPERM, as an unprivileged process would see it anyway.
const REFUSED: &[Call] = calls![
    SYS_ptrace,
    SYS_mount,
    SYS_umount2,
    SYS_unshare,
    SYS_setns,
    SYS_chroot,
    SYS_pivot_root,
    SYS_bpf,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_perf_event_open,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_sethostname,
    SYS_reboot,
];

/// Allowed for the caller itself only: the call, and the argument that names the process.
/// A limit or an affinity set on another process needs no right to read it.
const SELF_ONLY: &[(Call, u8)] = &[
    (call!(SYS_prlimit64), 0),
    (call!(SYS_setpriority), 1),
    (call!(SYS_sched_setscheduler), 0),
    (call!(SYS_sched_setparam), 0),
    (call!(SYS_sched_setattr), 0),
    (call!(SYS_sched_getattr), 0),
    (call!(SYS_sched_setaffinity), 0),
];

/// Make a node; allowed for named pipes. The call, and the argument with the kind of node.
#[cfg(target_arch = "x86_64")]
const FIFO_CALLS: &[(Call, u8)] = &[(call!(SYS_mknod), 1), (call!(SYS_mknodat), 2)];
#[cfg(target_arch = "aarch64")]
const FIFO_CALLS: &[(Call, u8)] = &[(call!(SYS_mknodat), 2)];

/// Make a socket; allowed for these families.
const FAMILY_CALLS: [Call; 2] = [call!(SYS_socket), call!(SYS_socketpair)];
const FAMILIES: [c_int; 3] = [AF_UNIX, AF_INET, AF_INET6];

const CLONE_NEW_ANY: u64 = (CLONE_NEWNS
    | CLONE_NEWCGROUP
    | CLONE_NEWUTS
    | CLONE_NEWIPC
    | CLONE_NEWUSER
    | CLONE_NEWPID
    | CLONE_NEWNET) as u64
    | 0x80; // CLONE_NEWTIME
const TIOCLINUX_REQUEST: u64 = 0x541c;

/// The filters could not be compiled.
#[derive(Debug)]
pub(crate) struct FilterError(String);

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the seccomp filters do not compile: {}", self.0)
    }
}

impl std::error::Error for FilterError {}

type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

/// All filters in the order of loading, as the helper reads them: each with its length before
/// it, all in 64-bit words.
pub(crate) fn compile() -> Result<Vec<u8>, FilterError> {
    let mut bytes = Vec::new();
    for filter in [refused()?, families()?, allowed()?] {
        bytes.extend((filter.len() as u64).to_le_bytes());
        for instruction in filter {
            bytes.extend(instruction.code.to_le_bytes());
            bytes.extend([instruction.jt, instruction.jf]);
            bytes.extend(instruction.k.to_le_bytes());
        }
    }
    Ok(bytes)
}

/// Older engines do not know `defaultErrnoRet`, and answer EPERM to what is not listed. Programs
/// that keep modes (`install`, `cp -p`) go on without extended attributes, but not at EPERM.
const ATTRIBUTE_CALLS: [&str; 6] = [
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "removexattr",
    "lremovexattr",
    "fremovexattr",
];

/// The same rules as a container engine takes them: one list, whose default is ENOSYS. A terminal
/// that could be typed into is not there, so `ioctl` needs no rule of its own.
pub(crate) fn engine_profile() -> String {
    let names = |calls: &[Call]| -> Vec<&str> { calls.iter().map(name_of).collect() };
    let mut allowed = names(ALLOWED);
    allowed.extend(names(ALLOWED_HERE));
    allowed.retain(|name| !FAMILY_CALLS.iter().any(|call| name_of(call) == *name));
    let allow = |call: &Call, argument: u8, op: &str, values: [u64; 2]| {
        json!({
            "names": [name_of(call)],
            "action": "SCMP_ACT_ALLOW",
            "args": [{
                "index": argument, "op": op, "value": values[0], "valueTwo": values[1],
            }],
        })
    };
    let mut rules = vec![
        json!({ "names": allowed, "action": "SCMP_ACT_ALLOW" }),
        json!({ "names": names(REFUSED), "action": "SCMP_ACT_ERRNO", "errnoRet": EPERM }),
        // Of clone3 the flags cannot be seen; programs then use clone.
        json!({ "names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS }),
        json!({ "names": ATTRIBUTE_CALLS, "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS }),
        allow(
            &call!(SYS_clone),
            0,
            "SCMP_CMP_MASKED_EQ",
            [CLONE_NEW_ANY, 0],
        ),
        allow(&call!(SYS_personality), 0, "SCMP_CMP_EQ", [0, 0]),
        allow(&call!(SYS_personality), 0, "SCMP_CMP_EQ", [0xffff_ffff, 0]),
    ];
    for (call, argument) in SELF_ONLY {
        rules.push(allow(call, *argument, "SCMP_CMP_EQ", [0, 0]));
    }
    for (call, argument) in FIFO_CALLS {
        let kinds = [u64::from(S_IFMT), u64::from(S_IFIFO)];
        rules.push(allow(call, *argument, "SCMP_CMP_MASKED_EQ", kinds));
    }
    for call in FAMILY_CALLS {
        for family in FAMILIES {
            let family = u64::from(family.cast_unsigned());
            rules.push(allow(&call, 0, "SCMP_CMP_EQ", [family, 0]));
        }
    }
    let architecture = match cfg!(target_arch = "x86_64") {
        true => "SCMP_ARCH_X86_64",
        false => "SCMP_ARCH_AARCH64",
    };
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": ENOSYS,
        "architectures": [architecture],
        "syscalls": rules,
    })
    .to_string()
}

/// The name of a call as engines write it.
fn name_of(call: &Call) -> &'static str {
    call.0.strip_prefix("SYS_").unwrap_or(call.0)
}

fn allowed() -> Result<BpfProgram, FilterError> {
    let plain = ALLOWED.iter().chain(ALLOWED_HERE).chain(REFUSED);
    let mut rules: Rules = plain.map(|(_, call)| (*call, Vec::new())).collect();
    // No new namespace through clone; clone3 hides its flags in memory and gets ENOSYS, after
    // which the C library falls back to clone.
    let no_namespaces = SeccompCmpOp::MaskedEq(CLONE_NEW_ANY);
    rules.insert(
        SYS_clone,
        vec![rule(vec![condition(
            0,
            SeccompCmpArgLen::Qword,
            no_namespaces,
            0,
        )?])?],
    );
    for ((_, call), argument) in SELF_ONLY {
        rules.insert(*call, vec![rule(vec![equal(*argument, 0)?])?]);
    }
    // Named pipes, no devices.
    let fifo = u64::from(S_IFIFO);
    let is_fifo = SeccompCmpOp::MaskedEq(u64::from(S_IFMT));
    for ((_, call), argument) in FIFO_CALLS {
        let is_fifo = condition(*argument, SeccompCmpArgLen::Dword, is_fifo.clone(), fifo)?;
        rules.insert(*call, vec![rule(vec![is_fifo])?]);
    }
    let (query, linux) = (0xffff_ffff, 0);
    rules.insert(
        SYS_personality,
        vec![rule(vec![equal(0, linux)?])?, rule(vec![equal(0, query)?])?],
    );
    program(rules, errno(ENOSYS), SeccompAction::Allow)
}

fn refused() -> Result<BpfProgram, FilterError> {
    let mut rules: Rules = REFUSED
        .iter()
        .map(|(_, call)| (*call, Vec::new()))
        .collect();
    // Typing into a terminal that others read. Requests are compared as 32 bits, as the kernel
    // takes them.
    let requests = [TIOCSTI, TIOCLINUX_REQUEST].map(|request| equal(1, request));
    let requests = requests.into_iter().map(|it| rule(vec![it?]));
    rules.insert(SYS_ioctl, requests.collect::<Result<_, _>>()?);
    program(rules, SeccompAction::Allow, errno(EPERM))
}

fn families() -> Result<BpfProgram, FilterError> {
    let mut others = Vec::new();
    for family in FAMILIES {
        let family = u64::from(family.cast_unsigned());
        others.push(condition(
            0,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::Ne,
            family,
        )?);
    }
    let rules = FAMILY_CALLS.map(|(_, call)| Ok((call, vec![rule(others.clone())?])));
    let rules = rules.into_iter().collect::<Result<Rules, FilterError>>()?;
    program(rules, SeccompAction::Allow, errno(EAFNOSUPPORT))
}

fn errno(number: c_int) -> SeccompAction {
    SeccompAction::Errno(number.cast_unsigned())
}

fn program(
    rules: Rules,
    others: SeccompAction,
    matching: SeccompAction,
) -> Result<BpfProgram, FilterError> {
    let filter = SeccompFilter::new(rules, others, matching, ARCH);
    filter
        .and_then(TryInto::try_into)
        .map_err(|error| FilterError(error.to_string()))
}

fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, FilterError> {
    SeccompRule::new(conditions).map_err(|error| FilterError(error.to_string()))
}

fn equal(argument: u8, value: u64) -> Result<SeccompCondition, FilterError> {
    condition(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
}

fn condition(
    argument: u8,
    length: SeccompCmpArgLen,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, FilterError> {
    SeccompCondition::new(argument, length, operator, value)
        .map_err(|error| FilterError(error.to_string()))
}
