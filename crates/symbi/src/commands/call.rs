//! `symbi call`: one governed call by the operator.

use std::sync::Arc;

use governance::{BrokerToolCall, EndCause, Lack, LoopConfig, LoopState, Outcome, RefusalKind};
use journal::Client;
use model::RunId;
use policy::Policies;
use project::Surface;
use serde_json::{Map, Value};
use symbi_runtime::envelope::{Envelope, JournalPlace};
use symbi_runtime::reasoning::governed_session::{Answer, GovernedToolSession, SessionParts};
use symbi_runtime::{CedarGate, LedgerRegister};

use crate::approvals::{Asks, Surfaces};
use crate::args::{ApprovalArgs, CallArgs, Common};
use crate::call_arguments;
use crate::claim::{self, Begun, Claim};
use crate::exit::{Exit, Failure};
use crate::govern::{self, RunPlace};
use crate::interrupt::Watch;
use crate::open::{OPERATOR, OpenProject, find_tool, launches, principals, shape};
use crate::output::Output;

/// What an invocation is for, as its claim keeps the hash of it: nobody may guess a sensitive value
/// from that, so it stands for every value of such an argument.
fn request(open: &OpenProject, args: &CallArgs, arguments: &Map<String, Value>) -> Value {
    let contracts = open.contracts();
    let contract = contracts
        .as_ref()
        .ok()
        .and_then(|all| find_tool(all, &args.tool).ok());
    let is_open = |name: &str| {
        let mut known = contract.iter().flat_map(|contract| contract.arguments());
        known.any(|spec| spec.name().as_str() == name && !spec.sensitive())
    };
    let shown = arguments.iter().map(|(name, value)| match is_open(name) {
        true => (name.clone(), value.clone()),
        false => (name.clone(), Value::String("[sensitive]".to_owned())),
    });
    let shown: Map<String, Value> = shown.collect();
    serde_json::json!({ "call": args.tool, "arguments": shown })
}

/// Runs the command.
pub(crate) fn run(
    args: &CallArgs,
    approval: &ApprovalArgs,
    id: Option<RunId>,
    common: &Common,
) -> Result<Exit, Failure> {
    let watch = Watch::started()?;
    let arguments = call_arguments::read(args)?;
    let (open, verdict) = OpenProject::find_trusted(common.project.as_deref())?;
    let request = request(&open, args, &arguments);
    let mut claim = match claim::begin(&open, id, &request)? {
        Begun::Now(claim) => claim,
        Begun::Before(saved) => return Ok(saved.show(Output::new(common.json))),
    };
    let config = open.config()?;
    let contracts = open.contracts()?;
    let contract = find_tool(&contracts, &args.tool)?;
    let (name, needed) = (contract.name().clone(), contract.needs_approval());
    let policies = if verdict == Some(open.policy_verdict()) {
        let shapes = [shape(contract)];
        let principals = principals(&config);
        let sources = open.sources(Surface::Call);
        Policies::load_validated(&sources, &shapes, &launches(), &principals, &[])
            .map_err(|errors| Failure::new(Exit::Usage, errors.to_string()))?
    } else {
        open.policies(Surface::Call, &config, &contracts)?
    };
    let tier = govern::tier(&open, &config)?;
    let init_sha256 = tier.init_sha256;
    let executor = govern::executor(&open, &config, contracts, std::slice::from_ref(&name), tier)?;
    let run = claim.run();
    let surfaces = Surfaces::open(&open, &config, approval, Asks { run, needed })?;
    let place = RunPlace::create(&open, run, OPERATOR)?;
    let parts = SessionParts {
        executor: Box::new(executor),
        gate: Box::new(CedarGate::new(Arc::new(policies))),
        journal: place.files.journal().clone(),
        state: LoopState {
            run,
            principal: OPERATOR.to_owned(),
            trusted: std::collections::BTreeMap::new(),
        },
        config: LoopConfig {
            max_calls: 1,
            approval_timeout: surfaces.timeout(),
            holds_per_hour: surfaces.holds_per_hour(),
            ..LoopConfig::default()
        },
        approvals: surfaces.approvals(),
        project: config.name.clone().unwrap_or_default(),
        client: Client::Operator,
        init_sha256,
        one_shot: true,
        observer: None,
        register: None,
    };
    let journal = JournalPlace {
        journal: place.files.path().display().to_string(),
        public_key: place.vkey.clone(),
    };
    let parts = SessionParts {
        register: Some(Box::new(LedgerRegister::new(place.files))),
        ..parts
    };
    let call = BrokerToolCall {
        call_id: "call".to_owned(),
        name: name.to_string(),
        arguments: Value::Object(arguments),
    };
    let (answer, end) = serve(parts, call, surfaces, &watch)?;
    report(&answer, end.as_ref(), &mut claim, journal, common)
}

/// Serves the one call; Ctrl-C cancels it.
fn serve(
    parts: SessionParts,
    call: BrokerToolCall,
    surfaces: Surfaces,
    watch: &Watch,
) -> Result<(Result<Answer, EndCause>, Option<EndCause>), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Storage, format!("the async runtime: {error}")))?;
    let session =
        GovernedToolSession::start(parts).map_err(|error| Failure::of(Exit::Usage, &error))?;
    let _asking = surfaces.start(&session.held_calls())?;
    runtime.block_on(async {
        let mut answer = Box::pin(session.call(call));
        let answered = tokio::select! {
            biased;
            () = watch.asked() => {
                session.cancel();
                answer.as_mut().await
            }
            answered = &mut answer => answered,
        };
        drop(answer);
        // A one-shot session has ended with its call; what it ended with is asked here.
        let end = session
            .close()
            .await
            .err()
            .filter(|cause| *cause != EndCause::Closed);
        Ok((answered, end))
    })
}

fn report(
    answer: &Result<Answer, EndCause>,
    end: Option<&EndCause>,
    claim: &mut Claim,
    journal: JournalPlace,
    common: &Common,
) -> Result<Exit, Failure> {
    let (output, run) = (Output::new(common.json), claim.run());
    let end_exit = end.map_or(Exit::Done, exit_of_end);
    match answer {
        Ok(answer) => {
            let now = symbi_runtime::clock::now_rfc3339();
            let mut envelope = Envelope::of(answer, run, now);
            envelope.place = Some(journal);
            let exit = exit_of_answer(answer).worst(end_exit);
            let saved = claim.save(&envelope.to_json(), exit);
            output.envelope(&envelope);
            saved.map(|()| exit)
        }
        Err(cause) => {
            let exit = exit_of_end(cause).worst(end_exit);
            let failure = Failure::new(exit, format!("the run {run} ended: {cause}"))
                .help(format!("its journal: {}", journal.journal));
            claim.save_failure(&failure)?;
            Err(failure)
        }
    }
}

/// The exit code of one answer.
pub(crate) fn exit_of_answer(answer: &Answer) -> Exit {
    match answer {
        Answer::Settled(outcome) => match outcome.outcome {
            Outcome::Succeeded => Exit::Done,
            Outcome::Failed { .. } => Exit::Failed,
            Outcome::NotStarted { .. } => match outcome.lack {
                Some(Lack::Isolation) => Exit::Isolation,
                Some(Lack::Room) => Exit::Refused,
                None => Exit::Failed,
            },
            Outcome::Unconfirmed { .. } => Exit::Unconfirmed,
        },
        Answer::Refused(refusal) => match refusal.kind {
            RefusalKind::Invalid | RefusalKind::Denied | RefusalKind::Capacity => Exit::Refused,
            RefusalKind::NotApproved => Exit::NotApproved,
            RefusalKind::Withdrawn => Exit::Failed,
            RefusalKind::Unavailable => Exit::Isolation,
        },
    }
}

/// The exit code of a session's end.
pub(crate) fn exit_of_end(cause: &EndCause) -> Exit {
    match cause {
        EndCause::Budget { .. }
        | EndCause::Deadline { .. }
        | EndCause::Cancelled
        | EndCause::ClosedWithCall
        | EndCause::AbandonedCall { .. }
        | EndCause::Transport { .. } => Exit::Failed,
        EndCause::RegistryChanged | EndCause::Closed => Exit::Refused,
        EndCause::Unconfirmed { .. } | EndCause::Inference { .. } => Exit::Unconfirmed,
        EndCause::Journal { .. } | EndCause::Lost => Exit::Storage,
    }
}
