//! Bounds of journals, ledgers and keys. Unit and bound stand last in each name.

pub use model::limits::PATH_BYTES_MAX;
use model::limits::{CALL_ID_BYTES_MAX, TOOL_NAME_BYTES_MAX};

/// Largest journal of one run.
pub const JOURNAL_BYTES_MAX: u64 = 64 << 20;
/// Largest record line, without its line feed.
pub const RECORD_BYTES_MAX: usize = 1 << 20;
/// Largest checkpoint line, without its line feed.
pub const CHECKPOINT_LINE_BYTES_MAX: usize = 512;
/// Most signatures of one note: of the old and the new key where the key changes.
pub const NOTE_SIGNATURES_MAX: usize = 2;
/// Largest write: two records with their checkpoints.
pub const APPEND_BYTES_MAX: usize = 2 * (RECORD_BYTES_MAX + CHECKPOINT_LINE_BYTES_MAX + 2);

/// Longest free text of an event; a longer one is shortened by its author.
pub const TEXT_BYTES_MAX: usize = 16 << 10;
/// Longest `@reason` and `@advice` of one policy's note.
pub const POLICY_TEXT_BYTES_MAX: usize = 512;
/// Longest note that is no policy's: an approver, a signature, why an answer did not count.
pub const NOTE_TEXT_BYTES_MAX: usize = 1 << 10;
/// Longest name that is no free text: a surface, a worker, a device, a policy id.
pub const NAME_BYTES_MAX: usize = 256;
/// Longest name of a wanted tool, as its caller escaped it.
pub const TOOL_TEXT_BYTES_MAX: usize = 2 << 10;
/// Longest principal.
pub const PRINCIPAL_BYTES_MAX: usize = 256;
/// Largest value of a `Custom` event.
pub const CUSTOM_BYTES_MAX: usize = 4 << 10;
/// Most signatures under one approval.
pub const SIGNATURES_MAX: usize = 8;
/// Most inputs of one call.
pub const INPUTS_SHOWN_MAX: usize = 32;
/// Most policies named in one event.
pub const POLICIES_MAX: usize = 64;
/// Most tools of one run.
pub const TOOLS_MAX: usize = 256;
/// Most receipts of one call.
pub const CREATED_FILES_MAX: usize = 4;
/// Largest number in an event: the largest integer that every JSON reader keeps (RFC 8785).
pub const NUMBER_MAX: u64 = (1 << 53) - 1;

/// Most calls that hold a reservation at once.
pub const CALLS_LENT_MAX: usize = 16;
/// Most provider requests without an answer at once.
pub const REQUESTS_OPEN_MAX: usize = 64;

/// JSON writes one byte of text as at most six (`\u001f`).
const ESCAPE: usize = 6;
/// The fields around an event, the event's own keys, digests and numbers, and its checkpoint.
const ENVELOPE_BYTES_MAX: usize = ESCAPE * PRINCIPAL_BYTES_MAX + CHECKPOINT_LINE_BYTES_MAX + 2048;

/// Longest terminal record with its checkpoint.
pub const RUN_ENDED_BYTES_MAX: usize = ENVELOPE_BYTES_MAX + ESCAPE * TEXT_BYTES_MAX;
/// Longest outcome record with its checkpoint.
pub const CALL_SETTLED_BYTES_MAX: usize = ENVELOPE_BYTES_MAX
    + 2 * CALL_ID_BYTES_MAX
    + ESCAPE * (TEXT_BYTES_MAX + 4 * NAME_BYTES_MAX)
    + CREATED_FILES_MAX * (2 * PATH_BYTES_MAX + 256);
/// Longest publication intent with its checkpoint.
pub const PUBLICATION_PREPARED_BYTES_MAX: usize =
    ENVELOPE_BYTES_MAX + 2 * PATH_BYTES_MAX + ESCAPE * (PATH_BYTES_MAX + 6 * NAME_BYTES_MAX);
/// Longest publication result with its checkpoint.
pub const PUBLICATION_FINISHED_BYTES_MAX: usize = ENVELOPE_BYTES_MAX + ESCAPE * TEXT_BYTES_MAX;
/// Longest answer record of a provider request with its checkpoint.
pub const INFERENCE_COMPLETED_BYTES_MAX: usize = ENVELOPE_BYTES_MAX + ESCAPE * TEXT_BYTES_MAX;

/// Longest part of a record that says what a person answered.
const APPROVAL_BYTES_MAX: usize = ESCAPE * (5 * NAME_BYTES_MAX + NOTE_TEXT_BYTES_MAX)
    + SIGNATURES_MAX * (ESCAPE * NOTE_TEXT_BYTES_MAX + 8)
    + INPUTS_SHOWN_MAX * (ESCAPE * NAME_BYTES_MAX + 96)
    + 512;

/// What a call can still need after its pre-effect record: lent to it before that record.
pub const CALL_RESERVED_BYTES: u64 = (PUBLICATION_PREPARED_BYTES_MAX
    + PUBLICATION_FINISHED_BYTES_MAX
    + CALL_SETTLED_BYTES_MAX) as u64;

/// Blocks that a journal file asks for ahead of its end.
pub const PREALLOCATED_BYTES: u64 = 1 << 20;
/// It asks for more when fewer than these are left.
pub const PREALLOCATED_BYTES_MIN: u64 = PREALLOCATED_BYTES / 2;

/// Most runs without an end that one ledger carries.
pub const OPEN_RUNS_MAX: usize = 256;
/// Most journals without a ledger line that one start enters in the ledger.
pub const ADOPTED_RUNS_MAX: usize = 64;
/// Largest ledger line, without its line feed.
pub const LEDGER_LINE_BYTES_MAX: usize = 32 << 10;
/// Largest ledger.
pub const LEDGER_BYTES_MAX: u64 = 1 << 30;
/// How long a start waits for another process that holds the ledger.
pub const LOCK_WAIT_MS_MAX: u64 = 10_000;
/// Pause between two attempts to take a lock.
pub const LOCK_RETRY_MS: u64 = 2;

/// Largest key file.
pub const KEY_FILE_BYTES_MAX: usize = 512;

/// Longest value inside a record; a longer one is kept as evidence, the record has its hash.
pub const RECORDED_VALUE_BYTES_MAX: usize = 16 << 10;

/// Largest evidence file: the longest output that a tier captures.
pub const EVIDENCE_BYTES_MAX: u64 = 64 << 20;

/// Most records of one call in a proof.
pub const PROOF_RECORDS_MAX: usize = 8;
/// Largest proof file: a record's text at its most escaped, once for each.
pub const PROOF_BYTES_MAX: usize = 2 * PROOF_RECORDS_MAX * RECORD_BYTES_MAX;

/// Most heads that wait for their anchors; of one run only the newest is sent.
pub const ANCHOR_QUEUE_MAX: usize = 64;
/// How long one anchor may take for one head.
pub const ANCHOR_TIME_MS_MAX: u64 = 10_000;
/// Largest file of anchored heads that is read.
pub const ANCHOR_FILE_BYTES_MAX: u64 = 1 << 30;

/// Most record pairs that the verifier holds at once.
pub const VERIFY_CHUNK_RECORDS_MAX: usize = 512;
/// Most bytes of pairs that the verifier holds at once, one record past it at most.
pub const VERIFY_CHUNK_BYTES_MAX: usize = 4 << 20;
/// Most threads of the verifier.
pub const VERIFY_THREADS_MAX: usize = 8;

const _: () = assert!(CALL_SETTLED_BYTES_MAX < RECORD_BYTES_MAX);
const _: () = assert!(PUBLICATION_PREPARED_BYTES_MAX < RECORD_BYTES_MAX);
const _: () = assert!(RUN_ENDED_BYTES_MAX < RECORD_BYTES_MAX);
// Every refusal has a record: all its notes together stay below one record's limit.
const _: () = assert!(
    ENVELOPE_BYTES_MAX
        + ESCAPE * (2 * TEXT_BYTES_MAX + TOOL_TEXT_BYTES_MAX)
        + POLICIES_MAX * (ESCAPE * (NAME_BYTES_MAX + 2 * POLICY_TEXT_BYTES_MAX) + 64)
        + APPROVAL_BYTES_MAX
        < RECORD_BYTES_MAX
);
// A disk that fills up after a pre-effect record still takes what must follow it.
const _: () = assert!(CALL_RESERVED_BYTES + RUN_ENDED_BYTES_MAX as u64 <= PREALLOCATED_BYTES_MIN);
const _: () = assert!(TOOL_NAME_BYTES_MAX <= TOOL_TEXT_BYTES_MAX);
// The widest open set, the deepest range and one event fit into a ledger line.
const _: () = assert!(OPEN_RUNS_MAX * 48 + 64 * 72 + 4096 < LEDGER_LINE_BYTES_MAX);
const _: () = assert!(
    JOURNAL_BYTES_MAX
        > CALL_RESERVED_BYTES * (CALLS_LENT_MAX as u64)
            + (REQUESTS_OPEN_MAX * INFERENCE_COMPLETED_BYTES_MAX) as u64
);
