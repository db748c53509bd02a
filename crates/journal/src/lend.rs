//! One call's live audit authority: its digest, its room, and what it may record next.

use model::{Digest, RunId};

use crate::error::JournalError;
use crate::event::{
    CallSettled, CreatedFile, FilePublicationFinished, FilePublicationPrepared, OutcomeStatus,
    RunEnded,
};
use crate::journal::{Journal, Recorded};

/// The journal as one call has it, from before its dispatch to its outcome.
///
/// The order is: `CallDispatching` (through [`Journal::record`]), then at most one
/// `FilePublicationPrepared` with its `FilePublicationFinished`, then one `CallSettled`.
#[derive(Debug)]
pub struct CallJournal {
    journal: Journal,
    call: Digest,
    publication: Publication,
}

#[derive(Debug)]
enum Publication {
    None,
    /// The intent is recorded, or its append was attempted.
    Prepared,
    Refused,
    Confirmed(CreatedFile),
}

impl CallJournal {
    pub(crate) const fn new(journal: Journal, call: Digest) -> Self {
        Self {
            journal,
            call,
            publication: Publication::None,
        }
    }

    /// The call that this was lent to.
    #[must_use]
    pub const fn call_sha256(&self) -> Digest {
        self.call
    }

    #[must_use]
    pub fn run(&self) -> RunId {
        self.journal.run()
    }

    /// Whether a publication may rely on this journal: signed, on stable storage, not failed.
    #[must_use]
    pub fn publishes(&self) -> bool {
        self.journal.publishes()
    }

    /// Keeps an output whole, in the project's evidence; returns its name there.
    ///
    /// # Errors
    /// [`JournalError::Evidence`], also where there is no place for evidence.
    pub fn keep_output(&self, output: &[u8]) -> Result<Digest, JournalError> {
        self.journal.keep_output(output)
    }

    /// Records the intent of the call's one publication. The rename may follow, nothing else.
    ///
    /// # Errors
    /// [`JournalError`]; after `Store` or `Failed` the candidate must be kept.
    pub fn publication_prepared(
        &mut self,
        event: FilePublicationPrepared,
    ) -> Result<Recorded<FilePublicationPrepared>, JournalError> {
        const EVENT: &str = "FilePublicationPrepared";
        self.check_call(event.call_sha256)?;
        self.dispatched(EVENT)?;
        if !matches!(self.publication, Publication::None) {
            return out_of_order(EVENT, "the call has a publication already");
        }
        if self.journal.failed() {
            return Err(JournalError::Failed);
        }
        if !self.publishes() {
            return Err(JournalError::NotDurable);
        }
        let place = self
            .journal
            .append(|batch| batch.add(&event, Some(&self.call)));
        if matches!(place, Ok(_) | Err(JournalError::Store(_))) {
            self.publication = Publication::Prepared;
        }
        let place = place?;
        self.journal.published();
        Ok(self.journal.recorded(place, event))
    }

    /// Records what became of the publication that `prepared` announced.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn publication_finished(
        &mut self,
        prepared: &Recorded<FilePublicationPrepared>,
        event: FilePublicationFinished,
    ) -> Result<Recorded<FilePublicationFinished>, JournalError> {
        const EVENT: &str = "FilePublicationFinished";
        let intent = prepared.event();
        self.check_call(intent.call_sha256)?;
        if prepared.run() != self.run() || intent.publication_id != event.publication_id {
            return out_of_order(EVENT, "it names another publication than the prepared one");
        }
        if !matches!(self.publication, Publication::Prepared) {
            return out_of_order(EVENT, "no publication of the call is prepared");
        }
        let place = self
            .journal
            .append(|batch| batch.add(&event, Some(&self.call)))?;
        self.journal.published();
        self.publication = match event.confirmed {
            false => Publication::Refused,
            true => Publication::Confirmed(CreatedFile {
                path: intent.path.clone(),
                bytes: intent.bytes,
                sha256: intent.sha256,
            }),
        };
        Ok(self.journal.recorded(place, event))
    }

    /// Records the call's outcome, its last record.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn settle(self, event: CallSettled) -> Result<Recorded<CallSettled>, JournalError> {
        self.check_settled(&event)?;
        let place = self.journal.append(|batch| {
            let place = batch.add(&event, Some(&self.call))?;
            batch.settle(&self.call, is_unconfirmed(&event));
            Ok(place)
        })?;
        Ok(self.journal.recorded(place, event))
    }

    /// Records the outcome of a run's last call and the run's end, with one write and one sync.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn settle_and_end(
        self,
        event: CallSettled,
        end: RunEnded,
    ) -> Result<(Recorded<CallSettled>, Recorded<RunEnded>), JournalError> {
        self.check_settled(&event)?;
        let (a, b) = self.journal.append(|batch| {
            let a = batch.add(&event, Some(&self.call))?;
            batch.settle(&self.call, is_unconfirmed(&event));
            Ok((a, batch.add(&end, None)?))
        })?;
        Ok((
            self.journal.recorded(a, event),
            self.journal.recorded(b, end),
        ))
    }

    fn check_settled(&self, event: &CallSettled) -> Result<(), JournalError> {
        const EVENT: &str = "CallSettled";
        self.check_call(event.call_sha256)?;
        if self.dispatched(EVENT)? != event.dispatched_seq {
            return out_of_order(EVENT, "it names another pre-effect record than the call's");
        }
        let receipts = event.created_files.as_slice();
        match &self.publication {
            Publication::Prepared if !is_unconfirmed(event) => out_of_order(
                EVENT,
                "the publication's end is not recorded: unconfirmed only",
            ),
            Publication::Confirmed(file) if receipts != std::slice::from_ref(file) => {
                out_of_order(EVENT, "its receipt is not the confirmed publication's")
            }
            Publication::None | Publication::Refused | Publication::Prepared
                if !receipts.is_empty() =>
            {
                out_of_order(EVENT, "it has a receipt without a confirmed publication")
            }
            _ => Ok(()),
        }
    }

    fn check_call(&self, found: Digest) -> Result<(), JournalError> {
        match found == self.call {
            true => Ok(()),
            false => Err(JournalError::OtherCall {
                expected: self.call,
                found,
            }),
        }
    }

    fn dispatched(&self, event: &'static str) -> Result<u64, JournalError> {
        match self.journal.dispatched(&self.call)? {
            Some(seq) => Ok(seq),
            None => out_of_order(event, "the call has no pre-effect record"),
        }
    }
}

impl Drop for CallJournal {
    fn drop(&mut self) {
        self.journal.release(&self.call);
    }
}

fn is_unconfirmed(event: &CallSettled) -> bool {
    event.outcome.status == OutcomeStatus::Unconfirmed
}

fn out_of_order<T>(event: &'static str, reason: &'static str) -> Result<T, JournalError> {
    Err(JournalError::OutOfOrder { event, reason })
}
