//! Replies of a scripted provider, in the wire form of the Messages API: for the tests and for
//! the demonstration, where no account and no network are needed.
//!
//! Pure: a request's body is read into [`Asked`], a [`Reply`] is written as one JSON message or
//! as the events of a stream.

use model::JsonObject;
use model::json::{JsonError, parse_object};
use serde_json::{Map, Value, json};

use crate::limits::REQUEST_BYTES_MAX;

/// One content block of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    Text(String),
    ToolUse {
        id: String,
        name: String,
        input: JsonObject,
    },
}

/// What the model "says".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The message's identity, such as `msg_1`.
    pub id: String,
    pub model: String,
    pub blocks: Vec<Block>,
    pub input_tokens: u64,
    pub output_tokens: u64,
}

impl Reply {
    /// A reply with made-up but plausible token counts: one token for four bytes.
    #[must_use]
    pub fn new(id: &str, model: &str, blocks: Vec<Block>) -> Self {
        let bytes: usize = blocks
            .iter()
            .map(|block| match block {
                Block::Text(text) => text.len(),
                Block::ToolUse { name, input, .. } => name.len() + json!(input).to_string().len(),
            })
            .sum();
        Self {
            id: id.to_owned(),
            model: model.to_owned(),
            blocks,
            input_tokens: 1,
            output_tokens: u64::try_from(bytes / 4 + 1).unwrap_or(u64::MAX),
        }
    }

    /// `tool_use` where a tool is asked for, `end_turn` otherwise.
    #[must_use]
    pub fn stop_reason(&self) -> &'static str {
        let asks = |block: &Block| matches!(block, Block::ToolUse { .. });
        if self.blocks.iter().any(asks) {
            "tool_use"
        } else {
            "end_turn"
        }
    }

    /// The answer to a request without `stream`: one message.
    #[must_use]
    pub fn to_message(&self) -> Vec<u8> {
        let content: Vec<Value> = self.blocks.iter().map(block_value).collect();
        let mut message = self.head(&Value::from(content));
        if let Some(fields) = message.as_object_mut() {
            fields.insert("stop_reason".to_owned(), json!(self.stop_reason()));
            fields.insert("usage".to_owned(), self.usage(self.output_tokens));
        }
        message.to_string().into_bytes()
    }

    /// The answer to a request with `stream`: the server-sent events, one an element.
    #[must_use]
    pub fn to_events(&self) -> Vec<Vec<u8>> {
        let mut events = vec![event(
            &json!({"type": "message_start", "message": self.head(&json!([]))}),
        )];
        for (index, block) in self.blocks.iter().enumerate() {
            let (start, delta) = block_parts(block);
            events.push(event(&json!({
                "type": "content_block_start", "index": index, "content_block": start,
            })));
            events.push(event(&json!({
                "type": "content_block_delta", "index": index, "delta": delta,
            })));
            events.push(event(
                &json!({"type": "content_block_stop", "index": index}),
            ));
        }
        events.push(event(&json!({
            "type": "message_delta",
            "delta": {"stop_reason": self.stop_reason(), "stop_sequence": null},
            "usage": {"output_tokens": self.output_tokens},
        })));
        events.push(event(&json!({"type": "message_stop"})));
        events
    }

    fn head(&self, content: &Value) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": null,
            "stop_sequence": null,
            "usage": self.usage(1),
        })
    }

    fn usage(&self, output_tokens: u64) -> Value {
        json!({"input_tokens": self.input_tokens, "output_tokens": output_tokens})
    }
}

/// The answer to `count_tokens`.
#[must_use]
pub fn token_count(input_tokens: u64) -> Vec<u8> {
    json!({"input_tokens": input_tokens})
        .to_string()
        .into_bytes()
}

/// An error in the provider's form; `name` is such as `rate_limit_error`.
#[must_use]
pub fn error_message(name: &str, message: &str) -> Vec<u8> {
    crate::refusal::error_body(name, message)
}

fn block_value(block: &Block) -> Value {
    match block {
        Block::Text(text) => json!({"type": "text", "text": text}),
        Block::ToolUse { id, name, input } => {
            json!({"type": "tool_use", "id": id, "name": name, "input": input})
        }
    }
}

/// A block as it starts, and the one delta that completes it.
fn block_parts(block: &Block) -> (Value, Value) {
    match block {
        Block::Text(text) => (
            json!({"type": "text", "text": ""}),
            json!({"type": "text_delta", "text": text}),
        ),
        Block::ToolUse { id, name, input } => (
            json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
            json!({"type": "input_json_delta", "partial_json": json!(input).to_string()}),
        ),
    }
}

fn event(value: &Value) -> Vec<u8> {
    let name = value.get("type").and_then(Value::as_str).unwrap_or("ping");
    format!("event: {name}\ndata: {value}\n\n").into_bytes()
}

/// What a scripted provider needs to know of a request to choose its next step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Asked {
    pub model: String,
    pub stream: bool,
    pub max_tokens: u64,
    /// Names of the offered tools.
    pub tools: Vec<String>,
    /// The texts that the user's side wrote, oldest first.
    pub texts: Vec<String>,
    /// The results of earlier tool uses, oldest first.
    pub results: Vec<ToolResult>,
}

/// The result of a tool use, its text blocks joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    pub tool_use_id: String,
    pub text: String,
    pub is_error: bool,
}

impl Asked {
    /// Reads a request body leniently: what is missing is empty.
    ///
    /// # Errors
    /// [`JsonError`] where the body is not one strict JSON object.
    pub fn parse(body: &[u8]) -> Result<Self, JsonError> {
        let object = parse_object(body, REQUEST_BYTES_MAX)?.into_map();
        let mut asked = Self {
            model: text(object.get("model")),
            stream: object.get("stream").and_then(Value::as_bool) == Some(true),
            max_tokens: object
                .get("max_tokens")
                .and_then(Value::as_u64)
                .unwrap_or(0),
            tools: objects(object.get("tools"))
                .map(|tool| text(tool.get("name")))
                .collect(),
            ..Self::default()
        };
        for message in objects(object.get("messages")) {
            if message.get("role").and_then(Value::as_str) == Some("user") {
                asked.take(message.get("content"));
            }
        }
        Ok(asked)
    }

    fn take(&mut self, content: Option<&Value>) {
        if let Some(Value::String(text)) = content {
            self.texts.push(text.clone());
        }
        for block in objects(content) {
            match block.get("type").and_then(Value::as_str) {
                Some("text") => self.texts.push(text(block.get("text"))),
                Some("tool_result") => self.results.push(ToolResult {
                    tool_use_id: text(block.get("tool_use_id")),
                    text: joined(block.get("content")),
                    is_error: block.get("is_error").and_then(Value::as_bool) == Some(true),
                }),
                _ => {}
            }
        }
    }
}

fn objects(list: Option<&Value>) -> impl Iterator<Item = &Map<String, Value>> {
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
}

fn text(value: Option<&Value>) -> String {
    value.and_then(Value::as_str).unwrap_or("").to_owned()
}

fn joined(content: Option<&Value>) -> String {
    if let Some(Value::String(text)) = content {
        return text.clone();
    }
    objects(content)
        .map(|block| text(block.get("text")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply() -> Reply {
        let input = JsonObject::from_map(Map::from_iter([("path".to_owned(), json!("a\nb"))]));
        Reply::new(
            "msg_1",
            "claude-test-1",
            vec![
                Block::Text("I read it.".to_owned()),
                Block::ToolUse {
                    id: "toolu_1".to_owned(),
                    name: "read".to_owned(),
                    input,
                },
            ],
        )
    }

    fn data(event: &[u8]) -> Value {
        let text = std::str::from_utf8(event).unwrap();
        let (name, rest) = text.split_once('\n').unwrap();
        let data = rest
            .strip_prefix("data: ")
            .unwrap()
            .strip_suffix("\n\n")
            .unwrap();
        assert!(!data.contains('\n'));
        let value: Value = serde_json::from_str(data).unwrap();
        assert_eq!(name, format!("event: {}", value["type"].as_str().unwrap()));
        value
    }

    #[test]
    fn a_message_holds_its_blocks_and_why_it_stopped() {
        let message: Value = serde_json::from_slice(&reply().to_message()).unwrap();
        assert_eq!(message["type"], "message");
        assert_eq!(message["content"][0]["text"], "I read it.");
        assert_eq!(message["content"][1]["input"], json!({"path": "a\nb"}));
        assert_eq!(message["stop_reason"], "tool_use");
        let plain = Reply::new("m", "c", vec![Block::Text("x".to_owned())]);
        assert_eq!(plain.stop_reason(), "end_turn");
    }

    #[test]
    fn a_stream_starts_fills_and_stops_each_block_in_order() {
        let events: Vec<Value> = reply()
            .to_events()
            .iter()
            .map(|event| data(event))
            .collect();
        let names: Vec<&str> = events
            .iter()
            .map(|event| event["type"].as_str().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "message_start",
                "content_block_start",
                "content_block_delta",
                "content_block_stop",
                "content_block_start",
                "content_block_delta",
                "content_block_stop",
                "message_delta",
                "message_stop",
            ]
        );
        assert_eq!(events[2]["delta"]["text"], "I read it.");
        let partial = events[5]["delta"]["partial_json"].as_str().unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(partial).unwrap(),
            json!({"path": "a\nb"})
        );
        assert_eq!(events[7]["delta"]["stop_reason"], "tool_use");
    }

    #[test]
    fn a_request_says_what_its_tools_returned() {
        let asked = Asked::parse(
            br#"{"model":"m","stream":true,"max_tokens":7,"tools":[{"name":"t"}],"messages":[
            {"role":"user","content":"task"},
            {"role":"assistant","content":[{"type":"text","text":"hidden"}]},
            {"role":"user","content":[
              {"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]},
              {"type":"tool_result","tool_use_id":"b","content":"no","is_error":true},
              {"type":"text","text":"more"}]}]}"#,
        )
        .unwrap();
        assert_eq!(
            (asked.model.as_str(), asked.stream, asked.max_tokens),
            ("m", true, 7)
        );
        assert_eq!(asked.tools, ["t"]);
        assert_eq!(asked.texts, ["task", "more"]);
        assert_eq!(asked.results[0].text, "xy");
        assert!(asked.results[1].is_error && asked.results[1].tool_use_id == "b");
        assert_eq!(Asked::parse(b"{}").unwrap(), Asked::default());
        assert!(Asked::parse(b"[]").is_err());
    }
}
