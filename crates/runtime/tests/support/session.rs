//! A session with its journal, and how tests speak with it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use governance::{
    ActionExecutor, Approver, BrokerToolCall, EndCause, LoopConfig, LoopState, Outcome,
    ReasoningPolicyGate as _, RecordedOutcome, Refusal,
};
use journal::{Client, Durability, Journal, JournalWriter, MemoryWriter, RunFiles};
use model::{AgentName, Digest, RunId};
use sandbox::{ContainerTier, NamespaceConfig, NamespaceTier, ProgramCache};
use serde_json::Value;
use symbi_runtime::LedgerRegister;
use symbi_runtime::reasoning::governed_session::{
    Answer, Approvals, GovernedToolSession, HeldCall, LaunchEnd, RegisterError, RunObserver,
    RunRegister, SessionParts, SessionStartError,
};
use symbi_runtime::tools::{BoundarySettings, LaunchPlan, ToolExecutor, worker_environment};
use testkit::tier::{FakeTier, Happened};
use worker::{
    CommandBoundary, Filesystem, LaunchDescriptor, Limits, Network, ProgramIdentity, Tier,
    TierKind, WorkerRoot,
};

use super::project::{PERMIT_ALL, Project, boundary};
use super::{PATIENCE, TESTER, until};

/// What a session is made of; tests change what they are about.
pub struct Setup {
    pub policies: String,
    pub trusted: BTreeMap<String, String>,
    pub config: LoopConfig,
    pub approvals: Approvals,
    pub tier: Option<Box<dyn Tier>>,
    pub boundary: BoundarySettings,
    pub executor: Option<Box<dyn ActionExecutor>>,
    pub writer: Option<Box<dyn JournalWriter>>,
    pub register: Option<Box<dyn RunRegister>>,
    pub launch: Option<LaunchPlan>,
    pub one_shot: bool,
    pub observer: Option<Arc<dyn RunObserver>>,
    /// Manifests besides the usual ones.
    pub manifests: Vec<(&'static str, String)>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            policies: PERMIT_ALL.to_owned(),
            trusted: BTreeMap::new(),
            config: LoopConfig::default(),
            approvals: Approvals::Desk,
            tier: None,
            boundary: boundary(),
            executor: None,
            writer: None,
            register: None,
            launch: None,
            one_shot: false,
            observer: None,
            manifests: Vec::new(),
        }
    }
}

/// A running session in its project.
pub struct Governed {
    pub project: Project,
    pub tier: FakeTier,
    pub session: GovernedToolSession,
    pub journal: Journal,
    pub run: RunId,
    memory: MemoryWriter,
    in_memory: bool,
}

impl Setup {
    pub fn policies(mut self, text: &str) -> Self {
        self.policies = text.to_owned();
        self
    }

    pub fn trusted(mut self, key: &str, value: &str) -> Self {
        self.trusted.insert(key.to_owned(), value.to_owned());
        self
    }

    pub fn calls(mut self, max: u64) -> Self {
        self.config.max_calls = max;
        self
    }

    pub fn lifetime(mut self, lifetime: Duration) -> Self {
        self.config.lifetime = lifetime;
        self
    }

    pub fn tool_time(mut self, limit: Duration) -> Self {
        self.config.tool_time_limit = limit;
        self
    }

    pub fn approval_time(mut self, timeout: Duration) -> Self {
        self.config.approval_timeout = timeout;
        self
    }

    pub fn nobody(mut self) -> Self {
        let advice = "ask somebody".to_owned();
        self.approvals = Approvals::Nobody { advice };
        self
    }

    /// Workers in real containers.
    pub fn containers(mut self, tier: ContainerTier) -> Self {
        self.boundary.root = tier.root();
        self.tier = Some(Box::new(tier));
        self
    }

    /// Real workers.
    pub fn namespace(mut self) -> Self {
        self.tier = Some(Box::new(namespace_tier()));
        self
    }

    pub fn executor(mut self, executor: impl ActionExecutor + 'static) -> Self {
        self.executor = Some(Box::new(executor));
        self
    }

    pub fn writer(mut self, writer: impl JournalWriter + 'static) -> Self {
        self.writer = Some(Box::new(writer));
        self
    }

    pub fn register(mut self, register: impl RunRegister + 'static) -> Self {
        self.register = Some(Box::new(register));
        self
    }

    pub fn launch(mut self, plan: LaunchPlan) -> Self {
        self.launch = Some(plan);
        self
    }

    /// Adds a manifest: `head` continues `[tool]`, after `binary`.
    pub fn manifest(mut self, name: &'static str, binary: &str, rest: &str) -> Self {
        let text = format!(
            "[tool]\nname = \"{name}\"\nversion = \"1.0.0\"\ndescription = \"A tool\"\n\
             binary = \"{binary}\"\n{rest}"
        );
        self.manifests.push((name, text));
        self
    }

    pub fn one_shot(mut self) -> Self {
        self.one_shot = true;
        self
    }

    pub fn observer(mut self, observer: Arc<dyn RunObserver>) -> Self {
        self.observer = Some(observer);
        self
    }

    #[track_caller]
    pub fn start(self) -> Governed {
        self.try_start().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Starts it with a memory journal, or with `writer` where there is one, unless it is `None`
    /// and a durable one is wanted: [`Setup::start_durable`].
    pub fn try_start(mut self) -> Result<Governed, SessionStartError> {
        let run = RunId::new();
        let memory = MemoryWriter::new();
        let writer = self.writer.take();
        let writer = writer.unwrap_or_else(|| Box::new(memory.clone()));
        let journal = Journal::new(writer, None, run, TESTER.to_owned());
        self.begin(Project::new(), run, journal, memory, true)
    }

    /// Starts it with a signed journal on disk and its ledger.
    #[track_caller]
    pub fn start_durable(self) -> Governed {
        let project = Project::new();
        self.start_in(project)
    }

    #[track_caller]
    pub fn start_in(mut self, project: Project) -> Governed {
        let run = RunId::new();
        let files = RunFiles::create(&project.state(), run, TESTER, project.key()).unwrap();
        let journal = files.journal().clone();
        self.register = Some(Box::new(LedgerRegister::new(files)));
        self.begin(project, run, journal, MemoryWriter::new(), false)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    fn begin(
        self,
        project: Project,
        run: RunId,
        journal: Journal,
        memory: MemoryWriter,
        in_memory: bool,
    ) -> Result<Governed, SessionStartError> {
        let tier = FakeTier::new();
        let workers = self.tier.unwrap_or_else(|| Box::new(tier.clone()));
        let keys: Vec<&str> = self.trusted.keys().map(String::as_str).collect();
        let contracts = Project::contracts_and(&self.manifests);
        let gate = Project::gate_for(&contracts, &self.policies, &keys);
        let executor = self.executor.unwrap_or_else(|| {
            let executor =
                ToolExecutor::new(contracts, None, project.files(), workers, self.boundary);
            Box::new(match self.launch {
                Some(plan) => {
                    let mut plan = plan_of(plan, &gate, &self.config);
                    if plan.descriptor.tool_set_sha256 == Digest::of(b"tools") {
                        let tools = executor.tools();
                        plan.descriptor.tool_set_sha256 =
                            governance::tool_set_digest(tools).unwrap();
                    }
                    executor.with_launch(plan)
                }
                None => executor,
            })
        });
        let session = GovernedToolSession::start(SessionParts {
            executor,
            gate: Box::new(gate),
            journal: journal.clone(),
            register: self.register,
            state: LoopState {
                run,
                principal: TESTER.to_owned(),
                trusted: self.trusted,
            },
            config: self.config,
            approvals: self.approvals,
            project: "test".to_owned(),
            client: Client::Library,
            init_sha256: None,
            one_shot: self.one_shot,
            observer: self.observer,
        })?;
        Ok(Governed {
            project,
            tier,
            session,
            journal,
            run,
            memory,
            in_memory,
        })
    }
}

impl Governed {
    /// Every record's event, in order.
    pub fn events(&self) -> Vec<Value> {
        let bytes = if self.in_memory {
            self.memory.bytes()
        } else {
            std::fs::read(self.project.journal_path(self.run)).unwrap()
        };
        events(&bytes)
    }

    pub fn kinds(&self) -> Vec<String> {
        let kind = |event: Value| event["kind"].as_str().unwrap().to_owned();
        self.events().into_iter().map(kind).collect()
    }

    /// The events of one kind.
    pub fn of_kind(&self, kind: &str) -> Vec<Value> {
        let mut events = self.events();
        events.retain(|event| event["kind"] == kind);
        events
    }

    /// The terminal record.
    #[track_caller]
    pub fn terminal(&self) -> Value {
        let events = self.events();
        let last = events.last().unwrap();
        assert_eq!(last["kind"], "RunEnded", "{events:?}");
        assert_eq!(self.of_kind("RunEnded").len(), 1);
        last.clone()
    }

    pub async fn call(&self, id: &str, tool: &str, arguments: Value) -> Result<Answer, EndCause> {
        self.session.call(call(id, tool, arguments)).await
    }

    /// A call in a task of its own, as the broker has it.
    pub fn spawn(
        &self,
        id: &str,
        tool: &str,
        arguments: Value,
    ) -> tokio::task::JoinHandle<Result<Answer, EndCause>> {
        let (session, call) = (self.session.clone(), call(id, tool, arguments));
        tokio::spawn(async move { session.call(call).await })
    }

    /// Waits for the one held call.
    pub async fn held(&self) -> HeldCall {
        until("a held call", || !self.session.pending().is_empty()).await;
        self.session.pending().remove(0)
    }

    pub fn approve(&self, held: &HeldCall) {
        self.session
            .decide(&held.held_id, held.review_sha256, true, approver())
            .unwrap();
    }

    pub async fn until_started(&self, workers: usize) {
        until("a worker", || self.tier.started() >= workers).await;
    }

    pub async fn close(&self) -> Result<(), EndCause> {
        tokio::time::timeout(PATIENCE, self.session.clone().close())
            .await
            .expect("the close hangs")
    }
}

pub fn events(bytes: &[u8]) -> Vec<Value> {
    let lines = bytes.split(|byte| *byte == b'\n').step_by(2);
    lines
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice::<Value>(line).unwrap()["event"].clone())
        .collect()
}

pub fn call(id: &str, tool: &str, arguments: Value) -> BrokerToolCall {
    BrokerToolCall {
        call_id: id.to_owned(),
        name: tool.to_owned(),
        arguments,
    }
}

pub fn approver() -> Approver {
    Approver {
        surface: "terminal".to_owned(),
        identity: "uid 1000".to_owned(),
        signatures: Vec::new(),
    }
}

#[track_caller]
pub fn settled(answer: Result<Answer, EndCause>) -> RecordedOutcome {
    match answer {
        Ok(Answer::Settled(outcome)) => outcome,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
pub fn succeeded(answer: Result<Answer, EndCause>) -> RecordedOutcome {
    let outcome = settled(answer);
    assert_eq!(outcome.outcome, Outcome::Succeeded, "{outcome:?}");
    outcome
}

#[track_caller]
pub fn refused(answer: Result<Answer, EndCause>) -> Refusal {
    match answer {
        Ok(Answer::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
pub fn agent_ended(end: LaunchEnd) -> RecordedOutcome {
    match end {
        LaunchEnd::Ended(outcome) => outcome,
        other => panic!("{other:?}"),
    }
}

/// What the fake tier started, by argv.
pub fn started_log(tier: &FakeTier) -> Vec<Vec<String>> {
    let log = tier.log().into_iter();
    log.filter_map(|happened| match happened {
        Happened::Started { argv, .. } => Some(argv),
        _ => None,
    })
    .collect()
}

/// The real tier; its helper is built by `cargo build -p sandbox-init`.
pub fn namespace_tier() -> NamespaceTier {
    let executable = std::env::current_exe().unwrap();
    let init = sandbox::locate_init(&executable, None).unwrap_or_else(|error| panic!("{error}"));
    NamespaceTier::new(NamespaceConfig::new(init)).unwrap_or_else(|error| panic!("{error}"))
}

/// An agent whose program is `argv[0]` of the system.
pub fn agent_plan(argv: &[&str], channel: &Path, human_approval: bool) -> LaunchPlan {
    let root = WorkerRoot::System { also: Vec::new() };
    agent_plan_on(TierKind::Namespace, root, argv, channel, human_approval)
}

/// The same on any tier, where its program is `argv[0]` of `root`.
pub fn agent_plan_on(
    tier: TierKind,
    root: WorkerRoot,
    argv: &[&str],
    channel: &Path,
    human_approval: bool,
) -> LaunchPlan {
    let program: ProgramIdentity = ProgramCache::default().resolve(argv[0], &root).unwrap();
    LaunchPlan {
        descriptor: LaunchDescriptor {
            agent: AgentName::new(TESTER).unwrap(),
            executor: "command".to_owned(),
            task: "count the rows".to_owned(),
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            environment: worker_environment(),
            program,
            shown: None,
            tools: Vec::new(),
            tool_set_sha256: Digest::of(b"tools"),
            policy_sha256: Digest::of(b"policies"),
            max_calls: 10,
            lifetime_ms: 60_000,
            human_approval,
            inference: None,
            boundary: CommandBoundary {
                tier,
                root,
                network: Network::None,
                working_dir: "/workspace".to_owned(),
                limits: Limits::wanted([1024, 1000, 64, 1 << 20, 1 << 20, 1 << 20, 60_000]),
                filesystem: Filesystem::default(),
            },
        },
        channel: channel.to_owned(),
        shown: None,
    }
}

/// The plan as a session of this gate and configuration has it, where the test says nothing else.
fn plan_of(
    mut plan: LaunchPlan,
    gate: &symbi_runtime::CedarGate,
    config: &LoopConfig,
) -> LaunchPlan {
    let launch = &mut plan.descriptor;
    if launch.policy_sha256 == Digest::of(b"policies") {
        launch.policy_sha256 = gate.digest();
        launch.max_calls = config.max_calls;
        launch.lifetime_ms = u64::try_from(config.lifetime.as_millis()).unwrap();
    }
    plan
}

/// A memory journal that fails at a given append or sync, from 0.
#[derive(Debug, Clone)]
pub struct Failing {
    pub memory: MemoryWriter,
    pub append_at: Option<usize>,
    pub sync_at: Option<usize>,
    appends: Arc<AtomicUsize>,
    syncs: Arc<AtomicUsize>,
}

impl Failing {
    pub fn new(append_at: Option<usize>, sync_at: Option<usize>) -> Self {
        Self {
            memory: MemoryWriter::new(),
            append_at,
            sync_at,
            appends: Arc::default(),
            syncs: Arc::default(),
        }
    }
}

impl JournalWriter for Failing {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.append_at == Some(self.appends.fetch_add(1, Ordering::SeqCst)) {
            return Err(io::Error::other("the disk is full"));
        }
        self.memory.append(bytes)
    }

    fn make_durable(&mut self) -> io::Result<()> {
        if self.sync_at == Some(self.syncs.fetch_add(1, Ordering::SeqCst)) {
            return Err(io::Error::other("the disk is broken"));
        }
        Ok(())
    }

    fn durability(&self) -> Durability {
        Durability::Memory
    }
}

/// A register that notes what it is told, and fails where it is told to.
#[derive(Debug, Clone, Default)]
pub struct Noted {
    pub log: Arc<Mutex<Vec<&'static str>>>,
    pub start_fails: bool,
}

impl RunRegister for Noted {
    fn run_started(&mut self) -> Result<(), RegisterError> {
        self.log.lock().unwrap().push("started");
        match self.start_fails {
            true => Err("the ledger is locked".into()),
            false => Ok(()),
        }
    }

    fn run_ended(&mut self) -> Result<(), RegisterError> {
        self.log.lock().unwrap().push("ended");
        Ok(())
    }
}

/// `scripts/verify-journal.py`.
pub fn second_verifier() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../scripts/verify-journal.py"
    ))
}
