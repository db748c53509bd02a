//! From a worker that ended to a recorded outcome, and at most one published file.

use std::time::Duration;

use filegrants::{Kept, OutputTarget, PublishFailure};
use journal::limits::NAME_BYTES_MAX;
use journal::{
    CallJournal, CallSettled, JournalError, OutcomeFact, RunEnded, StreamFact, shortened,
};
use model::{CallId, Digest, OutputFormat};
use serde_json::Value;
use worker::{Descriptor, Ended, OutputFile, confirm_removal};

use crate::call::{CallIdentity, DispatchedCall};
use crate::outcome::{CreatedFile, Outcome, StopCause, ToolOutput, is_contained, of_ending};
use crate::refusal::shorten;

/// A call with its outcome. Its record is still to be written: [`SettledCall::record`].
#[derive(Debug)]
pub struct SettledCall {
    identity: CallIdentity,
    outcome: Outcome,
    output: ToolOutput,
    value: Option<Value>,
    created_files: Vec<CreatedFile>,
    worker: Option<String>,
    effect_happened: bool,
    unavailable: bool,
    journal_failed: bool,
    journal: CallJournal,
}

impl DispatchedCall {
    /// Confirms that the worker is gone, reads its output, and publishes its file.
    #[must_use]
    pub fn settle(mut self, mut ended: Ended, stopped: Option<StopCause>) -> SettledCall {
        let gone = confirm_removal(&mut *self.running, self.identity.call_sha256);
        let output = ToolOutput::of(&mut ended);
        let contained = is_contained(&self.descriptor);
        let mut settled = SettledCall {
            outcome: of_ending(&ended, stopped, contained),
            identity: self.identity,
            output,
            value: None,
            created_files: Vec::new(),
            worker: None,
            effect_happened: !contained,
            unavailable: false,
            journal_failed: false,
            journal: self.journal,
        };
        match gone {
            Ok(gone) if gone.call_digest() == settled.identity.call_sha256 => {
                settled.worker = Some(shortened(gone.worker(), NAME_BYTES_MAX));
            }
            Ok(gone) => {
                let reason = format!("worker {} belonged to another call", gone.worker());
                settled.outcome = Outcome::Unconfirmed { reason };
            }
            Err(error) => {
                settled.outcome = Outcome::Unconfirmed {
                    reason: shorten(&error.to_string()),
                }
            }
        }
        settled.read_result(&self.descriptor);
        if let Some(target) = self.target {
            settled.publish(target, ended.output);
        }
        // Private copies may be there as long as the worker may.
        if let Some(charge) = self.charge.filter(|_| settled.worker.is_none()) {
            charge.keep();
        }
        settled
    }
}

impl SettledCall {
    pub(crate) fn not_started(
        identity: CallIdentity,
        outcome: Outcome,
        journal: CallJournal,
        unavailable: bool,
    ) -> Self {
        Self {
            identity,
            outcome,
            output: ToolOutput::default(),
            value: None,
            created_files: Vec::new(),
            worker: None,
            effect_happened: false,
            unavailable,
            journal_failed: false,
            journal,
        }
    }

    /// Reads a successful output as its contract promises it; one that is not has failed.
    fn read_result(&mut self, descriptor: &Descriptor) {
        let Descriptor::Command(command) = descriptor else {
            return;
        };
        if self.outcome != Outcome::Succeeded {
            return;
        }
        let stdout = &self.output.stdout;
        let format = command.output_format;
        let read = match &self.identity.result.reader {
            Some(reader) => reader.read(stdout).map_err(|refused| refused.to_string()),
            None if format == OutputFormat::Text => return,
            None => format.parse(stdout).map_err(|error| {
                let name = match format {
                    OutputFormat::Json => "JSON",
                    other => other.as_str(),
                };
                format!("its output is not the {name} that its manifest promises: {error}")
            }),
        };
        match read {
            Ok(value) => self.value = Some(value),
            Err(reason) => {
                self.outcome = Outcome::Failed {
                    reason: shorten(&reason),
                };
            }
        }
    }

    /// Publishes after success and confirmed removal; otherwise the target is dropped, which
    /// leaves nothing behind.
    fn publish(&mut self, target: OutputTarget, written: OutputFile) {
        if self.outcome != Outcome::Succeeded {
            return;
        }
        let (mut file, bytes) = match written {
            OutputFile::Written { file, bytes } => (file, bytes),
            OutputFile::Unusable { reason } => {
                self.outcome = Outcome::Failed { reason };
                return;
            }
            OutputFile::NotGranted => {
                let reason = "the worker handed back no output file".to_owned();
                self.outcome = Outcome::Failed { reason };
                return;
            }
        };
        match target.publish(
            &mut file,
            bytes,
            self.identity.call_sha256,
            &mut self.journal,
        ) {
            Ok(created) => {
                self.created_files.push(created);
                self.effect_happened = true;
            }
            Err(failure) => self.publication_failed(&failure),
        }
    }

    fn publication_failed(&mut self, failure: &PublishFailure) {
        let reason = shorten(&failure.to_string());
        self.effect_happened |= matches!(
            failure,
            PublishFailure::Unconfirmed {
                kept: Kept::Published,
                ..
            } | PublishFailure::Journal {
                kept: Kept::Published,
                ..
            }
        );
        self.journal_failed = matches!(failure, PublishFailure::Journal { .. });
        self.outcome = match failure {
            PublishFailure::NotPublished { .. } => Outcome::Failed { reason },
            PublishFailure::Unconfirmed { .. } | PublishFailure::Journal { .. } => {
                Outcome::Unconfirmed { reason }
            }
        };
    }

    #[must_use]
    pub const fn id(&self) -> &CallId {
        &self.identity.id
    }

    #[must_use]
    pub fn tool(&self) -> &str {
        self.identity.tool.as_str()
    }

    #[must_use]
    pub const fn call_sha256(&self) -> Digest {
        self.identity.call_sha256
    }

    #[must_use]
    pub const fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// The journal failed during publication: the session must end.
    #[must_use]
    pub const fn journal_failed(&self) -> bool {
        self.journal_failed
    }

    /// Writes the outcome's record.
    ///
    /// # Errors
    /// [`JournalError`]: the outcome is known, but not on disk.
    pub fn record(self) -> Result<RecordedOutcome, Box<(RecordedOutcome, JournalError)>> {
        self.finish(None)
    }

    /// Writes the outcome's record and the run's terminal one in a single write.
    ///
    /// # Errors
    /// [`JournalError`]: the outcome is known, but not on disk.
    pub fn record_and_end(
        self,
        end: RunEnded,
    ) -> Result<RecordedOutcome, Box<(RecordedOutcome, JournalError)>> {
        self.finish(Some(end))
    }

    fn finish(
        self,
        end: Option<RunEnded>,
    ) -> Result<RecordedOutcome, Box<(RecordedOutcome, JournalError)>> {
        let event = CallSettled {
            call_id: self.identity.id.clone(),
            call_sha256: self.identity.call_sha256,
            dispatched_seq: self.identity.seq,
            outcome: OutcomeFact {
                status: self.outcome.status(),
                reason: self.outcome.reason().map(shorten),
                exit_code: self.output.exit_code.map(i64::from),
                signal: self.output.signal.map(i64::from),
                limit: self.output.limit.map(str::to_owned),
            },
            duration_us: micros(self.output.ran_for),
            stdout: stream_fact(&self.output.stdout),
            stderr: stream_fact(&self.output.stderr),
            created_files: self.created_files.iter().map(created_fact).collect(),
            worker: self.worker,
            effect_happened: self.effect_happened,
        };
        let outcome = RecordedOutcome {
            id: self.identity.id,
            tool: self.identity.tool.to_string(),
            call_sha256: self.identity.call_sha256,
            outcome: self.outcome,
            output: self.output,
            created_files: self.created_files,
            value: self.value,
            shown_bytes_max: self.identity.result.shown_bytes_max,
            notes: self.identity.notes,
            argv: self.identity.argv,
            unavailable: self.unavailable,
        };
        let written = match end {
            None => self.journal.settle(event).map(drop),
            Some(end) => self.journal.settle_and_end(event, end).map(drop),
        };
        match written {
            Ok(_) => Ok(outcome),
            Err(error) => Err(Box::new((outcome, error))),
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros())
        .unwrap_or(u64::MAX)
        .min(1 << 52)
}

fn stream_fact(bytes: &[u8]) -> StreamFact {
    StreamFact {
        bytes: bytes.len() as u64,
        sha256: Digest::of(bytes),
    }
}

fn created_fact(created: &CreatedFile) -> journal::CreatedFile {
    journal::CreatedFile {
        path: created.path.clone(),
        bytes: created.bytes,
        sha256: created.sha256,
    }
}

/// A call's end, for whoever asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedOutcome {
    pub id: CallId,
    pub tool: String,
    pub call_sha256: Digest,
    pub outcome: Outcome,
    pub output: ToolOutput,
    /// The output as its contract promises it, where that is more than text.
    pub value: Option<Value>,
    /// Where the contract shortens what is shown.
    pub shown_bytes_max: Option<u64>,
    pub created_files: Vec<CreatedFile>,
    pub argv: Vec<String>,
    /// Remarks of the preparation: values that were clamped.
    pub notes: std::collections::BTreeMap<String, String>,
    /// It did not start because the isolation is not available, or could not be set up.
    pub unavailable: bool,
}
