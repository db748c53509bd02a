//! A no to the agent, in the form that its client understands.
//!
//! Clients end their run on 400 and 403 and repeat most other failures; so every refusal has one
//! of those two, and says in JSON what was wrong.

use model::Untrusted;
use serde_json::json;

use crate::limits::{QUOTED_CHARS_MAX, REASON_CHARS_MAX};

/// What kind of no it is; it decides the status and the error's `type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// The request itself is not one that may be sent: 400, `invalid_request_error`.
    Request,
    /// The route, the run's budget or the provider's answer forbids it: 403, `permission_error`.
    Permission,
}

/// A request or an answer that does not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Refusal {
    pub status: u16,
    /// The same message that the body carries: one line, printable ASCII, at most
    /// [`REASON_CHARS_MAX`] characters.
    pub reason: String,
    /// `{"type":"error","error":{"type":…,"message":…}}`, to be sent as `application/json`.
    pub body: Vec<u8>,
}

impl Refusal {
    pub fn new(kind: RefusalKind, reason: &str) -> Self {
        let (status, name) = match kind {
            RefusalKind::Request => (400, "invalid_request_error"),
            RefusalKind::Permission => (403, "permission_error"),
        };
        let mut reason = Untrusted::new(reason).escaped();
        // Escaped text is ASCII: a character is a byte.
        if reason.len() > REASON_CHARS_MAX {
            reason.truncate(REASON_CHARS_MAX - 3);
            reason.push_str("...");
        }
        let body = error_body(name, &reason);
        Self {
            status,
            reason,
            body,
        }
    }

    pub(crate) fn request(reason: &str) -> Self {
        Self::new(RefusalKind::Request, reason)
    }

    pub(crate) fn permission(reason: &str) -> Self {
        Self::new(RefusalKind::Permission, reason)
    }

    /// The refusal as an event of a stream that has already begun.
    #[must_use]
    pub fn as_event(&self) -> Vec<u8> {
        let mut event = b"event: error\ndata: ".to_vec();
        event.extend_from_slice(&self.body);
        event.extend_from_slice(b"\n\n");
        event
    }
}

/// A provider's error body.
pub(crate) fn error_body(name: &str, message: &str) -> Vec<u8> {
    json!({"type": "error", "error": {"type": name, "message": message}})
        .to_string()
        .into_bytes()
}

/// The agent's text, cut to what a message may repeat; [`Refusal::new`] escapes it.
pub(crate) fn quoted(text: &str) -> String {
    let mut short: String = text.chars().take(QUOTED_CHARS_MAX).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    format!("`{short}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_line_of_json_that_a_client_understands() {
        let refusal = Refusal::request("no\x1b[2J\n");
        assert_eq!(refusal.status, 400);
        let value: serde_json::Value = serde_json::from_slice(&refusal.body).unwrap();
        assert_eq!(value["type"], "error");
        assert_eq!(value["error"]["type"], "invalid_request_error");
        assert_eq!(value["error"]["message"], "no\\u{1b}[2J\\n");
        assert_eq!(refusal.reason, "no\\u{1b}[2J\\n");
        assert!(!refusal.body.contains(&b'\n'));
        assert!(refusal.as_event().ends_with(b"}\n\n"));
    }

    #[test]
    fn a_message_is_whole_at_the_limit_and_cut_one_past_it() {
        let at_limit = "x".repeat(REASON_CHARS_MAX);
        assert_eq!(Refusal::request(&at_limit).reason, at_limit);
        let cut = Refusal::request(&format!("{at_limit}x")).reason;
        assert!(cut.len() == REASON_CHARS_MAX && cut.ends_with("x..."));
    }

    #[test]
    fn the_agents_text_is_cut_before_it_is_repeated() {
        assert_eq!(quoted("abc"), "`abc`");
        let at_limit = "ä".repeat(QUOTED_CHARS_MAX);
        assert_eq!(quoted(&at_limit), format!("`{at_limit}`"));
        let past_limit = "ä".repeat(QUOTED_CHARS_MAX + 1);
        assert_eq!(quoted(&past_limit), format!("`{at_limit}...`"));
    }
}
