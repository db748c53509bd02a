//! Bounds of the tiers. Unit and bound stand last in each name.

use std::time::Duration;

/// Longest time from the helper's exec to the workload's first instruction.
pub const START_WAIT_MAX: Duration = Duration::from_secs(30);
/// Longest wait for the last process of a worker whose init was killed.
pub const REMOVAL_WAIT_MAX: Duration = Duration::from_secs(10);
/// Most live workers of one root user at a time.
pub const ID_SLOTS_MAX: u32 = 4096;
/// First host id of the range that root's workers use.
pub const ID_FIRST_DEFAULT: u32 = 2_000_000_000;
/// Host ids of one worker: init's and the workload's.
pub const IDS_PER_SLOT: u32 = 2;
/// Largest program file that is hashed.
pub const PROGRAM_BYTES_MAX: u64 = 2 << 30;
/// Bytes of a script's first line that the kernel reads.
pub const FIRST_LINE_BYTES_MAX: usize = 256;
/// Deepest chain of scripts that interpret scripts.
pub const INTERPRETERS_MAX: usize = 4;
/// Most symbolic links on the way to a program.
pub const LINKS_MAX: usize = 40;
/// Most program files whose hashes are kept.
pub const PROGRAMS_CACHED_MAX: usize = 256;
/// A file that changed so recently may change again within one tick of its clock.
pub const SETTLED_AFTER: Duration = Duration::from_secs(2);
/// Least RLIMIT_DATA of an agent where no cgroup bounds its memory: with less it cannot start.
pub const AGENT_DATA_MIB_MIN: u64 = 1024;
/// Bytes that one read of a stream takes.
pub const READ_BYTES: usize = 64 << 10;
/// Attempts to remove a cgroup whose last process has just gone.
pub const GROUP_REMOVALS_MAX: u32 = 1000;
/// Period of a CPU quota, in microseconds.
pub const CPU_PERIOD_MICROS: u64 = 100_000;
/// Least CPU quota that the kernel takes, in microseconds.
pub const CPU_QUOTA_MICROS_MIN: u64 = 1000;
/// Time of a lease besides its worker's own: to create, start and remove the container.
pub const CONTAINER_GRACE: Duration = Duration::from_secs(90);
/// Longest wait for the streams of a container that has ended.
pub const STREAMS_END_MAX: Duration = Duration::from_secs(2);
/// Longest wait for the end of a container that was killed.
pub const STOP_WAIT_MAX: Duration = Duration::from_secs(15);
/// Time in which the host's processes of a removed gVisor container end by themselves.
pub const LEFTOVERS_PATIENCE: Duration = Duration::from_secs(1);
/// Longest wait for one of them that was killed.
pub const LEFTOVERS_WAIT_MAX: Duration = Duration::from_secs(10);
/// Most looks for processes of a removed gVisor container.
pub const LEFTOVERS_ROUNDS_MAX: u32 = 64;
/// Most input files of one container.
pub const INPUTS_MAX: usize = 64;
/// Bytes that are copied at a time.
pub const COPY_BYTES: usize = 64 << 10;
/// Most entries in the folder of a container's fresh output.
pub const FRESH_ENTRIES_MAX: u32 = 256;
/// Room besides twice its size in the folder of a container's fresh output.
pub const FRESH_SLACK_BYTES: u64 = 256 << 10;
/// The part of a container's scratch space that is shared memory: one in so many.
pub const SHM_SHARE: u64 = 16;
/// Inodes of each scratch place of a container.
pub const CONTAINER_SCRATCH_INODES: u64 = 16_384;
/// Open files of a container's process.
pub const CONTAINER_OPEN_FILES_MAX: u64 = 1024;
/// Not 0: with 0 the kernel still runs a core handler that is a program; with 1 it does not.
pub const CONTAINER_CORE_BYTES: u64 = 1;
/// Threads of the host that gVisor may use besides the guest's own processes.
pub const GVISOR_HOST_THREADS_MAX: u64 = 2048;
/// Time of the lease of a probe of an agent's container, in milliseconds.
pub const AGENT_PROBE_MS: u64 = 30_000;
/// Bytes that a probe says through its socket.
pub const PROBE_WORD_BYTES_MAX: u64 = 256;
/// Bytes of a lease's random id.
pub const LEASE_ID_BYTES: usize = 16;
/// Characters of a lease's id.
pub const LEASE_ID_CHARS: usize = 2 * LEASE_ID_BYTES;
/// Longest wait for the container engine to answer a question.
pub const ENGINE_ASK_MAX: Duration = Duration::from_secs(10);
/// Longest wait for the container engine to create a container.
pub const ENGINE_CREATE_MAX: Duration = Duration::from_secs(30);
/// Longest wait for the container engine to start a container.
pub const ENGINE_START_MAX: Duration = Duration::from_secs(30);
/// Longest wait for the container engine to kill a container.
pub const ENGINE_KILL_MAX: Duration = Duration::from_secs(10);
/// Longest wait for the container engine to remove a container.
pub const ENGINE_REMOVE_MAX: Duration = Duration::from_secs(30);
/// Longest wait for the container engine to import an image.
pub const ENGINE_IMPORT_MAX: Duration = Duration::from_secs(600);
/// Bytes of an engine's answer.
pub const ENGINE_ANSWER_BYTES_MAX: usize = 4 << 20;
/// Bytes of the head of an engine's answer.
pub const ENGINE_HEAD_BYTES_MAX: usize = 16 << 10;
/// Header lines of an engine's answer.
pub const ENGINE_HEADERS_MAX: usize = 64;
/// Characters of an engine's message that are told.
pub const ENGINE_MESSAGE_CHARS_MAX: usize = 600;

const _: () = assert!(
    ID_FIRST_DEFAULT
        .checked_add(ID_SLOTS_MAX * IDS_PER_SLOT)
        .is_some()
);
/// Longest time that a probe's worker runs.
pub const PROBE_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a worker runs that a probe stops.
pub const PROBE_STEP_MAX: Duration = Duration::from_millis(200);
/// Longest time from the order to stop to the confirmed removal that a probe lets pass.
pub const PROBE_REMOVAL_MAX: Duration = Duration::from_secs(5);
/// How long a probe waits for the end of what its worker had left behind.
pub const PROBE_GONE_MAX: Duration = Duration::from_secs(1);
