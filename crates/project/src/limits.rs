//! Bounds of what an operator's files may hold. Unit and bound stand last in each name.

use worker::limits::{
    CPU_MILLI_DEFAULT, MEMORY_MIB_DEFAULT, PIDS_DEFAULT, SCRATCH_BYTES_DEFAULT,
    STREAM_BYTES_DEFAULT, TIME_MS_DEFAULT,
};

/// Largest control file, in bytes.
pub const CONTROL_FILE_BYTES_MAX: u64 = 1 << 20;
/// Most control files of one project.
pub const CONTROL_FILES_MAX: usize = 512;
/// Most bytes of all control files of one project.
pub const CONTROL_TOTAL_BYTES_MAX: u64 = 8 << 20;
/// Most entries of one folder that is listed for control files.
pub const FOLDER_ENTRIES_MAX: usize = 8192;
/// Largest `$XDG_CONFIG_HOME/symbi/config.toml`, in bytes.
pub const USER_CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Largest trust record, in bytes: JSON writes a control character as six bytes.
pub const TRUST_RECORD_BYTES_MAX: u64 = 64 << 20;
/// Largest file that holds a provider's key, in bytes.
pub const KEY_FILE_BYTES_MAX: u64 = 16 << 10;
/// Longest name of a tool for Claude Code, in bytes: it puts `mcp__symbi__` before it, and the
/// API takes names of 128 (`^[a-zA-Z0-9_-]{1,128}$`).
pub const CLAUDE_CODE_TOOL_NAME_BYTES_MAX: usize = 128 - "mcp__symbi__".len();
/// Largest `.symbiont/id`, in bytes.
pub const ID_FILE_BYTES_MAX: u64 = 64;
/// Lines that are compared one by one for a diff: the product of both sides' changed parts.
pub const DIFF_CELLS_MAX: usize = 4 << 20;
/// Faults of one text that are reported; the rest is counted.
pub const FAULTS_MAX: usize = 32;
/// Longest message of one fault, in characters.
pub const FAULT_CHARS_MAX: usize = 1024;
/// Lines of the changes that a refused command shows; `symbi trust` shows all.
pub const BRIEF_LINES_MAX: usize = 200;
/// Bytes of the changes that a refused command shows.
pub const BRIEF_BYTES_MAX: usize = 16 << 10;
/// Attempts to lock a new run's folder while a sweep looks at it.
pub const RUN_FOLDER_LOCK_ATTEMPTS_MAX: u32 = 100;
/// Folders below a run's folder that a sweep goes into, one in the other.
pub const RUN_FOLDER_DEPTH_MAX: u32 = 2;
/// Unchanged lines shown around a change.
pub const DIFF_CONTEXT_LINES: usize = 3;

/// Memory of a worker, in MiB.
pub const MEMORY_MIB_MIN: u64 = 16;
pub const MEMORY_MIB_MAX: u64 = 1 << 20;
/// CPU share, in thousandths of one CPU.
pub const CPU_MILLI_MIN: u64 = 10;
pub const CPU_MILLI_MAX: u64 = 1_024_000;
/// Processes and threads of a worker.
pub const PIDS_MIN: u64 = 1;
pub const PIDS_MAX: u64 = 32_768;
/// Time limit of a command, in seconds.
pub const EXECUTION_SECONDS_MAX: u64 = 86_400;
/// Bound of each of stdout and stderr, in bytes.
pub const STREAM_BYTES_MAX: u64 = 64 << 20;
/// Size of the scratch file system, in MiB.
pub const SCRATCH_MIB_MAX: u64 = 64 << 10;

/// Most volumes of one tier.
pub const VOLUMES_MAX: usize = 32;
/// Most output parsers that a project allows.
pub const PARSERS_MAX: usize = 64;
/// Most folders that `system` may list.
pub const SYSTEM_FOLDERS_MAX: usize = 32;
/// Most agents of one project.
pub const AGENTS_MAX: usize = 64;
/// Most tools that one agent may be allowed.
pub const ALLOWED_TOOLS_MAX: usize = 256;
/// Most words of one command.
pub const COMMAND_WORDS_MAX: usize = 256;
/// Longest word of a command or value of a variable, in bytes.
pub const WORD_BYTES_MAX: usize = 32 << 10;
/// Most environment variables of one agent.
pub const ENVIRONMENT_MAX: usize = 64;
/// Longest name of a project, provider, anchor, model or variable, in bytes.
pub const LABEL_BYTES_MAX: usize = 128;
/// Most turns that an agent may be told to take.
pub const TURNS_MAX: u64 = 10_000;

/// Requests of one run to the model provider.
pub const INFERENCE_REQUESTS_DEFAULT: u64 = 64;
pub const INFERENCE_REQUESTS_MAX: u64 = 1_000;
/// Output tokens of one request.
pub const OUTPUT_TOKENS_DEFAULT: u64 = 8192;
pub const OUTPUT_TOKENS_MAX: u64 = 128_000;
/// Output tokens of one run.
pub const TOTAL_OUTPUT_TOKENS_MAX: u64 = OUTPUT_TOKENS_MAX * INFERENCE_REQUESTS_MAX;
/// Most beta headers.
pub const BETA_HEADERS_MAX: usize = 32;
/// Longest base URL of a provider, in bytes.
pub const BASE_URL_BYTES_MAX: usize = 2048;
/// Most providers, and most anchors, of one user.
pub const USER_ENTRIES_MAX: usize = 64;

/// Most container workers that a user may allow at a time.
pub const CAPACITY_WORKERS_MAX: u64 = 256;
/// Most CPU share of all of them, in thousandths of one CPU.
pub const CAPACITY_CPU_MILLI_MAX: u64 = CAPACITY_WORKERS_MAX * CPU_MILLI_MAX;
/// Most memory of all of them, in MiB.
pub const CAPACITY_MEMORY_MIB_MAX: u64 = CAPACITY_WORKERS_MAX * MEMORY_MIB_MAX;
/// Most staging space, in MiB.
pub const CAPACITY_STAGING_MIB_MAX: u64 = 1 << 20;

/// Most senders that may answer in one chat.
pub const CHAT_SENDERS_MAX: usize = 256;

/// How long a held call waits for a person, in seconds.
pub const APPROVAL_SECONDS_DEFAULT: u64 = 300;
pub const APPROVAL_SECONDS_MAX: u64 = 86_400;
/// Calls of one tool that a run may hold for a person in one hour.
pub const HOLDS_PER_HOUR_DEFAULT: u64 = 8;
pub const HOLDS_PER_HOUR_MAX: u64 = 10_000;
/// Longest name of an operator, in bytes.
pub const OPERATOR_BYTES_MAX: usize = 64;
/// Most keys of one operator.
pub const OPERATOR_KEYS_MAX: usize = 16;
/// Most operators that must sign.
pub const REQUIRE_MAX: u64 = 8;

const _: () = assert!(CONTROL_FILE_BYTES_MAX <= CONTROL_TOTAL_BYTES_MAX);
const _: () = assert!(CONTROL_TOTAL_BYTES_MAX * 6 + (8 << 20) <= TRUST_RECORD_BYTES_MAX);
const _: () = assert!(CONTROL_FILES_MAX * 8192 <= 8 << 20);
const _: () = assert!(TOTAL_OUTPUT_TOKENS_MAX < 1 << 53);
const _: () = assert!(MEMORY_MIB_MIN <= MEMORY_MIB_DEFAULT && MEMORY_MIB_DEFAULT <= MEMORY_MIB_MAX);
const _: () = assert!(CPU_MILLI_MIN <= CPU_MILLI_DEFAULT && CPU_MILLI_DEFAULT <= CPU_MILLI_MAX);
const _: () = assert!(worker::limits::CAPACITY_WORKERS_DEFAULT <= CAPACITY_WORKERS_MAX);
const _: () = assert!(worker::limits::CAPACITY_CPU_MILLI_DEFAULT <= CAPACITY_CPU_MILLI_MAX);
const _: () = assert!(worker::limits::CAPACITY_MEMORY_MIB_DEFAULT <= CAPACITY_MEMORY_MIB_MAX);
const _: () = assert!(worker::limits::CAPACITY_STAGING_MIB_DEFAULT <= CAPACITY_STAGING_MIB_MAX);
const _: () = assert!(PIDS_MIN <= PIDS_DEFAULT && PIDS_DEFAULT <= PIDS_MAX);
const _: () = assert!(TIME_MS_DEFAULT <= EXECUTION_SECONDS_MAX * 1000);
const _: () = assert!(STREAM_BYTES_DEFAULT <= STREAM_BYTES_MAX);
const _: () = assert!(SCRATCH_BYTES_DEFAULT <= SCRATCH_MIB_MAX << 20);
