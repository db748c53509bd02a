//! The answer to a request, with the policies that made it.

use serde::Serialize;

/// Permit or deny; never "modify".
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The policies that permit it, by id; at most `NOTES_COUNT_MAX`.
    Permit { policies: Vec<PolicyNote> },
    /// Refused.
    Deny(Denial),
}

/// Why a call was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Denial {
    /// The policies that forbid it, by id; empty where nothing permitted it.
    pub policies: Vec<PolicyNote>,
    /// What failed while the request was built or a policy evaluated, escaped.
    pub errors: Vec<String>,
    /// For the operator and the journal.
    pub message: String,
    /// The next step; also for the agent.
    pub advice: Option<String>,
}

/// A policy that determined a verdict.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PolicyNote {
    /// `@id`, or `file#n`.
    pub id: String,
    /// `@reason`
    pub reason: Option<String>,
    /// `@advice`
    pub advice: Option<String>,
}
