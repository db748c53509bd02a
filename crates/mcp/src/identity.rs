//! Identities that a client chooses. Type and value count: integer 1 and string "1" are two.

use std::fmt;

use model::{CallId, Digest};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::limits::{WIRE_ID_BYTES_MAX, WIRE_ID_INTEGER_MAX};

/// The id of a request: an integer that every client can represent, or a short string.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WireId(Kind);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    Integer(i64),
    Text(String),
}

/// What a client wants its progress notifications to carry. Same alphabet as [`WireId`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgressToken(WireId);

/// Why a JSON value is not an identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WireIdError {
    /// Null, a boolean, an array, an object or a number with a fraction or exponent.
    Type,
    TooLarge,
    TooLong {
        bytes: usize,
    },
}

impl fmt::Display for WireIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type => f.write_str("must be a string or an integer"),
            Self::TooLarge => write!(
                f,
                "is an integer outside -{WIRE_ID_INTEGER_MAX}..={WIRE_ID_INTEGER_MAX}"
            ),
            Self::TooLong { bytes } => write!(
                f,
                "is a string of {bytes} bytes, more than the {WIRE_ID_BYTES_MAX} allowed"
            ),
        }
    }
}

impl std::error::Error for WireIdError {}

impl WireId {
    /// # Errors
    /// [`WireIdError::TooLarge`] beyond 2^53 - 1 in either direction.
    pub fn integer(value: i64) -> Result<Self, WireIdError> {
        if (-WIRE_ID_INTEGER_MAX..=WIRE_ID_INTEGER_MAX).contains(&value) {
            Ok(Self(Kind::Integer(value)))
        } else {
            Err(WireIdError::TooLarge)
        }
    }

    /// # Errors
    /// [`WireIdError::TooLong`] beyond 128 bytes.
    pub fn text(value: impl Into<String>) -> Result<Self, WireIdError> {
        let value = value.into();
        if value.len() > WIRE_ID_BYTES_MAX {
            return Err(WireIdError::TooLong { bytes: value.len() });
        }
        Ok(Self(Kind::Text(value)))
    }

    pub(crate) fn from_value(value: &Value) -> Result<Self, WireIdError> {
        match value {
            Value::String(text) => Self::text(text.as_str()),
            Value::Number(number) => match number.as_i64() {
                Some(integer) => Self::integer(integer),
                None if number.is_u64() => Err(WireIdError::TooLarge),
                None => Err(WireIdError::Type),
            },
            _ => Err(WireIdError::Type),
        }
    }

    /// The call's identity inside its run: `7:i:42`, `7:s:abc`, or, for a string that is empty or
    /// not printable ASCII, `7:h:` and its SHA-256. Different identities never share one, and
    /// neither do two connections.
    #[must_use]
    pub fn call_id(&self, connection: u64) -> CallId {
        CallId::or_digest(match &self.0 {
            Kind::Integer(value) => format!("{connection}:i:{value}"),
            Kind::Text(text) if is_plain(text) => format!("{connection}:s:{text}"),
            Kind::Text(text) => format!("{connection}:h:{}", Digest::of(text.as_bytes())),
        })
    }
}

fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

impl Serialize for WireId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Kind::Integer(value) => serializer.serialize_i64(*value),
            Kind::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl ProgressToken {
    pub(crate) fn from_value(value: &Value) -> Result<Self, WireIdError> {
        WireId::from_value(value).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn integer_1_and_string_1_are_different_identities() {
        let integer = WireId::from_value(&json!(1)).unwrap();
        let text = WireId::from_value(&json!("1")).unwrap();
        assert_ne!(integer, text);
        assert_ne!(integer.call_id(7), text.call_id(7));
        assert_eq!(integer.call_id(7).as_str(), "7:i:1");
        assert_eq!(text.call_id(7).as_str(), "7:s:1");
    }

    #[test]
    fn the_same_id_on_another_connection_is_another_call() {
        let id = WireId::integer(-1).unwrap();
        assert_ne!(id.call_id(1), id.call_id(2));
    }

    #[test]
    fn integers_are_accepted_at_the_limit_and_refused_one_past_it() {
        for good in [WIRE_ID_INTEGER_MAX, -WIRE_ID_INTEGER_MAX, 0] {
            assert!(WireId::from_value(&json!(good)).is_ok(), "{good}");
        }
        for bad in [
            json!(WIRE_ID_INTEGER_MAX + 1),
            json!(-WIRE_ID_INTEGER_MAX - 1),
            json!(i64::MIN),
            json!(u64::MAX),
        ] {
            assert_eq!(
                WireId::from_value(&bad),
                Err(WireIdError::TooLarge),
                "{bad}"
            );
        }
    }

    #[test]
    fn strings_are_accepted_at_the_limit_and_refused_one_past_it() {
        assert!(WireId::text("x".repeat(WIRE_ID_BYTES_MAX)).is_ok());
        assert_eq!(
            WireId::text("x".repeat(WIRE_ID_BYTES_MAX + 1)),
            Err(WireIdError::TooLong { bytes: 129 })
        );
    }

    #[test]
    fn null_floats_and_composites_are_no_identities() {
        for bad in [
            json!(null),
            json!(1.0),
            json!(1.5),
            json!(true),
            json!([1]),
            json!({}),
        ] {
            assert_eq!(WireId::from_value(&bad), Err(WireIdError::Type), "{bad}");
        }
    }

    #[test]
    fn strings_that_are_not_printable_ascii_are_hashed() {
        let empty = WireId::text("").unwrap().call_id(3);
        assert_eq!(empty.as_str(), format!("3:h:{}", Digest::of(b"")));
        let umlaut = WireId::text("ä").unwrap().call_id(3);
        let digest = Digest::of("ä".as_bytes()).to_hex();
        assert_eq!(umlaut.as_str(), format!("3:h:{digest}"));
        assert_ne!(WireId::text(digest).unwrap().call_id(3), umlaut);
        assert!(
            WireId::text("a b")
                .unwrap()
                .call_id(3)
                .as_str()
                .starts_with("3:h:")
        );
    }

    #[test]
    fn the_longest_identity_is_kept_as_it_is() {
        let longest = WireId::text("~".repeat(WIRE_ID_BYTES_MAX)).unwrap();
        let call = longest.call_id(u64::MAX);
        assert!(call.as_str().starts_with("18446744073709551615:s:~~"));
    }

    proptest! {
        #[test]
        fn different_identities_have_different_call_ids(
            a in "[a-z:0-9ä \\x00]{0,6}", b in "[a-z:0-9ä \\x00]{0,6}",
            n in any::<i32>(), x in 0_u64..3, y in 0_u64..3,
        ) {
            let ids = [
                (x, WireId::text(a).unwrap()),
                (y, WireId::text(b).unwrap()),
                (x, WireId::integer(n.into()).unwrap()),
                (y, WireId::text(n.to_string()).unwrap()),
            ];
            for (i, one) in ids.iter().enumerate() {
                for other in &ids[i..] {
                    let same = one == other;
                    prop_assert_eq!(one.1.call_id(one.0) == other.1.call_id(other.0), same);
                }
            }
        }
    }
}
