//! What we send: the wire types of our answers, each written as one line.
//!
//! In the stateless era each result says of which type it is and which server made it, and an error
//! that answers no readable id has none; in the other era such an error's id is null.

use model::JsonObject;
use serde::Serialize;

use crate::fault::Fault;
use crate::identity::{ProgressToken, WireId};
use crate::limits::{FRAME_BYTES_MAX, LIST_TTL, MESSAGE_BYTES_MAX};
use crate::revision::Revision;
use crate::text::{fit_text, prefix};
use crate::tool::{ServerInfo, Tool, ToolResult};

const VERSION: &str = "2.0";
/// What is sent for an answer that has no JSON form. None of ours is such an answer.
const UNWRITABLE: &[u8] =
    br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"unwritable answer"}}"#;

/// In whose words the answers of a connection are written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dialect<'a> {
    pub(crate) revision: Revision,
    pub(crate) server: &'a ServerInfo,
}

#[derive(Serialize)]
struct Answer<'a, R> {
    jsonrpc: &'static str,
    id: &'a WireId,
    result: Stamped<'a, R>,
}

/// A result with what the stateless era adds to it.
#[derive(Serialize)]
struct Stamped<'a, R> {
    #[serde(rename = "resultType", skip_serializing_if = "Option::is_none")]
    result_type: Option<&'static str>,
    #[serde(flatten)]
    result: R,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<ResultMeta<'a>>,
}

#[derive(Serialize)]
struct ResultMeta<'a> {
    #[serde(rename = "io.modelcontextprotocol/serverInfo")]
    server_info: Implementation<'a>,
}

/// How long a client may keep a result of the stateless era, and for whom.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Caching {
    ttl_ms: u64,
    cache_scope: &'static str,
}

/// The tools of a session never change, and are those of its own client.
fn caching() -> Caching {
    Caching {
        ttl_ms: u64::try_from(LIST_TTL.as_millis()).unwrap_or(0),
        cache_scope: "private",
    }
}

#[derive(Serialize)]
struct ErrorAnswer<'a> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Option<&'a WireId>>,
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
#[serde(rename_all = "camelCase")]
struct Discovered<'a> {
    supported_versions: Vec<&'static str>,
    capabilities: Capabilities,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
    #[serde(flatten)]
    caching: Caching,
}

#[derive(Serialize)]
struct ToolList<'a> {
    tools: Vec<ListedTool<'a>>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    caching: Option<Caching>,
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

/// Our one capability; the list of tools never changes.
const CAPABILITIES: Capabilities = Capabilities {
    tools: ToolsCapability {
        list_changed: false,
    },
};

impl Implementation<'_> {
    fn of(server: &ServerInfo) -> Implementation<'_> {
        Implementation {
            name: &server.name,
            version: &server.version,
        }
    }
}

impl Dialect<'_> {
    pub(crate) fn error(self, id: Option<&WireId>, fault: &Fault) -> Vec<u8> {
        line(&ErrorAnswer {
            jsonrpc: VERSION,
            id: match id {
                None if self.revision.is_stateless() => None,
                id => Some(id),
            },
            error: fault,
        })
    }

    pub(crate) fn pong(self, id: &WireId) -> Vec<u8> {
        self.answer(id, Empty {})
    }

    pub(crate) fn initialized(self, id: &WireId) -> Vec<u8> {
        self.answer(
            id,
            Initialized {
                protocol_version: self.revision.as_str(),
                capabilities: CAPABILITIES,
                server_info: Implementation::of(self.server),
                instructions: self.server.instructions.as_deref(),
            },
        )
    }

    pub(crate) fn discovered(self, id: &WireId) -> Vec<u8> {
        let revisions = Revision::newest_first();
        self.answer(
            id,
            Discovered {
                supported_versions: revisions.iter().map(|it| it.as_str()).collect(),
                capabilities: CAPABILITIES,
                instructions: self.server.instructions.as_deref(),
                caching: caching(),
            },
        )
    }

    /// All tools in the order of their names; `None` where the list passes one frame.
    pub(crate) fn tool_list(self, id: &WireId, tools: &[Tool]) -> Option<Vec<u8>> {
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
        let caching = self.revision.is_stateless().then(caching);
        Some(self.answer(id, ToolList { tools, caching })).filter(|line| fits(line))
    }

    /// A call's result. Structured content goes only to a revision that knows it, and only where
    /// it fits; the text always fits.
    pub(crate) fn call_result(self, id: &WireId, result: &ToolResult) -> Vec<u8> {
        let text = fit_text(&result.text);
        let structured = result
            .structured
            .as_ref()
            .filter(|_| self.revision.has_structured_results());
        let whole = self.call_answer(id, &text, structured, result.is_error);
        if structured.is_none() || fits(&whole) {
            return whole;
        }
        let missing = whole.len();
        let text = format!(
            "{text}\n[structured content is missing: with it the answer has {missing} bytes, \
             more than the {FRAME_BYTES_MAX} allowed]"
        );
        self.call_answer(id, &text, None, result.is_error)
    }

    fn call_answer(
        self,
        id: &WireId,
        text: &str,
        structured_content: Option<&JsonObject>,
        is_error: bool,
    ) -> Vec<u8> {
        let content = [TextContent {
            r#type: "text",
            text,
        }];
        self.answer(
            id,
            CallResult {
                content,
                structured_content,
                is_error,
            },
        )
    }

    pub(crate) fn progress(self, token: &ProgressToken, progress: u64, message: &str) -> Vec<u8> {
        let message = self
            .revision
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

    fn answer<R: Serialize>(self, id: &WireId, result: R) -> Vec<u8> {
        let stateless = self.revision.is_stateless();
        line(&Answer {
            jsonrpc: VERSION,
            id,
            result: Stamped {
                result_type: stateless.then_some("complete"),
                result,
                meta: stateless.then(|| ResultMeta {
                    server_info: Implementation::of(self.server),
                }),
            },
        })
    }
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
