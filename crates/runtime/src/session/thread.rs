//! The session's own thread, from its first job to its terminal record.

use std::sync::Arc;

use approval::HoldBudget;
use governance::{BrokerToolCall, EndCause, SessionRules, StopCause, ToolDefinition};
use journal::RunStarted;
use tokio::sync::oneshot;
use worker::Ended;

use crate::session::attendant::{Attendant, LiveAgent, Next, stop_of};
use crate::session::dispatcher::{GovernedToolDispatcher, Halt};
use crate::session::parts::{Answer, Job, LaunchEnd, SessionParts, Started};
use crate::session::pending::{End, end_cause};
use crate::session::progress::{Observed, Progress};
use crate::session::ticket::Ticket;

pub(crate) fn dispatcher(
    parts: SessionParts,
    rules: SessionRules,
    tools: &[ToolDefinition],
) -> GovernedToolDispatcher {
    let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let first = RunStarted {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        project: parts.project,
        client: parts.client,
        tools: tools.iter().map(|tool| tool.name.clone()).collect(),
        tool_set_sha256: rules.tool_set(),
        policy_sha256: parts.gate.digest(),
        init_sha256: parts.init_sha256,
        max_calls: parts.config.max_calls,
        lifetime_ms: millis(parts.config.lifetime),
        tool_time_ms: millis(parts.config.tool_time_limit),
    };
    let holds_per_hour = parts.config.holds_per_hour;
    GovernedToolDispatcher {
        executor: parts.executor,
        gate: parts.gate,
        journal: parts.journal,
        register: parts.register,
        rules,
        state: parts.state,
        config: parts.config,
        approvals: parts.approvals,
        holds: HoldBudget::new(holds_per_hour),
        first: Some(first),
        registered: false,
        one_shot: parts.one_shot,
        end_recorded: false,
        observed: Observed::new(parts.observer),
    }
}

/// Serves jobs until the session ends.
pub(crate) fn serve(
    mut dispatcher: GovernedToolDispatcher,
    mut attendant: Attendant,
    outcome: &End,
) {
    while dispatcher.rules.cause().is_none() && !dispatcher.end_recorded {
        match attendant.next() {
            Next::Serve(Job::Call {
                call,
                ticket,
                reply,
            }) => {
                let answer = answer_call(&mut dispatcher, call, &ticket, &mut attendant);
                let _ = reply.send(answer);
            }
            Next::Serve(Job::Launch {
                executor,
                ticket,
                started,
            }) => {
                launch(&mut dispatcher, &executor, ticket, started, &mut attendant);
            }
            Next::Serve(Job::Begin(begun)) => {
                if let Err(cause) = dispatcher.begin() {
                    dispatcher.rules.end(cause);
                }
                let _ = begun.send(());
            }
            Next::Uncounted(answers) => {
                if let Err(cause) = dispatcher.note_uncounted(answers) {
                    dispatcher.rules.end(cause);
                }
            }
            Next::AgentEnded(agent, ended) => settle_agent(&mut dispatcher, *agent, ended, None),
            Next::End(Some(cause)) => dispatcher.rules.end(cause),
            Next::End(None) => break,
        }
    }
    finish(dispatcher, attendant, outcome);
}

fn answer_call(
    dispatcher: &mut GovernedToolDispatcher,
    call: BrokerToolCall,
    ticket: &Ticket,
    attendant: &mut Attendant,
) -> Result<Answer, EndCause> {
    match dispatcher.govern(call, ticket, attendant) {
        Ok(recorded) => Ok(Answer::Settled(recorded)),
        Err(Halt::Refused(refusal)) => match dispatcher.refuse(&refusal) {
            Ok(()) => Ok(Answer::Refused(*refusal)),
            Err(cause) => Err(ended(dispatcher, cause)),
        },
        Err(Halt::End(cause)) => Err(ended(dispatcher, cause)),
    }
}

/// Ends the session for `cause`. The first cause stays, and is the one that is told.
fn ended(dispatcher: &mut GovernedToolDispatcher, cause: EndCause) -> EndCause {
    dispatcher.rules.end(cause.clone());
    dispatcher.rules.cause().cloned().unwrap_or(cause)
}

fn launch(
    dispatcher: &mut GovernedToolDispatcher,
    executor: &str,
    ticket: Arc<Ticket>,
    started: oneshot::Sender<Started>,
    attendant: &mut Attendant,
) {
    let end = match dispatcher.launch(executor, &ticket, attendant) {
        Ok(Ok(call)) => {
            let (reply, end) = oneshot::channel();
            attendant.agent = Some(LiveAgent {
                call,
                ticket,
                ended: None,
                told: 0,
                reply,
            });
            let _ = started.send(Started::Running(end));
            return;
        }
        Ok(Err(not_started)) => LaunchEnd::Ended(not_started),
        Err(Halt::Refused(refusal)) => match dispatcher.refuse(&refusal) {
            Ok(()) => LaunchEnd::Refused(*refusal),
            Err(cause) => LaunchEnd::Session(ended(dispatcher, cause)),
        },
        Err(Halt::End(cause)) => LaunchEnd::Session(ended(dispatcher, cause)),
    };
    let _ = started.send(Started::Not(Box::new(end)));
}

fn settle_agent(
    dispatcher: &mut GovernedToolDispatcher,
    agent: LiveAgent,
    ended: Ended,
    stopped: Option<StopCause>,
) {
    let said = ended.stdout.bytes.get(agent.told..).unwrap_or_default();
    if !said.is_empty() {
        dispatcher.observed.tell(&Progress::AgentSaid(said));
    }
    let end = match dispatcher.settle_launch(agent.call, ended, stopped) {
        Ok(outcome) => LaunchEnd::Ended(outcome),
        Err(Halt::Refused(refusal)) => LaunchEnd::Refused(*refusal),
        Err(Halt::End(cause)) => LaunchEnd::Session(cause),
    };
    let _ = agent.reply.send(end);
}

/// Stops the agent, writes the terminal record, and only then answers who waits for the end.
fn finish(mut dispatcher: GovernedToolDispatcher, mut attendant: Attendant, outcome: &End) {
    if let Some(mut agent) = attendant.agent.take() {
        let (ended, stopped) = match agent.ended.take() {
            Some(ended) => (ended, None),
            None => {
                let cause = dispatcher.rules.cause();
                let stopped = cause.map_or(StopCause::Owner, stop_of);
                (attendant.stop(&mut agent.call), Some(stopped))
            }
        };
        settle_agent(&mut dispatcher, agent, ended, stopped);
    }
    let uncounted = attendant.take_uncounted();
    if !uncounted.is_empty() && !dispatcher.end_recorded {
        // A journal that fails here fails at the terminal record too.
        let _ = dispatcher.note_uncounted(uncounted);
    }
    if let Err(cause) = dispatcher.end() {
        dispatcher.rules.end(cause);
    }
    let result = dispatcher.rules.cause().cloned().map_or(Ok(()), Err);
    drop(dispatcher);
    let _ = outcome.set(result.clone());
    let (closing, jobs) = attendant.into_rest();
    for job in jobs {
        job.end(end_cause(outcome));
    }
    if let Some(closing) = closing {
        let _ = closing.send(result);
    }
}
