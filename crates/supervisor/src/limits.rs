//! Bounds of the supervisor. Unit and bound stand last in each name.

use std::time::Duration;

/// Version of what a supervisor and its clients say to each other.
pub const PROTOCOL_VERSION: u32 = 1;
/// Longest message, in bytes, with its line end.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Most connections at a time.
pub const CONNECTIONS_MAX: usize = 128;
/// Longest time until a client has begun to say who it is.
pub const GREETING_TIME_MAX: Duration = Duration::from_secs(2);
/// Without a request for this time, a connection that has no lease yields to a new one where there
/// are too many.
pub const IDLE_YIELD_TIME: Duration = Duration::from_secs(1);
/// How long a client tries to get in where there are too many, or the socket is lost.
pub const CROWD_TIME_MAX: Duration = Duration::from_secs(5);
/// Longest pause between two of its attempts.
pub const CROWD_PAUSE_MAX: Duration = Duration::from_millis(200);
/// How long a client waits at the door of one that takes no connection.
pub const KNOCK_TIME_MAX: Duration = Duration::from_secs(2);
/// Longest time between the first byte of a message and its end, and of a supervisor's welcome.
pub const READ_TIME_MAX: Duration = Duration::from_secs(5);
/// Longest time that a client waits for an answer.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// How long `prune` waits for what is being removed.
pub const PRUNE_WAIT_MAX: Duration = Duration::from_secs(10);
/// Longest time that a client waits for the answer of `prune`.
pub const PRUNE_TIME_MAX: Duration = Duration::from_secs(60);
/// Attempts to look at an engine for what nobody claims.
pub const SWEEP_ATTEMPTS_MAX: u32 = 120;
/// Longest time from the start of a supervisor until it listens.
pub const START_TIME_MAX: Duration = Duration::from_secs(10);
/// Attempts to reach a supervisor that is about to end.
pub const START_ATTEMPTS_MAX: u32 = 3;
/// Pause between two looks for a supervisor that systemd starts.
pub const START_PAUSE: Duration = Duration::from_millis(20);
/// A supervisor without leases and clients ends after this time.
pub const IDLE_TIME_MAX: Duration = Duration::from_secs(60);
/// Pause between two attempts to remove what a dead owner left.
pub const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// How long a container is looked for that a dead owner may have asked for. The engine must have
/// answered during all this time that there is none.
pub const UNSEEN_TIME_MAX: Duration = Duration::from_secs(120);
/// How long a supervisor stays for leases of dead owners that it cannot end, none of which it has
/// made any progress with in this time: their engine is gone. It keeps them for the next start.
pub const FORSAKEN_TIME_MAX: Duration = Duration::from_secs(60 * 60);
/// Longest time between two looks at what nothing tells of.
pub const LOOK_PAUSE: Duration = Duration::from_secs(2);
// A client that waits for its turn sees a lost socket made anew meanwhile.
const _: () = assert!(LOOK_PAUSE.as_secs() * 2 < CROWD_TIME_MAX.as_secs());
/// Attempts to take the lock, which a client that looks at it has for microseconds.
pub const LOCK_ATTEMPTS_MAX: u32 = 10;
/// Pause between two of them.
pub const LOCK_PAUSE: Duration = Duration::from_millis(1);
/// Most leases at a time, whatever the user's capacity says.
pub const LEASES_MAX: usize = 1024;
/// Longest lifetime of a lease: that of a session.
pub const LIFETIME_MAX: Duration = Duration::from_secs(26 * 60 * 60);
/// Time past a worker's own limit after which the supervisor ends it.
pub const LIFETIME_GRACE: Duration = Duration::from_secs(2);
/// Largest file of leases.
pub const LEASES_BYTES_MAX: u64 = 4 << 20;
/// Size from which the file of leases is written anew.
pub const LEASES_COMPACTED_BYTES: u64 = 256 << 10;
/// Most engines that are remembered.
pub const ENGINES_MAX: usize = 16;
/// Longest path in a lease, in bytes.
pub const PATH_BYTES_MAX: usize = 4096;
/// Owners that a refusal names.
pub const OWNERS_NAMED_MAX: usize = 4;
/// Largest log, after which it starts anew.
pub const LOG_BYTES_MAX: u64 = 1 << 20;
/// How long a container's runtime may take to end after its container is gone, before its
/// processes are killed.
pub const RUNTIME_END_TIME_MAX: Duration = Duration::from_secs(2);
/// Pause between two looks at them.
pub const RUNTIME_END_PAUSE: Duration = Duration::from_millis(20);
/// Longest id of a container.
pub const CONTAINER_ID_BYTES_MAX: u64 = 64;
/// Digits of a lease's id that name the state folder which it belongs to.
pub const STORE_DIGITS: usize = 8;
