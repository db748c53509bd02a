//! The namespace tier: from a specification to a plan, and from a plan to a live worker.

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};

use model::{CreateMode, Digest};
use sandbox_init::LANDLOCK_ABI_WHOLE;
use sandbox_init::limits::INPUTS_MAX;
use sandbox_init::wire::{
    BoundFile, Bounds, FileStamp, Identity, Input, Output, OutputMode, Plan, Run, ShownFile, Task,
};
use worker::{
    Ending, Enforcement, Limit, Limits, Network, ProgramFile, Running, StartError, Tier, TierKind,
    WorkerRoot, WorkerSpec,
};

use crate::cgroup::{Cgroups, Controller, GroupBounds};
use crate::launch::{Order, launch, sealed};
use crate::limits::{AGENT_DATA_MIB_MIN, ID_FIRST_DEFAULT};
use crate::programs::{Located, ProgramCache, ProgramError, stamp_of};
use crate::running::{Belongings, NamespaceWorker};
use crate::slots::{IdSlot, private_folder};
use crate::{filters, host};

/// First components that a working directory or a shown program must not have.
const RESERVED: [&str; 18] = [
    "bin", "boot", "channel", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "root",
    "run", "sbin", "sys", "tmp", "usr", "var", "",
];

/// What the tier needs to know of its host and its operator's wishes.
#[derive(Debug, Clone)]
pub struct NamespaceConfig {
    /// The helper's file, as [`crate::locate_init`] finds it.
    pub init: PathBuf,
    /// Refuse to work without cgroups that bound memory and CPU.
    pub require_cgroup: bool,
    /// A private folder of this user for lock files; made if it is missing. Root needs one.
    pub locks: Option<PathBuf>,
    /// First host id of the range that root's workers use.
    pub first_id: u32,
    /// Shared with whoever binds programs at preparation.
    pub programs: ProgramCache,
}

impl NamespaceConfig {
    /// The defaults: lock files in `/run/symbi` for root, in `/run/user/UID/symbi` otherwise.
    #[must_use]
    pub fn new(init: PathBuf) -> Self {
        let uid = rustix::process::geteuid();
        let runtime = PathBuf::from(format!("/run/user/{}", uid.as_raw()));
        let locks = if uid.is_root() {
            Some(PathBuf::from("/run/symbi"))
        } else {
            runtime.is_dir().then(|| runtime.join("symbi"))
        };
        Self {
            init,
            require_cgroup: false,
            locks,
            first_id: ID_FIRST_DEFAULT,
            programs: ProgramCache::default(),
        }
    }
}

/// Workers in fresh Linux namespaces, on the kernel alone.
///
/// A worker dies with its owner, and owner means the *thread* that started it: the kernel kills
/// init when that thread ends. Start workers from a thread that outlives them.
///
/// For an agent, sockets in its channel folder must let everybody write (their folder keeps
/// others out), because root's workload has a host id of its own.
///
/// The owner may lower its soft limit of core dumps, but must leave the hard one at 1 or more:
/// a limit of 0 does not keep a core handler from running, 1 does, and init cannot raise it.
#[derive(Debug)]
pub struct NamespaceTier {
    init: PathBuf,
    init_sha256: Digest,
    init_stamp: FileStamp,
    programs: ProgramCache,
    filters: File,
    cgroups: Cgroups,
    ids: Option<IdRange>,
    tag: String,
    started: u64,
}

/// Root's range of host ids.
#[derive(Debug)]
struct IdRange {
    locks: PathBuf,
    first: u32,
}

impl NamespaceTier {
    /// Checks the host and gets ready. Starts no process; [`Self::probe`] does.
    ///
    /// # Errors
    /// [`StartError::Unavailable`] says what is missing and what to do about it.
    pub fn new(config: NamespaceConfig) -> Result<Self, StartError> {
        let is_root = rustix::process::geteuid().is_root();
        host::check(is_root.then_some(config.first_id))?;
        if let Some(locks) = &config.locks {
            private_folder(locks).map_err(|error| {
                unavailable(format!("the lock folder `{}`: {error}", locks.display()))
            })?;
        }
        let ids = match (is_root, config.locks.clone()) {
            (false, _) => None,
            (true, Some(locks)) => Some(IdRange {
                locks,
                first: config.first_id,
            }),
            (true, None) => return Err(unavailable("root's workers need a lock folder".into())),
        };
        let tag = random_tag()?;
        let cgroups = Cgroups::find(tag.clone(), config.locks.as_deref())
            .map_err(|error| unavailable(format!("control groups: {error}")))?;
        let bounds_all = cgroups.can(Controller::Memory) && cgroups.can(Controller::Cpu);
        if config.require_cgroup && !bounds_all {
            return Err(unavailable(
                "no cgroup with memory and cpu is delegated to this process, so those limits \
                 would act only in part; run as root or below a delegated group, or do not \
                 require enforcement"
                    .into(),
            ));
        }
        let filters = filters::compile().map_err(|error| failed("seccomp", error))?;
        let (init_sha256, init_stamp) = hash_init(&config.init)?;
        Ok(Self {
            init_sha256,
            init_stamp,
            init: config.init,
            programs: config.programs,
            filters: sealed("symbi-filters", &filters).map_err(|error| failed("memfd", error))?,
            cgroups,
            ids,
            tag,
            started: 0,
        })
    }

    /// The helper's content.
    #[must_use]
    pub const fn init_sha256(&self) -> Digest {
        self.init_sha256
    }

    /// Makes a whole worker that runs no program, and removes it.
    ///
    /// # Errors
    /// [`StartError`] says why this host cannot run the tier.
    pub fn probe(&mut self) -> Result<(), StartError> {
        let limits = self.enforceable(Limits::wanted(Limits::DEFAULTS));
        let plan = Plan {
            identity: Identity::Caller,
            groups: 0,
            also: Vec::new(),
            working_dir: "/workspace".to_owned(),
            working_dir_writable: false,
            channel: None,
            program_file: None,
            inputs: Vec::new(),
            output: None,
            bounds: self.bounds(&limits, false),
            task: Task::Probe,
        };
        let mut worker = self.run(plan, Given::default(), &limits)?;
        let ended = loop {
            let mut polled = Vec::new();
            worker.poll_descriptors(&mut polled);
            rustix::event::poll(&mut polled, None).map_err(|error| failed("poll", error))?;
            drop(polled);
            if let Some(ended) = worker.advance() {
                break ended;
            }
        };
        worker
            .remove()
            .map_err(|error| failed("remove the probe", error))?;
        match ended.ending {
            Ending::Exited { code: 0 } => Ok(()),
            other => Err(failed("probe", format!("{other:?}"))),
        }
    }

    /// Starts the worker of a plan, with an identity and groups of its own.
    fn run(
        &mut self,
        mut plan: Plan,
        given: Given,
        limits: &Limits,
    ) -> Result<NamespaceWorker, StartError> {
        self.check_init()?;
        let slot = self
            .ids
            .as_ref()
            .map(|range| IdSlot::take(&range.locks, range.first));
        let slot = slot
            .transpose()
            .map_err(|error| failed("worker ids", error))?;
        if let Some(slot) = &slot {
            plan.identity = Identity::Range {
                first: slot.first(),
            };
        }
        let bounds = GroupBounds {
            memory_mib: limits.memory_mib.value,
            cpu_milli: limits.cpu_milli.value,
            pids: limits.pids.value,
        };
        self.started += 1;
        let groups = self
            .cgroups
            .create(self.started, bounds)
            .map_err(|error| failed("make a cgroup", error))?;
        let members = groups
            .open_members()
            .map_err(|error| failed("open a cgroup", error))?;
        plan.groups = u32::try_from(members.len()).unwrap_or(u32::MAX);
        let launched = launch(&Order {
            init: &self.init,
            plan: &plan,
            filters: std::os::fd::AsFd::as_fd(&self.filters),
            groups: &members,
            inputs: &given.inputs,
            stdin: given.stdin.as_ref(),
        });
        let launched = launched.map_err(|error| match groups.ran_out_of_memory() {
            true => failed(
                "memory",
                format!(
                    "{} MiB do not hold the worker and its files",
                    limits.memory_mib.value
                ),
            ),
            false => error,
        })?;
        let belongings = Belongings {
            name: format!("namespace-{}-{}", self.tag, self.started),
            call_digest: given.call_digest,
            groups,
            slot,
            stream_bytes: limits.stream_bytes.value,
            has_output: plan.output.is_some(),
        };
        Ok(NamespaceWorker::new(launched, belongings))
    }

    /// The helper must still be the one whose hash the operator was told.
    fn check_init(&self) -> Result<(), StartError> {
        match std::fs::metadata(&self.init) {
            Ok(found) if stamp_of(&found) == self.init_stamp => Ok(()),
            _ => Err(unavailable(format!(
                "the helper `{}` was replaced while this process runs; start it again",
                self.init.display()
            ))),
        }
    }

    fn bounds(&self, limits: &Limits, is_agent: bool) -> Bounds {
        let memory_mib = match is_agent {
            true => limits.memory_mib.value.max(AGENT_DATA_MIB_MIN),
            false => limits.memory_mib.value,
        };
        // A whole worker's CPU time, as if one process used it all.
        let cpu_millis = u128::from(limits.time_ms.value) * u128::from(limits.cpu_milli.value);
        let cpu_seconds = u64::try_from(cpu_millis.div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let without = |controller| !self.cgroups.can(controller);
        Bounds {
            processes: limits.pids.value,
            file_bytes: limits.file_bytes.value,
            scratch_bytes: limits.scratch_bytes.value,
            data_bytes: without(Controller::Memory).then_some(memory_mib.saturating_mul(1 << 20)),
            cpu_seconds: without(Controller::Cpu).then_some(cpu_seconds.max(1)),
            landlock_whole: sandbox_init::landlock_abi() >= LANDLOCK_ABI_WHOLE,
        }
    }

    /// The files of the program and of the shown file, if they still are the authorized ones.
    fn check_programs(&self, spec: &WorkerSpec) -> Result<Checked, StartError> {
        let root = spec.root();
        let mut checked = Checked::default();
        if let Some((identity, host)) = spec.shown() {
            check_place("shown file's path", &identity.path)?;
            let located = self.programs.locate_file(host, &identity.path, root);
            let mut files = unchanged(located, identity)?.into_iter();
            // Init compares this one where it opens it.
            let own = files
                .next()
                .ok_or_else(|| failed("program", "it has no file"))?;
            checked.shown = Some(ShownFile {
                host: text_of(host)?,
                path: own.path,
                stamp: own.stamp,
            });
            checked.files.extend(files);
            if Some(identity) == spec.program().file() {
                return Ok(checked);
            }
        }
        let Some(program) = spec.program().file() else {
            return Err(failed("program", "this tier runs no image"));
        };
        let located = self.programs.locate_path(&program.path, root);
        checked.files.extend(unchanged(located, program)?);
        Ok(checked)
    }

    fn plan(&self, spec: &WorkerSpec, checked: Checked) -> Result<Plan, StartError> {
        let WorkerRoot::System { also } = spec.root() else {
            return Err(unavailable(
                "this tier shows a root of the system only".into(),
            ));
        };
        if spec.network() != Network::None {
            return Err(unavailable("this tier has no network to give".into()));
        }
        let working_dir = spec.working_dir();
        check_place("working directory", working_dir)?;
        for folder in also {
            check_folder(folder)?;
        }
        let is_agent = spec.channel().is_some();
        let below = |path: &model::RelativePath| format!("{working_dir}/{path}");
        let inputs = spec.inputs().iter().map(|input| Input {
            path: below(&input.path),
            bytes: input.bytes,
        });
        let output = spec.output().map(|output| Output {
            path: below(&output.path),
            mode: match output.mode {
                CreateMode::File => OutputMode::File,
                CreateMode::Fresh => OutputMode::Fresh,
            },
        });
        let environment = spec
            .environment()
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        Ok(Plan {
            identity: Identity::Caller,
            groups: 0,
            also: also.clone(),
            working_dir: working_dir.to_owned(),
            working_dir_writable: is_agent,
            channel: spec.channel().map(|path| text_of(path)).transpose()?,
            program_file: checked.shown,
            inputs: inputs.collect(),
            output,
            bounds: self.bounds(spec.limits(), is_agent),
            task: Task::Run(Run {
                program: spec.program().path().to_owned(),
                argv: spec.argv().to_vec(),
                environment: environment.collect(),
                bound: checked.files,
            }),
        })
    }
}

impl Tier for NamespaceTier {
    fn kind(&self) -> TierKind {
        TierKind::Namespace
    }

    fn enforceable(&self, wanted: Limits) -> Limits {
        let as_is = |limit: Limit, enforcement| Limit {
            value: limit.value,
            enforcement,
        };
        let whole = |limit| as_is(limit, Enforcement::Enforced);
        let by_group = |limit, controller| match self.cgroups.can(controller) {
            true => as_is(limit, Enforcement::Enforced),
            false => as_is(limit, Enforcement::Partly),
        };
        Limits {
            memory_mib: by_group(wanted.memory_mib, Controller::Memory),
            cpu_milli: by_group(wanted.cpu_milli, Controller::Cpu),
            // RLIMIT_NPROC in a user namespace of its own counts this worker alone.
            pids: whole(wanted.pids),
            file_bytes: whole(wanted.file_bytes),
            scratch_bytes: whole(wanted.scratch_bytes),
            stream_bytes: whole(wanted.stream_bytes),
            time_ms: whole(wanted.time_ms),
            landlock: match sandbox_init::landlock_abi() {
                0 => Enforcement::NotEnforced,
                abi if abi < LANDLOCK_ABI_WHOLE => Enforcement::Partly,
                _ => Enforcement::Enforced,
            },
        }
    }

    fn start(&mut self, spec: WorkerSpec) -> Result<Box<dyn Running>, StartError> {
        if self.enforceable(spec.limits().clone()) != *spec.limits() {
            return Err(failed(
                "limits",
                "the descriptor promises another enforcement than this host has",
            ));
        }
        if spec.inputs().len() > INPUTS_MAX {
            return Err(failed("inputs", "there are too many"));
        }
        let checked = self.check_programs(&spec)?;
        let plan = self.plan(&spec, checked)?;
        let inputs = spec.inputs().iter().map(|input| input.content.try_clone());
        let inputs = inputs.collect::<Result<Vec<_>, _>>();
        let inputs = inputs.map_err(|error| failed("inputs", error))?;
        let stdin = spec.stdin().map(File::try_clone).transpose();
        let given = Given {
            call_digest: spec.call_digest(),
            inputs,
            stdin: stdin.map_err(|error| failed("standard input", error))?,
        };
        Ok(Box::new(self.run(plan, given, spec.limits())?))
    }
}

/// What a worker gets besides its plan.
struct Given {
    call_digest: Digest,
    inputs: Vec<File>,
    stdin: Option<File>,
}

impl Default for Given {
    /// The probe's: it serves no call.
    fn default() -> Self {
        Self {
            call_digest: Digest::of(b""),
            inputs: Vec::new(),
            stdin: None,
        }
    }
}

/// What a worker's programs are on the host, compared with the descriptor.
#[derive(Default)]
struct Checked {
    files: Vec<BoundFile>,
    shown: Option<ShownFile>,
}

fn unchanged(
    located: Result<Located, ProgramError>,
    bound: &ProgramFile,
) -> Result<Vec<BoundFile>, StartError> {
    match located {
        Ok(located) if located.identity == *bound => Ok(located.files),
        Err(ProgramError::Root) => Err(unavailable(
            "this tier shows a root of the system only; `rootfs` is not supported yet".into(),
        )),
        Ok(_) | Err(_) => Err(StartError::ProgramChanged {
            path: bound.path.clone(),
        }),
    }
}

fn unavailable(reason: String) -> StartError {
    StartError::Unavailable { reason }
}

fn failed(step: &str, error: impl ToString) -> StartError {
    StartError::Failed {
        step: step.to_owned(),
        reason: error.to_string(),
    }
}

fn text_of(path: &Path) -> Result<String, StartError> {
    match path.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(failed("path", format!("`{}` is not UTF-8", path.display()))),
    }
}

fn is_canonical(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|rest| {
        let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
        rest.split('/').all(plain)
    })
}

/// A place of the worker that is none of the root's own.
fn check_place(what: &str, path: &str) -> Result<(), StartError> {
    let first = path.split('/').nth(1).unwrap_or_default();
    if is_canonical(path) && !RESERVED.contains(&first) {
        return Ok(());
    }
    Err(failed(
        what,
        format!("`{path}` is not an absolute path outside of the worker's system folders"),
    ))
}

fn check_folder(path: &str) -> Result<(), StartError> {
    let first = path.split('/').nth(1).unwrap_or_default();
    let own = [
        "channel", "dev", "etc", "proc", "root", "run", "sys", "tmp", "var",
    ];
    if is_canonical(path) && !own.contains(&first) {
        return Ok(());
    }
    Err(failed(
        "system folders",
        format!("`{path}` cannot be shown in a worker"),
    ))
}

/// The helper's hash and state.
fn hash_init(path: &Path) -> Result<(Digest, FileStamp), StartError> {
    // An unreadable helper also could not have its ids mapped.
    let read = || {
        let stamp = stamp_of(&std::fs::metadata(path)?);
        Ok((Digest::of(&std::fs::read(path)?), stamp))
    };
    read().map_err(|error: std::io::Error| {
        unavailable(format!(
            "the helper `{}` must be readable by this user: {error}",
            path.display()
        ))
    })
}

fn random_tag() -> Result<String, StartError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| failed("random", error))?;
    let mut tag = String::new();
    for byte in bytes {
        // Writing to a text cannot fail.
        let _written = write!(tag, "{byte:02x}");
    }
    Ok(tag)
}
