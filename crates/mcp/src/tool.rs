//! What the server says of itself, of its tools, and of a call that has ended.

use model::{JsonObject, ToolName};

/// What `initialize` tells a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerInfo {
    pub name: String,
    pub version: String,
    /// How to use the tools, for the model that reads it.
    pub instructions: Option<String>,
}

/// One tool as a client sees it. `tools/list` gives them in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    pub name: ToolName,
    pub description: String,
    /// A JSON Schema of type `object`.
    pub input_schema: JsonObject,
    /// Shown as `readOnlyHint`: clients then send calls without waiting for earlier ones.
    pub read_only: bool,
}

/// What a call's answer carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// For the model; over 64 KiB it is cut as [`crate::fit_text`] does.
    pub text: String,
    /// The same for programs. Left out for revisions before 2025-06-18, and, with a word in the
    /// text, where the frame would pass 1 MiB.
    pub structured: Option<JsonObject>,
    /// The tool failed or the call was refused.
    pub is_error: bool,
}
