//! The descriptor: everything that a call will do, frozen before anybody is asked.

use std::collections::BTreeMap;
use std::fmt;

use model::json::CanonicalError;
use model::{
    AgentName, ArgumentName, ArgumentValue, Canonical, CreateMode, Digest, OutputFormat,
    RelativePath, RiskTier, ToolName,
};
use serde::{Deserialize, Serialize};

/// What one call runs. Closed: a new kind of work is a new variant with its own lowering.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Descriptor {
    /// One command of a tool in a fresh worker.
    Command(Box<CommandDescriptor>),
    /// The contained agent itself.
    Launch(Box<LaunchDescriptor>),
    /// Work of an embedding program's own executor, which runs it in process.
    Custom {
        custom_kind: String,
        value: Canonical,
    },
}

impl Descriptor {
    /// The canonical text that is recorded, shown and digested.
    ///
    /// # Errors
    /// [`CanonicalError`] for a value without a canonical form.
    pub fn canonical(&self) -> Result<Canonical, CanonicalError> {
        Canonical::of(self)
    }

    /// The boundary, where the work has one.
    #[must_use]
    pub fn boundary(&self) -> Option<&CommandBoundary> {
        match self {
            Self::Command(command) => Some(&command.boundary),
            Self::Launch(launch) => Some(&launch.boundary),
            Self::Custom { .. } => None,
        }
    }
}

/// A tool's command with its checked arguments and its whole boundary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommandDescriptor {
    pub tool: ToolName,
    pub version: String,
    /// Digest of the manifest's bytes.
    pub contract_sha256: Digest,
    pub risk_tier: RiskTier,
    pub human_approval: bool,
    /// Without the sensitive ones, for which their salted hashes stand in `sealed`.
    pub arguments: BTreeMap<ArgumentName, ArgumentValue>,
    /// With `[sensitive]` in place of every sensitive value.
    pub argv: Vec<String>,
    #[serde(skip_serializing_if = "SealedValues::is_empty")]
    pub sealed: SealedValues,
    pub environment: BTreeMap<String, String>,
    pub program: ProgramIdentity,
    pub output_format: OutputFormat,
    pub boundary: CommandBoundary,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parser: Option<ParserDescriptor>,
}

/// What only a salted hash may stand for: the salt is random, and kept nowhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct SealedValues {
    /// Sensitive arguments.
    pub arguments: BTreeMap<ArgumentName, Digest>,
    /// Whole entries of `argv` with a sensitive value in them, by index.
    pub argv: BTreeMap<usize, Digest>,
}

impl SealedValues {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.arguments.is_empty() && self.argv.is_empty()
    }
}

/// The program that reads a command's output, in a fresh worker of its own without any file. It
/// gets the whole standard output as its standard input, and what is left of the call's time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ParserDescriptor {
    pub argv: Vec<String>,
    pub environment: BTreeMap<String, String>,
    pub program: ProgramIdentity,
    pub boundary: CommandBoundary,
}

/// The launch of a contained agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LaunchDescriptor {
    pub agent: AgentName,
    pub executor: String,
    pub task: String,
    pub argv: Vec<String>,
    pub environment: BTreeMap<String, String>,
    pub program: ProgramIdentity,
    /// The agent's own file, shown besides the root where the root does not have it.
    pub shown: Option<ProgramFile>,
    pub tools: Vec<ToolName>,
    pub tool_set_sha256: Digest,
    pub policy_sha256: Digest,
    pub max_calls: u64,
    pub lifetime_ms: u64,
    pub human_approval: bool,
    pub inference: Option<InferenceTerms>,
    pub boundary: CommandBoundary,
}

/// What the agent may ask of its model provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InferenceTerms {
    pub provider: String,
    pub base_url: String,
    pub model: String,
    pub max_requests: u64,
    pub max_output_tokens: u64,
    pub max_total_output_tokens: u64,
    pub beta_headers: Vec<String>,
}

/// The program that runs, and what binds its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "bound_by", rename_all = "snake_case")]
pub enum ProgramIdentity {
    /// A file of the host, by what it holds: another file of that name is another program.
    Content(ProgramFile),
    /// A file of the worker's image: the image's id binds it.
    Image {
        /// An absolute path of the image, or a name that the worker's `PATH` leads to.
        path: String,
    },
}

impl ProgramIdentity {
    /// The program as the worker names it.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Content(file) => &file.path,
            Self::Image { path } => path,
        }
    }

    /// The file whose content is bound, where it is one.
    #[must_use]
    pub const fn file(&self) -> Option<&ProgramFile> {
        match self {
            Self::Content(file) => Some(file),
            Self::Image { .. } => None,
        }
    }
}

/// A program file of the host, with all that decides what it does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgramFile {
    /// Absolute path inside the worker.
    pub path: String,
    pub sha256: Digest,
    pub owner_uid: u32,
    pub mode: u32,
    /// The interpreter of a script's first line, bound in the same way.
    pub interpreter: Option<Box<ProgramFile>>,
}

/// The operator's ceiling and this call's files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommandBoundary {
    pub tier: TierKind,
    pub root: WorkerRoot,
    pub network: Network,
    pub working_dir: String,
    pub limits: Limits,
    pub filesystem: Filesystem,
}

/// The isolation that a worker runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TierKind {
    Namespace,
    Docker,
    Gvisor,
    Firecracker,
}

impl TierKind {
    pub const ALL: [Self; 4] = [
        Self::Namespace,
        Self::Docker,
        Self::Gvisor,
        Self::Firecracker,
    ];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Docker => "docker",
            Self::Gvisor => "gvisor",
            Self::Firecracker => "firecracker",
        }
    }
}

impl fmt::Display for TierKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What the worker's root file system shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum WorkerRoot {
    /// The host's `/usr`, `/bin` and `/lib*`, read-only, and the listed folders besides.
    System { also: Vec<String> },
    /// A folder of the operator's, read-only.
    Directory { path: String },
    /// A container image, by its id.
    Image { id: String },
}

/// The worker's network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// A loopback of its own and nothing else.
    None,
    /// The container engine's own network, which leads out. Never in production.
    Bridge,
}

impl Network {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Bridge => "bridge",
        }
    }
}

/// Whether a limit acts: a measured fact, never an assumption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    NotEnforced,
    Partly,
    Enforced,
}

impl Enforcement {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotEnforced => "not_enforced",
            Self::Partly => "partly",
            Self::Enforced => "enforced",
        }
    }
}

/// One limit and how it is enforced. Values stay below 2^53.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Limit {
    pub value: u64,
    pub enforcement: Enforcement,
}

/// All limits of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Limits {
    pub memory_mib: Limit,
    /// Thousandths of one CPU.
    pub cpu_milli: Limit,
    pub pids: Limit,
    /// Largest file that the worker may write (RLIMIT_FSIZE).
    pub file_bytes: Limit,
    pub scratch_bytes: Limit,
    /// Bound of each of stdout and stderr.
    pub stream_bytes: Limit,
    pub time_ms: Limit,
    /// The file-system and signal rules of Landlock.
    pub landlock: Enforcement,
}

impl Limits {
    /// What every worker gets unless its operator says otherwise, in the order of [`Self::named`].
    pub const DEFAULTS: [u64; 7] = [
        crate::limits::MEMORY_MIB_DEFAULT,
        crate::limits::CPU_MILLI_DEFAULT,
        crate::limits::PIDS_DEFAULT,
        crate::limits::SCRATCH_FILE_BYTES_DEFAULT,
        crate::limits::SCRATCH_BYTES_DEFAULT,
        crate::limits::STREAM_BYTES_DEFAULT,
        crate::limits::TIME_MS_DEFAULT,
    ];

    /// Limits as they are wished for: all enforced, in the order of [`Self::named`].
    #[must_use]
    pub fn wanted(values: [u64; 7]) -> Self {
        let [
            memory_mib,
            cpu_milli,
            pids,
            file_bytes,
            scratch_bytes,
            stream_bytes,
            time_ms,
        ] = values.map(|value| Limit {
            value,
            enforcement: Enforcement::Enforced,
        });
        Self {
            memory_mib,
            cpu_milli,
            pids,
            file_bytes,
            scratch_bytes,
            stream_bytes,
            time_ms,
            landlock: Enforcement::Enforced,
        }
    }

    /// Every limit with its name, for messages and policy.
    #[must_use]
    pub fn named(&self) -> [(&'static str, Limit); 7] {
        [
            ("memory_mib", self.memory_mib),
            ("cpu_milli", self.cpu_milli),
            ("pids", self.pids),
            ("file_bytes", self.file_bytes),
            ("scratch_bytes", self.scratch_bytes),
            ("stream_bytes", self.stream_bytes),
            ("time_ms", self.time_ms),
        ]
    }
}

/// The files of this call. Empty, but present, for a tool without files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct Filesystem {
    /// By argument name, or by index for a literal path.
    pub read: BTreeMap<String, ReadGrant>,
    pub create: BTreeMap<String, CreateGrant>,
    pub max_file_bytes: u64,
}

/// One input: the snapshot that was taken, never its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReadGrant {
    pub path: RelativePath,
    pub bytes: u64,
    pub sha256: Digest,
}

/// One new file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CreateGrant {
    pub path: RelativePath,
    pub mode: CreateMode,
    pub parent: ParentIdentity,
}

/// The held output folder. Texts: an inode number can pass 2^53.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentIdentity {
    pub device: String,
    pub inode: String,
}
