//! Checks a JSON value against a closed shape: what a shape does not name is refused.
//!
//! The shapes themselves are tables in [`crate::grammar`]; a fault says its place in the
//! notation of the provider's own errors (`messages.0.content.1.source.type`).

use serde_json::{Map, Value};

use crate::limits::{NAME_BYTES_MAX, USER_ID_BYTES_MAX, WORD_BYTES_MAX};
use crate::refusal::quoted;

/// What a value may be.
#[derive(Debug)]
pub(crate) enum Shape {
    /// Any text.
    Text,
    /// A text of 1 to [`NAME_BYTES_MAX`] bytes.
    Name,
    /// A text of at most [`USER_ID_BYTES_MAX`] bytes.
    UserId,
    OneOf(&'static [&'static str]),
    /// A short word of lower-case letters, digits, `_` and `-`: a hint whose values grow with
    /// each release of the clients and that reaches nothing but the answer's form.
    Word,
    Flag,
    /// A whole number that is not negative.
    Count,
    /// A number from 0 to 2.
    Fraction,
    /// `null` or an empty list.
    Nothing,
    /// An object whose content is not ours to judge (a schema, a tool's input).
    Free,
    List(&'static Shape),
    /// A text that the first shape allows, or a value of the second.
    TextOr(&'static Shape, &'static Shape),
    Object(&'static [Field]),
    /// An object whose member `by` selects its fields. Without that member it is a `default`.
    Tagged {
        by: &'static str,
        default: Option<&'static str>,
        variants: &'static [(&'static str, &'static [Field])],
    },
}

/// A member of an object.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) required: bool,
    pub(crate) shape: &'static Shape,
}

/// A member that must be there.
pub(crate) const fn must(name: &'static str, shape: &'static Shape) -> Field {
    Field {
        name,
        required: true,
        shape,
    }
}

/// A member that may be there.
pub(crate) const fn may(name: &'static str, shape: &'static Shape) -> Field {
    Field {
        name,
        required: false,
        shape,
    }
}

/// Where a value departs from its shape, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Innermost first.
    place: Vec<String>,
    problem: String,
}

impl Fault {
    fn here(problem: impl Into<String>) -> Self {
        Self {
            place: Vec::new(),
            problem: problem.into(),
        }
    }

    fn at(mut self, segment: impl Into<String>) -> Self {
        self.place.push(segment.into());
        self
    }

    pub(crate) fn message(&self) -> String {
        let place: Vec<&str> = self.place.iter().rev().map(String::as_str).collect();
        if place.is_empty() {
            format!("the request {}", self.problem)
        } else {
            format!("{} {}", quoted(&place.join(".")), self.problem)
        }
    }
}

/// Checks `value`. The depth of recursion is that of the tables.
pub(crate) fn check(value: &Value, shape: &Shape) -> Result<(), Fault> {
    match shape {
        Shape::Text => text(value).map(drop),
        Shape::Name => bounded(value, 1, NAME_BYTES_MAX),
        Shape::UserId => bounded(value, 0, USER_ID_BYTES_MAX),
        Shape::OneOf(allowed) => one_of(text(value)?, allowed),
        Shape::Word => is(
            text(value).is_ok_and(is_word),
            "must be a short lower-case word",
        ),
        Shape::Flag => is(value.is_boolean(), "must be true or false"),
        Shape::Count => is(
            value.is_u64(),
            "must be a whole number that is not negative",
        ),
        Shape::Fraction => is(
            value
                .as_f64()
                .is_some_and(|number| (0.0..=2.0).contains(&number)),
            "must be a number from 0 to 2",
        ),
        Shape::Nothing => is(
            value.is_null() || value.as_array().is_some_and(Vec::is_empty),
            "must be null or empty",
        ),
        Shape::Free => object(value).map(drop),
        Shape::List(item) => list(value, item),
        Shape::TextOr(words, other) => check(value, if value.is_string() { words } else { other }),
        Shape::Object(fields) => members(object(value)?, fields, None),
        Shape::Tagged {
            by,
            default,
            variants,
        } => tagged(object(value)?, by, *default, variants),
    }
}

fn is(good: bool, problem: &str) -> Result<(), Fault> {
    if good {
        Ok(())
    } else {
        Err(Fault::here(problem))
    }
}

fn text(value: &Value) -> Result<&str, Fault> {
    value
        .as_str()
        .ok_or_else(|| Fault::here("must be a string"))
}

fn object(value: &Value) -> Result<&Map<String, Value>, Fault> {
    value
        .as_object()
        .ok_or_else(|| Fault::here("must be an object"))
}

fn bounded(value: &Value, min: usize, max: usize) -> Result<(), Fault> {
    let bytes = text(value)?.len();
    if (min..=max).contains(&bytes) {
        Ok(())
    } else {
        Err(Fault::here(format!(
            "has {bytes} bytes; it must have {min} to {max}"
        )))
    }
}

fn is_word(text: &str) -> bool {
    (1..=WORD_BYTES_MAX).contains(&text.len())
        && text
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

fn one_of(found: &str, allowed: &[&str]) -> Result<(), Fault> {
    if allowed.contains(&found) {
        Ok(())
    } else {
        Err(not_allowed(found, allowed.iter().copied()))
    }
}

fn not_allowed<'a>(found: &str, allowed: impl Iterator<Item = &'a str>) -> Fault {
    let allowed: Vec<String> = allowed.map(|word| format!("`{word}`")).collect();
    Fault::here(format!(
        "is {}, which is not allowed; allowed: {}",
        quoted(found),
        allowed.join(", ")
    ))
}

fn list(value: &Value, item: &Shape) -> Result<(), Fault> {
    let items = value
        .as_array()
        .ok_or_else(|| Fault::here("must be a list"))?;
    for (index, value) in items.iter().enumerate() {
        check(value, item).map_err(|fault| fault.at(index.to_string()))?;
    }
    Ok(())
}

fn members(object: &Map<String, Value>, fields: &[Field], skip: Option<&str>) -> Result<(), Fault> {
    for (name, value) in object {
        if skip == Some(name) {
            continue;
        }
        let field = fields
            .iter()
            .find(|field| field.name == name)
            .ok_or_else(|| Fault::here("is not a field that may be sent").at(name))?;
        check(value, field.shape).map_err(|fault| fault.at(name))?;
    }
    match fields
        .iter()
        .find(|field| field.required && !object.contains_key(field.name))
    {
        Some(missing) => Err(Fault::here("is required").at(missing.name)),
        None => Ok(()),
    }
}

fn tagged(
    object: &Map<String, Value>,
    by: &str,
    default: Option<&str>,
    variants: &[(&str, &[Field])],
) -> Result<(), Fault> {
    let tag = match (object.get(by), default) {
        (Some(tag), _) => text(tag).map_err(|fault| fault.at(by))?,
        (None, Some(default)) => default,
        (None, None) => return Err(Fault::here("is required").at(by)),
    };
    match variants.iter().find(|(name, _)| *name == tag) {
        Some((_, fields)) => members(object, fields, Some(by)),
        None => Err(not_allowed(tag, variants.iter().map(|(name, _)| *name)).at(by)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    static INNER: Shape = Shape::Tagged {
        by: "type",
        default: None,
        variants: &[("a", &[must("n", &Shape::Count)]), ("b", &[])],
    };
    static OUTER: Shape = Shape::Object(&[may("list", &Shape::List(&INNER))]);

    fn fault(value: &Value) -> String {
        check(value, &OUTER).unwrap_err().message()
    }

    #[test]
    fn a_fault_says_its_place_and_what_is_allowed() {
        assert!(
            check(
                &json!({"list": [{"type": "a", "n": 1}, {"type": "b"}]}),
                &OUTER
            )
            .is_ok()
        );
        assert_eq!(fault(&json!([])), "the request must be an object");
        assert_eq!(
            fault(&json!({"x": 1})),
            "`x` is not a field that may be sent"
        );
        assert_eq!(
            fault(&json!({"list": [{"type": "b"}, {"type": "c"}]})),
            "`list.1.type` is `c`, which is not allowed; allowed: `a`, `b`"
        );
        assert_eq!(
            fault(&json!({"list": [{"type": "a"}]})),
            "`list.0.n` is required"
        );
        assert_eq!(fault(&json!({"list": [{}]})), "`list.0.type` is required");
        assert_eq!(
            fault(&json!({"list": [{"type": "a", "n": -1}]})),
            "`list.0.n` must be a whole number that is not negative"
        );
    }

    #[test]
    fn words_names_and_user_ids_are_accepted_at_their_limit_and_refused_one_past_it() {
        for (shape, max) in [
            (Shape::Word, WORD_BYTES_MAX),
            (Shape::Name, NAME_BYTES_MAX),
            (Shape::UserId, USER_ID_BYTES_MAX),
        ] {
            assert!(check(&json!("x".repeat(max)), &shape).is_ok());
            assert!(check(&json!("x".repeat(max + 1)), &shape).is_err());
        }
        assert!(check(&json!(""), &Shape::Name).is_err());
        for bad in ["", "A", "a b", "https://e", "a.b"] {
            assert!(check(&json!(bad), &Shape::Word).is_err(), "{bad}");
        }
    }
}
