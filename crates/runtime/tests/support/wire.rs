//! A client on the broker's socket.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use symbi_runtime::cli_executor::broker::McpToolBroker;

use super::session::Governed;
use super::{PATIENCE, Project};

/// Serves the session on its project's channel.
pub fn serve(governed: &Governed) -> McpToolBroker {
    let parent = governed.project.channel_parent();
    McpToolBroker::start(governed.session.clone(), governed.run, &parent)
        .unwrap_or_else(|error| panic!("{error}"))
}

pub struct WireClient {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

impl WireClient {
    pub async fn connect(channel: &Path) -> Self {
        let stream = UnixStream::connect(channel.join("broker.sock")).await;
        let (reader, writer) = stream.unwrap().into_split();
        Self {
            reader: BufReader::new(reader),
            writer,
        }
    }

    /// Connected and initialized.
    pub async fn ready(channel: &Path) -> Self {
        let mut client = Self::connect(channel).await;
        client.initialize().await;
        client
    }

    pub async fn initialize(&mut self) {
        let answer = self.ask("init", "initialize", hello()).await;
        assert!(answer["result"]["capabilities"].is_object(), "{answer}");
        let done = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.send(&done).await;
    }

    pub async fn send(&mut self, frame: &Value) {
        self.write(format!("{frame}\n").as_bytes()).await.unwrap();
    }

    pub async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.writer.write_all(bytes).await
    }

    pub async fn request(&mut self, id: impl Into<Value>, method: &str, params: Value) {
        let id: Value = id.into();
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
    }

    pub async fn ask(&mut self, id: impl Into<Value>, method: &str, params: Value) -> Value {
        self.request(id, method, params).await;
        self.receive().await
    }

    pub async fn start_call(&mut self, id: impl Into<Value>, tool: &str, arguments: Value) {
        let params = json!({"name": tool, "arguments": arguments});
        self.request(id, "tools/call", params).await;
    }

    /// A call's answer.
    pub async fn call(&mut self, id: impl Into<Value>, tool: &str, arguments: Value) -> Value {
        self.start_call(id, tool, arguments).await;
        self.receive().await
    }

    pub async fn receive(&mut self) -> Value {
        let frame = timeout(PATIENCE, self.next()).await;
        frame.unwrap_or_else(|_| panic!("no answer came")).unwrap()
    }

    /// `None` where the connection ended.
    pub async fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.reader.read_line(&mut line).await {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(serde_json::from_str(&line).unwrap()),
        }
    }

    /// Whether nothing comes for a while.
    pub async fn is_silent(&mut self) -> bool {
        timeout(Duration::from_millis(400), self.next())
            .await
            .is_err()
    }

    /// Waits for the end of the connection, whatever still comes before it.
    pub async fn ended(&mut self) -> bool {
        let mut rest = Vec::new();
        let read = timeout(PATIENCE, self.reader.read_to_end(&mut rest)).await;
        read.is_ok()
    }

    /// Answers one ping.
    pub async fn is_served(&mut self) -> bool {
        self.request("still there?", "ping", json!({})).await;
        timeout(PATIENCE, self.next())
            .await
            .ok()
            .flatten()
            .is_some()
    }
}

pub fn hello() -> Value {
    json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    })
}

/// The envelope in a tool's result, and whether it is an error.
pub fn envelope(answer: &Value) -> (Value, bool) {
    let text = answer["result"]["content"][0]["text"].as_str();
    let text = text.unwrap_or_else(|| panic!("{answer}"));
    let error = answer["result"]["isError"].as_bool().unwrap();
    (serde_json::from_str(text).unwrap(), error)
}

/// The code of a protocol error.
pub fn error_code(answer: &Value) -> i64 {
    answer["error"]["code"]
        .as_i64()
        .unwrap_or_else(|| panic!("{answer}"))
}
