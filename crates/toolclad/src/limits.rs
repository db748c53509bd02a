//! Bounds of manifests and of what they accept. Unit and bound stand last in each name.

/// Largest manifest, in bytes.
pub const MANIFEST_BYTES_MAX: usize = 1 << 20;
/// Most tools of one set.
pub const TOOLS_MAX: usize = 256;
/// Most faults that one manifest reports.
pub const FAULTS_MAX: usize = 32;
/// Most arguments of one tool.
pub const ARGUMENTS_MAX: usize = 64;
/// Most values of one `allowed` list.
pub const ALLOWED_VALUES_MAX: usize = 256;
/// Longest `version`, in bytes.
pub const VERSION_BYTES_MAX: usize = 64;
/// Longest `description`, in bytes.
pub const DESCRIPTION_BYTES_MAX: usize = 4096;
/// Longest `pattern`, in bytes.
pub const PATTERN_BYTES_MAX: usize = 1024;
/// Most memory of one compiled `pattern`, in bytes.
pub const PATTERN_PROGRAM_BYTES_MAX: usize = 1 << 20;
/// Longest value of an argument, in bytes.
pub const VALUE_BYTES_MAX: usize = 4096;
/// Longest value of a `literal_text` argument, in bytes.
pub const LITERAL_TEXT_BYTES_MAX: usize = 32 << 10;
/// Longest `duration`, in seconds: a leap year.
pub const DURATION_SECONDS_MAX: u64 = 366 * 24 * 60 * 60;
/// Most elements of `exec`.
pub const EXEC_ELEMENTS_MAX: usize = 256;
/// Longest element of `exec` as written, in bytes.
pub const EXEC_ELEMENT_BYTES_MAX: usize = 32 << 10;
/// Most entries of each of `defaults`, `mappings` and `conditionals`.
pub const PLACEHOLDERS_MAX: usize = 64;
/// Most bytes of a whole rendered argv, a final NUL counted for each entry.
pub const ARGV_BYTES_MAX: usize = 128 << 10;
/// Most entries of a rendered argv.
pub const ARGV_ENTRIES_MAX: usize = 1024;
/// Most input files of one call.
pub const READS_MAX: usize = 32;
/// Most new files of one call.
pub const CREATES_MAX: usize = 1;
/// Default bound of each input and of the output, in bytes.
pub const FILE_BYTES_DEFAULT: u64 = 8 << 20;
/// Highest `max_file_bytes`.
pub const FILE_BYTES_MAX: u64 = 16 << 20;
/// Time limit of a tool that names none, in seconds.
pub const TIMEOUT_SECONDS_DEFAULT: u64 = 30;
/// Highest `timeout_seconds`: a day.
pub const TIMEOUT_SECONDS_MAX: u64 = 86_400;
/// Highest bound that `[tool.limits]` and `[output]` may name; they only tighten.
pub const LIMIT_VALUE_MAX: u64 = 1 << 40;
/// Largest `scope.toml`, in bytes.
pub const SCOPE_BYTES_MAX: usize = 1 << 20;
/// Most entries of a scope, allowed and excluded together.
pub const SCOPE_ENTRIES_MAX: usize = 4096;
/// Most addresses of one host name.
pub const ADDRESSES_MAX: usize = 64;
/// Largest `toolclad.toml`, in bytes.
pub const TYPES_BYTES_MAX: usize = 1 << 20;
/// Most custom types.
pub const TYPES_MAX: usize = 256;
/// Longest chain of custom types.
pub const TYPE_CHAIN_MAX: usize = 16;
/// Longest identity of one call in its own command, in bytes.
pub const SCAN_ID_BYTES_MAX: usize = 64;
/// Most commands of a session or browser manifest.
pub const SESSION_COMMANDS_MAX: usize = 64;
/// Most interactions of a session.
pub const INTERACTIONS_MAX: u64 = 100_000;
/// Longest wait for one interaction's output, in milliseconds.
pub const OUTPUT_WAIT_MS_MAX: u64 = 600_000;
/// Most faults of an output against its schema that are told.
pub const SCHEMA_FAULTS_MAX: usize = 8;

const _: () = assert!(VALUE_BYTES_MAX <= LITERAL_TEXT_BYTES_MAX);
const _: () = assert!(LITERAL_TEXT_BYTES_MAX < ARGV_BYTES_MAX);
const _: () = assert!(EXEC_ELEMENTS_MAX <= ARGV_ENTRIES_MAX);
const _: () = assert!(FILE_BYTES_DEFAULT <= FILE_BYTES_MAX);
