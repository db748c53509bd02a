//! From the frozen descriptor to the one worker that a tier may start.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::path::PathBuf;

use model::json::CanonicalError;
use model::{CreateMode, Digest, RelativePath};

use crate::descriptor::{
    CommandBoundary, Descriptor, Limits, Network, ProgramIdentity, WorkerRoot,
};

/// Resources that a prepared call owns for its worker. None of them can say what runs.
#[derive(Debug, Default)]
pub struct WorkerHoldings {
    /// Snapshots by their grant's path.
    pub inputs: BTreeMap<RelativePath, File>,
    /// The agent's channel folder on the host.
    pub channel: Option<PathBuf>,
    /// Where the launch's `shown` file is on the host.
    pub shown: Option<PathBuf>,
}

/// A read-only file in the worker.
#[derive(Debug)]
pub struct WorkerFile {
    /// Below the working directory.
    pub path: RelativePath,
    /// The snapshot; its bytes are the file's content.
    pub content: File,
    pub bytes: u64,
}

/// The one file that the worker may hand back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerOutput {
    /// Below the working directory.
    pub path: RelativePath,
    pub mode: CreateMode,
}

/// All that a tier is told. Only [`lower`] makes one.
#[derive(Debug)]
pub struct WorkerSpec {
    call_digest: Digest,
    argv: Vec<String>,
    environment: BTreeMap<String, String>,
    program: ProgramIdentity,
    root: WorkerRoot,
    network: Network,
    working_dir: String,
    limits: Limits,
    inputs: Vec<WorkerFile>,
    output: Option<WorkerOutput>,
    channel: Option<PathBuf>,
    shown: Option<(ProgramIdentity, PathBuf)>,
}

impl WorkerSpec {
    /// The digest of the call that this worker serves.
    #[must_use]
    pub const fn call_digest(&self) -> Digest {
        self.call_digest
    }
    #[must_use]
    pub fn argv(&self) -> &[String] {
        &self.argv
    }
    #[must_use]
    pub const fn environment(&self) -> &BTreeMap<String, String> {
        &self.environment
    }
    #[must_use]
    pub const fn program(&self) -> &ProgramIdentity {
        &self.program
    }
    #[must_use]
    pub const fn root(&self) -> &WorkerRoot {
        &self.root
    }
    #[must_use]
    pub const fn network(&self) -> Network {
        self.network
    }
    #[must_use]
    pub fn working_dir(&self) -> &str {
        &self.working_dir
    }
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }
    #[must_use]
    pub fn inputs(&self) -> &[WorkerFile] {
        &self.inputs
    }
    #[must_use]
    pub const fn output(&self) -> Option<&WorkerOutput> {
        self.output.as_ref()
    }
    /// The agent's channel folder, to be shown read-only at `/channel`.
    #[must_use]
    pub const fn channel(&self) -> Option<&PathBuf> {
        self.channel.as_ref()
    }
    /// A file that has to be shown besides the root, read-only, and its place on the host.
    #[must_use]
    pub const fn shown(&self) -> Option<&(ProgramIdentity, PathBuf)> {
        self.shown.as_ref()
    }
}

/// Why a descriptor and its holdings do not fit each other.
#[derive(Debug)]
pub enum LowerError {
    MissingInput { path: RelativePath },
    LeftOverInput { path: RelativePath },
    Channel { expected: bool },
    Shown { expected: bool },
    TwoOutputs,
    NoWorker,
    Canonical(CanonicalError),
}

impl fmt::Display for LowerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingInput { path } => write!(f, "the call holds no snapshot of `{path}`"),
            Self::LeftOverInput { path } => {
                write!(
                    f,
                    "the call holds a snapshot of `{path}` that its descriptor does not name"
                )
            }
            Self::Channel { expected: true } => f.write_str("a launch needs its channel folder"),
            Self::Channel { expected: false } => {
                f.write_str("a command must not hold a channel folder")
            }
            Self::Shown { expected: true } => f.write_str("the launch's own file is missing"),
            Self::Shown { expected: false } => {
                f.write_str("the call holds a file of its own that its descriptor does not name")
            }
            Self::TwoOutputs => f.write_str("a call creates at most one file"),
            Self::NoWorker => f.write_str("this kind of call runs in no worker"),
            Self::Canonical(_) => f.write_str("the descriptor has no canonical form"),
        }
    }
}

impl std::error::Error for LowerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Canonical(error) => Some(error),
            _ => None,
        }
    }
}

/// The worker of `descriptor`, given what its call holds. Pure; consumes the holdings, and
/// fails where one is missing or left over.
///
/// # Errors
/// [`LowerError`] says what does not fit.
pub fn lower(descriptor: &Descriptor, holdings: WorkerHoldings) -> Result<WorkerSpec, LowerError> {
    let call_digest = descriptor
        .canonical()
        .map_err(LowerError::Canonical)?
        .digest();
    let WorkerHoldings {
        mut inputs,
        channel,
        shown,
    } = holdings;
    let (argv, environment, identity, boundary, own_file, is_launch) = match descriptor {
        Descriptor::Command(it) => (
            &it.argv,
            &it.environment,
            &it.program,
            &it.boundary,
            None,
            false,
        ),
        Descriptor::Launch(it) => (
            &it.argv,
            &it.environment,
            &it.program,
            &it.boundary,
            it.shown.clone(),
            true,
        ),
        Descriptor::Custom { .. } => return Err(LowerError::NoWorker),
    };
    if channel.is_some() != is_launch {
        return Err(LowerError::Channel {
            expected: is_launch,
        });
    }
    let shown = match (own_file, shown) {
        (Some(identity), Some(host)) => Some((identity, host)),
        (None, None) => None,
        (own_file, _) => {
            return Err(LowerError::Shown {
                expected: own_file.is_some(),
            });
        }
    };
    let files = take_inputs(boundary, &mut inputs)?;
    if let Some((path, _)) = inputs.pop_first() {
        return Err(LowerError::LeftOverInput { path });
    }
    let mut created = boundary.filesystem.create.values();
    let output = created.next().map(|grant| WorkerOutput {
        path: grant.path.clone(),
        mode: grant.mode,
    });
    if created.next().is_some() {
        return Err(LowerError::TwoOutputs);
    }
    Ok(WorkerSpec {
        call_digest,
        argv: argv.clone(),
        environment: environment.clone(),
        program: identity.clone(),
        root: boundary.root.clone(),
        network: boundary.network,
        working_dir: boundary.working_dir.clone(),
        limits: boundary.limits.clone(),
        inputs: files,
        output,
        channel,
        shown,
    })
}

fn take_inputs(
    boundary: &CommandBoundary,
    inputs: &mut BTreeMap<RelativePath, File>,
) -> Result<Vec<WorkerFile>, LowerError> {
    let take = |grant: &crate::descriptor::ReadGrant| match inputs.remove(&grant.path) {
        Some(content) => Ok(WorkerFile {
            path: grant.path.clone(),
            content,
            bytes: grant.bytes,
        }),
        None => Err(LowerError::MissingInput {
            path: grant.path.clone(),
        }),
    };
    boundary.filesystem.read.values().map(take).collect()
}
