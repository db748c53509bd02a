//! What can go wrong with the engine, and what is then known.

use std::fmt;

use serde::Deserialize;

use super::answer::Answer;
use crate::limits::ENGINE_MESSAGE_CHARS_MAX;

/// One operation that the engine did not do, as far as is known.
#[derive(Debug)]
pub struct EngineError {
    operation: &'static str,
    trouble: Trouble,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The request never left: nothing was done.
    NotSent { why: String },
    /// The engine said no (4xx): nothing was done.
    Refused { status: u16, message: String },
    /// The engine reported a failure of its own (5xx): what it did is unknown.
    Failed { status: u16, message: String },
    /// No whole answer came, or none that can be understood: what it did is unknown.
    Unknown { why: String },
}

impl EngineError {
    pub(super) const fn new(operation: &'static str, trouble: Trouble) -> Self {
        Self { operation, trouble }
    }

    /// There is no container that could be asked about.
    pub(crate) fn nothing_to_ask() -> Self {
        let why = "there is no container".to_owned();
        Self::new("ask about a container", Trouble::NotSent { why })
    }

    /// The engine's own words for an answer that is no success.
    pub(super) fn answered(operation: &'static str, answer: &Answer) -> Self {
        let status = answer.status;
        let message = message_of(&answer.body);
        let trouble = match status {
            400..=499 => Trouble::Refused { status, message },
            _ => Trouble::Failed { status, message },
        };
        Self { operation, trouble }
    }

    #[must_use]
    pub const fn trouble(&self) -> &Trouble {
        &self.trouble
    }

    /// Whether it is certain that the engine did nothing.
    #[must_use]
    pub const fn did_nothing(&self) -> bool {
        matches!(
            self.trouble,
            Trouble::NotSent { .. } | Trouble::Refused { .. }
        )
    }

    /// Whether nobody listens at the socket.
    #[must_use]
    pub const fn is_unreachable(&self) -> bool {
        matches!(self.trouble, Trouble::NotSent { .. })
    }

    /// The status of the engine's answer, if there was one.
    #[must_use]
    pub const fn status(&self) -> Option<u16> {
        match self.trouble {
            Trouble::Refused { status, .. } | Trouble::Failed { status, .. } => Some(status),
            Trouble::NotSent { .. } | Trouble::Unknown { .. } => None,
        }
    }

    /// What the engine said, if it said something.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        match &self.trouble {
            Trouble::Refused { message, .. } | Trouble::Failed { message, .. } => Some(message),
            Trouble::NotSent { .. } | Trouble::Unknown { .. } => None,
        }
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = self.operation;
        match &self.trouble {
            Trouble::NotSent { why } => {
                write!(
                    f,
                    "the container engine could not be asked to {operation}: {why}"
                )
            }
            Trouble::Refused { status, message } => write!(
                f,
                "the container engine refused to {operation}: {message} (status {status})"
            ),
            Trouble::Failed { status, message } => write!(
                f,
                "the container engine failed to {operation}: {message} (status {status})"
            ),
            Trouble::Unknown { why } => write!(
                f,
                "the container engine was asked to {operation}, and gave no clear answer: {why}"
            ),
        }
    }
}

impl std::error::Error for EngineError {}

/// The engine's message, escaped and bounded: parts of it can come from an image.
fn message_of(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Message {
        message: String,
    }
    let text = match serde_json::from_slice::<Message>(body) {
        Ok(it) => it.message,
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    let text = text.trim();
    let mut shown: String = text.chars().take(ENGINE_MESSAGE_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    match shown.is_empty() {
        true => "it gave no reason".to_owned(),
        false => shown.escape_debug().to_string().replace("\\\"", "\""),
    }
}
