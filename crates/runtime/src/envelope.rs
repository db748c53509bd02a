//! What a caller is told about one call: the envelope of `--json` and of MCP results.

use governance::{Outcome, RecordedOutcome, Refusal, RefusalKind};
use model::{Digest, RunId};
use serde::Serialize;
use serde_json::Value;

use crate::session::Answer;

/// Most bytes of a stream that an envelope carries; the journal has the whole one's digest.
pub const SHOWN_BYTES_MAX: usize = 64 << 10;

/// Where the proof of a call lies. Not told to agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JournalPlace {
    pub journal: String,
    pub public_key: String,
}

/// The envelope. Absent fields are left out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Envelope {
    pub status: &'static str,
    pub tool: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    pub run_id: RunId,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub place: Option<JournalPlace>,
    /// Digest of the prepared call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<f64>,
    /// How long the steps of the call took, in their order.
    #[serde(skip_serializing_if = "Steps::is_empty")]
    pub timings_ms: Steps,
    /// RFC 3339, UTC.
    pub timestamp: String,
    /// Standard output: text, or a JSON value where the manifest says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub results: Option<Value>,
    /// The raw output, where it is of its format and breaks the manifest's schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stderr: String,
    /// How the tool's own output parser ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parser: Option<ParserBody>,
    /// Where the whole output is kept: the name in `.symbiont/evidence`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence_sha256: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_sha256: Option<Digest>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub output_truncated: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub created_files: Vec<Created>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<RefusalBody>,
    #[serde(skip)]
    missing: Missing,
}

/// Steps with their milliseconds, as an object in the order of the steps.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Steps(Vec<(&'static str, f64)>);

impl Steps {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Steps {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

/// How many bytes the marks of the streams say are not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Missing {
    results: usize,
    stderr: usize,
}

/// An output parser's end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ParserBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stderr: String,
    pub output_sha256: Digest,
}

/// A published file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Created {
    pub path: String,
    pub bytes: u64,
    pub sha256: Digest,
}

/// Why nothing happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusalBody {
    pub stage: &'static str,
    pub reason: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policy: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Envelope {
    /// The envelope of an answer.
    #[must_use]
    pub fn of(answer: &Answer, run_id: RunId, timestamp: String) -> Self {
        match answer {
            Answer::Settled(outcome) => Self::settled(outcome, run_id, timestamp),
            Answer::Refused(refusal) => Self::refused(refusal, run_id, timestamp),
        }
    }

    fn empty(status: &'static str, tool: &str, run_id: RunId, timestamp: String) -> Self {
        Self {
            status,
            tool: tool.to_owned(),
            argv: Vec::new(),
            run_id,
            place: None,
            fingerprint: None,
            duration_ms: None,
            timings_ms: Steps::default(),
            timestamp,
            results: None,
            schema_error: None,
            exit_code: None,
            stderr: String::new(),
            parser: None,
            evidence_sha256: None,
            output_sha256: None,
            output_truncated: false,
            created_files: Vec::new(),
            reason: None,
            notes: Vec::new(),
            refusal: None,
            missing: Missing::default(),
        }
    }

    fn settled(outcome: &RecordedOutcome, run_id: RunId, timestamp: String) -> Self {
        let status = match outcome.outcome {
            Outcome::NotStarted { .. } => "not_started",
            Outcome::Succeeded => "succeeded",
            Outcome::Failed { .. } => "failed",
            Outcome::Unconfirmed { .. } => "unconfirmed",
        };
        let output = &outcome.output;
        let started = !matches!(outcome.outcome, Outcome::NotStarted { .. });
        let bound = outcome.shown_bytes_max.map_or(SHOWN_BYTES_MAX, |max| {
            usize::try_from(max).map_or(SHOWN_BYTES_MAX, |max| max.min(SHOWN_BYTES_MAX))
        });

        let (text, cut) = shown(&output.stdout, bound);
        let (stderr, stderr_cut) = shown(&output.stderr, SHOWN_BYTES_MAX);
        let (results, schema_error, results_cut) = match &outcome.value {
            Some(value) => (Some(value.clone()), None, 0),
            None if outcome.breaks_schema => (None, Some(text), cut),
            None => (Some(Value::String(text)), None, cut),
        };
        let parser = outcome.parsed.as_ref().map(|parsed| ParserBody {
            exit_code: parsed.exit_code,
            stderr: shown(&parsed.stderr, SHOWN_BYTES_MAX).0,
            output_sha256: Digest::of(&parsed.stdout),
        });
        Self {
            argv: outcome.argv.clone(),
            fingerprint: Some(outcome.call_sha256),
            duration_ms: started.then(|| millis(output.ran_for)),
            timings_ms: steps(&outcome.timings),
            results: results.filter(|_| started),
            schema_error,
            exit_code: output.exit_code,
            stderr,
            parser,
            evidence_sha256: outcome.evidence_sha256,
            output_sha256: started.then(|| Digest::of(&output.stdout)),
            output_truncated: results_cut > 0 || stderr_cut > 0,
            missing: Missing {
                results: results_cut,
                stderr: stderr_cut,
            },
            created_files: outcome
                .created_files
                .iter()
                .map(|file| Created {
                    path: file.path.to_string(),
                    bytes: file.bytes,
                    sha256: file.sha256,
                })
                .collect(),
            reason: outcome.outcome.reason().map(str::to_owned),
            notes: outcome
                .notes
                .iter()
                .map(|(name, note)| format!("{name}: {note}"))
                .collect(),
            ..Self::empty(status, &outcome.tool, run_id, timestamp)
        }
    }

    fn refused(refusal: &Refusal, run_id: RunId, timestamp: String) -> Self {
        let status = if refusal.kind == RefusalKind::Withdrawn {
            "withdrawn"
        } else {
            "refused"
        };
        Self {
            fingerprint: refusal.call_sha256,
            refusal: Some(RefusalBody {
                stage: refusal.stage_name(),
                reason: refusal.reason.clone(),
                policy: refusal
                    .policies
                    .iter()
                    .map(|policy| policy.id.clone())
                    .collect(),
                advice: refusal.advice.clone(),
            }),
            ..Self::empty(status, &refusal.tool, run_id, timestamp)
        }
    }

    /// The envelope with as much of its streams as its JSON of at most `max` bytes has room for.
    #[must_use]
    pub fn fitting(mut self, max: usize) -> Self {
        if self.to_json().len() <= max {
            return self;
        }
        self.output_truncated = true;
        let results = match (self.results.take(), &self.schema_error) {
            (Some(Value::String(text)), _) => Some(text),
            (Some(value), _) => Some(value.to_string()),
            (None, raw) => raw.clone(),
        };
        let stderr = std::mem::take(&mut self.stderr);
        if let Some(parser) = &mut self.parser {
            parser.stderr = cut_to(&parser.stderr, 0, max / 16);
        }
        let missing = std::mem::take(&mut self.missing);
        let (mut fits, mut most) = (0, max);
        while fits < most {
            let room = (fits + most).div_ceil(2);
            self.show(results.as_deref(), &stderr, missing, room);
            if self.to_json().len() <= max {
                fits = room;
            } else {
                most = room - 1;
            }
        }
        self.show(results.as_deref(), &stderr, missing, fits);
        if self.to_json().len() > max {
            self.argv = Vec::new();
        }
        self
    }

    /// Shows about `room` bytes of the streams; a quarter of it is for the second one.
    fn show(&mut self, results: Option<&str>, stderr: &str, missing: Missing, room: usize) {
        let length = results.map_or(0, str::len);
        let results = results.map(|text| cut_to(text, missing.results, room));
        match &mut self.schema_error {
            Some(raw) => *raw = results.unwrap_or_default(),
            None => self.results = results.map(Value::String),
        }
        self.stderr = cut_to(
            stderr,
            missing.stderr,
            (room / 4).max(room.saturating_sub(length)),
        );
    }

    /// Whether an MCP client is told `isError`.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.status != "succeeded"
    }

    /// One line of JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Milliseconds with three digits after the point.
#[must_use]
pub fn millis(duration: std::time::Duration) -> f64 {
    (duration.as_secs_f64() * 1_000_000.0).round() / 1000.0
}

fn steps(timings: &[(&'static str, std::time::Duration)]) -> Steps {
    let step = |(name, took): &(&'static str, std::time::Duration)| (*name, millis(*took));
    Steps(timings.iter().map(step).collect())
}

/// The words in place of what is not shown.
fn mark(missing: usize) -> String {
    format!("\n[{missing} more bytes are not shown]")
}

/// At most `max` bytes of a stream, cut at a character, with a mark that says how many are missing;
/// and that number.
fn shown(bytes: &[u8], max: usize) -> (String, usize) {
    if bytes.len() <= max {
        return (String::from_utf8_lossy(bytes).into_owned(), 0);
    }
    let mut end = max;
    while bytes.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) && end > max.saturating_sub(4) {
        end -= 1;
    }
    let head = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned();
    let missing = bytes.len() - end;
    (head + &mark(missing), missing)
}

/// `text` with at most `room` bytes before its mark. It may have a mark already, for `missing`
/// bytes: then one mark says how many are missing of the whole.
fn cut_to(text: &str, missing: usize, room: usize) -> String {
    let head = match missing {
        0 => text,
        _ => text.strip_suffix(&mark(missing)).unwrap_or(text),
    };
    if head.len() <= room {
        return text.to_owned();
    }
    let end = head.floor_char_boundary(room);
    let kept = head.get(..end).unwrap_or_default();
    format!("{kept}{}", mark(missing + head.len() - end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_whole_at_the_limit_and_marked_one_past_it() {
        let at = vec![b'a'; SHOWN_BYTES_MAX];
        assert_eq!(
            shown(&at, SHOWN_BYTES_MAX),
            (String::from_utf8(at).unwrap(), 0)
        );
        let (text, cut) = shown(&vec![b'a'; SHOWN_BYTES_MAX + 1], SHOWN_BYTES_MAX);
        assert!(cut == 1 && text.ends_with("\n[1 more bytes are not shown]"));
    }

    #[test]
    fn the_steps_of_a_call_are_told_in_their_order() {
        let took = std::time::Duration::from_micros(1500);
        let mut envelope = Envelope::empty("succeeded", "t", RunId::new(), String::new());
        assert!(!envelope.to_json().contains("timings_ms"));
        envelope.timings_ms = steps(&[("start", took), ("run", took * 2), ("remove", took)]);
        let told = "\"timings_ms\":{\"start\":1.5,\"run\":3.0,\"remove\":1.5}";
        assert!(envelope.to_json().contains(told), "{}", envelope.to_json());
    }

    #[test]
    fn a_cut_never_splits_a_character() {
        let (text, _) = shown("é".repeat(SHOWN_BYTES_MAX).as_bytes(), SHOWN_BYTES_MAX);
        assert!(!text.contains('\u{fffd}'));
    }

    #[test]
    fn an_envelope_fits_its_frame_and_stays_json() {
        let mut envelope = Envelope::empty("succeeded", "t", RunId::new(), String::new());
        envelope.results = Some(serde_json::json!({"rows": "\"".repeat(40_000)}));
        envelope.stderr = "\u{1}".repeat(40_000);
        let whole = envelope.to_json().len();
        assert_eq!(envelope.clone().fitting(whole), envelope);
        let cut = envelope.fitting(whole - 1);
        assert!(cut.output_truncated && cut.to_json().len() < whole);
        let cut = cut.fitting(64 << 10).to_json();
        assert!(cut.len() <= 64 << 10);
        let read: Value = serde_json::from_str(&cut).unwrap();
        assert!(
            read["results"]
                .as_str()
                .unwrap()
                .ends_with("more bytes are not shown]")
        );
    }

    /// What is before a text's mark, and what the mark says.
    fn parted(text: &str) -> (&str, usize) {
        let (head, mark) = text.rsplit_once("\n[").unwrap();
        (head, mark.split_once(' ').unwrap().0.parse().unwrap())
    }

    #[test]
    fn the_mark_says_how_much_of_the_whole_is_missing_however_often_it_was_cut() {
        for unit in ["a", "\"\n", "\u{1}", "é€"] {
            let whole = unit.repeat(300_000);
            let mut envelope = Envelope::empty("succeeded", "t", RunId::new(), String::new());
            let (text, missing) = shown(whole.as_bytes(), SHOWN_BYTES_MAX);
            envelope.results = Some(Value::String(text));
            envelope.missing.results = missing;
            let (stderr, missing) = shown(whole.as_bytes(), SHOWN_BYTES_MAX);
            (envelope.stderr, envelope.missing.stderr) = (stderr, missing);
            let cut = envelope.fitting(64 << 10);
            for shown in [cut.results.as_ref().unwrap().as_str().unwrap(), &cut.stderr] {
                let (head, missing) = parted(shown);
                assert!(whole.starts_with(head));
                assert_eq!(head.len() + missing, whole.len(), "{unit:?}");
            }
            let json = cut.to_json().len();
            assert!(
                (63 << 10..=64 << 10).contains(&json),
                "{json} bytes are used"
            );
        }
    }

    #[test]
    fn an_envelope_of_64_kib_is_whole_and_one_byte_more_is_cut_with_the_true_number() {
        let run = RunId::new();
        let of = |bytes: usize| {
            let mut envelope = Envelope::empty("succeeded", "t", run, String::new());
            envelope.results = Some(Value::String("x".repeat(bytes)));
            envelope
        };
        let room = (64 << 10) - of(0).to_json().len();
        assert_eq!(of(room).to_json().len(), 64 << 10);
        assert!(of(room).fitting(64 << 10) == of(room));
        let cut = of(room + 1).fitting(64 << 10);
        let (head, missing) = parted(cut.results.as_ref().unwrap().as_str().unwrap());
        assert_eq!(head.len() + missing, room + 1);
        assert!(cut.output_truncated && missing < 100, "{missing}");
    }
}
