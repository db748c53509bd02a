//! One live container, between its start and its removal.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use model::Digest;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use worker::{
    Ended, Ending, LimitReached, OutputFile, RemovalError, RemovedWorker, Running, StartError,
    Stream, WorkerSpec,
};

use super::claim::Claim;
use super::staging::HeldOutput;
use super::watch::{Excess, FreshWatch};
use super::{RUN_PROGRAM, failed};
use crate::bounded::Bounded;
use crate::engine::{Attachment, EngineError, Pending, StreamKind, WaitEnd};
use crate::limits::{COPY_BYTES, STOP_WAIT_MAX, STREAMS_END_MAX};
use crate::running::limit_of_code;

/// The exit code of a process that SIGKILL ended, as the engine tells it.
const KILLED_CODE: i64 = 137;

/// A worker that runs, or has run and is not removed.
#[derive(Debug)]
pub(super) struct ContainerWorker {
    phase: Phase,
    claim: Claim,
    call_digest: Digest,
}

#[derive(Debug)]
enum Phase {
    Live(Box<Live>),
    /// It ended before it could be watched. The descriptor is ready.
    Told {
        ended: Box<Ended>,
        ready: OwnedFd,
    },
    Over,
}

#[derive(Debug)]
struct Live {
    started: Instant,
    streams: Attachment,
    stdin: Option<Stdin>,
    stdout: Bounded,
    stderr: Bounded,
    end: Pending<WaitEnd>,
    code: Option<i64>,
    kill: Option<Pending<()>>,
    output: HeldOutput,
    file_bytes_max: u64,
    fresh: Option<FreshWatch>,
    /// Rings when an end that must come soon has not come.
    alarm: OwnedFd,
    stopped: Option<StopCause>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum StopCause {
    Asked,
    StreamBytes,
    Fresh(Excess),
}

/// What the worker reads, as far as it has taken it.
#[derive(Debug)]
struct Stdin {
    file: File,
    at: u64,
}

impl ContainerWorker {
    /// Attaches to the claim's stopped container and starts it.
    ///
    /// # Errors
    /// [`StartError`]: no instruction of the workload has run. Where that is not certain, the
    /// worker is returned as one that has ended.
    pub(super) fn start(mut claim: Claim, spec: &WorkerSpec) -> Result<Self, StartError> {
        let call_digest = spec.call_digest();
        let limits = spec.limits();
        let output = claim.take_output();
        let fresh = match &output {
            HeldOutput::Fresh { folder, .. } => Some(
                FreshWatch::new(folder.as_fd(), limits.file_bytes.value)
                    .map_err(|error| failed("watch the output's folder", error))?,
            ),
            HeldOutput::NotGranted | HeldOutput::File(_) => None,
        };
        let stdin = spec.stdin().map(File::try_clone).transpose();
        let stdin = stdin.map_err(|error| failed("standard input", error))?;
        let alarm = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )
        .map_err(|error| failed("timer", error))?;
        let streams = claim
            .attach(stdin.is_some())
            .map_err(|error| failed("attach", error))?;
        streams
            .do_not_block()
            .map_err(|error| failed("attach", error))?;
        let started = Instant::now();
        if let Err(error) = claim.start() {
            return Self::not_started(claim, call_digest, &error);
        }
        let end = match claim.wait() {
            Ok(end) => end,
            Err(error) => return Self::told(claim, call_digest, &error),
        };
        let bounded = || Bounded::new(limits.stream_bytes.value);
        let live = Live {
            started,
            streams,
            stdin: stdin.map(|file| Stdin { file, at: 0 }),
            stdout: bounded(),
            stderr: bounded(),
            end,
            code: None,
            kill: None,
            output,
            file_bytes_max: limits.file_bytes.value,
            fresh,
            alarm,
            stopped: None,
        };
        Ok(Self {
            phase: Phase::Live(Box::new(live)),
            claim,
            call_digest,
        })
    }

    /// A start that failed. The engine knows whether an instruction of the workload ran.
    fn not_started(
        mut claim: Claim,
        call_digest: Digest,
        error: &EngineError,
    ) -> Result<Self, StartError> {
        let state = claim.inspect().ok().flatten().map(|found| found.state);
        let never_ran = error.did_nothing()
            || state.is_some_and(|state| !state.running && has_never_started(&state.started_at));
        if never_ran && claim.remove().is_ok() {
            return Err(explain_start(error));
        }
        Self::told(claim, call_digest, error)
    }

    /// A worker that cannot be watched: it is ended at once. Where that is confirmed, it was
    /// stopped; otherwise it is lost.
    fn told(
        mut claim: Claim,
        call_digest: Digest,
        error: &EngineError,
    ) -> Result<Self, StartError> {
        let ending = match claim.remove() {
            Ok(()) => Ending::Stopped,
            Err(_) => Ending::Lost,
        };
        let message = error.to_string();
        let ended = Ended {
            ending,
            limit: None,
            stdout: Stream::default(),
            stderr: Stream {
                bytes: message.clone().into_bytes(),
                over_limit: false,
            },
            output: OutputFile::Unusable { reason: message },
            ran_for: Duration::ZERO,
            parser: None,
        };
        let ready = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| failed("eventfd", error))?;
        Ok(Self {
            phase: Phase::Told {
                ended: Box::new(ended),
                ready,
            },
            claim,
            call_digest,
        })
    }

    fn end(&mut self, ending: Option<Ending>) -> Option<Ended> {
        let Phase::Live(live) = std::mem::replace(&mut self.phase, Phase::Over) else {
            return None;
        };
        let out_of_memory = live.code == Some(KILLED_CODE) && self.ran_out_of_memory();
        Some(live.into_ended(ending, out_of_memory))
    }

    /// What the engine says of a container that has ended.
    fn ran_out_of_memory(&self) -> bool {
        let found = self.claim.inspect().ok().flatten();
        found.is_some_and(|found| found.state.oom_killed)
    }

    /// The engine ended its answer: the container runs, has ended, or is out of sight.
    fn wait_again(&mut self) -> Option<Ending> {
        let found = self.claim.inspect().ok().flatten();
        let Phase::Live(live) = &mut self.phase else {
            return None;
        };
        match found.map(|found| found.state) {
            Some(state) if state.running => match self.claim.wait() {
                Ok(end) => {
                    live.end = end;
                    None
                }
                Err(_) => Some(Ending::Lost),
            },
            Some(state) => {
                live.code = Some(state.exit_code);
                None
            }
            None => Some(Ending::Lost),
        }
    }
}

/// The engine's word for a time that never was.
fn has_never_started(started_at: &str) -> bool {
    started_at.is_empty() || started_at.starts_with("0001-01-01")
}

/// Why the engine did not start a program, for the operator.
fn explain_start(error: &EngineError) -> StartError {
    let message = error.message().unwrap_or_default();
    let says = |text: &str| message.contains(text);
    if says("executable file not found") || says("no such file or directory") {
        return failed(
            RUN_PROGRAM,
            format!("it is not in the image, or not in the worker's PATH: {message}"),
        );
    }
    if says("permission denied") && says("exec") {
        return failed(
            RUN_PROGRAM,
            format!("the image does not let the worker run it: {message}"),
        );
    }
    failed("start the container", error)
}

impl Running for ContainerWorker {
    fn poll_descriptors<'a>(&'a self, into: &mut Vec<PollFd<'a>>) {
        let live = match &self.phase {
            Phase::Live(live) => live,
            Phase::Told { ready, .. } => {
                into.push(PollFd::new(ready, PollFlags::IN));
                return;
            }
            Phase::Over => return,
        };
        if !live.streams.is_over() {
            let flags = match &live.stdin {
                Some(_) => PollFlags::IN | PollFlags::OUT,
                None => PollFlags::IN,
            };
            into.push(PollFd::new(&live.streams, flags));
        }
        if live.code.is_none() {
            into.push(PollFd::new(&live.end, PollFlags::IN));
        }
        if let Some(kill) = &live.kill {
            into.push(PollFd::new(kill, PollFlags::IN));
        }
        if let Some(fresh) = &live.fresh {
            into.push(PollFd::new(fresh, PollFlags::IN));
        }
        into.push(PollFd::new(&live.alarm, PollFlags::IN));
    }

    fn stdout_since(&self, since: usize) -> Cow<'_, [u8]> {
        let Phase::Live(live) = &self.phase else {
            return Cow::Borrowed(&[]);
        };
        Cow::Borrowed(live.stdout.bytes().get(since..).unwrap_or_default())
    }

    fn advance(&mut self) -> Option<Ended> {
        let live = match &mut self.phase {
            Phase::Live(live) => live,
            Phase::Told { .. } => {
                let told = std::mem::replace(&mut self.phase, Phase::Over);
                let Phase::Told { ended, .. } = told else {
                    return None;
                };
                return Some(*ended);
            }
            Phase::Over => return None,
        };
        live.drain();
        if let Some(cause) = live.excess() {
            live.stop(cause, &self.claim);
        }
        live.feed();
        let rang = live.rang();
        let mut ending = None;
        if live.code.is_none() {
            match live.end.advance() {
                None => {}
                Some(Ok(end)) => live.code = Some(end.status_code),
                Some(Err(_)) => ending = self.wait_again(),
            }
        }
        let Phase::Live(live) = &mut self.phase else {
            return None;
        };
        if ending.is_some() {
            return self.end(ending);
        }
        match live.code {
            // All who could write are dead: what the engine still has comes at once.
            Some(_) if live.streams.is_over() || rang => self.end(None),
            Some(_) => {
                live.set_alarm(STREAMS_END_MAX);
                None
            }
            None if rang => self.end(Some(Ending::Lost)),
            None => None,
        }
    }

    fn stop(&mut self) {
        if let Phase::Live(live) = &mut self.phase {
            live.stop(StopCause::Asked, &self.claim);
        }
    }

    fn remove(&mut self) -> Result<Vec<RemovedWorker>, RemovalError> {
        let removed = RemovedWorker {
            worker: self.claim.worker_name(),
            call_digest: self.call_digest,
        };
        match self.claim.remove() {
            Ok(()) => {
                self.phase = Phase::Over;
                Ok(vec![removed])
            }
            Err(reason) => Err(RemovalError {
                worker: removed.worker,
                reason,
            }),
        }
    }
}

impl Live {
    fn drain(&mut self) {
        let Self {
            streams,
            stdout,
            stderr,
            ..
        } = self;
        streams.drain(&mut |kind, piece| match kind {
            StreamKind::Stdout => stdout.take(piece),
            StreamKind::Stderr => stderr.take(piece),
        });
        if let Some(kill) = &mut self.kill
            && kill.advance().is_some()
        {
            // Whatever the engine said: the container's end says whether it worked.
            self.kill = None;
        }
    }

    fn is_over_limit(&self) -> bool {
        self.stdout.is_over() || self.stderr.is_over()
    }

    /// What the worker took too much of, where nobody has stopped it yet.
    fn excess(&mut self) -> Option<StopCause> {
        if self.stopped.is_some() {
            return None;
        }
        if self.is_over_limit() {
            return Some(StopCause::StreamBytes);
        }
        match self.fresh.as_mut()?.advance() {
            Ok(excess) => excess.map(StopCause::Fresh),
            // A folder that cannot be watched is not written any more.
            Err(_) => Some(StopCause::Fresh(Excess::Bytes)),
        }
    }

    fn stop(&mut self, cause: StopCause, claim: &Claim) {
        if self.stopped.is_some() {
            return;
        }
        self.stopped = Some(cause);
        self.kill = claim.kill_soon().ok();
        self.set_alarm(STOP_WAIT_MAX);
    }

    /// Gives the worker what there is room for of its standard input.
    fn feed(&mut self) {
        let Some(stdin) = &mut self.stdin else { return };
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            let count = stdin.file.read_at(&mut buffer, stdin.at).unwrap_or(0);
            let part = buffer.get(..count).unwrap_or_default();
            if part.is_empty() {
                break;
            }
            match self.streams.write_stdin(part) {
                Ok(taken) => stdin.at += taken as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Nobody reads it any more.
                Err(_) => break,
            }
        }
        self.streams.end_stdin();
        self.stdin = None;
    }

    /// Whether the alarm rang. It rings once for each setting.
    fn rang(&self) -> bool {
        let mut count = [0; 8];
        rustix::io::read(&self.alarm, &mut count).is_ok()
    }

    fn set_alarm(&self, after: Duration) {
        let value = Timespec {
            tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: after.subsec_nanos().into(),
        };
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: value,
        };
        // A constant time on an open timer cannot be refused.
        let _set = timerfd_settime(&self.alarm, TimerfdTimerFlags::empty(), &once);
    }

    fn into_ended(self: Box<Self>, ending: Option<Ending>, out_of_memory: bool) -> Ended {
        let code = self
            .code
            .map(|code| i32::try_from(code).unwrap_or(i32::MAX));
        let over = self.is_over_limit();
        let limit = match &self.stopped {
            Some(StopCause::StreamBytes) => Some(LimitReached::StreamBytes),
            Some(StopCause::Fresh(_)) => Some(LimitReached::FileBytes),
            _ if over => Some(LimitReached::StreamBytes),
            _ if out_of_memory => Some(LimitReached::Memory),
            Some(StopCause::Asked) => None,
            None => code.and_then(|code| {
                // A container's first process is not ended by the signal: its write fails.
                let full = code != 0 && self.output.is_full(self.file_bytes_max);
                limit_of_code(code).or(full.then_some(LimitReached::FileBytes))
            }),
        };
        let was_stopped = self.stopped.is_some() || over;
        let ending = match (ending, code) {
            (Some(ending), _) => ending,
            (None, _) if was_stopped => Ending::Stopped,
            (None, Some(code)) => Ending::Exited { code },
            (None, None) => Ending::Lost,
        };
        let output = match (self.output, &ending) {
            (HeldOutput::NotGranted, _) => OutputFile::NotGranted,
            (held, Ending::Exited { .. }) => held.collect(),
            _ => OutputFile::Unusable {
                reason: match &self.stopped {
                    Some(StopCause::Fresh(excess)) => excess.to_string(),
                    _ => "the worker was stopped".to_owned(),
                },
            },
        };
        Ended {
            ending,
            limit,
            stdout: self.stdout.into_stream(),
            stderr: self.stderr.into_stream(),
            output,
            ran_for: self.started.elapsed(),
            parser: None,
        }
    }
}
