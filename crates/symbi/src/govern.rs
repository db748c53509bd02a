//! From an open project to a session's parts: key, journal, ledger, tier, files.

use std::path::{Path, PathBuf};

use filegrants::{Ceilings, FileBroker};
use journal::{ProjectKey, RunFiles, ledger_path, ledger_signer, runs_folder};
use model::{Digest, RunId, ToolName, Untrusted};
use project::{
    Config, ContainerNetwork, ContainerSettings, ProjectState, SandboxSettings, UserConfig, Volume,
    VolumeAccess,
};
use sandbox::{ContainerKind, ContainerSpec, ContainerTier, NamespaceConfig, NamespaceTier};
use symbi_runtime::tools::{BoundarySettings, ToolExecutor};
use toolclad::ContractSet;
use worker::{Network, Tier, TierKind, WorkerRoot};

use crate::anchors;
use crate::exit::{Exit, Failure};
use crate::open::OpenProject;
use crate::output::Output;
use crate::supervising;

/// Where engines listen by default.
const ENGINE_SOCKET: &str = "/var/run/docker.sock";

/// A run's place on disk.
#[derive(Debug)]
pub(crate) struct RunPlace {
    pub(crate) files: RunFiles,
    pub(crate) vkey: String,
}

impl RunPlace {
    pub(crate) fn create(open: &OpenProject, run: RunId, principal: &str) -> Result<Self, Failure> {
        let storage = |error: &(dyn std::error::Error + 'static)| Failure::of(Exit::Storage, error);
        let state = open.project.state().map_err(|error| storage(&error))?;
        let key = project_key(open, &state)?;
        let anchors = anchors::configured(open, key.signer())?;
        let files = RunFiles::create_anchored(state.path(), run, principal, &key, anchors)
            .map_err(|error| storage(&error))?;
        Ok(Self {
            files,
            vkey: key.vkey(),
        })
    }
}

/// The project's signing key, made at its first use. Beside a ledger that another key signed none
/// is made: only the old key can hand over to a new one.
pub(crate) fn project_key(open: &OpenProject, state: &ProjectState) -> Result<ProjectKey, Failure> {
    let storage = |error: &(dyn std::error::Error + 'static)| Failure::of(Exit::Storage, error);
    open.dirs.keys().map_err(|error| storage(&error))?;
    let path = open.dirs.key_path(&state.project_id());
    if path.exists() {
        return ProjectKey::load(&path).map_err(|error| storage(&error));
    }
    let signer = ledger_signer(&ledger_path(state.path())).map_err(|error| storage(&error))?;
    // A process that has just begun the project makes its key before its ledger.
    if let Some(signer) = signer.filter(|_| !path.exists()) {
        return Err(no_key(&path, &signer));
    }
    let has_journals = runs_folder(state.path())
        .read_dir()
        .is_ok_and(|mut entries| entries.next().is_some());
    let key = ProjectKey::load_or_create(&path).map_err(|error| storage(&error))?;
    if has_journals {
        Output::new(false).note(&format!(
            "warning: {} is a new key, and this project has journals of before, without their \
             ledger. Nothing shows what of them is missing, and only their own key verifies them: \
             symbi audit verify FILE --public-key KEY. If XDG_STATE_HOME was changed, set it back",
            path.display()
        ));
    }
    Ok(key)
}

fn no_key(path: &Path, signer: &str) -> Failure {
    let signer = Untrusted::new(signer).escaped();
    Failure::new(
        Exit::Storage,
        format!(
            "this project's signing key is not at `{}`, and its ledger is signed by `{signer}`: a \
             new key could not go on with it, so none is made and nothing runs",
            path.display()
        ),
    )
    .help(
        "if XDG_STATE_HOME was changed, set it back, or copy symbi/keys from there; if the key is \
         lost, move the project's .symbiont away and keep it: a new history begins with a new \
         key. Old runs are read without it: symbi audit verify FILE --public-key KEY",
    )
}

/// A tier that is there, and what of a worker's boundary it decides.
pub(crate) struct ReadyTier {
    pub(crate) tier: ConfiguredTier,
    /// Of the namespace tier's helper.
    pub(crate) init_sha256: Option<Digest>,
    place: TierPlace,
}

/// The tier of a project.
pub(crate) enum ConfiguredTier {
    Namespace(Box<NamespaceTier>),
    Container(Box<ContainerTier>),
}

/// Where workers run, as their descriptors say it.
#[derive(Debug, Clone)]
pub(crate) struct TierPlace {
    pub(crate) kind: TierKind,
    root: WorkerRoot,
    network: Network,
}

impl ReadyTier {
    pub(crate) fn place(&self) -> TierPlace {
        self.place.clone()
    }

    pub(crate) fn into_tier(self) -> Box<dyn Tier> {
        match self.tier {
            ConfiguredTier::Namespace(tier) => tier,
            ConfiguredTier::Container(tier) => tier,
        }
    }
}

/// The tier that the project is configured for.
pub(crate) fn tier(open: &OpenProject, config: &Config) -> Result<ReadyTier, Failure> {
    supervising::tend_what_is_left(&open.dirs);
    let sandbox = &config.sandbox;
    if let Some(settings) = sandbox.container() {
        return container_tier(open, sandbox.tier, settings);
    }
    let configured = sandbox
        .init
        .as_ref()
        .map(|path| path.resolve(open.project.path()));
    let tier = namespace_tier(configured.as_deref())?;
    Ok(ReadyTier {
        init_sha256: Some(tier.init_sha256()),
        tier: ConfiguredTier::Namespace(Box::new(tier)),
        place: TierPlace {
            kind: TierKind::Namespace,
            root: WorkerRoot::System {
                also: sandbox.namespace.system.clone(),
            },
            network: Network::None,
        },
    })
}

/// A container tier, whose leases the user's supervisor keeps.
fn container_tier(
    open: &OpenProject,
    kind: TierKind,
    settings: &ContainerSettings,
) -> Result<ReadyTier, Failure> {
    let isolation = |error: &(dyn std::error::Error + 'static)| Failure::of(Exit::Isolation, error);
    let socket = engine_socket(open, settings)?;
    let workers = open
        .dirs
        .workers()
        .map_err(|error| Failure::of(Exit::Storage, &error))?;
    let spec = ContainerSpec {
        kind: match kind {
            TierKind::Gvisor => ContainerKind::Gvisor,
            _ => ContainerKind::Docker,
        },
        socket: socket.clone(),
        image: settings.image.clone(),
        user: (settings.user.uid(), settings.user.gid()),
        staging: workers.path().to_owned(),
    };
    // The image first: a wrong name starts nothing, not even a supervisor.
    let tier = ContainerTier::new(spec, |socket| {
        let client = supervising::client(&open.dirs).map_err(|failure| failure.message)?;
        let keeper = supervisor::Keeper::open(client, socket.to_owned())
            .map_err(|error| crate::exit::chain(&error))?;
        Ok(Box::new(keeper))
    })
    .map_err(|error| isolation(&error))?;
    Ok(ReadyTier {
        init_sha256: None,
        place: TierPlace {
            kind,
            root: tier.root(),
            network: match settings.network {
                ContainerNetwork::None => Network::None,
                ContainerNetwork::Bridge => Network::Bridge,
            },
        },
        tier: ConfiguredTier::Container(Box::new(tier)),
    })
}

/// The configured socket, that of `DOCKER_HOST`, or the usual one.
fn engine_socket(open: &OpenProject, settings: &ContainerSettings) -> Result<PathBuf, Failure> {
    if let Some(path) = &settings.socket {
        return Ok(path.resolve(open.project.path()));
    }
    let Some(host) = crate::dirs::engine_host() else {
        return Ok(PathBuf::from(ENGINE_SOCKET));
    };
    match host.strip_prefix("unix://") {
        Some(path) if path.starts_with('/') => Ok(PathBuf::from(path)),
        _ => Err(Failure::new(
            Exit::Isolation,
            "`DOCKER_HOST` names no unix socket: only an engine on this machine sees its files",
        )
        .help("write DOCKER_HOST=unix:///PATH, or `socket` in symbiont.toml")),
    }
}

/// The namespace tier with the helper beside this executable, or the configured one.
pub(crate) fn namespace_tier(configured: Option<&Path>) -> Result<NamespaceTier, Failure> {
    let executable = std::env::current_exe()
        .map_err(|error| Failure::new(Exit::Isolation, format!("where symbi is: {error}")))?;
    let isolation = |error: &(dyn std::error::Error + 'static)| Failure::of(Exit::Isolation, error);
    let init = sandbox::locate_init(&executable, configured).map_err(|error| isolation(&error))?;
    NamespaceTier::new(NamespaceConfig::new(init)).map_err(|error| isolation(&error))
}

/// The executor of the project's tools.
pub(crate) fn executor(
    open: &OpenProject,
    config: &Config,
    contracts: ContractSet,
    tools: &[ToolName],
    tier: ReadyTier,
) -> Result<ToolExecutor, Failure> {
    let files = file_broker(open, &config.sandbox)?;
    crate::dead_runs::sweep(open, &files)?;
    let settings = boundary(&config.sandbox, &tier.place());
    Ok(ToolExecutor::new(
        contracts,
        Some(tools),
        files,
        tier.into_tier(),
        settings,
    ))
}

/// The broker of the project's volumes.
pub(crate) fn file_broker(
    open: &OpenProject,
    sandbox: &SandboxSettings,
) -> Result<FileBroker, Failure> {
    let usage = |error: &(dyn std::error::Error + 'static)| Failure::of(Exit::Usage, error);
    let volumes: Vec<String> = sandbox.volumes().iter().map(volume_text).collect();
    let ceilings =
        Ceilings::parse(&volumes, sandbox.working_dir()).map_err(|error| usage(&error))?;
    let folder =
        open.project.dir().try_clone_to_owned().map_err(|error| {
            Failure::new(Exit::Storage, format!("the project's folder: {error}"))
        })?;
    let staging = staging(open)?;
    let user = UserConfig::load(&open.dirs).map_err(|error| usage(&error))?;
    FileBroker::open(folder, &staging, ceilings)
        .and_then(|broker| broker.with_staging_bytes_max(user.capacity.staging_mib << 20))
        .map_err(|error| usage(&error))
}

fn volume_text(volume: &Volume) -> String {
    let access = match volume.access {
        VolumeAccess::ReadOnly => "ro",
        VolumeAccess::ReadWrite => "rw",
    };
    format!("{}:{}:{access}", volume.host, volume.target)
}

/// The private folder of snapshots.
fn staging(open: &OpenProject) -> Result<PathBuf, Failure> {
    let folder = open
        .dirs
        .staging()
        .map_err(|error| Failure::of(Exit::Storage, &error))?;
    Ok(folder.path().to_owned())
}

/// The operator's ceiling for every worker.
pub(crate) fn boundary(sandbox: &SandboxSettings, place: &TierPlace) -> BoundarySettings {
    let limits = sandbox.limits();
    BoundarySettings {
        root: place.root.clone(),
        network: place.network,
        working_dir: sandbox.working_dir().to_owned(),
        memory_mib: limits.memory_mib,
        cpu_milli: limits.cpu_milli,
        pids: limits.pids,
        file_bytes: limits.file_bytes,
        scratch_bytes: limits.scratch_bytes,
        stream_bytes: limits.stream_bytes,
        time_ms: limits.time_ms,
        require_enforced: sandbox.require_enforced,
        parsers: sandbox.parsers.clone(),
    }
}
