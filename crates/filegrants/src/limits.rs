//! Bounds of the file broker. The bounds of one call's files are `worker::limits`.

/// Most ceilings of one project.
pub const CEILINGS_MAX: usize = 64;
/// Most outputs of one call.
pub const OUTPUTS_MAX: usize = 1;
/// Bytes that are copied and hashed at a time.
pub const CHUNK_BYTES_MAX: usize = 256 << 10;
/// Attempts of an open that a concurrent rename somewhere made the kernel give up (`EAGAIN`).
pub const OPEN_ATTEMPTS_MAX: u32 = 16;
/// Folders above the project that are compared with a writable ceiling.
pub const ANCESTORS_MAX: usize = 256;
/// Candidates of one ceiling that one sweep looks at.
pub const SWEEP_ENTRIES_MAX: usize = 4096;
/// Age from which a left probe belongs to nobody; a probe lives for milliseconds.
pub const PROBE_AGE_SECONDS_MIN: u64 = 60;
/// Largest signed statement about a dead run: three records.
pub const STATEMENT_BYTES_MAX: u64 = 16 << 10;
/// Longest rationale of a resolution.
pub const RATIONALE_BYTES_MAX: usize = 1 << 10;
/// Staging space that each file of a call is charged besides its bytes.
pub const STAGED_ENTRY_BYTES: u64 = 4 << 10;
/// Most calls that hold staging space at a time.
pub const CHARGES_MAX: usize = 4096;
/// Largest record of one charge.
pub const CHARGE_BYTES_MAX: usize = 512;
/// Longest wait for another process that reserves or returns staging space.
pub const POOL_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(5);
/// Pause between two looks at a pool that another process has.
pub const POOL_PAUSE: std::time::Duration = std::time::Duration::from_millis(1);
/// Holders of staging space that a refusal names.
pub const HOLDERS_NAMED_MAX: usize = 4;

const _: () = assert!(CHUNK_BYTES_MAX > 0 && OPEN_ATTEMPTS_MAX > 0);
const _: () = assert!(worker::limits::FILE_BYTES_MAX <= worker::limits::INPUTS_BYTES_MAX);
// Every call that the other limits allow fits the default pool.
const _: () = assert!(
    worker::limits::INPUTS_BYTES_MAX
        + OUTPUTS_MAX as u64 * worker::limits::FILE_BYTES_MAX
        + (worker::limits::INPUTS_MAX + OUTPUTS_MAX) as u64 * STAGED_ENTRY_BYTES
        <= worker::limits::CAPACITY_STAGING_MIB_DEFAULT << 20
);
// JSON writes a character of plain text as at most two, and the rest of the fact is short.
const _: () = assert!(2 * RATIONALE_BYTES_MAX + 1024 <= journal::limits::CUSTOM_BYTES_MAX);
