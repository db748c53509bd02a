//! Calls that wait for a person's answer, and what did not count as one.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use approval::limits::ANSWERS_REFUSED_MAX;
use approval::{HeldId, HeldIdError, Review, ReviewError, ReviewParts};
use governance::{Approver, LoopState, PreparedCall, Receipt};
use journal::limits::{NAME_BYTES_MAX, NOTE_TEXT_BYTES_MAX};
use journal::{AnswerRefused, InputShown, shortened};
use model::{Canonical, Digest};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;

use crate::clock::rfc3339;
use crate::session::inputs::{HeldInputs, InputPart, ReadInputError};
use crate::session::signals::Signals;

/// A call as its approver sees it: all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldCall {
    pub held_id: String,
    pub principal: String,
    pub tool: String,
    /// The whole descriptor, canonical.
    pub call: Canonical,
    /// Digest of `call`.
    pub call_sha256: Digest,
    /// The text to show.
    pub review: Review,
    /// Digest of that text; an answer must name it.
    pub review_sha256: Digest,
    pub created_at: String,
    pub expires_at: String,
    /// The keys of its inputs: [`HeldCalls::read_input`] shows them.
    pub inputs: Vec<String>,
}

/// Why an answer did not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecideError {
    /// Nothing is held under that id: answered, expired, withdrawn, or never there.
    NotHeld { held_id: String },
    /// The answer is about another text than the one that is held.
    OtherReview { held: Digest, named: Digest },
    /// The clock stands before the time at which the call was held: no record could say when
    /// the answer came.
    ClockSetBack { created_at: String },
}

impl fmt::Display for DecideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHeld { held_id } => write!(
                f,
                "no call is held as `{}`: it was answered, expired or withdrawn",
                model::Untrusted::new(held_id).escaped()
            ),
            Self::OtherReview { held, named } => {
                write!(
                    f,
                    "the held call's review digest is {held}, the answer names {named}"
                )
            }
            Self::ClockSetBack { created_at } => write!(
                f,
                "the clock was set back to before {created_at}, when the call was held"
            ),
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
    pub(crate) inputs_shown: Vec<InputShown>,
}

/// An answer that does not count, or a connection that could have brought one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UncountedAnswer {
    pub surface: String,
    /// Who it came from, as far as the surface knows.
    pub from: String,
    pub held_id: Option<String>,
    pub reason: String,
}

/// When a held call ends: on the first of three clocks. The monotonic one drives the session's
/// wait, the boot clock counts a suspended host's time too, and the wall clock is what people
/// were shown.
#[derive(Debug, Clone, Copy)]
struct Deadline {
    monotonic: Instant,
    boot: Duration,
    created: SystemTime,
    wall: SystemTime,
}

impl Deadline {
    fn new(created: SystemTime, wait: Duration, until: Instant) -> Self {
        Self {
            monotonic: until,
            boot: boot_time() + wait,
            created,
            wall: created + wait,
        }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.monotonic
            || boot_time() >= self.boot
            || SystemTime::now() >= self.wall
    }
}

fn boot_time() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

#[derive(Debug, Default)]
struct Held {
    call: Option<HeldCall>,
    until: Option<Deadline>,
    answer: Option<Answer>,
    inputs: HeldInputs,
}

/// What the session has not recorded yet, and how much it has.
#[derive(Debug, Default)]
struct Uncounted {
    waiting: Vec<AnswerRefused>,
    count: usize,
}

impl Held {
    fn is_open(&self) -> bool {
        self.answer.is_none() && self.until.is_some_and(|until| !until.is_over())
    }
}

/// Where held calls lie. Calls are serial, so one at the most lies there.
#[derive(Debug)]
pub(crate) struct Desk {
    held: Mutex<Held>,
    uncounted: Mutex<Uncounted>,
    signals: Arc<Signals>,
    changes: watch::Sender<u64>,
}

/// The calls that wait for a person, for a surface that shows them. It keeps no session alive.
#[derive(Debug, Clone)]
pub struct HeldCalls {
    desk: Arc<Desk>,
    changes: watch::Receiver<u64>,
}

impl HeldCalls {
    pub(crate) fn new(desk: &Arc<Desk>) -> Self {
        Self {
            desk: Arc::clone(desk),
            changes: desk.changes.subscribe(),
        }
    }

    /// The calls that wait now.
    #[must_use]
    pub fn pending(&self) -> Vec<HeldCall> {
        self.desk.pending()
    }

    /// Answers a held call, once, naming the digest of the review that was read.
    ///
    /// # Errors
    /// [`DecideError`]
    pub fn decide(
        &self,
        held_id: &str,
        review_sha256: Digest,
        approved: bool,
        approver: Approver,
    ) -> Result<(), DecideError> {
        self.desk.decide(held_id, review_sha256, approved, approver)
    }

    /// Reads a part of a held call's input: of the snapshot that was taken, never of what lies at
    /// its path now. What is read counts as shown on `surface`.
    ///
    /// # Errors
    /// [`ReadInputError`]
    pub fn read_input(
        &self,
        surface: &str,
        held_id: &str,
        input: &str,
        offset: u64,
    ) -> Result<InputPart, ReadInputError> {
        self.desk.read_input(surface, held_id, input, offset)
    }

    /// Has an answer recorded that does not count, or a connection that was refused. The first
    /// [`ANSWERS_REFUSED_MAX`] of a run are.
    pub fn uncounted(&self, answer: UncountedAnswer) {
        self.desk.uncounted(answer);
    }

    /// Returns once a call was held, answered or taken away since the last return. Dropping the
    /// future loses nothing.
    pub async fn changed(&mut self) {
        if self.changes.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

impl Desk {
    pub(crate) fn new(signals: Arc<Signals>) -> Self {
        Self {
            held: Mutex::new(Held::default()),
            uncounted: Mutex::default(),
            signals,
            changes: watch::Sender::new(0),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_changed(&self) {
        self.changes
            .send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    pub(crate) fn pending(&self) -> Vec<HeldCall> {
        let held = self.lock();
        let open = held.is_open();
        held.call.iter().filter(|_| open).cloned().collect()
    }

    /// Lays the call there, to be answered before `until`. It stays until [`Desk::clear`].
    pub(crate) fn hold(
        &self,
        call: &PreparedCall,
        state: &LoopState,
        wait: Duration,
        until: Instant,
    ) -> Result<HeldCall, HoldError> {
        let now = SystemTime::now();
        let (created_at, expires_at) = (rfc3339(now), rfc3339(now + wait));
        let held_id = HeldId::new(format!("held-{}", model::PublicationId::new()))?;
        let review = Review::of(&ReviewParts {
            held_id: &held_id,
            run: state.run,
            principal: &state.principal,
            tool: call.tool(),
            call_sha256: call.call_sha256(),
            created_at: &created_at,
            expires_at: &expires_at,
            call: call.canonical(),
        })?;
        let held = HeldCall {
            held_id: held_id.to_string(),
            principal: state.principal.clone(),
            tool: call.tool().to_owned(),
            call: call.canonical().clone(),
            call_sha256: call.call_sha256(),
            review_sha256: review.sha256(),
            review,
            created_at,
            expires_at,
            inputs: call.inputs().map(|(key, ..)| key.to_owned()).collect(),
        };
        let inputs = HeldInputs::of(call).map_err(HoldError::Inputs)?;
        *self.lock() = Held {
            call: Some(held.clone()),
            until: Some(Deadline::new(now, wait, until)),
            answer: None,
            inputs,
        };
        self.has_changed();
        Ok(held)
    }

    pub(crate) fn read_input(
        &self,
        surface: &str,
        held_id: &str,
        input: &str,
        offset: u64,
    ) -> Result<InputPart, ReadInputError> {
        let mut held = self.lock();
        let open = held.is_open();
        if !open
            || held
                .call
                .as_ref()
                .is_none_or(|call| call.held_id != held_id)
        {
            return Err(ReadInputError::NotHeld);
        }
        held.inputs.read(surface, input, offset)
    }

    pub(crate) fn uncounted(&self, answer: UncountedAnswer) {
        let mut uncounted = self.lock_uncounted();
        if uncounted.count >= ANSWERS_REFUSED_MAX {
            return;
        }
        uncounted.count += 1;
        let last = uncounted.count == ANSWERS_REFUSED_MAX;
        let safe = |text: &str, max| shortened(&model::Untrusted::new(text).escaped(), max);
        uncounted.waiting.push(AnswerRefused {
            surface: safe(&answer.surface, NAME_BYTES_MAX),
            from: safe(&answer.from, NOTE_TEXT_BYTES_MAX),
            held_id: answer.held_id.map(|it| safe(&it, NAME_BYTES_MAX)),
            reason: safe(&answer.reason, NOTE_TEXT_BYTES_MAX),
            last,
        });
        drop(uncounted);
        self.signals.wake();
    }

    fn lock_uncounted(&self) -> std::sync::MutexGuard<'_, Uncounted> {
        self.uncounted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be recorded now.
    pub(crate) fn take_uncounted(&self) -> Vec<AnswerRefused> {
        std::mem::take(&mut self.lock_uncounted().waiting)
    }

    /// Answers the held call, once. What does not count is recorded with its reason.
    pub(crate) fn decide(
        &self,
        held_id: &str,
        review_sha256: Digest,
        approved: bool,
        approver: Approver,
    ) -> Result<(), DecideError> {
        let (surface, from) = (approver.surface.clone(), approver.identity.clone());
        let decided = self.answer(held_id, review_sha256, approved, approver);
        if let Err(error) = &decided {
            self.uncounted(UncountedAnswer {
                surface,
                from,
                held_id: Some(held_id.to_owned()),
                reason: error.to_string(),
            });
        }
        decided
    }

    fn answer(
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
        if !held.is_open() {
            return Err(not_held());
        }
        let now = SystemTime::now();
        if held.until.is_some_and(|until| now < until.created) {
            let created_at = call.created_at.clone();
            return Err(DecideError::ClockSetBack { created_at });
        }
        let inputs_shown = held.inputs.shown(&approver.surface);
        held.answer = Some(Answer {
            approved,
            approver,
            at: rfc3339(now),
            inputs_shown,
        });
        drop(held);
        self.signals.wake();
        self.has_changed();
        Ok(())
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.lock().answer.is_some()
    }

    /// Whether the held call's time is over on one of the clocks.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().until.is_none_or(|until| until.is_over())
    }

    /// Takes the call away, with the answer that it got.
    pub(crate) fn clear(&self) -> Option<Answer> {
        let answer = std::mem::take(&mut *self.lock()).answer;
        self.has_changed();
        answer
    }
}

/// Why a call cannot be held.
#[derive(Debug)]
pub(crate) enum HoldError {
    Review(ReviewError),
    Id(HeldIdError),
    Inputs(std::io::Error),
}

impl fmt::Display for HoldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Review(error) => error.fmt(f),
            Self::Id(error) => error.fmt(f),
            Self::Inputs(error) => write!(f, "the inputs' snapshots: {error}"),
        }
    }
}

impl From<ReviewError> for HoldError {
    fn from(error: ReviewError) -> Self {
        Self::Review(error)
    }
}

impl From<HeldIdError> for HoldError {
    fn from(error: HeldIdError) -> Self {
        Self::Id(error)
    }
}

impl HeldCall {
    pub(crate) fn receipt(&self, answer: Answer) -> Receipt {
        Receipt {
            held_id: self.held_id.clone(),
            call_sha256: self.call_sha256,
            review_sha256: self.review_sha256,
            approver: answer.approver,
            created_at: self.created_at.clone(),
            decided_at: answer.at,
            expires_at: self.expires_at.clone(),
            inputs_shown: answer.inputs_shown,
        }
    }
}
