//! One live worker of the namespace tier, between its start and its removal.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use model::Digest;
use rustix::event::{PollFd, PollFlags};
use sandbox_init::limits::REPLY_BYTES_MAX;
use sandbox_init::socket;
use sandbox_init::wire::{OutputReport, Reply, Status};
use worker::{
    Ended, Ending, LimitReached, OutputFile, RemovalError, RemovedWorker, Running, Stream,
};

use crate::bounded::Bounded;
use crate::cgroup::WorkerGroups;
use crate::launch::{InitProcess, Launched};
use crate::limits::READ_BYTES;
use crate::slots::IdSlot;

/// What a shell adds to the signal that ended its last command.
const SHELL_SIGNAL_BASE: i32 = 128;

/// What a worker owns besides its process.
#[derive(Debug)]
pub(crate) struct Belongings {
    pub(crate) name: String,
    /// Of the call that the worker serves.
    pub(crate) call_digest: Digest,
    pub(crate) groups: WorkerGroups,
    /// Freed after the processes are gone: nobody else may get these ids before.
    pub(crate) slot: Option<IdSlot>,
    pub(crate) stream_bytes: u64,
    pub(crate) has_output: bool,
}

/// A worker that runs, or has run and is not removed. Dropping it kills and reaps it.
///
/// It must not outlive the thread that started it: the kernel then kills it.
#[derive(Debug)]
pub(crate) struct NamespaceWorker {
    // Declared first, dropped first: processes go before groups and ids.
    init: InitProcess,
    phase: Phase,
    belongings: Belongings,
}

#[derive(Debug)]
enum Phase {
    Live(Live),
    Over,
}

#[derive(Debug)]
struct Live {
    started: Instant,
    control: Option<OwnedFd>,
    stdout: Capture,
    stderr: Capture,
    stopped: Option<StopCause>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopCause {
    Asked,
    StreamBytes,
}

/// How the workload ended, as far as init could say.
struct LastWord {
    status: Status,
    ran_for: Duration,
    output: OutputReport,
    file: Option<OwnedFd>,
}

impl NamespaceWorker {
    pub(crate) fn new(launched: Launched, belongings: Belongings) -> Self {
        let Launched {
            init,
            control,
            stdout,
            stderr,
        } = launched;
        let capture = |source| Capture::new(source, belongings.stream_bytes);
        let live = Live {
            started: Instant::now(),
            control: Some(control),
            stdout: capture(stdout),
            stderr: capture(stderr),
            stopped: None,
        };
        Self {
            init,
            phase: Phase::Live(live),
            belongings,
        }
    }

    fn end(&mut self, word: Option<LastWord>) -> Option<Ended> {
        let Phase::Live(mut live) = std::mem::replace(&mut self.phase, Phase::Over) else {
            return None;
        };
        // Everybody who could write is dead: what is in the pipes is all.
        live.drain();
        let out_of_memory = self.belongings.groups.ran_out_of_memory();
        let limit = match (live.stopped, live.is_over_limit(), out_of_memory) {
            (Some(StopCause::StreamBytes), _, _) | (_, true, _) => Some(LimitReached::StreamBytes),
            (_, _, true) => Some(LimitReached::Memory),
            _ => word.as_ref().and_then(|word| limit_of(word.status)),
        };
        let was_stopped = live.stopped.is_some() || limit == Some(LimitReached::StreamBytes);
        let ending = match (&word, was_stopped) {
            (_, true) => Ending::Stopped,
            (Some(word), false) => match word.status {
                Status::Exited(code) => Ending::Exited { code },
                Status::Signaled(signal) => Ending::Signaled { signal },
            },
            (None, false) => Ending::Lost,
        };
        let ran_for = word
            .as_ref()
            .map_or_else(|| live.started.elapsed(), |word| word.ran_for);
        let output = match (self.belongings.has_output, word) {
            (false, _) => OutputFile::NotGranted,
            (true, Some(word)) if !was_stopped => output_of(word),
            (true, _) => OutputFile::Unusable {
                reason: "the worker was stopped".to_owned(),
            },
        };
        Some(Ended {
            ending,
            limit,
            stdout: live.stdout.into_stream(),
            stderr: live.stderr.into_stream(),
            output,
            ran_for,
            parser: None,
        })
    }
}

fn limit_of(status: Status) -> Option<LimitReached> {
    match status {
        Status::Signaled(signal) => limit_of_signal(signal),
        Status::Exited(code) => limit_of_code(code),
    }
}

/// The limit behind the exit code of a shell whose last command a signal ended.
pub(crate) fn limit_of_code(code: i32) -> Option<LimitReached> {
    limit_of_signal(code.checked_sub(SHELL_SIGNAL_BASE)?)
}

fn limit_of_signal(signal: i32) -> Option<LimitReached> {
    match signal {
        libc::SIGXFSZ => Some(LimitReached::FileBytes),
        libc::SIGXCPU => Some(LimitReached::Cpu),
        _ => None,
    }
}

fn output_of(word: LastWord) -> OutputFile {
    let unusable = |reason: String| OutputFile::Unusable { reason };
    match (word.output, word.file) {
        (OutputReport::Written, Some(file)) => {
            let file = File::from(file);
            match file.metadata() {
                Ok(it) if it.is_file() => OutputFile::Written {
                    bytes: it.len(),
                    file,
                },
                Ok(_) => unusable("it is not a regular file".to_owned()),
                Err(error) => unusable(format!("it cannot be read: {error}")),
            }
        }
        (OutputReport::Unusable { reason }, _) => unusable(reason),
        (OutputReport::Written | OutputReport::NotGranted, _) => {
            unusable("the helper did not hand it over".to_owned())
        }
    }
}

impl Running for NamespaceWorker {
    fn poll_descriptors<'a>(&'a self, into: &mut Vec<PollFd<'a>>) {
        let Phase::Live(live) = &self.phase else {
            return;
        };
        let sources = [&live.control, &live.stdout.source, &live.stderr.source];
        into.extend(
            sources
                .into_iter()
                .flatten()
                .map(|it| PollFd::new(it, PollFlags::IN)),
        );
        into.push(PollFd::from_borrowed_fd(self.init.pidfd(), PollFlags::IN));
    }

    fn stdout_since(&self, since: usize) -> Cow<'_, [u8]> {
        let Phase::Live(live) = &self.phase else {
            return Cow::Borrowed(&[]);
        };
        Cow::Borrowed(live.stdout.kept.bytes().get(since..).unwrap_or_default())
    }

    fn advance(&mut self) -> Option<Ended> {
        let Phase::Live(live) = &mut self.phase else {
            return None;
        };
        live.drain();
        if live.is_over_limit() && live.stopped.is_none() {
            live.stopped = Some(StopCause::StreamBytes);
            self.init.kill();
        }
        // Asked before the socket is read: what init said before it died is then there.
        let has_ended = self.init.has_ended();
        let word = live.last_word();
        if word.is_some() || has_ended {
            self.end(word)
        } else {
            None
        }
    }

    fn stop(&mut self) {
        if let Phase::Live(live) = &mut self.phase {
            live.stopped.get_or_insert(StopCause::Asked);
            self.init.kill();
        }
    }

    fn remove(&mut self) -> Result<Vec<RemovedWorker>, RemovalError> {
        let removed_worker = RemovedWorker {
            worker: self.belongings.name.clone(),
            call_digest: self.belongings.call_digest,
        };
        let unconfirmed = |step: &str, error: io::Error| RemovalError {
            worker: self.belongings.name.clone(),
            reason: format!("{step}: {error}"),
        };
        self.init
            .reap()
            .map_err(|error| unconfirmed("its processes", error))?;
        let removed = self.belongings.groups.remove();
        removed.map_err(|error| unconfirmed("its control groups", error))?;
        self.phase = Phase::Over;
        self.belongings.slot = None;
        Ok(vec![removed_worker])
    }
}

impl Live {
    fn drain(&mut self) {
        self.stdout.drain();
        self.stderr.drain();
    }

    fn is_over_limit(&self) -> bool {
        self.stdout.kept.is_over() || self.stderr.kept.is_over()
    }

    /// Init's last word, if it is there. A socket at its end is no longer asked.
    fn last_word(&mut self) -> Option<LastWord> {
        let control = self.control.as_ref()?;
        let packet = match socket::receive(control.as_fd(), REPLY_BYTES_MAX) {
            Ok(Some(packet)) => packet,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Ok(None) | Err(_) => {
                self.control = None;
                return None;
            }
        };
        match Reply::decode(&packet.bytes) {
            Ok(Reply::Ended {
                status,
                ran_micros,
                output,
            }) => Some(LastWord {
                status,
                ran_for: Duration::from_micros(ran_micros),
                output,
                file: packet.descriptors.into_iter().next(),
            }),
            _ => None,
        }
    }
}

/// One stream of the workload, read up to its bound.
#[derive(Debug)]
struct Capture {
    source: Option<OwnedFd>,
    kept: Bounded,
}

impl Capture {
    fn new(source: OwnedFd, bytes_max: u64) -> Self {
        Self {
            source: Some(source),
            kept: Bounded::new(bytes_max),
        }
    }

    /// Takes what is there. A stream at its end or past its bound is no longer asked.
    fn drain(&mut self) {
        let Some(source) = &self.source else { return };
        let mut buffer = [0; READ_BYTES];
        while !self.kept.is_over() {
            match rustix::io::read(source, &mut buffer) {
                Ok(0) => break,
                Ok(count) => self.kept.take(buffer.get(..count).unwrap_or_default()),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => break,
            }
        }
        self.source = None;
    }

    fn into_stream(self) -> Stream {
        self.kept.into_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn captured(text: &[u8], max: u64) -> Capture {
        let (ours, theirs) = rustix::pipe::pipe().unwrap();
        File::from(theirs).write_all(text).unwrap();
        let mut capture = Capture::new(ours, max);
        capture.drain();
        capture
    }

    #[test]
    fn a_stream_at_its_bound_is_whole_and_one_past_is_over() {
        let at = captured(b"12345", 5).into_stream();
        assert!(!at.over_limit && at.bytes == b"12345");
        let past = captured(b"123456", 5).into_stream();
        assert!(past.over_limit && past.bytes == b"12345");
    }

    #[test]
    fn limits_are_told_by_signal_also_through_a_shell() {
        let xfsz = Some(LimitReached::FileBytes);
        assert_eq!(limit_of(Status::Signaled(libc::SIGXFSZ)), xfsz);
        assert_eq!(limit_of(Status::Exited(128 + libc::SIGXFSZ)), xfsz);
        assert_eq!(
            limit_of(Status::Signaled(libc::SIGXCPU)),
            Some(LimitReached::Cpu)
        );
        assert_eq!(limit_of(Status::Exited(libc::SIGXFSZ)), None);
        assert_eq!(limit_of(Status::Signaled(libc::SIGKILL)), None);
    }
}
