//! `symbi run`: a contained agent with governed tools.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use governance::{EndCause, LoopConfig, LoopState, Outcome};
use journal::Client;
use model::{AgentName, RunId, ToolName, Untrusted};
use project::{AgentExecutor, AgentSettings, Config, Surface};
use sandbox::ProgramCache;
use symbi_runtime::cli_executor::broker::{BrokerTools, McpToolBroker};
use symbi_runtime::reasoning::governed_session::{
    Answer, GovernedToolSession, LaunchEnd, SessionParts,
};
use symbi_runtime::tools::{BoundarySettings, LaunchPlan, wanted, worker_environment};
use symbi_runtime::{CedarGate, LedgerRegister};
use worker::{CommandBoundary, Filesystem, LaunchDescriptor, Network, ProgramIdentity, TierKind};

use crate::args::{Common, RunArgs};
use crate::commands::call::{exit_of_answer, exit_of_end, nobody};
use crate::exit::{Exit, Failure};
use crate::govern::{self, RunPlace};
use crate::inference::{self, Inference};
use crate::open::{OpenProject, find_tool};
use crate::output::Output;

/// Folder of the agent's own program inside its worker.
const AGENT_FOLDER: &str = "/agent";

/// How a run ended.
#[derive(Debug)]
pub(crate) struct RunEnd {
    pub(crate) run: RunId,
    pub(crate) journal: PathBuf,
    pub(crate) vkey: String,
    pub(crate) launch: LaunchEnd,
    pub(crate) session: Result<(), EndCause>,
}

/// Runs the command.
pub(crate) fn run(args: &RunArgs, common: &Common) -> Result<Exit, Failure> {
    let (open, _) = OpenProject::find_trusted(common.project.as_deref())?;
    let end = run_agent(&open, args)?;
    Ok(report(&end, Output::new(common.json)))
}

/// Runs an agent of a trusted project to its end.
pub(crate) fn run_agent(open: &OpenProject, args: &RunArgs) -> Result<RunEnd, Failure> {
    let config = open.config()?;
    let (name, settings) = agent(&config, &args.agent)?;
    let contracts = open.contracts()?;
    for tool in &settings.allowed_tools {
        find_tool(&contracts, tool.as_str())?;
    }
    let policies = open.policies(Surface::Run, &config, &contracts)?;
    let inference = inference::configured(open, &config, args.budget_tokens)?;
    let (tier, init_sha256) = govern::tier(open, &config)?;
    let broker_tools = BrokerTools::of(&contracts);
    let executor = govern::executor(open, &config, contracts, &settings.allowed_tools, tier)?;
    let run = RunId::new();
    let parent = RunFolder::create(open, run)?;
    let facts = LaunchFacts {
        name: &name,
        settings: &settings,
        args,
        policy_sha256: policies.digest(),
        tools: &settings.allowed_tools,
        tool_set_sha256: symbi_runtime::tools::tool_set_digest(governance::ActionExecutor::tools(
            &executor,
        )),
        inference: inference.as_ref(),
    };
    let plan = launch_plan(open, &config, &facts, &parent.channel())?;
    let place = RunPlace::create(open, run, name.as_str())?;
    let (journal, path, vkey) = (
        place.files.journal().clone(),
        place.files.path().to_owned(),
        place.vkey.clone(),
    );
    let protected = inference
        .map(|it| it.protect(journal.clone()))
        .transpose()?;
    let parts = SessionParts {
        executor: Box::new(executor.with_launch(plan)),
        gate: Box::new(CedarGate::new(Arc::new(policies))),
        journal,
        register: Some(Box::new(LedgerRegister::new(place.files))),
        state: LoopState {
            run,
            principal: name.to_string(),
            trusted: BTreeMap::new(),
        },
        config: LoopConfig {
            max_calls: args.max_calls,
            lifetime: Duration::from_secs(args.budget_timeout),
            ..LoopConfig::default()
        },
        approvals: nobody(),
        project: config.name.clone().unwrap_or_default(),
        client: Client::Contained,
        init_sha256: Some(init_sha256),
        one_shot: false,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Storage, format!("the async runtime: {error}")))?;
    let executor_name = settings.executor.as_str();
    let (launch, session) = runtime.block_on(async {
        let session =
            GovernedToolSession::start(parts).map_err(|error| Failure::of(Exit::Usage, &error))?;
        let broker = match protected {
            Some(inference) => McpToolBroker::start_with_inference(
                session,
                run,
                &broker_tools,
                parent.path(),
                inference,
            ),
            None => McpToolBroker::start(session, run, &broker_tools, parent.path()),
        }
        .map_err(|error| Failure::of(Exit::Storage, &error))?;
        Ok(to_the_end(broker, executor_name).await)
    })?;
    Ok(RunEnd {
        run,
        journal: path,
        vkey,
        launch,
        session,
    })
}

/// Launches, waits, closes. Ctrl-C stops the agent first, then the session ends.
async fn to_the_end(broker: McpToolBroker, executor: &str) -> (LaunchEnd, Result<(), EndCause>) {
    let session = broker.session().clone();
    let launched = async {
        match session.launch(executor).await {
            Ok(agent) => agent.ended().await,
            Err(end) => end,
        }
    };
    let mut launched = Box::pin(launched);
    let end = tokio::select! {
        end = &mut launched => end,
        () = crate::interrupt::interrupted() => {
            session.cancel();
            launched.as_mut().await
        }
    };
    drop(launched);
    (end, broker.close().await)
}

fn agent(config: &Config, name: &str) -> Result<(AgentName, AgentSettings), Failure> {
    let found = config
        .agents
        .iter()
        .find(|(known, _)| known.as_str() == name);
    let Some((name, settings)) = found else {
        let shown = Untrusted::new(name).escaped();
        let failure = Failure::new(Exit::Usage, format!("the project has no agent `{shown}`"));
        let names: Vec<&str> = config.agents.keys().map(AgentName::as_str).collect();
        return Err(match model::nearest(name, names.iter().copied()) {
            Some(near) => failure.help(format!("did you mean `{near}`?")),
            None if names.is_empty() => {
                failure.help("describe it under [agents.NAME] in symbiont.toml")
            }
            None => failure.help(format!("its agents are: {}", names.join(", "))),
        });
    };
    Ok((name.clone(), settings.clone()))
}

/// The private folder that holds a run's channel. Removed when dropped.
#[derive(Debug)]
struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    fn create(open: &OpenProject, run: RunId) -> Result<Self, Failure> {
        let storage = |error: &dyn std::error::Error| Failure::of(Exit::Storage, error);
        let folder = open
            .dirs
            .run_sockets(run)
            .map_err(|error| storage(&error))?;
        Ok(Self {
            path: folder.path().to_owned(),
        })
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn channel(&self) -> PathBuf {
        self.path.join("channel")
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.path);
    }
}

struct LaunchFacts<'a> {
    name: &'a AgentName,
    settings: &'a AgentSettings,
    args: &'a RunArgs,
    policy_sha256: model::Digest,
    tools: &'a [ToolName],
    tool_set_sha256: model::Digest,
    inference: Option<&'a Inference>,
}

fn launch_plan(
    open: &OpenProject,
    config: &Config,
    facts: &LaunchFacts<'_>,
    channel: &Path,
) -> Result<LaunchPlan, Failure> {
    let settings = facts.settings;
    let AgentExecutor::Command { command } = &settings.executor else {
        return Err(Failure::new(
            Exit::Usage,
            "the executor `claude_code` is not available in this version",
        )
        .help("use `executor = \"command\"` with the agent's own command line"));
    };
    let boundary = govern::boundary(open.project.path(), &config.sandbox);
    let host = settings
        .program
        .as_ref()
        .map(|path| path.resolve(open.project.path()));
    let shown_at = host.as_deref().map(agent_path);
    let task = facts.args.task.as_str();
    let words = command
        .iter()
        .map(|word| fill(word, task, shown_at.as_deref()))
        .collect::<Vec<_>>();
    let argv = match facts.inference {
        Some(_) => McpToolBroker::child_command(&words),
        None => words,
    };
    let programs = ProgramCache::default();
    let first = argv.first().map_or("", String::as_str);
    let usage = |error: &dyn std::error::Error| Failure::of(Exit::Isolation, error);
    let (program, shown) = identities(
        &programs,
        first,
        &boundary,
        host.as_deref(),
        shown_at.as_deref(),
    )
    .map_err(|error| usage(&error))?;
    let lifetime = Duration::from_secs(facts.args.budget_timeout);
    Ok(LaunchPlan {
        descriptor: LaunchDescriptor {
            agent: facts.name.clone(),
            executor: settings.executor.as_str().to_owned(),
            task: task.to_owned(),
            environment: environment(settings, task, facts.inference.is_some()),
            argv,
            program,
            shown,
            tools: facts.tools.to_vec(),
            tool_set_sha256: facts.tool_set_sha256,
            policy_sha256: facts.policy_sha256,
            max_calls: facts.args.max_calls,
            lifetime_ms: u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX),
            human_approval: settings.human_approval,
            inference: facts.inference.map(Inference::terms),
            boundary: agent_boundary(&boundary, settings, lifetime),
        },
        channel: channel.to_owned(),
        shown: host,
    })
}

type Identities = (ProgramIdentity, Option<ProgramIdentity>);

fn identities(
    programs: &ProgramCache,
    first: &str,
    boundary: &BoundarySettings,
    host: Option<&Path>,
    shown_at: Option<&str>,
) -> Result<Identities, sandbox::ProgramError> {
    let shown = match (host, shown_at) {
        (Some(host), Some(at)) => Some(programs.identify_file(host, at, &boundary.root)?),
        _ => None,
    };
    let program = match &shown {
        Some(shown) if shown.path == first => shown.clone(),
        _ => programs.resolve(first, &boundary.root)?,
    };
    Ok((program, shown))
}

fn agent_path(host: &Path) -> String {
    let name = host.file_name().unwrap_or_default().to_string_lossy();
    format!("{AGENT_FOLDER}/{name}")
}

/// Fills `{task}`, `{mcp_config}`, `{inference_url}` and `{program}` into one word.
fn fill(word: &str, task: &str, program: Option<&str>) -> String {
    match word {
        "{task}" => task.to_owned(),
        "{mcp_config}" => McpToolBroker::mcp_config(),
        "{inference_url}" => McpToolBroker::inference_url(),
        "{program}" => program.unwrap_or_default().to_owned(),
        other => other.to_owned(),
    }
}

fn environment(settings: &AgentSettings, task: &str, inference: bool) -> BTreeMap<String, String> {
    let mut environment = worker_environment();
    environment.extend(settings.env.clone());
    environment.insert("SYMBI_TASK".to_owned(), task.to_owned());
    environment.insert("SYMBI_MCP_CONFIG".to_owned(), McpToolBroker::mcp_config());
    if inference {
        let url = McpToolBroker::inference_url();
        environment.insert("ANTHROPIC_BASE_URL".to_owned(), url.clone());
        environment.insert("ANTHROPIC_API_KEY".to_owned(), "held-by-symbi".to_owned());
        environment.insert("SYMBI_INFERENCE_URL".to_owned(), url);
    }
    environment
}

fn agent_boundary(
    boundary: &BoundarySettings,
    settings: &AgentSettings,
    lifetime: Duration,
) -> CommandBoundary {
    let lifetime_ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
    CommandBoundary {
        tier: TierKind::Namespace,
        root: boundary.root.clone(),
        network: Network::None,
        working_dir: boundary.working_dir.clone(),
        limits: wanted(&[
            settings.memory_mib,
            settings.cpu_milli,
            settings.pids,
            boundary.file_bytes,
            boundary.scratch_bytes,
            boundary.stream_bytes,
            lifetime_ms,
        ]),
        filesystem: Filesystem::default(),
    }
}

/// What the operator reads at the end, and the exit code.
fn report(end: &RunEnd, output: Output) -> Exit {
    let session = end.session.as_ref().err();
    let exit = match &end.launch {
        LaunchEnd::Ended(outcome) => exit_of_answer(&Answer::Settled(outcome.clone())),
        LaunchEnd::Refused(refusal) => exit_of_answer(&Answer::Refused(refusal.clone())),
        LaunchEnd::Session(cause) => exit_of_end(cause),
    };
    let exit = session.map_or(exit, |cause| exit.worst(exit_of_end(cause)));
    let (status, reason) = match &end.launch {
        LaunchEnd::Ended(outcome) => {
            let name = match outcome.outcome {
                Outcome::Succeeded => "succeeded",
                Outcome::Failed { .. } => "failed",
                Outcome::Unconfirmed { .. } => "unconfirmed",
                Outcome::NotStarted { .. } => "not_started",
            };
            (name, outcome.outcome.reason().map(str::to_owned))
        }
        LaunchEnd::Refused(refusal) => ("refused", Some(refusal.to_string())),
        LaunchEnd::Session(cause) => ("failed", Some(cause.to_string())),
    };
    let (stdout, stderr) = match &end.launch {
        LaunchEnd::Ended(outcome) => (
            String::from_utf8_lossy(&outcome.output.stdout).into_owned(),
            String::from_utf8_lossy(&outcome.output.stderr).into_owned(),
        ),
        LaunchEnd::Refused(_) | LaunchEnd::Session(_) => (String::new(), String::new()),
    };
    if output.is_json() {
        output.value(&serde_json::json!({
            "status": status, "reason": reason, "run_id": end.run,
            "journal": end.journal.display().to_string(), "public_key": end.vkey,
            "results": stdout, "stderr": stderr,
            "session": session.map_or("completed".to_owned(), ToString::to_string),
        }));
        return exit;
    }
    for (text, to_stdout) in [(stdout, true), (stderr, false)] {
        let shown = Untrusted::new(text).escaped_lines();
        match shown.trim_end() {
            "" => {}
            shown if to_stdout => output.line(shown),
            shown => output.note(shown),
        }
    }
    let reason = reason
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default();
    output.note(&format!("agent: {status}{reason}"));
    if let Some(cause) = session {
        output.note(&format!("session: {cause}"));
    }
    output.note(&format!(
        "  run {}\n  read it: symbi audit show {0}",
        end.run
    ));
    exit
}
