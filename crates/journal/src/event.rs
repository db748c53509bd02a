//! What a journal can say: one closed set of events, each with its own limits.
//!
//! Hashes, sizes, codes and receipts; never a tool's output, an input's bytes or a secret.
//! Numbers that can pass 2^53 (devices, inodes) are texts.

use std::fmt;

use model::{CallId, Canonical, Digest, PublicationId, RelativePath, ToolName};
use serde::{Deserialize, Serialize};

use crate::limits::{
    CREATED_FILES_MAX, CUSTOM_BYTES_MAX, INPUTS_SHOWN_MAX, NAME_BYTES_MAX, NOTE_TEXT_BYTES_MAX,
    NUMBER_MAX, PATH_BYTES_MAX, POLICIES_MAX, POLICY_TEXT_BYTES_MAX, SIGNATURES_MAX,
    TEXT_BYTES_MAX, TOOL_TEXT_BYTES_MAX, TOOLS_MAX,
};

/// How the run's client is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Client {
    /// An agent in a worker of ours.
    Contained,
    /// A program that we govern but do not contain.
    Uncontained,
    /// The operator at the command line.
    Operator,
    /// A program that embeds the runtime.
    Library,
}

/// The first record of every run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunStarted {
    /// Version of the program that writes.
    pub version: String,
    pub project: String,
    pub client: Client,
    pub tools: Vec<ToolName>,
    pub tool_set_sha256: Digest,
    pub policy_sha256: Digest,
    /// Of the helper that becomes a worker's first process.
    pub init_sha256: Option<Digest>,
    pub max_calls: u64,
    pub lifetime_ms: u64,
    pub tool_time_ms: u64,
}

/// The step that said no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    Parse,
    Prepare,
    Approve,
    Authorize,
    Record,
}

/// A policy that took part in a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyNote {
    pub id: String,
    pub reason: Option<String>,
    pub advice: Option<String>,
}

/// A no before any effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallRefused {
    pub call_id: CallId,
    /// As the client wrote it, escaped: it may name no tool.
    pub tool: String,
    pub stage: Stage,
    pub reason: String,
    /// What the caller was told to do about it.
    #[serde(default)]
    pub advice: Option<String>,
    pub policies: Vec<PolicyNote>,
    pub call_sha256: Option<Digest>,
    /// A person's no, where it was one.
    #[serde(default)]
    pub approval: Option<ApprovalFact>,
}

/// The client or the owner took a call back before its effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallWithdrawn {
    pub call_id: CallId,
    pub tool: String,
    pub cause: String,
}

/// What a person said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    #[default]
    Approved,
    Denied,
}

/// How much of a held call's input was shown where the answer came from, before it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputShown {
    /// The argument, or a literal path's index: a key of the descriptor's `filesystem.read`.
    pub input: String,
    /// From its beginning, without a gap.
    pub shown_bytes: u64,
    pub bytes: u64,
}

/// A person's answer to exactly one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalFact {
    pub held_id: String,
    pub surface: String,
    pub approver: String,
    #[serde(default)]
    pub decision: Decision,
    /// RFC 3339, UTC, like the two that follow; between them.
    pub decided_at: String,
    pub created_at: String,
    pub expires_at: String,
    /// Digest of the text that the person was shown.
    pub review_sha256: Digest,
    /// Every input of the call. The text has their hashes; this is what was shown of their bytes.
    #[serde(default)]
    pub inputs_shown: Vec<InputShown>,
    /// Armored SSH signatures over that text, where operators sign.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<String>,
}

/// The pre-effect record: after it, and only after it, the call runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallDispatching {
    pub call_id: CallId,
    pub tool: ToolName,
    pub call_sha256: Digest,
    /// All that will run. In a record, one over 16 KiB is the hash and length of an evidence
    /// file: `{"evidence":{"bytes":N,"sha256":"…"}}`.
    pub descriptor: Canonical,
    pub policies: Vec<PolicyNote>,
    pub approval: Option<ApprovalFact>,
}

/// An answer, or a connection that could have brought one, that did not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerRefused {
    pub surface: String,
    /// Who it came from, as far as the surface knows.
    pub from: String,
    /// As it was named, escaped.
    pub held_id: Option<String>,
    pub reason: String,
    /// Further ones of this run are refused too, and not recorded.
    pub last: bool,
}

/// A directory or file on its device; both are decimal numbers as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileIdentity {
    pub device: String,
    pub inode: String,
}

/// A candidate file by name and identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CandidateIdentity {
    pub name: String,
    pub device: String,
    pub inode: String,
}

/// The intent of one publication: the rename that follows, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilePublicationPrepared {
    pub publication_id: PublicationId,
    pub call_sha256: Digest,
    /// In the worker's terms, as the call named it.
    pub path: RelativePath,
    /// On the host.
    pub parent_path: String,
    pub parent: FileIdentity,
    pub candidate: CandidateIdentity,
    pub target_name: String,
    pub bytes: u64,
    pub sha256: Digest,
}

/// What became of a publication.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilePublicationFinished {
    pub publication_id: PublicationId,
    pub confirmed: bool,
    pub error: Option<String>,
}

/// How a dispatched call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeStatus {
    Succeeded,
    Failed,
    Unconfirmed,
    NotStarted,
}

/// The end of a call with what is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutcomeFact {
    pub status: OutcomeStatus,
    pub reason: Option<String>,
    pub exit_code: Option<i64>,
    pub signal: Option<i64>,
    /// The limit that the worker ran into.
    pub limit: Option<String>,
}

/// One output stream of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamFact {
    pub bytes: u64,
    pub sha256: Digest,
}

/// A receipt: this file was published with this content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreatedFile {
    pub path: RelativePath,
    pub bytes: u64,
    pub sha256: Digest,
}

/// The outcome of a dispatched call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallSettled {
    pub call_id: CallId,
    pub call_sha256: Digest,
    /// The sequence number of the call's `CallDispatching`.
    pub dispatched_seq: u64,
    pub outcome: OutcomeFact,
    pub duration_us: u64,
    pub stdout: StreamFact,
    pub stderr: StreamFact,
    pub created_files: Vec<CreatedFile>,
    /// The worker whose removal was confirmed.
    pub worker: Option<String>,
    /// Where a parser read the output in a worker of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parser: Option<ParserFact>,
    /// The whole standard output is kept under this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence_sha256: Option<Digest>,
    pub effect_happened: bool,
}

/// The end of an output parser.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParserFact {
    pub exit_code: Option<i64>,
    pub signal: Option<i64>,
    pub limit: Option<String>,
    pub duration_us: u64,
    pub stdout: StreamFact,
    pub stderr: StreamFact,
    /// The worker whose removal was confirmed.
    pub worker: Option<String>,
}

/// A request goes to the model provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InferenceRequested {
    /// Counts from 0 in this run.
    pub request: u64,
    pub route: String,
    pub body_sha256: Digest,
    pub body_bytes: u64,
    pub reserved_output_tokens: u64,
}

/// The provider's answer ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InferenceCompleted {
    pub request: u64,
    pub status: u16,
    pub body_sha256: Digest,
    pub body_bytes: u64,
    pub complete: bool,
    pub reason: Option<String>,
}

/// The terminal record: nothing follows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunEnded {
    pub completed: bool,
    pub cause: Option<String>,
    pub calls: u64,
}

/// An embedding program's own fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Custom {
    pub custom_kind: String,
    pub digest: Digest,
    pub value: String,
}

/// A value of an event is outside its limit; its author shortens it ([`shortened`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    pub event: &'static str,
    pub field: &'static str,
    /// Bytes, entries, or the number itself.
    pub value: u64,
    pub max: u64,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            event,
            field,
            value,
            max,
        } = self;
        write!(
            f,
            "`{field}` of a `{event}` record is {value}, more than the {max} allowed"
        )
    }
}

impl std::error::Error for FieldError {}

/// `text` in at most `max` bytes: whole, or its beginning with its length and hash.
#[must_use]
pub fn shortened(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let note = format!(
        "... ({} bytes, sha256 {})",
        text.len(),
        Digest::of(text.as_bytes())
    );
    let kept = text.floor_char_boundary(max.saturating_sub(note.len()));
    let mut short = text.get(..kept).unwrap_or_default().to_owned();
    short.push_str(&note);
    short.truncate(short.floor_char_boundary(max));
    short
}

/// An event's payload. Sealed: the set of events is closed.
pub trait Payload: Serialize + sealed::Sealed {
    /// The event's `kind` in a record.
    const KIND: &'static str;
    /// Checks every text, list and number against its limit.
    ///
    /// # Errors
    /// [`FieldError`] names the first one that is outside.
    fn check(&self) -> Result<(), FieldError>;
    #[doc(hidden)]
    fn rule(&self) -> sealed::Rule;
}

/// An event that anybody with a [`crate::Journal`] may record. The others, which belong to one
/// dispatched call, go through its [`crate::CallJournal`].
pub trait Recordable: Payload {}

pub(crate) mod sealed {
    use model::{Canonical, Digest};

    pub trait Sealed: Sized {
        /// The value that may be too large for a record.
        fn large_value(&self) -> Option<&Canonical> {
            None
        }

        /// The event with another value in its place.
        fn with_value(&self, _value: Canonical) -> Option<Self> {
            None
        }
    }

    /// What the order of records asks of an event.
    #[derive(Debug, Clone, Copy)]
    pub enum Rule {
        First,
        Anytime,
        Dispatch {
            call: Digest,
        },
        /// Of a dispatched call; its `CallJournal` knows the order.
        OfCall,
        /// The same, and an effect follows it.
        Publish,
        Request {
            request: u64,
        },
        Answer {
            request: u64,
        },
        Last {
            completed: bool,
        },
    }
}

use sealed::Rule;

struct Fields(&'static str);

impl Fields {
    fn at_most(&self, field: &'static str, value: u64, max: u64) -> Result<(), FieldError> {
        match value <= max {
            true => Ok(()),
            false => Err(FieldError {
                event: self.0,
                field,
                value,
                max,
            }),
        }
    }

    fn bytes(&self, field: &'static str, text: &str, max: usize) -> Result<(), FieldError> {
        self.at_most(field, text.len() as u64, max as u64)
    }

    fn text(&self, field: &'static str, text: &str) -> Result<(), FieldError> {
        self.bytes(field, text, TEXT_BYTES_MAX)
    }

    fn name(&self, field: &'static str, text: &str) -> Result<(), FieldError> {
        self.bytes(field, text, NAME_BYTES_MAX)
    }

    fn count(&self, field: &'static str, count: usize, max: usize) -> Result<(), FieldError> {
        self.at_most(field, count as u64, max as u64)
    }

    fn number(&self, field: &'static str, value: u64) -> Result<(), FieldError> {
        self.at_most(field, value, NUMBER_MAX)
    }

    fn policies(&self, notes: &[PolicyNote]) -> Result<(), FieldError> {
        self.count("policies", notes.len(), POLICIES_MAX)?;
        for note in notes {
            self.name("policies.id", &note.id)?;
            for (field, text) in [
                ("policies.reason", &note.reason),
                ("policies.advice", &note.advice),
            ] {
                self.bytes(
                    field,
                    text.as_deref().unwrap_or_default(),
                    POLICY_TEXT_BYTES_MAX,
                )?;
            }
        }
        Ok(())
    }

    fn approval(&self, approval: &ApprovalFact) -> Result<(), FieldError> {
        self.name("approval.held_id", &approval.held_id)?;
        self.name("approval.surface", &approval.surface)?;
        self.bytes("approval.approver", &approval.approver, NOTE_TEXT_BYTES_MAX)?;
        self.name("approval.decided_at", &approval.decided_at)?;
        self.name("approval.created_at", &approval.created_at)?;
        self.name("approval.expires_at", &approval.expires_at)?;
        self.count(
            "approval.inputs_shown",
            approval.inputs_shown.len(),
            INPUTS_SHOWN_MAX,
        )?;
        for shown in &approval.inputs_shown {
            self.name("approval.inputs_shown.input", &shown.input)?;
            self.number("approval.inputs_shown.bytes", shown.bytes)?;
            self.at_most(
                "approval.inputs_shown.shown_bytes",
                shown.shown_bytes,
                shown.bytes,
            )?;
        }
        self.count(
            "approval.signatures",
            approval.signatures.len(),
            SIGNATURES_MAX,
        )?;
        for signature in &approval.signatures {
            self.bytes("approval.signatures", signature, NOTE_TEXT_BYTES_MAX)?;
        }
        Ok(())
    }

    fn optional(&self, field: &'static str, text: Option<&str>) -> Result<(), FieldError> {
        self.text(field, text.unwrap_or_default())
    }
}

macro_rules! events {
    ($($type:ident: |$event:ident, $fields:ident| $check:block, $rule:expr;)*) => {
        /// Any event, as a reader sees it.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "kind")]
        pub enum Event {
            $($type($type),)*
        }

        impl Event {
            /// The event's `kind` in a record.
            #[must_use]
            pub const fn kind(&self) -> &'static str {
                match self {
                    $(Self::$type(_) => $type::KIND,)*
                }
            }
        }

        $(
            impl Payload for $type {
                const KIND: &'static str = stringify!($type);
                fn check(&self) -> Result<(), FieldError> {
                    let ($event, $fields) = (self, Fields(Self::KIND));
                    $check
                    Ok(())
                }
                fn rule(&self) -> Rule {
                    let $event = self;
                    let _ = $event;
                    $rule
                }
            }
        )*
    };
}

events! {
    RunStarted: |e, f| {
        f.name("version", &e.version)?;
        f.name("project", &e.project)?;
        f.count("tools", e.tools.len(), TOOLS_MAX)?;
        f.number("max_calls", e.max_calls)?;
        f.number("lifetime_ms", e.lifetime_ms)?;
        f.number("tool_time_ms", e.tool_time_ms)?;
    }, Rule::First;

    CallRefused: |e, f| {
        f.bytes("tool", &e.tool, TOOL_TEXT_BYTES_MAX)?;
        f.text("reason", &e.reason)?;
        f.optional("advice", e.advice.as_deref())?;
        f.policies(&e.policies)?;
        if let Some(approval) = &e.approval {
            f.approval(approval)?;
        }
    }, Rule::Anytime;

    CallWithdrawn: |e, f| {
        f.bytes("tool", &e.tool, TOOL_TEXT_BYTES_MAX)?;
        f.text("cause", &e.cause)?;
    }, Rule::Anytime;

    CallDispatching: |e, f| {
        f.policies(&e.policies)?;
        if let Some(approval) = &e.approval {
            f.approval(approval)?;
        }
    }, Rule::Dispatch { call: e.call_sha256 };

    AnswerRefused: |e, f| {
        f.name("surface", &e.surface)?;
        f.bytes("from", &e.from, NOTE_TEXT_BYTES_MAX)?;
        f.name("held_id", e.held_id.as_deref().unwrap_or_default())?;
        f.bytes("reason", &e.reason, NOTE_TEXT_BYTES_MAX)?;
    }, Rule::Anytime;

    FilePublicationPrepared: |e, f| {
        f.bytes("parent_path", &e.parent_path, PATH_BYTES_MAX)?;
        f.name("parent.device", &e.parent.device)?;
        f.name("parent.inode", &e.parent.inode)?;
        f.name("candidate.name", &e.candidate.name)?;
        f.name("candidate.device", &e.candidate.device)?;
        f.name("candidate.inode", &e.candidate.inode)?;
        f.name("target_name", &e.target_name)?;
        f.number("bytes", e.bytes)?;
    }, Rule::Publish;

    CallSettled: |e, f| {
        f.number("dispatched_seq", e.dispatched_seq)?;
        f.optional("outcome.reason", e.outcome.reason.as_deref())?;
        f.number("outcome.exit_code", e.outcome.exit_code.unwrap_or(0).unsigned_abs())?;
        f.number("outcome.signal", e.outcome.signal.unwrap_or(0).unsigned_abs())?;
        f.name("outcome.limit", e.outcome.limit.as_deref().unwrap_or_default())?;
        f.number("duration_us", e.duration_us)?;
        f.number("stdout.bytes", e.stdout.bytes)?;
        f.number("stderr.bytes", e.stderr.bytes)?;
        f.count("created_files", e.created_files.len(), CREATED_FILES_MAX)?;
        for file in &e.created_files {
            f.number("created_files.bytes", file.bytes)?;
        }
        f.name("worker", e.worker.as_deref().unwrap_or_default())?;
        if let Some(parser) = &e.parser {
            f.number("parser.exit_code", parser.exit_code.unwrap_or(0).unsigned_abs())?;
            f.number("parser.signal", parser.signal.unwrap_or(0).unsigned_abs())?;
            f.name("parser.limit", parser.limit.as_deref().unwrap_or_default())?;
            f.number("parser.duration_us", parser.duration_us)?;
            f.number("parser.stdout.bytes", parser.stdout.bytes)?;
            f.number("parser.stderr.bytes", parser.stderr.bytes)?;
            f.name("parser.worker", parser.worker.as_deref().unwrap_or_default())?;
        }
    }, Rule::OfCall;

    FilePublicationFinished: |e, f| {
        f.optional("error", e.error.as_deref())?;
    }, Rule::OfCall;

    InferenceRequested: |e, f| {
        f.number("request", e.request)?;
        f.name("route", &e.route)?;
        f.number("body_bytes", e.body_bytes)?;
        f.number("reserved_output_tokens", e.reserved_output_tokens)?;
    }, Rule::Request { request: e.request };

    InferenceCompleted: |e, f| {
        f.number("request", e.request)?;
        f.number("body_bytes", e.body_bytes)?;
        f.optional("reason", e.reason.as_deref())?;
    }, Rule::Answer { request: e.request };

    RunEnded: |e, f| {
        f.optional("cause", e.cause.as_deref())?;
        f.number("calls", e.calls)?;
    }, Rule::Last { completed: e.completed };

    Custom: |e, f| {
        f.name("custom_kind", &e.custom_kind)?;
        f.bytes("value", &e.value, CUSTOM_BYTES_MAX)?;
    }, Rule::Anytime;
}

impl sealed::Sealed for RunStarted {}
impl sealed::Sealed for CallRefused {}
impl sealed::Sealed for CallWithdrawn {}
impl sealed::Sealed for AnswerRefused {}
impl sealed::Sealed for CallDispatching {
    fn large_value(&self) -> Option<&Canonical> {
        Some(&self.descriptor)
    }

    fn with_value(&self, descriptor: Canonical) -> Option<Self> {
        Some(Self {
            descriptor,
            ..self.clone()
        })
    }
}
impl sealed::Sealed for FilePublicationPrepared {}
impl sealed::Sealed for FilePublicationFinished {}
impl sealed::Sealed for CallSettled {}
impl sealed::Sealed for InferenceRequested {}
impl sealed::Sealed for InferenceCompleted {}
impl sealed::Sealed for RunEnded {}
impl sealed::Sealed for Custom {}

impl Recordable for RunStarted {}
impl Recordable for CallRefused {}
impl Recordable for CallWithdrawn {}
impl Recordable for AnswerRefused {}
impl Recordable for CallDispatching {}
impl Recordable for InferenceRequested {}
impl Recordable for InferenceCompleted {}
impl Recordable for RunEnded {}
impl Recordable for Custom {}
