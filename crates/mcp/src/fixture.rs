//! A client for the tests: it writes frames and reads what comes back.

use std::sync::Arc;

use model::{JsonObject, ToolName};
use serde_json::{Value, json};

use crate::{
    Connection, ConnectionLimits, EndReason, IncomingCall, Output, ServerInfo, Ticket, Tool,
    ToolResult,
};

pub(crate) fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(map) => JsonObject::from_map(map),
        other => panic!("{other} is not an object"),
    }
}

pub(crate) fn tool(name: &str) -> Tool {
    Tool {
        name: ToolName::new(name).unwrap(),
        description: format!("does {name}"),
        input_schema: object(json!({"type": "object", "properties": {}})),
        read_only: name.starts_with("read"),
    }
}

pub(crate) fn server() -> ServerInfo {
    ServerInfo {
        name: "symbi".into(),
        version: "0.1.0".into(),
        instructions: None,
    }
}

pub(crate) fn text(text: &str) -> ToolResult {
    ToolResult {
        text: text.into(),
        structured: None,
        is_error: false,
    }
}

pub(crate) fn parse(frame: &[u8]) -> Value {
    let (last, body) = frame.split_last().unwrap();
    assert_eq!(*last, b'\n');
    assert!(!body.contains(&b'\n'));
    model::json::parse_strict(body, 2 << 20).unwrap()
}

/// Parameters with all that a request of the stateless era must have.
pub(crate) fn with_meta(mut params: Value) -> Value {
    let meta = &mut params["_meta"];
    meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
    params
}

pub(crate) struct Client {
    pub(crate) connection: Connection,
}

impl Client {
    /// Nothing said yet.
    pub(crate) fn silent() -> Self {
        Self::with(ConnectionLimits::broker(), &["write_b", "read_a"])
    }

    pub(crate) fn with(limits: ConnectionLimits, tools: &[&str]) -> Self {
        let tools: Arc<[Tool]> = tools.iter().map(|name| tool(name)).collect();
        Self {
            connection: Connection::new(&server(), tools, limits),
        }
    }

    /// Initialized with `revision`; two frames are spent.
    pub(crate) fn ready(revision: &str) -> Self {
        Self::silent().handshake(revision)
    }

    pub(crate) fn handshake(mut self, revision: &str) -> Self {
        let answer = self.ask(
            json!("init"),
            "initialize",
            json!({"protocolVersion": revision}),
        );
        assert!(answer["result"].is_object(), "{answer}");
        self.notify("notifications/initialized", json!({}));
        self
    }

    /// Sends a request of the stateless era that is answered at once.
    pub(crate) fn ask_stateless(&mut self, id: Value, method: &str, params: Value) -> Value {
        self.ask(id, method, with_meta(params))
    }

    pub(crate) fn raw(&mut self, bytes: impl AsRef<[u8]>) -> Vec<Output> {
        let mut out = Vec::new();
        self.connection.feed(bytes.as_ref(), &mut out);
        out
    }

    pub(crate) fn frame(&mut self, frame: &Value) -> Vec<Output> {
        self.raw(format!("{frame}\n"))
    }

    pub(crate) fn request(&mut self, id: Value, method: &str, params: Value) -> Vec<Output> {
        self.frame(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
    }

    /// Sends a request that is answered at once.
    pub(crate) fn ask(&mut self, id: Value, method: &str, params: Value) -> Value {
        let outputs = self.request(id, method, params);
        sole_frame(&outputs)
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) -> Vec<Output> {
        self.frame(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
    }

    pub(crate) fn call(&mut self, id: Value, params: Value) -> IncomingCall {
        match &self.request(id, "tools/call", params)[..] {
            [Output::Call(call)] => call.clone(),
            other => panic!("no call: {other:?}"),
        }
    }

    pub(crate) fn eof(&mut self) -> Vec<Output> {
        let mut out = Vec::new();
        self.connection.eof(&mut out);
        out
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        let outputs = self.frame(&json!({"jsonrpc": "2.0", "id": "alive?", "method": "ping"}));
        matches!(&outputs[..], [Output::Send(_)])
    }
}

pub(crate) fn sole_frame(outputs: &[Output]) -> Value {
    match outputs {
        [Output::Send(frame)] => parse(frame),
        other => panic!("not one frame: {other:?}"),
    }
}

pub(crate) fn code(answer: &Value) -> i64 {
    answer["error"]["code"]
        .as_i64()
        .unwrap_or_else(|| panic!("no error: {answer}"))
}

pub(crate) fn end(outputs: &[Output]) -> Option<EndReason> {
    match outputs.last() {
        Some(Output::End(reason)) => Some(*reason),
        _ => None,
    }
}

pub(crate) fn withdrawn(outputs: &[Output]) -> Vec<Ticket> {
    let ticket = |output: &Output| match output {
        Output::Withdraw(ticket) => Some(*ticket),
        _ => None,
    };
    outputs.iter().filter_map(ticket).collect()
}
