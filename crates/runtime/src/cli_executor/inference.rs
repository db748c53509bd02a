//! The inference channel: one fixed destination, the operator's credential, the operator's terms.

use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use inference::limits::{REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX};
use inference::{
    Admitted, AdmittedResponse, BaseUrl, Guard, Refusal, RefusalKind, ResponseGuard, Route, Terms,
    TermsError, admit_response, parse_route,
};
use journal::{InferenceRequested, Journal};
use model::{Digest, Redacted};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::cli_executor::completion::{OpenRequest, UnderWay, WindUp, refusal, wind_up};
use crate::cli_executor::head_clock::{HeadClock, Phase};
use crate::cli_executor::limits::{PROVIDER_REQUEST_MAX, REFUSALS_TOLD_MAX, REQUEST_HEADERS_MAX};
use crate::cli_executor::relay::{Patience, Relay};
use crate::session::{GovernedToolSession, ModelStep};

type Upstream = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;
type Answer = BoxBody<Bytes, Infallible>;

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

    pub(crate) fn serve_for(self, session: GovernedToolSession) -> (Proxy, WindUp) {
        let (under_way, wound_up) = wind_up();
        let proxy = Proxy {
            base_url: self.base_url,
            credential: self.credential,
            guard: Mutex::new(self.guard),
            answer_timeout: self.answer_timeout,
            journal: self.journal,
            upstream: self.upstream,
            session,
            under_way,
            refusals: AtomicU64::new(0),
        };
        (proxy, wound_up)
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
    under_way: UnderWay,
    refusals: AtomicU64,
}

impl Proxy {
    /// Serves one connection of the agent's adapter.
    pub(crate) async fn serve(self: Arc<Self>, stream: UnixStream) {
        let phase = Phase::default();
        let clocked = HeadClock::new(stream, phase.clone());
        let service = hyper::service::service_fn(move |request| {
            let (proxy, phase) = (Arc::clone(&self), phase.clone());
            phase.turn();
            async move {
                let answer = proxy.answer(request).await;
                phase.turn();
                Ok::<_, Infallible>(answer)
            }
        });
        // A malformed or slow request ends its connection; there is nobody to tell.
        let _ = hyper::server::conn::http1::Builder::new()
            .header_read_timeout(None)
            .max_headers(REQUEST_HEADERS_MAX)
            .keep_alive(true)
            .serve_connection(TokioIo::new(clocked), service)
            .await;
    }

    async fn answer(self: &Arc<Self>, request: Request<Incoming>) -> Response<Answer> {
        match self.forward(request).await {
            Ok(response) => response,
            Err(refusal) => refused(&refusal),
        }
    }

    /// Check, record, send, check the answer, record.
    async fn forward(&self, request: Request<Incoming>) -> Result<Response<Answer>, Refusal> {
        let admitted = self.admit(request).await;
        let Some(admitted) = admitted.inspect_err(|refusal| self.tell_refused(refusal))? else {
            return Ok(Response::new(full(Vec::new())));
        };
        let outgoing = self.outgoing(&admitted)?;
        let event = requested(&admitted);
        let observed = self.session.observed();
        let open = OpenRequest::record(&self.journal, event, &self.under_way, observed).await?;
        let patience = Patience {
            until: Instant::now() + self.answer_timeout,
            timeout: self.answer_timeout,
            session: self.session.clone(),
        };
        let response = match timeout_at(patience.until, self.upstream.request(outgoing)).await {
            Err(_) => return Err(patience.exhausted(open)),
            Ok(Err(_)) => {
                open.complete(0, None, Some(UNREACHABLE)).await?;
                return Err(refusal(UNREACHABLE));
            }
            Ok(Ok(response)) => response,
        };
        self.pass(response, open, patience).await
    }

    /// The request as it may go out; `None` where it is answered here.
    async fn admit(&self, request: Request<Incoming>) -> Result<Option<Admitted>, Refusal> {
        let target = request
            .uri()
            .path_and_query()
            .map_or("/", |path| path.as_str());
        let route = parse_route(request.method().as_str(), target)?;
        if route == Route::Head {
            return Ok(None);
        }
        let headers = header_pairs(request.headers());
        let body = read_body(request.into_body()).await?;
        self.lock_guard().admit(route, &headers, &body).map(Some)
    }

    /// An agent may be refused without end; its owner is told the first times.
    fn tell_refused(&self, refusal: &Refusal) {
        if self.refusals.fetch_add(1, Ordering::Relaxed) < REFUSALS_TOLD_MAX {
            let reason = &refusal.reason;
            self.session.observed().model(ModelStep::Refused { reason });
        }
    }

    async fn pass(
        &self,
        response: Response<Incoming>,
        open: OpenRequest,
        patience: Patience,
    ) -> Result<Response<Answer>, Refusal> {
        let status = response.status().as_u16();
        let head = match admit_response(status, &header_pairs(response.headers()), &self.credential)
        {
            Ok(head) => head,
            Err(refusal) => {
                open.complete(status, None, Some(&refusal.reason)).await?;
                return Err(refusal);
            }
        };
        let relay = Relay {
            status,
            body: response.into_body(),
            guard: ResponseGuard::new(RESPONSE_BYTES_MAX, head.coding, &self.credential),
            open,
            patience,
        };
        let body = if head.event_stream {
            BodyExt::boxed(relay.stream())
        } else {
            BodyExt::boxed(relay.collect().await?)
        };
        Ok(with_head(&head, body))
    }

    fn lock_guard(&self) -> std::sync::MutexGuard<'_, Guard> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
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
}

const UNREACHABLE: &str = "the provider could not be reached";

fn requested(admitted: &Admitted) -> InferenceRequested {
    InferenceRequested {
        request: admitted.number,
        route: admitted.path.clone(),
        body_sha256: Digest::of(&admitted.body),
        body_bytes: admitted.body.len() as u64,
        reserved_output_tokens: admitted.reserved_output_tokens,
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

fn full(bytes: Vec<u8>) -> Answer {
    BodyExt::boxed(Full::new(Bytes::from(bytes)))
}

fn with_head(head: &AdmittedResponse, body: Answer) -> Response<Answer> {
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

fn refused(refusal: &Refusal) -> Response<Answer> {
    let mut response = Response::new(full(refusal.body.clone()));
    *response.status_mut() =
        StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
    let json = HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, json);
    response
}
