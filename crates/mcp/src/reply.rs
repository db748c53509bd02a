//! What we send: the wire types of our answers, each written as one line.

use model::JsonObject;
use serde::Serialize;

use crate::fault::Fault;
use crate::identity::{ProgressToken, WireId};
use crate::limits::{FRAME_BYTES_MAX, MESSAGE_BYTES_MAX};
use crate::revision::Revision;
use crate::text::{fit_text, prefix};
use crate::tool::{ServerInfo, Tool, ToolResult};

const VERSION: &str = "2.0";
/// What is sent for an answer that has no JSON form. None of ours is such an answer.
const UNWRITABLE: &[u8] =
    br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"unwritable answer"}}"#;

#[derive(Serialize)]
struct Answer<'a, R> {
    jsonrpc: &'static str,
    id: &'a WireId,
    result: R,
}

#[derive(Serialize)]
struct ErrorAnswer<'a> {
    jsonrpc: &'static str,
    id: Option<&'a WireId>,
    error: &'a Fault,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Initialized<'a> {
    protocol_version: &'static str,
    capabilities: Capabilities,
    server_info: Implementation<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
}

#[derive(Serialize)]
struct Capabilities {
    tools: ToolsCapability,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolsCapability {
    list_changed: bool,
}

#[derive(Serialize)]
struct Implementation<'a> {
    name: &'a str,
    version: &'a str,
}

#[derive(Serialize)]
struct ToolList<'a> {
    tools: Vec<ListedTool<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListedTool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a JsonObject,
    annotations: Annotations,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Annotations {
    read_only_hint: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallResult<'a> {
    content: [TextContent<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    structured_content: Option<&'a JsonObject>,
    is_error: bool,
}

#[derive(Serialize)]
struct TextContent<'a> {
    r#type: &'static str,
    text: &'a str,
}

#[derive(Serialize)]
struct ProgressNotification<'a> {
    jsonrpc: &'static str,
    method: &'static str,
    params: ProgressParams<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProgressParams<'a> {
    progress_token: &'a ProgressToken,
    progress: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

pub(crate) fn error(id: Option<&WireId>, fault: &Fault) -> Vec<u8> {
    line(&ErrorAnswer {
        jsonrpc: VERSION,
        id,
        error: fault,
    })
}

pub(crate) fn pong(id: &WireId) -> Vec<u8> {
    answer(id, Empty {})
}

pub(crate) fn initialized(id: &WireId, revision: Revision, server: &ServerInfo) -> Vec<u8> {
    answer(
        id,
        Initialized {
            protocol_version: revision.as_str(),
            capabilities: Capabilities {
                tools: ToolsCapability {
                    list_changed: false,
                },
            },
            server_info: Implementation {
                name: &server.name,
                version: &server.version,
            },
            instructions: server.instructions.as_deref(),
        },
    )
}

/// All tools in the order of their names; `None` where the list passes one frame.
pub(crate) fn tool_list(id: &WireId, tools: &[Tool]) -> Option<Vec<u8>> {
    let mut tools: Vec<ListedTool<'_>> = tools
        .iter()
        .map(|tool| ListedTool {
            name: tool.name.as_str(),
            description: &tool.description,
            input_schema: &tool.input_schema,
            annotations: Annotations {
                read_only_hint: tool.read_only,
            },
        })
        .collect();
    tools.sort_by_key(|tool| tool.name);
    Some(answer(id, ToolList { tools })).filter(|line| fits(line))
}

/// A call's result. Structured content goes only to a revision that knows it, and only where it
/// fits; the text always fits.
pub(crate) fn call_result(id: &WireId, result: &ToolResult, revision: Revision) -> Vec<u8> {
    let text = fit_text(&result.text);
    let structured = result
        .structured
        .as_ref()
        .filter(|_| revision.has_structured_results());
    let whole = call_answer(id, &text, structured, result.is_error);
    if structured.is_none() || fits(&whole) {
        return whole;
    }
    let missing = whole.len();
    let text = format!(
        "{text}\n[structured content is missing: with it the answer has {missing} bytes, \
         more than the {FRAME_BYTES_MAX} allowed]"
    );
    call_answer(id, &text, None, result.is_error)
}

fn call_answer(
    id: &WireId,
    text: &str,
    structured_content: Option<&JsonObject>,
    is_error: bool,
) -> Vec<u8> {
    let content = [TextContent {
        r#type: "text",
        text,
    }];
    answer(
        id,
        CallResult {
            content,
            structured_content,
            is_error,
        },
    )
}

pub(crate) fn progress(
    token: &ProgressToken,
    progress: u64,
    message: &str,
    revision: Revision,
) -> Vec<u8> {
    let message = revision
        .has_progress_messages()
        .then(|| prefix(message, MESSAGE_BYTES_MAX));
    line(&ProgressNotification {
        jsonrpc: VERSION,
        method: "notifications/progress",
        params: ProgressParams {
            progress_token: token,
            progress,
            message,
        },
    })
}

fn answer<R: Serialize>(id: &WireId, result: R) -> Vec<u8> {
    line(&Answer {
        jsonrpc: VERSION,
        id,
        result,
    })
}

/// Compact JSON has no line feed of its own.
fn line<T: Serialize>(message: &T) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(message).unwrap_or_else(|_| UNWRITABLE.to_vec());
    bytes.push(b'\n');
    bytes
}

fn fits(line: &[u8]) -> bool {
    line.len() <= FRAME_BYTES_MAX + 1
}
