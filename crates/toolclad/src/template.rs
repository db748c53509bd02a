//! The little language of `exec`: text with `{name}` placeholders, `{{` and `}}` for braces.

use std::fmt;
use std::ops::Range;

/// A piece of an element, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    Literal(String),
    Placeholder { name: &'a str, place: Range<usize> },
}

/// A brace that does not belong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BraceError {
    pub(crate) brace: char,
    pub(crate) at: usize,
}

impl fmt::Display for BraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.brace {
            '{' => f.write_str("`{` without `}`; a brace itself is written `{{`"),
            _ => f.write_str("`}` without `{`; a brace itself is written `}}`"),
        }
    }
}

/// Splits an element. Two literals never follow each other.
pub(crate) fn parse(text: &str) -> Result<Vec<Piece<'_>>, BraceError> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(found) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(found);
        let at = text.len() - from.len();
        literal.push_str(before);
        if let Some(after) = from.strip_prefix("{{") {
            literal.push('{');
            rest = after;
        } else if let Some(after) = from.strip_prefix("}}") {
            literal.push('}');
            rest = after;
        } else if let Some(inner) = from.strip_prefix('{') {
            let Some((name, after)) = inner.split_once('}') else {
                return Err(BraceError { brace: '{', at });
            };
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            let place = at..at + name.len() + 2;
            pieces.push(Piece::Placeholder { name, place });
            rest = after;
        } else {
            return Err(BraceError { brace: '}', at });
        }
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(text: &str) -> Piece<'_> {
        Piece::Literal(text.to_owned())
    }

    #[test]
    fn text_splits_into_literals_and_placeholders() {
        assert_eq!(
            parse("--rate={rate}x").unwrap(),
            [
                literal("--rate="),
                Piece::Placeholder {
                    name: "rate",
                    place: 7..13
                },
                literal("x")
            ]
        );
        assert_eq!(parse("").unwrap(), []);
        assert_eq!(parse("%{{http_code}}").unwrap(), [literal("%{http_code}")]);
        assert_eq!(
            parse("{{{a}}}").unwrap(),
            [
                literal("{"),
                Piece::Placeholder {
                    name: "a",
                    place: 2..5
                },
                literal("}")
            ]
        );
    }

    #[test]
    fn lone_braces_are_refused_at_their_place() {
        assert_eq!(parse("a{b"), Err(BraceError { brace: '{', at: 1 }));
        assert_eq!(parse("a}b"), Err(BraceError { brace: '}', at: 1 }));
        assert_eq!(parse("{a}}"), Err(BraceError { brace: '}', at: 3 }));
    }
}
