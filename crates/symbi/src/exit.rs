//! Exit codes, and the errors that end a command.

use std::error::Error;
use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
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

/// What stands before a help.
const HELP: &str = "\n  help: ";

/// What usually helps against a fault of the operating system.
fn remedy(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(fault) = error.downcast_ref::<std::io::Error>() {
            return match fault.kind() {
                ErrorKind::NotFound => Some("correct the path: nothing is there"),
                ErrorKind::PermissionDenied => Some("run as its owner, or let this user use it"),
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Some("free some space there"),
                ErrorKind::ReadOnlyFilesystem => Some("choose a place that can be written"),
                _ => None,
            };
        }
        next = error.source();
    }
    None
}

/// An error that ends a command: its exit code, what happened, and the next step.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

impl Failure {
    /// A message that ends with its one help is told apart from it.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        let mut message: String = message.into();
        let help = match message.split_once(HELP) {
            Some((_, help)) if !help.contains('\n') => Some(help.to_owned()),
            _ => None,
        };
        if let Some(help) = &help {
            message.truncate(message.len() - help.len() - HELP.len());
        }
        Self {
            exit,
            message,
            help,
        }
    }

    /// `error` with all its sources. A plain fault of a file says what usually helps.
    pub(crate) fn of(exit: Exit, error: &(dyn Error + 'static)) -> Self {
        let failure = Self::new(exit, chain(error));
        match remedy(error) {
            Some(remedy) if !failure.message.contains(HELP) && failure.help.is_none() => {
                failure.help(remedy)
            }
            _ => failure,
        }
    }

    /// A file that the user named and that cannot be read.
    pub(crate) fn unread(path: &Path, error: &std::io::Error) -> Self {
        let shown = model::Untrusted::new(path.to_string_lossy()).escaped();
        let failure = Self::new(Exit::Usage, format!("cannot read `{shown}`: {error}"));
        failure.help(remedy(error).unwrap_or("name a plain file that this user can read"))
    }

    /// The failure as one JSON object.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "error": self.message, "help": self.help, "exit_code": self.exit as u8
        })
    }

    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        let help = help.into();
        self.help = Some(match self.help.take() {
            Some(own) => format!("{own}{HELP}{help}"),
            None => help,
        });
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
    fn a_help_is_told_apart_and_what_is_added_does_not_replace_it() {
        let failure = Failure::new(Exit::Usage, "no\n  help: do this");
        assert_eq!(failure.to_string(), "error: no\n  help: do this");
        assert_eq!(failure.to_json()["error"], "no");
        assert_eq!(failure.to_json()["help"], "do this");
        let more = failure.help("or that");
        assert_eq!(
            more.to_string(),
            "error: no\n  help: do this\n  help: or that"
        );
        // Several faults keep theirs.
        let faults = "a\n  help: x\nb\n  help: y";
        assert_eq!(Failure::new(Exit::Usage, faults).message, faults);
    }

    #[test]
    fn a_fault_of_the_operating_system_says_what_usually_helps() {
        let gone = std::io::Error::from(ErrorKind::NotFound);
        assert!(Failure::of(Exit::Usage, &gone).help.is_some());
        let full = std::io::Error::other(std::io::Error::from(ErrorKind::StorageFull));
        assert!(Failure::of(Exit::Storage, &full).help.is_none());
        let unread = Failure::unread(Path::new("/x"), &std::io::Error::other("not a file"));
        assert!(unread.help.is_some());
    }

    #[test]
    fn a_source_is_said_once() {
        let inner = std::io::Error::other("disk full");
        let outer = std::io::Error::other(inner);
        assert_eq!(chain(&outer), "disk full");
    }
}
