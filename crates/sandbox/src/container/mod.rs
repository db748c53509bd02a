//! The container tiers: a fresh container of a local engine for each worker, with the engine's
//! own runtime or with gVisor.
//!
//! A container is created stopped, compared with what was asked for, attached to, started, waited
//! for, and removed. Nothing is pulled, nothing of the image but its files counts, and nothing of
//! the host is shown but the call's own files.

mod claim;
mod compare;
mod leftovers;
mod probe;
mod request;
mod running;
mod sight;
mod staging;
mod watch;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use worker::{
    Enforcement, Limit, Limits, Network, Running, StartError, Tier, TierKind, WorkerRoot,
    WorkerSpec,
};

use crate::engine::{ContainerCreate, Engine, EngineError, EngineInfo, ImageInspect};
use crate::lease::{LeaseKeeper, LeaseRefused, LeaseTerms};
use crate::limits::{CONTAINER_GRACE, INPUTS_MAX};
use claim::{Claim, SharedKeeper};
pub(crate) use probe::SOCKETS_NEED;
use request::Wish;
use running::ContainerWorker;
use staging::Staged;

/// The runtime of the tier `gvisor`, as the engine is configured to call it.
const GVISOR_RUNTIME: &str = "runsc";

/// The step at which it shows that a program cannot be run in its image.
pub(crate) const RUN_PROGRAM: &str = "run the program";

/// What runs a container's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerKind {
    /// The engine's own runtime: the host's kernel, behind namespaces and filters.
    Docker,
    /// gVisor: a kernel of its own in user space.
    Gvisor,
}

impl ContainerKind {
    #[must_use]
    pub const fn tier(self) -> TierKind {
        match self {
            Self::Docker => TierKind::Docker,
            Self::Gvisor => TierKind::Gvisor,
        }
    }
}

/// What a container tier needs to know.
#[derive(Debug, Clone)]
pub struct ContainerSpec {
    pub kind: ContainerKind,
    /// The engine's unix socket.
    pub socket: PathBuf,
    /// A name or an id of an image that the engine already has.
    pub image: String,
    /// The workload's ids. Never 0.
    pub user: (u32, u32),
    /// An absolute private folder of this user, for what workers are shown.
    pub staging: PathBuf,
}

/// Workers in fresh containers of a local engine.
pub struct ContainerTier {
    kind: ContainerKind,
    engine: Engine,
    info: EngineInfo,
    runtime: String,
    image: ImageInspect,
    user: (u32, u32),
    staging: PathBuf,
    keeper: SharedKeeper,
    /// The engine has found a file of ours where it was told to show it.
    sees_files: bool,
}

impl std::fmt::Debug for ContainerTier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContainerTier")
            .field("kind", &self.kind)
            .field("engine", &self.engine)
            .field("image", &self.image.id)
            .finish_non_exhaustive()
    }
}

impl ContainerTier {
    /// Looks at the engine and the image, and only then asks for the keeper of its leases.
    /// Creates nothing.
    ///
    /// # Errors
    /// [`StartError::Unavailable`] says what is missing and what to do about it.
    pub fn new(
        spec: ContainerSpec,
        keeper: impl FnOnce(&Path) -> Result<Box<dyn LeaseKeeper>, String>,
    ) -> Result<Self, StartError> {
        let engine = Engine::at(spec.socket);
        let info = engine
            .info()
            .map_err(|error| unreachable(&engine, &error))?;
        check_no_podman(&engine, &info)?;
        let runtime = runtime_of(spec.kind, &info)?;
        check_engine(spec.kind, &info)?;
        let image = engine
            .image(&spec.image)
            .map_err(|error| unavailable(error.to_string()))?
            .ok_or_else(|| no_image(&spec.image))?;
        check_image(&spec.image, &image)?;
        if spec.user.0 == 0 || spec.user.1 == 0 {
            return Err(unavailable("a worker never runs as root".to_owned()));
        }
        let keeper = keeper(engine.socket()).map_err(unavailable)?;
        Ok(Self {
            kind: spec.kind,
            engine,
            info,
            runtime,
            image,
            user: spec.user,
            staging: spec.staging,
            keeper: Arc::new(Mutex::new(keeper)),
            sees_files: false,
        })
    }

    /// The image by its id, as a descriptor binds it.
    #[must_use]
    pub fn root(&self) -> WorkerRoot {
        WorkerRoot::Image {
            id: self.image.id.clone(),
        }
    }

    /// The engine's socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        self.engine.socket()
    }

    /// What the descriptor says against what this tier can do.
    fn check(&self, spec: &WorkerSpec) -> Result<(), StartError> {
        if self.enforceable(spec.limits().clone()) != *spec.limits() {
            return Err(failed(
                "limits",
                "the descriptor promises another enforcement than this engine has",
            ));
        }
        if *spec.root() != self.root() {
            return Err(failed("image", "the descriptor binds another image"));
        }
        if spec.program().file().is_some() || spec.shown().is_some() {
            return Err(failed("program", "a container runs programs of its image"));
        }
        if spec.argv().first().map(String::as_str) != Some(spec.program().path()) {
            return Err(failed("program", "argv does not begin with the program"));
        }
        if spec.inputs().len() > INPUTS_MAX {
            return Err(failed("inputs", "there are too many"));
        }
        Ok(())
    }

    fn terms(&self, limits: &Limits) -> LeaseTerms {
        LeaseTerms {
            tier: self.kind.tier(),
            socket: self.engine.socket().to_owned(),
            staging: self.staging.clone(),
            memory_mib: limits.memory_mib.value,
            cpu_milli: limits.cpu_milli.value,
            lifetime: Duration::from_millis(limits.time_ms.value) + CONTAINER_GRACE,
        }
    }

    fn take_lease(&self, limits: &Limits) -> Result<Claim, StartError> {
        let terms = self.terms(limits);
        let lease = claim::locked(&self.keeper)
            .take(&terms)
            .map_err(|refused| match refused {
                LeaseRefused::Exhausted { reason } => StartError::NoRoom { reason },
                LeaseRefused::Unavailable { reason } => unavailable(reason),
            })?;
        let keeper = Arc::clone(&self.keeper);
        Ok(Claim::new(self.kind, self.engine.clone(), keeper, lease))
    }

    /// The wished container, and the claim with what the worker is shown.
    fn wish(&self, spec: &WorkerSpec, claim: &mut Claim) -> Result<ContainerCreate, StartError> {
        let staged = Staged::make(&self.staging, claim.lease_id(), spec).map_err(|error| {
            let step = format!("copy the worker's files to `{}`", self.staging.display());
            match error.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                    failed(&step, format!("{error}; make room there, and try again"))
                }
                _ => failed(&step, error),
            }
        })?;
        let wish = Wish {
            kind: self.kind,
            runtime: &self.runtime,
            image: &self.image,
            user: self.user,
            lease: claim.lease_id(),
            binds: staged.binds(),
        };
        let wanted = request::of(&wish, spec);
        claim.hold(staged);
        wanted
    }
}

impl Tier for ContainerTier {
    fn kind(&self) -> TierKind {
        self.kind.tier()
    }

    fn enforceable(&self, wanted: Limits) -> Limits {
        let when = |limit: Limit, acts: bool| Limit {
            value: limit.value,
            enforcement: match acts {
                true => Enforcement::Enforced,
                false => Enforcement::NotEnforced,
            },
        };
        let info = &self.info;
        Limits {
            memory_mib: when(wanted.memory_mib, info.memory_limit),
            cpu_milli: when(wanted.cpu_milli, info.cpu_cfs_quota),
            // gVisor's kernel counts its own processes; the engine would count gVisor's threads.
            pids: when(
                wanted.pids,
                info.pids_limit || self.kind == ContainerKind::Gvisor,
            ),
            file_bytes: when(wanted.file_bytes, true),
            scratch_bytes: when(wanted.scratch_bytes, true),
            stream_bytes: when(wanted.stream_bytes, true),
            time_ms: when(wanted.time_ms, true),
            // A container has a mount namespace of its own with nothing of the host to protect.
            landlock: Enforcement::Enforced,
        }
    }

    fn start(&mut self, spec: WorkerSpec) -> Result<Box<dyn Running>, StartError> {
        self.check(&spec)?;
        let mut claim = self.take_lease(spec.limits())?;
        let wanted = self.wish(&spec, &mut claim)?;
        claim.create(&wanted)?;
        claim.check(&wanted, &self.image.id)?;
        self.sees_files = self.sees_files || claim.prove_sight()?;
        let worker = ContainerWorker::start(claim, &spec)?;
        Ok(Box::new(worker))
    }
}

fn runtime_of(kind: ContainerKind, info: &EngineInfo) -> Result<String, StartError> {
    match kind {
        // Said by name: the engine's default could be anything.
        ContainerKind::Docker => ["runc", "crun"]
            .into_iter()
            .find(|name| info.runtimes.contains_key(*name))
            .map(str::to_owned)
            .ok_or_else(|| unavailable("the container engine knows no runtime `runc`".to_owned())),
        ContainerKind::Gvisor if info.runtimes.contains_key(GVISOR_RUNTIME) => {
            Ok(GVISOR_RUNTIME.to_owned())
        }
        ContainerKind::Gvisor => Err(unavailable(format!(
            "the container engine knows no runtime `{GVISOR_RUNTIME}`; install gVisor and register \
             it in the engine's daemon.json: {{\"runtimes\": {{\"{GVISOR_RUNTIME}\": {{\"path\": \
             \"/usr/bin/runsc\"}}}}}}"
        ))),
    }
}

/// Podman takes Docker's requests, and makes another container: with its own runtime whichever is
/// asked for, and with unbounded places to write. What it then tells of it proves nothing.
fn check_no_podman(engine: &Engine, info: &EngineInfo) -> Result<(), StartError> {
    let Some(version) = &info.podman else {
        return Ok(());
    };
    Err(unavailable(format!(
        "the container engine at `{}` is Podman {}, which takes no system call filter from a client, \
         ignores the runtime that is asked for, and does not tell how it made a container, so that a \
         worker's boundary could not be checked; name the socket of a Docker engine with `socket`, \
         or use the tier `namespace`, which needs no engine",
        engine.socket().display(),
        version.escape_debug()
    )))
}

/// An engine that does not filter system calls would be a weaker boundary than was asked for.
fn check_engine(kind: ContainerKind, info: &EngineInfo) -> Result<(), StartError> {
    let filters = info
        .security_options
        .iter()
        .any(|option| option.contains("seccomp"));
    match kind {
        ContainerKind::Docker if !filters => Err(unavailable(
            "the container engine does not filter system calls (seccomp is off)".to_owned(),
        )),
        ContainerKind::Docker | ContainerKind::Gvisor => Ok(()),
    }
}

/// A volume of the image's own would be unbounded space on the host.
fn check_image(name: &str, image: &ImageInspect) -> Result<(), StartError> {
    if image.config.volumes.is_empty() {
        return Ok(());
    }
    let volumes: Vec<&str> = image.config.volumes.keys().map(String::as_str).collect();
    Err(unavailable(format!(
        "the image `{name}` declares volumes ({}), which would be unbounded space on the host; \
         build it without VOLUME",
        volumes.join(", ")
    )))
}

fn no_image(name: &str) -> StartError {
    unavailable(format!(
        "the container engine has no image `{name}`; nothing is pulled: load or build it there, \
         or name another one"
    ))
}

fn unreachable(engine: &Engine, error: &EngineError) -> StartError {
    match error.is_unreachable() {
        true => unavailable(format!(
            "no container engine answers at `{}`; start it, name its socket with `socket`, or \
             check that this user may use it ({error})",
            engine.socket().display()
        )),
        false => unavailable(error.to_string()),
    }
}

/// Which networks the tier gives, as the engine names them.
const fn network_mode(network: Network) -> &'static str {
    network.as_str()
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
