//! What the process does to itself first: it holds keys and credentials, so that no core file of
//! it is written and no other process of its user may read its memory.

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, getrlimit, set_dumpable_behavior, setrlimit,
};
use tokio::signal::unix::{SignalKind, signal};

/// Forbids core files and `ptrace`, and makes a file that may not grow an error of its write. The
/// hard limit stays: workers need it to be at least 1.
pub(crate) fn harden() {
    let hard = getrlimit(Resource::Core).maximum;
    // Neither call can fail on a kernel that runs workers, and a refusal would change nothing
    // for the worker: there is nobody to tell.
    let _ = setrlimit(
        Resource::Core,
        Rlimit {
            current: Some(0),
            maximum: hard,
        },
    );
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    outlive_file_limits();
}

/// From now on a write past `RLIMIT_FSIZE` fails with `EFBIG` instead of ending this process amid
/// a run. The signal is caught and not ignored, so that no program we execute inherits that.
fn outlive_file_limits() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build();
    // Without it such a limit ends the process, as before: no promise rests on it.
    if let Ok(runtime) = runtime {
        let _inside = runtime.enter();
        let _ = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()));
    }
}

/// Lets processes of the same user see which namespaces this one is in, and no more than an
/// ordinary process does: a run's gate looks at who answers. Such a process holds no secret.
pub(crate) fn let_runs_look() {
    let _ = set_dumpable_behavior(DumpableBehavior::Dumpable);
}
