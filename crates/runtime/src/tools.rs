//! The executor of ToolClad manifests on one tier, and of the agent's launch.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use filegrants::{FileBroker, FileRefusal, FileRequest};
use governance::{
    ActionExecutor, FrozenContext, Lowered, PreparedCall, PreparedWork, ProposedCall, Refusal,
    RefusalKind, ResultReader, ResultRefused, ResultTerms, ToolDefinition,
};
use model::{Redacted, RunId, ToolName};
use sandbox::programs::{ProgramCache, ProgramError};
use toolclad::{
    BindError, BoundCall, Contract, ContractSet, Evidence, ResultFault, ScanId, Surroundings,
};
use worker::{
    CommandBoundary, CommandDescriptor, Descriptor, Enforcement, Filesystem, LaunchDescriptor,
    Limits, Network, ParserDescriptor, Running, StartError, Tier, WorkerHoldings, WorkerRoot,
};

use crate::parsed::{ParsedCommand, SharedTier};
use crate::resolver::SystemResolver;
use crate::sealing::seal;

/// The operator's ceiling for every worker of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundarySettings {
    pub root: WorkerRoot,
    pub network: Network,
    pub working_dir: String,
    pub memory_mib: u64,
    pub cpu_milli: u64,
    pub pids: u64,
    pub file_bytes: u64,
    pub scratch_bytes: u64,
    pub stream_bytes: u64,
    pub time_ms: u64,
    /// Refuse a worker any of whose limits is only partly enforced.
    pub require_enforced: bool,
    /// Output parsers that may run, by their path in the worker.
    pub parsers: Vec<String>,
}

/// The environment of every worker.
#[must_use]
pub fn worker_environment() -> BTreeMap<String, String> {
    [
        ("PATH", "/usr/bin:/bin"),
        ("HOME", "/tmp"),
        ("LANG", "C.UTF-8"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// An agent's launch, built by the trusted owner.
#[derive(Debug)]
pub struct LaunchPlan {
    /// All of it but the limits' enforcement, which the tier fills in.
    pub descriptor: LaunchDescriptor,
    pub channel: PathBuf,
    /// Where the descriptor's `shown` file is on the host.
    pub shown: Option<PathBuf>,
}

/// Runs manifests' commands in fresh workers.
pub struct ToolExecutor {
    contracts: ContractSet,
    definitions: Vec<ToolDefinition>,
    files: FileBroker,
    tier: SharedTier,
    programs: ProgramCache,
    settings: BoundarySettings,
    launch: Option<LaunchPlan>,
}

impl std::fmt::Debug for ToolExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolExecutor")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl ToolExecutor {
    /// An executor that advertises `tools` of `contracts`, or all of them.
    #[must_use]
    pub fn new(
        contracts: ContractSet,
        tools: Option<&[ToolName]>,
        files: FileBroker,
        tier: Box<dyn Tier>,
        settings: BoundarySettings,
    ) -> Self {
        let definitions = contracts
            .iter()
            .filter(|contract| tools.is_none_or(|tools| tools.contains(contract.name())))
            .map(definition)
            .collect();
        Self {
            contracts,
            definitions,
            files,
            tier: SharedTier::new(tier),
            programs: ProgramCache::default(),
            settings,
            launch: None,
        }
    }

    /// Adds the agent that the session's owner will launch.
    #[must_use]
    pub fn with_launch(mut self, plan: LaunchPlan) -> Self {
        self.launch = Some(plan);
        self
    }

    fn advertised(&self, name: &str) -> Option<&Contract> {
        let tool = self
            .definitions
            .iter()
            .find(|it| it.name.as_str() == name)?;
        self.contracts.get(&tool.name)
    }

    fn unknown(&self, call: ProposedCall) -> Refusal {
        let known = self.definitions.iter().map(|tool| tool.name.as_str());
        let known = known.collect::<Vec<_>>().join(", ");
        let refusal = call.refuse(RefusalKind::Invalid, "there is no such tool");
        refusal.advice(format!("the tools of this session are: {known}"))
    }

    fn prepare_command(&mut self, call: ProposedCall) -> Result<PreparedCall, Refusal> {
        let Some(contract) = self.advertised(call.tool()) else {
            return Err(self.unknown(call));
        };
        let bound = match bind(contract, &call) {
            Ok(bound) => bound,
            Err(error) => return Err(call.refuse(RefusalKind::Invalid, &error.to_string())),
        };
        let sealed = match seal(&bound) {
            Ok(sealed) => sealed,
            Err(error) => return Err(call.refuse(RefusalKind::Unavailable, &error.to_string())),
        };
        let limits = match self.limits(contract) {
            Ok(limits) => limits,
            Err(refused) => {
                return Err(call.refuse(RefusalKind::Unavailable, &refused.to_string()));
            }
        };
        let program = match self
            .programs
            .resolve(contract.program(), &self.settings.root)
        {
            Ok(program) => program,
            Err(error) => return Err(call.refuse(RefusalKind::Invalid, &error.to_string())),
        };
        let parser = match self.parser(contract, &limits) {
            Ok(parser) => parser,
            Err(reason) => return Err(call.refuse(RefusalKind::Invalid, &reason.to_string())),
        };
        let plan = match self.files.plan(&file_request(contract, &bound)) {
            Ok(plan) => plan,
            Err(refusal) => {
                return Err(call.refuse(file_refusal_kind(&refusal), &refusal.to_string()));
            }
        };
        let notes = notes(&bound);
        let descriptor = CommandDescriptor {
            tool: contract.name().clone(),
            version: contract.version().to_owned(),
            contract_sha256: contract.digest(),
            risk_tier: contract.risk_tier(),
            human_approval: contract.needs_approval(),
            argv: sealed.argv,
            sealed: sealed.values,
            arguments: sealed.arguments,
            environment: worker_environment(),
            program,
            output_format: contract.output_format(),
            boundary: self.boundary(limits, plan.filesystem),
            parser,
        };
        call.prepared(PreparedWork {
            time_limit: Some(Duration::from_millis(
                descriptor.boundary.limits.time_ms.value,
            )),
            needs_approval: contract.needs_approval(),
            descriptor: Descriptor::Command(Box::new(descriptor)),
            holdings: WorkerHoldings {
                inputs: plan.inputs,
                sealed: sealed.held,
                ..WorkerHoldings::default()
            },
            target: plan.target,
            charge: plan.charge,
            notes,
            result: result_terms(contract, sealed.secrets),
        })
    }

    fn prepare_launch(&mut self, call: ProposedCall) -> Result<PreparedCall, Refusal> {
        let Some(plan) = self.launch.take() else {
            return Err(call.refuse(RefusalKind::Invalid, "this session has no agent to launch"));
        };
        let mut descriptor = plan.descriptor;
        let limits = self.enforced(descriptor.boundary.limits.clone());
        descriptor.boundary.limits = match limits {
            Ok(limits) => limits,
            Err(refused) => {
                return Err(call.refuse(RefusalKind::Unavailable, &refused.to_string()));
            }
        };
        call.prepared(PreparedWork {
            time_limit: None,
            needs_approval: descriptor.human_approval,
            descriptor: Descriptor::Launch(Box::new(descriptor)),
            holdings: WorkerHoldings {
                channel: Some(plan.channel),
                shown: plan.shown,
                ..WorkerHoldings::default()
            },
            target: None,
            charge: None,
            notes: BTreeMap::new(),
            result: ResultTerms::default(),
        })
    }

    fn boundary(&self, limits: Limits, filesystem: Filesystem) -> CommandBoundary {
        CommandBoundary {
            tier: self.tier.kind(),
            root: self.settings.root.clone(),
            network: self.settings.network,
            working_dir: self.settings.working_dir.clone(),
            limits,
            filesystem,
        }
    }

    /// The contract's own output parser, where the operator allows it: the command's limits, none
    /// of its files.
    fn parser(
        &self,
        contract: &Contract,
        limits: &Limits,
    ) -> Result<Option<ParserDescriptor>, ParserRefused> {
        let Some(path) = contract.custom_parser() else {
            return Ok(None);
        };
        if !self.settings.parsers.iter().any(|allowed| allowed == path) {
            let path = path.to_owned();
            return Err(ParserRefused::NotAllowed { path });
        }
        let program = self.programs.resolve(path, &self.settings.root);
        let files = Filesystem {
            max_file_bytes: contract.max_file_bytes(),
            ..Filesystem::default()
        };
        Ok(Some(ParserDescriptor {
            argv: vec![path.to_owned()],
            environment: worker_environment(),
            program: program.map_err(ParserRefused::Program)?,
            boundary: self.boundary(limits.clone(), files),
        }))
    }

    fn limits(&self, contract: &Contract) -> Result<Limits, LimitRefused> {
        let own = contract.limits();
        let settings = &self.settings;
        let lower = |ceiling: u64, own: Option<u64>| own.map_or(ceiling, |own| own.min(ceiling));
        let creates = contract.file_arguments().iter().any(|file| file.creates);
        let file_bytes = creates.then(|| contract.max_file_bytes());
        self.enforced(Limits::wanted([
            lower(settings.memory_mib, own.memory_mib),
            lower(settings.cpu_milli, own.cpu_milli),
            lower(settings.pids, own.pids),
            lower(settings.file_bytes, file_bytes),
            settings.scratch_bytes,
            lower(settings.stream_bytes, own.max_output_bytes),
            lower(settings.time_ms, Some(contract.time_limit_ms())),
        ]))
    }

    /// What the tier really enforces of `wanted`; a limit that does not act is a refusal.
    fn enforced(&self, wanted: Limits) -> Result<Limits, LimitRefused> {
        let limits = self.tier.enforceable(wanted);
        for (name, limit) in limits.named() {
            match limit.enforcement {
                Enforcement::Enforced => {}
                Enforcement::Partly if !self.settings.require_enforced => {}
                Enforcement::Partly => return Err(LimitRefused::Partly { name }),
                Enforcement::NotEnforced => return Err(LimitRefused::NotEnforced { name }),
            }
        }
        if limits.landlock != Enforcement::Enforced && self.settings.require_enforced {
            return Err(LimitRefused::Partly { name: "landlock" });
        }
        Ok(limits)
    }
}

/// A manifest with an output schema reads its own result; the format alone is read by governance.
#[derive(Debug)]
struct ContractReader(Contract);

impl ResultReader for ContractReader {
    fn read(&self, stdout: &[u8]) -> Result<serde_json::Value, ResultRefused> {
        self.0.result(stdout).map_err(|fault| ResultRefused {
            reason: fault.to_string(),
            breaks_schema: matches!(fault, ResultFault::Schema { .. }),
        })
    }
}

fn result_terms(contract: &Contract, secrets: Vec<Redacted<String>>) -> ResultTerms {
    let own = contract.output_schema().is_some() || contract.custom_parser().is_some();
    let reader = own.then(|| {
        let reader: Arc<dyn ResultReader> = Arc::new(ContractReader(contract.clone()));
        reader
    });
    ResultTerms {
        reader,
        secrets,
        shown_bytes_max: contract.output_max_bytes(),
        keeps_output: contract.evidence().is_some_and(Evidence::capture),
    }
}

/// The call's arguments against its contract, on this host.
fn bind(contract: &Contract, call: &ProposedCall) -> Result<BoundCall, BindError> {
    // Fresh, in the record with the rest of argv, and told to nobody before.
    let scan_id = ScanId::new(RunId::new().to_string()).ok();
    let resolver = SystemResolver {
        scope: contract.scope(),
    };
    let surroundings = Surroundings {
        resolver: &resolver,
        scan_id: scan_id.as_ref(),
    };
    contract.bind_with(call.arguments(), &surroundings)
}

/// Why a tool's output parser cannot run.
#[derive(Debug)]
enum ParserRefused {
    NotAllowed { path: String },
    Program(ProgramError),
}

impl std::fmt::Display for ParserRefused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotAllowed { path } => write!(
                f,
                "the tool's output parser `{path}` is not allowed here; an operator who knows it adds \
                 it to `[sandbox.parsers] allow`"
            ),
            Self::Program(error) => write!(f, "the tool's output parser: {error}"),
        }
    }
}

fn file_refusal_kind(refusal: &FileRefusal) -> RefusalKind {
    if refusal.is_capacity() {
        RefusalKind::Capacity
    } else {
        RefusalKind::Invalid
    }
}

/// Why a worker's limits are not good enough to start it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LimitRefused {
    Partly { name: &'static str },
    NotEnforced { name: &'static str },
}

impl std::fmt::Display for LimitRefused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Partly { name } => write!(
                f,
                "the limit `{name}` is only partly enforced on this host, and \
                 `[sandbox] require_enforced = true` refuses that; give the user a delegated \
                 cgroup, or set it to false"
            ),
            Self::NotEnforced { name } => write!(
                f,
                "the limit `{name}` is not enforced on this host, and a worker without it is \
                 never started"
            ),
        }
    }
}

impl ActionExecutor for ToolExecutor {
    fn tools(&self) -> &[ToolDefinition] {
        &self.definitions
    }

    /// Of the agent's launch: its descriptor names who acts, by which policies, with which tools,
    /// how often and how long.
    fn frozen(&self) -> FrozenContext {
        let Some(launch) = self.launch.as_ref().map(|plan| &plan.descriptor) else {
            return FrozenContext::default();
        };
        FrozenContext {
            run: None,
            principal: Some(launch.agent.to_string()),
            policy_sha256: Some(launch.policy_sha256),
            tool_set_sha256: Some(launch.tool_set_sha256),
            max_calls: Some(launch.max_calls),
            lifetime: Some(Duration::from_millis(launch.lifetime_ms)),
        }
    }

    fn prepare(&mut self, call: ProposedCall) -> Result<PreparedCall, Refusal> {
        if call.is_launch() {
            self.prepare_launch(call)
        } else {
            self.prepare_command(call)
        }
    }

    fn start(&mut self, work: Lowered) -> Result<Box<dyn Running>, StartError> {
        match work {
            Lowered::Worker(spec) => {
                reach_start()?;
                self.tier.start(*spec)
            }
            Lowered::Parsed { command, parser } => {
                reach_start()?;
                ParsedCommand::start(&self.tier, *command, *parser)
            }
            Lowered::InProcess { custom_kind, .. } => Err(StartError::Failed {
                step: "starting the work".to_owned(),
                reason: format!("no backend runs `{custom_kind}`"),
            }),
        }
    }
}

fn reach_start() -> Result<(), StartError> {
    faults::reach(faults::Point::DispatchStart).map_err(|error| StartError::Failed {
        step: "starting the work".to_owned(),
        reason: error.to_string(),
    })
}

fn definition(contract: &Contract) -> ToolDefinition {
    let definition = contract.definition();
    ToolDefinition {
        name: contract.name().clone(),
        description: definition.description,
        input_schema: definition.input_schema,
        read_only: definition.read_only_hint,
    }
}

/// What the caller is told of values that were clamped.
fn notes(bound: &BoundCall) -> BTreeMap<String, String> {
    let note = |it: &toolclad::Clamped| match bound.sensitive.contains(&it.argument) {
        true => "another value is used than was asked".to_owned(),
        false => format!("{} was asked, {} is used", it.asked, it.used),
    };
    let clamped = bound.clamped.iter();
    clamped
        .map(|it| (it.argument.to_string(), note(it)))
        .collect()
}

fn file_request(contract: &Contract, bound: &BoundCall) -> FileRequest {
    let mode = contract.create_mode();
    FileRequest {
        reads: bound.reads.clone(),
        creates: bound
            .creates
            .iter()
            .map(|(key, path)| (key.clone(), (path.clone(), mode)))
            .collect(),
        max_file_bytes: contract.max_file_bytes(),
    }
}
