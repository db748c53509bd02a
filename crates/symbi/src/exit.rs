//! Exit codes, and the errors that end a command.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

/// The documented exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Done = 0,
    /// The tool or agent failed, lost to a competitor, ran out of budget or time, or was
    /// interrupted with a known outcome.
    Failed = 1,
    /// Usage or configuration.
    Usage = 2,
    /// Refused before any effect.
    Refused = 3,
    /// Approval denied, expired or missing.
    NotApproved = 4,
    /// Unconfirmed: needs recovery, or a journal that proves less than it should.
    Unconfirmed = 5,
    /// Storage or journal failure, or a journal that is not what was signed.
    Storage = 6,
    /// The isolation is not available.
    Isolation = 7,
}

impl Exit {
    /// From harmless to worst.
    const ORDER: [Self; 8] = [
        Self::Done,
        Self::Failed,
        Self::Refused,
        Self::NotApproved,
        Self::Usage,
        Self::Isolation,
        Self::Unconfirmed,
        Self::Storage,
    ];

    fn rank(self) -> usize {
        Self::ORDER
            .iter()
            .position(|exit| *exit == self)
            .unwrap_or(0)
    }

    /// The worse of two.
    #[must_use]
    pub(crate) fn worst(self, other: Self) -> Self {
        if other.rank() > self.rank() {
            other
        } else {
            self
        }
    }

    /// The code of that number.
    #[must_use]
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ORDER.into_iter().find(|exit| *exit as u8 == number)
    }

    #[must_use]
    pub(crate) fn code(self) -> ExitCode {
        ExitCode::from(self as u8)
    }
}

/// An error that ends a command: its exit code, what happened, and the next step.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            help: None,
        }
    }

    /// `error` with all its sources.
    pub(crate) fn of(exit: Exit, error: &dyn Error) -> Self {
        Self::new(exit, chain(error))
    }

    /// The failure as one JSON object.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "error": self.message, "help": self.help, "exit_code": self.exit as u8
        })
    }

    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// An error and its sources in one line, each said once.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        source = error.source();
    }
    text
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_two_codes_wins_in_the_documented_order() {
        let worst_first = [
            Exit::Storage,
            Exit::Unconfirmed,
            Exit::Isolation,
            Exit::Usage,
            Exit::NotApproved,
            Exit::Refused,
            Exit::Failed,
            Exit::Done,
        ];
        for (index, worse) in worst_first.iter().enumerate() {
            for better in &worst_first[index..] {
                assert_eq!(worse.worst(*better), *worse);
                assert_eq!(better.worst(*worse), *worse);
            }
        }
    }

    #[test]
    fn a_source_is_said_once() {
        let inner = std::io::Error::other("disk full");
        let outer = std::io::Error::other(inner);
        assert_eq!(chain(&outer), "disk full");
    }
}
