//! Calls that wait for a person's answer, and what did not count as one.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use approval::limits::{ANSWERS_REFUSED_MAX, HOLDS_REMEMBERED_MAX};
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

/// How a call's wait for a person ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldEnd {
    Approved,
    Denied,
    Expired,
    Withdrawn,
    SessionEnded,
}

impl fmt::Display for HeldEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Approved => "it was approved",
            Self::Denied => "it was denied",
            Self::Expired => "its time is over",
            Self::Withdrawn => "it was withdrawn",
            Self::SessionEnded => "its run ended",
        })
    }
}

/// Why an answer did not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecideError {
    /// Nothing is held under that id any more, or never was.
    NotHeld {
        held_id: String,
        end: Option<HeldEnd>,
    },
    /// The answer is about another text than the one that is held.
    OtherReview { held: Digest, named: Digest },
    /// The clock stands before the time at which the call was held: no record could say when
    /// the answer came.
    ClockSetBack { created_at: String },
}

impl fmt::Display for DecideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHeld { held_id, end } => {
                let held_id = model::Untrusted::new(held_id).escaped();
                match end {
                    Some(end) => write!(f, "no call is held as `{held_id}` any more: {end}"),
                    None => write!(f, "no call is held as `{held_id}`, and none of late was"),
                }
            }
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

impl Answer {
    const fn end(&self) -> HeldEnd {
        match self.approved {
            true => HeldEnd::Approved,
            false => HeldEnd::Denied,
        }
    }
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
    /// The last calls that are held no longer, oldest first.
    ended: Mutex<VecDeque<(String, HeldEnd)>>,
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

    /// Why nothing is held under that id.
    #[must_use]
    pub fn not_held(&self, held_id: &str) -> DecideError {
        DecideError::NotHeld {
            held_id: held_id.to_owned(),
            end: self.desk.end_of(held_id),
        }
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
            ended: Mutex::default(),
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
        let not_held = |end| DecideError::NotHeld {
            held_id: held_id.to_owned(),
            end,
        };
        let call = held
            .call
            .as_ref()
            .filter(|call| call.held_id == held_id)
            .ok_or_else(|| not_held(self.end_of(held_id)))?;
        if call.review_sha256 != review_sha256 {
            return Err(DecideError::OtherReview {
                held: call.review_sha256,
                named: review_sha256,
            });
        }
        if !held.is_open() {
            let answered = held.answer.as_ref().map(Answer::end);
            return Err(not_held(Some(answered.unwrap_or(HeldEnd::Expired))));
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

    /// Takes the call away, with the answer that it got; `early` is an end without one.
    pub(crate) fn clear(&self, early: Option<HeldEnd>) -> Option<Answer> {
        let held = std::mem::take(&mut *self.lock());
        if let Some(call) = held.call {
            let answered = held.answer.as_ref().map(Answer::end);
            let end = early.or(answered).unwrap_or(HeldEnd::Expired);
            let mut ended = self.lock_ended();
            if ended.len() >= HOLDS_REMEMBERED_MAX {
                ended.pop_front();
            }
            ended.push_back((call.held_id, end));
        }
        self.has_changed();
        held.answer
    }

    fn lock_ended(&self) -> std::sync::MutexGuard<'_, VecDeque<(String, HeldEnd)>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How a call's wait ended, if it did of late.
    fn end_of(&self, held_id: &str) -> Option<HeldEnd> {
        let ended = self.lock_ended();
        let found = ended.iter().find(|(id, _)| id == held_id);
        found.map(|(_, end)| *end)
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

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// A desk with a call whose deadline is `until`.
    fn desk(until: Deadline) -> (Desk, Digest) {
        let desk = Desk::new(Arc::new(Signals::new().unwrap()));
        let digest = Digest::of(b"text\n");
        let review = Review::received("text\n".to_owned(), digest).unwrap();
        let call = Canonical::of(&1).unwrap();
        *desk.lock() = Held {
            call: Some(HeldCall {
                held_id: "held-1".to_owned(),
                principal: "tester".to_owned(),
                tool: "guarded".to_owned(),
                call_sha256: call.digest(),
                call,
                review_sha256: review.sha256(),
                review,
                created_at: rfc3339(until.created),
                expires_at: rfc3339(until.wall),
                inputs: Vec::new(),
            }),
            until: Some(until),
            ..Held::default()
        };
        (desk, digest)
    }

    fn approve(desk: &Desk, digest: Digest) -> Result<(), DecideError> {
        let approver = Approver {
            surface: "terminal".to_owned(),
            identity: "uid 0".to_owned(),
            signatures: Vec::new(),
        };
        desk.decide("held-1", digest, true, approver)
    }

    #[test]
    fn a_clock_that_was_set_back_takes_no_answer_and_that_is_recorded() {
        let (now, later) = (SystemTime::now(), SystemTime::now() + HOUR);
        let (good, digest) = desk(Deadline::new(now, HOUR, Instant::now() + HOUR));
        assert_eq!(approve(&good, digest), Ok(()));
        let (desk, digest) = desk(Deadline::new(later, HOUR, Instant::now() + HOUR));
        let refused = approve(&desk, digest).unwrap_err();
        assert!(
            matches!(refused, DecideError::ClockSetBack { .. }),
            "{refused}"
        );
        assert!(!desk.is_answered());
        assert!(
            desk.take_uncounted()[0]
                .reason
                .contains("clock was set back")
        );
    }

    #[test]
    fn the_first_of_the_three_clocks_ends_a_held_call() {
        let (now, soon) = (SystemTime::now(), Instant::now() + HOUR);
        let fresh = Deadline::new(now, HOUR, soon);
        let over = [
            Deadline {
                monotonic: Instant::now(),
                ..fresh
            },
            Deadline {
                boot: boot_time(),
                ..fresh
            },
            Deadline { wall: now, ..fresh },
        ];
        for until in over {
            let (desk, digest) = desk(until);
            assert!(desk.is_over() && desk.pending().is_empty());
            let refused = approve(&desk, digest).unwrap_err().to_string();
            assert!(refused.ends_with("its time is over"), "{refused}");
        }
        assert!(!desk(fresh).0.is_over());
    }

    #[test]
    fn a_late_answer_is_told_how_the_wait_ended_for_the_last_calls() {
        let fresh = || Deadline::new(SystemTime::now(), HOUR, Instant::now() + HOUR);
        let (desk, digest) = desk(fresh());
        approve(&desk, digest).unwrap();
        let twice = approve(&desk, digest).unwrap_err().to_string();
        assert!(twice.ends_with("it was approved"), "{twice}");
        assert!(desk.clear(None).is_some());
        let late = approve(&desk, digest).unwrap_err().to_string();
        assert!(late.ends_with("it was approved"), "{late}");
        for _ in 0..HOLDS_REMEMBERED_MAX {
            let (other, _) = super::tests::desk(fresh());
            let mut call = other.lock().call.clone().unwrap();
            call.held_id = "held-2".to_owned();
            desk.lock().call = Some(call);
            desk.clear(Some(HeldEnd::Withdrawn));
        }
        let forgotten = approve(&desk, digest).unwrap_err().to_string();
        assert!(forgotten.ends_with("none of late was"), "{forgotten}");
    }
}
