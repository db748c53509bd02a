//! Bounds of provider traffic. Unit and bound stand last in each name.

/// Largest request body.
pub const REQUEST_BYTES_MAX: usize = 4 << 20;
/// Largest response body.
pub const RESPONSE_BYTES_MAX: u64 = 4 << 20;
/// Most header fields of a request.
pub const REQUEST_HEADERS_MAX: usize = 100;
/// Most bytes of all header names and values of a request.
pub const REQUEST_HEADER_BYTES_MAX: usize = 64 << 10;
/// Highest number of requests that terms may allow in one run.
pub const REQUESTS_MAX: u64 = 1_000;
/// Highest `max_tokens` that terms may allow in one request.
pub const OUTPUT_TOKENS_MAX: u64 = 128_000;
/// Highest output reservation that terms may allow over one run.
pub const TOTAL_OUTPUT_TOKENS_MAX: u64 = REQUESTS_MAX * OUTPUT_TOKENS_MAX;
/// Most configured beta headers.
pub const BETA_HEADERS_MAX: usize = 32;
/// Longest model name, beta header or API version.
pub const TOKEN_BYTES_MAX: usize = 128;
/// Longest base URL.
pub const BASE_URL_BYTES_MAX: usize = 2_048;
/// Longest host name (RFC 1035 section 2.3.4).
pub const HOST_BYTES_MAX: usize = 253;
/// Longest `metadata.user_id`.
pub const USER_ID_BYTES_MAX: usize = 1_024;
/// Longest word of a harmless hint, such as `high`.
pub const WORD_BYTES_MAX: usize = 32;
/// Longest identity or name inside a request (a tool, a tool use).
pub const NAME_BYTES_MAX: usize = 256;
/// Longest piece of the agent's text that a refusal repeats, in characters.
pub const QUOTED_CHARS_MAX: usize = 64;
/// Longest message of a refusal, in characters.
pub const REASON_CHARS_MAX: usize = 1_024;
/// Longest response header value that is passed on.
pub const RESPONSE_HEADER_BYTES_MAX: usize = 1_024;

const _: () = assert!(HOST_BYTES_MAX < BASE_URL_BYTES_MAX);
const _: () = assert!(NAME_BYTES_MAX < USER_ID_BYTES_MAX);
