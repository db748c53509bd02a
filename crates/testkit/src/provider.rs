//! A scripted provider of the Messages API on a loopback port: what the proxy's tests and the
//! runs of whole agents talk to instead of a paid service.
//!
//! It has a thread and a runtime of its own, so that blocking and async tests use it alike.
//! `HEAD /` and `count_tokens` are answered by themselves; each `POST /v1/messages` takes the
//! next [`Turn`] of the script, or what a closure makes of the request.

mod turn;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use inference::scripted::{Asked, error_message, token_count};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

use turn::{Answer, Piece};
pub use turn::{ToolUse, Turn};

/// Largest request body that is read: beyond what the product may ever send.
pub const SEEN_BODY_BYTES_MAX: usize = 16 << 20;

/// A request as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenRequest {
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Lower-case names, in order.
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
}

impl SeenRequest {
    /// The first header of this lower-case name, as text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<String> {
        self.headers
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    }
}

/// What chooses the next turn.
type Author = Box<dyn FnMut(&SeenRequest, &Asked) -> Turn + Send>;

struct Stage {
    author: Mutex<Author>,
    seen: Mutex<Vec<SeenRequest>>,
    turns: Mutex<usize>,
}

/// A running provider. Dropping it closes every connection and ends its thread.
pub struct ScriptedProvider {
    address: SocketAddr,
    stage: Arc<Stage>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for ScriptedProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedProvider")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl ScriptedProvider {
    /// Plays `script`; a request after its end is answered with a 400 that says so.
    ///
    /// # Errors
    /// The operating system's, for the socket or the thread.
    pub fn start(script: Vec<Turn>) -> io::Result<Self> {
        let mut left = VecDeque::from(script);
        Self::interactive(move |_, _| {
            left.pop_front()
                .unwrap_or_else(|| Turn::status(400, "the_script_is_at_its_end"))
        })
    }

    /// Lets `author` make each turn from the request: for agents whose next step depends on
    /// what their tools returned.
    ///
    /// # Errors
    /// The operating system's, for the socket or the thread.
    pub fn interactive(
        author: impl FnMut(&SeenRequest, &Asked) -> Turn + Send + 'static,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let stage = Arc::new(Stage {
            author: Mutex::new(Box::new(author)),
            seen: Mutex::default(),
            turns: Mutex::default(),
        });
        let (stop, stopped) = oneshot::channel();
        let served = Arc::clone(&stage);
        let thread = std::thread::Builder::new()
            .name("scripted-provider".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = accept(&listener, &served) => {}
                        _ = stopped => {}
                    }
                });
            })?;
        Ok(Self {
            address,
            stage,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The base URL, without a final slash.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Every request so far, of every route, in the order in which their bodies were complete.
    #[must_use]
    pub fn requests(&self) -> Vec<SeenRequest> {
        lock(&self.stage.seen).clone()
    }
}

impl Drop for ScriptedProvider {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: &TcpListener, stage: &Arc<Stage>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(stream, Arc::clone(stage)));
    }
}

async fn serve(stream: TcpStream, stage: Arc<Stage>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let stage = Arc::clone(&stage);
        async move { Ok::<_, Infallible>(respond(request, &stage).await) }
    });
    // An error here is a client that went away, or a break that the script asked for.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn respond(request: Request<Incoming>, stage: &Stage) -> Response<Pieces> {
    let (head, body) = request.into_parts();
    let body = match Limited::new(body, SEEN_BODY_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes().to_vec(),
        Err(_) => return send(error(400, "unreadable_request")),
    };
    let seen = SeenRequest {
        method: head.method.to_string(),
        path: head
            .uri
            .path_and_query()
            .map_or_else(|| head.uri.to_string(), ToString::to_string),
        headers: head
            .headers
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
            .collect(),
        body,
    };
    lock(&stage.seen).push(seen.clone());
    let answer = choose(&seen, stage);
    tokio::time::sleep(answer.delay).await;
    send(answer)
}

fn choose(seen: &SeenRequest, stage: &Stage) -> Answer {
    let path = seen.path.split('?').next().unwrap_or("");
    match (seen.method.as_str(), path) {
        ("HEAD", _) => Answer {
            status: 200,
            ..Answer::default()
        },
        ("POST", path) if path.ends_with("/v1/messages/count_tokens") => {
            turn::json(200, token_count(seen.body.len() as u64 / 4))
        }
        ("POST", path) if path.ends_with("/v1/messages") => match Asked::parse(&seen.body) {
            Ok(asked) => {
                let number = {
                    let mut turns = lock(&stage.turns);
                    *turns += 1;
                    *turns
                };
                let next = (lock(&stage.author))(seen, &asked);
                turn::answer(next, number, seen, &asked)
            }
            Err(_) => error(400, "unreadable_request"),
        },
        _ => error(404, "not_found_error"),
    }
}

fn error(status: u16, name: &str) -> Answer {
    turn::json(status, error_message(name, "the scripted provider says no"))
}

fn send(answer: Answer) -> Response<Pieces> {
    let length = match answer.pieces.as_slice() {
        [] => Some(0),
        [Piece::Bytes(bytes)] => Some(bytes.len()),
        _ => None,
    };
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(feed(answer.pieces, sender));
    let mut response = Response::new(Pieces(receiver));
    *response.status_mut() =
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in answer.headers {
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name.as_bytes()),
            HeaderValue::from_str(&value),
        ) {
            response.headers_mut().append(name, value);
        }
    }
    if let Some(length) = length {
        response
            .headers_mut()
            .insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    response
}

async fn feed(pieces: Vec<Piece>, sender: mpsc::Sender<io::Result<Bytes>>) {
    for piece in pieces {
        let item = match piece {
            Piece::Pause(pause) => {
                tokio::time::sleep(pause).await;
                continue;
            }
            Piece::Bytes(bytes) => Ok(Bytes::from(bytes)),
            Piece::Break => {
                // What was sent must have left before the connection breaks.
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                Err(io::ErrorKind::ConnectionAborted.into())
            }
        };
        if sender.send(item).await.is_err() {
            return;
        }
    }
}

/// A body whose pieces come from a task.
struct Pieces(mpsc::Receiver<io::Result<Bytes>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0
            .poll_recv(context)
            .map(|item| item.map(|bytes| bytes.map(Frame::data)))
    }
}

#[cfg(test)]
#[path = "provider_tests.rs"]
mod tests;
