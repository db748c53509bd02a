//! `symbi mcp`: governed tools over standard input and output, for a client that is not contained.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use governance::{EndCause, LoopConfig, LoopState};
use journal::Client;
use model::{RunId, Untrusted};
use project::{Config, Surface};
use serde_json::Value;
use symbi_runtime::cli_executor::broker::{McpToolBroker, SERVER_NAME};
use symbi_runtime::reasoning::governed_session::{Approvals, GovernedToolSession, SessionParts};
use symbi_runtime::{CedarGate, LedgerRegister};
use toolclad::Contract;

use crate::approvals::{Asks, Surfaces};
use crate::args::{Common, McpArgs};
use crate::commands::call::exit_of_end;
use crate::commands::run::{Budgets, discard_unused};
use crate::exit::{Exit, Failure};
use crate::govern::{self, RunPlace};
use crate::interrupt::Watch;
use crate::open::{CLIENT, OPERATOR, OpenProject};
use crate::output::Output;

/// Runs the command. Standard output is the client's; all that a person reads is on stderr.
pub(crate) fn run(args: &McpArgs, common: &Common) -> Result<Exit, Failure> {
    let watch = Watch::started()?;
    Budgets {
        max_calls: args.max_calls,
        timeout: args.budget_timeout,
        tokens: None,
    }
    .check()?;
    let (open, _) = OpenProject::find_trusted(common.project.as_deref())?;
    let config = open.config()?;
    let principal = principal(&config, args.principal.as_deref())?;
    let contracts = open.contracts()?;
    let policies = open.policies(Surface::Mcp, &config, &contracts)?;
    let tier = govern::tier(&open, &config)?;
    let init_sha256 = tier.init_sha256;
    let names: Vec<_> = contracts.iter().map(|it| it.name().clone()).collect();
    let needed = contracts.iter().any(Contract::needs_approval);
    let executor = govern::executor(&open, &config, contracts, &names, tier)?;
    let run = RunId::new();
    let surfaces = Surfaces::for_client(&open, &config, Asks { run, needed })?;
    let place = RunPlace::create(&open, run, &principal)?;
    let path = place.files.path().to_owned();
    let parts = SessionParts {
        executor: Box::new(executor),
        gate: Box::new(CedarGate::new(Arc::new(policies))),
        journal: place.files.journal().clone(),
        register: Some(Box::new(LedgerRegister::new(place.files))),
        state: LoopState {
            run,
            principal: principal.clone(),
            trusted: BTreeMap::new(),
        },
        config: LoopConfig {
            max_calls: args.max_calls,
            lifetime: Duration::from_secs(args.budget_timeout),
            ..approval_bounds(surfaces.as_ref())
        },
        approvals: surfaces.as_ref().map_or_else(nobody, Surfaces::approvals),
        project: config.name.clone().unwrap_or_default(),
        client: Client::Uncontained,
        init_sha256,
        one_shot: false,
        observer: None,
    };
    let output = Output::new(false);
    output.note(&format!(
        "symbi: governed, not contained: {} tools for Agent::\"{principal}\"; what else the client \
         can do is its own\n  run {run}",
        names.len()
    ));
    if open.sources(Surface::Mcp).is_empty() {
        output.note(
            "  nothing is permitted yet: policies/mcp holds no policy; each refusal says which one \
             would permit the call",
        );
    }
    let end = serve(parts, surfaces, &watch).inspect_err(|_| discard_unused(&path))?;
    Ok(report(end.err().as_ref(), run, output))
}

/// The policies' name for the client: its own, or the one of an agent of the project.
fn principal(config: &Config, asked: Option<&str>) -> Result<String, Failure> {
    let name = asked.unwrap_or(CLIENT);
    let known = || config.agents.keys().map(|agent| agent.as_str());
    if name == CLIENT || known().any(|agent| agent == name) {
        return Ok(name.to_owned());
    }
    let shown = Untrusted::new(name).escaped();
    let failure = match name {
        OPERATOR => "`--as operator`: a client is never the operator".to_owned(),
        _ => format!("`--as {shown}`: nobody in the project has that name"),
    };
    let names = [CLIENT].into_iter().chain(known()).collect::<Vec<_>>();
    Err(Failure::new(Exit::Usage, failure).help(format!("the names are: {}", names.join(", "))))
}

fn approval_bounds(surfaces: Option<&Surfaces>) -> LoopConfig {
    let defaults = LoopConfig::default();
    match surfaces {
        None => defaults,
        Some(surfaces) => LoopConfig {
            approval_timeout: surfaces.timeout(),
            holds_per_hour: surfaces.holds_per_hour(),
            ..defaults
        },
    }
}

/// A client that runs with its user's rights could answer for the user.
fn nobody() -> Approvals {
    Approvals::Nobody {
        advice: "this client is not contained, so it could give the approval itself: let a person \
                 make this call with `symbi call`, or name [approval.operators] in symbiont.toml, \
                 who sign, or a chat (surfaces = [\"chat\"] under [approval])"
            .to_owned(),
    }
}

fn serve(
    parts: SessionParts,
    surfaces: Option<Surfaces>,
    watch: &Watch,
) -> Result<Result<(), EndCause>, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Storage, format!("the async runtime: {error}")))?;
    let run = parts.state.run;
    let end = runtime.block_on(async {
        let session =
            GovernedToolSession::start(parts).map_err(|error| Failure::of(Exit::Usage, &error))?;
        let _asking = surfaces
            .map(|surfaces| surfaces.start(&session.held_calls()))
            .transpose()?;
        let streams = (tokio::io::stdin(), tokio::io::stdout());
        Ok(McpToolBroker::serve_client(session, run, streams, watch.asked()).await)
    });
    // A read of standard input that still waits must not hold us.
    runtime.shutdown_background();
    end
}

fn report(cause: Option<&EndCause>, run: RunId, output: Output) -> Exit {
    let (word, exit) = match cause {
        None => ("completed".to_owned(), Exit::Done),
        Some(cause) => (cause.to_string(), exit_of_end(cause)),
    };
    let word = Untrusted::new(word).escaped();
    output.note(&format!(
        "symbi: session: {word}\n  read it: symbi audit show {run}"
    ));
    exit
}

/// The entry of a client's `.mcp.json`, for the project in `folder`.
pub(crate) fn client_entry(symbi: &Path, folder: &Path) -> Result<Value, Failure> {
    let text = |path: &Path| {
        path.to_str().map(str::to_owned).ok_or_else(|| {
            let shown = Untrusted::new(path.to_string_lossy()).escaped();
            Failure::new(
                Exit::Usage,
                format!("the path `{shown}` is not UTF-8, so no JSON file can name it"),
            )
        })
    };
    Ok(serde_json::json!({ "mcpServers": { SERVER_NAME: {
        "type": "stdio",
        "command": text(symbi)?,
        "args": ["mcp", "--project", text(folder)?],
    } } }))
}
