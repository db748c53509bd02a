//! Bounds of the helper. Unit and bound stand last in each name.

use std::time::Duration;

/// Largest encoded plan. An argument vector of the kernel's own bound fits beside the files.
pub const PLAN_BYTES_MAX: usize = 4 << 20;
/// Largest encoded reply.
pub const REPLY_BYTES_MAX: usize = 4096;
/// Most items of any list in a plan.
pub const LIST_ITEMS_MAX: usize = 65_536;
/// Longest text that a reply quotes.
pub const REASON_BYTES_MAX: usize = 1024;
/// Most descriptors in one message (the kernel takes at most 253).
pub const DESCRIPTORS_MAX: usize = 128;
/// Descriptors that every message has: plan, filters, stdin, stdout, stderr.
pub const DESCRIPTORS_FIXED: usize = 5;
/// Most input files of one worker.
pub const INPUTS_MAX: usize = 64;
/// Most cgroup descriptors.
pub const GROUPS_MAX: usize = 8;
/// Largest encoded set of seccomp filters.
pub const FILTER_BYTES_MAX: usize = 256 << 10;
/// Longest instruction list of one seccomp filter (the kernel's BPF_MAXINSNS).
pub const FILTER_INSTRUCTIONS_MAX: usize = 4096;

/// Size of the root file system besides its inputs.
pub(crate) const ROOT_BYTES: u64 = 1 << 20;
/// Inodes of the root file system.
pub(crate) const ROOT_INODES: u64 = 4096;
/// Inodes of the scratch file system.
pub(crate) const SCRATCH_INODES: u64 = 16_384;
/// Inodes of the folder of a fresh output.
pub(crate) const FRESH_INODES: u64 = 1024;
/// Room besides file contents in the small file systems.
pub(crate) const SLACK_BYTES: u64 = 256 << 10;
/// Open files of the workload.
pub(crate) const OPEN_FILES_MAX: u64 = 1024;
/// Locked memory of the workload.
pub(crate) const LOCKED_BYTES_MAX: u64 = 64 << 10;
/// Queued signals of the workload.
pub(crate) const PENDING_SIGNALS_MAX: u64 = 256;
/// Stack of the workload's first thread.
pub(crate) const STACK_BYTES_MAX: u64 = 8 << 20;
/// Not 0: with 0 the kernel still runs a core handler that is a program; with 1 it does not.
pub(crate) const CORE_BYTES_MAX: u64 = 1;

const _: () = assert!(DESCRIPTORS_FIXED + GROUPS_MAX + INPUTS_MAX <= DESCRIPTORS_MAX);
const _: () = assert!(REASON_BYTES_MAX < REPLY_BYTES_MAX / 2);

/// How long a probe waits for a listener that it must not reach.
pub(crate) const PROBE_CONNECT_MAX: Duration = Duration::from_millis(500);
/// How long a probe lives that waits to be ended.
pub(crate) const PROBE_LIFE_MAX: Duration = Duration::from_secs(60);
/// Most processes that a worker of one probe may see: init, itself, and what a tier adds.
pub(crate) const PROBE_PROCESSES_SEEN_MAX: usize = 4;
