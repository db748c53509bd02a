//! Names and identities, each with the one alphabet and length that it may have.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::digest::Digest;
use crate::limits::{
    AGENT_NAME_BYTES_MAX, ARGUMENT_NAME_BYTES_MAX, CALL_ID_BYTES_MAX, TOOL_NAME_BYTES_MAX,
};

/// Why a text is not a valid identifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdError {
    Empty {
        what: &'static str,
    },
    TooLong {
        what: &'static str,
        bytes: usize,
        max: usize,
    },
    Character {
        what: &'static str,
        character: char,
        at: usize,
        allowed: &'static str,
    },
    NotUuid {
        what: &'static str,
    },
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { what } => write!(f, "{what} is empty"),
            Self::TooLong { what, bytes, max } => {
                write!(f, "{what} has {bytes} bytes, more than the {max} allowed")
            }
            Self::Character {
                what,
                character,
                at,
                allowed,
            } => write!(
                f,
                "{what} has `{}` at byte {at}; allowed are {allowed}",
                character.escape_default()
            ),
            Self::NotUuid { what } => write!(
                f,
                "{what} is not a UUID in lower case with hyphens, like \
                 01a2303b-4992-75fa-b48c-1e7c2c4554ac"
            ),
        }
    }
}

impl std::error::Error for IdError {}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $max:expr, $allowed:literal, $test:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(String);

        impl $type {
            /// Checks `text` and keeps it.
            ///
            /// # Errors
            /// [`IdError`] names the first thing that is wrong.
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                check($what, &text, $max, $allowed, $test)?;
                Ok(Self(text))
            }

            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $type {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
            }
        }
    };
}

fn check(
    what: &'static str,
    text: &str,
    max: usize,
    allowed: &'static str,
    test: fn(char) -> bool,
) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty { what });
    }
    if text.len() > max {
        return Err(IdError::TooLong {
            what,
            bytes: text.len(),
            max,
        });
    }
    match text.char_indices().find(|(_, character)| !test(*character)) {
        Some((at, character)) => Err(IdError::Character {
            what,
            character,
            at,
            allowed,
        }),
        None => Ok(()),
    }
}

name!(
    /// The identity of one call inside a run: printable ASCII, at most 256 bytes. Single-use.
    CallId, "call id", CALL_ID_BYTES_MAX, "printable ASCII characters", |c| c.is_ascii_graphic()
);
impl CallId {
    /// The identity under which a call with an unusable id is recorded: `invalid:` and a digest.
    #[must_use]
    pub fn of_unusable(text: &str) -> Self {
        Self(format!("invalid:{}", crate::Digest::of(text.as_bytes())))
    }
}

name!(
    /// A tool's name as a client sees it: 1 to 128 of `A-Z a-z 0-9 _ -`.
    ToolName, "tool name", TOOL_NAME_BYTES_MAX, "A-Z a-z 0-9 _ -",
    |c| c.is_ascii_alphanumeric() || c == '_' || c == '-'
);
name!(
    /// An agent's name in `[agents.NAME]` and in `Agent::"NAME"`.
    AgentName, "agent name", AGENT_NAME_BYTES_MAX, "A-Z a-z 0-9 _ -",
    |c| c.is_ascii_alphanumeric() || c == '_' || c == '-'
);
name!(
    /// A manifest argument's name: 1 to 64 of `A-Z a-z 0-9 _`.
    ArgumentName, "argument name", ARGUMENT_NAME_BYTES_MAX, "A-Z a-z 0-9 _",
    |c| c.is_ascii_alphanumeric() || c == '_'
);

impl CallId {
    /// `text` where it is a call id, else `sha256:` and the digest of its bytes.
    #[must_use]
    pub fn or_digest(text: String) -> Self {
        match Self::new(text.clone()) {
            Ok(id) => id,
            Err(_) => Self(format!("sha256:{}", Digest::of(text.as_bytes()))),
        }
    }
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $type:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Uuid);

        impl $type {
            /// A fresh one, ordered by time (UUID version 7, RFC 9562 section 5.7).
            #[must_use]
            #[expect(clippy::new_without_default, reason = "each call makes another one")]
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($type))
            }
        }

        impl FromStr for $type {
            type Err = IdError;

            /// Accepts only the text that `Display` prints: one identity has one spelling.
            fn from_str(text: &str) -> Result<Self, IdError> {
                match Uuid::parse_str(text) {
                    Ok(uuid) if uuid.hyphenated().to_string() == text => Ok(Self(uuid)),
                    _ => Err(IdError::NotUuid { what: $what }),
                }
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

uuid_id!(
    /// One run, from its first record to its terminal one; also its invocation id.
    RunId, "run id"
);
uuid_id!(
    /// One file publication.
    PublicationId, "publication id"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_names_have_one_alphabet_and_a_limit() {
        assert!(ToolName::new("copy_csv-2").is_ok());
        assert!(ToolName::new("a".repeat(TOOL_NAME_BYTES_MAX)).is_ok());
        assert_eq!(
            ToolName::new("a".repeat(TOOL_NAME_BYTES_MAX + 1)),
            Err(IdError::TooLong {
                what: "tool name",
                bytes: 129,
                max: 128
            })
        );
        assert_eq!(ToolName::new(""), Err(IdError::Empty { what: "tool name" }));
        for bad in ["a b", "a/b", "ä", "a\n", "a.b", "tool::x"] {
            assert!(
                matches!(ToolName::new(bad), Err(IdError::Character { .. })),
                "{bad}"
            );
        }
    }

    #[test]
    fn call_ids_are_printable_ascii_up_to_their_limit() {
        assert!(CallId::new("1:i:42").is_ok());
        assert!(CallId::new("x".repeat(CALL_ID_BYTES_MAX)).is_ok());
        assert!(CallId::new("x".repeat(CALL_ID_BYTES_MAX + 1)).is_err());
        assert!(CallId::new("a b").is_err());
        assert!(CallId::new("a\u{202e}b").is_err());
    }

    #[test]
    fn a_text_that_is_no_call_id_is_digested() {
        assert_eq!(CallId::or_digest("1:i:42".into()).as_str(), "1:i:42");
        for bad in ["", "a b", &"x".repeat(CALL_ID_BYTES_MAX + 1)] {
            let id = CallId::or_digest(bad.to_owned());
            let digest = Digest::of(bad.as_bytes());
            assert_eq!(id.as_str(), format!("sha256:{digest}"));
            assert_eq!(CallId::new(id.as_str()), Ok(id));
        }
    }

    #[test]
    fn a_run_id_has_one_spelling() {
        let run = RunId::new();
        let text = run.to_string();
        assert_eq!(text.parse(), Ok(run));
        for other in [
            text.to_uppercase(),
            text.replace('-', ""),
            format!("{{{text}}}"),
            "x".into(),
        ] {
            assert!(other.parse::<RunId>().is_err(), "{other}");
        }
    }

    #[test]
    fn deserializing_checks_like_new() {
        assert!(serde_json::from_str::<ToolName>("\"ok\"").is_ok());
        assert!(serde_json::from_str::<ToolName>("\"not ok\"").is_err());
    }
}
