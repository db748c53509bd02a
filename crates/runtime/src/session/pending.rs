//! What the owner of a call, or of an agent, holds while it is under way.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use governance::EndCause;
use tokio::sync::oneshot;

use crate::session::handle::GovernedToolSession;
use crate::session::parts::{Answer, LaunchEnd};
use crate::session::signals::Signals;
use crate::session::ticket::{CallPhase, Ticket};

/// How a session ended, once it has.
pub(crate) type End = OnceLock<Result<(), EndCause>>;

/// Why a session that is gone is gone. A completed one was closed before.
pub(crate) fn end_cause(end: &End) -> EndCause {
    match end.get() {
        Some(Err(cause)) => cause.clone(),
        Some(Ok(())) => EndCause::Closed,
        None => EndCause::Lost,
    }
}

/// Tells the session that its owner is gone, unless it was answered.
#[derive(Debug)]
pub(crate) struct Ownership {
    ticket: Arc<Ticket>,
    signals: Arc<Signals>,
    answered: bool,
}

impl Ownership {
    pub(crate) fn new(signals: &Arc<Signals>) -> Self {
        Self {
            ticket: Arc::default(),
            signals: Arc::clone(signals),
            answered: false,
        }
    }

    pub(crate) fn ticket(&self) -> Arc<Ticket> {
        Arc::clone(&self.ticket)
    }

    pub(crate) const fn answered(&mut self) {
        self.answered = true;
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        if !self.answered {
            self.ticket.abandon();
            self.signals.wake();
        }
    }
}

/// A call that was handed in. A future of its answer.
#[derive(Debug)]
pub struct PendingCall {
    owned: Ownership,
    end: Arc<End>,
    answer: oneshot::Receiver<Result<Answer, EndCause>>,
}

impl PendingCall {
    pub(crate) const fn new(
        owned: Ownership,
        end: Arc<End>,
        answer: oneshot::Receiver<Result<Answer, EndCause>>,
    ) -> Self {
        Self { owned, end, answer }
    }

    /// Takes the call back for its client. False once it is committed: it then runs to its end.
    pub fn withdraw(&self) -> bool {
        self.handle().withdraw()
    }

    /// What can be done about the call while the future is awaited elsewhere.
    #[must_use]
    pub fn handle(&self) -> CallHandle {
        CallHandle {
            ticket: self.owned.ticket(),
            signals: Arc::clone(&self.owned.signals),
        }
    }

    pub(crate) fn wait_blocking(self) -> Result<Answer, EndCause> {
        let Self {
            mut owned,
            end,
            answer,
        } = self;
        let answered = answer.blocking_recv();
        owned.answered();
        answered.unwrap_or_else(|_| Err(end_cause(&end)))
    }
}

impl Future for PendingCall {
    type Output = Result<Answer, EndCause>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(answered) = Pin::new(&mut self.answer).poll(context) else {
            return Poll::Pending;
        };
        self.owned.answered();
        Poll::Ready(answered.unwrap_or_else(|_| Err(end_cause(&self.end))))
    }
}

/// Takes one call back, and says how far it is.
#[derive(Debug, Clone)]
pub struct CallHandle {
    ticket: Arc<Ticket>,
    signals: Arc<Signals>,
}

impl CallHandle {
    /// How far the call is.
    #[must_use]
    pub fn phase(&self) -> CallPhase {
        self.ticket.phase()
    }

    /// False once the call is committed: it then runs to its end.
    pub fn withdraw(&self) -> bool {
        let withdrawn = self.ticket.withdraw();
        self.signals.wake();
        withdrawn
    }
}

/// An agent that runs. Dropping it before its end stops the agent, and with it the session.
#[derive(Debug)]
pub struct LaunchedAgent {
    owned: Ownership,
    end: oneshot::Receiver<LaunchEnd>,
    session: GovernedToolSession,
}

impl LaunchedAgent {
    pub(crate) const fn new(
        owned: Ownership,
        end: oneshot::Receiver<LaunchEnd>,
        session: GovernedToolSession,
    ) -> Self {
        Self {
            owned,
            end,
            session,
        }
    }

    /// Awaits the agent's end.
    pub async fn ended(mut self) -> LaunchEnd {
        let end = (&mut self.end).await;
        self.owned.answered();
        end.unwrap_or_else(|_| LaunchEnd::Session(self.session.cause()))
    }
}
