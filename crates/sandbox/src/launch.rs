//! From a plan to a started worker: the helper's exec and the first words of init.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use sandbox_init::limits::REPLY_BYTES_MAX;
use sandbox_init::socket;
use sandbox_init::wire::{GREETING, Identity, Plan, Reply};
use worker::StartError;

use crate::host;
use crate::limits::{REMOVAL_WAIT_MAX, START_WAIT_MAX};

/// All that one start needs.
pub(crate) struct Order<'a> {
    pub(crate) init: &'a Path,
    pub(crate) plan: &'a Plan,
    pub(crate) filters: BorrowedFd<'a>,
    pub(crate) groups: &'a [File],
    pub(crate) inputs: &'a [File],
    /// What the workload reads; without one, nothing.
    pub(crate) stdin: Option<&'a File>,
}

/// A worker whose workload runs.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) init: InitProcess,
    /// Does not block.
    pub(crate) control: OwnedFd,
    /// Does not block.
    pub(crate) stdout: OwnedFd,
    /// Does not block.
    pub(crate) stderr: OwnedFd,
}

/// PID 1 of a worker, our child. Dropping kills and reaps it.
#[derive(Debug)]
pub(crate) struct InitProcess {
    pidfd: OwnedFd,
    is_gone: bool,
}

/// Starts a worker and waits until its program runs.
///
/// # Errors
/// [`StartError`]: no instruction of the workload has run, and no process is left.
pub(crate) fn launch(order: &Order<'_>) -> Result<Launched, StartError> {
    let first_id = match order.plan.identity {
        Identity::Range { first } => Some(first),
        Identity::Caller => None,
    };
    let plan = order
        .plan
        .encode()
        .map_err(|error| failed("encode the plan", error))?;
    let plan = sealed("symbi-plan", &plan).map_err(|error| failed("write the plan", error))?;
    let (stdout, workload_stdout) = stream(first_id).map_err(|error| failed("pipe", error))?;
    let (stderr, workload_stderr) = stream(first_id).map_err(|error| failed("pipe", error))?;
    let stdin = match order.stdin {
        Some(file) => reopened(file).map_err(|error| failed("open the standard input", error))?,
        None => File::open("/dev/null").map_err(|error| failed("open /dev/null", error))?,
    };
    let (control, theirs) = control_pair().map_err(|error| failed("socketpair", error))?;

    let mut starting = Starting {
        helper: spawn(order.init, theirs)?,
        init: None,
    };
    let mut gifts = vec![plan.as_fd(), order.filters, stdin.as_fd()];
    gifts.extend([workload_stdout.as_fd(), workload_stderr.as_fd()]);
    gifts.extend(order.groups.iter().chain(order.inputs).map(AsFd::as_fd));
    socket::send(control.as_fd(), GREETING, &gifts)
        .map_err(|error| failed("send the plan", error))?;
    drop((workload_stdout, workload_stderr));

    let init = starting.await_start(&control, first_id)?;
    Ok(Launched {
        init,
        control,
        stdout,
        stderr,
    })
}

fn failed(step: &str, error: impl ToString) -> StartError {
    StartError::Failed {
        step: step.to_owned(),
        reason: error.to_string(),
    }
}

/// The same file from its start, for reading alone: nothing that the workload does with it is
/// seen through ours.
fn reopened(file: &File) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))
}

/// The helper, with an empty environment and one descriptor. No code of ours runs between fork
/// and exec, so the standard library takes its fast path.
fn spawn(init: &Path, control: OwnedFd) -> Result<Child, StartError> {
    let mut command = Command::new(init);
    // A bare name: init's command line can be read by the workload.
    command.arg0("symbi-init").env_clear();
    command
        .stdin(Stdio::from(control))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
        .spawn()
        .map_err(|error| failed(&format!("run {}", init.display()), error))
}

/// A helper that has not yet reported a started workload. Dropping ends and reaps all of it.
struct Starting {
    helper: Child,
    init: Option<InitProcess>,
}

impl Starting {
    fn await_start(
        &mut self,
        control: &OwnedFd,
        first_id: Option<u32>,
    ) -> Result<InitProcess, StartError> {
        let deadline = Instant::now() + START_WAIT_MAX;
        let mut failure = None;
        loop {
            let packet = next_packet(control, deadline)
                .map_err(|error| failed("wait for the worker", error))?;
            let Some(packet) = packet else {
                return Err(failure.unwrap_or_else(|| failed("helper", "it ended without a word")));
            };
            let reply = Reply::decode(&packet.bytes).map_err(|error| failed("reply", error))?;
            match (reply, packet.descriptors.into_iter().next()) {
                (Reply::Born { .. }, Some(pidfd)) => {
                    let is_gone = false;
                    self.init = Some(InitProcess { pidfd, is_gone });
                }
                (Reply::Started, _) => match self.init.take() {
                    Some(init) => return Ok(init),
                    None => return Err(failed("helper", "it did not say who init is")),
                },
                // The first failure is the cause; the end of the socket follows.
                (Reply::Failed(cause), _) => {
                    failure.get_or_insert(host::explain(&cause, first_id));
                }
                (Reply::Changed { path }, _) => {
                    failure.get_or_insert(StartError::ProgramChanged { path });
                }
                (Reply::Born { .. } | Reply::Ended { .. }, _) => {
                    return Err(failed("helper", "it spoke out of turn"));
                }
            }
        }
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        drop(self.init.take());
        // After a start the helper has done all its work and only has to be reaped.
        let _killed = self.helper.kill();
        let _waited = self.helper.wait();
    }
}

fn next_packet(control: &OwnedFd, deadline: Instant) -> io::Result<Option<socket::Packet>> {
    loop {
        match socket::receive(control.as_fd(), REPLY_BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // The helper died with our message unread.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            other => return other,
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        wait_readable(control.as_fd(), left)?;
    }
}

/// Waits until `descriptor` is ready or the time is over; says which.
fn wait_readable(descriptor: BorrowedFd<'_>, at_most: Duration) -> io::Result<bool> {
    let timeout = Timespec {
        tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: at_most.subsec_nanos().into(),
    };
    let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    match poll(&mut polled, Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl InitProcess {
    pub(crate) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Whether it and its whole namespace are dead, reaped or not.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_gone || wait_readable(self.pidfd(), Duration::ZERO).unwrap_or(false)
    }

    /// Kills init and with it every process of its namespace.
    pub(crate) fn kill(&self) {
        if !self.is_gone {
            // It fails only where init is dead already.
            let _sent = pidfd_send_signal(&self.pidfd, Signal::KILL);
        }
    }

    /// Kills init and waits for its end, which is the end of the whole pid namespace.
    pub(crate) fn reap(&mut self) -> io::Result<()> {
        if self.is_gone {
            return Ok(());
        }
        self.kill();
        let deadline = Instant::now() + REMOVAL_WAIT_MAX;
        while !wait_readable(
            self.pidfd(),
            deadline.saturating_duration_since(Instant::now()),
        )? {
            if Instant::now() >= deadline {
                return Err(io::Error::from(io::ErrorKind::TimedOut));
            }
        }
        match waitid(WaitId::PidFd(self.pidfd()), WaitIdOptions::EXITED) {
            // Somebody else's wait in this process took it: dead it is all the same.
            Ok(_) | Err(rustix::io::Errno::CHILD) => {
                self.is_gone = true;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for InitProcess {
    fn drop(&mut self) {
        let _reaped = self.reap();
    }
}

/// A pipe whose reading end does not block. The workload must own its end, or it could not open
/// `/dev/stdout`.
fn stream(first_id: Option<u32>) -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    set_nonblocking(&ours)?;
    if let Some(first) = first_id {
        let id = first.saturating_add(1);
        std::os::unix::fs::fchown(&theirs, Some(id), Some(id))?;
    }
    Ok((ours, theirs))
}

fn control_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None)?;
    set_nonblocking(&ours)?;
    Ok((ours, theirs))
}

fn set_nonblocking(descriptor: &OwnedFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(descriptor)?;
    rustix::fs::fcntl_setfl(descriptor, flags | rustix::fs::OFlags::NONBLOCK)?;
    Ok(())
}

/// A memory file that nobody can change.
pub(crate) fn sealed(name: &str, content: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(
        name,
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )?);
    file.write_all(content)?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;
    Ok(file)
}
