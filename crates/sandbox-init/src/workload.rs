//! From init's child to the program: everything is given up, then everything is locked.

use std::ffi::CString;
use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;

use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope,
};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};
use rustix::thread::{CapabilitySet, CapabilitySets, Gid, Uid};

use crate::bootstrap::Gifts;
use crate::files::{WORKLOAD_ID, writable_folders};
use crate::halt::{At, Halt};
use crate::limits::{
    CORE_BYTES_MAX, LOCKED_BYTES_MAX, OPEN_FILES_MAX, PENDING_SIGNALS_MAX, STACK_BYTES_MAX,
};
use crate::sys;
use crate::wire::{Bounds, Identity, OutputMode, Plan, Run, Speaker, Task};

/// The Landlock features that the rules use.
const LANDLOCK: ABI = ABI::V6;

/// Becomes the program, or says through `errors` why not.
pub(crate) fn run(plan: &Plan, gifts: &Gifts, mut errors: fs::File) -> ! {
    let Err(halt) = become_program(plan, gifts) else {
        sys::exit(0)
    };
    if let Some(Ok(bytes)) = halt.reply(Speaker::Workload).map(|reply| reply.encode()) {
        // Where even this fails, init sees a workload that ended with 126.
        let _told = errors.write_all(&bytes);
    }
    sys::exit(126)
}

fn become_program(plan: &Plan, gifts: &Gifts) -> Result<(), Halt> {
    rustix::process::setsid().at("setsid")?;
    rustix::stdio::dup2_stdin(&gifts.stdin).at("stdin")?;
    rustix::stdio::dup2_stdout(&gifts.stdout).at("stdout")?;
    rustix::stdio::dup2_stderr(&gifts.stderr).at("stderr")?;
    // Of all processes of a worker the kernel shall take these first, never init. The file is
    // only ours to write while we can be dumped; nothing untrusted runs before exec says so too.
    set_dumpable_behavior(DumpableBehavior::Dumpable).at("dumpable")?;
    fs::write("/proc/self/oom_score_adj", "1000").at("oom_score_adj")?;
    set_limits(plan)?;
    drop_privileges(plan.identity)?;
    restrict_files(plan)?;
    rustix::process::chdir(plan.working_dir.as_str()).at("enter the working directory")?;
    let prepared = match &plan.task {
        Task::Probe => None,
        Task::Run(run) => Some(Prepared::of(run)?),
    };
    sys::reset_signals().at("reset signals")?;
    sys::close_at_exec().at("close descriptors")?;
    for filter in &gifts.filters {
        sys::load_filter(filter).at("seccomp")?;
    }
    match prepared {
        None => Ok(()),
        Some(it) => Err(sys::execute(&it.program, &it.argv, &it.environment))
            .at_path("execute", &it.program.to_string_lossy()),
    }
}

/// The program's texts as the kernel takes them.
struct Prepared {
    program: CString,
    argv: Vec<CString>,
    environment: Vec<CString>,
}

impl Prepared {
    fn of(run: &Run) -> Result<Self, Halt> {
        let one = |text: &String| {
            CString::new(text.as_str()).map_err(|_| Halt::step("an argument has a zero byte"))
        };
        Ok(Self {
            program: one(&run.program)?,
            argv: run.argv.iter().map(one).collect::<Result<_, _>>()?,
            environment: run.environment.iter().map(one).collect::<Result<_, _>>()?,
        })
    }
}

fn set_limits(plan: &Plan) -> Result<(), Halt> {
    let Bounds {
        processes,
        file_bytes,
        scratch_bytes: _,
        data_bytes,
        cpu_seconds,
        landlock_whole: _,
    } = plan.bounds;
    // An ordinary user's init has the workload's own id and is counted with it.
    let processes = match plan.identity {
        Identity::Range { .. } => processes,
        Identity::Caller => processes.saturating_add(1),
    };
    let hard = [
        (Resource::Core, CORE_BYTES_MAX),
        (Resource::Fsize, file_bytes),
        (Resource::Nofile, OPEN_FILES_MAX),
        (Resource::Nproc, processes),
        (Resource::Memlock, LOCKED_BYTES_MAX),
        (Resource::Sigpending, PENDING_SIGNALS_MAX),
        (Resource::Msgqueue, 0),
        (Resource::Nice, 0),
        (Resource::Rtprio, 0),
        (Resource::Stack, STACK_BYTES_MAX),
    ];
    for (resource, value) in hard {
        limit(resource, value, value)?;
    }
    if let Some(value) = data_bytes {
        limit(Resource::Data, value, value)?;
    }
    if let Some(value) = cpu_seconds {
        // SIGXCPU first, so that the end can be told from a kill.
        limit(Resource::Cpu, value, value.saturating_add(1))?;
    }
    Ok(())
}

/// Sets a limit, or leaves a lower one that is there.
fn limit(resource: Resource, soft: u64, hard: u64) -> Result<(), Halt> {
    let ceiling = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let wanted = Rlimit {
        current: Some(soft.min(ceiling)),
        maximum: Some(hard.min(ceiling)),
    };
    setrlimit(resource, wanted).at_path("setrlimit", &format!("{resource:?}"))
}

fn drop_privileges(identity: Identity) -> Result<(), Halt> {
    for bit in 0..64 {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        if rustix::thread::capability_is_in_bounding_set(one).unwrap_or(false) {
            rustix::thread::remove_capability_from_bounding_set(one).at("bounding set")?;
        }
    }
    rustix::thread::clear_ambient_capability_set().at("ambient set")?;
    if let Identity::Range { .. } = identity {
        let (uid, gid) = (Uid::from_raw(WORKLOAD_ID), Gid::from_raw(WORKLOAD_ID));
        rustix::thread::set_thread_res_gid(gid, gid, gid).at("setresgid")?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).at("setresuid")?;
    }
    keep_capabilities(CapabilitySet::empty())?;
    rustix::thread::set_no_new_privs(true).at("no_new_privs")
}

/// Drops every capability of this process but `kept`.
pub(crate) fn keep_capabilities(kept: CapabilitySet) -> Result<(), Halt> {
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets).at("capset")
}

/// Read everything that is seen, write only where this worker may, signal only one's own.
fn restrict_files(plan: &Plan) -> Result<(), Halt> {
    let locked = lock(plan).map_err(|error| Halt::step(format!("landlock: {error}")))?;
    match locked {
        RulesetStatus::FullyEnforced => Ok(()),
        RulesetStatus::PartiallyEnforced if !plan.bounds.landlock_whole => Ok(()),
        _ => Err(Halt::step("landlock did not act")),
    }
}

fn lock(plan: &Plan) -> Result<RulesetStatus, Box<dyn std::error::Error>> {
    let all = AccessFs::from_all(LANDLOCK);
    let folder = all & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::Execute);
    let file = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
    let mut rules: Vec<(&str, BitFlags<AccessFs>)> = vec![("/", AccessFs::from_read(LANDLOCK))];
    rules.extend(
        writable_folders(plan)
            .into_iter()
            .map(|path| (path, folder)),
    );
    rules.extend(["/dev/null", "/dev/zero", "/dev/full"].map(|path| (path, file)));
    match &plan.output {
        Some(output) if output.mode == OutputMode::File => rules.push((&output.path, file)),
        _ => {}
    }
    let mut ruleset = Ruleset::default()
        .handle_access(all)?
        .scope(Scope::from_all(LANDLOCK))?
        .create()?;
    for (path, access) in rules {
        ruleset = ruleset.add_rule(PathBeneath::new(PathFd::new(path)?, access))?;
    }
    Ok(ruleset.restrict_self()?.ruleset)
}

/// Leaves init with nothing of the owner's: the control socket alone is kept.
pub(crate) fn replace_stdio(gifts: &Gifts) -> io::Result<()> {
    rustix::stdio::dup2_stdout(gifts.stdin.as_fd())?;
    rustix::stdio::dup2_stderr(gifts.stdin.as_fd())?;
    Ok(())
}
