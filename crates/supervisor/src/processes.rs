//! Processes of a container's runtime: an engine that knows no such container any more does not
//! prove that its sandbox, its gofer and its shim have ended.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::limits::{RUNTIME_END_PAUSE, RUNTIME_END_TIME_MAX};

/// What the programs of container runtimes are called.
const RUNTIMES: [&str; 3] = ["runsc", "containerd-shim", "docker-containerd-shim"];
/// What the kernel calls their processes: the first 15 bytes of the program's name.
const NAMES: [&str; 4] = ["runsc", "containerd-shim", "docker-containe", "exe"];
/// How a runtime calls its own program when it starts itself again.
const SELF: &str = "/proc/self/exe";

/// Waits until no process of the container's runtime is left, and kills those that stay.
pub(crate) fn end_all_of(container: &str) -> Result<(), String> {
    let until = Instant::now() + RUNTIME_END_TIME_MAX;
    let mut are_killed = false;
    loop {
        let left = of(container);
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() >= until || are_killed {
            let mut refused = None;
            for (pid, process) in &left {
                match pidfd_send_signal(process, Signal::KILL) {
                    Ok(()) | Err(Errno::SRCH) => {}
                    Err(errno) => refused = Some(format!("process {pid}: {errno}")),
                }
            }
            if are_killed {
                let pids: Vec<String> = left.iter().map(|(pid, _)| pid.to_string()).collect();
                let why = refused.map(|why| format!(" ({why})")).unwrap_or_default();
                return Err(format!(
                    "processes of the container's runtime are still there: {}{why}",
                    pids.join(", ")
                ));
            }
            are_killed = true;
        }
        // The engine says nothing of these processes: there is nothing to wait on.
        std::thread::sleep(RUNTIME_END_PAUSE);
    }
}

/// The live processes of a runtime that name the container on their command line, held.
fn of(container: &str) -> Vec<(i32, OwnedFd)> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    let pids = entries.filter_map(Result::ok).filter_map(number);
    pids.filter_map(|pid| {
        // A command line can only be read while its process lets its memory be looked at; a name
        // always can.
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        NAMES.iter().find(|it| name.starts_with(**it))?;
        let process = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        is_of(&line, container).then_some((pid, process))
    })
    .collect()
}

/// Whether a command line is a runtime's for exactly this container. A zombie's is empty.
fn is_of(line: &[u8], container: &str) -> bool {
    let mut words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let Some(program) = words.next() else {
        return false;
    };
    let name = Path::new(program.as_ref()).file_name();
    let name = name.and_then(|name| name.to_str()).unwrap_or_default();
    let is_runtime = RUNTIMES.iter().any(|it| name.starts_with(it));
    let is_sandbox = |word: &str| RUNTIMES.iter().any(|it| word.starts_with(it));
    let rest: Vec<_> = words.collect();
    let is_itself = program == SELF && rest.iter().any(|word| is_sandbox(word));
    (is_runtime || is_itself) && rest.iter().any(|word| word.contains(container))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTAINER: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn line(words: &[&str]) -> Vec<u8> {
        let words = words.iter().map(|word| format!("{word}\0"));
        words.collect::<String>().into_bytes()
    }

    #[test]
    fn only_a_runtimes_process_with_exactly_the_containers_id_counts() {
        let bundle = format!("--bundle=/run/x/{CONTAINER}");
        for ours in [
            line(&["runsc-sandbox", "--root=/run", "boot", &bundle]),
            line(&["/usr/bin/runsc-gofer", &bundle]),
            line(&["/usr/bin/containerd-shim-runc-v2", "-id", CONTAINER]),
            line(&["/proc/self/exe", "runsc-gofer", CONTAINER]),
        ] {
            assert!(
                is_of(&ours, CONTAINER),
                "{}",
                String::from_utf8_lossy(&ours)
            );
        }
        let other = CONTAINER.replace('0', "1");
        for foreign in [
            line(&["docker", "logs", CONTAINER]),
            line(&["vim", &bundle]),
            line(&["runsc-sandbox", &other]),
            line(&["/proc/self/exe", CONTAINER]),
            Vec::new(),
        ] {
            assert!(!is_of(&foreign, CONTAINER));
        }
    }

    #[test]
    fn a_container_without_processes_is_gone_at_once() {
        let begun = Instant::now();
        end_all_of(&"f".repeat(64)).unwrap();
        assert!(begun.elapsed() < RUNTIME_END_TIME_MAX);
    }

    #[test]
    fn a_runtimes_process_that_stays_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("runsc-sandbox");
        std::os::unix::fs::symlink("/bin/sh", &program).unwrap();
        let mut left = std::process::Command::new(program)
            .args(["-c", "while :; do sleep 0.1; done", CONTAINER])
            .spawn()
            .unwrap();
        // A new program's command line is there a moment after its start.
        while of(CONTAINER).is_empty() {
            std::thread::yield_now();
        }
        let waiter = std::thread::spawn(move || left.wait().unwrap());
        end_all_of(CONTAINER).unwrap();
        assert!(!waiter.join().unwrap().success());
    }
}
