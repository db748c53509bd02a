//! Processes that a runtime can leave behind after its container is removed.
//!
//! gVisor runs a container in processes of the host: the sandbox, its file server and a shim. All
//! name the container's id in their command line. The engine's word that the container is gone
//! does not cover them: after a start that failed they stay for ever, and are ended here.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::ContainerKind;
use crate::engine::ContainerId;
use crate::limits::{LEFTOVERS_PATIENCE, LEFTOVERS_ROUNDS_MAX, LEFTOVERS_WAIT_MAX};

/// Waits until no process of a removed container is left.
///
/// # Errors
/// The reason why that is not certain.
pub(super) fn await_none(kind: ContainerKind, id: &ContainerId) -> Result<(), String> {
    match kind {
        // The container's pid namespace ended with its first process.
        ContainerKind::Docker => Ok(()),
        ContainerKind::Gvisor => await_no_process(id),
    }
}

fn await_no_process(id: &ContainerId) -> Result<(), String> {
    let asked = |error: std::io::Error| format!("wait for what its runtime left: {error}");
    for _ in 0..LEFTOVERS_ROUNDS_MAX {
        let left = processes_of(id)?;
        if left.is_empty() {
            return Ok(());
        }
        for process in &left {
            if await_end(process, LEFTOVERS_PATIENCE).map_err(asked)? {
                continue;
            }
            // Another user's process cannot be ended; the next wait then says so.
            let _sent = pidfd_send_signal(&process.pidfd, Signal::KILL);
            if !await_end(process, LEFTOVERS_WAIT_MAX).map_err(asked)? {
                return Err(format!(
                    "{} processes of its runtime are still there, among them {}",
                    left.len(),
                    process.pid.as_raw_pid()
                ));
            }
        }
    }
    Err("its runtime makes new processes again and again".to_owned())
}

struct Process {
    pid: Pid,
    pidfd: OwnedFd,
}

/// Live processes whose command line names the container. A zombie has none.
fn processes_of(id: &ContainerId) -> Result<Vec<Process>, String> {
    let failed = |error: std::io::Error| format!("look for what its runtime left: {error}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.parse().ok());
        let Some(pid) = number.and_then(Pid::from_raw) else {
            continue;
        };
        // Opened before its command line is read: a number that is given again is another one.
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else {
            continue;
        };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let is_named = line
            .windows(id.as_str().len())
            .any(|part| part == id.as_str().as_bytes());
        if is_named {
            found.push(Process { pid, pidfd });
        }
    }
    Ok(found)
}

fn await_end(process: &Process, at_most: Duration) -> std::io::Result<bool> {
    let timeout = Timespec {
        tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: at_most.subsec_nanos().into(),
    };
    let mut polled = [PollFd::from_borrowed_fd(
        process.pidfd.as_fd(),
        PollFlags::IN,
    )];
    loop {
        match poll(&mut polled, Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn named(id: &ContainerId) -> std::process::Child {
        let child = Command::new("sh")
            .args(["-c", "read x", id.as_str()])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // A new program's command line is there a moment after its start.
        while processes_of(id).unwrap().is_empty() {
            std::thread::yield_now();
        }
        child
    }

    #[test]
    fn a_process_that_names_the_container_is_waited_for() {
        let id = ContainerId::new(&"5e".repeat(32)).unwrap();
        assert_eq!(await_no_process(&id), Ok(()));
        let mut child = named(&id);
        assert_eq!(processes_of(&id).unwrap().len(), 1);
        drop(child.stdin.take());
        assert_eq!(await_no_process(&id), Ok(()));
        assert_eq!(child.wait().unwrap().code(), Some(1));
    }

    #[test]
    fn a_process_that_does_not_end_is_ended() {
        use std::os::unix::process::ExitStatusExt as _;
        let id = ContainerId::new(&"5d".repeat(32)).unwrap();
        let mut child = named(&id);
        assert_eq!(await_no_process(&id), Ok(()));
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
}
