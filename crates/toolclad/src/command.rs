//! A tool's command: entries that are fixed before any value exists. A value fills its place inside
//! one entry and is never split.

use std::collections::BTreeMap;

use model::{ArgumentName, ArgumentValue};

use crate::condition::Condition;
use crate::limits::{ARGV_BYTES_MAX, ARGV_ENTRIES_MAX};

type Values = BTreeMap<ArgumentName, ArgumentValue>;

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

    /// The argv for checked values. An absent argument renders as nothing and keeps its entry.
    pub(crate) fn render(&self, values: &Values) -> Result<Vec<String>, TooLong> {
        let mut argv = Argv::default();
        argv.push(self.program.clone())?;
        for element in &self.elements {
            match element {
                Element::Entry(entry) => argv.push(entry.render(values)?)?,
                Element::Flags { argument, entries } => {
                    let Some(ArgumentValue::Text(value)) = values.get(argument) else {
                        continue;
                    };
                    for entry in entries.get(value).into_iter().flatten() {
                        argv.push(entry.clone())?;
                    }
                }
                Element::Conditional { when, entries } => {
                    if when.holds(values) {
                        for entry in entries {
                            argv.push(entry.render(values)?)?;
                        }
                    }
                }
            }
        }
        Ok(argv.entries)
    }
}

impl Entry {
    fn render(&self, values: &Values) -> Result<String, TooLong> {
        use std::fmt::Write as _;
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Literal(literal) => text.push_str(literal),
                Part::Argument(name) => {
                    if let Some(value) = values.get(name) {
                        let _ = write!(text, "{value}");
                    }
                }
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
