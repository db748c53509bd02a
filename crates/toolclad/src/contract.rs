//! A tool's contract: what its manifest promises and permits, after every check.

use model::{
    ArgumentName, ArgumentValue, CreateMode, Digest, OutputFormat, RiskTier, SourceErrors, ToolName,
};

use crate::command::Command;
use crate::grants::{FileArgument, Grants};
use crate::kind::Kind;
use crate::limits::TIMEOUT_SECONDS_DEFAULT;

/// One tool, as its manifest says. Made by [`Contract::parse`] only.
#[derive(Debug, Clone)]
pub struct Contract {
    pub(crate) name: ToolName,
    pub(crate) version: String,
    pub(crate) description: String,
    pub(crate) digest: Digest,
    pub(crate) risk_tier: RiskTier,
    pub(crate) human_approval: bool,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) cedar: Option<CedarNames>,
    pub(crate) limits: ToolLimits,
    /// By position, then by name.
    pub(crate) arguments: Vec<ArgumentSpec>,
    pub(crate) command: Command,
    pub(crate) grants: Grants,
    pub(crate) output: Output,
}

/// `[tool.cedar]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CedarNames {
    pub(crate) action_type: String,
    pub(crate) action_id: String,
    pub(crate) resource_type: Option<String>,
}

/// `[output]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) format: OutputFormat,
    pub(crate) max_bytes: Option<u64>,
}

/// `[tool.limits]`: bounds below the tier's own. A bound above it changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ToolLimits {
    pub memory_mib: Option<u64>,
    /// Thousandths of one CPU.
    pub cpu_milli: Option<u64>,
    pub pids: Option<u64>,
    /// Bound of each of stdout and stderr.
    pub max_output_bytes: Option<u64>,
}

/// How policy sees an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyType {
    Text,
    Integer,
    Decimal,
    Boolean,
    /// Text that Cedar's `ipaddr` accepts.
    IpAddress,
}

/// One declared argument.
#[derive(Debug, Clone)]
pub struct ArgumentSpec {
    pub(crate) name: ArgumentName,
    pub(crate) description: String,
    pub(crate) kind: Kind,
    pub(crate) required: bool,
    pub(crate) default: Option<ArgumentValue>,
    pub(crate) position: Option<u64>,
}

impl ArgumentSpec {
    #[must_use]
    pub const fn name(&self) -> &ArgumentName {
        &self.name
    }

    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The type of the argument's values in a policy request.
    #[must_use]
    pub const fn kind(&self) -> PolicyType {
        self.kind.policy_type()
    }

    /// Whether a call must name it.
    #[must_use]
    pub const fn required(&self) -> bool {
        self.required
    }

    /// Whether every bound call has a value for it: it is required or has a default.
    #[must_use]
    pub const fn always_present(&self) -> bool {
        self.required || self.default.is_some()
    }
}

impl Contract {
    /// Reads a manifest strictly. `file` is its path for messages; its name must be
    /// `<tool name>.clad.toml`.
    ///
    /// # Errors
    /// Every fault that was found, with place, text and help. A fault of the syntax hides others.
    pub fn parse(file: &str, text: &str) -> Result<Self, SourceErrors> {
        crate::manifest::parse(file, text)
    }

    #[must_use]
    pub const fn name(&self) -> &ToolName {
        &self.name
    }

    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// SHA-256 of the manifest's bytes.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// Low where the manifest does not say.
    #[must_use]
    pub const fn risk_tier(&self) -> RiskTier {
        self.risk_tier
    }

    /// Whether a person must say yes to each call: by `human_approval`, or because the risk is high
    /// or critical.
    #[must_use]
    pub fn needs_approval(&self) -> bool {
        self.human_approval || self.risk_tier >= RiskTier::High
    }

    /// Time limit of one call, in milliseconds: `timeout_seconds`, or 30 s.
    #[must_use]
    pub fn time_limit_ms(&self) -> u64 {
        self.timeout_seconds
            .unwrap_or(TIMEOUT_SECONDS_DEFAULT)
            .saturating_mul(1000)
    }

    /// `argv[0]`: a program's name, or its absolute path in the worker.
    #[must_use]
    pub fn program(&self) -> &str {
        self.command.program()
    }

    #[must_use]
    pub const fn output_format(&self) -> OutputFormat {
        self.output.format
    }

    /// How many bytes of the output are shown, where the manifest shortens it. The output itself
    /// and its digest stay whole.
    #[must_use]
    pub const fn output_max_bytes(&self) -> Option<u64> {
        self.output.max_bytes
    }

    /// Bound of each input and of the output, in bytes.
    #[must_use]
    pub const fn max_file_bytes(&self) -> u64 {
        self.grants.max_file_bytes
    }

    #[must_use]
    pub const fn create_mode(&self) -> CreateMode {
        self.grants.create_mode
    }

    /// The action of `[tool.cedar]`, as its type and its id.
    #[must_use]
    pub fn cedar_action(&self) -> Option<(String, String)> {
        self.cedar
            .as_ref()
            .map(|cedar| (cedar.action_type.clone(), cedar.action_id.clone()))
    }

    /// The resource type of `[tool.cedar]`.
    #[must_use]
    pub fn cedar_resource_type(&self) -> Option<&str> {
        self.cedar.as_ref()?.resource_type.as_deref()
    }

    /// What the manifest tightens.
    #[must_use]
    pub const fn limits(&self) -> ToolLimits {
        self.limits
    }

    /// The arguments by position, then by name.
    pub fn arguments(&self) -> impl ExactSizeIterator<Item = &ArgumentSpec> {
        self.arguments.iter()
    }

    /// Every key that can stand under `filesystem.read` and `filesystem.create`: reads first, each
    /// in the manifest's order.
    #[must_use]
    pub fn file_arguments(&self) -> Vec<FileArgument> {
        self.grants.file_arguments(&self.arguments)
    }
}
