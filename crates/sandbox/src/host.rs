//! Why this host cannot run the namespace tier, and what its operator can do about it.

use std::fs;

use sandbox_init::wire::{Failure, Speaker};
use worker::StartError;

use crate::limits::{ID_SLOTS_MAX, IDS_PER_SLOT};

/// The oldest kernel that has all that init needs.
const KERNEL_MIN: (u32, u32) = (5, 13);
const NAMESPACES_MAX: &str = "/proc/sys/user/max_user_namespaces";
const UNPRIVILEGED: &str = "/proc/sys/kernel/unprivileged_userns_clone";
const APPARMOR: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";

/// Checks what can be known before a worker is tried. `first_id` is root's range of host ids.
///
/// # Errors
/// [`StartError::Unavailable`] says what is missing and how to get it.
pub(crate) fn check(first_id: Option<u32>) -> Result<(), StartError> {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    check_kernel(&release)?;
    if read_number(NAMESPACES_MAX) == Some(0) {
        return Err(unavailable(
            "user namespaces are forbidden: user.max_user_namespaces is 0; raise it, as in \
             `sysctl -w user.max_user_namespaces=15000`",
        ));
    }
    if first_id.is_none() && read_number(UNPRIVILEGED) == Some(0) {
        return Err(unavailable(UNPRIVILEGED_TEXT));
    }
    if sandbox_init::landlock_abi() == 0 {
        return Err(unavailable(
            "the kernel does not use Landlock; add `landlock` to its `lsm=` parameter, or use a \
             kernel with CONFIG_SECURITY_LANDLOCK",
        ));
    }
    if let Some(first) = first_id {
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        if !is_mapped(&map, first) {
            return Err(unavailable(&no_range(first)));
        }
    }
    Ok(())
}

const UNPRIVILEGED_TEXT: &str = "user namespaces are forbidden for ordinary users: \
     kernel.unprivileged_userns_clone is 0; set it to 1 with sysctl, or run as root";

fn unavailable(reason: &str) -> StartError {
    StartError::Unavailable {
        reason: reason.to_owned(),
    }
}

fn no_range(first: u32) -> String {
    let last = first.saturating_add(ID_SLOTS_MAX * IDS_PER_SLOT - 1);
    format!(
        "root's workers need the host ids {first} to {last}, and this user namespace does not \
         map them; run outside of it, or as an ordinary user"
    )
}

fn check_kernel(release: &str) -> Result<(), StartError> {
    let mut parts = release
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < KERNEL_MIN => {
            let (need_major, need_minor) = KERNEL_MIN;
            Err(unavailable(&format!(
                "the kernel is {release}; this tier needs {need_major}.{need_minor} or later"
            )))
        }
        _ => Ok(()),
    }
}

fn is_mapped(map: &str, first: u32) -> bool {
    let need_end = u64::from(first) + u64::from(ID_SLOTS_MAX * IDS_PER_SLOT);
    map.lines().any(|line| {
        let numbers: Vec<u64> = line
            .split_whitespace()
            .filter_map(|part| part.parse().ok())
            .collect();
        match numbers.as_slice() {
            [inside, _, length] => {
                *inside <= u64::from(first) && inside.saturating_add(*length) >= need_end
            }
            _ => false,
        }
    })
}

fn read_number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// What a failure of the helper means for the operator.
pub(crate) fn explain(failure: &Failure, first_id: Option<u32>) -> StartError {
    let Failure {
        speaker,
        step,
        errno,
    } = failure;
    if let Some(reason) = known(step, *errno, first_id) {
        return StartError::Unavailable { reason };
    }
    let who = match speaker {
        Speaker::Helper => "helper",
        Speaker::Init => "init",
        Speaker::Workload => "workload",
    };
    StartError::Failed {
        step: format!("{who}: {step}"),
        reason: match errno {
            0 => "the step failed".to_owned(),
            errno => {
                let error = std::io::Error::from_raw_os_error(*errno);
                format!("{error}{}", remedy(step, *errno))
            }
        },
    }
}

/// What to do about a step that failed by what the operator gave.
fn remedy(step: &str, errno: i32) -> &'static str {
    let is = |word: &str| step.split(' ').next() == Some(word);
    match errno {
        libc::ENOEXEC if is("execute") => {
            "; it is no program of this machine, or a script that does not begin with \
             `#!/usr/bin/INTERPRETER`: correct it"
        }
        libc::ENOENT if is("execute") => {
            "; its interpreter is not there, or the script's first line ends with a carriage \
             return: save it with LF line ends"
        }
        libc::ENOENT if is("open_tree") => {
            "; make the folder, or take it out of `system` in symbiont.toml"
        }
        _ => "",
    }
}

fn known(step: &str, errno: i32, first_id: Option<u32>) -> Option<String> {
    let apparmor = || read_number(APPARMOR) == Some(1) && first_id.is_none();
    let text = match (step, errno) {
        ("clone3", libc::ENOSPC | libc::EUSERS) => {
            "no further user namespace may be made here: user.max_user_namespaces (or another \
             limit in /proc/sys/user) is reached, or 32 levels are; raise it with sysctl"
        }
        ("clone3", libc::EPERM) if read_number(UNPRIVILEGED) == Some(0) => UNPRIVILEGED_TEXT,
        ("clone3", libc::EPERM) => {
            "user namespaces are forbidden: by a container's seccomp filter, or because this \
             process runs in a chroot; run outside of it, or choose another tier"
        }
        ("clone3", libc::ENOSYS) => {
            "clone3 is not there: the kernel is older than 5.3, or a container's seccomp filter \
             hides it; run outside of the container, or choose another tier"
        }
        ("uid_map" | "gid_map", libc::EPERM) => match first_id {
            Some(first) => return Some(no_range(first)),
            None => "this user's own id cannot be mapped in a user namespace",
        },
        ("uid_map" | "gid_map" | "setgroups", libc::EROFS) => {
            "/proc is read-only here, as in a container; run outside of it, or choose another tier"
        }
        ("uid_map" | "gid_map" | "setgroups", libc::EACCES) if apparmor() => APPARMOR_TEXT,
        ("uid_map" | "gid_map" | "setgroups", libc::EACCES) => {
            "the ids of a worker cannot be mapped: `symbi-init` must be readable by this user, \
             not only executable"
        }
        ("make mounts private", libc::EPERM | libc::EACCES) if apparmor() => APPARMOR_TEXT,
        ("mount proc", libc::EPERM) => {
            "/proc has mounts over it, as in a container, and the kernel then lets nobody mount \
             another; run outside of the container, or choose another tier"
        }
        _ if step.starts_with("landlock") => {
            "the kernel does not use Landlock as it says; add `landlock` to its `lsm=` parameter"
        }
        _ if errno == libc::ENOSYS => {
            return Some(format!(
                "the kernel has no `{step}`: it is older than 5.13, or a seccomp filter hides it"
            ));
        }
        _ => return None,
    };
    Some(text.to_owned())
}

const APPARMOR_TEXT: &str = "AppArmor takes all rights from user namespaces of ordinary users: \
     kernel.apparmor_restrict_unprivileged_userns is 1; load the profile of `symbi-init`: \
     symbi doctor --apparmor-profile | sudo sh -c 'cat >/etc/apparmor.d/symbi-init && \
     apparmor_parser -r /etc/apparmor.d/symbi-init'";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_failed_by_what_the_operator_gave_says_what_to_do() {
        let text = reason("execute /agent/helper.py", libc::ENOEXEC, None);
        assert!(text.contains("does not begin with `#!"), "{text}");
        let text = reason("execute /agent/helper.py", libc::ENOENT, None);
        assert!(text.contains("carriage return"), "{text}");
        let text = reason("open_tree /srv/none", libc::ENOENT, None);
        assert!(text.contains("take it out of `system`"), "{text}");
        assert!(!reason("chdir /x", libc::ENOENT, None).contains(';'));
    }

    fn reason(step: &str, errno: i32, first_id: Option<u32>) -> String {
        let failure = Failure {
            speaker: Speaker::Helper,
            step: step.to_owned(),
            errno,
        };
        explain(&failure, first_id).to_string()
    }

    #[test]
    fn old_kernels_are_named_and_new_ones_pass() {
        assert!(
            check_kernel("5.12.19-generic")
                .unwrap_err()
                .to_string()
                .contains("5.12.19")
        );
        for release in ["5.13.0", "6.1.0-18-amd64", "10.0", "odd"] {
            check_kernel(release).unwrap();
        }
    }

    #[test]
    fn the_range_must_lie_whole_in_one_line_of_the_map() {
        assert!(is_mapped(
            "         0          0 4294967295\n",
            2_000_000_000
        ));
        assert!(!is_mapped("0 100000 65536\n", 2_000_000_000));
        let need = ID_SLOTS_MAX * IDS_PER_SLOT;
        assert!(is_mapped(&format!("0 5 {}", 10 + need), 10));
        assert!(!is_mapped(&format!("0 5 {}", 9 + need), 10));
        assert!(!is_mapped("", 10));
    }

    #[test]
    fn refusals_of_the_host_say_what_to_do() {
        assert!(reason("clone3", libc::ENOSPC, None).contains("user.max_user_namespaces"));
        assert!(reason("clone3", libc::EPERM, None).contains("chroot"));
        assert!(reason("uid_map", libc::EPERM, Some(7)).contains("host ids 7 to"));
        assert!(reason("uid_map", libc::EROFS, None).contains("read-only"));
        assert!(reason("setgroups", libc::EACCES, None).contains("readable"));
        assert!(reason("mount proc", libc::EPERM, None).contains("/proc has mounts"));
        assert!(reason("open_tree /usr", libc::ENOSYS, None).contains("older"));
    }

    #[test]
    fn other_failures_keep_their_step_and_the_kernels_word() {
        let text = reason("open_tree /usr", libc::EIO, None);
        assert!(text.contains("helper: open_tree /usr"), "{text}");
        assert!(text.contains("error"), "{text}");
    }
}
