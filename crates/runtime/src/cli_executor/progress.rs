//! When the client of a call is told that it is still under way, and with which words.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mcp::Ticket;
use tokio::time::Instant;

use crate::cli_executor::limits::{PROGRESS_BYTES_MAX, PROGRESS_LOOK, PROGRESS_REPEAT};
use crate::session::CallPhase;

/// What a session has left of its traffic for progress.
#[derive(Debug, Clone, Default)]
pub(crate) struct Allowance(Arc<AtomicU64>);

impl Allowance {
    pub(crate) fn spend(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::SeqCst);
    }

    /// No more is told.
    pub(crate) fn is_spent(&self) -> bool {
        self.0.load(Ordering::SeqCst) >= PROGRESS_BYTES_MAX
    }
}

/// The calls of one connection whose clients want to know. It asks no clock and does no I/O.
#[derive(Debug, Default)]
pub(crate) struct Followed(BTreeMap<Ticket, Report>);

#[derive(Debug)]
struct Report {
    /// What the client was told last.
    told: Option<CallPhase>,
    /// When the call came into the phase in which it was seen last.
    since: Instant,
    phase: CallPhase,
    /// When it is looked at again.
    look: Instant,
    /// When it is told again that nothing has changed.
    repeat: Instant,
}

impl Followed {
    pub(crate) fn follow(&mut self, ticket: Ticket, now: Instant) {
        let report = Report {
            told: None,
            since: now,
            phase: CallPhase::Queued,
            look: now + PROGRESS_LOOK,
            repeat: now,
        };
        self.0.insert(ticket, report);
    }

    pub(crate) fn forget(&mut self, ticket: Ticket) {
        self.0.remove(&ticket);
    }

    /// When to look next. `None` where nobody wants to know.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.0.values().map(|report| report.look).min()
    }

    /// Looks at every call whose time has come: what its client is to be told.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        phase_of: impl Fn(Ticket) -> CallPhase,
    ) -> Vec<(Ticket, String)> {
        let due = self.0.iter_mut().filter(|(_, report)| report.look <= now);
        due.filter_map(|(ticket, report)| Some((*ticket, report.look(now, phase_of(*ticket))?)))
            .collect()
    }
}

impl Report {
    fn look(&mut self, now: Instant, phase: CallPhase) -> Option<String> {
        self.look = now + PROGRESS_LOOK;
        if phase != self.phase {
            (self.phase, self.since) = (phase, now);
        }
        if self.told == Some(phase) && now < self.repeat {
            return None;
        }
        self.told = Some(phase);
        self.repeat = now + PROGRESS_REPEAT;
        let seconds = now.saturating_duration_since(self.since).as_secs();
        let words = match phase {
            CallPhase::Queued => "waits for an earlier call",
            CallPhase::Held => "waits for a person's approval",
            CallPhase::Running => "runs",
        };
        Some(match seconds {
            0 => words.to_owned(),
            seconds => format!("{words}, for {seconds} s so far"),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn tickets(count: usize) -> Vec<Ticket> {
        let server = mcp::ServerInfo {
            name: "t".into(),
            version: "1".into(),
            instructions: None,
        };
        let limits = mcp::ConnectionLimits::broker();
        let mut connection = mcp::Connection::new(&server, [].into(), limits);
        let mut outputs = Vec::new();
        for id in 0..count {
            let frame = serde_json::json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {"name": "x", "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            }}});
            connection.feed(format!("{frame}\n").as_bytes(), &mut outputs);
        }
        let call = |output| match output {
            mcp::Output::Call(call) => call.ticket,
            other => panic!("{other:?}"),
        };
        outputs.into_iter().map(call).collect()
    }

    #[test]
    fn the_allowance_is_spent_at_its_bound_and_one_byte_before_it_is_not() {
        let allowance = Allowance::default();
        allowance.spend(PROGRESS_BYTES_MAX - 1);
        assert!(!allowance.is_spent());
        allowance.clone().spend(1);
        assert!(allowance.is_spent());
    }

    #[test]
    fn a_call_that_ends_within_a_second_is_never_told_of() {
        let (mut followed, now) = (Followed::default(), Instant::now());
        let ticket = tickets(1).remove(0);
        assert_eq!(followed.next_look(), None);
        followed.follow(ticket, now);
        assert_eq!(followed.next_look(), Some(now + PROGRESS_LOOK));
        let early = now + PROGRESS_LOOK - Duration::from_millis(1);
        assert!(followed.look(early, |_| CallPhase::Running).is_empty());
        followed.forget(ticket);
        assert_eq!(followed.next_look(), None);
        assert!(
            followed
                .look(now + PROGRESS_REPEAT, |_| CallPhase::Running)
                .is_empty()
        );
    }

    #[test]
    fn each_phase_is_told_once_and_again_only_after_a_while() {
        let (mut followed, began) = (Followed::default(), Instant::now());
        let ticket = tickets(1).remove(0);
        followed.follow(ticket, began);
        let mut told = Vec::new();
        // Looked at four times a second: queued, held from 3 s on, running from 5 s on.
        for quarter in 0..100_u32 {
            let at = began + Duration::from_millis(250) * quarter;
            let phase = match quarter {
                0..12 => CallPhase::Queued,
                12..20 => CallPhase::Held,
                _ => CallPhase::Running,
            };
            let said = followed.look(at, |_| phase);
            told.extend(said.into_iter().map(|(_, words)| (quarter / 4, words)));
        }
        let expected = [
            (1, "waits for an earlier call, for 1 s so far"),
            (3, "waits for a person's approval"),
            (5, "runs"),
            (15, "runs, for 10 s so far"),
        ];
        let told: Vec<_> = told
            .iter()
            .map(|(at, words)| (*at, words.as_str()))
            .collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn a_call_that_changes_all_the_time_is_told_of_once_a_second_at_most() {
        let (mut followed, began) = (Followed::default(), Instant::now());
        let tickets = tickets(3);
        for ticket in &tickets {
            followed.follow(*ticket, began);
        }
        let mut told = 0;
        for step in 0..1000_u32 {
            let at = began + Duration::from_millis(10) * step;
            let phase = [CallPhase::Queued, CallPhase::Held, CallPhase::Running];
            told += followed.look(at, |_| phase[step as usize % 3]).len();
        }
        assert!(told <= 3 * 10, "{told}");
    }
}
