//! A deadline for a request's head that starts with its first byte. A kept connection may be idle
//! as long as it likes: closing it would spend one of the run's few connections.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::cli_executor::limits::FRAME_READ_MAX;

/// Counts starts and ends of requests: odd while one is served.
#[derive(Debug, Clone, Default)]
pub(crate) struct Phase(Arc<AtomicU64>);

impl Phase {
    /// A head is complete, or its answer is.
    pub(crate) fn turn(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A stream whose reads fail when a head takes longer than [`FRAME_READ_MAX`].
#[derive(Debug)]
pub(crate) struct HeadClock<S> {
    stream: S,
    phase: Phase,
    seen: u64,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> HeadClock<S> {
    pub(crate) fn new(stream: S, phase: Phase) -> Self {
        Self {
            stream,
            phase,
            seen: 0,
            deadline: None,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HeadClock<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let phase = self.phase.now();
        if phase != self.seen {
            self.seen = phase;
            self.deadline = None;
        }
        let between = phase.is_multiple_of(2);
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(read) => {
                if between && buffer.filled().len() > before {
                    self.deadline
                        .get_or_insert_with(|| Box::pin(sleep(FRAME_READ_MAX)));
                }
                Poll::Ready(read)
            }
            Poll::Pending => match &mut self.deadline {
                Some(deadline) => deadline
                    .as_mut()
                    .poll(context)
                    .map(|()| Err(io::ErrorKind::TimedOut.into())),
                None => Poll::Pending,
            },
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeadClock<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_head_that_has_begun_has_a_deadline() {
        let (mut client, server) = duplex(64);
        let phase = Phase::default();
        let mut clock = HeadClock::new(server, phase.clone());
        let mut buffer = [0; 8];
        let idle = timeout(FRAME_READ_MAX * 3, clock.read(&mut buffer)).await;
        assert!(idle.is_err(), "nothing came, and nothing failed");
        client.write_all(b"POST").await.unwrap();
        assert_eq!(clock.read(&mut buffer).await.unwrap(), 4);
        phase.turn();
        client.write_all(b"body").await.unwrap();
        assert_eq!(clock.read(&mut buffer).await.unwrap(), 4);
        let served = timeout(FRAME_READ_MAX * 3, clock.read(&mut buffer)).await;
        assert!(served.is_err(), "a body has a deadline of its own");
        phase.turn();
        let idle = timeout(FRAME_READ_MAX * 3, clock.read(&mut buffer)).await;
        assert!(idle.is_err(), "idle again");
        client.write_all(b"PO").await.unwrap();
        assert_eq!(clock.read(&mut buffer).await.unwrap(), 2);
        let late = timeout(FRAME_READ_MAX * 3, clock.read(&mut buffer))
            .await
            .unwrap();
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
