//! A tool's command: entries that are fixed before any value exists. A value fills its place inside
//! one entry and is never split.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use model::{ArgumentName, ArgumentValue};

use crate::condition::Condition;
use crate::limits::{ARGV_BYTES_MAX, ARGV_ENTRIES_MAX, SCAN_ID_BYTES_MAX};

pub(crate) type Values = BTreeMap<ArgumentName, ArgumentValue>;

/// A call's identity as its command can name it with `{_scan_id}`: 1 to 64 of `A-Za-z0-9_-`, not
/// beginning with a hyphen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanId(String);

/// The text is no [`ScanId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanIdError;

impl fmt::Display for ScanIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a scan id has 1 to {SCAN_ID_BYTES_MAX} of A-Z, a-z, 0-9, `_` and `-`, and no hyphen first"
        )
    }
}

impl std::error::Error for ScanIdError {}

impl ScanId {
    /// # Errors
    /// [`ScanIdError`] for any other text.
    pub fn new(text: impl Into<String>) -> Result<Self, ScanIdError> {
        let text = text.into();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let fits = (1..=SCAN_ID_BYTES_MAX).contains(&text.len());
        if fits && !text.starts_with('-') && text.bytes().all(plain) {
            return Ok(Self(text));
        }
        Err(ScanIdError)
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `[command]`.
#[derive(Debug, Clone)]
pub(crate) struct Command {
    pub(crate) program: String,
    /// What follows the program.
    pub(crate) elements: Vec<Element>,
}

/// One element of `exec`.
#[derive(Debug, Clone)]
pub(crate) enum Element {
    /// Exactly one entry.
    Entry(Entry),
    /// `{_<argument>_flags}`: the entries that the manifest lists for the enum's value.
    Flags {
        argument: ArgumentName,
        entries: BTreeMap<String, Vec<String>>,
    },
    /// `{_<condition>}`: the entries that the manifest lists, where the condition holds.
    Conditional {
        when: Condition,
        entries: Vec<Entry>,
    },
}

/// One argv entry with its placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry(pub(crate) Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Literal(String),
    Argument(ArgumentName),
    /// `{_scan_id}`.
    ScanId,
}

/// What fills the places of a command.
#[derive(Clone, Copy)]
pub(crate) struct Filling<'a> {
    pub(crate) values: &'a Values,
    pub(crate) scan_id: Option<&'a ScanId>,
    /// Arguments that print as `[sensitive]`.
    pub(crate) hidden: &'a BTreeSet<ArgumentName>,
}

/// The rendered command would pass a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TooLong {
    Bytes,
    Entries,
}

impl Command {
    pub(crate) fn program(&self) -> &str {
        &self.program
    }

    /// Whether a call must have a [`ScanId`].
    pub(crate) fn names_scan_id(&self) -> bool {
        let names = |entry: &Entry| entry.0.contains(&Part::ScanId);
        self.elements.iter().any(|element| match element {
            Element::Entry(entry) => names(entry),
            Element::Flags { .. } => false,
            Element::Conditional { entries, .. } => entries.iter().any(names),
        })
    }

    /// The argv for checked values. An absent argument renders as nothing and keeps its entry.
    pub(crate) fn render(&self, filling: Filling<'_>) -> Result<Vec<String>, TooLong> {
        let mut argv = Argv::default();
        argv.push(self.program.clone())?;
        for element in &self.elements {
            match element {
                Element::Entry(entry) => argv.push(entry.render(filling)?)?,
                Element::Flags { argument, entries } => {
                    let Some(ArgumentValue::Text(value)) = filling.values.get(argument) else {
                        continue;
                    };
                    for entry in entries.get(value).into_iter().flatten() {
                        argv.push(entry.clone())?;
                    }
                }
                Element::Conditional { when, entries } => {
                    if when.holds(filling.values) {
                        for entry in entries {
                            argv.push(entry.render(filling)?)?;
                        }
                    }
                }
            }
        }
        Ok(argv.entries)
    }
}

impl Entry {
    fn render(&self, filling: Filling<'_>) -> Result<String, TooLong> {
        use std::fmt::Write as _;
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Literal(literal) => text.push_str(literal),
                Part::Argument(name) => match filling.values.get(name) {
                    Some(_) if filling.hidden.contains(name) => text.push_str("[sensitive]"),
                    Some(value) => {
                        let _ = write!(text, "{value}");
                    }
                    None => {}
                },
                Part::ScanId => text.push_str(filling.scan_id.map_or("", ScanId::as_str)),
            }
            if text.len() >= ARGV_BYTES_MAX {
                return Err(TooLong::Bytes);
            }
        }
        Ok(text)
    }
}

/// An argv below its limits; each entry counts with its final NUL.
#[derive(Default)]
struct Argv {
    entries: Vec<String>,
    bytes: usize,
}

impl Argv {
    fn push(&mut self, entry: String) -> Result<(), TooLong> {
        self.bytes += entry.len() + 1;
        if self.bytes > ARGV_BYTES_MAX {
            return Err(TooLong::Bytes);
        }
        if self.entries.len() >= ARGV_ENTRIES_MAX {
            return Err(TooLong::Entries);
        }
        self.entries.push(entry);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_id_is_one_plain_word_within_its_limit() {
        assert!(ScanId::new("a".repeat(SCAN_ID_BYTES_MAX)).is_ok());
        assert!(ScanId::new("0192-aB_1").is_ok());
        for bad in [
            "",
            "-a",
            "a b",
            "a/b",
            "\u{e4}",
            &"a".repeat(SCAN_ID_BYTES_MAX + 1),
        ] {
            assert_eq!(ScanId::new(bad), Err(ScanIdError), "{bad}");
        }
    }
}
