//! What answers a call besides a command: parsed whole, and refused at the call until it is served.

use std::collections::BTreeMap;
use std::fmt;

use model::{ArgumentName, RiskTier};

use crate::command::Command;
use crate::contract::ArgumentSpec;

/// Who answers a call of the tool.
#[derive(Debug, Clone, Copy)]
pub enum Backend<'a> {
    /// `[command]`: one program in a fresh worker.
    Command,
    /// `[mcp]`: a tool of an upstream server.
    Mcp(&'a McpBackend),
    /// `[source]`: a bounded query of the project's own files.
    Source(SourceQuery),
    /// `[session]`: a program that stays, and takes one command after another.
    Session(&'a SessionBackend),
}

/// The same with what runs.
#[derive(Debug, Clone)]
pub(crate) enum Work {
    Command(Command),
    Mcp(McpBackend),
    Source(SourceQuery),
    Session(Box<SessionBackend>),
}

/// What a manifest can say and nothing serves yet. The message is one clear line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unserved {
    Mcp,
    Source,
    Session,
}

impl fmt::Display for Unserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::Mcp => "an `[mcp]` server",
            Self::Source => "a `[source]` query",
            Self::Session => "a `[session]`",
        };
        write!(f, "the tool needs {what}, which is not served yet")
    }
}

impl std::error::Error for Unserved {}

/// `[mcp]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpBackend {
    pub(crate) server: String,
    pub(crate) tool: String,
    /// The upstream name of every argument.
    pub(crate) fields: BTreeMap<ArgumentName, String>,
}

impl McpBackend {
    /// The server's name in the project's configuration.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The tool's name there.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The upstream name of an argument: `field_map`, or its own.
    #[must_use]
    pub fn field(&self, argument: &ArgumentName) -> Option<&str> {
        self.fields.get(argument).map(String::as_str)
    }
}

/// `[source]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceQuery {
    ReadFile,
    ListFiles,
    GrepFiles,
}

impl SourceQuery {
    pub(crate) const ALL: [Self; 3] = [Self::ReadFile, Self::ListFiles, Self::GrepFiles];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadFile => "read_file",
            Self::ListFiles => "list_files",
            Self::GrepFiles => "grep_files",
        }
    }
}

/// `[session]`.
#[derive(Debug, Clone)]
pub struct SessionBackend {
    pub(crate) startup: Command,
    pub(crate) ready_pattern: String,
    pub(crate) limits: SessionLimits,
    pub(crate) commands: BTreeMap<String, SessionCommand>,
}

/// How long a session and its parts may last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    pub startup_seconds: u64,
    pub idle_seconds: u64,
    pub session_seconds: u64,
    pub interactions: u64,
    /// Of one interaction's output.
    pub output_bytes: u64,
    pub output_wait_ms: u64,
}

/// One command that a session accepts.
#[derive(Debug, Clone)]
pub struct SessionCommand {
    pub(crate) pattern: crate::pattern::Pattern,
    pub(crate) description: String,
    pub(crate) risk_tier: RiskTier,
    pub(crate) human_approval: bool,
    pub(crate) extract_target: bool,
    pub(crate) finalize: bool,
    pub(crate) arguments: Vec<ArgumentSpec>,
}

impl SessionBackend {
    /// Searched in the program's output; a match means that it waits for a command.
    #[must_use]
    pub fn ready_pattern(&self) -> &str {
        &self.ready_pattern
    }

    #[must_use]
    pub const fn limits(&self) -> SessionLimits {
        self.limits
    }

    /// By name.
    pub fn commands(&self) -> impl ExactSizeIterator<Item = (&str, &SessionCommand)> {
        self.commands
            .iter()
            .map(|(name, command)| (name.as_str(), command))
    }
}

impl SessionCommand {
    /// Whether the whole line is one of this command's.
    #[must_use]
    pub fn accepts(&self, line: &str) -> bool {
        self.pattern.matches(line)
    }

    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    #[must_use]
    pub const fn risk_tier(&self) -> RiskTier {
        self.risk_tier
    }

    /// By `human_approval`, or because the risk is high or critical.
    #[must_use]
    pub fn needs_approval(&self) -> bool {
        self.human_approval || self.risk_tier >= RiskTier::High
    }

    /// Whether the line names a target that the scope must allow.
    #[must_use]
    pub const fn extract_target(&self) -> bool {
        self.extract_target
    }

    /// Whether it ends the session, so that its output can be published.
    #[must_use]
    pub const fn finalize(&self) -> bool {
        self.finalize
    }

    pub fn arguments(&self) -> impl ExactSizeIterator<Item = &ArgumentSpec> {
        self.arguments.iter()
    }
}
