//! A provider's answer on its way to the agent: bounded, checked, hashed, and recorded at its end.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use governance::EndCause;
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use inference::{Refusal, ResponseGuard};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::cli_executor::completion::{OpenRequest, refusal};
use crate::cli_executor::limits::RESPONSE_PIECES_MAX;
use crate::session::GovernedToolSession;

pub(crate) const BROKEN: &str = "the provider's answer broke off";
const STOPPED_READING: &str = "the agent stopped reading";

/// How long one request may take, and whom to tell when it took longer.
pub(crate) struct Patience {
    pub(crate) until: Instant,
    pub(crate) timeout: Duration,
    pub(crate) session: GovernedToolSession,
}

impl Patience {
    /// The answer did not come in time. What the provider did is not known: the run ends.
    pub(crate) fn exhausted(&self, open: OpenRequest) -> Refusal {
        let reason = format!(
            "the provider did not answer within {} s",
            self.timeout.as_secs_f64()
        );
        open.leave_open(&reason);
        self.session.cancel_for(EndCause::Inference {
            reason: reason.clone(),
        });
        refusal(&reason)
    }
}

/// An answer under way.
pub(crate) struct Relay {
    pub(crate) status: u16,
    pub(crate) body: Incoming,
    pub(crate) guard: ResponseGuard,
    pub(crate) open: OpenRequest,
    pub(crate) patience: Patience,
}

impl Relay {
    /// Takes the whole answer, and only then gives it out.
    pub(crate) async fn collect(mut self) -> Result<Whole, Refusal> {
        let mut kept = Whole::default();
        let reason = loop {
            match next_piece(&mut self.body, self.patience.until).await {
                Piece::Data(bytes) => match self.guard.feed(&bytes) {
                    Ok(pass) => kept.push(pass),
                    Err(refused) => break refused.to_string(),
                },
                Piece::End => match self.guard.finish() {
                    Ok(finished) => {
                        kept.push(finished.tail);
                        let whole = Some((finished.bytes, finished.sha256));
                        self.open.complete(self.status, whole, None).await?;
                        return Ok(kept);
                    }
                    Err(refused) => break refused.to_string(),
                },
                Piece::Late => return Err(self.patience.exhausted(self.open)),
                Piece::Broken => break BROKEN.to_owned(),
            }
        };
        self.open.complete(self.status, None, Some(&reason)).await?;
        Err(refusal(&reason))
    }

    /// Passes an event stream on as it arrives. A task of its own reads the provider, so that
    /// the record is written whatever the agent does.
    pub(crate) fn stream(self) -> impl Body<Data = Bytes, Error = Infallible> + Send + Sync {
        let (pieces, receiver) = mpsc::channel(RESPONSE_PIECES_MAX);
        tokio::spawn(self.pump(pieces));
        Passed(receiver)
    }

    async fn pump(mut self, pieces: mpsc::Sender<Bytes>) {
        let reason = loop {
            let piece = tokio::select! {
                biased;
                () = pieces.closed() => break STOPPED_READING.to_owned(),
                piece = next_piece(&mut self.body, self.patience.until) => piece,
            };
            match piece {
                Piece::Data(bytes) => match self.guard.feed(&bytes) {
                    Ok(pass) if pass.is_empty() => {}
                    Ok(pass) => {
                        let sent = pieces.send(Bytes::from(pass));
                        if !matches!(timeout_at(self.patience.until, sent).await, Ok(Ok(()))) {
                            break STOPPED_READING.to_owned();
                        }
                    }
                    Err(refused) => break refused.to_string(),
                },
                Piece::End => match self.guard.finish() {
                    Ok(finished) => {
                        let whole = Some((finished.bytes, finished.sha256));
                        let recorded = self.open.complete(self.status, whole, None).await;
                        if recorded.is_ok() && !finished.tail.is_empty() {
                            let _ = pieces.send(Bytes::from(finished.tail)).await;
                        }
                        return;
                    }
                    Err(refused) => break refused.to_string(),
                },
                Piece::Late => {
                    let late = self.patience.exhausted(self.open);
                    let _ = pieces.try_send(Bytes::from(late.as_event()));
                    return;
                }
                Piece::Broken => break BROKEN.to_owned(),
            }
        };
        let told = Bytes::from(refusal(&reason).as_event());
        let _ = self.open.complete(self.status, None, Some(&reason)).await;
        let _ = pieces.try_send(told);
    }
}

enum Piece {
    Data(Bytes),
    End,
    Late,
    Broken,
}

async fn next_piece(body: &mut Incoming, until: Instant) -> Piece {
    loop {
        match timeout_at(until, body.frame()).await {
            Err(_) => return Piece::Late,
            Ok(None) => return Piece::End,
            Ok(Some(Err(_))) => return Piece::Broken,
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    return Piece::Data(data);
                }
            }
        }
    }
}

/// A whole answer, in the pieces in which it came: one large buffer would be copied as it grows.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    pieces: VecDeque<Bytes>,
    bytes: u64,
}

impl Whole {
    fn push(&mut self, piece: Vec<u8>) {
        if !piece.is_empty() {
            self.bytes += piece.len() as u64;
            self.pieces.push_back(Bytes::from(piece));
        }
    }
}

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.pop_front();
        self.bytes -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
        std::task::Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes)
    }
}

/// What passed, as a body.
struct Passed(mpsc::Receiver<Bytes>);

impl Body for Passed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(context)
            .map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }
}
