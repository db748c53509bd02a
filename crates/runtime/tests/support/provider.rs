//! A broker with an inference channel to a scripted provider, and an HTTP client on it.

use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use inference::{BaseUrl, Terms};
use model::Redacted;
use serde_json::{Value, json};
use symbi_runtime::cli_executor::ProtectedInference;
use symbi_runtime::cli_executor::broker::McpToolBroker;
use testkit::provider::{ScriptedProvider, Turn};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::session::{Governed, Setup};
use super::{PATIENCE, Project};

/// The operator's credential.
pub const KEY: &str = "sk-synthetic-0123456789-abcdefghij";
pub const MODEL: &str = "model-under-test";

pub fn terms() -> Terms {
    Terms {
        model: MODEL.to_owned(),
        max_requests: 1000,
        max_output_tokens: 100,
        max_total_output_tokens: 100_000,
        beta_headers: vec!["configured-2025-01-01".to_owned()],
        anthropic_version: "2023-06-01".to_owned(),
    }
}

/// A session, its broker, and the provider behind it.
pub struct Protected {
    pub governed: Governed,
    pub broker: McpToolBroker,
    pub provider: ScriptedProvider,
}

impl Protected {
    pub fn start(script: Vec<Turn>) -> Self {
        Self::with(script, terms(), PATIENCE)
    }

    pub fn with(script: Vec<Turn>, terms: Terms, answer_timeout: Duration) -> Self {
        let provider = ScriptedProvider::start(script).unwrap();
        Self::before(provider, terms, answer_timeout)
    }

    pub fn before(provider: ScriptedProvider, terms: Terms, answer_timeout: Duration) -> Self {
        let url = provider.url();
        let governed = Setup::default().start_durable();
        let broker = serve(&governed, &url, terms, answer_timeout);
        Self {
            governed,
            broker,
            provider,
        }
    }

    pub async fn client(&self) -> Http {
        Http::connect(self.broker.channel()).await
    }

    /// The requests' and completions' events.
    pub fn pairs(&self) -> (Vec<Value>, Vec<Value>) {
        let requested = self.governed.of_kind("InferenceRequested");
        (requested, self.governed.of_kind("InferenceCompleted"))
    }

    pub async fn close(self) -> (Governed, ScriptedProvider) {
        self.broker.close().await.unwrap();
        (self.governed, self.provider)
    }
}

pub fn serve(
    governed: &Governed,
    url: &str,
    terms: Terms,
    answer_timeout: Duration,
) -> McpToolBroker {
    let inference = ProtectedInference::new(
        BaseUrl::parse(url).unwrap(),
        Redacted::new(KEY.to_owned()),
        terms,
        answer_timeout,
        governed.journal.clone(),
    )
    .unwrap();
    McpToolBroker::start_with_inference(
        governed.session.clone(),
        governed.run,
        &governed.project.channel_parent(),
        inference,
    )
    .unwrap()
}

/// One connection of an agent's HTTP client.
pub struct Http {
    sender: SendRequest<Full<Bytes>>,
    connection: tokio::task::JoinHandle<()>,
}

impl Drop for Http {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Http {
    pub async fn connect(channel: &Path) -> Self {
        let stream = UnixStream::connect(channel.join("inference.sock")).await;
        let io = TokioIo::new(stream.unwrap());
        let (sender, connection) = handshake(io).await.unwrap();
        let connection = tokio::spawn(async move { drop(connection.await) });
        Self { sender, connection }
    }

    /// `None` where the connection broke before an answer.
    pub async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Option<Response<Incoming>> {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", "localhost");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        self.sender.ready().await.ok()?;
        let answer = timeout(PATIENCE, self.sender.send_request(request)).await;
        answer.unwrap_or_else(|_| panic!("no answer came")).ok()
    }

    pub async fn post(&mut self, body: &Value) -> Answer {
        self.post_text(&body.to_string()).await
    }

    pub async fn post_text(&mut self, body: &str) -> Answer {
        let headers = [("content-type", "application/json")];
        let body = body.to_owned();
        let answer = self.send("POST", "/v1/messages", &headers, body).await;
        Answer::of(answer.unwrap()).await
    }
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    /// What came until the end, or until the connection broke.
    pub body: String,
}

impl Answer {
    pub async fn of(response: Response<Incoming>) -> Self {
        let (head, mut body) = response.into_parts();
        let headers = head.headers.iter();
        let headers =
            headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
        let mut answer = Self {
            status: head.status.as_u16(),
            headers: headers.collect(),
            body: String::new(),
        };
        while let Ok(Some(Ok(frame))) = timeout(PATIENCE, body.frame()).await {
            if let Ok(data) = frame.into_data() {
                answer.body.push_str(&String::from_utf8_lossy(&data));
            }
        }
        answer
    }

    /// No header and no byte of it holds `text`.
    pub fn lacks(&self, text: &str) -> bool {
        !format!("{self:?}").contains(text)
    }
}

/// A request of `max_tokens`.
pub fn ask(max_tokens: u64) -> Value {
    json!({
        "model": MODEL,
        "max_tokens": max_tokens,
        "messages": [{"role": "user", "content": "hello"}],
    })
}

pub fn ask_stream() -> Value {
    let mut body = ask(5);
    body["stream"] = json!(true);
    body
}
