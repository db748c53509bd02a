//! A tool's contract: what its manifest promises and permits, after every check.

use std::sync::Arc;

use model::{
    ArgumentName, ArgumentValue, CreateMode, Digest, OutputFormat, PolicyType, RiskTier,
    SourceErrors, ToolName,
};
use serde_json::Value;

use crate::backend::{Backend, Unserved, Work};
use crate::grants::{FileArgument, Grants};
use crate::kind::Kind;
use crate::limits::TIMEOUT_SECONDS_DEFAULT;
use crate::output::{Output, ResultFault};
use crate::rules::ProjectRules;
use crate::scope::Scope;

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
    pub(crate) work: Work,
    pub(crate) grants: Grants,
    pub(crate) output: Output,
    pub(crate) evidence: Option<Evidence>,
    /// The project's.
    pub(crate) scope: Option<Arc<Scope>>,
}

/// `[tool.evidence]`: whether the whole output is kept beside the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    pub(crate) capture: bool,
    pub(crate) folder: Option<String>,
}

impl Evidence {
    /// Whether to keep it.
    #[must_use]
    pub const fn capture(&self) -> bool {
        self.capture
    }

    /// What `output_dir` says below the evidence folder: a relative path in which `{scan_id}`
    /// stands for the call.
    #[must_use]
    pub fn folder(&self) -> Option<&str> {
        self.folder.as_deref()
    }
}

/// `[tool.cedar]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CedarNames {
    pub(crate) action_type: String,
    pub(crate) action_id: String,
    pub(crate) resource_type: Option<String>,
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

/// One declared argument.
#[derive(Debug, Clone)]
pub struct ArgumentSpec {
    pub(crate) name: ArgumentName,
    pub(crate) description: String,
    pub(crate) kind: Kind,
    pub(crate) required: bool,
    pub(crate) default: Option<ArgumentValue>,
    pub(crate) position: Option<u64>,
    pub(crate) sensitive: bool,
    pub(crate) feeds_decision: bool,
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

    /// Whether its value is recorded as a salted hash only.
    #[must_use]
    pub const fn sensitive(&self) -> bool {
        self.sensitive
    }

    /// Whether somebody decides by its value.
    #[must_use]
    pub const fn feeds_decision(&self) -> bool {
        self.feeds_decision
    }

    /// Whether its value is whatever an agent writes, within hygiene.
    #[must_use]
    pub const fn is_free_text(&self) -> bool {
        self.kind.is_free_text()
    }
}

impl Contract {
    /// Reads a manifest strictly. `file` is its path for messages; its name must be
    /// `<tool name>.clad.toml`.
    ///
    /// # Errors
    /// Every fault that was found, with place, text and help. A fault of the syntax hides others.
    pub fn parse(file: &str, text: &str) -> Result<Self, SourceErrors> {
        Self::parse_with(file, text, &ProjectRules::default())
    }

    /// The same with the project's custom types and scope.
    ///
    /// # Errors
    /// As [`Contract::parse`].
    pub fn parse_with(file: &str, text: &str, rules: &ProjectRules) -> Result<Self, SourceErrors> {
        crate::manifest::parse(file, text, rules)
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

    /// Who answers a call.
    #[must_use]
    pub const fn backend(&self) -> Backend<'_> {
        match &self.work {
            Work::Command(_) => Backend::Command,
            Work::Mcp(mcp) => Backend::Mcp(mcp),
            Work::Source(query) => Backend::Source(*query),
            Work::Session(session) => Backend::Session(session),
        }
    }

    /// What the manifest asks for and nothing serves yet: a call is refused with it.
    #[must_use]
    pub const fn unserved(&self) -> Option<Unserved> {
        match &self.work {
            Work::Command(_) => None,
            Work::Mcp(_) => Some(Unserved::Mcp),
            Work::Source(_) => Some(Unserved::Source),
            Work::Session(_) => Some(Unserved::Session),
        }
    }

    /// `argv[0]`: a program's name, or its absolute path in the worker. Empty for a backend that
    /// starts none; [`Contract::bind`] refuses those.
    #[must_use]
    pub fn program(&self) -> &str {
        match &self.work {
            Work::Command(command) => command.program(),
            Work::Session(session) => session.startup.program(),
            Work::Mcp(_) | Work::Source(_) => "",
        }
    }

    #[must_use]
    pub const fn output_format(&self) -> OutputFormat {
        self.output.format
    }

    /// The program of `parser = "custom:…"`: an absolute path in a worker of its own.
    #[must_use]
    pub fn custom_parser(&self) -> Option<&str> {
        self.output.custom_parser.as_deref()
    }

    /// `[output.schema]`.
    #[must_use]
    pub fn output_schema(&self) -> Option<&Value> {
        self.output.schema.as_ref().map(|schema| &schema.value)
    }

    /// A whole stdout as the result that the manifest promises: read by its format, checked against
    /// its schema. With a custom parser it is that one's stdout, which is JSON.
    ///
    /// # Errors
    /// [`ResultFault`] where it is not.
    pub fn result(&self, stdout: &[u8]) -> Result<Value, ResultFault> {
        self.output.result(stdout)
    }

    /// `[tool.evidence]`.
    #[must_use]
    pub const fn evidence(&self) -> Option<&Evidence> {
        self.evidence.as_ref()
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

    /// The project's scope.
    #[must_use]
    pub fn scope(&self) -> Option<&Scope> {
        self.scope.as_deref()
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
