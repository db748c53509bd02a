//! What a person types to answer: exactly one of two lines.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::{ANSWER_BYTES_MAX, HELD_ID_BYTES_MAX};

/// The id of a held call: `held-` and lower-case letters, digits and hyphens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HeldId(String);

/// Text that is no id of a held call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldIdError;

impl fmt::Display for HeldIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a held call's id is `held-` and lower-case letters, digits and hyphens")
    }
}

impl std::error::Error for HeldIdError {}

impl HeldId {
    /// Checks an id.
    ///
    /// # Errors
    /// [`HeldIdError`]
    pub fn new(text: impl Into<String>) -> Result<Self, HeldIdError> {
        let text = text.into();
        let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        let rest = text.strip_prefix("held-").unwrap_or_default();
        if rest.is_empty() || text.len() > HELD_ID_BYTES_MAX || !rest.bytes().all(allowed) {
            return Err(HeldIdError);
        }
        Ok(Self(text))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HeldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for HeldId {
    type Error = HeldIdError;

    fn try_from(text: String) -> Result<Self, HeldIdError> {
        Self::new(text)
    }
}

impl From<HeldId> for String {
    fn from(id: HeldId) -> Self {
        id.0
    }
}

/// Yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    Approve,
    Deny,
}

/// Why a line is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerError {
    /// Neither word, or not exactly as it must be.
    Neither,
    /// The right form, about another held call.
    OtherCall,
}

impl fmt::Display for AnswerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Neither => "that is neither `approve` nor `deny` with the held call's id",
            Self::OtherCall => "that names another held call",
        })
    }
}

impl std::error::Error for AnswerError {}

impl Answer {
    /// Reads a line without its line end: `approve <held-id>` or `deny <held-id>`, exactly.
    ///
    /// # Errors
    /// [`AnswerError`]
    pub fn read(line: &[u8], held_id: &HeldId) -> Result<Self, AnswerError> {
        let line = Some(line).filter(|line| line.len() <= ANSWER_BYTES_MAX);
        let line = line
            .and_then(|line| std::str::from_utf8(line).ok())
            .ok_or(AnswerError::Neither)?;
        let (word, id) = line.split_once(' ').ok_or(AnswerError::Neither)?;
        let answer = match word {
            "approve" => Self::Approve,
            "deny" => Self::Deny,
            _ => return Err(AnswerError::Neither),
        };
        match HeldId::new(id) {
            Ok(id) if id == *held_id => Ok(answer),
            Ok(_) => Err(AnswerError::OtherCall),
            Err(HeldIdError) => Err(AnswerError::Neither),
        }
    }

    #[must_use]
    pub const fn approves(self) -> bool {
        matches!(self, Self::Approve)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Answer, AnswerError> {
        Answer::read(line.as_bytes(), &HeldId::new("held-01ab-2").unwrap())
    }

    #[test]
    fn only_the_exact_words_with_the_held_id_are_an_answer() {
        assert_eq!(read("approve held-01ab-2"), Ok(Answer::Approve));
        assert_eq!(read("deny held-01ab-2"), Ok(Answer::Deny));
        let no = [
            "",
            "y",
            "yes",
            "approve",
            "approve ",
            "Approve held-01ab-2",
            "approve  held-01ab-2",
            " approve held-01ab-2",
            "approve held-01ab-2 ",
            "approve held-01ab-2\r",
            "approve held-01AB-2",
            "approve\theld-01ab-2",
            "approve 01ab-2",
            "approved held-01ab-2",
            "approve held-01ab-2\u{1b}[D",
        ];
        for line in no {
            assert_eq!(read(line), Err(AnswerError::Neither), "{line:?}");
        }
    }

    #[test]
    fn an_answer_to_another_call_is_told_apart() {
        assert_eq!(read("approve held-01ab-3"), Err(AnswerError::OtherCall));
        assert_eq!(read("deny held-01ab"), Err(AnswerError::OtherCall));
    }

    #[test]
    fn bytes_that_are_no_text_and_lines_that_are_too_long_are_no_answer() {
        let id = HeldId::new("held-1").unwrap();
        assert_eq!(
            Answer::read(b"approve held-1\xff", &id),
            Err(AnswerError::Neither)
        );
        let long = format!("approve held-1{}", " ".repeat(ANSWER_BYTES_MAX));
        assert_eq!(
            Answer::read(long.as_bytes(), &id),
            Err(AnswerError::Neither)
        );
    }

    #[test]
    fn an_id_is_bounded() {
        let longest = format!("held-{}", "a".repeat(HELD_ID_BYTES_MAX - 5));
        assert!(HeldId::new(longest.as_str()).is_ok());
        assert!(HeldId::new(format!("{longest}a")).is_err());
        for bad in [
            "", "held-", "Held-1", "held-1/2", "held-1\n", "hold-1", "held-ä",
        ] {
            assert!(HeldId::new(bad).is_err(), "{bad:?}");
        }
    }
}
