//! Callbacks of a chat platform, as the user's relay hands them in: plain HTTP on this machine,
//! with the headers and the exact bytes that the platform sent. The signature is what counts, not
//! the connection.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use approval::chat::{Callback, ChatAnswer, ChatRefusal};
use approval::limits::CALLBACK_BYTES_MAX;
use governance::Approver;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::chat::{SURFACE, Shared};
use crate::session::{HeldCalls, UncountedAnswer};

/// Connections that are served at once: silent ones take no place from a callback.
const CONNECTIONS_MAX: usize = 64;
/// From a connection to its answer.
const CALLBACK_TIME_MAX: Duration = Duration::from_secs(10);
/// Headers of one callback.
const CALLBACK_HEADERS_MAX: usize = 64;
/// Pause when the host is out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where callbacks come in. Both are of this machine alone.
#[derive(Debug)]
pub enum ChatListener {
    Loopback(std::net::TcpListener),
    Socket(std::os::unix::net::UnixListener),
}

enum Listening {
    Loopback(TcpListener),
    Socket(UnixListener),
}

impl Listening {
    fn of(listener: ChatListener) -> io::Result<Self> {
        match listener {
            ChatListener::Loopback(listener) => {
                listener.set_nonblocking(true)?;
                TcpListener::from_std(listener).map(Self::Loopback)
            }
            ChatListener::Socket(listener) => {
                listener.set_nonblocking(true)?;
                UnixListener::from_std(listener).map(Self::Socket)
            }
        }
    }

    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Self::Loopback(listener) => Ok(Box::new(listener.accept().await?.0)),
            Self::Socket(listener) => Ok(Box::new(listener.accept().await?.0)),
        }
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Takes callbacks until dropped.
pub(crate) async fn serve(listener: ChatListener, shared: Arc<Shared>, held: HeldCalls) {
    let Ok(listener) = Listening::of(listener) else {
        return;
    };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = tokio::task::JoinSet::new();
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let Ok(stream) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        let (shared, held) = (Arc::clone(&shared), held.clone());
        connections.spawn(async move {
            // A relay that is slow or went away gets no answer.
            let _ = timeout(CALLBACK_TIME_MAX, converse(stream, shared, held)).await;
            drop(place);
        });
    }
}

async fn converse(stream: Box<dyn Stream>, shared: Arc<Shared>, held: HeldCalls) {
    let service = hyper::service::service_fn(move |request| {
        let (shared, held) = (Arc::clone(&shared), held.clone());
        async move { Ok::<_, Infallible>(answer(request, &shared, &held).await) }
    });
    let _ = hyper::server::conn::http1::Builder::new()
        .max_headers(CALLBACK_HEADERS_MAX)
        .header_read_timeout(None)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(
    request: Request<Incoming>,
    shared: &Shared,
    held: &HeldCalls,
) -> Response<Full<Bytes>> {
    if request.method() != Method::POST {
        return plain(
            StatusCode::METHOD_NOT_ALLOWED,
            "callbacks are POST requests",
        );
    }
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, CALLBACK_BYTES_MAX).collect().await else {
        let max = CALLBACK_BYTES_MAX;
        let refusal = ChatRefusal::TooLarge { max };
        return refuse(&refusal, shared, held);
    };
    let body = body.to_bytes();
    let headers: Vec<(&str, &str)> = head
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap_or_default()))
        .collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let callback = Callback {
        headers: &headers,
        body: &body,
        now: now.map_or(0, |now| now.as_secs()),
    };
    let read = shared.chat().answer(&callback);
    match read {
        Ok(answer) => decide(answer, shared, held),
        Err(refusal) => refuse(&refusal, shared, held),
    }
}

fn decide(answer: ChatAnswer, shared: &Shared, held: &HeldCalls) -> Response<Full<Bytes>> {
    let approves = answer.answer.approves();
    let approver = Approver {
        surface: SURFACE.to_owned(),
        identity: answer.sender.identity(shared.platform),
        signatures: Vec::new(),
    };
    let held_id = &answer.held_id;
    let said = match held.decide(held_id.as_str(), answer.review_sha256, approves, approver) {
        Ok(()) if approves => format!("approved {held_id}"),
        Ok(()) => format!("denied {held_id}"),
        Err(error) => format!("this does not count: {error}"),
    };
    told(&said)
}

/// Says why a callback is no answer, to the platform's user where the platform vouched for them,
/// and has it recorded.
fn refuse(refusal: &ChatRefusal, shared: &Shared, held: &HeldCalls) -> Response<Full<Bytes>> {
    let (from, vouched) = match refusal {
        ChatRefusal::Sender(sender) => (sender.identity(shared.platform), true),
        ChatRefusal::Grammar | ChatRefusal::Body { .. } => {
            (format!("a signed callback of {}", shared.platform), true)
        }
        _ => ("a callback that nobody vouched for".to_owned(), false),
    };
    held.uncounted(UncountedAnswer {
        surface: SURFACE.to_owned(),
        from,
        held_id: None,
        reason: refusal.to_string(),
    });
    let said = format!("this does not count: {refusal}");
    match vouched {
        true => told(&said),
        false => plain(StatusCode::UNAUTHORIZED, &said),
    }
}

/// A line that the platform shows to whoever answered.
fn told(text: &str) -> Response<Full<Bytes>> {
    let body = serde_json::json!({ "response_type": "ephemeral", "text": text }).to_string();
    let mut response = Response::new(Full::new(Bytes::from(body)));
    response.headers_mut().insert(
        hyper::header::CONTENT_TYPE,
        hyper::header::HeaderValue::from_static("application/json"),
    );
    response
}

fn plain(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{text}\n"))));
    *response.status_mut() = status;
    response
}
