//! What the operator reads. All text from outside is escaped; colours only on a terminal.

use std::fmt::Write as _;
use std::time::Duration;

use journal::{OutcomeStatus, PolicyNote, Stage};
use model::{Digest, Untrusted};
use serde_json::{Value, json};

use crate::demo::attempts::{ATTEMPTS, Attempt};
use crate::demo::checks::{Check, Facts};
use crate::demo::evidence::{Call, CallEnd};
use crate::demo::script::{LOCK, REPORT, Use};
use crate::output::write_out;

const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";
/// Longest text of the agent's that is shown, in characters.
const SAID_CHARS_MAX: usize = 72;
const INDENT: &str = "       ";

/// What stands around the run's facts.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) project: &'a str,
    pub(crate) kept: bool,
    pub(crate) took: Duration,
}

/// Text that is shown at once.
pub(crate) fn show(text: &str) {
    match anstream::AutoStream::choice(&std::io::stdout()) {
        anstream::ColorChoice::Never => {
            write_out(&anstream::adapter::strip_str(text).to_string());
        }
        _ => write_out(text),
    }
}

/// Before the run.
pub(crate) fn opening(project: &str, lock_bytes: usize, packages: usize) -> String {
    let project = safe(project);
    format!(
        "{BOLD}A contained agent turns a lock file into a report, and tries what it must \
         not.{PLAIN}\n\n  project  {project}\n  input    {LOCK}: {lock_bytes} bytes, {packages} \
         packages\n"
    )
}

/// After the run.
pub(crate) fn story(facts: &Facts<'_>, checks: &[Check], frame: &Frame<'_>) -> String {
    let mut text = isolation(facts);
    let _ = write!(text, "{BOLD}The calls{PLAIN} (from the signed journal)\n\n");
    for (index, call) in facts.evidence.calls.iter().enumerate() {
        text.push_str(&call_lines(index + 1, call, facts.plan.get(index)));
    }
    text.push_str(&attempt_lines(facts.attempts));
    text.push_str(&receipt_lines(facts));
    let _ = write!(text, "\n{BOLD}Checks{PLAIN}\n\n");
    for check in checks {
        text.push_str(&check_line(check));
    }
    text.push_str(&ending(facts, checks, frame));
    text
}

/// The boundary that the agent's launch was recorded with.
fn isolation(facts: &Facts<'_>) -> String {
    let launch = facts.evidence.launch.as_ref();
    let boundary = launch.and_then(|call| call.descriptor.get("boundary"));
    let Some(boundary) = boundary else {
        return String::new();
    };
    let tier = boundary.get("tier").and_then(Value::as_str).unwrap_or("");
    let limits = boundary.get("limits").and_then(Value::as_object);
    let enforcement = |limit: &Value| {
        let found = limit.get("enforcement").unwrap_or(limit).as_str();
        found.unwrap_or("not_enforced").to_owned()
    };
    let partly: Vec<&str> = limits
        .into_iter()
        .flatten()
        .filter(|(_, limit)| enforcement(limit) != "enforced")
        .map(|(name, _)| name.as_str())
        .collect();
    let limits = if partly.is_empty() {
        "every limit enforced".to_owned()
    } else {
        format!("limits only partly enforced: {}", safe(&partly.join(", ")))
    };
    format!("  worker   {} tier, no network, {limits}\n\n", safe(tier))
}

fn safe(text: &str) -> String {
    Untrusted::new(text).escaped()
}

/// At most so many characters of the agent's own text.
fn short(text: &str) -> String {
    let text = safe(text);
    match text.char_indices().nth(SAID_CHARS_MAX) {
        Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
        None => text,
    }
}

fn call_lines(number: usize, call: &Call, planned: Option<&Use>) -> String {
    let planned = planned.filter(|planned| planned.tool == call.tool);
    let arguments = planned.map(Use::arguments).unwrap_or_default();
    let mut text = String::new();
    if let Some(says) = planned.and_then(|planned| planned.says) {
        let _ = writeln!(text, "  {says}");
    }
    let asked = format!("{} {}", safe(&call.tool), safe(&arguments));
    let _ = writeln!(text, "  {number:>3}  {}", asked.trim_end());
    let _ = writeln!(text, "{INDENT}{}", verdict(call));
    let advice = call.policies.iter().filter_map(|it| it.advice.as_deref());
    for advice in advice {
        let _ = writeln!(text, "{INDENT}advice: {}", safe(advice));
    }
    if let CallEnd::Settled { created, .. } = &call.end {
        for file in created {
            let _ = writeln!(
                text,
                "{INDENT}created {}: {} bytes, sha256 {}",
                safe(file.path.as_str()),
                file.bytes,
                file.sha256
            );
        }
    }
    text
}

/// What was decided, by what or why, and what became of it.
fn verdict(call: &Call) -> String {
    match &call.end {
        CallEnd::Refused {
            stage: Stage::Authorize,
            ..
        } if !call.policies.is_empty() => {
            format!("{RED}denied{PLAIN}{}", by(&call.policies))
        }
        CallEnd::Refused { reason, .. } => format!("{RED}refused{PLAIN}: {}", safe(reason)),
        CallEnd::Settled {
            status,
            reason,
            millis,
            ..
        } => {
            let (colour, word) = match status {
                OutcomeStatus::Succeeded => (GREEN, "succeeded"),
                OutcomeStatus::Failed => (RED, "failed"),
                OutcomeStatus::Unconfirmed => (RED, "UNCONFIRMED"),
                OutcomeStatus::NotStarted => (RED, "not started"),
            };
            let reason = reason
                .as_deref()
                .map(|reason| format!(": {}", safe(reason)));
            let by = by(&call.policies);
            let reason = reason.unwrap_or_default();
            format!("permitted{by}; {colour}{word}{PLAIN} in {millis:.1} ms{reason}")
        }
        CallEnd::Open => format!("{RED}without an end{PLAIN}"),
    }
}

/// The policies that decided, each with its reason.
fn by(policies: &[PolicyNote]) -> String {
    let named: Vec<String> = policies
        .iter()
        .map(|policy| match &policy.reason {
            Some(reason) => format!("{}: {}", safe(&policy.id), safe(reason)),
            None => safe(&policy.id),
        })
        .collect();
    if named.is_empty() {
        return String::new();
    }
    format!(" by {}", named.join(", "))
}

fn attempt_lines(attempts: &[Attempt]) -> String {
    let mut text = format!(
        "\n{BOLD}What the agent tried by itself{PLAIN} (in its own words: they prove nothing)\n\n"
    );
    for attempt in attempts {
        let known = ATTEMPTS.iter().find(|(name, _)| *name == attempt.what);
        let what = known.map_or_else(|| short(&attempt.what), |(_, what)| (*what).to_owned());
        let (colour, word) = if attempt.reached {
            (RED, "REACHED")
        } else {
            (GREEN, "no")
        };
        let got = short(&attempt.got);
        let _ = writeln!(text, "  {what:42}  {colour}{word}{PLAIN}: {got}");
    }
    text
}

fn receipt_lines(facts: &Facts<'_>) -> String {
    let mut text = format!("\n{BOLD}What is left of it{PLAIN}\n\n");
    for receipt in facts.evidence.receipts() {
        let _ = writeln!(
            text,
            "  {}: {} bytes, sha256 {}",
            safe(receipt.path.as_str()),
            receipt.bytes,
            receipt.sha256
        );
    }
    if let Some(report) = &facts.report {
        let rows = rows(report);
        let _ = writeln!(
            text,
            "  {REPORT}: a header and {rows} rows for {} packages",
            facts.lock.packages
        );
    }
    let report = &facts.evidence.report;
    let _ = writeln!(
        text,
        "  journal: {}, {} records, each signed by {}",
        report.verdict,
        report.records,
        safe(facts.evidence.vkey.split('+').next().unwrap_or_default())
    );
    text
}

/// Lines after the first.
pub(crate) fn rows(report: &[u8]) -> usize {
    let lines = report.iter().filter(|byte| **byte == b'\n').count();
    lines.saturating_sub(1)
}

fn check_line(check: &Check) -> String {
    match &check.fault {
        None => format!("  {GREEN}ok{PLAIN}      {}\n", check.name),
        Some(fault) => format!(
            "  {RED}FAILED{PLAIN}  {}\n          {}\n",
            check.name,
            safe(fault)
        ),
    }
}

fn ending(facts: &Facts<'_>, checks: &[Check], frame: &Frame<'_>) -> String {
    let good = checks.iter().filter(|check| check.is_ok()).count();
    let (colour, word) = if good == checks.len() {
        (GREEN, "All of it went as it must")
    } else {
        (RED, "NOT all of it went as it must")
    };
    let mut text = format!(
        "\n{colour}{word}{PLAIN}: {good} of {} checks, {:.1} s.\n",
        checks.len(),
        frame.took.as_secs_f64()
    );
    if !facts.stderr.is_empty() {
        let said = Untrusted::new(String::from_utf8_lossy(facts.stderr)).escaped_lines();
        let _ = write!(text, "\nThe agent's standard error:\n{}\n", said.trim_end());
    }
    let run = facts.end.run;
    if frame.kept {
        let project = safe(frame.project);
        let _ = write!(
            text,
            "\nLook next:\n  symbi --project '{project}' audit show {run}\n  symbi --project \
             '{project}' audit verify {run}\n  symbi --project '{project}' tools list\n"
        );
    } else {
        text.push_str(
            "\nThe project is gone again. Look next:\n  symbi demo --keep DIR    leaves it to look \
             at\n  symbi init DIR           makes one of your own\n",
        );
    }
    text
}

/// Everything as one JSON object.
pub(crate) fn object(facts: &Facts<'_>, checks: &[Check], frame: &Frame<'_>) -> Value {
    let checks_json: Vec<Value> = checks
        .iter()
        .map(|check| json!({"name": check.name, "ok": check.is_ok(), "fault": check.fault}))
        .collect();
    let calls: Vec<Value> = facts.evidence.calls.iter().map(call_object).collect();
    let attempts: Vec<Value> = facts
        .attempts
        .iter()
        .map(|it| json!({"what": it.what, "got": it.got, "reached": it.reached}))
        .collect();
    let report = facts.report.as_ref().map(|bytes| {
        json!({
            "path": REPORT, "bytes": bytes.len(), "sha256": Digest::of(bytes), "rows": rows(bytes)
        })
    });
    json!({
        "passed": checks.iter().all(Check::is_ok),
        "checks": checks_json,
        "run_id": facts.end.run,
        "project": frame.kept.then_some(frame.project),
        "journal": frame.kept.then(|| facts.evidence.path.display().to_string()),
        "public_key": facts.evidence.vkey,
        "verdict": facts.evidence.report.verdict,
        "records": facts.evidence.report.records,
        "packages": facts.lock.packages,
        "report": report,
        "calls": calls,
        "attempts": attempts,
        "duration_ms": u64::try_from(frame.took.as_millis()).unwrap_or(u64::MAX),
    })
}

fn call_object(call: &Call) -> Value {
    let policies: Vec<&str> = call.policies.iter().map(|it| it.id.as_str()).collect();
    let (status, stage, reason) = match &call.end {
        CallEnd::Refused { stage, reason } => (json!("refused"), json!(stage), json!(reason)),
        CallEnd::Settled { status, reason, .. } => (json!(status), Value::Null, json!(reason)),
        CallEnd::Open => (json!("open"), Value::Null, Value::Null),
    };
    json!({
        "call_id": call.id, "tool": call.tool, "status": status, "stage": stage,
        "reason": reason, "policies": policies,
    })
}
