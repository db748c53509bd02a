//! The async handle of a session.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::thread;

use governance::{Approver, BrokerToolCall, EndCause, SessionRules, ToolDefinition};
use model::Digest;
use tokio::sync::{mpsc, oneshot};

use crate::session::attendant::Attendant;
use crate::session::desk::{DecideError, Desk, HeldCall, HeldCalls};
use crate::session::dispatcher::watch_journal;
use crate::session::parts::{
    Answer, Job, LaunchEnd, Message, SessionParts, SessionStartError, Started,
};
use crate::session::pending::{End, LaunchedAgent, Ownership, PendingCall, end_cause};
use crate::session::progress::Observed;
use crate::session::signals::Signals;
use crate::session::thread::{dispatcher, serve};

/// Calls that may wait for a session at once: all that its connections may have outstanding.
const QUEUED_CALLS_MAX: usize = 512;

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
    end: Arc<End>,
    observed: Observed,
    /// Held by every clone.
    _owner: Arc<Owner>,
}

/// Cancels the session when its last handle goes.
struct Owner(Arc<Signals>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.cancel(EndCause::Cancelled);
    }
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
        parts.check_journal()?;
        let tools: Arc<[ToolDefinition]> = parts.executor.tools().into();
        let rules = SessionRules::new(&parts.state, &parts.config, &tools)
            .map_err(SessionStartError::Refused)?;
        parts.check_executor(rules.tool_set())?;
        let signals = Arc::new(Signals::new().map_err(SessionStartError::Io)?);
        let desk = Arc::new(Desk::new(Arc::clone(&signals)));
        let (mail, inbox) = mpsc::channel(QUEUED_CALLS_MAX);
        let end = Arc::new(OnceLock::new());
        watch_journal(&parts.journal, &signals);
        let lifetime = parts.config.lifetime;
        let observed = Observed::new(parts.observer.clone());
        let attendant = Attendant::new(
            inbox,
            Arc::clone(&signals),
            Arc::clone(&desk),
            lifetime,
            observed.clone(),
        );
        let dispatcher = dispatcher(parts, rules, &tools);
        let outcome = Arc::clone(&end);
        thread::Builder::new()
            .name("symbi-session".to_owned())
            .spawn(move || serve(dispatcher, attendant, &outcome))
            .map_err(SessionStartError::Io)?;
        Ok(Self {
            mail,
            _owner: Arc::new(Owner(Arc::clone(&signals))),
            signals,
            desk,
            tools,
            end,
            observed,
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
        let (pending, job) = self.pending_call(call);
        self.mail
            .blocking_send(Message::Job(job))
            .map_err(|_| self.cause())?;
        self.signals.wake();
        pending.wait_blocking()
    }

    fn pending_call(&self, call: BrokerToolCall) -> (PendingCall, Job) {
        let owned = Ownership::new(&self.signals);
        let (reply, answer) = oneshot::channel();
        let job = Job::Call {
            call,
            ticket: owned.ticket(),
            reply,
        };
        let pending = PendingCall::new(owned, Arc::clone(&self.end), answer);
        (pending, job)
    }

    /// Has the run's first record written, if it is not yet. The receiver ends when it is.
    pub(crate) fn begin(&self) -> oneshot::Receiver<()> {
        let (begun, receiver) = oneshot::channel();
        // A full queue has calls in it, and the first of them writes that record.
        let _ = self.mail.try_send(Message::Job(Job::Begin(begun)));
        self.signals.wake();
        receiver
    }

    /// Launches the agent: once, before any call, through the same steps as every call. Dropping
    /// the future withdraws the launch, or stops its worker and poisons the session.
    ///
    /// # Errors
    /// [`LaunchEnd`] says why no worker runs.
    pub async fn launch(&self, executor: &str) -> Result<LaunchedAgent, LaunchEnd> {
        let (started, answer) = oneshot::channel();
        let mut owned = Ownership::new(&self.signals);
        let job = Job::Launch {
            executor: executor.to_owned(),
            ticket: owned.ticket(),
            started,
        };
        let sent = self.mail.send(Message::Job(job)).await;
        sent.map_err(|_| LaunchEnd::Session(self.cause()))?;
        self.signals.wake();
        let answer = answer.await;
        if let Ok(Started::Running(end)) = answer {
            return Ok(LaunchedAgent::new(owned, end, self.clone()));
        }
        owned.answered();
        match answer {
            Ok(Started::Not(end)) => Err(*end),
            Ok(Started::Running(_)) | Err(_) => Err(LaunchEnd::Session(self.cause())),
        }
    }

    /// The calls that wait for a person.
    #[must_use]
    pub fn pending(&self) -> Vec<HeldCall> {
        self.desk.pending()
    }

    /// The same for a surface that shows them and waits for changes.
    #[must_use]
    pub fn held_calls(&self) -> HeldCalls {
        HeldCalls::new(&self.desk)
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

    /// Who is told what happens.
    pub(crate) const fn observed(&self) -> &Observed {
        &self.observed
    }

    pub(crate) fn cause(&self) -> EndCause {
        end_cause(&self.end)
    }
}
