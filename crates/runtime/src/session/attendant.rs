//! The session's one wait. Everything that is alive is in the same `poll`: the running call,
//! the agent, the owner's signals, and the nearest deadline. Nothing is asked by interval.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use governance::limits::STOP_WAIT_MAX;
use governance::{DispatchedCall, EndCause, LoopState, PreparedCall, StopCause};
use journal::AnswerRefused;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::{mpsc, oneshot};
use worker::{Ended, Ending, OutputFile, Stream};

use crate::session::desk::{Answer, Desk, HeldCall, HeldEnd, HoldError};
use crate::session::parts::{CloseReply, Job, LaunchEnd, Message};
use crate::session::progress::{CallStep, Observed, Progress};
use crate::session::signals::Signals;
use crate::session::ticket::{Standing, Ticket};

/// The agent's launch, alive while other calls run.
pub(crate) struct LiveAgent {
    pub(crate) call: DispatchedCall,
    pub(crate) ticket: Arc<Ticket>,
    pub(crate) ended: Option<Ended>,
    /// Bytes of its standard output that were told.
    pub(crate) told: usize,
    pub(crate) reply: oneshot::Sender<LaunchEnd>,
}

/// Waits on behalf of the dispatcher, and keeps what arrives meanwhile.
pub(crate) struct Attendant {
    mail: mpsc::Receiver<Message>,
    signals: Arc<Signals>,
    desk: Arc<Desk>,
    jobs: VecDeque<Job>,
    /// Jobs that came after the close.
    late: Vec<Job>,
    closing: Option<CloseReply>,
    deadline: Instant,
    lifetime: Duration,
    pub(crate) agent: Option<LiveAgent>,
    pub(crate) observed: Observed,
}

/// What ended a person's turn.
pub(crate) enum Decision {
    Answered(Answer),
    Expired,
    Withdrawn(&'static str),
    SessionEnds(EndCause),
}

/// What a held call's wait came to.
pub(crate) enum Waited {
    /// These are to be recorded, and the wait goes on.
    Uncounted(Vec<AnswerRefused>),
    Over(Decision),
}

/// What the session does next.
pub(crate) enum Next {
    Serve(Job),
    /// Answers that did not count, to be recorded.
    Uncounted(Vec<AnswerRefused>),
    AgentEnded(Box<LiveAgent>, Ended),
    End(Option<EndCause>),
}

impl Attendant {
    pub(crate) fn new(
        mail: mpsc::Receiver<Message>,
        signals: Arc<Signals>,
        desk: Arc<Desk>,
        lifetime: Duration,
        observed: Observed,
    ) -> Self {
        Self {
            mail,
            signals,
            desk,
            jobs: VecDeque::new(),
            late: Vec::new(),
            closing: None,
            deadline: Instant::now() + lifetime,
            lifetime,
            agent: None,
            observed,
        }
    }

    /// Waits for the next thing to do while no call is under way.
    pub(crate) fn next(&mut self) -> Next {
        loop {
            self.collect_mail();
            if let Some(cause) = self.must_end() {
                return Next::End(Some(cause));
            }
            let uncounted = self.desk.take_uncounted();
            if !uncounted.is_empty() {
                return Next::Uncounted(uncounted);
            }
            if let Some(mut agent) = self.agent.take_if(|agent| agent.ended.is_some())
                && let Some(ended) = agent.ended.take()
            {
                return Next::AgentEnded(Box::new(agent), ended);
            }
            if self.closing.is_some() && self.leaves_work() {
                return Next::End(Some(EndCause::ClosedWithCall));
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

    /// Whether a close would end something that somebody still waits for.
    fn leaves_work(&self) -> bool {
        self.agent.is_some() || self.jobs.iter().any(Job::is_wanted)
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
        if let Some(cause) = self.must_end() {
            return Some(stop_of(&cause));
        }
        if self.closing.is_some() || ticket.standing() == Standing::CommittedAbandoned {
            return Some(StopCause::Owner);
        }
        (Instant::now() >= at).then_some(StopCause::TimeLimit { limit })
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
            self.collect_mail();
            self.wait(Some(call), until);
        }
    }

    /// Lays the call on the desk, to be answered before the returned time.
    pub(crate) fn hold(
        &self,
        call: &PreparedCall,
        ticket: &Ticket,
        state: &LoopState,
        timeout: Duration,
    ) -> Result<(HeldCall, Instant), HoldError> {
        let until = Instant::now() + timeout;
        let held = self.desk.hold(call, state, timeout, until)?;
        ticket.set_held(true);
        self.observed
            .call(call.id(), call.tool(), CallStep::Held(&held));
        Ok((held, until))
    }

    /// Waits for a person. Nothing can be answered once the wait is over.
    pub(crate) fn await_decision(&mut self, ticket: &Ticket, until: Instant) -> Waited {
        let ended_early = loop {
            if let Some(cause) = self.last_look() {
                break Some(Decision::SessionEnds(cause));
            }
            match ticket.standing() {
                Standing::Withdrawn => break Some(Decision::Withdrawn("withdrawn by the client")),
                Standing::Abandoned => break Some(Decision::Withdrawn("dropped by its owner")),
                Standing::Open | Standing::Committed | Standing::CommittedAbandoned => {}
            }
            let uncounted = self.desk.take_uncounted();
            if !uncounted.is_empty() {
                return Waited::Uncounted(uncounted);
            }
            if self.desk.is_answered() || self.desk.is_over() {
                break None;
            }
            self.wait(None, until.min(self.deadline));
        };
        ticket.set_held(false);
        // What was answered in time counts.
        let early = ended_early.as_ref().map(|early| match early {
            Decision::SessionEnds(_) => HeldEnd::SessionEnded,
            _ => HeldEnd::Withdrawn,
        });
        Waited::Over(match (ended_early, self.desk.clear(early)) {
            (Some(early), _) => early,
            (None, Some(answer)) => Decision::Answered(answer),
            (None, None) => Decision::Expired,
        })
    }

    /// Ends a held call's wait because the session ends.
    pub(crate) fn give_up(&self, cause: EndCause) -> Decision {
        self.desk.clear(Some(HeldEnd::SessionEnded));
        Decision::SessionEnds(cause)
    }

    /// Answers that did not count since the last look.
    pub(crate) fn take_uncounted(&self) -> Vec<AnswerRefused> {
        self.desk.take_uncounted()
    }

    /// The last look before a record: also at a close that has just come.
    pub(crate) fn last_look(&mut self) -> Option<EndCause> {
        self.collect_mail();
        let closed = self.closing.is_some().then_some(EndCause::ClosedWithCall);
        self.must_end().or(closed)
    }

    /// Whether the session was told to end, or its agent's owner is gone, or its time is over.
    pub(crate) fn must_end(&self) -> Option<EndCause> {
        if let Some(cause) = self.signals.cancelled() {
            return Some(cause);
        }
        let agent = self.agent.as_ref().filter(|agent| agent.ended.is_none());
        if let Some(agent) = agent.filter(|agent| agent.is_abandoned()) {
            let call_id = agent.call.id().to_string();
            return Some(EndCause::AbandonedCall { call_id });
        }
        let over = Instant::now() >= self.deadline;
        over.then_some(EndCause::Deadline {
            lifetime: self.lifetime,
        })
    }

    /// Takes the mail box apart at the end: who waits for the close, and calls never served.
    pub(crate) fn into_rest(mut self) -> (Option<CloseReply>, impl Iterator<Item = Job>) {
        self.mail.close();
        // Who got a place in the box before this still sends, and must not wait in vain: the box
        // ends only when every place is given back.
        while let Some(message) = self.mail.blocking_recv() {
            self.sort(message);
        }
        (self.closing, self.jobs.into_iter().chain(self.late))
    }

    fn collect_mail(&mut self) {
        self.signals.drain();
        while let Ok(message) = self.mail.try_recv() {
            self.sort(message);
        }
    }

    fn sort(&mut self, message: Message) {
        match message {
            Message::Job(job) if self.closing.is_some() => self.late.push(job),
            Message::Job(job) => self.jobs.push_back(job),
            Message::Close(reply) if self.closing.is_some() => {
                let _ = reply.send(Err(EndCause::Closed));
            }
            Message::Close(reply) => self.closing = Some(reply),
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
            agent.tell(&self.observed);
        }
    }
}

impl LiveAgent {
    /// Tells what it said since the last time.
    fn tell(&mut self, observed: &Observed) {
        let said = self.call.watched().stdout_since(self.told);
        if !said.is_empty() {
            observed.tell(&Progress::AgentSaid(&said));
            self.told += said.len();
        }
    }

    fn is_abandoned(&self) -> bool {
        self.ticket.standing() == Standing::CommittedAbandoned
    }
}

/// How a worker's record names the end of its session.
pub(crate) const fn stop_of(cause: &EndCause) -> StopCause {
    match cause {
        EndCause::Journal { .. } => StopCause::Journal,
        EndCause::Deadline { .. } => StopCause::Lifetime,
        _ => StopCause::Owner,
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
        parser: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_whose_place_was_taken_before_the_end_is_not_lost() {
        let (mail, inbox) = mpsc::channel(4);
        let signals = Arc::new(Signals::new().unwrap());
        let desk = Arc::new(Desk::new(Arc::clone(&signals)));
        let attendant = Attendant::new(
            inbox,
            signals,
            desk,
            Duration::from_secs(1),
            Observed::default(),
        );
        let place = mail.try_reserve().unwrap();
        let rest = std::thread::spawn(|| attendant.into_rest().1.count());
        std::thread::sleep(Duration::from_millis(50));
        let (begun, _receiver) = oneshot::channel();
        place.send(Message::Job(Job::Begin(begun)));
        assert_eq!(rest.join().unwrap(), 1);
        assert!(mail.try_reserve().is_err());
    }
}
