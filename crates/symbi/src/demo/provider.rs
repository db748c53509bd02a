//! The model provider of the demonstration: a real HTTP server on a loopback port, with a script
//! in the place of a model. It remembers what came, because that is where stolen data would go.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use inference::limits::REQUEST_BYTES_MAX;
use inference::scripted::{Asked, error_message};
use model::Redacted;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::demo::script;

/// Requests that are remembered; the run's terms allow fewer.
const REQUESTS_MAX: usize = 256;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// It carried the operator's key.
    pub(crate) right_key: bool,
    pub(crate) model: String,
    pub(crate) body: Vec<u8>,
}

#[derive(Debug)]
struct Stage {
    key: Redacted<String>,
    seen: Mutex<Vec<Seen>>,
}

impl Stage {
    fn seen(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The running provider. Dropping it closes its connections and ends its thread.
#[derive(Debug)]
pub(crate) struct Provider {
    address: SocketAddr,
    stage: Arc<Stage>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Provider {
    /// Serves requests that carry `key`, on a thread of its own.
    pub(crate) fn start(key: Redacted<String>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)))?;
        let address = listener.local_addr()?;
        let stage = Arc::new(Stage {
            key,
            seen: Mutex::default(),
        });
        let (stop, stopped) = oneshot::channel();
        let served = Arc::clone(&stage);
        let thread = std::thread::Builder::new()
            .name("demo-provider".to_owned())
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

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every request to the model so far.
    pub(crate) fn requests(&self) -> Vec<Seen> {
        self.stage.seen().clone()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: &TcpListener, stage: &Arc<Stage>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(stream, Arc::clone(stage)));
    }
}

async fn serve(stream: TcpStream, stage: Arc<Stage>) {
    let service = hyper::service::service_fn(move |request| {
        let stage = Arc::clone(&stage);
        async move { Ok::<_, Infallible>(respond(request, &stage).await) }
    });
    // A connection that breaks is a client that went away: there is nobody to tell.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn respond(request: Request<Incoming>, stage: &Stage) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    if head.method != Method::POST || head.uri.path() != "/v1/messages" {
        return refuse(StatusCode::NOT_FOUND, "not_found_error");
    }
    let right_key = head
        .headers
        .get("x-api-key")
        .is_some_and(|key| key.as_bytes() == stage.key.expose().as_bytes());
    let Ok(body) = Limited::new(body, REQUEST_BYTES_MAX).collect().await else {
        return refuse(StatusCode::BAD_REQUEST, "invalid_request_error");
    };
    let body = body.to_bytes().to_vec();
    let Ok(asked) = Asked::parse(&body) else {
        return refuse(StatusCode::BAD_REQUEST, "invalid_request_error");
    };
    let number = {
        let mut seen = stage.seen();
        if seen.len() >= REQUESTS_MAX {
            return refuse(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error");
        }
        seen.push(Seen {
            right_key,
            model: asked.model.clone(),
            body,
        });
        seen.len()
    };
    if !right_key {
        return refuse(StatusCode::UNAUTHORIZED, "authentication_error");
    }
    let reply = script::reply(number, &asked);
    if asked.stream {
        answer(
            StatusCode::OK,
            "text/event-stream",
            reply.to_events().concat(),
        )
    } else {
        answer(StatusCode::OK, "application/json", reply.to_message())
    }
}

fn refuse(status: StatusCode, name: &str) -> Response<Full<Bytes>> {
    let body = error_message(name, "the scripted provider does not answer this");
    answer(status, "application/json", body)
}

fn answer(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
