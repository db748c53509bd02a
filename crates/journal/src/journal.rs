//! The journal of one run: sequence, tree, signature, room; the only maker of [`Recorded`].

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use model::{Digest, RunId};

use crate::error::JournalError;
use crate::event::{FieldError, Payload, Recordable};
use crate::evidence::Evidence;
use crate::key::{PublicKey, RunSigner};
use crate::lend::CallJournal;
use crate::limits::{PRINCIPAL_BYTES_MAX, RECORD_BYTES_MAX, RECORDED_VALUE_BYTES_MAX};
use crate::note::{Checkpoint, checkpoint_line};
use crate::record::Envelope;
use crate::state::State;
use crate::tree;
use crate::writer::{Durability, JournalWriter};

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
    on_publication: Option<Box<dyn Fn(Checkpoint) + Send>>,
    evidence: Option<Arc<Evidence>>,
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
            on_publication: None,
            evidence: None,
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
    /// need ([`crate::limits::CALL_RESERVED_BYTES`]). Comes before the call's `CallDispatching`, so
    /// that too little room is a refusal. Dropping the `CallJournal` gives the room back.
    ///
    /// # Errors
    /// [`JournalError::NoRoom`], or the journal takes no more records.
    pub fn lend(&self, call_sha256: Digest) -> Result<CallJournal, JournalError> {
        self.usable()?.state.lend(call_sha256)?;
        Ok(CallJournal::new(self.clone(), call_sha256))
    }

    /// From now on, events that start an effect are refused.
    pub fn mark_unconfirmed(&self) {
        if let Ok(mut inner) = self.shared.inner.lock() {
            inner.state.mark_unconfirmed();
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

    /// Calls `callback` with the head after each publication's intent and after its end. It
    /// must not wait.
    pub fn on_publication(&self, callback: impl Fn(Checkpoint) + Send + 'static) {
        if let Ok(mut inner) = self.usable() {
            inner.on_publication = Some(Box::new(callback));
        }
    }

    pub(crate) fn published(&self) {
        if let Ok(inner) = self.usable()
            && let Some(callback) = &inner.on_publication
        {
            callback(inner.state.checkpoint());
        }
    }

    /// From now on, values over [`crate::limits::RECORDED_VALUE_BYTES_MAX`] are kept there, and
    /// records have their hash.
    pub fn keep_evidence(&self, evidence: Evidence) {
        if let Ok(mut inner) = self.usable() {
            inner.evidence = Some(Arc::new(evidence));
        }
    }

    /// Whether there is a place for evidence.
    #[must_use]
    pub fn keeps_evidence(&self) -> bool {
        self.usable().is_ok_and(|inner| inner.evidence.is_some())
    }

    pub(crate) fn keep_output(&self, output: &[u8]) -> Result<Digest, JournalError> {
        let evidence = self.usable()?.evidence.clone();
        let Some(evidence) = evidence else {
            let error = io::Error::other("there is no place for evidence");
            return Err(JournalError::Evidence(error));
        };
        let kept = evidence.keep(output).map_err(io::Error::other);
        kept.map_err(JournalError::Evidence)
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
            evidence: inner.evidence.clone(),
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
        Ok(self.usable()?.state.dispatched(call))
    }

    /// Gives a call's reservation back. A dispatched call without an outcome is unconfirmed.
    pub(crate) fn release(&self, call: &Digest) {
        if let Ok(mut inner) = self.shared.inner.lock() {
            inner.state.release(call);
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
    evidence: Option<Arc<Evidence>>,
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
        let seq = self.state.seq();
        let envelope = Envelope {
            run: &self.shared.run,
            seq,
            principal: &self.shared.principal,
        };
        let reduced = self.reduced(event)?;
        let record = envelope
            .write(reduced.as_ref().unwrap_or(event))
            .map_err(JournalError::Encode)?;
        let record = record.as_str().as_bytes();
        if record.len() > RECORD_BYTES_MAX {
            let (bytes, max) = (record.len(), RECORD_BYTES_MAX);
            return Err(JournalError::RecordTooLarge { bytes, max });
        }
        let digest = tree::leaf(record);
        let head = self.state.push(digest);
        let signature = checkpoint_line(&self.shared.origin, &head, self.shared.signer.as_ref());
        let need = (record.len() + signature.len() + 2) as u64;
        self.state.take_room(rule, call, need, seq)?;
        self.bytes.reserve(record.len() + signature.len() + 2);
        for line in [record, signature.as_bytes()] {
            self.bytes.extend_from_slice(line);
            self.bytes.push(b'\n');
        }
        Ok(Place { seq, digest })
    }

    /// A call's last record gives back what is left of its reservation.
    pub(crate) fn settle(&mut self, call: &Digest, unconfirmed: bool) {
        self.state.settle(call, unconfirmed);
    }

    /// The event with its large value moved out to the evidence, if it has one.
    fn reduced<T: Payload>(&self, event: &T) -> Result<Option<T>, JournalError> {
        let large = event
            .large_value()
            .filter(|value| value.as_str().len() > RECORDED_VALUE_BYTES_MAX);
        let (Some(evidence), Some(value)) = (&self.evidence, large) else {
            return Ok(None);
        };
        let reference = evidence.reference(value).map_err(JournalError::Evidence)?;
        Ok(event.with_value(reference))
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
