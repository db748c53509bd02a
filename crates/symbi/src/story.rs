//! Records as sentences that a person reads. All text from outside is escaped.

use journal::{Event, OutcomeStatus, PolicyNote, Record, Stage, Verdict};
use model::Untrusted;

/// What became of a call, in a word.
pub(crate) const fn status_name(status: OutcomeStatus) -> &'static str {
    match status {
        OutcomeStatus::Succeeded => "succeeded",
        OutcomeStatus::Failed => "failed",
        OutcomeStatus::Unconfirmed => "unconfirmed",
        OutcomeStatus::NotStarted => "not_started",
    }
}

/// The verdict's name.
pub(crate) const fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Intact => "intact",
        Verdict::Unterminated => "unterminated",
        Verdict::Truncated => "truncated",
        Verdict::Forked => "forked",
        Verdict::Corrupt => "corrupt",
        Verdict::Live => "live",
    }
}

fn safe(text: &str) -> String {
    Untrusted::new(text).escaped()
}

/// A record as lines.
pub(crate) fn lines(record: &Record) -> Vec<String> {
    let mut lines = event_lines(&record.event).into_iter();
    let head = lines.next().unwrap_or_default();
    let time = record.time.get(11..23).unwrap_or(&record.time);
    let mut out = vec![format!("{:>4}  {time}  {head}", record.seq)];
    out.extend(lines.map(|line| format!("                      {line}")));
    out
}

fn event_lines(event: &Event) -> Vec<String> {
    match event {
        Event::RunStarted(it) => vec![
            format!(
                "run started: {} tools, at most {} calls",
                it.tools.len(),
                it.max_calls
            ),
            format!("policies {}", it.policy_sha256),
        ],
        Event::CallRefused(it) => refused_lines(it),
        Event::CallWithdrawn(it) => {
            vec![format!(
                "{} ({}) withdrawn: {}",
                safe(&it.tool),
                it.call_id,
                safe(&it.cause)
            )]
        }
        Event::AnswerRefused(it) => uncounted_lines(it),
        Event::CallDispatching(it) => {
            let mut lines = vec![format!("{} ({}) permitted, starting", it.tool, it.call_id)];
            lines.extend(it.policies.iter().map(policy_line));
            if let Some(approval) = &it.approval {
                lines.extend(answer_lines(approval));
            }
            lines
        }
        Event::FilePublicationPrepared(it) => {
            let path = safe(it.path.as_str());
            vec![format!(
                "about to publish {path}: {} bytes, sha256 {}",
                it.bytes, it.sha256
            )]
        }
        Event::FilePublicationFinished(it) if it.confirmed => vec!["published".to_owned()],
        Event::FilePublicationFinished(it) => {
            vec![format!(
                "not published: {}",
                safe(it.error.as_deref().unwrap_or(""))
            )]
        }
        Event::CallSettled(it) => settled_lines(it),
        Event::InferenceRequested(it) => vec![format!(
            "model request {}: {} bytes, {} output tokens reserved",
            it.request, it.body_bytes, it.reserved_output_tokens
        )],
        Event::InferenceCompleted(it) if it.complete => {
            vec![format!(
                "model answer {}: status {}, {} bytes",
                it.request, it.status, it.body_bytes
            )]
        }
        Event::InferenceCompleted(it) => {
            let reason = safe(it.reason.as_deref().unwrap_or(""));
            vec![format!("model answer {}: incomplete: {reason}", it.request)]
        }
        Event::RunEnded(it) => match &it.cause {
            None => vec![format!("run completed after {} calls", it.calls)],
            Some(cause) => vec![format!(
                "run ended after {} calls: {}",
                it.calls,
                safe(cause)
            )],
        },
        Event::Custom(it) => vec![format!("{}: {}", safe(&it.custom_kind), it.digest)],
    }
}

fn uncounted_lines(answer: &journal::AnswerRefused) -> Vec<String> {
    let mut lines = vec![format!(
        "an answer did not count ({}, from {}): {}",
        safe(&answer.surface),
        safe(&answer.from),
        safe(&answer.reason)
    )];
    let named = answer.held_id.iter();
    lines.extend(named.map(|id| format!("it named {}", safe(id))));
    if answer.last {
        lines.push("further ones are refused and not recorded".to_owned());
    }
    lines
}

fn refused_lines(refused: &journal::CallRefused) -> Vec<String> {
    let mut lines = vec![format!(
        "{} ({}) REFUSED at {}: {}",
        safe(&refused.tool),
        refused.call_id,
        stage_name(refused.stage),
        safe(&refused.reason)
    )];
    lines.extend(refused.policies.iter().map(policy_line));
    lines.extend(
        refused
            .advice
            .iter()
            .map(|it| format!("advice: {}", safe(it))),
    );
    if let Some(approval) = &refused.approval {
        lines.extend(answer_lines(approval));
    }
    lines
}

fn answer_lines(answer: &journal::ApprovalFact) -> Vec<String> {
    let word = match answer.decision {
        journal::Decision::Approved => "approved",
        journal::Decision::Denied => "denied",
    };
    let (who, surface) = (safe(&answer.approver), safe(&answer.surface));
    let mut lines = vec![format!("{word} by {who} ({surface})")];
    lines.extend(answer.inputs_shown.iter().map(|it| {
        format!(
            "input {}: {} of {} bytes were shown there",
            safe(&it.input),
            it.shown_bytes,
            it.bytes
        )
    }));
    lines
}

fn settled_lines(settled: &journal::CallSettled) -> Vec<String> {
    let outcome = &settled.outcome;
    let status = match outcome.status {
        OutcomeStatus::Succeeded => "succeeded",
        OutcomeStatus::Failed => "failed",
        OutcomeStatus::Unconfirmed => "UNCONFIRMED",
        OutcomeStatus::NotStarted => "not started",
    };
    let millis = settled.duration_us as f64 / 1000.0;
    let reason = outcome
        .reason
        .as_deref()
        .map(|it| format!(": {}", safe(it)))
        .unwrap_or_default();
    let mut lines = vec![format!(
        "({}) {status} in {millis} ms{reason}",
        settled.call_id
    )];
    lines.extend(settled.created_files.iter().map(|file| {
        format!(
            "created {}: {} bytes, sha256 {}",
            safe(file.path.as_str()),
            file.bytes,
            file.sha256
        )
    }));
    lines
}

fn policy_line(policy: &PolicyNote) -> String {
    match &policy.reason {
        Some(reason) => format!("policy {}: {}", safe(&policy.id), safe(reason)),
        None => format!("policy {}", safe(&policy.id)),
    }
}

/// The step's name.
pub(crate) const fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Parse => "parse",
        Stage::Prepare => "prepare",
        Stage::Approve => "approve",
        Stage::Authorize => "authorize",
        Stage::Record => "record",
    }
}
