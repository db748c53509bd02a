//! Bounds of the words in this crate. Unit and bound stand last in each name.

/// Longest call identity, in bytes.
pub const CALL_ID_BYTES_MAX: usize = 256;
/// Longest tool name, in bytes (the MCP client and provider limit).
pub const TOOL_NAME_BYTES_MAX: usize = 128;
/// Longest agent name, in bytes.
pub const AGENT_NAME_BYTES_MAX: usize = 64;
/// Longest argument name, in bytes.
pub const ARGUMENT_NAME_BYTES_MAX: usize = 64;
/// Longest relative path, in bytes.
pub const PATH_BYTES_MAX: usize = 4096;
/// Longest single path component, in bytes (the file systems' own NAME_MAX).
pub const PATH_COMPONENT_BYTES_MAX: usize = 255;
/// Deepest nesting that the strict JSON reader accepts.
pub const JSON_DEPTH_MAX: usize = 64;
/// Longest wire call (name, id and arguments together), in bytes.
pub const CALL_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(PATH_COMPONENT_BYTES_MAX < PATH_BYTES_MAX);
