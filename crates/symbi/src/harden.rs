//! What the process does to itself first: it holds keys and credentials, so that no core file of
//! it is written and no other process of its user may read its memory.

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};

/// Forbids core files and `ptrace`. The hard limit stays: workers need it to be at least 1.
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
}

/// Lets processes of the same user see which namespaces this one is in, and no more than an
/// ordinary process does: a run's gate looks at who answers. Such a process holds no secret.
pub(crate) fn let_runs_look() {
    let _ = set_dumpable_behavior(DumpableBehavior::Dumpable);
}
