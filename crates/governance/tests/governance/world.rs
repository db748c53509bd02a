//! A session's parts, ready to take one call through its steps.

use std::fs::File;
use std::os::fd::OwnedFd;

use filegrants::{Ceilings, FileBroker};
use governance::{
    ActionExecutor, BrokerToolCall, LoopState, PolicyQuestion, PreparedCall, ProposedCall,
    ReasoningPolicyGate, RecordedCall, Verdict,
};
use journal::{Event, Journal, PolicyNote, RunStarted, read_run};
use model::Digest;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::executor::InProcessExecutor;
use testkit::tier::FakeTier;

use crate::support::{FaultyStore, journal, started, state};

pub(crate) fn call(id: &str, tool: &str, arguments: Value) -> BrokerToolCall {
    BrokerToolCall {
        call_id: id.to_owned(),
        name: tool.to_owned(),
        arguments,
    }
}

pub(crate) fn note(id: &str) -> PolicyNote {
    PolicyNote {
        id: id.to_owned(),
        reason: None,
        advice: None,
    }
}

/// Answers always the same, and remembers what it was asked.
pub(crate) struct FixedGate {
    pub(crate) verdict: Verdict,
    /// Per question: the call, and the digest that counts as approved.
    pub(crate) asked: Vec<(Digest, Option<Digest>)>,
}

impl FixedGate {
    pub(crate) fn permits() -> Self {
        Self::saying(Verdict::Permit {
            policies: vec![note("permit-all")],
        })
    }

    pub(crate) fn saying(verdict: Verdict) -> Self {
        Self {
            verdict,
            asked: Vec::new(),
        }
    }
}

impl ReasoningPolicyGate for FixedGate {
    fn evaluate(&mut self, question: &PolicyQuestion<'_>) -> Verdict {
        let approved = question.approved_sha256();
        self.asked.push((question.call_sha256, approved));
        self.verdict.clone()
    }

    fn digest(&self) -> Digest {
        Digest::of(b"policy")
    }
}

pub(crate) struct World {
    folder: TempDir,
    pub(crate) store: FaultyStore,
    pub(crate) journal: Journal,
    pub(crate) first: Option<RunStarted>,
    pub(crate) state: LoopState,
    pub(crate) gate: FixedGate,
    pub(crate) tier: FakeTier,
    pub(crate) executor: InProcessExecutor,
}

impl Drop for World {
    fn drop(&mut self) {
        if self.journal.publishes() {
            testkit::journals::keep_bytes(&self.bytes(), crate::support::key().public());
        }
    }
}

impl World {
    /// With a signed journal on a store that says it is stable.
    pub(crate) fn new() -> Self {
        Self::with(FaultyStore::default(), true)
    }

    pub(crate) fn with(store: FaultyStore, signed: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["project", "project/out", "staging"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(folder.path().join("staging"), private).unwrap();
        let volumes = ["./out:/workspace/out:rw".to_owned()];
        let ceilings = Ceilings::parse(&volumes, "/workspace").unwrap();
        let project = OwnedFd::from(File::open(folder.path().join("project")).unwrap());
        let files = FileBroker::open(project, &folder.path().join("staging"), ceilings).unwrap();
        let journal = journal(&store, signed);
        let tier = FakeTier::new();
        Self {
            folder,
            state: state(&journal),
            first: Some(started()),
            journal,
            store,
            gate: FixedGate::permits(),
            executor: InProcessExecutor::new(tier.clone()).with_files(files),
            tier,
        }
    }

    /// Another run in the same project.
    pub(crate) fn renew(&mut self) {
        self.store = FaultyStore::default();
        self.journal = journal(&self.store, true);
        self.state = state(&self.journal);
        self.first = Some(started());
    }

    pub(crate) fn propose(&self, tool: &str, arguments: Value) -> ProposedCall {
        ProposedCall::parse(call("1", tool, arguments)).unwrap()
    }

    pub(crate) fn prepare(&mut self, tool: &str, arguments: Value) -> PreparedCall {
        let proposed = self.propose(tool, arguments);
        self.executor.prepare(proposed).unwrap()
    }

    pub(crate) fn prepare_create(&mut self, name: &str) -> PreparedCall {
        let arguments = json!({"path": format!("out/{name}"), "content": "text"});
        self.prepare(testkit::executor::CREATE, arguments)
    }

    pub(crate) fn record(&mut self, prepared: PreparedCall) -> RecordedCall {
        let approved = prepared.approval_not_needed().unwrap();
        let authorized = approved.authorize(&mut self.gate, &self.state).unwrap();
        authorized.record(&self.journal, &mut self.first).unwrap()
    }

    pub(crate) fn out(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.folder.path().join("project/out").join(name)).ok()
    }

    pub(crate) fn candidates(&self) -> usize {
        let folder = self.folder.path().join("project/out/.symbi-candidates");
        std::fs::read_dir(folder).map_or(0, Iterator::count)
    }

    /// What is in the journal's store.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.store.disk.lock().unwrap().bytes.clone()
    }

    /// All records, read and checked.
    pub(crate) fn events(&self) -> Vec<Event> {
        read_run(self.bytes().as_slice(), None, None)
            .map(|record| record.unwrap().event)
            .collect()
    }

    pub(crate) fn kinds(&self) -> Vec<&'static str> {
        self.events().iter().map(Event::kind).collect()
    }
}
