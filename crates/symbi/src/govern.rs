//! From an open project to a session's parts: key, journal, ledger, tier, files.

use std::path::{Path, PathBuf};

use filegrants::{Ceilings, FileBroker};
use journal::{ProjectKey, RunFiles};
use model::{Digest, RunId, ToolName};
use project::{Config, ProjectState, SandboxSettings, UserConfig, Volume, VolumeAccess};
use sandbox::{NamespaceConfig, NamespaceTier};
use symbi_runtime::tools::{BoundarySettings, ToolExecutor};
use toolclad::ContractSet;
use worker::{Tier, TierKind, WorkerRoot};

use crate::anchors;
use crate::exit::{Exit, Failure};
use crate::open::OpenProject;

/// A run's place on disk.
#[derive(Debug)]
pub(crate) struct RunPlace {
    pub(crate) files: RunFiles,
    pub(crate) vkey: String,
}

impl RunPlace {
    pub(crate) fn create(open: &OpenProject, run: RunId, principal: &str) -> Result<Self, Failure> {
        let storage = |error: &dyn std::error::Error| Failure::of(Exit::Storage, error);
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

/// The project's signing key, made at its first use.
pub(crate) fn project_key(open: &OpenProject, state: &ProjectState) -> Result<ProjectKey, Failure> {
    let storage = |error: &dyn std::error::Error| Failure::of(Exit::Storage, error);
    open.dirs.keys().map_err(|error| storage(&error))?;
    let path = open.dirs.key_path(&state.project_id());
    ProjectKey::load_or_create(&path).map_err(|error| storage(&error))
}

/// The tier that the project is configured for, and the digest of its helper.
pub(crate) fn tier(
    open: &OpenProject,
    config: &Config,
) -> Result<(Box<dyn Tier>, Digest), Failure> {
    let sandbox = &config.sandbox;
    if sandbox.tier != TierKind::Namespace {
        return Err(Failure::new(
            Exit::Isolation,
            format!(
                "the tier `{}` is not available in this version",
                sandbox.tier
            ),
        )
        .help("set `tier = \"namespace\"` under [sandbox]"));
    }
    let configured = sandbox
        .init
        .as_ref()
        .map(|path| path.resolve(open.project.path()));
    let tier = namespace_tier(configured.as_deref())?;
    let digest = tier.init_sha256();
    Ok((Box::new(tier), digest))
}

/// The namespace tier with the helper beside this executable, or the configured one.
pub(crate) fn namespace_tier(configured: Option<&Path>) -> Result<NamespaceTier, Failure> {
    let executable = std::env::current_exe()
        .map_err(|error| Failure::new(Exit::Isolation, format!("where symbi is: {error}")))?;
    let isolation = |error: &dyn std::error::Error| Failure::of(Exit::Isolation, error);
    let init = sandbox::locate_init(&executable, configured).map_err(|error| isolation(&error))?;
    NamespaceTier::new(NamespaceConfig::new(init)).map_err(|error| isolation(&error))
}

/// The executor of the project's tools.
pub(crate) fn executor(
    open: &OpenProject,
    config: &Config,
    contracts: ContractSet,
    tools: &[ToolName],
    tier: Box<dyn Tier>,
) -> Result<ToolExecutor, Failure> {
    let files = file_broker(open, &config.sandbox)?;
    crate::dead_runs::sweep(open, &files)?;
    let settings = boundary(&config.sandbox);
    Ok(ToolExecutor::new(
        contracts,
        Some(tools),
        files,
        tier,
        settings,
    ))
}

/// The broker of the project's volumes.
pub(crate) fn file_broker(
    open: &OpenProject,
    sandbox: &SandboxSettings,
) -> Result<FileBroker, Failure> {
    let usage = |error: &dyn std::error::Error| Failure::of(Exit::Usage, error);
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
pub(crate) fn boundary(sandbox: &SandboxSettings) -> BoundarySettings {
    let limits = sandbox.limits();
    BoundarySettings {
        root: WorkerRoot::System {
            also: sandbox.namespace.system.clone(),
        },
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
