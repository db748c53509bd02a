//! An executor with a few tools whose work is scripted by a [`FakeTier`].

use std::collections::BTreeMap;
use std::time::Duration;

use filegrants::{FileAccessPlan, FileBroker, FileRequest};
use governance::{
    ActionExecutor, Lowered, PreparedCall, PreparedWork, ProposedCall, Refusal, RefusalKind,
    ToolDefinition,
};
use model::{
    AgentName, ArgumentName, ArgumentValue, Canonical, CreateMode, Digest, JsonObject,
    OutputFormat, RelativePath, RiskTier, ToolName,
};
use worker::{
    CommandBoundary, CommandDescriptor, Descriptor, Enforcement, LaunchDescriptor, Limit, Limits,
    Network, ProgramFile, ProgramIdentity, Running, StartError, Tier as _, TierKind,
    WorkerHoldings, WorkerRoot,
};

use crate::tier::{FakeTier, Play};

/// In process: answers with its arguments.
pub const ECHO: &str = "echo";
/// In a worker: exits with 1.
pub const FAIL: &str = "fail";
/// In a worker: exits with 0, after a person's yes.
pub const GUARDED: &str = "guarded";
/// In a worker: writes `content` to the new file `path`.
pub const CREATE: &str = "create";
/// In a worker: promises JSON, and prints its arguments.
pub const JSON: &str = "json";
/// What [`ActionExecutor::prepare`] makes of a launch: an agent in a worker.
pub const AGENT: &str = "agent";

/// Largest file of [`CREATE`].
pub const CREATED_BYTES_MAX: u64 = 1 << 20;

/// See the tools' names in this module.
#[derive(Debug)]
pub struct InProcessExecutor {
    tier: FakeTier,
    tools: Vec<ToolDefinition>,
    files: Option<FileBroker>,
    time_limit: Duration,
}

impl InProcessExecutor {
    /// All tools but [`CREATE`].
    #[must_use]
    pub fn new(tier: FakeTier) -> Self {
        let tools = [ECHO, FAIL, GUARDED, JSON]
            .iter()
            .filter_map(|name| tool(name))
            .collect();
        Self {
            tier,
            tools,
            files: None,
            time_limit: Duration::from_secs(30),
        }
    }

    /// With [`CREATE`], below the volumes of `files`.
    #[must_use]
    pub fn with_files(mut self, files: FileBroker) -> Self {
        self.files = Some(files);
        self.tools.extend(tool(CREATE));
        self
    }

    /// With another time limit for every tool.
    #[must_use]
    pub const fn with_time_limit(mut self, time_limit: Duration) -> Self {
        self.time_limit = time_limit;
        self
    }

    /// Adds, renames or removes tools, as no executor may while its session lives.
    pub fn change_tools(&mut self, change: impl FnOnce(&mut Vec<ToolDefinition>)) {
        change(&mut self.tools);
    }

    fn plan_files(&self, call: &ProposedCall) -> Result<FileAccessPlan, String> {
        if call.tool() != CREATE {
            return Ok(FileAccessPlan::default());
        }
        let Some(files) = &self.files else {
            return Err("there are no volumes".to_owned());
        };
        let path = call
            .arguments()
            .as_map()
            .get("path")
            .and_then(serde_json::Value::as_str);
        let path = RelativePath::new(path.unwrap_or_default()).map_err(|it| it.to_string())?;
        let request = FileRequest {
            creates: BTreeMap::from([("path".to_owned(), (path, CreateMode::File))]),
            max_file_bytes: CREATED_BYTES_MAX,
            ..FileRequest::default()
        };
        files.plan(&request).map_err(|refusal| refusal.to_string())
    }

    fn launch_work(&self, call: &ProposedCall) -> Result<PreparedWork, String> {
        let descriptor = LaunchDescriptor {
            agent: AgentName::new("tester").map_err(|it| it.to_string())?,
            executor: call.tool().to_owned(),
            task: "a task".to_owned(),
            argv: vec!["/usr/bin/agent".to_owned()],
            environment: BTreeMap::new(),
            program: program("/usr/bin/agent"),
            shown: None,
            tools: self.tools.iter().map(|tool| tool.name.clone()).collect(),
            tool_set_sha256: Digest::of(b"tools"),
            policy_sha256: Digest::of(b"policy"),
            max_calls: 10,
            lifetime_ms: 60_000,
            human_approval: false,
            inference: None,
            boundary: boundary(&self.tier),
        };
        let channel = Some("/run/channel".into());
        Ok(PreparedWork {
            descriptor: Descriptor::Launch(Box::new(descriptor)),
            holdings: WorkerHoldings {
                channel,
                ..WorkerHoldings::default()
            },
            target: None,
            charge: None,
            needs_approval: false,
            time_limit: None,
            notes: BTreeMap::new(),
            result: governance::ResultTerms::default(),
        })
    }

    fn work(&self, call: &ProposedCall) -> Result<PreparedWork, String> {
        if call.is_launch() {
            return self.launch_work(call);
        }
        let FileAccessPlan {
            filesystem,
            inputs,
            target,
            charge,
        } = self.plan_files(call)?;
        let descriptor = if call.tool() == ECHO {
            let value = Canonical::of(call.arguments()).map_err(|error| error.to_string())?;
            Descriptor::Custom {
                custom_kind: ECHO.to_owned(),
                value,
            }
        } else {
            let mut command = command(call, &self.tier)?;
            command.boundary.filesystem = filesystem;
            Descriptor::Command(Box::new(command))
        };
        Ok(PreparedWork {
            descriptor,
            holdings: WorkerHoldings {
                inputs,
                ..WorkerHoldings::default()
            },
            target,
            charge,
            needs_approval: call.tool() == GUARDED,
            time_limit: Some(self.time_limit),
            notes: BTreeMap::new(),
            result: governance::ResultTerms::default(),
        })
    }
}

impl ActionExecutor for InProcessExecutor {
    fn tools(&self) -> &[ToolDefinition] {
        &self.tools
    }

    fn prepare(&mut self, call: ProposedCall) -> Result<PreparedCall, Refusal> {
        match self.work(&call) {
            Ok(work) => call.prepared(work),
            Err(reason) => Err(call.refuse(RefusalKind::Invalid, &reason)),
        }
    }

    fn start(&mut self, work: Lowered) -> Result<Box<dyn Running>, StartError> {
        match work {
            Lowered::InProcess {
                custom_kind,
                value,
                call_sha256,
            } => {
                let said = Play::exits(0).stdout(value.as_str());
                self.tier
                    .start_in_process(vec![custom_kind], call_sha256, said)
            }
            Lowered::Worker(spec) => {
                let argv = spec.argv();
                let second = argv.get(1).cloned().unwrap_or_default();
                let play = match argv.first().map(String::as_str) {
                    Some(FAIL) => Play::exits(1).stderr("failed, as it must\n"),
                    Some(CREATE) => Play::exits(0).writes(second),
                    Some(JSON) => Play::exits(0).stdout(second),
                    _ => Play::exits(0),
                };
                self.tier.start_or(&spec, play)
            }
            Lowered::Parsed { .. } => Err(StartError::Failed {
                step: "starting the work".to_owned(),
                reason: "the test executor has no output parsers".to_owned(),
            }),
        }
    }
}

/// A definition that takes any object.
#[must_use]
pub fn tool(name: &str) -> Option<ToolDefinition> {
    let mut schema = serde_json::Map::new();
    schema.insert("type".to_owned(), "object".into());
    Some(ToolDefinition {
        name: ToolName::new(name).ok()?,
        description: format!("the test tool {name}"),
        input_schema: JsonObject::from_map(schema),
        read_only: name != CREATE,
    })
}

/// A command of the called tool: its second word is the text argument `content`, or all of the
/// arguments as JSON.
///
/// # Errors
/// The names that are not valid.
pub fn command(call: &ProposedCall, tier: &FakeTier) -> Result<CommandDescriptor, String> {
    let map = call.arguments().as_map();
    let content = match map.get("content").and_then(serde_json::Value::as_str) {
        Some(text) => text.to_owned(),
        None => Canonical::of(call.arguments())
            .map_err(|it| it.to_string())?
            .as_str()
            .to_owned(),
    };
    let mut arguments = BTreeMap::new();
    for (name, value) in map {
        let name = ArgumentName::new(name.as_str()).map_err(|error| error.to_string())?;
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        arguments.insert(name, ArgumentValue::Text(text));
    }
    let format = if call.tool() == JSON {
        OutputFormat::Json
    } else {
        OutputFormat::Text
    };
    Ok(CommandDescriptor {
        tool: ToolName::new(call.tool()).map_err(|error| error.to_string())?,
        version: "1.0.0".to_owned(),
        contract_sha256: Digest::of(call.tool().as_bytes()),
        risk_tier: RiskTier::Low,
        human_approval: call.tool() == GUARDED,
        arguments,
        argv: vec![call.tool().to_owned(), content],
        sealed: worker::SealedValues::default(),
        environment: BTreeMap::new(),
        program: program("/usr/bin/tool"),
        output_format: format,
        boundary: boundary(tier),
        parser: None,
    })
}

fn program(path: &str) -> ProgramIdentity {
    ProgramIdentity::Content(ProgramFile {
        path: path.to_owned(),
        sha256: Digest::of(path.as_bytes()),
        owner_uid: 0,
        mode: 0o755,
        interpreter: None,
    })
}

/// A boundary without files, with the limits as `tier` enforces them.
#[must_use]
pub fn boundary(tier: &FakeTier) -> CommandBoundary {
    let limit = |value| Limit {
        value,
        enforcement: Enforcement::NotEnforced,
    };
    let wanted = Limits {
        memory_mib: limit(512),
        cpu_milli: limit(1000),
        pids: limit(64),
        file_bytes: limit(1 << 20),
        scratch_bytes: limit(1 << 20),
        stream_bytes: limit(1 << 20),
        time_ms: limit(30_000),
        landlock: Enforcement::NotEnforced,
    };
    CommandBoundary {
        tier: TierKind::Namespace,
        root: WorkerRoot::System { also: Vec::new() },
        network: Network::None,
        working_dir: "/workspace".to_owned(),
        limits: tier.enforceable(wanted),
        filesystem: worker::Filesystem::default(),
    }
}
