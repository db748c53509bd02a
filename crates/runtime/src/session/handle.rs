//! The async handle of a session, and its thread.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::thread;

use governance::{
    ActionExecutor, Approver, BrokerToolCall, EndCause, LoopConfig, LoopState, ReasoningPolicyGate,
    RecordedOutcome, Refusal, SessionRules, StartRefusal, ToolDefinition,
};
use journal::{Client, Journal, RunStarted};
use model::Digest;
use tokio::sync::{mpsc, oneshot};

use crate::session::attendant::{Attendant, LiveAgent, Next};
use crate::session::desk::{DecideError, Desk, HeldCall};
use crate::session::dispatcher::{GovernedToolDispatcher, Halt, RunRegister, watch_journal};
use crate::session::signals::Signals;
use crate::session::ticket::Ticket;

/// Calls that may wait for a session at once: all that its connections may have outstanding.
const QUEUED_CALLS_MAX: usize = 512;

/// What a session answers to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It ran, or could not start after its record.
    Settled(RecordedOutcome),
    /// It ended before any effect; the session goes on.
    Refused(Refusal),
}

/// The end of an agent's launch.
#[derive(Debug)]
pub enum LaunchEnd {
    /// It ran and ended.
    Ended(RecordedOutcome),
    /// It never ran.
    Refused(Refusal),
    /// The session ended first.
    Session(EndCause),
}

/// Whom a held call is shown to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approvals {
    /// Nobody: calls that demand approval are refused at once, with this advice.
    Nobody { advice: String },
    /// Calls are held for [`GovernedToolSession::decide`].
    Desk,
}

pub(crate) type CallReply = oneshot::Sender<Result<Answer, EndCause>>;
pub(crate) type CloseReply = oneshot::Sender<Result<(), EndCause>>;

pub(crate) enum Job {
    Call {
        call: BrokerToolCall,
        ticket: Arc<Ticket>,
        reply: CallReply,
    },
    Launch {
        executor: String,
        ticket: Arc<Ticket>,
        started: oneshot::Sender<Started>,
    },
}

/// Whether a launch got its worker.
pub(crate) enum Started {
    Running(oneshot::Receiver<LaunchEnd>),
    Not(LaunchEnd),
}

pub(crate) enum Message {
    Job(Job),
    Close(CloseReply),
}

/// What a session is started with. All of it is the trusted owner's.
pub struct SessionParts {
    pub executor: Box<dyn ActionExecutor>,
    pub gate: Box<dyn ReasoningPolicyGate>,
    pub journal: Journal,
    pub register: Option<Box<dyn RunRegister>>,
    pub state: LoopState,
    pub config: LoopConfig,
    pub approvals: Approvals,
    /// Label of the project, for the first record.
    pub project: String,
    pub client: Client,
    /// Digest of the worker helper, where there is one.
    pub init_sha256: Option<Digest>,
    /// The session takes one call and ends with it.
    pub one_shot: bool,
}

impl fmt::Debug for SessionParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionParts")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// Why a session did not start.
#[derive(Debug)]
pub enum SessionStartError {
    Refused(StartRefusal),
    Io(std::io::Error),
}

impl fmt::Display for SessionStartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(_) => f.write_str("the session's bounds or tools are not acceptable"),
            Self::Io(_) => f.write_str("the session's thread could not be made"),
        }
    }
}

impl std::error::Error for SessionStartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(error) => Some(error),
            Self::Io(error) => Some(error),
        }
    }
}

/// The owner's handle of one governed session.
///
/// Calls from any number of tasks are served one after the other. Dropping the last clone
/// signals cancellation; only [`GovernedToolSession::close`] awaits the terminal record.
#[derive(Clone)]
pub struct GovernedToolSession {
    mail: mpsc::Sender<Message>,
    signals: Arc<Signals>,
    desk: Arc<Desk>,
    tools: Arc<[ToolDefinition]>,
    end: Arc<OnceLock<Result<(), EndCause>>>,
}

impl fmt::Debug for GovernedToolSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GovernedToolSession")
            .field("end", &self.end.get())
            .finish_non_exhaustive()
    }
}

impl GovernedToolSession {
    /// Checks the bounds and starts the session's thread.
    ///
    /// # Errors
    /// [`SessionStartError`]; nothing was recorded.
    pub fn start(parts: SessionParts) -> Result<Self, SessionStartError> {
        let tools: Arc<[ToolDefinition]> = parts.executor.tools().into();
        let rules = SessionRules::new(&parts.state, &parts.config, &tools)
            .map_err(SessionStartError::Refused)?;
        let signals = Arc::new(Signals::new().map_err(SessionStartError::Io)?);
        let desk = Arc::new(Desk::new(Arc::clone(&signals)));
        let (mail, inbox) = mpsc::channel(QUEUED_CALLS_MAX);
        let end = Arc::new(OnceLock::new());
        watch_journal(&parts.journal, &signals);
        let lifetime = parts.config.lifetime;
        let attendant = Attendant::new(inbox, Arc::clone(&signals), Arc::clone(&desk), lifetime);
        let dispatcher = dispatcher(parts, rules, &tools);
        let outcome = Arc::clone(&end);
        thread::Builder::new()
            .name("symbi-session".to_owned())
            .spawn(move || serve(dispatcher, attendant, &outcome))
            .map_err(SessionStartError::Io)?;
        Ok(Self {
            mail,
            signals,
            desk,
            tools,
            end,
        })
    }

    /// The advertised tools.
    #[must_use]
    pub fn tools(&self) -> &[ToolDefinition] {
        &self.tools
    }

    /// Serves one call. Dropping the future is the owner's: before dispatch it withdraws the
    /// call, after dispatch it stops the worker and poisons the session.
    ///
    /// # Errors
    /// [`EndCause`]: the session has ended, or ended with this call.
    pub async fn call(&self, call: BrokerToolCall) -> Result<Answer, EndCause> {
        self.submit(call).await?.await
    }

    /// Hands a call in. Its answer is awaited through the returned value, which can also take
    /// the call back.
    ///
    /// # Errors
    /// [`EndCause`]: the session has ended.
    pub async fn submit(&self, call: BrokerToolCall) -> Result<PendingCall, EndCause> {
        let permit = self.mail.reserve().await.map_err(|_| self.cause())?;
        let (pending, job) = self.pending_call(call);
        permit.send(Message::Job(job));
        self.signals.wake();
        Ok(pending)
    }

    /// [`GovernedToolSession::call`] for a thread without an async runtime.
    ///
    /// # Errors
    /// [`EndCause`]: the session has ended, or ended with this call.
    pub fn call_blocking(&self, call: BrokerToolCall) -> Result<Answer, EndCause> {
        let (mut pending, job) = self.pending_call(call);
        self.mail
            .blocking_send(Message::Job(job))
            .map_err(|_| self.cause())?;
        self.signals.wake();
        let Some(answer) = pending.answer.take() else {
            return Err(EndCause::Lost);
        };
        let answered = answer.blocking_recv();
        pending.done = true;
        answered.unwrap_or_else(|_| Err(self.cause()))
    }

    fn pending_call(&self, call: BrokerToolCall) -> (PendingCall, Job) {
        let ticket = Arc::new(Ticket::default());
        let (reply, answer) = oneshot::channel();
        let job = Job::Call {
            call,
            ticket: Arc::clone(&ticket),
            reply,
        };
        let pending = PendingCall {
            ticket,
            signals: Arc::clone(&self.signals),
            end: Arc::clone(&self.end),
            answer: Some(answer),
            done: false,
        };
        (pending, job)
    }

    /// Launches the agent: once, before any call, through the same steps as every call.
    ///
    /// # Errors
    /// [`LaunchEnd`] says why no worker runs.
    pub async fn launch(&self, executor: &str) -> Result<LaunchedAgent, LaunchEnd> {
        let (started, answer) = oneshot::channel();
        let ticket = Arc::new(Ticket::default());
        let job = Job::Launch {
            executor: executor.to_owned(),
            ticket,
            started,
        };
        let sent = self.mail.send(Message::Job(job)).await;
        sent.map_err(|_| LaunchEnd::Session(self.cause()))?;
        self.signals.wake();
        match answer.await {
            Ok(Started::Running(end)) => Ok(LaunchedAgent {
                end,
                session: self.clone(),
            }),
            Ok(Started::Not(end)) => Err(end),
            Err(_) => Err(LaunchEnd::Session(self.cause())),
        }
    }

    /// The calls that wait for a person.
    #[must_use]
    pub fn pending(&self) -> Vec<HeldCall> {
        self.desk.pending()
    }

    /// Answers a held call, once, naming the digest of the review that was read.
    ///
    /// # Errors
    /// [`DecideError`]: nothing is held under that id any more, or it is another text.
    pub fn decide(
        &self,
        held_id: &str,
        review_sha256: Digest,
        approved: bool,
        approver: Approver,
    ) -> Result<(), DecideError> {
        self.desk.decide(held_id, review_sha256, approved, approver)
    }

    /// Ends the session as an error: what runs is stopped, what waits is refused.
    pub fn cancel(&self) {
        self.signals.cancel(EndCause::Cancelled);
    }

    /// Ends the session for a given cause.
    pub fn cancel_for(&self, cause: EndCause) {
        self.signals.cancel(cause);
    }

    /// Stops new work, awaits cleanup and the terminal record.
    ///
    /// # Errors
    /// [`EndCause`]: the session did not complete cleanly, or was closed before.
    pub async fn close(self) -> Result<(), EndCause> {
        let (reply, answer) = oneshot::channel();
        let sent = self.mail.send(Message::Close(reply)).await;
        sent.map_err(|_| self.cause())?;
        self.signals.wake();
        answer.await.unwrap_or_else(|_| Err(self.cause()))
    }

    /// [`GovernedToolSession::close`] for a thread without an async runtime.
    ///
    /// # Errors
    /// [`EndCause`]: the session did not complete cleanly, or was closed before.
    pub fn close_blocking(self) -> Result<(), EndCause> {
        let (reply, answer) = oneshot::channel();
        self.mail
            .blocking_send(Message::Close(reply))
            .map_err(|_| self.cause())?;
        self.signals.wake();
        answer.blocking_recv().unwrap_or_else(|_| Err(self.cause()))
    }

    fn cause(&self) -> EndCause {
        end_cause(&self.end)
    }
}

/// Why a session that is gone is gone. A completed one was closed before.
fn end_cause(end: &OnceLock<Result<(), EndCause>>) -> EndCause {
    match end.get() {
        Some(Err(cause)) => cause.clone(),
        Some(Ok(())) => EndCause::Closed,
        None => EndCause::Lost,
    }
}

/// A call that was handed in. A future of its answer.
#[derive(Debug)]
pub struct PendingCall {
    ticket: Arc<Ticket>,
    signals: Arc<Signals>,
    end: Arc<OnceLock<Result<(), EndCause>>>,
    answer: Option<oneshot::Receiver<Result<Answer, EndCause>>>,
    done: bool,
}

impl PendingCall {
    /// Takes the call back for its client. False once it is committed: it then runs to its end.
    pub fn withdraw(&self) -> bool {
        let withdrawn = self.ticket.withdraw();
        self.signals.wake();
        withdrawn
    }

    /// A handle that can take the call back while the future is awaited elsewhere.
    #[must_use]
    pub fn withdrawal(&self) -> Withdrawal {
        Withdrawal {
            ticket: Arc::clone(&self.ticket),
            signals: Arc::clone(&self.signals),
        }
    }
}

impl Future for PendingCall {
    type Output = Result<Answer, EndCause>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(answer) = self.answer.as_mut() else {
            return Poll::Ready(Err(EndCause::Lost));
        };
        let Poll::Ready(answered) = Pin::new(answer).poll(context) else {
            return Poll::Pending;
        };
        self.done = true;
        Poll::Ready(answered.unwrap_or_else(|_| Err(end_cause(&self.end))))
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if !self.done {
            self.ticket.abandon();
            self.signals.wake();
        }
    }
}

/// Takes one call back.
#[derive(Debug, Clone)]
pub struct Withdrawal {
    ticket: Arc<Ticket>,
    signals: Arc<Signals>,
}

impl Withdrawal {
    /// False once the call is committed: it then runs to its end.
    pub fn withdraw(&self) -> bool {
        let withdrawn = self.ticket.withdraw();
        self.signals.wake();
        withdrawn
    }
}

/// An agent that runs.
#[derive(Debug)]
pub struct LaunchedAgent {
    end: oneshot::Receiver<LaunchEnd>,
    session: GovernedToolSession,
}

impl LaunchedAgent {
    /// Awaits the agent's end.
    pub async fn ended(self) -> LaunchEnd {
        match self.end.await {
            Ok(end) => end,
            Err(_) => LaunchEnd::Session(self.session.cause()),
        }
    }
}

fn dispatcher(
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
    GovernedToolDispatcher {
        executor: parts.executor,
        gate: parts.gate,
        journal: parts.journal,
        register: parts.register,
        rules,
        state: parts.state,
        config: parts.config,
        approvals: parts.approvals,
        first: Some(first),
        registered: false,
        one_shot: parts.one_shot,
        end_recorded: false,
    }
}

/// The session's thread, from its first job to its terminal record.
fn serve(
    mut dispatcher: GovernedToolDispatcher,
    mut attendant: Attendant,
    outcome: &OnceLock<Result<(), EndCause>>,
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
                launch(&mut dispatcher, &executor, &ticket, started, &mut attendant);
            }
            Next::AgentEnded(agent, ended) => settle_agent(&mut dispatcher, *agent, ended),
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
        Err(Halt::Refused(refusal)) => match dispatcher.note_refusal(&refusal) {
            Ok(()) => Ok(Answer::Refused(*refusal)),
            Err(cause) => {
                dispatcher.rules.end(cause.clone());
                Err(cause)
            }
        },
        Err(Halt::End(cause)) => {
            dispatcher.rules.end(cause.clone());
            Err(cause)
        }
    }
}

fn launch(
    dispatcher: &mut GovernedToolDispatcher,
    executor: &str,
    ticket: &Ticket,
    started: oneshot::Sender<Started>,
    attendant: &mut Attendant,
) {
    let end = match dispatcher.launch(executor, ticket, attendant) {
        Ok(Ok(call)) => {
            let (reply, end) = oneshot::channel();
            attendant.agent = Some(LiveAgent {
                call,
                ended: None,
                stopped: None,
                reply,
            });
            let _ = started.send(Started::Running(end));
            return;
        }
        Ok(Err(not_started)) => LaunchEnd::Ended(not_started),
        Err(Halt::Refused(refusal)) => match dispatcher.note_refusal(&refusal) {
            Ok(()) => LaunchEnd::Refused(*refusal),
            Err(cause) => {
                dispatcher.rules.end(cause.clone());
                LaunchEnd::Session(cause)
            }
        },
        Err(Halt::End(cause)) => {
            dispatcher.rules.end(cause.clone());
            LaunchEnd::Session(cause)
        }
    };
    let _ = started.send(Started::Not(end));
}

fn settle_agent(dispatcher: &mut GovernedToolDispatcher, agent: LiveAgent, ended: worker::Ended) {
    let end = match dispatcher.settle_launch(agent.call, ended, agent.stopped) {
        Ok(outcome) => LaunchEnd::Ended(outcome),
        Err(Halt::Refused(refusal)) => LaunchEnd::Refused(*refusal),
        Err(Halt::End(cause)) => LaunchEnd::Session(cause),
    };
    let _ = agent.reply.send(end);
}

/// Stops the agent, writes the terminal record, and only then answers who waits for the end.
fn finish(
    mut dispatcher: GovernedToolDispatcher,
    mut attendant: Attendant,
    outcome: &OnceLock<Result<(), EndCause>>,
) {
    if let Some(mut agent) = attendant.agent.take() {
        let ended = match agent.ended.take() {
            Some(ended) => ended,
            None => {
                agent.stopped = Some(governance::StopCause::Owner);
                attendant.stop(&mut agent.call)
            }
        };
        settle_agent(&mut dispatcher, agent, ended);
    }
    if let Err(cause) = dispatcher.end() {
        dispatcher.rules.end(cause);
    }
    let result = dispatcher.rules.cause().cloned().map_or(Ok(()), Err);
    drop(dispatcher);
    let _ = outcome.set(result.clone());
    let (closing, jobs) = attendant.into_rest();
    for job in jobs {
        let cause = end_cause(outcome);
        match job {
            Job::Call { reply, .. } => drop(reply.send(Err(cause))),
            Job::Launch { started, .. } => {
                drop(started.send(Started::Not(LaunchEnd::Session(cause))));
            }
        }
    }
    if let Some(closing) = closing {
        let _ = closing.send(result);
    }
}
