//! Why the helper or init stops before its time, and how a step gets its name.

use std::io;

use crate::wire::{Failure, Reply, Speaker};

/// An early end.
#[derive(Debug)]
pub(crate) enum Halt {
    /// The step that failed; 0 where no system call did.
    Step { step: String, errno: i32 },
    /// A bound file is another one.
    Changed { path: String },
    /// Nobody is left to tell.
    OwnerGone,
}

impl Halt {
    pub(crate) fn step(step: impl Into<String>) -> Self {
        Self::Step {
            step: step.into(),
            errno: 0,
        }
    }

    /// What the owner is told, if there is one.
    pub(crate) fn reply(self, speaker: Speaker) -> Option<Reply> {
        match self {
            Self::Step { step, errno } => Some(Reply::Failed(Failure {
                speaker,
                step,
                errno,
            })),
            Self::Changed { path } => Some(Reply::Changed { path }),
            Self::OwnerGone => None,
        }
    }
}

/// Names the step of a system call that failed.
pub(crate) trait At<T> {
    fn at(self, step: &str) -> Result<T, Halt>;
    fn at_path(self, step: &str, path: &str) -> Result<T, Halt>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, step: &str) -> Result<T, Halt> {
        self.map_err(|error| Halt::Step {
            step: step.to_owned(),
            errno: error.into().raw_os_error().unwrap_or(0),
        })
    }

    fn at_path(self, step: &str, path: &str) -> Result<T, Halt> {
        self.map_err(|error| Halt::Step {
            step: format!("{step} {path}"),
            errno: error.into().raw_os_error().unwrap_or(0),
        })
    }
}
