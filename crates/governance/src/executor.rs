//! What an embedding program supplies: tools, their preparation, and the start of their work.

use std::time::Duration;

use model::{Canonical, Digest, JsonObject, RunId, ToolName};
use serde::Serialize;
use worker::{ParserSpec, Running, StartError, WorkerSpec};

use crate::call::PreparedCall;
use crate::proposal::ProposedCall;
use crate::refusal::Refusal;

/// A tool as a client sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolDefinition {
    pub name: ToolName,
    pub description: String,
    /// JSON Schema 2020-12 of the arguments.
    pub input_schema: JsonObject,
    /// Nothing can be created or changed by it.
    pub read_only: bool,
}

/// Work that is ready to start.
#[derive(Debug)]
pub enum Lowered {
    /// One worker in a tier.
    Worker(Box<WorkerSpec>),
    /// A command and then, where it ended well, the parser of its output: one [`Running`] for both.
    Parsed {
        command: Box<WorkerSpec>,
        parser: Box<ParserSpec>,
    },
    /// A `Custom` descriptor: the executor's own work.
    InProcess {
        custom_kind: String,
        value: Canonical,
        call_sha256: Digest,
    },
}

/// What an executor was made for, where it was made for something. A person is shown parts of it,
/// and policy judges them, so a session that would be another one does not start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FrozenContext {
    pub run: Option<RunId>,
    pub principal: Option<String>,
    pub policy_sha256: Option<Digest>,
    pub tool_set_sha256: Option<Digest>,
    pub max_calls: Option<u64>,
    pub lifetime: Option<Duration>,
}

/// The executor of a session. It starts work; the session alone waits for it.
pub trait ActionExecutor: Send {
    /// The registry. It must not change while a session lives.
    fn tools(&self) -> &[ToolDefinition];

    /// What it was made for.
    fn frozen(&self) -> FrozenContext {
        FrozenContext::default()
    }

    /// Checks the arguments, takes snapshots, and freezes what will run. No effect.
    ///
    /// # Errors
    /// A [`Refusal`] made from the call.
    fn prepare(&mut self, call: ProposedCall) -> Result<PreparedCall, Refusal>;

    /// Starts exactly `work`.
    ///
    /// # Errors
    /// [`StartError`]: nothing has run.
    fn start(&mut self, work: Lowered) -> Result<Box<dyn Running>, StartError>;
}
