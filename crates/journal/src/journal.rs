//! The journal of one run: sequence, tree, signature, room; the only maker of [`Recorded`].

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use model::json::CanonicalError;
use model::{Digest, RunId};

use crate::event::sealed::Rule;
use crate::event::{FieldError, Payload, Recordable};
use crate::key::{PublicKey, RunSigner};
use crate::lend::CallJournal;
use crate::limits::{
    CALL_RESERVED_BYTES, CALLS_LENT_MAX, INFERENCE_COMPLETED_BYTES_MAX, JOURNAL_BYTES_MAX,
    PRINCIPAL_BYTES_MAX, RECORD_BYTES_MAX, REQUESTS_OPEN_MAX, RUN_ENDED_BYTES_MAX,
};
use crate::note::{Checkpoint, checkpoint_line};
use crate::record::Envelope;
use crate::tree::{self, CompactRange};
use crate::writer::{Durability, JournalWriter};

/// Why an event was not recorded. Only `Store` and `Failed` are the end of the journal; all
/// others are refusals that wrote nothing.
#[derive(Debug)]
pub enum JournalError {
    /// This append or sync failed: nothing more will be recorded.
    Store(io::Error),
    /// An earlier append or sync failed.
    Failed,
    /// The run has its terminal record.
    Ended,
    /// The journal has too little room for the event and all that must still fit.
    NoRoom {
        need: u64,
        have: u64,
    },
    RecordTooLarge {
        bytes: usize,
        max: usize,
    },
    Field(FieldError),
    /// After an unconfirmed outcome nothing that starts an effect is recorded.
    EffectForbidden {
        event: &'static str,
    },
    /// The event is not legal now.
    OutOfOrder {
        event: &'static str,
        reason: &'static str,
    },
    /// The event names another call than the one that this journal was lent to.
    OtherCall {
        expected: Digest,
        found: Digest,
    },
    /// A publication needs a signed journal on stable storage.
    NotDurable,
    /// The event has no canonical form.
    Encode(CanonicalError),
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(_) => f.write_str("the journal could not be written"),
            Self::Failed => f.write_str("the journal failed earlier and takes no more records"),
            Self::Ended => f.write_str("the run has ended; its journal takes no more records"),
            Self::NoRoom { need, have } => write!(
                f,
                "the journal has {have} bytes left that are not reserved, and {need} are needed"
            ),
            Self::RecordTooLarge { bytes, max } => {
                write!(
                    f,
                    "the record has {bytes} bytes, more than the {max} allowed"
                )
            }
            Self::Field(error) => error.fmt(f),
            Self::EffectForbidden { event } => write!(
                f,
                "an earlier outcome is unconfirmed, so no `{event}` may follow it"
            ),
            Self::OutOfOrder { event, reason } => {
                write!(f, "a `{event}` record is not legal now: {reason}")
            }
            Self::OtherCall { expected, found } => {
                write!(
                    f,
                    "the record names call {found}, the journal was lent to {expected}"
                )
            }
            Self::NotDurable => {
                f.write_str("a publication needs a signed journal on stable storage")
            }
            Self::Encode(_) => f.write_str("the event cannot be written as a record"),
        }
    }
}

impl std::error::Error for JournalError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::Encode(error) => Some(error),
            _ => None,
        }
    }
}

/// Proof that `T` is in the journal, as durable as the journal is. Only an append makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Recorded<T> {
    run: RunId,
    seq: u64,
    digest: Digest,
    event: T,
}

impl<T> Recorded<T> {
    pub const fn event(&self) -> &T {
        &self.event
    }

    pub const fn run(&self) -> RunId {
        self.run
    }

    /// The record's number, from 0.
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    /// The record's leaf hash.
    pub const fn digest(&self) -> Digest {
        self.digest
    }
}

/// A run's journal. Clones are handles on the same one; their records are ordered by its lock.
#[derive(Clone)]
pub struct Journal {
    shared: Arc<Shared>,
}

struct Shared {
    run: RunId,
    principal: String,
    origin: String,
    signer: Option<RunSigner>,
    inner: Mutex<Inner>,
}

struct Inner {
    writer: Box<dyn JournalWriter>,
    state: State,
    failed: bool,
    on_failure: Vec<Box<dyn FnOnce() + Send>>,
}

/// Everything that an append changes; replaced as a whole once the append is durable.
#[derive(Clone, Default)]
struct State {
    range: CompactRange,
    bytes: u64,
    ended: bool,
    unconfirmed: bool,
    calls: Vec<LentCall>,
    requests: Vec<u64>,
}

/// A call that holds a reservation.
#[derive(Clone)]
struct LentCall {
    call: Digest,
    left: u64,
    dispatched: Option<u64>,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Journal({})", self.shared.run)
    }
}

impl Journal {
    /// The journal of `run`, which writes its records for `principal` to `writer`, empty now.
    #[must_use]
    pub fn new(
        writer: Box<dyn JournalWriter>,
        signer: Option<RunSigner>,
        run: RunId,
        principal: String,
    ) -> Self {
        let origin = origin(signer.as_ref().map(RunSigner::public), &run.to_string());
        let inner = Inner {
            writer,
            state: State::default(),
            failed: false,
            on_failure: Vec::new(),
        };
        let shared = Shared {
            run,
            principal,
            origin,
            signer,
            inner: Mutex::new(inner),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Records one event. It is durable when this returns.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn record<T: Recordable>(&self, event: T) -> Result<Recorded<T>, JournalError> {
        let place = self.append(|batch| batch.add(&event, None))?;
        Ok(self.recorded(place, event))
    }

    /// Records two events with one write and one sync: both, or neither is acknowledged.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn record2<A: Recordable, B: Recordable>(
        &self,
        first: A,
        second: B,
    ) -> Result<(Recorded<A>, Recorded<B>), JournalError> {
        let (a, b) =
            self.append(|batch| Ok((batch.add(&first, None)?, batch.add(&second, None)?)))?;
        Ok((self.recorded(a, first), self.recorded(b, second)))
    }

    /// Lends the journal to the call of this digest, with room for all records that it can still
    /// need ([`CALL_RESERVED_BYTES`]). Comes before the call's `CallDispatching`, so that too
    /// little room is a refusal. Dropping the `CallJournal` gives the room back.
    ///
    /// # Errors
    /// [`JournalError::NoRoom`], or the journal takes no more records.
    pub fn lend(&self, call_sha256: Digest) -> Result<CallJournal, JournalError> {
        const EVENT: &str = "CallDispatching";
        let mut inner = self.usable()?;
        let state = &mut inner.state;
        if state.ended {
            return Err(JournalError::Ended);
        }
        if state.unconfirmed {
            return Err(JournalError::EffectForbidden { event: EVENT });
        }
        let out_of_order = |reason| {
            Err(JournalError::OutOfOrder {
                event: EVENT,
                reason,
            })
        };
        if state.calls.iter().any(|lent| lent.call == call_sha256) {
            return out_of_order("the journal is lent to this call already");
        }
        if state.calls.len() >= CALLS_LENT_MAX {
            return out_of_order("the journal is lent to too many calls");
        }
        state.take_unreserved(CALL_RESERVED_BYTES)?;
        let left = CALL_RESERVED_BYTES;
        state.calls.push(LentCall {
            call: call_sha256,
            left,
            dispatched: None,
        });
        drop(inner);
        Ok(CallJournal::new(self.clone(), call_sha256))
    }

    /// From now on, events that start an effect are refused.
    pub fn mark_unconfirmed(&self) {
        if let Ok(mut inner) = self.shared.inner.lock() {
            inner.state.unconfirmed = true;
        }
    }

    /// Whether a publication may rely on this journal: signed, on stable storage, not failed.
    #[must_use]
    pub fn publishes(&self) -> bool {
        self.shared.signer.is_some()
            && self
                .usable()
                .is_ok_and(|inner| inner.writer.durability() == Durability::Storage)
    }

    /// Whether an append or sync failed.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.usable().is_err()
    }

    /// Calls `callback` once, when an append or sync fails (at once, if one did).
    pub fn on_failure(&self, callback: impl FnOnce() + Send + 'static) {
        match self.usable() {
            Ok(mut inner) => inner.on_failure.push(Box::new(callback)),
            Err(_) => callback(),
        }
    }

    /// The head of what is recorded so far.
    ///
    /// # Errors
    /// [`JournalError::Failed`]: what a failed journal holds is not known.
    pub fn checkpoint(&self) -> Result<Checkpoint, JournalError> {
        Ok(self.usable()?.state.checkpoint())
    }

    #[must_use]
    pub fn run(&self) -> RunId {
        self.shared.run
    }

    #[must_use]
    pub fn principal(&self) -> &str {
        &self.shared.principal
    }

    fn usable(&self) -> Result<MutexGuard<'_, Inner>, JournalError> {
        match self.shared.inner.lock() {
            Ok(inner) if !inner.failed => Ok(inner),
            _ => Err(JournalError::Failed),
        }
    }

    pub(crate) fn recorded<T>(&self, place: Place, event: T) -> Recorded<T> {
        Recorded {
            run: self.shared.run,
            seq: place.seq,
            digest: place.digest,
            event,
        }
    }

    /// Builds a batch on a copy of the state, writes it once, syncs it once, keeps the state.
    pub(crate) fn append<R>(
        &self,
        build: impl FnOnce(&mut Batch<'_>) -> Result<R, JournalError>,
    ) -> Result<R, JournalError> {
        let mut inner = self.usable()?;
        let state = inner.state.clone();
        let mut batch = Batch {
            shared: &self.shared,
            state,
            bytes: Vec::new(),
        };
        let places = build(&mut batch)?;
        let Batch { state, bytes, .. } = batch;
        let stored = inner
            .writer
            .append(&bytes)
            .and_then(|()| inner.writer.make_durable());
        match stored {
            Ok(()) => {
                inner.state = state;
                Ok(places)
            }
            Err(error) => {
                inner.failed = true;
                let callbacks = std::mem::take(&mut inner.on_failure);
                drop(inner);
                callbacks.into_iter().for_each(|callback| callback());
                Err(JournalError::Store(error))
            }
        }
    }

    /// The sequence number of a lent call's pre-effect record.
    pub(crate) fn dispatched(&self, call: &Digest) -> Result<Option<u64>, JournalError> {
        let inner = self.usable()?;
        Ok(inner
            .state
            .calls
            .iter()
            .find(|lent| lent.call == *call)
            .and_then(|l| l.dispatched))
    }

    /// Gives a call's reservation back. A dispatched call without an outcome is unconfirmed.
    pub(crate) fn release(&self, call: &Digest) {
        if let Ok(mut inner) = self.shared.inner.lock() {
            let state = &mut inner.state;
            state.unconfirmed |= state
                .calls
                .iter()
                .any(|lent| lent.call == *call && lent.runs());
            state.calls.retain(|lent| lent.call != *call);
        }
    }
}

/// `<key name>/<what>`; `unsigned/<what>` where nobody signs.
pub(crate) fn origin(key: Option<&PublicKey>, what: &str) -> String {
    format!("{}/{what}", key.map_or("unsigned", PublicKey::name))
}

/// Where an event went.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    seq: u64,
    digest: Digest,
}

/// Records that will be written together.
pub(crate) struct Batch<'a> {
    shared: &'a Shared,
    state: State,
    bytes: Vec<u8>,
}

impl Batch<'_> {
    /// Adds one event; `call` is the lent call that it belongs to.
    pub(crate) fn add<T: Payload>(
        &mut self,
        event: &T,
        call: Option<&Digest>,
    ) -> Result<Place, JournalError> {
        event.check().map_err(JournalError::Field)?;
        self.check_principal::<T>()?;
        let rule = event.rule();
        self.state.check_order(T::KIND, rule)?;
        let seq = self.state.range.size();
        let envelope = Envelope {
            run: &self.shared.run,
            seq,
            principal: &self.shared.principal,
        };
        let record = envelope.write(event).map_err(JournalError::Encode)?;
        let record = record.as_str().as_bytes();
        if record.len() > RECORD_BYTES_MAX {
            let (bytes, max) = (record.len(), RECORD_BYTES_MAX);
            return Err(JournalError::RecordTooLarge { bytes, max });
        }
        let digest = tree::leaf(record);
        self.state.range.push(digest);
        let head = self.state.checkpoint();
        let signature = checkpoint_line(&self.shared.origin, &head, self.shared.signer.as_ref());
        let need = (record.len() + signature.len() + 2) as u64;
        self.state.take_room(rule, call, need, seq)?;
        self.state.bytes += need;
        self.bytes.reserve(record.len() + signature.len() + 2);
        for line in [record, signature.as_bytes()] {
            self.bytes.extend_from_slice(line);
            self.bytes.push(b'\n');
        }
        Ok(Place { seq, digest })
    }

    /// A call's last record gives back what is left of its reservation.
    pub(crate) fn settle(&mut self, call: &Digest, unconfirmed: bool) {
        self.state.calls.retain(|lent| lent.call != *call);
        self.state.unconfirmed |= unconfirmed;
    }

    fn check_principal<T: Payload>(&self) -> Result<(), JournalError> {
        let (value, max) = (
            self.shared.principal.len() as u64,
            PRINCIPAL_BYTES_MAX as u64,
        );
        match value <= max {
            true => Ok(()),
            false => Err(JournalError::Field(FieldError {
                event: T::KIND,
                field: "principal",
                value,
                max,
            })),
        }
    }
}

impl State {
    fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            size: self.range.size(),
            root: self.range.root(),
        }
    }

    fn check_order(&self, event: &'static str, rule: Rule) -> Result<(), JournalError> {
        if self.ended {
            return Err(JournalError::Ended);
        }
        let out_of_order = |reason| Err(JournalError::OutOfOrder { event, reason });
        let effect = matches!(
            rule,
            Rule::Dispatch { .. } | Rule::Publish | Rule::Request { .. }
        );
        if self.unconfirmed && effect {
            return Err(JournalError::EffectForbidden { event });
        }
        let empty = self.range.size() == 0;
        match rule {
            Rule::First if !empty => out_of_order("the run has started"),
            Rule::First => Ok(()),
            _ if empty => out_of_order("a run's first record is its start"),
            Rule::Dispatch { call } => match self.calls.iter().find(|lent| lent.call == call) {
                None => out_of_order("the journal is not lent to this call"),
                Some(lent) if lent.dispatched.is_some() => {
                    out_of_order("the call is dispatched already")
                }
                Some(_) => Ok(()),
            },
            Rule::Request { request } if self.requests.contains(&request) => {
                out_of_order("the request has no answer yet")
            }
            Rule::Request { .. } if self.requests.len() >= REQUESTS_OPEN_MAX => {
                out_of_order("too many requests have no answer yet")
            }
            Rule::Answer { request } if !self.requests.contains(&request) => {
                out_of_order("no such request waits for an answer")
            }
            Rule::Last { completed: true } if self.unconfirmed => {
                out_of_order("a run with an unconfirmed outcome did not complete")
            }
            Rule::Last { completed: true } if self.calls.iter().any(LentCall::runs) => {
                out_of_order("a dispatched call has no outcome yet")
            }
            _ => Ok(()),
        }
    }

    /// Takes an event's room from where it was reserved, or from what nobody reserved.
    fn take_room(
        &mut self,
        rule: Rule,
        call: Option<&Digest>,
        need: u64,
        seq: u64,
    ) -> Result<(), JournalError> {
        match rule {
            Rule::Last { .. } => {
                take(&mut (RUN_ENDED_BYTES_MAX as u64), need)?;
                self.ended = true;
            }
            Rule::OfCall | Rule::Publish => {
                let lent = self.calls.iter_mut().find(|lent| Some(&lent.call) == call);
                take(lent.map_or(&mut 0, |lent| &mut lent.left), need)?;
            }
            Rule::Answer { request } => {
                take(&mut (INFERENCE_COMPLETED_BYTES_MAX as u64), need)?;
                self.requests.retain(|open| *open != request);
            }
            Rule::Request { request } => {
                self.take_unreserved(need + INFERENCE_COMPLETED_BYTES_MAX as u64)?;
                self.requests.push(request);
            }
            Rule::Dispatch { call } => {
                self.take_unreserved(need)?;
                if let Some(lent) = self.calls.iter_mut().find(|lent| lent.call == call) {
                    lent.dispatched = Some(seq);
                }
            }
            Rule::First | Rule::Anytime => self.take_unreserved(need)?,
        }
        Ok(())
    }

    fn take_unreserved(&self, need: u64) -> Result<(), JournalError> {
        let calls: u64 = self.calls.iter().map(|lent| lent.left).sum();
        let answers = (self.requests.len() * INFERENCE_COMPLETED_BYTES_MAX) as u64;
        let reserved = calls + answers + RUN_ENDED_BYTES_MAX as u64;
        let mut have = JOURNAL_BYTES_MAX.saturating_sub(self.bytes + reserved);
        take(&mut have, need)
    }
}

impl LentCall {
    const fn runs(&self) -> bool {
        self.dispatched.is_some()
    }
}

fn take(have: &mut u64, need: u64) -> Result<(), JournalError> {
    match have.checked_sub(need) {
        Some(left) => {
            *have = left;
            Ok(())
        }
        None => Err(JournalError::NoRoom { need, have: *have }),
    }
}
