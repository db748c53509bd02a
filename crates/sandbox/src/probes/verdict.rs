//! From what a probe told, and how it ended, to a verdict.

use sandbox_init::probe::{DONE, GREETING};
use worker::{Ending, Enforcement, LimitReached};

use super::{Seen, Verdict};
use crate::limits::PROBE_REMOVAL_MAX;

/// Most bytes of what a probe told that is repeated.
const FOUND_CHARS_MAX: usize = 300;

/// What a probe told.
struct Told {
    ran: bool,
    breaches: Vec<String>,
    notes: Vec<String>,
    done: bool,
}

impl Told {
    fn of(seen: &Seen) -> Self {
        let text = String::from_utf8_lossy(&seen.ended.stdout.bytes);
        let mut lines = text.lines();
        let starting = |mark: &str| -> Vec<String> {
            let lines = text.lines();
            let told = lines.filter_map(|line| line.strip_prefix(mark));
            told.map(|line| line.chars().take(FOUND_CHARS_MAX).collect())
                .collect()
        };
        Self {
            ran: lines.next() == Some(GREETING),
            breaches: starting("! "),
            notes: starting("= "),
            done: lines.next_back() == Some(DONE),
        }
    }
}

type Judged = (Verdict, String);

/// The reasons that make every other question idle: it never ran, or its worker is not gone.
fn unsound(seen: &Seen, told: &Told) -> Option<Judged> {
    if let Err(reason) = &seen.removal {
        return Some((Verdict::Fails, reason.clone()));
    }
    if told.ran {
        return None;
    }
    Some((
        Verdict::Fails,
        format!("the probe did not run: {}", said(seen)),
    ))
}

/// Whether the probe began at all.
pub(super) fn has_run(seen: &Seen) -> bool {
    Told::of(seen).ran
}

/// How it ended, and what it complained of.
pub(super) fn said(seen: &Seen) -> String {
    let stderr = String::from_utf8_lossy(&seen.ended.stderr.bytes);
    let said: String = stderr.trim().chars().take(FOUND_CHARS_MAX).collect();
    format!("{} {said}", ending(seen))
}

fn ending(seen: &Seen) -> String {
    match seen.ended.ending {
        Ending::Exited { code } => format!("it exited with {code}"),
        Ending::Signaled { signal } => format!("signal {signal} ended it"),
        Ending::Stopped => "it was stopped".to_owned(),
        Ending::Lost => "it was lost".to_owned(),
    }
}

fn breached(told: &Told) -> Option<Judged> {
    (!told.breaches.is_empty()).then(|| (Verdict::Fails, told.breaches.join("; ")))
}

/// A probe that comes to its end, and finds nothing that must not be.
pub(super) fn facts(seen: &Seen) -> Judged {
    let told = Told::of(seen);
    let incomplete = || {
        let reason = format!("the probe was cut off: {}", ending(seen));
        (!told.done).then_some((Verdict::Fails, reason))
    };
    unsound(seen, &told)
        .or_else(|| breached(&told))
        .or_else(incomplete)
        .unwrap_or_else(|| (Verdict::Holds, told.notes.join("; ")))
}

/// Whether the workload was ended by a signal, also through a shell or an engine.
fn was_ended_by(seen: &Seen, signal: i32) -> bool {
    match seen.ended.ending {
        Ending::Signaled { signal: found } => found == signal,
        Ending::Exited { code } => code == 128 + signal,
        Ending::Stopped | Ending::Lost => false,
    }
}

/// A worker that takes more memory than it may is ended, or is given none.
pub(super) fn memory(seen: &Seen) -> Judged {
    let told = Told::of(seen);
    if let Some(judged) = unsound(seen, &told) {
        return judged;
    }
    let limit = seen.limits.memory_mib;
    let killed =
        seen.ended.limit == Some(LimitReached::Memory) || was_ended_by(seen, libc::SIGKILL);
    match (limit.enforcement, breached(&told)) {
        (Enforcement::Enforced, None) if killed => (
            Verdict::Holds,
            format!("ended at its limit of {} MiB", limit.value),
        ),
        (Enforcement::Enforced, None) if told.done => (Verdict::Holds, told.notes.join("; ")),
        (Enforcement::Partly, _) if told.notes.iter().any(|note| note.ends_with("is refused")) => {
            let found = "each process is bounded, the whole worker is not".to_owned();
            (Verdict::Partly, found)
        }
        (_, Some(breached)) => breached,
        (_, None) => (
            Verdict::Fails,
            format!("no bound was met: {}", ending(seen)),
        ),
    }
}

/// A worker gets no more processes than it may have.
pub(super) fn pids(seen: &Seen) -> Judged {
    as_enforced(seen.limits.pids.enforcement, seen)
}

/// A worker fills no more scratch space than it has.
pub(super) fn scratch(seen: &Seen) -> Judged {
    as_enforced(seen.limits.scratch_bytes.enforcement, seen)
}

fn as_enforced(enforcement: Enforcement, seen: &Seen) -> Judged {
    match (enforcement, facts(seen)) {
        (Enforcement::Partly, (Verdict::Fails, found)) => (Verdict::Partly, found),
        (Enforcement::NotEnforced, (_, found)) => (Verdict::Fails, found),
        (_, judged) => judged,
    }
}

/// A file grows to its limit and not past it.
pub(super) fn file(seen: &Seen) -> Judged {
    let told = Told::of(seen);
    let ended =
        seen.ended.limit == Some(LimitReached::FileBytes) || was_ended_by(seen, libc::SIGXFSZ);
    match unsound(seen, &told).or_else(|| breached(&told)) {
        Some(judged) => judged,
        None if ended || told.done => {
            let limit = seen.limits.file_bytes.value;
            (Verdict::Holds, format!("one byte past {limit} ends it"))
        }
        None => (
            Verdict::Fails,
            format!("no bound was met: {}", ending(seen)),
        ),
    }
}

/// A worker that writes without end is stopped, and no more than its limit is kept.
pub(super) fn output(seen: &Seen) -> Judged {
    let told = Told::of(seen);
    let (limit, kept) = (
        seen.limits.stream_bytes.value,
        seen.ended.stdout.bytes.len() as u64,
    );
    let stopped = seen.ended.limit == Some(LimitReached::StreamBytes);
    match unsound(seen, &told) {
        Some(judged) => judged,
        None if stopped && kept <= limit => (Verdict::Holds, format!("stopped after {kept} bytes")),
        None => (
            Verdict::Fails,
            format!("{kept} bytes were taken: {}", ending(seen)),
        ),
    }
}

/// What left the session of its worker is gone with it.
pub(super) fn descendants(seen: &Seen) -> Judged {
    match (facts(seen), seen.descendant_gone) {
        ((Verdict::Holds, _), Some(true)) => {
            let found = "what had left its session was gone with its worker".to_owned();
            (Verdict::Holds, found)
        }
        ((Verdict::Holds, _), Some(false)) => {
            let found = "a process that had left its session outlived its worker".to_owned();
            (Verdict::Fails, found)
        }
        ((Verdict::Holds, found), None) => (Verdict::Fails, format!("nobody connected: {found}")),
        (judged, _) => judged,
    }
}

/// A worker that is to end is gone soon.
pub(super) fn stop(seen: &Seen) -> Judged {
    let told = Told::of(seen);
    if let Some(judged) = unsound(seen, &told) {
        return judged;
    }
    match &seen.removal {
        Ok(took) if seen.ended.ending == Ending::Stopped && *took <= PROBE_REMOVAL_MAX => {
            let millis = took.as_secs_f64() * 1000.0;
            (
                Verdict::Holds,
                format!("gone {millis:.1} ms after the order"),
            )
        }
        Ok(took) => {
            let found = format!(
                "{}, and was gone after {:.1} s",
                ending(seen),
                took.as_secs_f64()
            );
            (Verdict::Fails, found)
        }
        Err(reason) => (Verdict::Fails, reason.clone()),
    }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
