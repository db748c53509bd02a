//! One connection: what its client may say at which time, and what becomes of it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use model::JsonObject;

use crate::era::{Asked, Era};
use crate::fault::{ErrorCode, Fault};
use crate::frame::{self, Frames, TooLong};
use crate::identity::{ProgressToken, WireId};
use crate::limits::{CALLS_OUTSTANDING_MAX, ConnectionLimits, FRAME_BYTES_MAX, VALUE_BYTES};
use crate::message::{CallParams, Invalid, Message, Notification, Request};
use crate::outstanding::{Outstanding, Ticket};
use crate::reply::Dialect;
use crate::revision::Revision;
use crate::tool::{ServerInfo, Tool, ToolResult};

/// What the owner of a connection has to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Write these bytes: one frame with its line feed.
    Send(Vec<u8>),
    /// Make this call, and end it with [`Connection::answer`] or [`Connection::protocol_error`],
    /// also when it was withdrawn: until then it takes one of the connection's places.
    Call(IncomingCall),
    /// The client asks no longer for this call: withdraw it where it has not been dispatched,
    /// else let it go on to its end.
    Withdraw(Ticket),
    /// Read no more. After [`EndReason::InputClosed`] the client may still read: answers of calls
    /// under way can be sent before closing. After any other reason there are none.
    End(EndReason),
}

/// A call as the client wrote it. Nothing of it was compared with the tools: an unknown name is
/// the session's to refuse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncomingCall {
    pub ticket: Ticket,
    pub identity: WireId,
    pub name: String,
    pub arguments: JsonObject,
    /// The client wants [`Connection::progress`].
    pub progress_token: Option<ProgressToken>,
}

/// Why no more is read from a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// The client closed its side between two frames.
    InputClosed,
    /// The client closed its side inside a frame.
    InsideFrame { bytes: usize },
    /// A frame passed 1 MiB.
    FrameTooLong,
    /// The client sent one frame more than it may.
    TooManyFrames { max: u64 },
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InputClosed => f.write_str("the client closed its side"),
            Self::InsideFrame { bytes } => write!(
                f,
                "the client closed its side after {bytes} bytes of a frame without its line feed"
            ),
            Self::FrameTooLong => write!(f, "a frame has more than {FRAME_BYTES_MAX} bytes"),
            Self::TooManyFrames { max } => write!(f, "the client sent more than {max} frames"),
        }
    }
}

/// The server's half of one connection.
///
/// Every request gets exactly one answer, unless the client cancels it or the connection ends. A
/// protocol error leaves the connection alive. Notifications that we do not know, and answers to
/// requests that we never made, are ignored; they count as frames. Batches are refused also for
/// revision 2025-03-26, which alone has them.
#[derive(Debug)]
pub struct Connection {
    server: ServerInfo,
    tools: Arc<[Tool]>,
    limits: ConnectionLimits,
    frames: Frames,
    frames_seen: u64,
    era: Era,
    intake: Intake,
    /// Ids of all requests so far, whatever became of them.
    spent: BTreeSet<WireId>,
    outstanding: Outstanding,
    bytes_in: u64,
    bytes_out: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Intake {
    Open,
    InputClosed,
    Broken,
}

impl Connection {
    #[must_use]
    pub fn new(server: &ServerInfo, tools: Arc<[Tool]>, limits: ConnectionLimits) -> Self {
        Self {
            server: server.clone(),
            tools,
            limits,
            frames: Frames::default(),
            frames_seen: 0,
            era: Era::default(),
            intake: Intake::Open,
            spent: BTreeSet::new(),
            outstanding: Outstanding::default(),
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    /// Takes what was read, in chunks of any size. After [`Output::End`] it is ignored.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<Output>) {
        self.bytes_in += bytes.len() as u64;
        let mut rest = bytes;
        while self.intake == Intake::Open {
            match self.frames.next(&mut rest) {
                Ok(Some(frame)) => self.take(&frame, out),
                Ok(None) => break,
                Err(TooLong) => self.break_off(EndReason::FrameTooLong, out),
            }
        }
    }

    /// The client closed its side. Its calls are withdrawn, as at any disconnect.
    pub fn eof(&mut self, out: &mut Vec<Output>) {
        if self.intake != Intake::Open {
            return;
        }
        match self.frames.pending() {
            0 => {
                self.intake = Intake::InputClosed;
                out.extend(self.outstanding.wanted().map(Output::Withdraw));
                out.push(Output::End(EndReason::InputClosed));
            }
            bytes => self.break_off(EndReason::InsideFrame { bytes }, out),
        }
    }

    /// Ends a call with its result. `None` where nobody waits for it any more: the client
    /// cancelled it, or the connection broke.
    #[must_use = "the frame has to be written"]
    pub fn answer(&mut self, ticket: Ticket, result: &ToolResult) -> Option<Vec<u8>> {
        let id = self.outstanding.settle(ticket)?;
        let frame = self.dialect().call_result(&id, result);
        Some(self.sent(frame))
    }

    /// Ends a call that the session could not take: not a denial, which is a result.
    #[must_use = "the frame has to be written"]
    pub fn protocol_error(
        &mut self,
        ticket: Ticket,
        code: ErrorCode,
        message: &str,
    ) -> Option<Vec<u8>> {
        let id = self.outstanding.settle(ticket)?;
        let frame = self.dialect().error(Some(&id), &Fault::new(code, message));
        Some(self.sent(frame))
    }

    /// A sign of life of a call under way. `None` where the client did not ask for any.
    #[must_use = "the frame has to be written"]
    pub fn progress(&mut self, ticket: Ticket, message: &str) -> Option<Vec<u8>> {
        let dialect = Dialect {
            revision: self.era.revision(),
            server: &self.server,
        };
        let (token, step) = self.outstanding.advance(ticket)?;
        let frame = dialect.progress(token, step, message);
        Some(self.sent(frame))
    }

    /// A frame has begun and its line feed has not come: the client may be given a deadline.
    #[must_use]
    pub fn is_inside_frame(&self) -> bool {
        self.frames.pending() > 0
    }

    /// Bytes that the client sent.
    #[must_use]
    pub const fn bytes_in(&self) -> u64 {
        self.bytes_in
    }

    /// Bytes of all frames that were given out to be sent.
    #[must_use]
    pub const fn bytes_out(&self) -> u64 {
        self.bytes_out
    }

    /// Calls that were given out and have not been ended, withdrawn ones included.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    fn take(&mut self, frame: &[u8], out: &mut Vec<Output>) {
        self.frames_seen += 1;
        if self.frames_seen > self.limits.frames {
            let max = self.limits.frames;
            return self.break_off(EndReason::TooManyFrames { max }, out);
        }
        let values = frame::values(frame);
        match Message::parse(frame, values) {
            Ok(Message::Request(request)) => {
                let id = request.id.clone();
                let output = self
                    .request(request, frame.len() + values * VALUE_BYTES)
                    .unwrap_or_else(|fault| self.refuse(Some(&id), &fault));
                out.push(output);
            }
            Ok(Message::Notification(notification)) => self.notice(&notification, out),
            Ok(Message::Response) => {}
            Err(Invalid { id, fault }) => {
                out.push(self.refuse(id.as_ref(), &fault));
                self.spent.extend(id);
            }
        }
    }

    fn request(&mut self, request: Request, memory_bytes: usize) -> Result<Output, Fault> {
        let Request { id, method, params } = request;
        if !self.spent.insert(id.clone()) {
            return Err(Fault::request("request id was used before"));
        }
        match self.era.request(&method, params)? {
            Asked::Pong => Ok(self.send(self.dialect().pong(&id))),
            Asked::Initialize => Ok(self.send(self.dialect().initialized(&id))),
            Asked::Discover => {
                // Also where the era is still open: who asks this speaks the stateless one.
                let dialect = Dialect {
                    revision: Revision::V2026_07_28,
                    ..self.dialect()
                };
                let frame = dialect.discovered(&id);
                Ok(self.send(frame))
            }
            Asked::List => self.list(&id),
            Asked::Call(params) => self.call(id, params, memory_bytes),
        }
    }

    fn list(&mut self, id: &WireId) -> Result<Output, Fault> {
        let frame = self.dialect().tool_list(id, &self.tools).ok_or_else(|| {
            Fault::new(
                ErrorCode::Internal,
                "the list of tools does not fit into one frame",
            )
        })?;
        Ok(self.send(frame))
    }

    fn call(
        &mut self,
        id: WireId,
        params: CallParams,
        memory_bytes: usize,
    ) -> Result<Output, Fault> {
        let ticket = self
            .outstanding
            .admit(id.clone(), params.progress_token.clone(), memory_bytes)
            .ok_or_else(|| {
                let waiting = self.outstanding.len();
                let message = format!(
                    "busy: {waiting} calls wait for their answer (at most \
                     {CALLS_OUTSTANDING_MAX} may, with limited size); send this one later"
                );
                Fault::new(ErrorCode::Busy, &message)
            })?;
        Ok(Output::Call(IncomingCall {
            ticket,
            identity: id,
            name: params.name,
            arguments: params.arguments,
            progress_token: params.progress_token,
        }))
    }

    fn notice(&mut self, notification: &Notification, out: &mut Vec<Output>) {
        match notification.method.as_str() {
            "notifications/initialized" => self.era.initialized(),
            "notifications/cancelled" => {
                let withdrawn = notification
                    .params
                    .cancelled_request()
                    .and_then(|id| self.outstanding.withdraw(&id));
                out.extend(withdrawn.map(Output::Withdraw));
            }
            _ => {}
        }
    }

    fn break_off(&mut self, reason: EndReason, out: &mut Vec<Output>) {
        self.intake = Intake::Broken;
        self.frames = Frames::default();
        out.extend(self.outstanding.wanted().map(Output::Withdraw));
        self.outstanding.forget_readers();
        out.push(Output::End(reason));
    }

    fn dialect(&self) -> Dialect<'_> {
        Dialect {
            revision: self.era.revision(),
            server: &self.server,
        }
    }

    fn refuse(&mut self, id: Option<&WireId>, fault: &Fault) -> Output {
        self.send(self.dialect().error(id, fault))
    }

    fn send(&mut self, frame: Vec<u8>) -> Output {
        Output::Send(self.sent(frame))
    }

    fn sent(&mut self, frame: Vec<u8>) -> Vec<u8> {
        self.bytes_out += frame.len() as u64;
        frame
    }
}

#[cfg(test)]
mod eras;
#[cfg(test)]
mod tests;
