//! Cedar as a session's policy gate.

use std::sync::Arc;

use governance::{Approval, PolicyQuestion, ReasoningPolicyGate, Verdict};
use model::Digest;
use policy::{ApprovalFact, Policies, Request};

/// Decides by a loaded and validated policy set. Editing its files changes nothing here.
#[derive(Debug, Clone)]
pub struct CedarGate {
    policies: Arc<Policies>,
}

impl CedarGate {
    #[must_use]
    pub fn new(policies: Arc<Policies>) -> Self {
        Self { policies }
    }
}

impl ReasoningPolicyGate for CedarGate {
    fn evaluate(&mut self, question: &PolicyQuestion<'_>) -> Verdict {
        let approval = question
            .approved_sha256()
            .map(|approved_sha256| ApprovalFact { approved_sha256 });
        let request = Request {
            principal: question.principal,
            descriptor: question.descriptor,
            approval: approval.as_ref(),
            call_sha256: question.call_sha256,
            trusted: question.trusted,
        };
        let verdict = match question.approval {
            Approval::Supposed => self.policies.decide_as_if_approved(&request),
            Approval::None | Approval::Given(_) => self.policies.decide(&request),
        };
        match verdict {
            policy::Verdict::Permit { policies } => Verdict::Permit {
                policies: policies.into_iter().map(note).collect(),
            },
            policy::Verdict::Deny(denial) => Verdict::Deny {
                policies: denial.policies.into_iter().map(note).collect(),
                reason: with_errors(denial.message, &denial.errors),
                advice: denial.advice,
            },
        }
    }

    fn digest(&self) -> Digest {
        self.policies.digest()
    }
}

fn note(note: policy::PolicyNote) -> journal::PolicyNote {
    journal::PolicyNote {
        id: note.id,
        reason: note.reason,
        advice: note.advice,
    }
}

fn with_errors(message: String, errors: &[String]) -> String {
    if errors.is_empty() {
        message
    } else {
        format!("{message}: {}", errors.join("; "))
    }
}
