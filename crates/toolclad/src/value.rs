//! What can be wrong with one value.

use std::fmt;

use model::{DecimalError, PathError};

use crate::hygiene::{CharacterClass, name};
use crate::network::TargetFault;
use crate::reader::listed;

/// Why a value is not accepted. Names characters and positions; never echoes a control character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueFault {
    /// Positions count characters from 1.
    Character {
        character: char,
        class: CharacterClass,
        position: usize,
    },
    LeadingSign {
        sign: char,
    },
    TooLong {
        bytes: usize,
        max: usize,
    },
    /// The JSON value has another type.
    Type {
        expected: &'static str,
        found: &'static str,
    },
    /// The text is not written as its type demands.
    Syntax {
        expected: &'static str,
    },
    OutOfRange {
        min: Option<String>,
        max: Option<String>,
    },
    NotAllowed {
        allowed: Vec<String>,
    },
    Pattern {
        pattern: String,
    },
    Number(DecimalError),
    Path(PathError),
    Target(TargetFault),
}

impl fmt::Display for ValueFault {
    /// Reads on from "argument `x` ".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Character {
                character,
                class,
                position,
            } => write_character(f, *character, *class, *position),
            Self::LeadingSign { sign: '-' } => f.write_str(
                "begins with `-`, which a program can read as an option; \
                 only a manifest's `allow_leading_dash` permits it",
            ),
            Self::LeadingSign { sign } => write!(
                f,
                "begins with `{sign}`, which a program can read as an option; leave it out"
            ),
            Self::TooLong { bytes, max } => {
                write!(
                    f,
                    "has {bytes} bytes, more than the {max} allowed; shorten it"
                )
            }
            Self::Type { expected, found } => write!(f, "must be {expected}, not {found}"),
            Self::Syntax { expected } => write!(f, "must be {expected}"),
            Self::OutOfRange { min, max } => match (min, max) {
                (Some(min), Some(max)) => write!(f, "must be from {min} to {max}"),
                (Some(min), None) => write!(f, "must be at least {min}"),
                (None, Some(max)) => write!(f, "must be at most {max}"),
                (None, None) => f.write_str("is out of range"),
            },
            Self::NotAllowed { allowed } => {
                let words = listed(allowed.iter().map(String::as_str));
                write!(f, "must be one of {words}")
            }
            Self::Pattern { pattern } => write!(f, "does not match the pattern {pattern}"),
            Self::Number(error) => write!(f, "is not accepted: {error}"),
            Self::Path(error) => write!(f, "is not accepted: {error}"),
            Self::Target(fault) => fault.fmt(f),
        }
    }
}

fn write_character(
    f: &mut fmt::Formatter<'_>,
    character: char,
    class: CharacterClass,
    position: usize,
) -> fmt::Result {
    let name = name(character);
    let what = match class {
        CharacterClass::Control => format!("a control, {name},"),
        CharacterClass::Quote => format!("the quote {name}"),
        CharacterClass::Backslash => "a backslash".to_owned(),
        CharacterClass::Whitespace => format!("whitespace, {name},"),
        CharacterClass::Metacharacter => format!("the shell metacharacter {name}"),
        CharacterClass::Invisible => format!("a character that hides or reorders text, {name},"),
    };
    let remedy = match class {
        CharacterClass::Whitespace if character == ' ' => {
            "take it out (a file can be renamed), or let the manifest say `allow_whitespace = true`"
        }
        CharacterClass::Quote | CharacterClass::Backslash | CharacterClass::Metacharacter => {
            "take it out: of all types, only `literal_text` and `agent_summary` accept it"
        }
        _ => "take it out",
    };
    write!(f, "has {what} at position {position}; {remedy}")
}

impl std::error::Error for ValueFault {}
