//! Strict JSON in, canonical JSON out.
//!
//! The reader refuses what two parsers could read differently: duplicate keys, deep nesting,
//! trailing text, numbers that do not survive. The writer is RFC 8785 (JCS).

use std::fmt;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Number, Value};

use crate::digest::Digest;
use crate::limits::JSON_DEPTH_MAX;

/// Why a text is not strict JSON.
#[derive(Debug)]
pub enum JsonError {
    TooLarge {
        bytes: usize,
        max: usize,
    },
    /// Syntax, a duplicate key or too deep a nesting, with its place.
    Invalid {
        line: usize,
        column: usize,
        reason: String,
    },
    /// The value is JSON but not an object.
    NotObject,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes, max } => {
                write!(
                    f,
                    "the JSON text has {bytes} bytes, more than the {max} allowed"
                )
            }
            Self::Invalid {
                line,
                column,
                reason,
            } => {
                write!(f, "invalid JSON at line {line}, column {column}: {reason}")
            }
            Self::NotObject => f.write_str("the JSON value is not an object"),
        }
    }
}

impl std::error::Error for JsonError {}

/// Reads one JSON value of at most `max_bytes`, strictly.
///
/// # Errors
/// [`JsonError`] with the place of the first fault.
pub fn parse_strict(text: &[u8], max_bytes: usize) -> Result<Value, JsonError> {
    if text.len() > max_bytes {
        return Err(JsonError::TooLarge {
            bytes: text.len(),
            max: max_bytes,
        });
    }
    let mut reader = serde_json::Deserializer::from_slice(text);
    Strict { depth: 0 }
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|error| JsonError::Invalid {
            line: error.line(),
            column: error.column(),
            reason: without_place(&error.to_string()),
        })
}

/// Reads one JSON object of at most `max_bytes`, strictly.
///
/// # Errors
/// [`JsonError`] with the place of the first fault.
pub fn parse_object(text: &[u8], max_bytes: usize) -> Result<JsonObject, JsonError> {
    match parse_strict(text, max_bytes)? {
        Value::Object(map) => Ok(JsonObject(map)),
        _ => Err(JsonError::NotObject),
    }
}

fn without_place(message: &str) -> String {
    message
        .rsplit_once(" at line ")
        .map_or(message, |(reason, _)| reason)
        .to_owned()
}

struct Strict {
    depth: usize,
}

impl Strict {
    fn deeper<E: serde::de::Error>(&self) -> Result<Self, E> {
        if self.depth >= JSON_DEPTH_MAX {
            return Err(E::custom(format!(
                "nested deeper than {JSON_DEPTH_MAX} levels"
            )));
        }
        Ok(Self {
            depth: self.depth + 1,
        })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }
    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("number out of range"))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }
    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(self.deeper()?)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!(
                    "duplicate key `{}`",
                    key.escape_debug()
                )));
            }
            let value = access.next_value_seed(self.deeper()?)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// A JSON object from outside: a tool call's arguments.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct JsonObject(Map<String, Value>);

impl JsonObject {
    #[must_use]
    pub const fn from_map(map: Map<String, Value>) -> Self {
        Self(map)
    }

    #[must_use]
    pub const fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }

    #[must_use]
    pub fn into_map(self) -> Map<String, Value> {
        self.0
    }
}

impl<'de> Deserialize<'de> for JsonObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match (Strict { depth: 0 }).deserialize(deserializer)? {
            Value::Object(map) => Ok(Self(map)),
            _ => Err(D::Error::custom("expected an object")),
        }
    }
}

/// A value as RFC 8785 text. Two equal values have the same bytes, and so the same digest.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Canonical(String);

/// A value that has no canonical JSON form (a non-finite number, a map key that is no string).
#[derive(Debug)]
pub struct CanonicalError(String);

impl fmt::Display for CanonicalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the value has no canonical JSON form: {}", self.0)
    }
}

impl std::error::Error for CanonicalError {}

impl Canonical {
    /// The canonical form of `value`.
    ///
    /// # Errors
    /// [`CanonicalError`] where the value has none.
    pub fn of<T: Serialize>(value: &T) -> Result<Self, CanonicalError> {
        serde_json_canonicalizer::to_string(value)
            .map(Self)
            .map_err(|error| CanonicalError(error.to_string()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// SHA-256 of the canonical bytes.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(self.0.as_bytes())
    }

    /// The value again, to read it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or(Value::Null)
    }
}

impl fmt::Debug for Canonical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Canonical {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_value().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Canonical {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = (Strict { depth: 0 }).deserialize(deserializer)?;
        Self::of(&value).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nested(levels: usize) -> String {
        format!("{}{}", "[".repeat(levels), "]".repeat(levels))
    }

    #[test]
    fn duplicate_keys_are_refused_at_any_depth_with_their_place() {
        let error = parse_strict(b"{\"a\":1,\n\"b\":{\"c\":1,\"c\":2}}", 100).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("duplicate key `c`") && text.contains("line 2"),
            "{text}"
        );
        assert!(parse_strict(br#"{"a":1,"\u0061":2}"#, 100).is_err());
    }

    #[test]
    fn nesting_is_accepted_at_the_limit_and_refused_one_past_it() {
        assert!(parse_strict(nested(JSON_DEPTH_MAX).as_bytes(), 1 << 20).is_ok());
        let error = parse_strict(nested(JSON_DEPTH_MAX + 1).as_bytes(), 1 << 20).unwrap_err();
        assert!(
            error.to_string().contains("nested deeper than 64"),
            "{error}"
        );
        assert!(parse_strict(nested(100_000).as_bytes(), 1 << 20).is_err());
    }

    #[test]
    fn size_is_checked_before_reading() {
        assert!(parse_strict(b"[1,2]", 5).is_ok());
        assert!(matches!(
            parse_strict(b"[1,23]", 5),
            Err(JsonError::TooLarge { bytes: 6, max: 5 })
        ));
    }

    #[test]
    fn trailing_text_comments_and_bad_utf8_are_refused() {
        for bad in [
            &b"{} x"[..],
            b"{}{}",
            b"{/**/}",
            b"\"\xff\"",
            b"",
            b"{\"a\":1,}",
            b"NaN",
            b"1e999",
        ] {
            assert!(parse_strict(bad, 100).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn canonical_text_sorts_keys_and_has_one_digest() {
        let a =
            Canonical::of(&parse_strict(br#"{"b":1,"a":[true,null,"x"]}"#, 100).unwrap()).unwrap();
        let b = Canonical::of(&parse_strict(br#" {"a" : [true,null,"x"], "b": 1}"#, 100).unwrap())
            .unwrap();
        assert_eq!(a.as_str(), r#"{"a":[true,null,"x"],"b":1}"#);
        assert_eq!(a.digest(), b.digest());
    }

    #[test]
    fn a_canonical_value_embeds_as_a_value() {
        let inner = Canonical::of(&serde_json::json!({"z": 1, "a": 2})).unwrap();
        let outer = Canonical::of(&serde_json::json!({"x": inner})).unwrap();
        assert_eq!(outer.as_str(), r#"{"x":{"a":2,"z":1}}"#);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_strict(&bytes, 1 << 20);
        }

        #[test]
        fn a_canonical_text_is_its_own_canonical_form(text in "\\PC{0,40}", number in any::<i32>()) {
            let value = serde_json::json!({ text.clone(): [number, text] });
            let once = Canonical::of(&value).unwrap();
            let again = parse_strict(once.as_str().as_bytes(), 1 << 20).unwrap();
            prop_assert_eq!(Canonical::of(&again).unwrap(), once);
        }
    }
}
