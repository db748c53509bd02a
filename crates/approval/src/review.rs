//! The text that a person reads, and signs: all of a held call, escaped, in one order.

use std::fmt;

use model::{Canonical, Digest, RunId};
use serde_json::Value;

use crate::answer::HeldId;
use crate::limits::REVIEW_BYTES_MAX;

/// What a review is made of.
#[derive(Debug, Clone, Copy)]
pub struct ReviewParts<'a> {
    /// Also the review's nonce: it is random and never used again.
    pub held_id: &'a HeldId,
    pub run: RunId,
    pub principal: &'a str,
    pub tool: &'a str,
    pub call_sha256: Digest,
    /// RFC 3339, UTC.
    pub created_at: &'a str,
    pub expires_at: &'a str,
    /// The whole descriptor.
    pub call: &'a Canonical,
}

/// A review: JSON of printable ASCII characters in lines, of at most
/// [`REVIEW_BYTES_MAX`] bytes. Equal calls have equal reviews.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Review {
    text: String,
    sha256: Digest,
}

/// Why there is no review to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReviewError {
    /// More than a person reads.
    TooLarge { max: usize },
    /// The text from the other side holds a character that no review has.
    NotPrintable { at: usize },
    /// The text from the other side is not the one that its digest names.
    OtherText { named: Digest, found: Digest },
}

impl fmt::Display for ReviewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { max } => write!(
                f,
                "the call to be approved has more than {max} bytes when it is shown, more than a \
                 person is asked to read"
            ),
            Self::NotPrintable { at } => write!(
                f,
                "the review has a character at byte {at} that is not printable ASCII"
            ),
            Self::OtherText { named, found } => {
                write!(f, "the review's digest is {found}, and {named} was named")
            }
        }
    }
}

impl std::error::Error for ReviewError {}

impl Review {
    /// Writes the review of a held call.
    ///
    /// # Errors
    /// [`ReviewError::TooLarge`]
    pub fn of(parts: &ReviewParts<'_>) -> Result<Self, ReviewError> {
        let mut writer = Writer::default();
        writer.raw("{")?;
        let run = parts.run.to_string();
        let call_sha256 = parts.call_sha256.to_hex();
        let head = [
            ("held_id", parts.held_id.as_str()),
            ("run", &run),
            ("principal", parts.principal),
            ("tool", parts.tool),
            ("call_sha256", &call_sha256),
            ("created_at", parts.created_at),
            ("expires_at", parts.expires_at),
        ];
        for (name, value) in head {
            writer.line(1)?;
            writer.string(name)?;
            writer.raw(": ")?;
            writer.string(value)?;
            writer.raw(",")?;
        }
        writer.line(1)?;
        writer.raw("\"call\": ")?;
        writer.value(&parts.call.to_value(), 1)?;
        writer.raw("\n}\n")?;
        Ok(Self {
            sha256: Digest::of(writer.0.as_bytes()),
            text: writer.0,
        })
    }

    /// Takes a review from the other side of a socket, where it is what its digest names.
    ///
    /// # Errors
    /// [`ReviewError`]
    pub fn received(text: String, named: Digest) -> Result<Self, ReviewError> {
        if text.len() > REVIEW_BYTES_MAX {
            return Err(ReviewError::TooLarge {
                max: REVIEW_BYTES_MAX,
            });
        }
        let printable = |byte: u8| matches!(byte, b' '..=b'~' | b'\n');
        if let Some(at) = text.bytes().position(|byte| !printable(byte)) {
            return Err(ReviewError::NotPrintable { at });
        }
        let found = Digest::of(text.as_bytes());
        if found != named {
            return Err(ReviewError::OtherText { named, found });
        }
        Ok(Self {
            text,
            sha256: found,
        })
    }

    /// The text, with the line end that it ends with: exactly these bytes are signed.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// SHA-256 of the text. An answer names it.
    #[must_use]
    pub const fn sha256(&self) -> Digest {
        self.sha256
    }
}

/// JSON in lines, and never more of it than a person reads.
#[derive(Default)]
struct Writer(String);

impl Writer {
    fn raw(&mut self, text: &str) -> Result<(), ReviewError> {
        if self.0.len() + text.len() > REVIEW_BYTES_MAX {
            return Err(ReviewError::TooLarge {
                max: REVIEW_BYTES_MAX,
            });
        }
        self.0.push_str(text);
        Ok(())
    }

    fn line(&mut self, depth: usize) -> Result<(), ReviewError> {
        self.raw("\n")?;
        (0..depth).try_for_each(|_| self.raw("  "))
    }

    fn string(&mut self, text: &str) -> Result<(), ReviewError> {
        self.raw("\"")?;
        for character in text.chars() {
            match character {
                '"' => self.raw("\\\"")?,
                '\\' => self.raw("\\\\")?,
                '\n' => self.raw("\\n")?,
                '\r' => self.raw("\\r")?,
                '\t' => self.raw("\\t")?,
                ' '..='~' => self.raw(character.encode_utf8(&mut [0; 4]))?,
                other => {
                    for unit in other.encode_utf16(&mut [0; 2]) {
                        self.raw(&format!("\\u{unit:04x}"))?;
                    }
                }
            }
        }
        self.raw("\"")
    }

    /// The caller's nesting is bounded: a canonical text comes from a bounded value.
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), ReviewError> {
        match value {
            Value::Null => self.raw("null"),
            Value::Bool(value) => self.raw(if *value { "true" } else { "false" }),
            Value::Number(number) => self.raw(&number.to_string()),
            Value::String(text) => self.string(text),
            Value::Array(items) if items.is_empty() => self.raw("[]"),
            Value::Array(items) => {
                self.raw("[")?;
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        self.raw(",")?;
                    }
                    self.line(depth + 1)?;
                    self.value(item, depth + 1)?;
                }
                self.line(depth)?;
                self.raw("]")
            }
            Value::Object(map) if map.is_empty() => self.raw("{}"),
            Value::Object(map) => {
                let mut fields: Vec<_> = map.iter().collect();
                fields.sort_by_key(|(name, _)| *name);
                self.raw("{")?;
                for (index, (name, item)) in fields.into_iter().enumerate() {
                    if index > 0 {
                        self.raw(",")?;
                    }
                    self.line(depth + 1)?;
                    self.string(name)?;
                    self.raw(": ")?;
                    self.value(item, depth + 1)?;
                }
                self.line(depth)?;
                self.raw("}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn review(call: &Value, principal: &str) -> Result<Review, ReviewError> {
        let call = Canonical::of(call).unwrap();
        let run = "0197f3a0-0000-7000-8000-000000000001".parse().unwrap();
        Review::of(&ReviewParts {
            held_id: &HeldId::new("held-1").unwrap(),
            run,
            principal,
            tool: "echo",
            call_sha256: call.digest(),
            created_at: "2026-01-01T00:00:00Z",
            expires_at: "2026-01-01T00:05:00Z",
            call: &call,
        })
    }

    #[test]
    fn all_of_the_call_is_shown_in_a_stable_order() {
        let call = json!({"b": [1, {"z": null, "a": true}], "a": {}, "c": []});
        let shown = review(&call, "reviewer").unwrap();
        let expected = format!(
            "{{\n  \"held_id\": \"held-1\",\n  \"run\": \"0197f3a0-0000-7000-8000-000000000001\",\n  \
             \"principal\": \"reviewer\",\n  \"tool\": \"echo\",\n  \"call_sha256\": \"{}\",\n  \
             \"created_at\": \"2026-01-01T00:00:00Z\",\n  \"expires_at\": \"2026-01-01T00:05:00Z\",\n  \
             \"call\": {{\n    \"a\": {{}},\n    \"b\": [\n      1,\n      {{\n        \"a\": true,\n        \
             \"z\": null\n      }}\n    ],\n    \"c\": []\n  }}\n}}\n",
            Canonical::of(&call).unwrap().digest()
        );
        assert_eq!(shown.text(), expected);
        assert_eq!(shown.sha256(), Digest::of(expected.as_bytes()));
    }

    #[test]
    fn controls_bidi_and_non_ascii_are_visible() {
        let call = json!({"\u{202e}key": "\u{1b}[2J\u{7f}\u{85}\u{202e}ä\u{1F600}\u{0}"});
        let text = review(&call, "a").unwrap().text().to_owned();
        assert!(
            text.contains(
                "\"\\u202ekey\": \"\\u001b[2J\\u007f\\u0085\\u202e\\u00e4\\ud83d\\ude00\\u0000\""
            ),
            "{text}"
        );
    }

    #[test]
    fn a_request_over_the_limit_is_refused_and_one_at_it_is_shown() {
        let without = review(&json!({"text": ""}), "a").unwrap().text().len();
        let room = REVIEW_BYTES_MAX - without;
        let full = review(&json!({"text": "x".repeat(room)}), "a").unwrap();
        assert_eq!(full.text().len(), REVIEW_BYTES_MAX);
        let over = review(&json!({"text": "x".repeat(room + 1)}), "a");
        let max = REVIEW_BYTES_MAX;
        assert_eq!(over.unwrap_err(), ReviewError::TooLarge { max });
    }

    #[test]
    fn ten_thousand_arguments_with_escapes_in_each_are_refused() {
        let arguments: Vec<String> = (0..10_000)
            .map(|it| format!("{it}\u{1b}]0;x\u{7}"))
            .collect();
        let refused = review(&json!({ "argv": arguments }), "a");
        assert!(matches!(refused, Err(ReviewError::TooLarge { .. })));
    }

    #[test]
    fn a_received_review_is_the_one_that_its_digest_names() {
        let shown = review(&json!({"a": 1}), "a").unwrap();
        let again = Review::received(shown.text().to_owned(), shown.sha256());
        assert_eq!(again.unwrap(), shown);
        let other = shown.text().replace("1\n", "2\n");
        let refused = Review::received(other, shown.sha256());
        assert!(matches!(refused, Err(ReviewError::OtherText { .. })));
        let hidden = "a\u{202e}".to_owned();
        let named = Digest::of(hidden.as_bytes());
        let refused = Review::received(hidden, named);
        assert_eq!(refused.unwrap_err(), ReviewError::NotPrintable { at: 1 });
        let long = "x".repeat(REVIEW_BYTES_MAX + 1);
        let named = Digest::of(long.as_bytes());
        assert!(matches!(
            Review::received(long, named),
            Err(ReviewError::TooLarge { .. })
        ));
    }

    proptest! {
        #[test]
        fn whatever_a_call_says_its_review_is_ascii_and_says_the_same(
            texts in proptest::collection::vec(any::<String>(), 0..8)
        ) {
            let call = json!({"texts": texts});
            let shown = review(&call, "a").unwrap();
            prop_assert!(shown.text().bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n')));
            let read: Value = serde_json::from_str(shown.text()).unwrap();
            prop_assert_eq!(&read["call"], &call);
        }
    }
}
