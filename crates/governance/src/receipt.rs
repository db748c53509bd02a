//! A person's answer to exactly one prepared call.

use journal::{ApprovalFact, Decision, InputShown};
use model::Digest;

/// Who answered, and through which surface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approver {
    /// `terminal`, `gate`, `chat`, …
    pub surface: String,
    /// The identity that the surface established.
    pub identity: String,
    /// Armored signatures over the review, where operators sign.
    pub signatures: Vec<String>,
}

/// An approval. It names the digest of what was shown, and is good for that call alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    pub held_id: String,
    pub call_sha256: Digest,
    /// Of the text that was shown: the whole call, and to whom and until when it was.
    pub review_sha256: Digest,
    pub approver: Approver,
    /// RFC 3339, UTC.
    pub created_at: String,
    pub decided_at: String,
    pub expires_at: String,
    /// What of the call's inputs was shown where the answer came from.
    pub inputs_shown: Vec<InputShown>,
}

impl Receipt {
    pub(crate) fn fact(&self, decision: Decision) -> ApprovalFact {
        ApprovalFact {
            held_id: self.held_id.clone(),
            surface: self.approver.surface.clone(),
            approver: self.approver.identity.clone(),
            decision,
            decided_at: self.decided_at.clone(),
            created_at: self.created_at.clone(),
            expires_at: self.expires_at.clone(),
            review_sha256: self.review_sha256,
            inputs_shown: self.inputs_shown.clone(),
            signatures: self.approver.signatures.clone(),
        }
    }
}
