//! What the policies can speak about: the tools and launches of a session, by their types.

use model::{ArgumentName, PolicyType, ToolName};

/// One policy file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySource {
    /// Its name as messages show it, for example `policies/call/copy.cedar`.
    pub file: String,
    pub text: String,
}

/// One tool as Cedar sees it.
#[derive(Debug, Clone)]
pub struct ToolShape {
    pub name: ToolName,
    pub kind: ToolKind,
    /// The action of the manifest's `[tool.cedar]`: its type (`Action`, `Files::Action`) and its
    /// id. Without it the action is `Action::"tool_call::NAME"`. Tools may share an action; then
    /// they agree in the types of equally named arguments.
    pub action: Option<(String, String)>,
    /// The resource type of `[tool.cedar]`, like `PenTest::ScanTarget`. Without it the resource is
    /// `Tool::"NAME"`.
    pub resource: Option<String>,
    /// Name, type, and whether it is always there. Not the sensitive ones: no policy sees those.
    pub arguments: Vec<(ArgumentName, PolicyType, bool)>,
    /// Keys of `filesystem.read`: an argument's name or a literal's index, and whether the
    /// grant may be absent.
    pub read_keys: Vec<(String, bool)>,
    /// Keys of `filesystem.create`, in the same way.
    pub create_keys: Vec<(String, bool)>,
    /// The manifest demands a person's approval.
    pub needs_approval: bool,
}

/// How a tool's work is described.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolKind {
    /// By a manifest: arguments and a command boundary.
    #[default]
    Command,
    /// By an embedding program: `invocation.custom` with kind and digest. Its name is the kind.
    Custom,
}

/// A contained agent's launch: the action is `tool_call::EXECUTOR`.
#[derive(Debug, Clone)]
pub struct LaunchShape {
    pub executor: String,
}
