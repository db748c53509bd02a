//! `symbiont.toml`: what the operator demands, parsed once into what can be relied on.
//!
//! A value of these types has passed its check: only [`Config::parse`] makes one.

mod agents;
mod capacity;
mod host_path;
mod inference;
mod sandbox;
mod user;

use std::collections::BTreeMap;
use std::fmt;

use model::{AgentName, SourceErrors, nearest};

pub use agents::{AgentExecutor, AgentSettings};
pub use capacity::CapacitySettings;
pub use host_path::HostPath;
pub use inference::InferenceSettings;
pub use sandbox::{
    ContainerNetwork, ContainerSettings, ContainerUser, LimitSettings, NamespaceSettings,
    SandboxSettings, Volume, VolumeAccess,
};
pub use user::{
    Anchor, AnchorPlace, ChatListen, ChatSettings, Credential, KeyFileError, Provider, UserConfig,
    UserConfigError, read_key_file,
};

use crate::limits::{
    APPROVAL_SECONDS_DEFAULT, APPROVAL_SECONDS_MAX, HOLDS_PER_HOUR_DEFAULT, HOLDS_PER_HOUR_MAX,
    LABEL_BYTES_MAX, OPERATOR_BYTES_MAX, OPERATOR_KEYS_MAX, REQUIRE_MAX,
};
use crate::reader::{Entry, Source, Table};

/// The whole of a project's `symbiont.toml`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// A label of the operator's.
    pub name: Option<String>,
    /// `true` unless the operator says otherwise: no relaxation is possible.
    pub production: bool,
    pub sandbox: SandboxSettings,
    pub agents: BTreeMap<AgentName, AgentSettings>,
    pub inference: Option<InferenceSettings>,
    pub approval: ApprovalSettings,
}

/// How people are asked.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApprovalSettings {
    /// In the order of the file, each once; empty where the file names none: nobody is asked.
    pub surfaces: Vec<ApprovalSurface>,
    pub timeout_seconds: u64,
    /// Of each tool.
    pub holds_per_hour: u64,
    /// Who signs approvals: SSH public keys by operator. Empty where nobody has to.
    pub operators: BTreeMap<String, Vec<String>>,
    /// How many of them must sign.
    pub require: u64,
    /// A name of the user's own configuration; there where the surfaces name the chat.
    pub chat: Option<String>,
}

/// Where a held call is shown to a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ApprovalSurface {
    /// The terminal of the run.
    Terminal,
    /// `symbi gate` in another terminal.
    Gate,
    /// A chat platform of the user's own configuration.
    Chat,
}

impl ApprovalSurface {
    pub const ALL: [Self; 3] = [Self::Terminal, Self::Gate, Self::Chat];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Terminal => "terminal",
            Self::Gate => "gate",
            Self::Chat => "chat",
        }
    }
}

/// All faults of a `symbiont.toml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    faults: SourceErrors,
    tier_refused: bool,
}

impl ConfigError {
    #[must_use]
    pub const fn faults(&self) -> &SourceErrors {
        &self.faults
    }

    /// Whether the file asks for an isolation that does not exist (exit 7, not 2).
    #[must_use]
    pub const fn tier_refused(&self) -> bool {
        self.tier_refused
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.faults.fmt(f)
    }
}

impl std::error::Error for ConfigError {}

impl From<ConfigError> for SourceErrors {
    fn from(error: ConfigError) -> Self {
        error.faults
    }
}

impl Config {
    /// Parses the `text` of `file` (a name for messages).
    ///
    /// # Errors
    /// [`ConfigError`] holds every fault with its place: unknown keys, wrong types, numbers
    /// out of range, names given twice, an isolation that does not exist.
    pub fn parse(file: &str, text: &str) -> Result<Self, ConfigError> {
        let source = Source::new(file, text);
        let entries = source.parse();
        let root = Table::root(&source, &entries);
        let config = read(&root);
        root.finish();
        let tier_refused = source.marked();
        source.finish().map_err(|faults| ConfigError {
            faults,
            tier_refused,
        })?;
        Ok(config)
    }
}

fn read(root: &Table<'_>) -> Config {
    let (name, production) = read_project(root);
    let sandbox = sandbox::read(root, production);
    Config {
        name,
        production,
        agents: agents::read(root, &sandbox),
        inference: inference::read(root),
        approval: read_approval(root),
        sandbox,
    }
}

fn read_project(root: &Table<'_>) -> (Option<String>, bool) {
    let Some(table) = root.table("project") else {
        return (None, true);
    };
    let name = table.entry("name").and_then(|entry| label(&entry));
    let production = table.entry("production").and_then(|entry| entry.boolean());
    table.finish();
    (name, production.unwrap_or(true))
}

/// Printable text of a length that fits a line.
fn label(entry: &Entry<'_>) -> Option<String> {
    let text = entry.text()?;
    let printable = text.chars().all(|character| !character.is_control());
    if text.trim().is_empty() || !printable || text.len() > LABEL_BYTES_MAX {
        entry.fault(
            format!("`{}` is empty, too long or not printable", entry.name()),
            format!("write 1 to {LABEL_BYTES_MAX} bytes of printable text"),
        );
        return None;
    }
    Some(text.to_owned())
}

fn read_approval(root: &Table<'_>) -> ApprovalSettings {
    let mut settings = ApprovalSettings {
        surfaces: Vec::new(),
        timeout_seconds: APPROVAL_SECONDS_DEFAULT,
        holds_per_hour: HOLDS_PER_HOUR_DEFAULT,
        operators: BTreeMap::new(),
        require: 1,
        chat: None,
    };
    let Some(table) = root.table("approval") else {
        return settings;
    };
    if let Some(entry) = table.entry("surfaces") {
        settings.surfaces = read_surfaces(&entry);
    }
    let integer = |key, max| table.entry(key).and_then(|entry| entry.integer(1..=max));
    if let Some(seconds) = integer("timeout_seconds", APPROVAL_SECONDS_MAX) {
        settings.timeout_seconds = seconds;
    }
    if let Some(holds) = integer("holds_per_hour", HOLDS_PER_HOUR_MAX) {
        settings.holds_per_hour = holds;
    }
    if let Some(operators) = table.table("operators") {
        settings.operators = read_operators(&operators);
        let unsigned = settings
            .surfaces
            .iter()
            .find(|it| **it != ApprovalSurface::Gate);
        if let Some(surface) = unsigned {
            operators.fault(
                format!(
                    "`approval.surfaces` names the {}, where no operator can sign",
                    surface.as_str()
                ),
                "write: surfaces = [\"gate\"]",
            );
        }
    }
    settings.chat = read_chat(&table, &settings.surfaces);
    if let Some(entry) = table.entry("require") {
        let operators = u64::try_from(settings.operators.len()).unwrap_or(u64::MAX);
        match entry.integer(1..=REQUIRE_MAX) {
            Some(require) if require > operators => entry.fault(
                format!("`approval.require` is {require}, and {operators} operators are named"),
                "name them in [approval.operators]: NAME = \"ssh-ed25519 AAAA...\"",
            ),
            Some(require) => settings.require = require,
            None => {}
        }
    }
    table.finish();
    settings
}

/// The name of the chat, which is there exactly where the surfaces name it.
fn read_chat(table: &Table<'_>, surfaces: &[ApprovalSurface]) -> Option<String> {
    let wanted = surfaces.contains(&ApprovalSurface::Chat);
    let Some(entry) = table.entry("chat") else {
        if wanted {
            table.fault(
                "`approval.surfaces` names the chat, and `approval.chat` does not say which",
                "add: chat = \"NAME\", of [chat.NAME] in your own config.toml",
            );
        }
        return None;
    };
    let name = entry.text()?;
    if !inference::is_name(name) {
        entry.fault(
            "`approval.chat` is no name: allowed are A-Z a-z 0-9 _ -",
            "write a name of [chat.NAME] in your own config.toml",
        );
        return None;
    }
    if !wanted {
        entry.fault(
            "`approval.chat` names a chat, and `approval.surfaces` does not",
            "add \"chat\" to `surfaces`, or leave `chat` out",
        );
    }
    Some(name.to_owned())
}

/// `NAME = "key"`, or a list of keys. Whether each is a key is for the crate that verifies.
fn read_operators(table: &Table<'_>) -> BTreeMap<String, Vec<String>> {
    let mut operators = BTreeMap::new();
    for (name, _, entry) in table.named_entries() {
        let keys: Vec<String> = if entry.is_text() {
            entry.text().map(str::to_owned).into_iter().collect()
        } else {
            let keys = entry.distinct_texts(OPERATOR_KEYS_MAX);
            keys.into_iter().map(|(key, _)| key.to_owned()).collect()
        };
        let printable = name.bytes().all(|byte| byte.is_ascii_graphic());
        if name.is_empty() || name.len() > OPERATOR_BYTES_MAX || !printable || entry.is_empty_list()
        {
            entry.fault(
                format!("`{}` is no operator with a key", entry.name()),
                format!(
                    "a name has 1 to {OPERATOR_BYTES_MAX} ASCII characters without spaces, and \
                     at least one SSH public key"
                ),
            );
        }
        operators.insert(name.to_owned(), keys);
    }
    operators
}

fn read_surfaces(entry: &Entry<'_>) -> Vec<ApprovalSurface> {
    let mut surfaces = Vec::new();
    let names = entry.distinct_texts(ApprovalSurface::ALL.len());
    if entry.is_empty_list() {
        entry.fault(
            "`approval.surfaces` names no surface: nobody could be asked",
            "write some of \"terminal\", \"gate\" and \"chat\", or leave the key out",
        );
    }
    for (name, element) in names {
        match ApprovalSurface::ALL
            .iter()
            .find(|surface| surface.as_str() == name)
        {
            Some(surface) => surfaces.push(*surface),
            None => {
                let names = ApprovalSurface::ALL.map(ApprovalSurface::as_str);
                let help = match nearest(name, names) {
                    Some(near) => format!("did you mean \"{near}\"?"),
                    None => "the surfaces are \"terminal\", \"gate\" and \"chat\"".to_owned(),
                };
                let message = format!("`{}` is no approval surface", name.escape_debug());
                element.fault(message, help);
            }
        }
    }
    surfaces
}
