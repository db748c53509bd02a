//! The probes of `symbi doctor`: they hold on this tier, and fail on one that contains nothing.

use std::fs::DirBuilder;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use sandbox::probes::{Finding, ProbePlace, Verdict, probe};
use worker::{
    Ended, Ending, Limits, OutputFile, RemovalError, RemovedWorker, Running, StartError, Stream,
    Tier, TierKind, WorkerRoot, WorkerSpec,
};

use crate::host::{init_path, is_root, tier};

fn findings(tier: &mut dyn Tier) -> Vec<Finding> {
    let base = tempfile::tempdir().unwrap();
    let folder = base.path().join("probe");
    DirBuilder::new().mode(0o700).create(&folder).unwrap();
    let place = ProbePlace {
        init: &init_path(),
        folder: &folder,
        root: WorkerRoot::System { also: Vec::new() },
        working_dir: "/workspace".to_owned(),
    };
    probe(tier, &place).unwrap()
}

#[test]
fn every_probe_holds_on_this_tier_or_is_partly_as_it_says() {
    let mut tier = tier();
    let found = findings(&mut tier);
    assert_eq!(found.len(), 13, "{found:#?}");
    for finding in &found {
        let partly = finding.probe == "memory" && finding.verdict == Verdict::Partly;
        assert!(partly || finding.verdict == Verdict::Holds, "{finding:#?}");
        assert_eq!(finding.remedy.is_some(), finding.verdict != Verdict::Holds);
    }
}

/// Starts the probes as ordinary processes of the host, and claims to enforce everything.
struct Bare(TierKind);

struct Process {
    child: Child,
    bytes: Vec<u8>,
    ended: bool,
}

impl Process {
    fn drain(&mut self) {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = self.child.stdout.as_mut().unwrap().read(&mut buffer) {
            self.bytes.extend_from_slice(&buffer[..read]);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Tier for Bare {
    fn kind(&self) -> TierKind {
        self.0
    }

    fn enforceable(&self, wanted: Limits) -> Limits {
        wanted
    }

    fn start(&mut self, spec: WorkerSpec) -> Result<Box<dyn Running>, StartError> {
        let (_, program) = spec.shown().unwrap();
        let channel = spec.channel().unwrap();
        let place = |word: &String| match word.strip_prefix("/channel") {
            Some(rest) => format!("{}{rest}", channel.display()),
            None => word.clone(),
        };
        let child = Command::new(program)
            .args(spec.argv().iter().skip(1).map(place))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let flags = rustix::fs::OFlags::NONBLOCK;
        rustix::fs::fcntl_setfl(child.stdout.as_ref().unwrap(), flags).unwrap();
        Ok(Box::new(Process {
            child,
            bytes: Vec::new(),
            ended: false,
        }))
    }
}

impl Running for Process {
    fn poll_descriptors<'a>(&'a self, into: &mut Vec<PollFd<'a>>) {
        let stdout = self.child.stdout.as_ref().unwrap();
        into.push(PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::IN));
    }

    fn advance(&mut self) -> Option<Ended> {
        self.drain();
        if self.ended {
            return None;
        }
        let Some(status) = self.child.try_wait().unwrap() else {
            std::thread::sleep(Duration::from_millis(1));
            return None;
        };
        self.ended = true;
        self.drain();
        let ending = match status.signal() {
            Some(signal) => Ending::Signaled { signal },
            None => Ending::Exited {
                code: status.code().unwrap(),
            },
        };
        Some(Ended {
            ending,
            limit: None,
            stdout: Stream {
                bytes: std::mem::take(&mut self.bytes),
                over_limit: false,
            },
            stderr: Stream::default(),
            output: OutputFile::NotGranted,
            ran_for: Duration::ZERO,
            parser: None,
        })
    }

    /// Stops nothing.
    fn stop(&mut self) {}

    /// Removes nothing.
    fn remove(&mut self) -> Result<Vec<RemovedWorker>, RemovalError> {
        Ok(Vec::new())
    }
}

/// Whether the host itself has a way out.
fn has_route() -> bool {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("169.254.169.254:80").is_ok()
}

#[test]
fn every_probe_fails_on_a_tier_that_contains_nothing() {
    let found = findings(&mut Bare(TierKind::Namespace));
    assert_eq!(found.len(), 13, "{found:#?}");
    for finding in found {
        let holds_anyway = match finding.probe {
            "metadata" => !has_route(),
            // The kernel keeps an ordinary user from another's process by itself.
            "init" => !is_root(),
            _ => false,
        };
        let fails = finding.verdict == Verdict::Fails && finding.remedy.is_some();
        assert!(fails || holds_anyway, "{finding:#?}");
    }
}

#[test]
fn a_tier_with_a_kernel_of_its_own_that_runs_on_the_hosts_does_not_hold() {
    let found = findings(&mut Bare(TierKind::Gvisor));
    let identity = found.iter().find(|it| it.probe == "identity").unwrap();
    assert_eq!(identity.verdict, Verdict::Fails);
    let kernel = "it runs on the kernel of the host";
    assert!(identity.found.contains(kernel), "{identity:#?}");
}

/// A tier whose workers do not start.
struct Absent;

impl Tier for Absent {
    fn kind(&self) -> TierKind {
        TierKind::Docker
    }

    fn enforceable(&self, wanted: Limits) -> Limits {
        wanted
    }

    fn start(&mut self, _: WorkerSpec) -> Result<Box<dyn Running>, StartError> {
        Err(StartError::Unavailable {
            reason: "it is not there".to_owned(),
        })
    }
}

#[test]
fn every_probe_fails_on_a_tier_that_starts_nothing() {
    for finding in findings(&mut Absent) {
        assert_eq!(finding.verdict, Verdict::Fails);
        assert!(finding.found.contains("it is not there"), "{finding:#?}");
    }
}
