//! From an agent's settings to its launch: command line, environment, programs, boundary.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use model::{AgentName, Digest, Untrusted};
use project::{AgentExecutor, AgentSettings, Config};
use sandbox::ProgramCache;
use symbi_runtime::cli_executor::broker::McpToolBroker;
use symbi_runtime::tools::{BoundarySettings, LaunchPlan, worker_environment};
use worker::{
    CommandBoundary, Filesystem, LaunchDescriptor, Limits, Network, ProgramFile, ProgramIdentity,
    WorkerRoot,
};

use crate::agents::claude_code::{self, Place, Terms};
use crate::args::RunArgs;
use crate::exit::{Exit, Failure};
use crate::govern::{self, TierPlace};
use crate::inference::Inference;
use crate::open::OpenProject;

/// Folder of the agent's own program inside its worker.
const AGENT_FOLDER: &str = "/agent";

/// What a launch is made of.
#[derive(Debug)]
pub(crate) struct LaunchFacts<'a> {
    pub(crate) name: &'a AgentName,
    pub(crate) settings: &'a AgentSettings,
    pub(crate) args: &'a RunArgs,
    pub(crate) policy_sha256: Digest,
    pub(crate) tool_set_sha256: Digest,
    pub(crate) inference: Option<&'a Inference>,
    pub(crate) place: &'a TierPlace,
}

/// The launch as it will be judged and recorded; only the limits' enforcement is still open.
pub(crate) fn launch_plan(
    open: &OpenProject,
    config: &Config,
    facts: &LaunchFacts<'_>,
    channel: &Path,
) -> Result<LaunchPlan, Failure> {
    let settings = facts.settings;
    let boundary = govern::boundary(&config.sandbox, facts.place);
    let named = settings
        .program
        .as_ref()
        .map(|path| path.resolve(open.project.path()));
    // In a container it is a path of the image, and nothing of the host is shown.
    let (host, shown_at) = match (&boundary.root, named) {
        (WorkerRoot::Image { .. }, named) => {
            (None, named.map(|path| path.to_string_lossy().into_owned()))
        }
        (_, Some(host)) => {
            let at = agent_path(&settings.executor, &host);
            (Some(host), Some(at))
        }
        (_, None) => (None, None),
    };
    let words = command(facts, &boundary, shown_at.as_deref())?;
    let argv = match facts.inference {
        Some(_) => McpToolBroker::child_command(&words),
        None => words,
    };
    let at = host.as_deref().zip(shown_at.as_deref());
    let (program, shown) = identities(&argv, &boundary, at, facts)?;
    let lifetime = Duration::from_secs(facts.args.budget_timeout);
    Ok(LaunchPlan {
        descriptor: LaunchDescriptor {
            agent: facts.name.clone(),
            executor: settings.executor.as_str().to_owned(),
            task: facts.args.task.clone(),
            environment: environment(facts)?,
            argv,
            program,
            shown,
            tools: settings.allowed_tools.clone(),
            tool_set_sha256: facts.tool_set_sha256,
            policy_sha256: facts.policy_sha256,
            max_calls: facts.args.max_calls,
            lifetime_ms: u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX),
            human_approval: settings.human_approval,
            inference: facts.inference.map(Inference::terms),
            boundary: agent_boundary(&boundary, facts, lifetime)?,
        },
        channel: channel.to_owned(),
        shown: host,
    })
}

type Identities = (ProgramIdentity, Option<ProgramFile>);

/// The program that runs, and the agent's own file `(on the host, in the worker)` if it has one.
fn identities(
    argv: &[String],
    boundary: &BoundarySettings,
    own: Option<(&Path, &str)>,
    facts: &LaunchFacts<'_>,
) -> Result<Identities, Failure> {
    let agent = facts.name;
    let programs = ProgramCache::default();
    let shown = own
        .map(|(host, at)| own_program(&programs, host, at, boundary, facts))
        .transpose()?;
    let first = argv.first().map_or("", String::as_str);
    let program = match &shown {
        Some(shown) if shown.path == first => ProgramIdentity::Content(shown.clone()),
        _ => programs.resolve(first, &boundary.root).map_err(|error| {
            Failure::of(Exit::Usage, &error).help(format!(
                "correct `command` of [agents.{agent}] in symbiont.toml; a file of your own is \
                 shown to the agent with `program`, and named there as {{program}}"
            ))
        })?,
    };
    Ok((program, shown))
}

fn own_program(
    programs: &ProgramCache,
    host: &Path,
    at: &str,
    boundary: &BoundarySettings,
    facts: &LaunchFacts<'_>,
) -> Result<ProgramFile, Failure> {
    let agent = facts.name;
    // The agent that is configured is there or not; any other command is what it says.
    let exit = match facts.settings.executor {
        AgentExecutor::ClaudeCode => Exit::Isolation,
        AgentExecutor::Command { .. } => Exit::Usage,
    };
    let refuse = |why: String| {
        let path = Untrusted::new(host.to_string_lossy()).escaped();
        Failure::new(
            exit,
            format!("the program `{path}` of the agent `{agent}` cannot be used: {why}"),
        )
        .help(format!(
            "correct `program` of [agents.{agent}] in symbiont.toml, or put the file there, \
             readable and executable (chmod 755)"
        ))
    };
    if let Ok(target) = std::fs::read_link(host) {
        let target = host.canonicalize().unwrap_or(target);
        let target = Untrusted::new(target.to_string_lossy()).escaped();
        return Err(refuse(format!(
            "it is a symbolic link; name the file itself: {target}"
        )));
    }
    std::fs::File::open(host).map_err(|error| refuse(error.to_string()))?;
    let program = programs
        .identify_file(host, at, &boundary.root)
        .map_err(|error| refuse(crate::exit::chain(&error)))?;
    if facts.settings.executor == AgentExecutor::ClaudeCode {
        claude_code::check_program(&program).map_err(refuse)?;
    }
    Ok(program)
}

fn agent_path(executor: &AgentExecutor, host: &Path) -> String {
    match executor {
        AgentExecutor::ClaudeCode => claude_code::PROGRAM.to_owned(),
        AgentExecutor::Command { .. } => {
            let name = host.file_name().unwrap_or_default().to_string_lossy();
            format!("{AGENT_FOLDER}/{name}")
        }
    }
}

/// The agent's own command line.
fn command(
    facts: &LaunchFacts<'_>,
    boundary: &BoundarySettings,
    program: Option<&str>,
) -> Result<Vec<String>, Failure> {
    let (settings, task) = (facts.settings, facts.args.task.as_str());
    match &settings.executor {
        AgentExecutor::Command { command } => {
            if facts.args.max_turns.is_some() {
                return Err(no_turns(facts.name));
            }
            Ok(command
                .iter()
                .map(|word| fill(word, task, program))
                .collect())
        }
        AgentExecutor::ClaudeCode => {
            let terms = claude_terms(facts)?;
            claude_code::check(&Place {
                agent: facts.name.as_str(),
                root: &boundary.root,
                memory_mib: settings.memory_mib,
                pids: settings.pids,
            })?;
            let tools = &settings.allowed_tools;
            let turns = [settings.max_turns, facts.args.max_turns];
            let turns = turns.into_iter().flatten().min();
            let program = program.unwrap_or(claude_code::PROGRAM);
            Ok(claude_code::command(program, task, tools, turns, terms))
        }
    }
}

/// Only a client that we know counts its turns for us.
fn no_turns(agent: &AgentName) -> Failure {
    Failure::new(
        Exit::Usage,
        format!("`--max-turns` means nothing to the agent `{agent}`, which is any command"),
    )
    .help("bound it with --max-calls, --budget-timeout and --budget-tokens")
}

/// What Claude Code must know of its terms; without a model it can do nothing.
fn claude_terms<'a>(facts: &LaunchFacts<'a>) -> Result<Terms<'a>, Failure> {
    let Some(inference) = facts.inference else {
        let agent = facts.name;
        return Err(Failure::new(
            Exit::Usage,
            format!("the agent `{agent}` is Claude Code, and there is no model for it"),
        )
        .help(
            "add to symbiont.toml: [managed_cli.inference] with provider and model; and to your \
             own config.toml: [providers.NAME] with base_url and api_key_env",
        ));
    };
    Ok(Terms {
        model: inference.model(),
        max_output_tokens: inference.max_request_tokens(),
        lifetime_ms: facts.args.budget_timeout.saturating_mul(1000),
    })
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

fn environment(facts: &LaunchFacts<'_>) -> Result<BTreeMap<String, String>, Failure> {
    let (settings, task) = (facts.settings, facts.args.task.as_str());
    let claude = match settings.executor {
        AgentExecutor::ClaudeCode => Some(claude_terms(facts)?),
        AgentExecutor::Command { .. } => None,
    };
    let mut environment = worker_environment();
    environment.extend(
        claude
            .map(claude_code::default_environment)
            .unwrap_or_default(),
    );
    environment.extend(settings.env.clone());
    environment.extend(
        claude
            .map(claude_code::fixed_environment)
            .unwrap_or_default(),
    );
    environment.insert("SYMBI_TASK".to_owned(), task.to_owned());
    environment.insert("SYMBI_MCP_CONFIG".to_owned(), McpToolBroker::mcp_config());
    if facts.inference.is_some() {
        let url = McpToolBroker::inference_url();
        environment.insert("ANTHROPIC_BASE_URL".to_owned(), url.clone());
        environment.insert("ANTHROPIC_API_KEY".to_owned(), "held-by-symbi".to_owned());
        environment.insert("SYMBI_INFERENCE_URL".to_owned(), url);
    }
    Ok(environment)
}

/// The profile of the agent's worker: the operator's isolation with the agent's own bounds.
fn agent_boundary(
    boundary: &BoundarySettings,
    facts: &LaunchFacts<'_>,
    lifetime: Duration,
) -> Result<CommandBoundary, Failure> {
    let settings = facts.settings;
    let lifetime_ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
    let operator = CommandBoundary {
        tier: facts.place.kind,
        root: boundary.root.clone(),
        network: Network::None,
        working_dir: boundary.working_dir.clone(),
        limits: Limits::wanted([
            settings.memory_mib,
            settings.cpu_milli,
            settings.pids,
            boundary.file_bytes,
            boundary.scratch_bytes,
            boundary.stream_bytes,
            lifetime_ms,
        ]),
        filesystem: Filesystem::default(),
    };
    McpToolBroker::child_boundary(&operator).map_err(|error| Failure::of(Exit::Isolation, &error))
}
