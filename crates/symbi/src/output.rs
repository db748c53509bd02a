//! What people and programs read on stdout and stderr.

use std::io::{self, Write};

use model::Untrusted;
use serde_json::Value;
use symbi_runtime::envelope::Envelope;

/// Writes results to stdout, as text or as one JSON object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    json: bool,
}

impl Output {
    #[must_use]
    pub(crate) const fn new(json: bool) -> Self {
        Self { json }
    }

    #[must_use]
    pub(crate) const fn is_json(self) -> bool {
        self.json
    }

    /// A line on stdout. A reader that has gone is no error of ours.
    pub(crate) fn line(self, text: &str) {
        let _ = writeln!(io::stdout().lock(), "{text}");
    }

    /// A line on stderr.
    pub(crate) fn note(self, text: &str) {
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// One JSON object.
    pub(crate) fn value(self, value: &Value) {
        self.line(&value.to_string());
    }

    /// A call's envelope.
    pub(crate) fn envelope(self, envelope: &Envelope) {
        if self.json {
            return self.line(&envelope.to_json());
        }
        match &envelope.results {
            Some(Value::String(text)) if !text.is_empty() => {
                let shown = Untrusted::new(text.as_str()).escaped_lines();
                self.line(shown.trim_end_matches('\n'));
            }
            Some(Value::String(_)) | None => {}
            Some(value) => self.line(&Untrusted::new(pretty(value)).escaped_lines()),
        }
        if !envelope.stderr.is_empty() {
            let shown = Untrusted::new(envelope.stderr.as_str()).escaped_lines();
            self.note(shown.trim_end_matches('\n'));
        }
        for file in &envelope.created_files {
            let path = Untrusted::new(file.path.as_str()).escaped();
            self.note(&format!(
                "created {path} ({} bytes, sha256 {})",
                file.bytes, file.sha256
            ));
        }
        self.note(&summary(envelope));
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// What became of the call, why, and what to do.
fn summary(envelope: &Envelope) -> String {
    let mut text = format!("{}: {}", envelope.tool, envelope.status);
    if let Some(refusal) = &envelope.refusal {
        text.push_str(&format!(" at {}: {}", refusal.stage, refusal.reason));
        if !refusal.policy.is_empty() {
            text.push_str(&format!("\n  policy: {}", refusal.policy.join(", ")));
        }
        if let Some(advice) = &refusal.advice {
            text.push_str(&format!("\n  advice: {}", advice.replace('\n', "\n    ")));
        }
    }
    if let Some(reason) = &envelope.reason {
        text.push_str(&format!(": {reason}"));
    }
    if let Some(duration) = envelope.duration_ms {
        text.push_str(&format!(" ({duration} ms)"));
    }
    for note in &envelope.notes {
        text.push_str(&format!("\n  note: {note}"));
    }
    text.push_str(&format!("\n  run {}", envelope.run_id));
    text
}
