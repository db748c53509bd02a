//! Calls that wait for a person's answer.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::clock::rfc3339;
use crate::session::signals::Signals;
use governance::{Approver, PreparedCall, Receipt};
use model::{Canonical, Digest};

/// A call as its approver sees it: all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldCall {
    pub held_id: String,
    pub principal: String,
    pub tool: String,
    /// The whole descriptor, canonical.
    pub review: Canonical,
    /// Digest of `review`; an answer must name it.
    pub review_sha256: Digest,
    pub created_at: String,
    pub expires_at: String,
}

/// Why an answer did not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecideError {
    /// Nothing is held under that id: answered, expired, withdrawn, or never there.
    NotHeld { held_id: String },
    /// The answer is about another text than the one that is held.
    OtherReview { held: Digest, named: Digest },
}

impl fmt::Display for DecideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHeld { held_id } => write!(
                f,
                "no call is held as `{held_id}`: it was answered, expired or withdrawn"
            ),
            Self::OtherReview { held, named } => {
                write!(
                    f,
                    "the held call's review digest is {held}, the answer names {named}"
                )
            }
        }
    }
}

impl std::error::Error for DecideError {}

/// A person's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) approved: bool,
    pub(crate) approver: Approver,
    pub(crate) at: String,
}

#[derive(Debug, Default)]
struct Held {
    call: Option<HeldCall>,
    until: Option<Instant>,
    answer: Option<Answer>,
}

/// Where held calls lie. Calls are serial, so one at the most lies there.
#[derive(Debug)]
pub(crate) struct Desk {
    held: Mutex<Held>,
    signals: Arc<Signals>,
}

impl Desk {
    pub(crate) fn new(signals: Arc<Signals>) -> Self {
        Self {
            held: Mutex::new(Held::default()),
            signals,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn pending(&self) -> Vec<HeldCall> {
        let held = self.lock();
        let open = held.answer.is_none() && held.until.is_some_and(|it| Instant::now() < it);
        held.call.iter().filter(|_| open).cloned().collect()
    }

    /// Lays the call there, to be answered before `until`. It stays until [`Desk::clear`].
    pub(crate) fn hold(
        &self,
        call: &PreparedCall,
        principal: &str,
        wait: Duration,
        until: Instant,
    ) -> HeldCall {
        let now = SystemTime::now();
        let held = HeldCall {
            held_id: format!("held-{}", model::PublicationId::new()),
            principal: principal.to_owned(),
            tool: call.tool().to_owned(),
            review: call.canonical().clone(),
            review_sha256: call.call_sha256(),
            created_at: rfc3339(now),
            expires_at: rfc3339(now + wait),
        };
        *self.lock() = Held {
            call: Some(held.clone()),
            until: Some(until),
            answer: None,
        };
        held
    }

    /// Answers the held call, once.
    pub(crate) fn decide(
        &self,
        held_id: &str,
        review_sha256: Digest,
        approved: bool,
        approver: Approver,
    ) -> Result<(), DecideError> {
        let mut held = self.lock();
        let not_held = || DecideError::NotHeld {
            held_id: held_id.to_owned(),
        };
        let call = held
            .call
            .as_ref()
            .filter(|call| call.held_id == held_id)
            .ok_or_else(not_held)?;
        if call.review_sha256 != review_sha256 {
            return Err(DecideError::OtherReview {
                held: call.review_sha256,
                named: review_sha256,
            });
        }
        if held.answer.is_some() || held.until.is_none_or(|until| Instant::now() >= until) {
            return Err(not_held());
        }
        held.answer = Some(Answer {
            approved,
            approver,
            at: rfc3339(SystemTime::now()),
        });
        drop(held);
        self.signals.wake();
        Ok(())
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.lock().answer.is_some()
    }

    /// Takes the call away, with the answer that it got.
    pub(crate) fn clear(&self) -> Option<Answer> {
        std::mem::take(&mut *self.lock()).answer
    }
}

impl HeldCall {
    pub(crate) fn receipt(&self, answer: Answer) -> Receipt {
        Receipt {
            held_id: self.held_id.clone(),
            call_sha256: self.review_sha256,
            approver: answer.approver,
            created_at: self.created_at.clone(),
            decided_at: answer.at,
            expires_at: self.expires_at.clone(),
        }
    }
}
