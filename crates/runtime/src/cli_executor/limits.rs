//! Bounds of an agent's channel. Unit and bound stand last in each name.

use std::time::Duration;

use mcp::limits::SESSION_TRAFFIC_BYTES_MAX;

/// Connections that live at once, both sockets together.
pub const CONNECTIONS_LIVE_MAX: usize = 8;
/// Connections accepted in a run, both sockets together.
pub const CONNECTIONS_TOTAL_MAX: usize = 64;
/// Before a connection is accepted again where the host could not.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// From a frame's first byte to its last. Silence between frames is free.
pub const FRAME_READ_MAX: Duration = Duration::from_secs(10);
/// For writing one answer.
pub const WRITE_MAX: Duration = Duration::from_secs(5);
/// Between two looks at a call whose client wants its progress, the first after as long: so often
/// at most a client is told of one call.
pub const PROGRESS_LOOK: Duration = Duration::from_secs(1);
/// How often a client is told that nothing has changed.
pub const PROGRESS_REPEAT: Duration = Duration::from_secs(10);
/// Of a session's MCP traffic, what progress may take; then no more is told.
pub const PROGRESS_BYTES_MAX: u64 = SESSION_TRAFFIC_BYTES_MAX / 8;
/// For a provider's whole answer.
pub const PROVIDER_ANSWER_MAX: Duration = Duration::from_secs(600);
/// For an agent's whole request to its provider.
pub const PROVIDER_REQUEST_MAX: Duration = Duration::from_secs(30);
/// Header fields of an agent's request to its provider.
pub const REQUEST_HEADERS_MAX: usize = 100;
/// For the records of provider requests that a close interrupts.
pub const PROVIDER_WIND_UP_MAX: Duration = Duration::from_secs(5);
/// Refused requests to the provider that are told to the run's owner while it runs.
pub const REFUSALS_TOLD_MAX: u64 = 32;
/// Pieces of a provider's answer that wait for a slow agent.
pub const RESPONSE_PIECES_MAX: usize = 16;

const _: () = assert!(PROGRESS_LOOK.as_millis() <= PROGRESS_REPEAT.as_millis());
const _: () = assert!(CONNECTIONS_LIVE_MAX <= CONNECTIONS_TOTAL_MAX);
