//! Bounds of what people are asked. Unit and bound stand last in each name.

/// Largest text that a person is asked to read, in bytes. A larger request is refused.
pub const REVIEW_BYTES_MAX: usize = 64 << 10;
/// Longest id of a held call, in bytes.
pub const HELD_ID_BYTES_MAX: usize = 64;
/// Longest line that is read as an answer, in bytes.
pub const ANSWER_BYTES_MAX: usize = 256;
/// Lines that are no answer, after which a terminal counts as a no.
pub const ANSWERS_WRONG_MAX: usize = 16;
/// Tools whose holds are counted.
pub const HOLD_TOOLS_MAX: usize = 1024;

/// Most operators of one project.
pub const OPERATORS_MAX: usize = 64;
/// Most keys of one operator.
pub const OPERATOR_KEYS_MAX: usize = 16;
/// Longest public key, in bytes.
pub const PUBLIC_KEY_BYTES_MAX: usize = 4 << 10;
/// Longest armored signature, in bytes: a record keeps it whole.
pub const SIGNATURE_BYTES_MAX: usize = 1 << 10;
/// Most operators that must sign: a record keeps all their signatures.
pub const REQUIRE_MAX: usize = 8;
/// Longest name of an operator, in bytes.
pub const OPERATOR_BYTES_MAX: usize = 64;

/// Longest request on the gate's socket, in bytes, with its line end.
pub const REQUEST_BYTES_MAX: usize = 16 << 10;
/// Longest response on the gate's socket, in bytes, with its line end: a review in JSON.
pub const RESPONSE_BYTES_MAX: usize = 256 << 10;

/// Held calls whose end is remembered, so that a late answer is told it.
pub const HOLDS_REMEMBERED_MAX: usize = 64;
/// Largest part of an input that is shown at once, in bytes.
pub const INPUT_PART_BYTES_MAX: usize = 64 << 10;
/// Answers that did not count and are recorded, in one run: a flood of them fills no journal.
pub const ANSWERS_REFUSED_MAX: usize = 64;

/// Largest callback of a chat platform, in bytes.
pub const CALLBACK_BYTES_MAX: usize = 64 << 10;
/// Longest text of a chat message, in bytes: a longer one is cut by the platform.
pub const CHAT_MESSAGE_BYTES_MAX: usize = 40_000;
/// How far a callback's time may be from ours, in seconds.
pub const CALLBACK_AGE_SECONDS_MAX: u64 = 300;
/// Callbacks that are remembered, so that none counts twice.
pub const CALLBACKS_REMEMBERED_MAX: usize = 4096;
/// Most senders that may answer.
pub const CHAT_SENDERS_MAX: usize = 256;

// The armor of a signature has no character that JSON writes as more than two.
const _: () = assert!(2 * SIGNATURE_BYTES_MAX + 1024 < REQUEST_BYTES_MAX);
const _: () = assert!(2 * REVIEW_BYTES_MAX + 1024 < RESPONSE_BYTES_MAX);
// A part of an input goes in hex.
const _: () = assert!(2 * INPUT_PART_BYTES_MAX + 16 * 1024 < RESPONSE_BYTES_MAX);
const _: () = assert!(HELD_ID_BYTES_MAX + 16 < ANSWER_BYTES_MAX);
