//! Events, journals and stores for the tests.

use std::io;
use std::sync::{Arc, Mutex};

use journal::*;
use model::{CallId, Canonical, Digest, PublicationId, RelativePath, RunId, ToolName};

pub(crate) fn key(n: u8) -> ProjectKey {
    ProjectKey::from_seed(&[n; 32])
}

pub(crate) fn digest(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}

pub(crate) fn started() -> RunStarted {
    RunStarted {
        version: "0.1.0".into(),
        project: "demo".into(),
        client: Client::Operator,
        tools: vec![ToolName::new("copy_csv").unwrap()],
        tool_set_sha256: digest("tools"),
        policy_sha256: digest("policy"),
        init_sha256: None,
        max_calls: 100,
        lifetime_ms: 1000,
        tool_time_ms: 1000,
    }
}

pub(crate) fn dispatching(call: &str) -> CallDispatching {
    CallDispatching {
        call_id: CallId::new(call).unwrap(),
        tool: ToolName::new("copy_csv").unwrap(),
        call_sha256: digest(call),
        descriptor: Canonical::of(&serde_json::json!({"argv": ["cp", "ä\u{1}"]})).unwrap(),
        policies: vec![PolicyNote {
            id: "p".into(),
            reason: None,
            advice: Some("é".into()),
        }],
        approval: None,
    }
}

pub(crate) fn prepared(call: &str) -> FilePublicationPrepared {
    FilePublicationPrepared {
        publication_id: PublicationId::new(),
        call_sha256: digest(call),
        path: RelativePath::new("out/b.csv").unwrap(),
        parent_path: "/tmp/out".into(),
        parent: FileIdentity {
            device: "1".into(),
            inode: "18446744073709551615".into(),
        },
        candidate: CandidateIdentity {
            name: "c".into(),
            device: "1".into(),
            inode: "2".into(),
        },
        target_name: "b.csv".into(),
        bytes: 3,
        sha256: digest("abc"),
    }
}

pub(crate) fn finished(prepared: &Recorded<FilePublicationPrepared>) -> FilePublicationFinished {
    let publication_id = prepared.event().publication_id;
    FilePublicationFinished {
        publication_id,
        confirmed: true,
        error: None,
    }
}

pub(crate) fn settled(call: &str, dispatched_seq: u64) -> CallSettled {
    let stream = StreamFact {
        bytes: 0,
        sha256: digest(""),
    };
    CallSettled {
        call_id: CallId::new(call).unwrap(),
        call_sha256: digest(call),
        dispatched_seq,
        outcome: OutcomeFact {
            status: OutcomeStatus::Succeeded,
            reason: None,
            exit_code: Some(0),
            signal: None,
            limit: None,
        },
        duration_us: 5000,
        stdout: stream.clone(),
        stderr: stream,
        created_files: Vec::new(),
        worker: Some("w1".into()),
        parser: None,
        evidence_sha256: None,
        effect_happened: true,
    }
}

pub(crate) fn receipt() -> CreatedFile {
    CreatedFile {
        path: RelativePath::new("out/b.csv").unwrap(),
        bytes: 3,
        sha256: digest("abc"),
    }
}

pub(crate) fn refused(reason: &str) -> CallRefused {
    CallRefused {
        call_id: CallId::new("r").unwrap(),
        tool: "x".into(),
        stage: Stage::Authorize,
        reason: reason.into(),
        advice: None,
        policies: Vec::new(),
        call_sha256: None,
        approval: None,
    }
}

pub(crate) fn requested(request: u64) -> InferenceRequested {
    InferenceRequested {
        request,
        route: "messages".into(),
        body_sha256: digest("q"),
        body_bytes: 1,
        reserved_output_tokens: 10,
    }
}

pub(crate) fn completed(request: u64) -> InferenceCompleted {
    InferenceCompleted {
        request,
        status: 200,
        body_sha256: digest("a"),
        body_bytes: 1,
        complete: true,
        reason: None,
    }
}

pub(crate) fn ended(completed: bool) -> RunEnded {
    RunEnded {
        completed,
        cause: None,
        calls: 1,
    }
}

pub(crate) fn custom() -> Custom {
    Custom {
        custom_kind: "note".into(),
        digest: digest("v"),
        value: "v".into(),
    }
}

pub(crate) fn memory(signer: &ProjectKey, run: RunId, principal: &str) -> (Journal, MemoryWriter) {
    let writer = MemoryWriter::new();
    let signer = Some(signer.signer());
    let journal = Journal::new(Box::new(writer.clone()), signer, run, principal.into());
    (journal, writer)
}

/// A store in memory that claims to be durable, and fails at one step.
#[derive(Clone, Default)]
pub(crate) struct Store {
    pub(crate) inner: Arc<Mutex<StoreState>>,
}

#[derive(Default)]
pub(crate) struct StoreState {
    pub(crate) bytes: Vec<u8>,
    pub(crate) durable: usize,
    pub(crate) steps: usize,
    pub(crate) fail_at: Option<(usize, Failure)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Nothing is written.
    Refused,
    /// Half of it is written.
    Short,
    /// All is written, and an error is told.
    After,
}

impl Store {
    pub(crate) fn failing(step: usize, failure: Failure) -> Self {
        let store = Self::default();
        store.inner.lock().unwrap().fail_at = Some((step, failure));
        store
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.inner.lock().unwrap().bytes.clone()
    }
}

impl StoreState {
    fn step(&mut self) -> Option<Failure> {
        self.steps += 1;
        self.fail_at
            .filter(|(step, _)| *step == self.steps - 1)
            .map(|(_, failure)| failure)
    }
}

impl JournalWriter for Store {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.inner.lock().unwrap();
        let failure = state.step();
        let kept = match failure {
            Some(Failure::Refused) => 0,
            Some(Failure::Short) => bytes.len() / 2,
            Some(Failure::After) | None => bytes.len(),
        };
        state.bytes.extend_from_slice(&bytes[..kept]);
        failure.map_or(Ok(()), |_| Err(io::Error::from(io::ErrorKind::StorageFull)))
    }

    fn make_durable(&mut self) -> io::Result<()> {
        let mut state = self.inner.lock().unwrap();
        if state.step().is_some() {
            return Err(io::Error::other("sync failed"));
        }
        state.durable = state.bytes.len();
        Ok(())
    }

    fn durability(&self) -> Durability {
        Durability::Storage
    }
}

pub(crate) fn durable(store: &Store, key: &ProjectKey, run: RunId) -> Journal {
    Journal::new(
        Box::new(store.clone()),
        Some(key.signer()),
        run,
        "operator".into(),
    )
}

/// A whole small run with one published file. Stops at the first error, and says how many
/// records were acknowledged.
pub(crate) fn whole_run(journal: &Journal) -> (u64, Result<(), JournalError>) {
    let mut acknowledged = 0;
    let outcome = run_steps(journal, &mut acknowledged);
    (acknowledged, outcome)
}

fn run_steps(journal: &Journal, acknowledged: &mut u64) -> Result<(), JournalError> {
    let mut lent = journal.lend(digest("c1"))?;
    let (_, dispatch) = journal.record2(started(), dispatching("c1"))?;
    *acknowledged += 2;
    let intent = lent.publication_prepared(prepared("c1"))?;
    *acknowledged += 1;
    let _ = lent.publication_finished(&intent, finished(&intent))?;
    *acknowledged += 1;
    let created_files = vec![receipt()];
    let settled = CallSettled {
        created_files,
        ..settled("c1", dispatch.seq())
    };
    let _ = lent.settle_and_end(settled, ended(true))?;
    *acknowledged += 2;
    Ok(())
}

/// The bytes of a small whole run.
pub(crate) fn small_run(key: &ProjectKey, run: RunId) -> Vec<u8> {
    let store = Store::default();
    whole_run(&durable(&store, key, run)).1.unwrap();
    store.bytes()
}

pub(crate) fn options(key: &ProjectKey) -> VerifyOptions {
    VerifyOptions {
        public_key: Some(key.public().clone()),
        ..VerifyOptions::default()
    }
}

pub(crate) fn verdict(bytes: &[u8], options: &VerifyOptions) -> Verdict {
    verify_run(bytes, options).unwrap().verdict
}
