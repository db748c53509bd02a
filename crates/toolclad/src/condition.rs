//! `when`: comparisons of an argument with a fixed text, joined by `and`. A closed grammar:
//!
//! ```text
//! condition  = comparison *( " and " comparison )
//! comparison = name ( "==" / "!=" ) ( "'" text "'" / word )
//! ```

use std::collections::BTreeMap;

use model::{ArgumentName, ArgumentValue};

/// All comparisons must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition(pub(crate) Vec<Comparison>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Comparison {
    pub(crate) argument: ArgumentName,
    pub(crate) equal: bool,
    /// As an argument prints; empty stands for an absent one too.
    pub(crate) literal: String,
}

/// One comparison as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written<'a> {
    pub(crate) name: &'a str,
    pub(crate) equal: bool,
    pub(crate) literal: &'a str,
}

/// The grammar, for messages.
pub(crate) const GRAMMAR: &str =
    "write `name == 'text'` or `name != 'text'`, joined by `and`; nothing else is understood";

impl Condition {
    pub(crate) fn holds(&self, values: &BTreeMap<ArgumentName, ArgumentValue>) -> bool {
        self.0.iter().all(|comparison| {
            let value = values
                .get(&comparison.argument)
                .map_or_else(String::new, ToString::to_string);
            (value == comparison.literal) == comparison.equal
        })
    }
}

/// Reads a condition; `None` where it is not of the grammar.
pub(crate) fn parse(text: &str) -> Option<Vec<Written<'_>>> {
    let mut comparisons = Vec::new();
    let mut rest = text.trim_start();
    loop {
        let (comparison, after) = parse_comparison(rest)?;
        comparisons.push(comparison);
        let after = after.trim_start();
        if after.is_empty() {
            return Some(comparisons);
        }
        rest = after.strip_prefix("and")?;
        if !rest.starts_with(' ') {
            return None;
        }
        rest = rest.trim_start();
    }
}

fn parse_comparison(text: &str) -> Option<(Written<'_>, &str)> {
    let (name, rest) = take_word(text)?;
    let rest = rest.trim_start();
    let (equal, rest) = match rest.strip_prefix("==") {
        Some(rest) => (true, rest),
        None => (false, rest.strip_prefix("!=")?),
    };
    let rest = rest.trim_start();
    let (literal, rest) = match rest.strip_prefix('\'') {
        Some(quoted) => quoted.split_once('\'')?,
        None => take_word(rest)?,
    };
    Some((
        Written {
            name,
            equal,
            literal,
        },
        rest,
    ))
}

fn take_word(text: &str) -> Option<(&str, &str)> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let end = text.find(|c| !is_word(c)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_are_read_and_everything_else_is_refused() {
        let two = parse("user != '' and port == 80").unwrap();
        assert_eq!(
            two,
            [
                Written {
                    name: "user",
                    equal: false,
                    literal: ""
                },
                Written {
                    name: "port",
                    equal: true,
                    literal: "80"
                }
            ]
        );
        for bad in [
            "",
            "user",
            "user ==",
            "== 1",
            "a == 1 or b == 2",
            "a == 1 and",
            "a == 1and b == 2",
            "a = 1",
            "a == 'x",
            "(a == 1)",
            "not a == 1",
            "a == 1 b == 2",
            "a == \"x\"",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_absent_argument_compares_as_empty_text() {
        let name = ArgumentName::new("a").unwrap();
        let condition = |equal| {
            Condition(vec![Comparison {
                argument: name.clone(),
                equal,
                literal: String::new(),
            }])
        };
        let none = BTreeMap::new();
        assert!(condition(true).holds(&none));
        assert!(!condition(false).holds(&none));
        let some = BTreeMap::from([(name.clone(), ArgumentValue::Integer(0))]);
        assert!(condition(false).holds(&some));
    }
}
