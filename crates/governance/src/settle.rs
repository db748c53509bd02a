//! From a worker that ended to a recorded outcome, and at most one published file.

use std::time::Duration;

use filegrants::{Kept, OutputTarget, PublishFailure};
use journal::limits::NAME_BYTES_MAX;
use journal::{
    CallJournal, CallSettled, JournalError, OutcomeFact, ParserFact, RunEnded, StreamFact,
    shortened,
};
use model::{CallId, Digest, OutputFormat};
use serde_json::Value;
use worker::{Descriptor, Ended, OutputFile, ParserEnd, RemovalError, WorkerGone, confirm_removal};

use crate::call::{CallIdentity, DispatchedCall};
use crate::mode_hint;
use crate::outcome::{CreatedFile, Lack, Outcome, StopCause, ToolOutput, is_contained, of_ending};
use crate::redaction::Secrets;
use crate::refusal::shorten;
use crate::result::ResultRefused;

/// A call with its outcome. Its record is still to be written: [`SettledCall::record`].
#[derive(Debug)]
pub struct SettledCall {
    identity: CallIdentity,
    outcome: Outcome,
    output: ToolOutput,
    /// What its output parser said and did.
    parsed: Option<ToolOutput>,
    value: Option<Value>,
    breaks_schema: bool,
    evidence_sha256: Option<Digest>,
    created_files: Vec<CreatedFile>,
    /// Whose removal is confirmed, in the order in which they ran.
    workers: Vec<String>,
    effect_happened: bool,
    lack: Option<Lack>,
    journal_failed: bool,
    journal: CallJournal,
}

/// A place in an output, such as the name of a field, can hold the value in any spelling.
const UNTOLD: &str = "an argument is sensitive, so where is not told";

impl DispatchedCall {
    /// Confirms that its workers are gone, reads its output, and publishes its file.
    #[must_use]
    pub fn settle(mut self, mut ended: Ended, stopped: Option<StopCause>) -> SettledCall {
        let gone = confirm_removal(&mut *self.running);
        let contained = is_contained(&self.descriptor);
        let output = ToolOutput::of(&mut ended);
        let mut settled = SettledCall {
            outcome: of_ending(&ended, stopped, contained),
            identity: self.identity,
            output,
            parsed: None,
            value: None,
            breaks_schema: false,
            evidence_sha256: None,
            created_files: Vec::new(),
            workers: Vec::new(),
            effect_happened: !contained,
            lack: None,
            journal_failed: false,
            journal: self.journal,
        };
        settled.add_mode_hint(&self.descriptor);
        settled.read_parser(&self.descriptor, ended.parser, contained);
        let all_gone = settled.check_removal(gone);
        settled.read_result(&self.descriptor);
        settled.keep_output();
        settled.mask();
        if let Some(target) = self.target {
            settled.publish(target, ended.output);
        }
        // Private copies may be there as long as the worker may.
        if let Some(charge) = self.charge.filter(|_| !all_gone) {
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
        lack: Option<Lack>,
    ) -> Self {
        Self {
            identity,
            outcome,
            output: ToolOutput::default(),
            parsed: None,
            value: None,
            breaks_schema: false,
            evidence_sha256: None,
            created_files: Vec::new(),
            workers: Vec::new(),
            effect_happened: false,
            lack,
            journal_failed: false,
            journal,
        }
    }

    /// A command with a parser has done well only where both have.
    fn read_parser(&mut self, descriptor: &Descriptor, parser: Option<ParserEnd>, contained: bool) {
        let wanted = matches!(descriptor, Descriptor::Command(it) if it.parser.is_some());
        let outcome = match parser {
            None if !wanted => return,
            None => Outcome::Failed {
                reason: "did not run".to_owned(),
            },
            Some(ParserEnd::NotStarted(error)) => Outcome::Failed {
                reason: shorten(&error.to_string()),
            },
            Some(ParserEnd::Ended(mut ended)) => {
                self.parsed = Some(ToolOutput::of(&mut ended));
                of_ending(&ended, None, contained)
            }
        };
        if self.outcome != Outcome::Succeeded {
            return;
        }
        let of_parser = |reason: String| shorten(&format!("its output parser: {reason}"));
        self.outcome = match outcome {
            Outcome::Failed { reason } | Outcome::NotStarted { reason } => Outcome::Failed {
                reason: of_parser(reason),
            },
            Outcome::Unconfirmed { reason } => Outcome::Unconfirmed {
                reason: of_parser(reason),
            },
            Outcome::Succeeded => Outcome::Succeeded,
        };
    }

    /// Every worker that ran must be gone, and must have been this call's.
    fn check_removal(&mut self, gone: Result<Vec<WorkerGone>, RemovalError>) -> bool {
        let ran = 1 + usize::from(self.parsed.is_some());
        let unconfirmed = match gone {
            Err(error) => Some(error.to_string()),
            Ok(gone) => {
                let own = self.identity.call_sha256;
                let strange = gone.iter().find(|gone| gone.call_digest() != own);
                let strange = strange.map(|it| {
                    let worker = shortened(it.worker(), NAME_BYTES_MAX);
                    format!("worker {worker} belonged to another call")
                });
                let names = gone.iter().map(|it| shortened(it.worker(), NAME_BYTES_MAX));
                self.workers = names.collect();
                let missing = (gone.len() != ran)
                    .then(|| format!("{ran} workers ran, and {} are gone", gone.len()));
                strange.or(missing)
            }
        };
        if let Some(reason) = &unconfirmed {
            self.workers.clear();
            let reason = shorten(reason);
            self.outcome = Outcome::Unconfirmed { reason };
        }
        unconfirmed.is_none()
    }

    /// A program that failed by itself may have needed the other create mode.
    fn add_mode_hint(&mut self, descriptor: &Descriptor) {
        let failed = self.output.exit_code.is_some_and(|code| code != 0);
        if let (true, Outcome::Failed { reason }) = (failed, &mut self.outcome)
            && let Some(hint) = mode_hint::of_failure(descriptor, &self.output.stderr)
        {
            *reason = shorten(&format!("{reason}; {hint}"));
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
        let output = match &self.parsed {
            Some(parsed) => &parsed.stdout,
            None => &self.output.stdout,
        };
        let format = command.output_format;
        let read = match &self.identity.result.reader {
            Some(reader) => reader.read(output),
            None if format == OutputFormat::Text => return,
            None => format.parse(output).map_err(|error| {
                let name = match format {
                    OutputFormat::Json => "JSON",
                    other => other.as_str(),
                };
                let reason =
                    format!("its output is not the {name} that its manifest promises: {error}");
                ResultRefused {
                    reason,
                    breaks_schema: false,
                }
            }),
        };
        match read {
            Ok(value) => self.value = Some(value),
            Err(refused) => {
                self.breaks_schema = refused.breaks_schema;
                let secrets = !self.identity.result.secrets.is_empty();
                let reason = match (secrets, refused.breaks_schema) {
                    (false, _) => shorten(&refused.reason),
                    (true, true) => format!("the output breaks its manifest's schema; {UNTOLD}"),
                    (true, false) => {
                        format!("its output is not what its manifest promises; {UNTOLD}")
                    }
                };
                self.outcome = Outcome::Failed { reason };
            }
        }
    }

    /// Keeps the whole output, good or bad, where the contract says so; what cannot be kept has
    /// failed, and publishes nothing.
    fn keep_output(&mut self) {
        if !self.identity.result.keeps_output {
            return;
        }
        let result = &self.identity.result;
        let stdout = &self.output.stdout;
        if Secrets::new(&result.secrets).are_in(stdout, self.output.was_cut()) {
            let note = "not kept: it repeats a sensitive value".to_owned();
            self.identity.notes.insert("evidence".to_owned(), note);
            return;
        }
        match self.journal.keep_output(stdout) {
            Ok(sha256) => self.evidence_sha256 = Some(sha256),
            Err(error) if self.outcome == Outcome::Succeeded => {
                let cause = std::error::Error::source(&error);
                let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
                self.outcome = Outcome::Failed {
                    reason: shorten(&format!("its output: {error}{cause}")),
                };
            }
            // The worse end stays, and the record has no evidence.
            Err(_) => {}
        }
    }

    /// From here on nothing that a sensitive value could be read or guessed from is left.
    fn mask(&mut self) {
        let secrets = Secrets::new(&self.identity.result.secrets);
        if secrets.is_empty() {
            return;
        }
        for output in [Some(&mut self.output), self.parsed.as_mut()]
            .into_iter()
            .flatten()
        {
            let cut = output.was_cut();
            output.stdout = secrets.out_of(&output.stdout, cut).into_owned();
            output.stderr = secrets.out_of(&output.stderr, cut).into_owned();
        }
        self.value = self.value.take().map(|value| secrets.out_of_value(value));
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
        let mut workers = self.workers.into_iter();
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
            worker: workers.next(),
            parser: self.parsed.as_ref().map(|parsed| ParserFact {
                exit_code: parsed.exit_code.map(i64::from),
                signal: parsed.signal.map(i64::from),
                limit: parsed.limit.map(str::to_owned),
                duration_us: micros(parsed.ran_for),
                stdout: stream_fact(&parsed.stdout),
                stderr: stream_fact(&parsed.stderr),
                worker: workers.next(),
            }),
            evidence_sha256: self.evidence_sha256,
            effect_happened: self.effect_happened,
        };
        let outcome = RecordedOutcome {
            id: self.identity.id,
            tool: self.identity.tool.to_string(),
            call_sha256: self.identity.call_sha256,
            outcome: self.outcome,
            output: self.output,
            parsed: self.parsed,
            breaks_schema: self.breaks_schema,
            evidence_sha256: self.evidence_sha256,
            created_files: self.created_files,
            value: self.value,
            shown_bytes_max: self.identity.result.shown_bytes_max,
            notes: self.identity.notes,
            argv: self.identity.argv,
            lack: self.lack,
            timings: Vec::new(),
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
    /// What its output parser said and did.
    pub parsed: Option<ToolOutput>,
    /// The output is of its format, and breaks the contract's schema.
    pub breaks_schema: bool,
    /// The whole standard output is kept beside the journal under this name.
    pub evidence_sha256: Option<Digest>,
    /// The output as its contract promises it, where that is more than text.
    pub value: Option<Value>,
    /// Where the contract shortens what is shown.
    pub shown_bytes_max: Option<u64>,
    pub created_files: Vec<CreatedFile>,
    pub argv: Vec<String>,
    /// Remarks of the preparation: values that were clamped.
    pub notes: std::collections::BTreeMap<String, String>,
    /// What the host lacked, where that kept the work from starting.
    pub lack: Option<Lack>,
    /// How long its steps took, in their order: whoever has a clock says so. Not recorded.
    pub timings: Vec<(&'static str, Duration)>,
}
