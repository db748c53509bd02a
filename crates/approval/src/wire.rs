//! The messages on the gate's socket: one JSON object in a line each way, with a version.
//!
//! A request is `{"v":1,"request":…}` with one of `"list"`, `"watch"`, `{"show":{…}}`,
//! `{"input":{…}}` and `{"decide":{…}}`; a response is `{"v":1,"response":{…}}`. Unknown and
//! repeated fields, other versions and longer lines are refused.

use std::fmt;

use model::{Digest, RunId};
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, HeldId};
use crate::limits::{INPUT_PART_BYTES_MAX, REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX};

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
    /// A part of one of its inputs.
    Input(Input),
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
pub struct Input {
    pub held_id: HeldId,
    /// An argument, or a literal path's index.
    pub input: String,
    /// Where the part begins, in bytes.
    pub offset: u64,
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
    Input(InputText),
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

/// A part of an input's snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputText {
    pub held_id: HeldId,
    pub input: String,
    pub path: String,
    /// Size and digest of the whole input.
    pub bytes: u64,
    pub sha256: Digest,
    pub offset: u64,
    /// At most [`INPUT_PART_BYTES_MAX`] bytes in lower-case hex.
    pub content_hex: String,
}

/// Why a part is not what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputTextError {
    /// Not hex, too long, or more than the input has.
    Form,
    /// The whole input is not the one that its digest names.
    OtherBytes { named: Digest, found: Digest },
}

impl fmt::Display for InputTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => f.write_str("the part of the input is not of its form"),
            Self::OtherBytes { named, found } => {
                write!(f, "the input's digest is {found}, and {named} was named")
            }
        }
    }
}

impl std::error::Error for InputTextError {}

impl InputText {
    /// The bytes of a part, in hex.
    #[must_use]
    pub fn hex(content: &[u8]) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digit = |value: u8| char::from(DIGITS.get(usize::from(value)).copied().unwrap_or(b'0'));
        let pair = |byte: &u8| [digit(byte >> 4), digit(byte & 15)];
        content.iter().flat_map(pair).collect()
    }

    /// The bytes. A part that is the whole input must be what its digest names.
    ///
    /// # Errors
    /// [`InputTextError`]
    pub fn content(&self) -> Result<Vec<u8>, InputTextError> {
        let content = unhex(&self.content_hex).ok_or(InputTextError::Form)?;
        let end = self.offset.checked_add(content.len() as u64);
        if content.len() > INPUT_PART_BYTES_MAX || end.is_none_or(|end| end > self.bytes) {
            return Err(InputTextError::Form);
        }
        let found = Digest::of(&content);
        if content.len() as u64 == self.bytes && found != self.sha256 {
            let named = self.sha256;
            return Err(InputTextError::OtherBytes { named, found });
        }
        Ok(content)
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let pair = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
    pairs.iter().map(pair).collect()
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
        let input = Input {
            held_id: held_id(),
            input: "data".to_owned(),
            offset: 7,
        };
        for request in [
            Request::Input(input),
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
    fn the_largest_part_of_an_input_fits_and_reads_as_it_was() {
        let content: Vec<u8> = (0..INPUT_PART_BYTES_MAX).map(|it| it as u8).collect();
        let text = InputText {
            held_id: held_id(),
            input: "x".repeat(256),
            path: "\u{1b}".repeat(1000),
            bytes: content.len() as u64,
            sha256: Digest::of(&content),
            offset: 0,
            content_hex: InputText::hex(&content),
        };
        let line = Response::Input(text.clone()).to_line();
        assert!(line.len() <= RESPONSE_BYTES_MAX);
        assert_eq!(text.content(), Ok(content));
    }

    #[test]
    fn a_part_that_is_not_what_it_says_is_refused() {
        let good = InputText {
            held_id: held_id(),
            input: "data".to_owned(),
            path: "a".to_owned(),
            bytes: 3,
            sha256: Digest::of(b"abc"),
            offset: 0,
            content_hex: "616263".to_owned(),
        };
        assert_eq!(good.content(), Ok(b"abc".to_vec()));
        for bad in ["6", "6g", "6A", "61626364"] {
            let part = InputText {
                content_hex: bad.to_owned(),
                ..good.clone()
            };
            assert_eq!(part.content(), Err(InputTextError::Form), "{bad}");
        }
        let other = InputText {
            content_hex: "616264".to_owned(),
            ..good.clone()
        };
        assert!(matches!(
            other.content(),
            Err(InputTextError::OtherBytes { .. })
        ));
        let over = "00".repeat(INPUT_PART_BYTES_MAX + 1);
        let long = InputText {
            bytes: 1 << 30,
            content_hex: over,
            ..good
        };
        assert_eq!(long.content(), Err(InputTextError::Form));
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
