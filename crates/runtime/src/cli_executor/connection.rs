//! One MCP connection of an agent, or of a client over standard input and output.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use governance::{BrokerToolCall, EndCause};
use mcp::limits::{SESSION_TRAFFIC_BYTES_MAX, TEXT_BYTES_MAX};
use mcp::{Connection, EndReason, IncomingCall, Output, ServerInfo, Ticket, Tool, ToolResult};
use model::RunId;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::cli_executor::limits::{FRAME_READ_MAX, WRITE_MAX};
use crate::cli_executor::progress::{Allowance, Followed};
use crate::envelope::Envelope;
use crate::session::{Answer, CallHandle, CallPhase, GovernedToolSession};

const READ_BYTES: usize = 64 << 10;

/// What the connections of one session share.
#[derive(Debug, Clone)]
pub(crate) struct Desk {
    pub(crate) session: GovernedToolSession,
    pub(crate) server: ServerInfo,
    pub(crate) tools: Arc<[Tool]>,
    /// MCP bytes of all connections, both ways.
    pub(crate) traffic: Arc<AtomicU64>,
    pub(crate) progress: Allowance,
    pub(crate) run: RunId,
}

/// Why a connection ended; for the log and for tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    Client(EndReason),
    SlowFrame,
    SlowReader,
    Traffic,
    Io,
}

impl ConnectionEnd {
    /// What the client did wrong, if it did not simply leave.
    pub(crate) fn fault(&self) -> Option<String> {
        match self {
            // A stream that fails is one whose other side has gone.
            Self::Client(EndReason::InputClosed) | Self::Io => None,
            Self::Client(reason) => Some(reason.to_string()),
            Self::SlowFrame => Some("the client sent a frame too slowly".to_owned()),
            Self::SlowReader => Some("the client no longer reads its answers".to_owned()),
            Self::Traffic => Some("the client passed its bound of traffic".to_owned()),
        }
    }
}

struct Finished {
    ticket: Ticket,
    result: ToolResult,
}

/// Serves one connection until it ends. Calls that it made go on without it.
pub(crate) async fn serve<R, W>(
    desk: &Desk,
    number: u64,
    limits: mcp::ConnectionLimits,
    reader: R,
    writer: W,
) -> ConnectionEnd
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (finished, answers) = mpsc::unbounded_channel();
    let machine = Connection::new(&desk.server, Arc::clone(&desk.tools), limits);
    let mut link = Link {
        desk,
        number,
        machine,
        counted: 0,
        calls: HashMap::new(),
        followed: Followed::default(),
        finished,
    };
    link.run(reader, writer, answers).await
}

struct Link<'a> {
    desk: &'a Desk,
    number: u64,
    machine: Connection,
    /// Bytes of this connection that the session's count has.
    counted: u64,
    calls: HashMap<Ticket, CallHandle>,
    followed: Followed,
    finished: mpsc::UnboundedSender<Finished>,
}

impl Link<'_> {
    async fn run<R, W>(
        &mut self,
        mut reader: R,
        mut writer: W,
        mut answers: mpsc::UnboundedReceiver<Finished>,
    ) -> ConnectionEnd
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut buffer = vec![0; READ_BYTES];
        // When the frame that is being read began; between frames there is no deadline.
        let mut frame_began: Option<Instant> = None;
        let mut open = true;
        let mut end = ConnectionEnd::Client(EndReason::InputClosed);
        while open || self.machine.outstanding() > 0 {
            let read = read_some(&mut reader, &mut buffer, frame_began, open);
            let mut outputs = Vec::new();
            tokio::select! {
                Some(done) = answers.recv() => {
                    self.calls.remove(&done.ticket);
                    self.followed.forget(done.ticket);
                    if let Some(frame) = self.machine.answer(done.ticket, &done.result) {
                        outputs.push(Output::Send(frame));
                    }
                }
                () = at(self.followed.next_look()) => self.tell_progress(&mut outputs),
                read = read => match read {
                    Read::Late => return self.disconnect(ConnectionEnd::SlowFrame),
                    Read::Failed => return self.disconnect(ConnectionEnd::Io),
                    Read::Some(0) => {
                        self.machine.eof(&mut outputs);
                        open = false;
                    }
                    Read::Some(count) => {
                        let bytes = buffer.get(..count).unwrap_or_default();
                        frame_began = began(bytes, frame_began);
                        self.machine.feed(bytes, &mut outputs);
                    }
                },
            }
            for output in outputs {
                match self.act(output, &mut writer).await {
                    Step::Go => {}
                    Step::Stop(EndReason::InputClosed) => open = false,
                    Step::Stop(reason) => {
                        return self.disconnect(ConnectionEnd::Client(reason));
                    }
                    Step::Slow => return self.disconnect(ConnectionEnd::SlowReader),
                    Step::Gone => return self.disconnect(ConnectionEnd::Io),
                }
            }
            if !self.count() {
                end = self.disconnect(ConnectionEnd::Traffic);
                break;
            }
        }
        let _ = timeout(WRITE_MAX, writer.shutdown()).await;
        end
    }

    /// Withdraws what has not been dispatched, as at any disconnect.
    fn disconnect(&mut self, end: ConnectionEnd) -> ConnectionEnd {
        for (_, call) in self.calls.drain() {
            call.withdraw();
        }
        self.count();
        end
    }

    async fn act<W: AsyncWrite + Unpin>(&mut self, output: Output, writer: &mut W) -> Step {
        match output {
            Output::Send(frame) => {
                let write = async {
                    writer.write_all(&frame).await?;
                    writer.flush().await
                };
                match timeout(WRITE_MAX, write).await {
                    Ok(Ok(())) => Step::Go,
                    Ok(Err(_)) => Step::Gone,
                    Err(_) => Step::Slow,
                }
            }
            Output::Call(call) => {
                self.start(call).await;
                Step::Go
            }
            Output::Withdraw(ticket) => {
                if let Some(call) = self.calls.get(&ticket) {
                    call.withdraw();
                }
                Step::Go
            }
            Output::End(reason) => Step::Stop(reason),
        }
    }

    /// Hands the call to the session. A task owns its future, so that the call outlives its
    /// connection.
    async fn start(&mut self, call: IncomingCall) {
        let ticket = call.ticket;
        let wants_progress = call.progress_token.is_some();
        let finished = self.finished.clone();
        let broker_call = BrokerToolCall {
            call_id: call.identity.call_id(self.number).to_string(),
            name: call.name,
            arguments: serde_json::Value::Object(call.arguments.into_map()),
        };
        let run = self.desk.run;
        match self.desk.session.submit(broker_call).await {
            Ok(pending) => {
                self.calls.insert(ticket, pending.handle());
                if wants_progress {
                    self.followed.follow(ticket, Instant::now());
                }
                tokio::spawn(async move {
                    let result = result(pending.await, run);
                    let _ = finished.send(Finished { ticket, result });
                });
            }
            Err(cause) => {
                let _ = finished.send(Finished {
                    ticket,
                    result: result(Err(cause), run),
                });
            }
        }
    }

    /// Tells of the calls that are under way, while the session has traffic for it.
    fn tell_progress(&mut self, outputs: &mut Vec<Output>) {
        let phase_of = |ticket| {
            self.calls
                .get(&ticket)
                .map_or(CallPhase::Running, CallHandle::phase)
        };
        for (ticket, words) in self.followed.look(Instant::now(), phase_of) {
            if self.desk.progress.is_spent() {
                self.followed.forget(ticket);
            } else if let Some(frame) = self.machine.progress(ticket, &words) {
                self.desk.progress.spend(frame.len() as u64);
                outputs.push(Output::Send(frame));
            }
        }
    }

    /// Adds this connection's new bytes to the session's. False: the session's bound is passed.
    fn count(&mut self) -> bool {
        let total = self.machine.bytes_in() + self.machine.bytes_out();
        let new = total - self.counted;
        self.counted = total;
        let sum = self.desk.traffic.fetch_add(new, Ordering::SeqCst) + new;
        if sum <= SESSION_TRAFFIC_BYTES_MAX {
            return true;
        }
        let reason = format!("more than {SESSION_TRAFFIC_BYTES_MAX} bytes of MCP traffic");
        self.desk.session.cancel_for(EndCause::Transport { reason });
        false
    }
}

enum Step {
    Go,
    Slow,
    Gone,
    Stop(EndReason),
}

enum Read {
    Some(usize),
    Late,
    Failed,
}

async fn read_some<R: AsyncRead + Unpin>(
    reader: &mut R,
    buffer: &mut [u8],
    frame_began: Option<Instant>,
    open: bool,
) -> Read {
    if !open {
        return std::future::pending().await;
    }
    let read = match frame_began {
        None => reader.read(buffer).await,
        Some(began) => match timeout_at(began + FRAME_READ_MAX, reader.read(buffer)).await {
            Ok(read) => read,
            Err(_) => return Read::Late,
        },
    };
    read.map_or(Read::Failed, Read::Some)
}

/// Waits for that moment, or for ever.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// When the frame at the end of `bytes` began, if one is unfinished there.
fn began(bytes: &[u8], before: Option<Instant>) -> Option<Instant> {
    match bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(at) if at + 1 == bytes.len() => None,
        Some(_) => Some(Instant::now()),
        None => before.or_else(|| Some(Instant::now())),
    }
}

fn result(answer: Result<Answer, EndCause>, run: RunId) -> ToolResult {
    match answer {
        Ok(answer) => {
            let envelope =
                Envelope::of(&answer, run, crate::clock::now_rfc3339()).fitting(TEXT_BYTES_MAX);
            ToolResult {
                text: envelope.to_json(),
                structured: None,
                is_error: envelope.is_error(),
            }
        }
        Err(cause) => ToolResult {
            text: serde_json::json!({"status": "session_ended", "reason": cause.to_string()})
                .to_string(),
            structured: None,
            is_error: true,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_a_frame_starts_with_its_first_byte_only() {
        assert!(began(b"{}\n", None).is_none());
        assert!(began(b"{}\n{", None).is_some());
        let first = began(b"{", None).unwrap();
        assert_eq!(began(b"\"a\"", Some(first)), Some(first));
        assert!(began(b"}\n", Some(first)).is_none());
    }
}
