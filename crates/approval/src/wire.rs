//! The messages on the gate's socket: one JSON object in a line each way, with a version.
//!
//! A request is `{"v":1,"request":…}` with one of `"list"`, `"watch"`, `{"show":{…}}` and
//! `{"decide":{…}}`; a response is `{"v":1,"response":{…}}`. Unknown and repeated fields, other
//! versions and longer lines are refused.

use std::fmt;

use model::{Digest, RunId};
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, HeldId};
use crate::limits::{REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX};

/// The only version so far.
pub const VERSION: u64 = 1;

/// What a person's client asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// The held calls, once.
    List,
    /// The held calls now and after every change, one response each.
    Watch,
    /// The whole review of one.
    Show(Show),
    /// An answer to one.
    Decide(Decide),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Show {
    pub held_id: HeldId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decide {
    pub held_id: HeldId,
    /// The digest of the review that was read.
    pub review_sha256: Digest,
    pub answer: Answer,
    /// An armored SSH signature over that review.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

/// What the run answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Response {
    Held(Listing),
    Review(ReviewText),
    /// The answer was taken; it is final.
    Decided(Decided),
    /// The signature was taken; more operators must sign.
    Counted(Counted),
    Refused(Refused),
}

/// The held calls of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listing {
    pub run: RunId,
    pub project: String,
    pub calls: Vec<HeldSummary>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldSummary {
    pub held_id: HeldId,
    pub principal: String,
    pub tool: String,
    pub review_sha256: Digest,
    pub created_at: String,
    pub expires_at: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReviewText {
    pub held_id: HeldId,
    pub text: String,
    pub review_sha256: Digest,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decided {
    pub held_id: HeldId,
    pub answer: Answer,
    /// As the record names the approver.
    pub approver: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counted {
    pub held_id: HeldId,
    pub have: u64,
    pub require: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    pub reason: String,
}

/// Why a line is no message.
#[derive(Debug)]
pub enum WireError {
    Version { found: u64 },
    NotAMessage { reason: String },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { found } => write!(
                f,
                "the other side speaks version {found} of the gate, this one {VERSION}: use the \
                 same symbi for both"
            ),
            Self::NotAMessage { reason } => write!(f, "no message of the gate: {reason}"),
        }
    }
}

impl std::error::Error for WireError {}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestLine<T> {
    v: u64,
    request: T,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResponseLine<T> {
    v: u64,
    response: T,
}

fn not_a_message(reason: &dyn fmt::Display) -> WireError {
    WireError::NotAMessage {
        reason: model::Untrusted::new(reason.to_string()).escaped(),
    }
}

fn read<T: for<'de> Deserialize<'de>>(line: &[u8], max: usize) -> Result<T, WireError> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let object = model::json::parse_object(line, max).map_err(|error| not_a_message(&error))?;
    if let Some(found) = object.as_map().get("v").and_then(serde_json::Value::as_u64)
        && found != VERSION
    {
        return Err(WireError::Version { found });
    }
    serde_json::from_value(serde_json::Value::Object(object.into_map()))
        .map_err(|error| not_a_message(&error))
}

/// A line with its line end. Every message of ours has a JSON form.
fn line<T: Serialize>(message: &T) -> String {
    let mut line = serde_json::to_string(message).unwrap_or_default();
    line.push('\n');
    line
}

impl Request {
    /// Reads a line.
    ///
    /// # Errors
    /// [`WireError`]
    pub fn read(text: &[u8]) -> Result<Self, WireError> {
        read::<RequestLine<Self>>(text, REQUEST_BYTES_MAX).map(|line| line.request)
    }

    #[must_use]
    pub fn to_line(&self) -> String {
        line(&RequestLine {
            v: VERSION,
            request: self,
        })
    }
}

impl Response {
    /// Reads a line.
    ///
    /// # Errors
    /// [`WireError`]
    pub fn read(text: &[u8]) -> Result<Self, WireError> {
        read::<ResponseLine<Self>>(text, RESPONSE_BYTES_MAX).map(|line| line.response)
    }

    #[must_use]
    pub fn to_line(&self) -> String {
        line(&ResponseLine {
            v: VERSION,
            response: self,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{REVIEW_BYTES_MAX, SIGNATURE_BYTES_MAX};

    fn held_id() -> HeldId {
        HeldId::new("held-1").unwrap()
    }

    #[test]
    fn requests_read_as_they_were_written() {
        let decide = Decide {
            held_id: held_id(),
            review_sha256: Digest::of(b"review"),
            answer: Answer::Approve,
            signature: Some("-----BEGIN\nx\n".to_owned()),
        };
        let show = Show { held_id: held_id() };
        for request in [
            Request::List,
            Request::Watch,
            Request::Show(show),
            Request::Decide(decide),
        ] {
            let line = request.to_line();
            assert_eq!(line.matches('\n').count(), 1);
            assert_eq!(Request::read(line.as_bytes()).unwrap(), request);
        }
        assert_eq!(Request::List.to_line(), "{\"v\":1,\"request\":\"list\"}\n");
    }

    #[test]
    fn what_is_not_exactly_a_request_is_refused() {
        let bad = [
            "",
            "[]",
            "\"list\"",
            r#"{"v":1}"#,
            r#"{"request":"list"}"#,
            r#"{"v":"1","request":"list"}"#,
            r#"{"v":1,"request":"List"}"#,
            r#"{"v":1,"request":"list","more":1}"#,
            r#"{"v":1,"v":1,"request":"list"}"#,
            r#"{"v":1,"request":{"list":{"x":1}}}"#,
            r#"{"v":1,"request":{"show":{"held_id":"../x"}}}"#,
            r#"{"v":1,"request":{"show":{"held_id":"held-1","more":1}}}"#,
            r#"{"v":1,"request":{"show":{"held_id":"held-1"},"list":null}}"#,
            r#"{"v":1,"request":{"decide":{"held_id":"held-1","answer":"approve"}}}"#,
            "{\"v\":1,\"request\":\"list\"}\n{}",
        ];
        for line in bad {
            assert!(Request::read(line.as_bytes()).is_err(), "{line}");
        }
        let version = Request::read(br#"{"v":2,"request":"list"}"#);
        assert!(matches!(version, Err(WireError::Version { found: 2 })));
    }

    #[test]
    fn a_line_is_bounded() {
        let request = br#"{"v":1,"request":"list"}"#;
        let mut padded = request.to_vec();
        padded.resize(REQUEST_BYTES_MAX, b' ');
        assert_eq!(Request::read(&padded).unwrap(), Request::List);
        padded.push(b' ');
        assert!(Request::read(&padded).is_err());
    }

    #[test]
    fn the_largest_review_and_the_largest_signature_fit() {
        let review = Response::Review(ReviewText {
            held_id: held_id(),
            text: "\"".repeat(REVIEW_BYTES_MAX),
            review_sha256: Digest::of(b""),
        });
        assert!(review.to_line().len() <= RESPONSE_BYTES_MAX);
        assert_eq!(Response::read(review.to_line().as_bytes()).unwrap(), review);
        let decide = Request::Decide(Decide {
            held_id: held_id(),
            review_sha256: Digest::of(b""),
            answer: Answer::Deny,
            signature: Some("\n".repeat(SIGNATURE_BYTES_MAX)),
        });
        assert!(decide.to_line().len() <= REQUEST_BYTES_MAX);
    }

    #[test]
    fn a_refusal_shows_no_escape_of_the_other_side() {
        let error = Request::read("{\"v\":1,\"request\":\"\u{1b}[2J\"}".as_bytes()).unwrap_err();
        assert!(
            error
                .to_string()
                .bytes()
                .all(|byte| matches!(byte, b' '..=b'~'))
        );
    }
}
