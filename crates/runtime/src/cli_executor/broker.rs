//! The broker: an agent's private MCP channel to one governed session.

use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use governance::EndCause;
use mcp::{ConnectionLimits, ServerInfo, Tool};
use model::RunId;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use worker::CommandBoundary;

use crate::cli_executor::boundary::{self, BoundaryRefused};
use crate::cli_executor::channel::{
    ADAPTER_PORT, Channel, ChannelError, adapter_in_worker, bridge_in_worker, broker_in_worker,
    inference_in_worker,
};
use crate::cli_executor::completion::WindUp;
use crate::cli_executor::connection::{self, Desk};
use crate::cli_executor::inference::{ProtectedInference, Proxy};
use crate::cli_executor::listener::{Accepted, Listeners};
use crate::cli_executor::progress::Allowance;
use crate::session::GovernedToolSession;

/// Name under which the agent's client knows the broker.
pub const SERVER_NAME: &str = "symbi";

/// Owns the channel, its connections and the session.
///
/// Keep it alive while the agent runs, then [`McpToolBroker::close`] it. Dropping it returns at
/// once; a task of its own stops the connections, cancels what runs, closes the session as an
/// error and removes the channel.
#[derive(Debug)]
pub struct McpToolBroker {
    session: GovernedToolSession,
    channel: PathBuf,
    closing: Option<oneshot::Sender<oneshot::Sender<Result<(), EndCause>>>>,
}

impl McpToolBroker {
    /// Serves `session` on a socket below `parent`, which must be a private folder.
    ///
    /// # Errors
    /// [`ChannelError`] where the channel cannot be made; the session is untouched.
    pub fn start(
        session: GovernedToolSession,
        run: RunId,
        parent: &Path,
    ) -> Result<Self, ChannelError> {
        Self::with(session, run, parent, None)
    }

    /// The same, with a second socket to the agent's model provider.
    ///
    /// # Errors
    /// [`ChannelError`] where the channel cannot be made; the session is untouched.
    pub fn start_with_inference(
        session: GovernedToolSession,
        run: RunId,
        parent: &Path,
        inference: ProtectedInference,
    ) -> Result<Self, ChannelError> {
        Self::with(session, run, parent, Some(inference))
    }

    fn with(
        session: GovernedToolSession,
        run: RunId,
        parent: &Path,
        inference: Option<ProtectedInference>,
    ) -> Result<Self, ChannelError> {
        let channel = Channel::create(parent)?;
        let broker_socket = channel.bind_broker()?;
        let inference_socket = match &inference {
            Some(_) => Some(channel.bind_inference()?),
            None => None,
        };
        let desk = desk(&session, run);
        let provider = inference.map(|inference| {
            let (proxy, wound_up) = inference.serve_for(session.clone());
            (Arc::new(proxy), wound_up)
        });
        let (closing, closed) = oneshot::channel();
        let path = channel.path().to_owned();
        let listeners = Listeners::new(broker_socket, inference_socket);
        tokio::spawn(own(listeners, desk, provider, channel, closed));
        Ok(Self {
            session,
            channel: path,
            closing: Some(closing),
        })
    }

    /// The session that the channel serves.
    #[must_use]
    pub const fn session(&self) -> &GovernedToolSession {
        &self.session
    }

    /// The channel folder on the host: the worker's one mount, read-only, at `/channel`.
    #[must_use]
    pub fn channel(&self) -> &Path {
        &self.channel
    }

    /// The profile of the agent's worker, from the boundary that the operator chose: the same
    /// isolation and limits, no network, no files, a scratch `/workspace`. The channel, read-only,
    /// is its one mount; the launch adds it.
    ///
    /// # Errors
    /// [`BoundaryRefused`] for a tier that cannot contain an agent; nothing falls back.
    pub fn child_boundary(operator: &CommandBoundary) -> Result<CommandBoundary, BoundaryRefused> {
        boundary::of_agent(operator)
    }

    /// Configuration of the agent's MCP client, as `mcpServers` JSON.
    #[must_use]
    pub fn mcp_config() -> String {
        mcp::mcp_config(SERVER_NAME, &bridge_in_worker(), &broker_in_worker())
    }

    /// The base URL that the agent sees for its model.
    #[must_use]
    pub fn inference_url() -> String {
        format!("http://127.0.0.1:{ADAPTER_PORT}")
    }

    /// The command line that starts `agent` beside its loopback adapter.
    #[must_use]
    pub fn child_command(agent: &[String]) -> Vec<String> {
        let adapter = ["python3".to_owned(), "-I".to_owned(), adapter_in_worker()];
        let place = [inference_in_worker(), ADAPTER_PORT.to_string()];
        adapter
            .into_iter()
            .chain(place)
            .chain(agent.iter().cloned())
            .collect()
    }

    /// Serves `session` to one client over a pair of streams, such as standard input and output,
    /// without a channel: the client is governed, not contained. Ends when the client closes its
    /// side: the call that runs is then finished and answered. Ends also when `stop` does: what
    /// runs then is stopped, and makes the end an error. Clients end their servers in both ways.
    ///
    /// # Errors
    /// [`EndCause`] where the session did not complete cleanly; the client's faults are
    /// [`EndCause::Transport`].
    pub async fn serve_client<R, W>(
        session: GovernedToolSession,
        run: RunId,
        (reader, writer): (R, W),
        stop: impl Future<Output = ()>,
    ) -> Result<(), EndCause>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let desk = desk(&session, run);
        {
            let client = connection::serve(&desk, 1, ConnectionLimits::stdio(), reader, writer);
            tokio::select! {
                biased;
                () = stop => {}
                end = client => if let Some(reason) = end.fault() {
                    session.cancel_for(EndCause::Transport { reason });
                },
            }
        }
        session.close().await
    }

    /// Stops the connections, closes the session, and removes the channel.
    ///
    /// # Errors
    /// [`EndCause`] where the session did not complete cleanly.
    pub async fn close(mut self) -> Result<(), EndCause> {
        let (reply, answer) = oneshot::channel();
        let Some(closing) = self.closing.take() else {
            return Err(EndCause::Closed);
        };
        closing.send(reply).map_err(|_| EndCause::Lost)?;
        answer.await.unwrap_or(Err(EndCause::Lost))
    }
}

fn desk(session: &GovernedToolSession, run: RunId) -> Desk {
    let advertised = session
        .tools()
        .iter()
        .map(|tool| Tool {
            name: tool.name.clone(),
            description: tool.description.clone(),
            input_schema: tool.input_schema.clone(),
            read_only: tool.read_only,
        })
        .collect();
    Desk {
        session: session.clone(),
        server: ServerInfo {
            name: SERVER_NAME.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instructions: None,
        },
        tools: advertised,
        traffic: Arc::new(AtomicU64::new(0)),
        progress: Allowance::default(),
        run,
    }
}

type Provider = (Arc<Proxy>, WindUp);
type Closed = oneshot::Receiver<oneshot::Sender<Result<(), EndCause>>>;

/// The broker's own task: it outlives its handle.
async fn own(
    mut listeners: Listeners,
    desk: Desk,
    provider: Option<Provider>,
    channel: Channel,
    mut closed: Closed,
) {
    if provider.is_some() {
        // A provider request's record must not be the run's first.
        let _ = desk.session.begin().await;
    }
    let (proxy, wound_up) = provider.unzip();
    let (mut clients, mut requests) = (JoinSet::new(), JoinSet::new());
    let mut number: u64 = 0;
    let mut accepting = true;
    let reply = loop {
        tokio::select! {
            reply = &mut closed => break reply.ok(),
            Some(_) = clients.join_next() => {}
            Some(_) = requests.join_next() => {}
            accepted = listeners.accept(), if accepting => match accepted {
                None => accepting = false,
                Some(Accepted::Broker(stream, place)) => {
                    number += 1;
                    let (desk, number) = (desk.clone(), number);
                    clients.spawn(async move {
                        let (reader, writer) = stream.into_split();
                        let limits = ConnectionLimits::broker();
                        connection::serve(&desk, number, limits, reader, writer).await;
                        drop(place);
                    });
                }
                Some(Accepted::Inference(stream, place)) => {
                    if let Some(proxy) = proxy.clone() {
                        requests.spawn(async move {
                            proxy.serve(stream).await;
                            drop(place);
                        });
                    }
                }
            },
        }
    };
    drop(listeners);
    // Provider requests first: their completion must come before the terminal record.
    requests.shutdown().await;
    drop(proxy);
    if let Some(wound_up) = wound_up {
        wound_up.finished().await;
    }
    if reply.is_none() {
        desk.session.cancel();
    }
    let ended = desk.session.clone().close().await;
    clients.shutdown().await;
    drop(channel);
    if let Some(reply) = reply {
        let _ = reply.send(ended);
    }
}

impl fmt::Display for McpToolBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broker at {}", self.channel.display())
    }
}
