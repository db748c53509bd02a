//! Accepts connections of both sockets under one count.

use std::io;
use std::sync::Arc;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::cli_executor::limits::{ACCEPT_PAUSE, CONNECTIONS_LIVE_MAX, CONNECTIONS_TOTAL_MAX};

/// A connection and its place among the live ones.
pub(crate) enum Accepted {
    Broker(UnixStream, OwnedSemaphorePermit),
    Inference(UnixStream, OwnedSemaphorePermit),
}

/// The channel's listeners.
pub(crate) struct Listeners {
    broker: UnixListener,
    inference: Option<UnixListener>,
    live: Arc<Semaphore>,
    left: usize,
}

impl Listeners {
    pub(crate) fn new(broker: UnixListener, inference: Option<UnixListener>) -> Self {
        Self {
            broker,
            inference,
            live: Arc::new(Semaphore::new(CONNECTIONS_LIVE_MAX)),
            left: CONNECTIONS_TOTAL_MAX,
        }
    }

    /// The next connection. Waits for a free place first, so that one too many is not accepted
    /// at all. `None` once the run's connections are used up. Dropping the future loses nothing.
    pub(crate) async fn accept(&mut self) -> Option<Accepted> {
        let left = self.left.checked_sub(1)?;
        let accepted = loop {
            match self.accept_one().await? {
                Ok(accepted) => break accepted,
                // The host is out of descriptors or memory: what is open may end soon.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        };
        self.left = left;
        Some(accepted)
    }

    /// `None` where there is no more place for ever.
    async fn accept_one(&self) -> Option<io::Result<Accepted>> {
        let place = Arc::clone(&self.live).acquire_owned().await.ok()?;
        let inference = async {
            match &self.inference {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        let accepted = tokio::select! {
            accepted = self.broker.accept() => {
                accepted.map(|(stream, _)| Accepted::Broker(stream, place))
            }
            accepted = inference => {
                accepted.map(|(stream, _)| Accepted::Inference(stream, place))
            }
        };
        Some(accepted)
    }
}
