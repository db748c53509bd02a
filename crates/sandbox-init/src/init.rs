//! PID 1 of the worker: it makes the root, starts the workload, reaps, watches for its owner,
//! and hands over the end.
//!
//! Init stays outside the workload's Landlock domain and cannot be dumped, so that the workload
//! can neither signal nor read it, even where both have one host id. When init ends, the kernel
//! kills all that is left in the namespace.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Mode;
use rustix::process::{
    DumpableBehavior, Signal, WaitOptions, WaitStatus, set_dumpable_behavior,
    set_parent_process_death_signal,
};
use rustix::thread::{CapabilitySet, Gid, Uid};

use crate::bootstrap::{Gifts, JOINED, MAPPED, await_helper, report};
use crate::files::{self, HeldOutput};
use crate::halt::{At, Halt};
use crate::limits::REPLY_BYTES_MAX;
use crate::root;
use crate::socket;
use crate::sys::{self, Forked};
use crate::wire::{Identity, Plan, Reply, Speaker, Status, Task};
use crate::workload;

/// The life of init.
pub(crate) fn run(plan: &Plan, gifts: Gifts, sync: UnixStream) -> ! {
    match live(plan, gifts, sync) {
        Ok(()) => sys::exit(0),
        Err(halt) => report(halt, Speaker::Init),
    }
}

fn live(plan: &Plan, gifts: Gifts, mut sync: UnixStream) -> Result<(), Halt> {
    await_helper(&mut sync, MAPPED)?;
    let trees = root::open_trees(plan)?;
    take_ids(plan.identity)?;
    guard()?;
    workload::replace_stdio(&gifts).at("replace stdio")?;
    root::build(plan, &trees)?;
    drop(trees);
    await_helper(&mut sync, JOINED)?;
    drop(sync);
    sys::unshare_cgroup().at("cgroup namespace")?;
    let output = files::place(plan, &gifts.inputs)?;
    root::enter()?;
    rustix::system::sethostname(b"worker").at("sethostname")?;
    sys::raise_loopback().at("raise loopback")?;
    check_bound_files(plan)?;
    check_owner()?;
    let signals = sys::child_signals().at("signalfd")?;
    let (pid, started) = start_workload(plan, gifts)?;
    workload::keep_capabilities(CapabilitySet::KILL | CapabilitySet::DAC_READ_SEARCH)?;
    rustix::thread::set_no_new_privs(true).at("no_new_privs")?;
    send(&Reply::Started, None)?;
    let status = watch(pid, &signals)?;
    let ran_micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    clear()?;
    hand_over(status, ran_micros, output)
}

/// Root's init takes its own ids; an ordinary user's already has the only one there is.
fn take_ids(identity: Identity) -> Result<(), Halt> {
    if let Identity::Range { .. } = identity {
        rustix::thread::set_thread_groups(&[]).at("setgroups")?;
        rustix::thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT).at("setresgid")?;
        rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).at("setresuid")?;
    }
    Ok(())
}

/// Not readable by anyone, and dead with its owner. A change of ids would undo both.
fn guard() -> Result<(), Halt> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).at("dumpable")?;
    set_parent_process_death_signal(Some(Signal::KILL)).at("parent death signal")?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    check_owner()
}

/// The owner may have died before its death could be signalled.
fn check_owner() -> Result<(), Halt> {
    let stdin = io::stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::empty())];
    let now = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    match poll(&mut polled, Some(&now)) {
        Ok(0) => Ok(()),
        _ => Err(Halt::OwnerGone),
    }
}

/// The files that were authorized must be the ones that this root shows, now.
fn check_bound_files(plan: &Plan) -> Result<(), Halt> {
    let Task::Run(run) = &plan.task else {
        return Ok(());
    };
    for file in &run.bound {
        if root::stamp_at(&file.path).ok() != Some(file.stamp) {
            return Err(Halt::Changed {
                path: file.path.clone(),
            });
        }
    }
    Ok(())
}

/// Forks the workload and waits until it has become the program.
fn start_workload(plan: &Plan, gifts: Gifts) -> Result<(i32, Instant), Halt> {
    let (errors, theirs) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).at("make a pipe")?;
    let pid = match sys::fork().at("fork")? {
        Forked::Child => workload::run(plan, &gifts, File::from(theirs)),
        Forked::Parent { pid } => pid,
    };
    drop(theirs);
    // From here on no process but the workload's holds its streams.
    drop(gifts);
    let mut told = Vec::new();
    File::from(errors)
        .take(REPLY_BYTES_MAX as u64)
        .read_to_end(&mut told)
        .at("wait for the program")?;
    if told.is_empty() {
        return Ok((pid, Instant::now()));
    }
    socket::send(io::stdin().as_fd(), &told, &[]).at("report the workload's failure")?;
    Err(Halt::OwnerGone)
}

/// Reaps until the workload has ended, or the owner has.
fn watch(workload: i32, signals: &OwnedFd) -> Result<Status, Halt> {
    let control = io::stdin();
    loop {
        let mut polled = [
            PollFd::new(&control, PollFlags::empty()),
            PollFd::new(signals, PollFlags::IN),
        ];
        match poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).at("poll"),
        }
        let [owner, _] = &polled;
        if !owner.revents().is_empty() {
            return Err(Halt::OwnerGone);
        }
        let mut taken = [0; 1024];
        while rustix::io::read(signals, &mut taken).is_ok_and(|bytes| bytes > 0) {}
        // Every orphan, not only the workload: dead ones count against the process limit.
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if pid.as_raw_nonzero().get() == workload {
                return Ok(status_of(status));
            }
        }
    }
}

fn status_of(status: WaitStatus) -> Status {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Status::Exited(code),
        (None, Some(signal)) => Status::Signaled(signal),
        (None, None) => Status::Signaled(0),
    }
}

/// Kills all that the workload left and waits for the last of it.
fn clear() -> Result<(), Halt> {
    sys::kill_all().at("kill what is left")?;
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Err(rustix::io::Errno::CHILD) => return Ok(()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).at("reap what is left"),
        }
    }
}

fn hand_over(status: Status, ran_micros: u64, output: HeldOutput) -> Result<(), Halt> {
    let (output, file) = files::collect(output);
    let ended = Reply::Ended {
        status,
        ran_micros,
        output,
    };
    send(&ended, file.as_ref())
}

fn send(reply: &Reply, descriptor: Option<&OwnedFd>) -> Result<(), Halt> {
    let bytes = reply
        .encode()
        .map_err(|error| Halt::step(error.to_string()))?;
    let descriptors: Vec<_> = descriptor.iter().map(|it| it.as_fd()).collect();
    socket::send(io::stdin().as_fd(), &bytes, &descriptors).map_err(|_| Halt::OwnerGone)
}
