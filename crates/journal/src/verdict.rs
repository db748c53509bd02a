//! What a verification says of a journal's bytes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The first half of the verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Whole, from start to terminal record.
    Intact,
    /// A whole prefix: the run did not end, or its end was cut off unseen.
    Unterminated,
    /// Records that were witnessed are gone.
    Truncated,
    /// Another history than the witnessed one, signed with the same key.
    Forked,
    /// Not what was signed.
    Corrupt,
    /// A whole prefix of a run that goes on.
    Live,
}

impl Verdict {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Intact => "intact",
            Self::Unterminated => "unterminated",
            Self::Truncated => "truncated",
            Self::Forked => "forked",
            Self::Corrupt => "corrupt",
            Self::Live => "live",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
