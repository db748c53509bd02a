//! Default and outer bounds of one worker. Unit and bound stand last in each name.

/// Most input files of one call.
pub const INPUTS_MAX: usize = 32;
/// Most bytes of all inputs of one call.
pub const INPUTS_BYTES_MAX: u64 = 32 << 20;
/// Default bound of each input and of the output.
pub const FILE_BYTES_DEFAULT: u64 = 8 << 20;
/// Highest bound of a file that a manifest may set.
pub const FILE_BYTES_MAX: u64 = 16 << 20;
/// Default memory of a worker.
pub const MEMORY_MIB_DEFAULT: u64 = 512;
/// Default processes and threads of a worker.
pub const PIDS_DEFAULT: u64 = 64;
/// Default CPU share in thousandths of one CPU.
pub const CPU_MILLI_DEFAULT: u64 = 1000;
/// Default largest file that a worker may write in its scratch space.
pub const SCRATCH_FILE_BYTES_DEFAULT: u64 = 64 << 20;
/// Default size of the scratch file system.
pub const SCRATCH_BYTES_DEFAULT: u64 = 64 << 20;
/// Default time limit of a command.
pub const TIME_MS_DEFAULT: u64 = 30_000;
/// Default bound of each of stdout and stderr.
pub const STREAM_BYTES_DEFAULT: u64 = 8 << 20;

/// Default of container workers that all processes of one user may have at a time.
pub const CAPACITY_WORKERS_DEFAULT: u64 = 8;
/// Default CPU share of all these workers together, in thousandths of one CPU.
pub const CAPACITY_CPU_MILLI_DEFAULT: u64 = 8_000;
/// Default memory of all these workers together.
pub const CAPACITY_MEMORY_MIB_DEFAULT: u64 = 8_192;
/// Default space of all private copies of files that live calls of one user hold.
pub const CAPACITY_STAGING_MIB_DEFAULT: u64 = 1_024;

const _: () = assert!(FILE_BYTES_DEFAULT <= FILE_BYTES_MAX && FILE_BYTES_MAX <= INPUTS_BYTES_MAX);
const _: () = assert!(FILE_BYTES_MAX <= SCRATCH_FILE_BYTES_DEFAULT);
