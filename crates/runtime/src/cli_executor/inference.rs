//! The inference channel: one fixed destination, the operator's credential, the operator's terms.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use governance::EndCause;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use inference::limits::{REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX};
use inference::{
    Admitted, AdmittedResponse, BaseUrl, Guard, Refusal, RefusalKind, ResponseGuard, Route, Terms,
    TermsError, admit_response, parse_route,
};
use journal::{InferenceCompleted, InferenceRequested, Journal, JournalError};
use model::{Digest, Redacted};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use crate::cli_executor::limits::{
    FRAME_READ_MAX, PROVIDER_REQUEST_MAX, REQUEST_HEADERS_MAX, RESPONSE_PIECES_MAX,
};
use crate::session::GovernedToolSession;

type Upstream = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;
type Body = BoxBody<Bytes, Infallible>;

/// What the trusted launcher gives the agent's inference channel. The agent can change the
/// content of messages; it cannot change anything here.
pub struct ProtectedInference {
    base_url: BaseUrl,
    credential: Redacted<String>,
    guard: Guard,
    answer_timeout: std::time::Duration,
    journal: Journal,
    upstream: Upstream,
}

impl fmt::Debug for ProtectedInference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectedInference")
            .field("base_url", &self.base_url.authority())
            .finish()
    }
}

/// Why the channel's configuration is not acceptable. Never repeats the credential.
#[derive(Debug)]
pub enum ProtectedInferenceError {
    Terms(TermsError),
    /// It is empty, or has characters that no header may carry.
    Credential,
}

impl fmt::Display for ProtectedInferenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Terms(_) => f.write_str("the inference terms are not acceptable"),
            Self::Credential => f.write_str(
                "the provider's credential is empty, or has a character that is not printable \
                 ASCII; check the variable or file that holds it",
            ),
        }
    }
}

impl std::error::Error for ProtectedInferenceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Terms(error) => Some(error),
            Self::Credential => None,
        }
    }
}

impl ProtectedInference {
    /// Checks the configuration, before anything is recorded or started.
    ///
    /// # Errors
    /// [`ProtectedInferenceError`] names the part.
    pub fn new(
        base_url: BaseUrl,
        credential: Redacted<String>,
        terms: Terms,
        answer_timeout: std::time::Duration,
        journal: Journal,
    ) -> Result<Self, ProtectedInferenceError> {
        let key = credential.expose();
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ProtectedInferenceError::Credential);
        }
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_webpki_roots()
            .https_or_http()
            .enable_http1()
            .build();
        Ok(Self {
            base_url,
            credential,
            guard: Guard::new(terms).map_err(ProtectedInferenceError::Terms)?,
            answer_timeout,
            journal,
            upstream: Client::builder(TokioExecutor::new()).build(connector),
        })
    }

    pub(crate) fn serve_for(self, session: GovernedToolSession) -> Proxy {
        Proxy {
            base_url: self.base_url,
            credential: self.credential,
            guard: Mutex::new(self.guard),
            answer_timeout: self.answer_timeout,
            journal: self.journal,
            upstream: self.upstream,
            session,
        }
    }
}

/// The running channel.
pub(crate) struct Proxy {
    base_url: BaseUrl,
    credential: Redacted<String>,
    guard: Mutex<Guard>,
    answer_timeout: std::time::Duration,
    journal: Journal,
    upstream: Upstream,
    session: GovernedToolSession,
}

impl Proxy {
    /// Serves one connection of the agent's adapter.
    pub(crate) async fn serve(self: Arc<Self>, stream: UnixStream) {
        let service = hyper::service::service_fn(move |request| {
            let proxy = Arc::clone(&self);
            async move { Ok::<_, Infallible>(proxy.answer(request).await) }
        });
        // A malformed or slow request ends its connection; there is nobody to tell.
        let _ = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(FRAME_READ_MAX)
            .max_headers(REQUEST_HEADERS_MAX)
            .keep_alive(true)
            .serve_connection(TokioIo::new(stream), service)
            .await;
    }

    async fn answer(self: &Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        match self.forward(request).await {
            Ok(response) => response,
            Err(refusal) => refused(&refusal),
        }
    }

    /// Check, record, send, check the answer, record.
    async fn forward(
        self: &Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Refusal> {
        let target = request
            .uri()
            .path_and_query()
            .map_or("/", |path| path.as_str());
        let route = parse_route(request.method().as_str(), target)?;
        if route == Route::Head {
            return Ok(Response::new(full(Vec::new())));
        }
        let headers = header_pairs(request.headers());
        let body = read_body(request.into_body()).await?;
        let admitted = self.lock_guard().admit(route, &headers, &body)?;
        let open = self.record_request(&admitted).await?;
        let until = Instant::now() + self.answer_timeout;
        let sent = timeout_at(until, self.upstream.request(self.outgoing(&admitted)?)).await;
        let response = match sent {
            Err(_) => return Err(self.timed_out(open)),
            Ok(Err(_)) => {
                open.complete(0, None, Some("the provider could not be reached"))
                    .await?;
                return Err(refusal("the provider could not be reached"));
            }
            Ok(Ok(response)) => response,
        };
        let status = response.status().as_u16();
        let head = match admit_response(status, &header_pairs(response.headers()), &self.credential)
        {
            Ok(head) => head,
            Err(refusal) => {
                open.complete(status, None, Some(&refusal.reason)).await?;
                return Err(refusal);
            }
        };
        let answer = ResponseGuard::new(RESPONSE_BYTES_MAX, &self.credential);
        if head.event_stream {
            Ok(self.stream(head, response.into_body(), answer, open, until))
        } else {
            self.collect(head, response.into_body(), answer, open, until)
                .await
        }
    }

    fn lock_guard(&self) -> std::sync::MutexGuard<'_, Guard> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn record_request(self: &Arc<Self>, admitted: &Admitted) -> Result<OpenRequest, Refusal> {
        let event = InferenceRequested {
            request: admitted.number,
            route: admitted.path.clone(),
            body_sha256: Digest::of(&admitted.body),
            body_bytes: admitted.body.len() as u64,
            reserved_output_tokens: admitted.reserved_output_tokens,
        };
        record(&self.journal, event).await?;
        Ok(OpenRequest {
            journal: Some(self.journal.clone()),
            number: admitted.number,
        })
    }

    fn outgoing(&self, admitted: &Admitted) -> Result<Request<Full<Bytes>>, Refusal> {
        let mut builder = Request::builder()
            .method(admitted.route.method())
            .uri(self.base_url.join(&admitted.path))
            .header("host", self.base_url.authority())
            .header("x-api-key", self.credential.expose());
        for (name, value) in &admitted.headers {
            builder = builder.header(name, value);
        }
        builder
            .body(Full::new(Bytes::from(admitted.body.clone())))
            .map_err(|_| refusal("the request could not be rebuilt"))
    }

    /// The answer did not come in time. What the provider did is not known: the run ends.
    fn timed_out(&self, open: OpenRequest) -> Refusal {
        open.leave_open();
        let reason = format!(
            "the provider did not answer within {} s",
            self.answer_timeout.as_secs_f64()
        );
        self.session.cancel_for(EndCause::Inference {
            reason: reason.clone(),
        });
        refusal(&reason)
    }

    async fn collect(
        &self,
        head: AdmittedResponse,
        mut body: Incoming,
        mut guard: ResponseGuard,
        open: OpenRequest,
        until: Instant,
    ) -> Result<Response<Body>, Refusal> {
        let mut kept = Vec::new();
        loop {
            match next_piece(&mut body, until).await {
                Piece::Data(bytes) => match guard.feed(&bytes) {
                    Ok(pass) => kept.extend(pass),
                    Err(refused) => {
                        let reason = refused.to_string();
                        open.complete(head.status, None, Some(&reason)).await?;
                        return Err(refusal(&reason));
                    }
                },
                Piece::End => break,
                Piece::Late => return Err(self.timed_out(open)),
                Piece::Broken => {
                    open.complete(head.status, None, Some(BROKEN)).await?;
                    return Err(refusal(BROKEN));
                }
            }
        }
        match guard.finish() {
            Ok(finished) => {
                kept.extend(finished.tail);
                open.complete(head.status, Some((finished.bytes, finished.sha256)), None)
                    .await?;
                Ok(with_head(&head, full(kept)))
            }
            Err(refused) => {
                let reason = refused.to_string();
                open.complete(head.status, None, Some(&reason)).await?;
                Err(refusal(&reason))
            }
        }
    }

    /// Passes an event stream on as it arrives. A task of its own reads the provider, so that
    /// the record is written whatever the agent does.
    fn stream(
        self: &Arc<Self>,
        head: AdmittedResponse,
        body: Incoming,
        guard: ResponseGuard,
        open: OpenRequest,
        until: Instant,
    ) -> Response<Body> {
        let (pieces, receiver) = mpsc::channel::<Bytes>(RESPONSE_PIECES_MAX);
        let (proxy, status) = (Arc::clone(self), head.status);
        tokio::spawn(async move { proxy.pump(status, body, guard, open, until, pieces).await });
        with_head(&head, BodyExt::boxed(StreamBody::new(PollPieces(receiver))))
    }

    async fn pump(
        &self,
        status: u16,
        mut body: Incoming,
        mut guard: ResponseGuard,
        open: OpenRequest,
        until: Instant,
        pieces: mpsc::Sender<Bytes>,
    ) {
        let reason = loop {
            match next_piece(&mut body, until).await {
                Piece::Data(bytes) => match guard.feed(&bytes) {
                    Ok(pass) if pass.is_empty() => {}
                    Ok(pass) => {
                        if pieces.send(Bytes::from(pass)).await.is_err() {
                            break Some("the agent stopped reading".to_owned());
                        }
                    }
                    Err(refused) => {
                        let reason = refused.to_string();
                        let _ = pieces.send(Bytes::from(refusal(&reason).as_event())).await;
                        break Some(reason);
                    }
                },
                Piece::End => break None,
                Piece::Late => {
                    let refusal = self.timed_out(open);
                    let _ = pieces.send(Bytes::from(refusal.as_event())).await;
                    return;
                }
                Piece::Broken => {
                    let _ = pieces.send(Bytes::from(refusal(BROKEN).as_event())).await;
                    break Some(BROKEN.to_owned());
                }
            }
        };
        let finished = match &reason {
            None => guard.finish().ok(),
            Some(_) => None,
        };
        let whole = finished
            .as_ref()
            .map(|finished| (finished.bytes, finished.sha256));
        if open
            .complete(status, whole, reason.as_deref())
            .await
            .is_ok()
            && let Some(finished) = finished
            && !finished.tail.is_empty()
        {
            let _ = pieces.send(Bytes::from(finished.tail)).await;
        }
    }
}

const BROKEN: &str = "the provider's answer broke off";

/// A request whose completion is still to be recorded. Dropped without one (its connection was
/// aborted), it records that it is incomplete.
struct OpenRequest {
    journal: Option<Journal>,
    number: u64,
}

impl OpenRequest {
    async fn complete(
        mut self,
        status: u16,
        whole: Option<(u64, Digest)>,
        reason: Option<&str>,
    ) -> Result<(), Refusal> {
        let Some(journal) = self.journal.take() else {
            return Ok(());
        };
        record(&journal, completed(self.number, status, whole, reason)).await
    }

    /// The outcome is not known: no record may claim one.
    fn leave_open(mut self) {
        self.journal = None;
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        if let Some(journal) = self.journal.take() {
            let reason = Some("interrupted by the end of its connection");
            let _ = journal.record(completed(self.number, 0, None, reason));
        }
    }
}

fn completed(
    request: u64,
    status: u16,
    whole: Option<(u64, Digest)>,
    reason: Option<&str>,
) -> InferenceCompleted {
    let (body_bytes, body_sha256) = whole.unwrap_or_else(|| (0, Digest::of(b"")));
    InferenceCompleted {
        request,
        status,
        body_sha256,
        body_bytes,
        complete: whole.is_some(),
        reason: reason.map(str::to_owned),
    }
}

/// Appends off the async threads: an append waits for the disk.
async fn record<T>(journal: &Journal, event: T) -> Result<(), Refusal>
where
    T: journal::Recordable + Send + 'static,
{
    let journal = journal.clone();
    let written = tokio::task::spawn_blocking(move || journal.record(event).map(drop)).await;
    match written {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(journal_refusal(&error)),
        Err(_) => Err(refusal("the run is ending")),
    }
}

fn journal_refusal(error: &JournalError) -> Refusal {
    refusal(&format!("the run's journal takes no more records: {error}"))
}

fn refusal(reason: &str) -> Refusal {
    Refusal::new(RefusalKind::Permission, reason)
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

async fn read_body(body: Incoming) -> Result<Bytes, Refusal> {
    let whole = Limited::new(body, REQUEST_BYTES_MAX).collect();
    match timeout(PROVIDER_REQUEST_MAX, whole).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(_)) => Err(Refusal::new(
            RefusalKind::Request,
            &format!("the request body broke off or has more than {REQUEST_BYTES_MAX} bytes"),
        )),
        Err(_) => Err(Refusal::new(
            RefusalKind::Request,
            "the request body came too slowly",
        )),
    }
}

fn header_pairs(headers: &hyper::HeaderMap) -> Vec<(String, Vec<u8>)> {
    headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
        .collect()
}

fn full(bytes: Vec<u8>) -> Body {
    BodyExt::boxed(Full::new(Bytes::from(bytes)))
}

fn with_head(head: &AdmittedResponse, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(head.status).unwrap_or(StatusCode::BAD_GATEWAY);
    for (name, value) in &head.headers {
        if let (Ok(name), Ok(value)) = (
            HeaderName::try_from(name.as_str()),
            HeaderValue::try_from(value.as_str()),
        ) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

fn refused(refusal: &Refusal) -> Response<Body> {
    let mut response = Response::new(full(refusal.body.clone()));
    *response.status_mut() =
        StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
    let json = HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, json);
    response
}

/// The channel's receiving end as a body stream.
struct PollPieces(mpsc::Receiver<Bytes>);

impl futures_core::Stream for PollPieces {
    type Item = Result<Frame<Bytes>, Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0
            .poll_recv(context)
            .map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }
}
