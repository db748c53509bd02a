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
/// Deepest nesting of an XML output; as JSON it can be twice as deep.
pub const XML_DEPTH_MAX: usize = JSON_DEPTH_MAX / 2;
/// Longest wire call (name, id and arguments together), in bytes.
pub const CALL_BYTES_MAX: usize = 1 << 20;
/// Most rows of a CSV output, and most lines of a JSON Lines one.
pub const OUTPUT_ROWS_MAX: usize = 1 << 16;
/// Most columns of a CSV output.
pub const OUTPUT_COLUMNS_MAX: usize = 1024;
/// Most elements, attributes and cells of an XML or CSV output together.
pub const OUTPUT_NODES_MAX: usize = 1 << 18;
/// Longest name of a CSV column, an XML element or an attribute, in bytes.
pub const OUTPUT_NAME_BYTES_MAX: usize = 256;

const _: () = assert!(OUTPUT_ROWS_MAX <= OUTPUT_NODES_MAX);
const _: () = assert!(PATH_COMPONENT_BYTES_MAX < PATH_BYTES_MAX);
