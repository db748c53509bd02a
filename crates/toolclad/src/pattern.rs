//! A manifest's `pattern`: always anchored, bounded in size, matched in linear time.

use std::fmt;

use regex::{Regex, RegexBuilder};

use crate::limits::{PATTERN_BYTES_MAX, PATTERN_PROGRAM_BYTES_MAX};

/// A pattern that must match a whole value.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    source: String,
    anchored: Regex,
}

/// Why a text is not a usable pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PatternError {
    TooLong {
        bytes: usize,
    },
    TooLarge,
    /// The last line of the engine's message.
    Syntax {
        reason: String,
    },
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { bytes } => write!(
                f,
                "the pattern has {bytes} bytes, more than the {PATTERN_BYTES_MAX} allowed"
            ),
            Self::TooLarge => write!(
                f,
                "the pattern compiles to more than the {PATTERN_PROGRAM_BYTES_MAX} bytes allowed"
            ),
            Self::Syntax { reason } => write!(f, "the pattern is not valid: {reason}"),
        }
    }
}

impl Pattern {
    pub(crate) fn new(source: &str) -> Result<Self, PatternError> {
        if source.len() > PATTERN_BYTES_MAX {
            return Err(PatternError::TooLong {
                bytes: source.len(),
            });
        }
        // Alone first: `a)|(?:b` is only valid inside our group, and would undo its anchors.
        // Its syntax is all that matters then: without room, the engine stops after reading it.
        match compile(source, 0) {
            Ok(_) | Err(PatternError::TooLarge) => {}
            Err(other) => return Err(other),
        }
        Ok(Self {
            source: source.to_owned(),
            anchored: compile(&format!(r"\A(?:{source})\z"), PATTERN_PROGRAM_BYTES_MAX)?,
        })
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        self.anchored.is_match(text)
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// The anchored pattern for a JSON Schema, where ECMA-262 reads it as this engine does: without
    /// inline flags, engine-specific escapes, named classes and class operators.
    pub(crate) fn portable(&self) -> Option<String> {
        let escapes = [
            "\\A", "\\z", "\\p", "\\P", "\\x{", "\\u{", "\\U", "\\a", "\\h",
        ];
        let classes = ["[[", "&&", "--", "~~", "[]", "[^]"];
        let groups = self.source.matches("(?").count() != self.source.matches("(?:").count();
        let special = escapes
            .iter()
            .chain(&classes)
            .any(|part| self.source.contains(part));
        let plain = self.source.is_ascii() && !groups && !special;
        plain.then(|| format!("^(?:{})$", self.source))
    }
}

fn compile(source: &str, program_bytes_max: usize) -> Result<Regex, PatternError> {
    RegexBuilder::new(source)
        .size_limit(program_bytes_max)
        .dfa_size_limit(PATTERN_PROGRAM_BYTES_MAX)
        .nest_limit(32)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => PatternError::TooLarge,
            other => PatternError::Syntax {
                reason: last_line(&other.to_string()),
            },
        })
}

/// The engine prints the pattern, a mark and then `error: …`; the place is ours to show.
fn last_line(message: &str) -> String {
    let line = message.lines().last().unwrap_or("");
    let reason = line.strip_prefix("error: ").unwrap_or(line);
    model::Untrusted::new(reason).escaped()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_values_only() {
        let pattern = Pattern::new("a|b").unwrap();
        assert!(pattern.matches("a") && pattern.matches("b"));
        for other in ["ab", "xa", "bx", "a\n", ""] {
            assert!(!pattern.matches(other), "{other:?}");
        }
        assert!(!Pattern::new("(?m)^a$").unwrap().matches("a\nb"));
    }

    #[test]
    fn a_pattern_cannot_leave_its_anchors() {
        for source in ["a)|(?:b", "a)|(b", "(?x)a #"] {
            match Pattern::new(source) {
                Err(PatternError::Syntax { .. }) => {}
                other => panic!("{source}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_pattern_is_bounded_in_length_and_in_compiled_size() {
        assert!(Pattern::new(&"a".repeat(PATTERN_BYTES_MAX)).is_ok());
        assert_eq!(
            Pattern::new(&"a".repeat(PATTERN_BYTES_MAX + 1)).unwrap_err(),
            PatternError::TooLong { bytes: 1025 }
        );
        assert_eq!(
            Pattern::new(r"(\w{200}){200}").unwrap_err(),
            PatternError::TooLarge
        );
        let nested = format!("{}a{}", "(".repeat(300), ")".repeat(300));
        assert!(matches!(
            Pattern::new(&nested),
            Err(PatternError::Syntax { .. })
        ));
    }

    #[test]
    fn only_portable_patterns_reach_a_schema() {
        let portable = |source: &str| Pattern::new(source).unwrap().portable();
        assert_eq!(portable("[a-z]+"), Some("^(?:[a-z]+)$".to_owned()));
        assert_eq!(portable("^x$"), Some("^(?:^x$)$".to_owned()));
        for source in [
            "(?i)a",
            r"\p{L}",
            "[[:alpha:]]",
            "(?P<n>a)",
            r"\Aa",
            "[a-z&&[^b]]",
        ] {
            assert_eq!(portable(source), None, "{source}");
        }
    }
}
