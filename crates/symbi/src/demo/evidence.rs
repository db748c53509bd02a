//! What happened, read back from the verified journal.

use std::path::PathBuf;

use journal::{
    CallSettled, CreatedFile, Event, OutcomeStatus, PolicyNote, Record, Report, Stage,
    VerifyOptions, journal_path, ledger_path, read_run, verify_file,
};
use model::{Digest, RunId};
use serde_json::Value;

use crate::commands::audit::{ledger_run, own_key};
use crate::exit::{Exit, Failure};
use crate::open::OpenProject;

/// How one call ended.
#[derive(Debug, Clone)]
pub(crate) enum CallEnd {
    Refused {
        stage: Stage,
        reason: String,
    },
    Settled {
        status: OutcomeStatus,
        reason: Option<String>,
        millis: f64,
        created: Vec<CreatedFile>,
        /// The worker whose removal was confirmed.
        worker: Option<String>,
    },
    /// Withdrawn, or without an end.
    Open,
}

/// One call as the journal tells it.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) tool: String,
    pub(crate) policies: Vec<PolicyNote>,
    /// The descriptor of what ran; null for a refused call.
    pub(crate) descriptor: Value,
    pub(crate) end: CallEnd,
    pub(crate) digest: Option<Digest>,
}

/// The whole run.
#[derive(Debug)]
pub(crate) struct Evidence {
    pub(crate) report: Report,
    pub(crate) in_ledger: bool,
    pub(crate) vkey: String,
    pub(crate) path: PathBuf,
    pub(crate) launch: Option<Call>,
    /// In the order of their first records, without the launch.
    pub(crate) calls: Vec<Call>,
    /// Model requests that were recorded, and those of them that were answered whole.
    pub(crate) requests: (usize, usize),
    /// All records name this principal and no other.
    pub(crate) principals: Vec<String>,
    pub(crate) contained: bool,
    pub(crate) completed: bool,
    /// Bytes of journal and ledger.
    pub(crate) bytes: Vec<u8>,
}

impl Evidence {
    /// Verifies and reads the journal of `run` with the project's key and its ledger.
    pub(crate) fn gather(open: &OpenProject, run: RunId) -> Result<Self, Failure> {
        let key = own_key(open)?;
        let state = open.project.path().join(project::STATE_FOLDER);
        let path = journal_path(&state, run);
        let unreadable = |error: &dyn std::fmt::Display| {
            let path = path.display();
            Failure::new(
                Exit::Storage,
                format!("the journal `{path}` cannot be read: {error}"),
            )
        };
        let ledger = ledger_run(open, run, &key)?;
        let in_ledger = ledger.as_ref().is_some_and(|run| run.ended.is_some());
        let options = VerifyOptions {
            public_key: Some(key.clone()),
            run: Some(run),
            ledger,
            ..VerifyOptions::default()
        };
        let report = verify_file(&path, &options).map_err(|error| unreadable(&error))?;
        let mut bytes = std::fs::read(&path).map_err(|error| unreadable(&error))?;
        let mut evidence = Self {
            report,
            in_ledger,
            vkey: key.vkey(),
            launch: None,
            calls: Vec::new(),
            requests: (0, 0),
            principals: Vec::new(),
            contained: false,
            completed: false,
            bytes: Vec::new(),
            path: path.clone(),
        };
        for record in read_run(bytes.as_slice(), Some(run), Some(&key)) {
            evidence.take(record.map_err(|error| unreadable(&error))?);
        }
        if let Ok(ledger) = std::fs::read(ledger_path(&state)) {
            bytes.extend(ledger);
        }
        evidence.bytes = bytes;
        Ok(evidence)
    }

    fn take(&mut self, record: Record) {
        if !self.principals.contains(&record.principal) {
            self.principals.push(record.principal);
        }
        match record.event {
            Event::RunStarted(it) => self.contained = it.client == journal::Client::Contained,
            Event::CallRefused(it) => self.calls.push(Call {
                id: it.call_id.to_string(),
                tool: it.tool,
                policies: it.policies,
                descriptor: Value::Null,
                end: CallEnd::Refused {
                    stage: it.stage,
                    reason: it.reason,
                },
                digest: None,
            }),
            Event::CallWithdrawn(it) => self.calls.push(Call {
                id: it.call_id.to_string(),
                tool: it.tool,
                policies: Vec::new(),
                descriptor: Value::Null,
                end: CallEnd::Open,
                digest: None,
            }),
            Event::CallDispatching(it) => self.dispatched(it),
            Event::CallSettled(it) => self.settled(it),
            Event::InferenceRequested(_) => self.requests.0 += 1,
            Event::InferenceCompleted(it) if it.complete => self.requests.1 += 1,
            Event::RunEnded(it) => self.completed = it.completed,
            Event::InferenceCompleted(_)
            | Event::AnswerRefused(_)
            | Event::FilePublicationPrepared(_)
            | Event::FilePublicationFinished(_)
            | Event::Custom(_) => {}
        }
    }

    fn dispatched(&mut self, dispatching: journal::CallDispatching) {
        let call = Call {
            id: dispatching.call_id.to_string(),
            tool: dispatching.tool.to_string(),
            policies: dispatching.policies,
            descriptor: dispatching.descriptor.to_value(),
            end: CallEnd::Open,
            digest: Some(dispatching.call_sha256),
        };
        if call.descriptor.get("kind").and_then(Value::as_str) == Some("launch") {
            self.launch = Some(call);
        } else {
            self.calls.push(call);
        }
    }

    fn settled(&mut self, settled: CallSettled) {
        let calls = self.calls.iter_mut().chain(self.launch.as_mut());
        let call = calls.into_iter().find(|call| {
            call.digest == Some(settled.call_sha256) && call.id == settled.call_id.as_str()
        });
        if let Some(call) = call {
            call.end = CallEnd::Settled {
                status: settled.outcome.status,
                reason: settled.outcome.reason,
                millis: settled.duration_us as f64 / 1000.0,
                created: settled.created_files,
                worker: settled.worker,
            };
        }
    }

    /// The receipt of the one published file.
    pub(crate) fn receipts(&self) -> Vec<&CreatedFile> {
        let created = self.calls.iter().filter_map(|call| match &call.end {
            CallEnd::Settled { created, .. } => Some(created),
            CallEnd::Refused { .. } | CallEnd::Open => None,
        });
        created.flatten().collect()
    }

    /// Calls whose worker's removal was not confirmed, the launch included.
    pub(crate) fn unremoved(&self) -> Vec<&str> {
        let all = self.calls.iter().chain(self.launch.as_ref());
        all.filter(|call| match &call.end {
            CallEnd::Settled { worker, .. } => worker.is_none(),
            CallEnd::Refused { .. } => false,
            CallEnd::Open => true,
        })
        .map(|call| call.id.as_str())
        .collect()
    }
}
