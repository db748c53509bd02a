//! What people and programs read on stdout and stderr: nothing that a terminal would obey, and
//! nothing that is lost in silence.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use model::Untrusted;
use serde_json::Value;
use symbi_runtime::envelope::Envelope;

use crate::exit::Exit;

/// Why standard output did not take what was written to it; the first time counts.
static LOST: OnceLock<String> = OnceLock::new();
/// Whether the one JSON object is on stdout.
static ANSWERED: AtomicBool = AtomicBool::new(false);

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

    /// A line on stdout.
    pub(crate) fn line(self, text: &str) {
        write_out(&format!("{}\n", visible(text)));
    }

    /// A line on stderr.
    pub(crate) fn note(self, text: &str) {
        let _ = writeln!(io::stderr().lock(), "{}", visible(text));
    }

    /// One JSON object as a line on stderr.
    pub(crate) fn event(self, json: &str) {
        let _ = writeln!(io::stderr().lock(), "{}", visible_json(json));
    }

    /// One JSON object.
    pub(crate) fn value(self, value: &Value) {
        self.json_text(&value.to_string());
    }

    /// JSON that is text already.
    pub(crate) fn json_text(self, text: &str) {
        if self.json {
            ANSWERED.store(true, Ordering::Relaxed);
        }
        write_out(&format!("{}\n", visible_json(text)));
    }

    /// A call's envelope.
    pub(crate) fn envelope(self, envelope: &Envelope) {
        if self.json {
            return self.json_text(&envelope.to_json());
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

/// Whether this process has printed its JSON object.
pub(crate) fn is_answered() -> bool {
    ANSWERED.load(Ordering::Relaxed)
}

/// Writes to stdout, past the library's own writer, which takes a closed descriptor for success.
/// A reader that has gone is no error of ours; everything else is, see [`settled`].
pub(crate) fn write_out(text: &str) {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        match rustix::io::write(rustix::stdio::stdout(), rest) {
            Ok(0) => return lost("it takes no more bytes".to_owned()),
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::PIPE) => return,
            Err(error) => return lost(error.to_string()),
        }
    }
}

fn lost(why: String) {
    let _ = LOST.set(why);
}

/// The exit code of a process that would end with `exit`: output that was lost is an error.
pub(crate) fn settled(exit: Exit) -> Exit {
    let Some(why) = LOST.get() else {
        return exit;
    };
    Output::new(false).note(&format!(
        "error: standard output could not be written: {why}\n  help: what was done is done; \
         do not repeat it for its output alone"
    ));
    exit.worst(Exit::Storage)
}

/// What a terminal would obey or hide: controls other than line feed and tab, and characters that
/// change the direction of text or cannot be seen.
fn is_obeyed(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => true,
        '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e0fff}' => true,
        other => other.is_control(),
    }
}

/// `text` with escapes for what a terminal would obey. Text that was escaped before stays as it is.
fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_obeyed(character) {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// The same for JSON, in JSON's own escapes: the value stays what it is.
fn visible_json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut units = [0_u16; 2];
    for character in text.chars() {
        if is_obeyed(character) {
            for unit in character.encode_utf16(&mut units) {
                let _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(character);
        }
    }
    shown
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
    if envelope.status == "unconfirmed" {
        text.push_str(&format!(
            "\n  help: what it did is not known, and is not done again; what to do about it says: \
             symbi invocation inspect --id {}",
            envelope.run_id
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_and_the_rest_stays() {
        let raw = "a\u{1b}[2J\u{7f}\u{9b}\r\u{202e}\u{200b}\tb\n";
        let shown = "a\\u{1b}[2J\\u{7f}\\u{9b}\\u{d}\\u{202e}\\u{200b}\tb\n";
        assert_eq!(visible(raw), shown);
        assert_eq!(visible(shown), shown);
        assert_eq!(visible("über \\ {}"), "über \\ {}");
    }

    #[test]
    fn json_keeps_its_value_where_characters_are_escaped() {
        let value = Value::String("\u{1b}\u{7f}\u{9b}\u{202e}\u{e0041}ü".to_owned());
        let shown = visible_json(&value.to_string());
        assert!(!shown.chars().any(is_obeyed), "{shown}");
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
    }
}
