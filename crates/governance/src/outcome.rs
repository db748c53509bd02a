//! How a dispatched call ended.

use std::time::Duration;

pub use filegrants::CreatedFile;
use journal::OutcomeStatus;
use worker::{Descriptor, Ended, Ending, LimitReached, Network};

/// The end of a call after its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The worker never ran an instruction.
    NotStarted {
        reason: String,
    },
    Succeeded,
    /// A bad end whose extent is known.
    Failed {
        reason: String,
    },
    /// We cannot know. The session stops.
    Unconfirmed {
        reason: String,
    },
}

impl Outcome {
    #[must_use]
    pub const fn status(&self) -> OutcomeStatus {
        match self {
            Self::NotStarted { .. } => OutcomeStatus::NotStarted,
            Self::Succeeded => OutcomeStatus::Succeeded,
            Self::Failed { .. } => OutcomeStatus::Failed,
            Self::Unconfirmed { .. } => OutcomeStatus::Unconfirmed,
        }
    }

    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Succeeded => None,
            Self::NotStarted { reason }
            | Self::Failed { reason }
            | Self::Unconfirmed { reason } => Some(reason),
        }
    }
}

/// What a host lacks to start a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// The isolation is not available, or could not be set up.
    Isolation,
    /// All workers, CPUs or memory that may be used at once are in use.
    Room,
}

/// Why the session stopped a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCause {
    /// The call's own time limit.
    TimeLimit { limit: Duration },
    /// The owner cancelled or closed the session, or dropped the call.
    Owner,
    /// The session's lifetime ended.
    Lifetime,
    /// The journal failed while the call ran.
    Journal,
}

impl StopCause {
    pub(crate) fn reason(self) -> String {
        match self {
            Self::TimeLimit { limit } => {
                format!("stopped at its time limit of {} s", limit.as_secs_f64())
            }
            Self::Owner => "stopped by the session's owner".to_owned(),
            Self::Lifetime => "stopped at the end of the session's lifetime".to_owned(),
            Self::Journal => "stopped because the journal failed".to_owned(),
        }
    }
}

/// What a tool said and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolOutput {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub limit: Option<&'static str>,
    pub ran_for: Duration,
}

impl ToolOutput {
    pub(crate) fn of(ended: &mut Ended) -> Self {
        let (exit_code, signal) = match ended.ending {
            Ending::Exited { code } => (Some(code), None),
            Ending::Signaled { signal } => (None, Some(signal)),
            Ending::Stopped | Ending::Lost => (None, None),
        };
        Self {
            stdout: std::mem::take(&mut ended.stdout.bytes),
            stderr: std::mem::take(&mut ended.stderr.bytes),
            exit_code,
            signal,
            limit: limit_of(ended).map(LimitReached::as_str),
            ran_for: ended.ran_for,
        }
    }

    /// The program did not end by itself: what it said may stop anywhere.
    pub(crate) const fn was_cut(&self) -> bool {
        self.exit_code.is_none() || self.limit.is_some()
    }
}

/// The limit that ended the work. A stream that lost bytes is over its limit, said or not.
fn limit_of(ended: &Ended) -> Option<LimitReached> {
    let over = ended.stdout.over_limit || ended.stderr.over_limit;
    ended.limit.or(over.then_some(LimitReached::StreamBytes))
}

/// Whether the work's effects end with its worker: it has one, and no egress from it.
pub(crate) fn is_contained(descriptor: &Descriptor) -> bool {
    descriptor
        .boundary()
        .is_some_and(|boundary| match boundary.network {
            Network::None => true,
            Network::Bridge => false,
        })
}

/// What the ending alone says, before removal, output and publication are looked at.
///
/// Once a stop was asked for, nothing is a success: nobody waits for its file any more. What was
/// stopped outside a worker may have done anything by then.
pub(crate) fn of_ending(ended: &Ended, stopped: Option<StopCause>, contained: bool) -> Outcome {
    if ended.ending == Ending::Lost {
        let reason = "the tier lost sight of the worker".to_owned();
        return Outcome::Unconfirmed { reason };
    }
    let known = contained || matches!(ended.ending, Ending::Exited { .. });
    if let Some(limit) = limit_of(ended) {
        let reason = match limit {
            LimitReached::Memory => "ran out of memory (`memory_mib`)",
            LimitReached::Cpu => "used up its CPU time (`cpu_milli`)",
            LimitReached::FileBytes => "wrote a file past its size limit (`max_file_bytes`)",
            LimitReached::StreamBytes => "wrote more output than its stream limit (`stream_bytes`)",
        };
        return bad_end(reason.to_owned(), known);
    }
    match (stopped, ended.ending) {
        (Some(cause), _) => bad_end(cause.reason(), known),
        (None, Ending::Exited { code: 0 }) => Outcome::Succeeded,
        (None, Ending::Exited { code }) => Outcome::Failed {
            reason: format!("exited with code {code}"),
        },
        (None, Ending::Signaled { signal }) => bad_end(format!("ended by signal {signal}"), known),
        (None, Ending::Stopped | Ending::Lost) => bad_end("stopped".to_owned(), known),
    }
}

fn bad_end(reason: String, extent_is_known: bool) -> Outcome {
    if extent_is_known {
        Outcome::Failed { reason }
    } else {
        Outcome::Unconfirmed { reason }
    }
}
