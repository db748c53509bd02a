//! Bounds of one connection. Unit and bound stand last in each name.

use std::time::Duration;

use model::limits::{CALL_BYTES_MAX, CALL_ID_BYTES_MAX};

/// Largest frame in either direction, in bytes, its line feed not counted.
pub const FRAME_BYTES_MAX: usize = 1 << 20;
/// Most frames that a contained agent may send on one connection.
pub const BROKER_FRAMES_MAX: u64 = 1024;
/// Most frames of one client over standard input: a day of pings each ten seconds and all calls.
/// It bounds the identities that are remembered, and with them the memory.
pub const STDIO_FRAMES_MAX: u64 = 65_536;
/// Most MCP bytes of a whole session, both ways over all its connections. The owner of the
/// connections sums [`crate::Connection::bytes_in`] and [`crate::Connection::bytes_out`].
pub const SESSION_TRAFFIC_BYTES_MAX: u64 = 64 << 20;
/// Longest request id or progress token that is a string, in bytes.
pub const WIRE_ID_BYTES_MAX: usize = 128;
/// Largest request id or progress token that is an integer, and smallest when negated: beyond it
/// a JavaScript client could not tell two of them apart.
pub const WIRE_ID_INTEGER_MAX: i64 = (1 << 53) - 1;
/// Most calls of one connection that wait for their answer.
pub const CALLS_OUTSTANDING_MAX: usize = 64;
/// Most memory that the arguments of those calls may take, by [`VALUE_BYTES`] and their text.
pub const CALLS_OUTSTANDING_BYTES_MAX: usize = 16 << 20;
/// Most JSON values in one frame: small ones take a hundred times their text in memory.
pub const FRAME_VALUES_MAX: usize = 16_384;
/// What one parsed JSON value may take in memory: an object with one member is the worst.
pub const VALUE_BYTES: usize = 640;
/// Longest text of a tool's result, in bytes, its mark included.
pub const TEXT_BYTES_MAX: usize = 64 << 10;
/// Room for the mark of a text that was cut.
pub const TEXT_MARK_BYTES_MAX: usize = 64;
/// Longest message of an error or a progress notification, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 512;
/// Longest piece of a client's text that an error quotes, in characters.
pub const QUOTE_CHARS_MAX: usize = 48;

/// How long a client may keep the list of tools, and what the server says of itself.
pub const LIST_TTL: Duration = Duration::from_secs(300);

/// Most bytes that one byte of text takes in JSON (`\u0000`).
const ESCAPED_BYTES_MAX: usize = 6;
/// Room for all members of an answer but its text and its id.
const ENVELOPE_BYTES_MAX: usize = 1024;

const _: () = assert!(FRAME_BYTES_MAX <= CALL_BYTES_MAX);
// Any one call is taken while no other waits.
const _: () =
    assert!(FRAME_BYTES_MAX + FRAME_VALUES_MAX * VALUE_BYTES <= CALLS_OUTSTANDING_BYTES_MAX);
// A result without structured content always fits into one frame.
const _: () = assert!(
    (TEXT_BYTES_MAX + MESSAGE_BYTES_MAX + WIRE_ID_BYTES_MAX) * ESCAPED_BYTES_MAX
        + ENVELOPE_BYTES_MAX
        <= FRAME_BYTES_MAX
);
const _: () = assert!(TEXT_MARK_BYTES_MAX < TEXT_BYTES_MAX);
// `<connection>:s:<id>` with a connection number of 20 digits is a call id.
const _: () = assert!(20 + 3 + WIRE_ID_BYTES_MAX <= CALL_ID_BYTES_MAX);

/// What differs between a contained agent's connection and a client over standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Most frames that the client may send; one more ends the connection.
    pub frames: u64,
}

impl ConnectionLimits {
    /// A contained agent on the broker's socket.
    #[must_use]
    pub const fn broker() -> Self {
        Self {
            frames: BROKER_FRAMES_MAX,
        }
    }

    /// A client that started us and speaks over standard input and output.
    #[must_use]
    pub const fn stdio() -> Self {
        Self {
            frames: STDIO_FRAMES_MAX,
        }
    }
}
