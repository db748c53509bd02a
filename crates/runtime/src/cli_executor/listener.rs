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
    /// Closed with the last connection of the run: whoever still tries is refused at once.
    sockets: Option<Sockets>,
    live: Arc<Semaphore>,
    left: usize,
}

struct Sockets {
    broker: UnixListener,
    inference: Option<UnixListener>,
}

impl Listeners {
    pub(crate) fn new(broker: UnixListener, inference: Option<UnixListener>) -> Self {
        Self {
            sockets: Some(Sockets { broker, inference }),
            live: Arc::new(Semaphore::new(CONNECTIONS_LIVE_MAX)),
            left: CONNECTIONS_TOTAL_MAX,
        }
    }

    /// The next connection. Waits for a free place first, so that one too many is not accepted
    /// at all. `None` once the run's connections are used up. Dropping the future loses nothing.
    pub(crate) async fn accept(&mut self) -> Option<Accepted> {
        let sockets = self.sockets.as_ref()?;
        let accepted = loop {
            let place = Arc::clone(&self.live).acquire_owned().await.ok()?;
            match sockets.accept(place).await {
                Ok(accepted) => break accepted,
                // The host is out of descriptors or memory: what is open may end soon.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        };
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.sockets = None;
        }
        Some(accepted)
    }
}

impl Sockets {
    async fn accept(&self, place: OwnedSemaphorePermit) -> io::Result<Accepted> {
        let inference = async {
            match &self.inference {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = self.broker.accept() => {
                accepted.map(|(stream, _)| Accepted::Broker(stream, place))
            }
            accepted = inference => {
                accepted.map(|(stream, _)| Accepted::Inference(stream, place))
            }
        }
    }
}
