//! A no before any effect.

use std::fmt;

use journal::{ApprovalFact, CallRefused, PolicyNote, Stage};
use model::{CallId, Digest};

use crate::limits::REASON_BYTES_MAX;

/// What kind of no it is: decides the exit code, and who is told what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// The request itself: its shape, an unknown tool, an argument, a file, a reused identity.
    Invalid,
    /// Policy.
    Denied,
    /// A person said no, or did not answer, or there was nobody to ask.
    NotApproved,
    /// The client took the call back before its effect.
    Withdrawn,
    /// Room ran out: the journal's, the staging pool's.
    Capacity,
    /// The isolation that the call needs is not there.
    Unavailable,
}

/// A call that ended before any effect. Made by the transition that refused; nothing of the
/// call is left but this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub call_id: CallId,
    /// As the client wrote it, escaped: it may name no tool.
    pub tool: String,
    pub stage: Stage,
    pub kind: RefusalKind,
    pub reason: String,
    pub policies: Vec<PolicyNote>,
    /// What the caller can do about it.
    pub advice: Option<String>,
    /// Digest of the prepared call, where it came that far.
    pub call_sha256: Option<Digest>,
    /// A person's no, where it was one.
    pub approval: Option<Box<ApprovalFact>>,
}

impl Refusal {
    /// `reason` is cut at [`REASON_BYTES_MAX`].
    #[must_use]
    pub fn new(
        call_id: &CallId,
        tool: &str,
        stage: Stage,
        kind: RefusalKind,
        reason: &str,
    ) -> Self {
        Self {
            call_id: call_id.clone(),
            tool: tool.to_owned(),
            stage,
            kind,
            reason: shorten(reason),
            policies: Vec::new(),
            advice: None,
            call_sha256: None,
            approval: None,
        }
    }

    /// The stage's name, as people read it.
    #[must_use]
    pub const fn stage_name(&self) -> &'static str {
        match self.stage {
            Stage::Parse => "parse",
            Stage::Prepare => "prepare",
            Stage::Approve => "approve",
            Stage::Authorize => "authorize",
            Stage::Record => "record",
        }
    }

    /// All of it, as the journal keeps it.
    #[must_use]
    pub fn record(&self) -> CallRefused {
        CallRefused {
            call_id: self.call_id.clone(),
            tool: self.tool.clone(),
            stage: self.stage,
            reason: self.reason.clone(),
            advice: self.advice.clone(),
            policies: self.policies.clone(),
            call_sha256: self.call_sha256,
            approval: self.approval.as_deref().cloned(),
        }
    }

    #[must_use]
    pub fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(shorten(&advice.into()));
        self
    }
}

/// `text`, cut at a character boundary so that it fits a record, with a mark where it was cut.
pub(crate) fn shorten(text: &str) -> String {
    if text.len() <= REASON_BYTES_MAX {
        return text.to_owned();
    }
    const MARK: &str = " … (cut)";
    let mut end = REASON_BYTES_MAX - MARK.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{MARK}", text.get(..end).unwrap_or_default())
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused at {}: {}", self.stage_name(), self.reason)?;
        if let Some(advice) = &self.advice {
            write!(f, "\nadvice: {advice}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_kept_at_the_limit_and_cut_one_past_it() {
        let at = "é".repeat(REASON_BYTES_MAX / 2);
        assert_eq!(shorten(&at), at);
        let past = shorten(&format!("{at}x"));
        assert!(
            past.len() <= REASON_BYTES_MAX && past.ends_with("(cut)"),
            "{}",
            past.len()
        );
    }
}
