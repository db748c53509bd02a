//! The session's one wait. Everything that is alive is in the same `poll`: the running call,
//! the agent, the owner's signals, and the nearest deadline. Nothing is asked by interval.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use governance::limits::STOP_WAIT_MAX;
use governance::{DispatchedCall, EndCause, PreparedCall, StopCause};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::{mpsc, oneshot};
use worker::{Ended, Ending, OutputFile, Stream};

use crate::session::desk::{Answer, Desk, HeldCall};
use crate::session::handle::{CloseReply, Job, LaunchEnd, Message};
use crate::session::signals::Signals;
use crate::session::ticket::{Standing, Ticket};

/// The agent's launch, alive while other calls run.
pub(crate) struct LiveAgent {
    pub(crate) call: DispatchedCall,
    pub(crate) ended: Option<Ended>,
    pub(crate) stopped: Option<StopCause>,
    pub(crate) reply: oneshot::Sender<LaunchEnd>,
}

/// Waits on behalf of the dispatcher, and keeps what arrives meanwhile.
pub(crate) struct Attendant {
    mail: mpsc::Receiver<Message>,
    signals: Arc<Signals>,
    desk: Arc<Desk>,
    jobs: VecDeque<Job>,
    closing: Option<CloseReply>,
    deadline: Instant,
    lifetime: Duration,
    pub(crate) agent: Option<LiveAgent>,
}

/// What ended a person's turn.
pub(crate) enum Decision {
    Answered(Answer),
    Expired,
    Withdrawn(&'static str),
    SessionEnds(EndCause),
}

/// What the session does next.
pub(crate) enum Next {
    Serve(Job),
    AgentEnded(Box<LiveAgent>, Ended),
    End(Option<EndCause>),
}

impl Attendant {
    pub(crate) fn new(
        mail: mpsc::Receiver<Message>,
        signals: Arc<Signals>,
        desk: Arc<Desk>,
        lifetime: Duration,
    ) -> Self {
        Self {
            mail,
            signals,
            desk,
            jobs: VecDeque::new(),
            closing: None,
            deadline: Instant::now() + lifetime,
            lifetime,
            agent: None,
        }
    }

    /// Waits for the next thing to do while no call is under way.
    pub(crate) fn next(&mut self) -> Next {
        loop {
            self.collect_mail();
            if let Some(cause) = self.must_end() {
                return Next::End(Some(cause));
            }
            if let Some(mut agent) = self.agent.take_if(|agent| agent.ended.is_some())
                && let Some(ended) = agent.ended.take()
            {
                return Next::AgentEnded(Box::new(agent), ended);
            }
            if let Some(job) = self.jobs.pop_front() {
                return Next::Serve(job);
            }
            if self.closing.is_some() {
                return Next::End(None);
            }
            if self.mail.is_closed() && self.mail.is_empty() {
                return Next::End(Some(EndCause::Cancelled));
            }
            self.wait(None, self.deadline);
        }
    }

    /// Waits for a running call's end: natural, by its limit, or because the session ends.
    pub(crate) fn await_end(
        &mut self,
        call: &mut DispatchedCall,
        ticket: &Ticket,
        limit: Duration,
    ) -> (Ended, Option<StopCause>) {
        let call_deadline = Instant::now() + limit;
        let until = call_deadline.min(self.deadline);
        loop {
            if let Some(ended) = call.running().advance() {
                return (ended, None);
            }
            self.collect_mail();
            if let Some(cause) = self.stop_cause(ticket, call_deadline, limit) {
                return (self.stop(call), Some(cause));
            }
            self.wait(Some(call), until);
        }
    }

    fn stop_cause(&self, ticket: &Ticket, at: Instant, limit: Duration) -> Option<StopCause> {
        if let Some(cause) = self.signals.cancelled() {
            return Some(match cause {
                EndCause::Journal { .. } => StopCause::Journal,
                _ => StopCause::Owner,
            });
        }
        if self.closing.is_some() || ticket.standing() == Standing::CommittedAbandoned {
            return Some(StopCause::Owner);
        }
        let now = Instant::now();
        if now >= self.deadline {
            return Some(StopCause::Lifetime);
        }
        (now >= at).then_some(StopCause::TimeLimit { limit })
    }

    /// Stops a worker and waits for its end, at most [`STOP_WAIT_MAX`].
    pub(crate) fn stop(&mut self, call: &mut DispatchedCall) -> Ended {
        call.running().stop();
        let until = Instant::now() + STOP_WAIT_MAX;
        loop {
            if let Some(ended) = call.running().advance() {
                return ended;
            }
            if Instant::now() >= until {
                return lost();
            }
            self.wait(Some(call), until);
        }
    }

    /// Lays the call on the desk and waits for a person.
    pub(crate) fn await_decision(
        &mut self,
        call: &PreparedCall,
        ticket: &Ticket,
        principal: &str,
        timeout: Duration,
    ) -> (HeldCall, Decision) {
        let held = self.desk.hold(call, principal, timeout);
        let until = Instant::now() + timeout;
        let decision = loop {
            self.collect_mail();
            if let Some(cause) = self.must_end() {
                break Decision::SessionEnds(cause);
            }
            if self.closing.is_some() {
                break Decision::SessionEnds(EndCause::ClosedWithCall);
            }
            match ticket.standing() {
                Standing::Withdrawn => break Decision::Withdrawn("withdrawn by the client"),
                Standing::Abandoned => break Decision::Withdrawn("dropped by its owner"),
                Standing::Open | Standing::Committed | Standing::CommittedAbandoned => {}
            }
            if Instant::now() >= until {
                break Decision::Expired;
            }
            if let Some(answer) = self.desk.answer() {
                break Decision::Answered(answer);
            }
            self.wait(None, until.min(self.deadline));
        };
        self.desk.clear();
        (held, decision)
    }

    /// Whether the owner has closed the session, or it was told to end, or its time is over.
    pub(crate) fn must_end(&self) -> Option<EndCause> {
        if let Some(cause) = self.signals.cancelled() {
            return Some(cause);
        }
        let over = Instant::now() >= self.deadline;
        over.then_some(EndCause::Deadline {
            lifetime: self.lifetime,
        })
    }

    pub(crate) fn closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Takes the mail box apart at the end: who waits for the close, and calls never served.
    pub(crate) fn into_rest(mut self) -> (Option<CloseReply>, VecDeque<Job>) {
        self.mail.close();
        self.collect_mail();
        (self.closing, self.jobs)
    }

    fn collect_mail(&mut self) {
        self.signals.drain();
        while let Ok(message) = self.mail.try_recv() {
            match message {
                Message::Job(job) => self.jobs.push_back(job),
                Message::Close(reply) => self.closing = Some(reply),
            }
        }
    }

    fn wait(&mut self, call: Option<&DispatchedCall>, until: Instant) {
        let mut descriptors = vec![PollFd::from_borrowed_fd(
            self.signals.descriptor(),
            PollFlags::IN,
        )];
        if let Some(call) = call {
            call.watched().poll_descriptors(&mut descriptors);
        }
        if let Some(agent) = self.agent.as_ref().filter(|agent| agent.ended.is_none()) {
            agent.call.watched().poll_descriptors(&mut descriptors);
        }
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        // An interrupted wait is a wait that ended early: every caller looks again.
        let _ = poll(&mut descriptors, Some(&timeout));
        drop(descriptors);
        if let Some(agent) = self.agent.as_mut().filter(|agent| agent.ended.is_none()) {
            agent.ended = agent.call.running().advance();
        }
    }
}

/// The end of a worker that does not answer: removal decides what it means.
fn lost() -> Ended {
    Ended {
        ending: Ending::Lost,
        limit: None,
        stdout: Stream::default(),
        stderr: Stream::default(),
        output: OutputFile::NotGranted,
        ran_for: Duration::ZERO,
    }
}
