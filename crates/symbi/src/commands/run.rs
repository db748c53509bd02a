//! `symbi run`: a contained agent with governed tools.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use governance::limits::{CALLS_MAX, LIFETIME_MAX};
use governance::{ActionExecutor, EndCause, LoopConfig, LoopState, Outcome, tool_set_digest};
use journal::Client;
use model::{AgentName, RunId, Untrusted};
use project::{AgentExecutor, AgentSettings, Config, RunFolder, Surface};
use symbi_runtime::cli_executor::ProtectedInference;
use symbi_runtime::cli_executor::broker::McpToolBroker;
use symbi_runtime::reasoning::governed_session::{
    Answer, GovernedToolSession, LaunchEnd, SessionParts,
};
use symbi_runtime::{CedarGate, LedgerRegister};
use toolclad::{Contract, ContractSet};

use crate::agents::claude_code::{self, Story};
use crate::approvals::{Asks, Surfaces};
use crate::args::{ApprovalArgs, Common, RunArgs};
use crate::claim::{self, Begun, Claim};
use crate::commands::call::{exit_of_answer, exit_of_end};
use crate::exit::{Exit, Failure};
use crate::govern::{self, ConfiguredTier, ReadyTier, RunPlace};
use crate::inference::{self, Inference};
use crate::interrupt::Watch;
use crate::launch::{LaunchFacts, launch_plan};
use crate::open::{OpenProject, check_agents};
use crate::output::Output;
use crate::progress::{self, Hearing, Live};

/// How a run ended.
#[derive(Debug)]
pub(crate) struct RunEnd {
    pub(crate) run: RunId,
    pub(crate) journal: PathBuf,
    pub(crate) vkey: String,
    pub(crate) launch: LaunchEnd,
    pub(crate) session: Result<(), EndCause>,
    /// The agent's own account, where its executor has one.
    pub(crate) story: Option<Story>,
    /// What the agent wrote is on standard output already.
    pub(crate) is_shown: bool,
}

/// Who runs it.
#[derive(Debug)]
pub(crate) struct Owner<'a> {
    pub(crate) watch: &'a Watch,
    /// Where the run is shown while it goes on.
    pub(crate) show: Option<Output>,
}

/// Runs the command.
pub(crate) fn run(
    args: &RunArgs,
    approval: &ApprovalArgs,
    id: Option<RunId>,
    common: &Common,
) -> Result<Exit, Failure> {
    let watch = Watch::started()?;
    let (open, _) = OpenProject::find_trusted(common.project.as_deref())?;
    let output = Output::new(common.json);
    let request = serde_json::json!({
        "run": args.agent, "task": args.task, "max_calls": args.max_calls,
        "budget_timeout": args.budget_timeout, "budget_tokens": args.budget_tokens,
    });
    let mut claim = match claim::begin(&open, id, &request)? {
        Begun::Now(claim) => claim,
        Begun::Before(saved) => return Ok(saved.show(output)),
    };
    let owner = Owner {
        watch: &watch,
        show: Some(output),
    };
    let end = run_agent(&open, args, approval, claim.run(), &owner)?;
    report(&end, &mut claim, output)
}

/// Whether the launch or one of the agent's tools asks a person.
fn needs_person(settings: &AgentSettings, contracts: &ContractSet) -> bool {
    let asking = |it: &Contract| it.needs_approval() && settings.allowed_tools.contains(it.name());
    settings.human_approval || contracts.iter().any(asking)
}

/// What the agent needs of an image, tried there before anything is recorded or sent.
fn probe_agent(
    tier: &mut ReadyTier,
    settings: &AgentSettings,
    folder: &Path,
) -> Result<(), Failure> {
    let ConfiguredTier::Container(tier) = &mut tier.tier else {
        return Ok(());
    };
    let own = settings.program.as_ref();
    let own = own.map(|path| path.resolve(Path::new("/")));
    let own: Vec<&str> = own.iter().filter_map(|path| path.to_str()).collect();
    tier.probe_agent(&own, folder)
        .map_err(|error| Failure::of(Exit::Isolation, &error))
}

/// Runs an agent of a trusted project to its end, or until its owner's watch is asked for one.
pub(crate) fn run_agent(
    open: &OpenProject,
    args: &RunArgs,
    approval: &ApprovalArgs,
    run: RunId,
    owner: &Owner<'_>,
) -> Result<RunEnd, Failure> {
    check_words(args)?;
    let config = open.config()?;
    let (name, settings) = agent(&config, &args.agent)?;
    let contracts = open.contracts()?;
    check_agents(open, &config, &contracts)?;
    let policies = open.policies(Surface::Run, &config, &contracts)?;
    let inference = model_channel(open, &config, args, &settings)?;
    let mut tier = govern::tier(open, &config)?;
    let (place, init_sha256) = (tier.place(), tier.init_sha256);
    let needed = needs_person(&settings, &contracts);
    let surfaces = Surfaces::open(open, &config, approval, Asks { run, needed })?;
    let folder = run_folder(open, run)?;
    probe_agent(&mut tier, &settings, folder.path())?;
    let executor = govern::executor(open, &config, contracts, &settings.allowed_tools, tier)?;
    let facts = LaunchFacts {
        name: &name,
        settings: &settings,
        args,
        policy_sha256: policies.digest(),
        tool_set_sha256: tool_set_digest(ActionExecutor::tools(&executor))
            .map_err(|error| Failure::of(Exit::Usage, &error))?,
        inference: inference.as_ref(),
        place: &place,
    };
    let plan = launch_plan(open, &config, &facts, &folder.path().join("channel"))?;
    let live = owner.live(run, &facts)?;
    let surfaces = surfaces.beside(live.as_ref().map(Live::screen));
    let place = RunPlace::create(open, run, name.as_str())?;
    let (journal, vkey) = (place.files.journal().clone(), place.vkey.clone());
    let path = place.files.path().to_owned();
    let inference = inference
        .map(|it| it.protect(journal.clone()))
        .transpose()
        .inspect_err(|_| discard_unused(&path))?;
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
        config: loop_config(args, &surfaces),
        approvals: surfaces.approvals(),
        project: config.name.clone().unwrap_or_default(),
        client: Client::Contained,
        init_sha256,
        one_shot: false,
        observer: live.as_ref().map(Live::observer),
    };
    let channel = AgentChannel {
        folder,
        inference,
        surfaces,
        executor: settings.executor.as_str(),
    };
    let served = serve(parts, channel, owner.watch);
    let is_shown = live.is_some_and(Live::finish);
    let (launch, session) = served.inspect_err(|_| discard_unused(&path))?;
    Ok(RunEnd {
        run,
        journal: path,
        vkey,
        story: story(&settings.executor, &launch),
        launch,
        session,
        is_shown,
    })
}

impl Owner<'_> {
    /// Starts to show a run, where it is to be shown.
    fn live(&self, run: RunId, facts: &LaunchFacts<'_>) -> Result<Option<Live>, Failure> {
        let Some(output) = self.show else {
            return Ok(None);
        };
        let hearing = match facts.settings.executor {
            AgentExecutor::ClaudeCode => Hearing::ClaudeCode,
            AgentExecutor::Command { .. } => Hearing::Plain,
        };
        let terms = progress::Terms {
            run,
            agent: facts.name.to_string(),
            max_calls: facts.args.max_calls,
            lifetime: Duration::from_secs(facts.args.budget_timeout),
            model: facts.inference.map(|inference| {
                let terms = inference.terms();
                (terms.max_requests, terms.max_total_output_tokens)
            }),
        };
        Live::start(output, hearing, terms)
            .map(Some)
            .map_err(|error| Failure::new(Exit::Storage, format!("showing the run: {error}")))
    }
}

/// The private folder of a run's sockets.
pub(crate) fn run_folder(open: &OpenProject, run: RunId) -> Result<RunFolder, Failure> {
    let folder = open.dirs.run_sockets(run);
    folder.map_err(|error| Failure::of(Exit::Storage, &error))
}

fn loop_config(args: &RunArgs, surfaces: &Surfaces) -> LoopConfig {
    LoopConfig {
        max_calls: args.max_calls,
        lifetime: Duration::from_secs(args.budget_timeout),
        approval_timeout: surfaces.timeout(),
        holds_per_hour: surfaces.holds_per_hour(),
        ..LoopConfig::default()
    }
}

/// The agent's model, with what its client asks of it.
fn model_channel(
    open: &OpenProject,
    config: &Config,
    args: &RunArgs,
    settings: &AgentSettings,
) -> Result<Option<Inference>, Failure> {
    let inference = inference::configured(open, config, args.budget_tokens)?;
    Ok(match settings.executor {
        AgentExecutor::ClaudeCode => inference.map(|it| it.or_betas(&claude_code::BETA_HEADERS)),
        AgentExecutor::Command { .. } => inference,
    })
}

fn story(executor: &AgentExecutor, launch: &LaunchEnd) -> Option<Story> {
    match (executor, launch) {
        (AgentExecutor::ClaudeCode, LaunchEnd::Ended(outcome)) => {
            Some(Story::read(&outcome.output.stdout))
        }
        _ => None,
    }
}

fn check_words(args: &RunArgs) -> Result<(), Failure> {
    let budgets = Budgets {
        max_calls: args.max_calls,
        timeout: args.budget_timeout,
        tokens: args.budget_tokens,
    };
    if args.task.trim().is_empty() {
        return Err(Failure::new(Exit::Usage, "`--task` is empty")
            .help("say what the agent is to do: --task TEXT"));
    }
    budgets.check()
}

/// What a session may use up, by the names of its options.
#[derive(Debug)]
pub(crate) struct Budgets {
    pub(crate) max_calls: u64,
    /// Seconds.
    pub(crate) timeout: u64,
    pub(crate) tokens: Option<u64>,
}

impl Budgets {
    /// Refuses budgets that no session takes.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let timeout_max = LIFETIME_MAX.as_secs();
        let budgets = [
            ("--max-calls", Some(self.max_calls), CALLS_MAX),
            ("--budget-timeout", Some(self.timeout), timeout_max),
            ("--budget-tokens", self.tokens, u64::MAX),
        ];
        for (option, given, max) in budgets {
            let Some(given) = given.filter(|given| !(1..=max).contains(given)) else {
                continue;
            };
            let allowed = match max {
                u64::MAX => "at least 1".to_owned(),
                max => format!("from 1 to {max}"),
            };
            return Err(Failure::new(Exit::Usage, format!("`{option}` is {given}"))
                .help(format!("give a number {allowed}")));
        }
        Ok(())
    }
}

/// Removes the journal of a run that never began: nothing stands in it.
pub(crate) fn discard_unused(journal: &Path) {
    if std::fs::metadata(journal).is_ok_and(|found| found.len() == 0) {
        let _ = std::fs::remove_file(journal);
    }
}

/// What the agent's broker is started with, besides its session.
struct AgentChannel {
    /// Holds the channel.
    folder: RunFolder,
    inference: Option<ProtectedInference>,
    surfaces: Surfaces,
    executor: &'static str,
}

type Ends = (LaunchEnd, Result<(), EndCause>);

fn serve(parts: SessionParts, channel: AgentChannel, watch: &Watch) -> Result<Ends, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Storage, format!("the async runtime: {error}")))?;
    let run = parts.state.run;
    runtime.block_on(async {
        let session =
            GovernedToolSession::start(parts).map_err(|error| Failure::of(Exit::Usage, &error))?;
        let _asking = channel.surfaces.start(&session.held_calls())?;
        let parent = channel.folder.path();
        let broker = match channel.inference {
            Some(inference) => McpToolBroker::start_with_inference(session, run, parent, inference),
            None => McpToolBroker::start(session, run, parent),
        }
        .map_err(|error| Failure::of(Exit::Storage, &error))?;
        Ok(to_the_end(broker, channel.executor, watch).await)
    })
}

/// Launches, waits, closes. Ctrl-C stops the agent first, then the session ends.
async fn to_the_end(
    broker: McpToolBroker,
    executor: &str,
    watch: &Watch,
) -> (LaunchEnd, Result<(), EndCause>) {
    let session = broker.session().clone();
    let launched = async {
        match session.launch(executor).await {
            Ok(agent) => agent.ended().await,
            Err(end) => end,
        }
    };
    let mut launched = Box::pin(launched);
    let end = tokio::select! {
        biased;
        () = watch.asked() => {
            session.cancel();
            launched.as_mut().await
        }
        end = &mut launched => end,
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

/// What became of the agent, and why.
fn outcome(end: &RunEnd) -> (&'static str, Option<String>) {
    let outcome = match &end.launch {
        LaunchEnd::Ended(outcome) => &outcome.outcome,
        LaunchEnd::Refused(refusal) => return ("refused", Some(refusal.to_string())),
        LaunchEnd::Session(cause) => return ("failed", Some(cause.to_string())),
    };
    let name = match outcome {
        Outcome::Succeeded => "succeeded",
        Outcome::Failed { .. } => "failed",
        Outcome::Unconfirmed { .. } => "unconfirmed",
        Outcome::NotStarted { .. } => "not_started",
    };
    let told = end.story.as_ref().and_then(Story::failure);
    match (outcome.reason(), told) {
        (None, None) => (name, None),
        (None, Some(told)) => ("failed", Some(told.to_owned())),
        (Some(reason), None) => (name, Some(reason.to_owned())),
        (Some(reason), Some(told)) => (name, Some(format!("{reason}: {told}"))),
    }
}

/// What the agent said last, and its standard error.
fn said(end: &RunEnd) -> (String, String) {
    let LaunchEnd::Ended(outcome) = &end.launch else {
        return (String::new(), String::new());
    };
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let stdout = match &end.story {
        None => text(&outcome.output.stdout),
        Some(story) => story.answer().unwrap_or_default().to_owned(),
    };
    (stdout, text(&outcome.output.stderr))
}

/// The exit code of a run.
fn exit_of_run(end: &RunEnd) -> Exit {
    let launch = match &end.launch {
        LaunchEnd::Ended(outcome) => exit_of_answer(&Answer::Settled(outcome.clone())),
        LaunchEnd::Refused(refusal) => exit_of_answer(&Answer::Refused(refusal.clone())),
        LaunchEnd::Session(cause) => exit_of_end(cause),
    };
    let told = match end.story.as_ref().and_then(Story::failure) {
        Some(_) => Exit::Failed,
        None => Exit::Done,
    };
    let session = end.session.as_ref().err().map_or(Exit::Done, exit_of_end);
    launch.worst(told).worst(session)
}

/// What the operator reads at the end, and the exit code.
fn report(end: &RunEnd, claim: &mut Claim, output: Output) -> Result<Exit, Failure> {
    let session = end.session.as_ref().err();
    let exit = exit_of_run(end);
    let (status, reason) = outcome(end);
    let (stdout, stderr) = said(end);
    let value = serde_json::json!({
        "status": status, "reason": reason, "run_id": end.run,
        "journal": end.journal.display().to_string(), "public_key": end.vkey,
        "results": stdout, "stderr": stderr, "story": end.story,
        "session": session.map_or("completed".to_owned(), ToString::to_string),
    });
    let saved = claim.save(&value.to_string(), exit);
    if output.is_json() {
        output.value(&value);
        return saved.map(|()| exit);
    }
    let stdout = if end.is_shown { String::new() } else { stdout };
    for (text, to_stdout) in [(stdout, true), (stderr, false)] {
        let shown = Untrusted::new(text).escaped_lines();
        match shown.trim_end() {
            "" => {}
            shown if to_stdout => output.line(shown),
            shown => output.note(shown),
        }
    }
    let reason = reason
        // A refusal has its advice on a line of its own.
        .map(|reason| {
            format!(
                ": {}",
                Untrusted::new(reason).escaped_lines().replace('\n', "\n  ")
            )
        })
        .unwrap_or_default();
    // A refusal says itself that it is one.
    let status = match &end.launch {
        LaunchEnd::Refused(_) => String::new(),
        _ => format!(": {status}"),
    };
    output.note(&format!("agent{status}{reason}"));
    if let Some(story) = &end.story {
        output.note(&format!("  {}", story.summary()));
    }
    if let Some(cause) = session {
        output.note(&format!("session: {cause}"));
    }
    output.note(&format!(
        "  run {}\n  read it: symbi audit show {0}",
        end.run
    ));
    saved.map(|()| exit)
}
