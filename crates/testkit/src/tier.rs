//! A tier that runs nothing: a test says what each worker does, ends it when it likes, and reads
//! what was started, stopped and removed.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use model::Digest;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use worker::{
    Ended, Ending, Enforcement, Limit, LimitReached, Limits, OutputFile, RemovalError,
    RemovedWorker, Running, StartError, Stream, Tier, TierKind, WorkerSpec,
};

/// What a worker does, from its start to its removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Play {
    /// `None`: it runs until it is stopped, or until [`FakeTier::end`].
    pub ending: Option<Ending>,
    pub limit: Option<LimitReached>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub output: PlayedOutput,
    pub ran_for: Duration,
    /// The removal fails with this reason.
    pub removal_fails: Option<String>,
    /// A stop has no effect: the worker is lost.
    pub ignores_stop: bool,
    /// The removal names this call instead of the worker's own.
    pub serves: Option<Digest>,
}

/// What a worker leaves at its output's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlayedOutput {
    /// As in `file` mode: an empty file, if an output was granted at all.
    Untouched,
    Written(Vec<u8>),
    Unusable(String),
    /// Nothing, granted or not.
    Nothing,
}

impl Play {
    /// Ends at once with `code`.
    #[must_use]
    pub fn exits(code: i32) -> Self {
        Self::ends(Ending::Exited { code })
    }

    /// Ends at once.
    #[must_use]
    pub fn ends(ending: Ending) -> Self {
        Self {
            ending: Some(ending),
            limit: None,
            stdout: Vec::new(),
            stderr: Vec::new(),
            output: PlayedOutput::Untouched,
            ran_for: Duration::from_millis(1),
            removal_fails: None,
            ignores_stop: false,
            serves: None,
        }
    }

    /// Runs until it is stopped, or ended by the test.
    #[must_use]
    pub fn runs_on() -> Self {
        Self {
            ending: None,
            ..Self::exits(0)
        }
    }

    #[must_use]
    pub fn stdout(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdout = bytes.into();
        self
    }

    #[must_use]
    pub fn stderr(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stderr = bytes.into();
        self
    }

    #[must_use]
    pub fn limit(mut self, limit: LimitReached) -> Self {
        self.limit = Some(limit);
        self
    }

    #[must_use]
    pub fn writes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.output = PlayedOutput::Written(bytes.into());
        self
    }

    #[must_use]
    pub fn output(mut self, output: PlayedOutput) -> Self {
        self.output = output;
        self
    }

    #[must_use]
    pub fn removal_fails(mut self, reason: &str) -> Self {
        self.removal_fails = Some(reason.to_owned());
        self
    }

    #[must_use]
    pub fn serves(mut self, call_sha256: Digest) -> Self {
        self.serves = Some(call_sha256);
        self
    }

    #[must_use]
    pub fn ignores_stop(mut self) -> Self {
        self.ignores_stop = true;
        self
    }
}

/// What the tier does with the next start.
#[derive(Debug)]
pub enum Script {
    Runs(Play),
    Refuses(StartError),
}

/// One thing that happened in the tier. Workers count from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    Started {
        worker: usize,
        argv: Vec<String>,
        call_sha256: Digest,
        /// Paths of the inputs, in the worker's terms.
        inputs: Vec<String>,
        /// Path of the output, in the worker's terms.
        output: Option<String>,
    },
    NotStarted {
        argv: Vec<String>,
        call_sha256: Digest,
    },
    /// A stop was asked for.
    Stopped {
        worker: usize,
    },
    /// The session has taken its end.
    Ended {
        worker: usize,
    },
    Removed {
        worker: usize,
    },
    RemovalFailed {
        worker: usize,
    },
    /// Let go without a removal: a real tier kills it here.
    Dropped {
        worker: usize,
    },
}

/// A tier for tests. Clones are handles on the same one.
#[derive(Debug, Clone)]
pub struct FakeTier {
    kind: TierKind,
    enforcement: Enforcement,
    stage: Arc<Stage>,
}

#[derive(Debug, Default)]
struct Stage {
    acts: Mutex<Acts>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Acts {
    scripts: VecDeque<Script>,
    log: Vec<Happened>,
    workers: usize,
    /// Ends that tests have given to workers that run.
    live: BTreeMap<usize, Live>,
}

#[derive(Debug)]
struct Live {
    play: Play,
    wake: Arc<OwnedFd>,
}

impl Stage {
    fn lock(&self) -> MutexGuard<'_, Acts> {
        self.acts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, happened: Happened) {
        self.lock().log.push(happened);
        self.changed.notify_all();
    }
}

impl Default for FakeTier {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeTier {
    /// A namespace tier that enforces every limit, and whose workers exit with 0 at once.
    #[must_use]
    pub fn new() -> Self {
        Self {
            kind: TierKind::Namespace,
            enforcement: Enforcement::Enforced,
            stage: Arc::default(),
        }
    }

    /// The same tier, reporting this enforcement for every limit.
    #[must_use]
    pub fn enforcing(mut self, enforcement: Enforcement) -> Self {
        self.enforcement = enforcement;
        self
    }

    /// Appends to the script: one entry is used up by each start.
    pub fn next(&self, script: Script) {
        self.stage.lock().scripts.push_back(script);
    }

    /// [`FakeTier::next`] for a worker that starts.
    pub fn next_runs(&self, play: Play) {
        self.next(Script::Runs(play));
    }

    /// [`FakeTier::next`] for a worker that does not start.
    pub fn next_fails(&self, step: &str, reason: &str) {
        self.next(Script::Refuses(StartError::Failed {
            step: step.to_owned(),
            reason: reason.to_owned(),
        }));
    }

    /// Drops what is left of the script.
    pub fn forget_script(&self) {
        self.stage.lock().scripts.clear();
    }

    /// The worker that was started last for this call.
    #[must_use]
    pub fn worker_of(&self, call: Digest) -> Option<usize> {
        let started = |it: &Happened| match it {
            Happened::Started {
                worker,
                call_sha256,
                ..
            } => (*call_sha256 == call).then_some(*worker),
            _ => None,
        };
        self.stage.lock().log.iter().rev().find_map(started)
    }

    /// All that happened so far, in order.
    #[must_use]
    pub fn log(&self) -> Vec<Happened> {
        self.stage.lock().log.clone()
    }

    /// How many workers were started so far.
    #[must_use]
    pub fn started(&self) -> usize {
        self.stage.lock().workers
    }

    /// The workers that were started and neither removed nor dropped.
    #[must_use]
    pub fn live(&self) -> Vec<usize> {
        self.stage.lock().live.keys().copied().collect()
    }

    /// Gives a running worker its end. False if there is no such worker, or it has one.
    pub fn end(&self, worker: usize, play: Play) -> bool {
        let mut acts = self.stage.lock();
        match acts.live.get_mut(&worker) {
            Some(live) if live.play.ending.is_none() => {
                live.play = play;
                wake(&live.wake);
                true
            }
            _ => false,
        }
    }

    /// A running worker writes to its standard output. False if there is no such worker.
    pub fn says(&self, worker: usize, bytes: &[u8]) -> bool {
        let mut acts = self.stage.lock();
        match acts.live.get_mut(&worker) {
            Some(live) if live.play.ending.is_none() => {
                live.play.stdout.extend_from_slice(bytes);
                wake(&live.wake);
                true
            }
            _ => false,
        }
    }

    /// Blocks until `wanted` holds of the log. False if it does not within `timeout`.
    #[must_use]
    pub fn wait_for(&self, timeout: Duration, wanted: impl Fn(&[Happened]) -> bool) -> bool {
        let until = Instant::now() + timeout;
        let mut acts = self.stage.lock();
        while !wanted(&acts.log) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.stage.changed.wait_timeout(acts, left);
            acts = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Blocks until `count` workers were started. False if they are not within `timeout`.
    #[must_use]
    pub fn wait_started(&self, count: usize, timeout: Duration) -> bool {
        let started = |it: &&Happened| matches!(it, Happened::Started { .. });
        self.wait_for(timeout, |log| log.iter().filter(started).count() >= count)
    }

    /// Starts work that has no worker; what was not scripted goes as `otherwise` says.
    ///
    /// # Errors
    /// The scripted one.
    pub fn start_in_process(
        &self,
        argv: Vec<String>,
        call_sha256: Digest,
        otherwise: Play,
    ) -> Result<Box<dyn Running>, StartError> {
        self.launch(
            Asked {
                argv,
                call_sha256,
                inputs: Vec::new(),
                output: None,
            },
            otherwise,
        )
    }

    /// [`Tier::start`], where what was not scripted goes as `otherwise` says.
    ///
    /// # Errors
    /// The scripted one.
    pub fn start_or(
        &self,
        spec: &WorkerSpec,
        otherwise: Play,
    ) -> Result<Box<dyn Running>, StartError> {
        let inputs = spec.inputs().iter().map(|input| input.path.to_string());
        let asked = Asked {
            argv: spec.argv().to_vec(),
            call_sha256: spec.call_digest(),
            inputs: inputs.collect(),
            output: spec.output().map(|output| output.path.to_string()),
        };
        self.launch(asked, otherwise)
    }

    fn launch(&self, asked: Asked, otherwise: Play) -> Result<Box<dyn Running>, StartError> {
        let mut acts = self.stage.lock();
        let script = acts.scripts.pop_front();
        let Asked {
            argv,
            call_sha256,
            inputs,
            output,
        } = asked;
        let refusal = match script {
            Some(Script::Refuses(refusal)) => Err(refusal),
            Some(Script::Runs(play)) => Ok(play),
            None => Ok(otherwise),
        };
        let play = match refusal {
            Ok(play) => play,
            Err(refusal) => {
                drop(acts);
                self.stage.note(Happened::NotStarted { argv, call_sha256 });
                return Err(refusal);
            }
        };
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let descriptor = eventfd(0, flags).map_err(|errno| StartError::Failed {
            step: "making an eventfd".to_owned(),
            reason: errno.to_string(),
        })?;
        let descriptor = Arc::new(descriptor);
        if play.ending.is_some() {
            wake(&descriptor);
        }
        let worker = acts.workers;
        acts.workers += 1;
        let granted = output.is_some();
        acts.live.insert(
            worker,
            Live {
                play,
                wake: Arc::clone(&descriptor),
            },
        );
        drop(acts);
        self.stage.note(Happened::Started {
            worker,
            argv,
            call_sha256,
            inputs,
            output,
        });
        Ok(Box::new(FakeRunning {
            worker,
            call_sha256,
            granted,
            stage: Arc::clone(&self.stage),
            wake: descriptor,
            ended: false,
            removed: false,
        }))
    }
}

struct Asked {
    argv: Vec<String>,
    call_sha256: Digest,
    inputs: Vec<String>,
    output: Option<String>,
}

impl Tier for FakeTier {
    fn kind(&self) -> TierKind {
        self.kind
    }

    fn enforceable(&self, wanted: Limits) -> Limits {
        let enforcement = self.enforcement;
        let as_here = |limit: Limit| Limit {
            value: limit.value,
            enforcement,
        };
        Limits {
            memory_mib: as_here(wanted.memory_mib),
            cpu_milli: as_here(wanted.cpu_milli),
            pids: as_here(wanted.pids),
            file_bytes: as_here(wanted.file_bytes),
            scratch_bytes: as_here(wanted.scratch_bytes),
            stream_bytes: as_here(wanted.stream_bytes),
            time_ms: as_here(wanted.time_ms),
            landlock: enforcement,
        }
    }

    fn start(&mut self, spec: WorkerSpec) -> Result<Box<dyn Running>, StartError> {
        self.start_or(&spec, Play::exits(0))
    }
}

#[derive(Debug)]
struct FakeRunning {
    worker: usize,
    call_sha256: Digest,
    granted: bool,
    stage: Arc<Stage>,
    /// Readable while there is an end to take.
    wake: Arc<OwnedFd>,
    ended: bool,
    removed: bool,
}

impl Running for FakeRunning {
    fn poll_descriptors<'a>(&'a self, into: &mut Vec<PollFd<'a>>) {
        into.push(PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN));
    }

    fn stdout_since(&self, since: usize) -> Cow<'_, [u8]> {
        let acts = self.stage.lock();
        let live = acts.live.get(&self.worker);
        let said = live.and_then(|live| live.play.stdout.get(since..));
        Cow::Owned(said.unwrap_or_default().to_vec())
    }

    fn advance(&mut self) -> Option<Ended> {
        if self.ended {
            return None;
        }
        let mut counter = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut counter);
        let play = {
            let acts = self.stage.lock();
            let live = acts.live.get(&self.worker)?;
            live.play.ending?;
            live.play.clone()
        };
        self.ended = true;
        self.stage.note(Happened::Ended {
            worker: self.worker,
        });
        Some(play.into_ended(self.granted))
    }

    fn stop(&mut self) {
        self.stage.note(Happened::Stopped {
            worker: self.worker,
        });
        let mut acts = self.stage.lock();
        if let Some(live) = acts.live.get_mut(&self.worker)
            && live.play.ending.is_none()
            && !live.play.ignores_stop
        {
            live.play.ending = Some(Ending::Stopped);
            wake(&live.wake);
        }
    }

    fn remove(&mut self) -> Result<Vec<RemovedWorker>, RemovalError> {
        let name = format!("fake-{}", self.worker);
        let live = self.stage.lock().live.remove(&self.worker);
        self.removed = true;
        let worker = self.worker;
        let strange = live.as_ref().and_then(|live| live.play.serves);
        match live.and_then(|live| live.play.removal_fails) {
            None => {
                self.stage.note(Happened::Removed { worker });
                Ok(vec![RemovedWorker {
                    worker: name,
                    call_digest: strange.unwrap_or(self.call_sha256),
                }])
            }
            Some(reason) => {
                self.stage.note(Happened::RemovalFailed { worker });
                Err(RemovalError {
                    worker: name,
                    reason,
                })
            }
        }
    }
}

impl Drop for FakeRunning {
    fn drop(&mut self) {
        if !self.removed {
            self.stage.lock().live.remove(&self.worker);
            self.stage.note(Happened::Dropped {
                worker: self.worker,
            });
        }
    }
}

impl Play {
    fn into_ended(self, granted: bool) -> Ended {
        let output = match self.output {
            PlayedOutput::Untouched if granted => written(&[]),
            PlayedOutput::Untouched | PlayedOutput::Nothing => OutputFile::NotGranted,
            PlayedOutput::Written(bytes) => written(&bytes),
            PlayedOutput::Unusable(reason) => OutputFile::Unusable { reason },
        };
        let over = self.limit == Some(LimitReached::StreamBytes);
        Ended {
            ending: self.ending.unwrap_or(Ending::Stopped),
            limit: self.limit,
            stdout: Stream {
                bytes: self.stdout,
                over_limit: over,
            },
            stderr: Stream {
                bytes: self.stderr,
                over_limit: false,
            },
            output,
            ran_for: self.ran_for,
            parser: None,
        }
    }
}

/// A file without a name that holds `bytes`.
fn written(bytes: &[u8]) -> OutputFile {
    let make = || -> std::io::Result<File> {
        let mut file = File::from(memfd_create("fake-output", MemfdFlags::CLOEXEC)?);
        file.write_all(bytes)?;
        Ok(file)
    };
    match make() {
        Ok(file) => OutputFile::Written {
            file,
            bytes: bytes.len() as u64,
        },
        Err(error) => OutputFile::Unusable {
            reason: format!("the fake output: {error}"),
        },
    }
}

fn wake(descriptor: &OwnedFd) {
    let _ = rustix::io::write(descriptor, &1_u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use rustix::event::{Timespec, poll};

    use super::*;

    fn start(tier: &FakeTier) -> Box<dyn Running> {
        let argv = vec!["true".to_owned()];
        tier.start_in_process(argv, Digest::of(b"call"), Play::exits(0))
            .unwrap()
    }

    fn is_ready(running: &dyn Running) -> bool {
        let mut descriptors = Vec::new();
        running.poll_descriptors(&mut descriptors);
        poll(
            &mut descriptors,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        )
        .unwrap()
            > 0
    }

    #[test]
    fn a_worker_that_runs_on_ends_when_the_test_says_so() {
        let tier = FakeTier::new();
        tier.next_runs(Play::runs_on());
        let mut running = start(&tier);
        assert!(!is_ready(&*running) && running.advance().is_none());
        assert!(tier.end(0, Play::exits(3).stdout("late")));
        assert!(!tier.end(0, Play::exits(4)), "it has an end already");
        assert!(is_ready(&*running));
        let ended = running.advance().unwrap();
        assert_eq!(ended.ending, Ending::Exited { code: 3 });
        assert_eq!(ended.stdout.bytes, b"late");
        assert!(running.advance().is_none() && !is_ready(&*running));
        assert_eq!(running.remove().unwrap()[0].worker, "fake-0");
    }

    #[test]
    fn a_stop_ends_a_worker_unless_it_is_lost() {
        let tier = FakeTier::new();
        tier.next_runs(Play::runs_on());
        tier.next_runs(Play::runs_on().ignores_stop().removal_fails("stuck"));
        let (mut stopped, mut lost) = (start(&tier), start(&tier));
        stopped.stop();
        lost.stop();
        assert_eq!(stopped.advance().unwrap().ending, Ending::Stopped);
        assert!(lost.advance().is_none());
        assert!(stopped.remove().is_ok() && lost.remove().is_err());
    }

    #[test]
    fn the_log_says_what_was_started_refused_removed_and_dropped() {
        let tier = FakeTier::new();
        let call_sha256 = Digest::of(b"call");
        let argv = vec!["true".to_owned()];
        tier.next_fails("clone", "no memory");
        let refused = tier.start_in_process(argv.clone(), call_sha256, Play::exits(0));
        assert!(refused.is_err());
        drop(start(&tier));
        let started = Happened::Started {
            worker: 0,
            argv: argv.clone(),
            call_sha256,
            inputs: Vec::new(),
            output: None,
        };
        let not_started = Happened::NotStarted { argv, call_sha256 };
        assert_eq!(
            tier.log(),
            [not_started, started, Happened::Dropped { worker: 0 }]
        );
        assert!(tier.live().is_empty());
        assert!(tier.wait_started(1, Duration::ZERO));
        assert!(!tier.wait_started(2, Duration::from_millis(1)));
    }
}
