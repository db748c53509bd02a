//! The policy gate: permit or deny, never a change.

use std::collections::BTreeMap;

use journal::limits::{NAME_BYTES_MAX, POLICIES_MAX, POLICY_TEXT_BYTES_MAX};
use journal::{PolicyNote, shortened};
use model::Digest;
use worker::Descriptor;

use crate::receipt::Receipt;

/// What the gate is asked about: exactly what would run.
#[derive(Debug, Clone, Copy)]
pub struct PolicyQuestion<'a> {
    pub principal: &'a str,
    pub trusted: &'a BTreeMap<String, String>,
    pub descriptor: &'a Descriptor,
    pub call_sha256: Digest,
    pub approval: Approval<'a>,
}

/// The approval that the question carries.
#[derive(Debug, Clone, Copy)]
pub enum Approval<'a> {
    None,
    /// Asked before any person is: would policy permit it with a yes?
    Supposed,
    Given(&'a Receipt),
}

impl PolicyQuestion<'_> {
    /// The digest that counts as approved, if one does.
    #[must_use]
    pub const fn approved_sha256(&self) -> Option<Digest> {
        match self.approval {
            Approval::None => None,
            Approval::Supposed => Some(self.call_sha256),
            Approval::Given(receipt) => Some(receipt.call_sha256),
        }
    }
}

/// The gate's answer.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Permit {
        policies: Vec<PolicyNote>,
    },
    Deny {
        policies: Vec<PolicyNote>,
        reason: String,
        advice: Option<String>,
    },
}

/// The notes as a record takes them: no gate's wordiness can make a call unrecordable.
pub(crate) fn recordable(mut policies: Vec<PolicyNote>) -> Vec<PolicyNote> {
    policies.truncate(POLICIES_MAX);
    for note in &mut policies {
        note.id = shortened(&note.id, NAME_BYTES_MAX);
        for text in [&mut note.reason, &mut note.advice] {
            *text = text.take().map(|it| shortened(&it, POLICY_TEXT_BYTES_MAX));
        }
    }
    policies
}

/// Decides about prepared calls. An error while deciding is a [`Verdict::Deny`].
pub trait ReasoningPolicyGate: Send {
    fn evaluate(&mut self, question: &PolicyQuestion<'_>) -> Verdict;

    /// Digest of all that the gate decides by, for the run's first record.
    fn digest(&self) -> Digest;
}
