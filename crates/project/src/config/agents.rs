//! `[agents.NAME]`: the contained agents.

use std::collections::BTreeMap;
use std::ops::Range;

use model::{AgentName, ToolName, nearest};

use super::host_path::HostPath;
use super::sandbox::SandboxSettings;
use crate::limits::{
    AGENTS_MAX, ALLOWED_TOOLS_MAX, CLAUDE_CODE_TOOL_NAME_BYTES_MAX, COMMAND_WORDS_MAX,
    CPU_MILLI_MIN, ENVIRONMENT_MAX, LABEL_BYTES_MAX, MEMORY_MIB_MIN, PIDS_MIN, TURNS_MAX,
    WORD_BYTES_MAX,
};
use crate::reader::{Entry, Table};

/// Principals that are no agents.
const RESERVED_NAMES: [&str; 2] = ["operator", "mcp"];

/// One contained agent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgentSettings {
    pub executor: AgentExecutor,
    /// The program file: on the namespace tier on the host, in a container in the image.
    pub program: Option<HostPath>,
    pub env: BTreeMap<String, String>,
    /// Each once, in the order of the file.
    pub allowed_tools: Vec<ToolName>,
    /// Where each of them stands in the configuration.
    pub allowed_places: Vec<Range<usize>>,
    /// Whether a person must approve the launch.
    pub human_approval: bool,
    /// At most the tier's.
    pub memory_mib: u64,
    /// At most the tier's.
    pub cpu_milli: u64,
    /// At most the tier's.
    pub pids: u64,
    pub max_turns: Option<u64>,
}

/// How an agent is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentExecutor {
    /// The program speaks Claude Code's command line.
    ClaudeCode,
    /// This argv, never empty; the task is in its environment.
    Command { command: Vec<String> },
}

impl AgentExecutor {
    /// As `executor` names it, and the action `tool_call::<executor>` of the launch.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude_code",
            Self::Command { .. } => "command",
        }
    }
}

pub(super) fn read(
    root: &Table<'_>,
    sandbox: &SandboxSettings,
) -> BTreeMap<AgentName, AgentSettings> {
    let mut agents = BTreeMap::new();
    let Some(table) = root.table("agents") else {
        return agents;
    };
    let entries = table.named_entries();
    if entries.len() > AGENTS_MAX {
        let message = format!("`[agents]` has {} agents", entries.len());
        table.fault(message, format!("at most {AGENTS_MAX} are allowed"));
        return agents;
    }
    for (name, place, entry) in entries {
        if RESERVED_NAMES.contains(&name) {
            let message = format!("no agent can be named `{name}`");
            let help = "policies mean you by `operator`, and an uncontained client by `mcp`: \
                        choose another name";
            entry.source().fault(place.clone(), message, help);
        }
        let name = AgentName::new(name)
            .map_err(|error| {
                let help = "rename the agent, like [agents.reviewer]";
                entry.source().fault(place, error.to_string(), help);
            })
            .ok();
        let settings = entry.table().and_then(|table| read_agent(table, sandbox));
        if let (Some(name), Some(settings)) = (name, settings) {
            agents.insert(name, settings);
        }
    }
    agents
}

fn read_agent(table: Table<'_>, sandbox: &SandboxSettings) -> Option<AgentSettings> {
    let executor = read_executor(&table);
    let program = table.entry("program");
    if matches!(executor, Some(AgentExecutor::ClaudeCode)) && program.is_none() {
        table.fault(
            format!("`[{}]` has no `program`", table.name()),
            "add: program = \"/path/to/claude\"",
        );
    }
    if let (Some(AgentExecutor::Command { command }), None) = (&executor, &program)
        && command.iter().any(|word| word == "{program}")
    {
        table.fault(
            format!(
                "the command of `[{}]` names `{{program}}`, and there is none",
                table.name()
            ),
            "add: program = \"./agents/helper.py\"",
        );
    }
    let program = program.and_then(|entry| HostPath::read(&entry));
    if let Some(entry) = table.entry("program_root") {
        entry.fault(
            "`program_root` is not supported in this version",
            "the program's own file is shown, and nothing around it",
        );
    }
    let env = table.entry("env").and_then(|entry| entry.table());
    let env = env
        .map(|table| read_environment(&table))
        .unwrap_or_default();
    let (allowed_tools, allowed_places) = table
        .required("allowed_tools", "[\"TOOL\"]")
        .map(|entry| read_tools(&entry, executor.as_ref()))
        .unwrap_or_default()
        .into_iter()
        .unzip();
    let human_approval = table
        .entry("human_approval")
        .and_then(|entry| entry.boolean());
    let ceiling = sandbox.limits();
    let lower = |key, low, high: u64, show: fn(u64) -> String| {
        read_lower(&table, sandbox, key, (low, high), show)
    };
    let memory_mib = lower("memory_mib", MEMORY_MIB_MIN, ceiling.memory_mib, |n| {
        n.to_string()
    });
    let cpu_milli = lower("cpus", CPU_MILLI_MIN, ceiling.cpu_milli, decimal);
    let pids = lower("pids", PIDS_MIN, ceiling.pids, |n| n.to_string());
    let max_turns = table
        .entry("max_turns")
        .and_then(|entry| entry.integer(1..=TURNS_MAX));
    table.finish();
    Some(AgentSettings {
        executor: executor?,
        program,
        env,
        allowed_tools,
        allowed_places,
        human_approval: human_approval.unwrap_or(false),
        memory_mib,
        cpu_milli,
        pids,
        max_turns,
    })
}

fn decimal(milli: u64) -> String {
    format!("{}.{:03}", milli / 1000, milli % 1000)
}

/// A limit that may only be lower than the tier's; without one the tier's holds.
fn read_lower(
    table: &Table<'_>,
    sandbox: &SandboxSettings,
    key: &'static str,
    (low, ceiling): (u64, u64),
    show: fn(u64) -> String,
) -> u64 {
    let Some(entry) = table.entry(key) else {
        return ceiling;
    };
    let value = match key {
        "cpus" => entry.thousandths(low..=crate::limits::CPU_MILLI_MAX),
        _ => entry.integer(low..=u64::MAX >> 11),
    };
    match value {
        Some(value) if value > ceiling => {
            let tier = sandbox.tier.as_str();
            entry.fault(
                format!(
                    "`{}` is {}, more than the {} of `[sandbox.{tier}]`",
                    entry.name(),
                    show(value),
                    show(ceiling)
                ),
                format!("an agent may only lower it; raise {key} in [sandbox.{tier}] instead"),
            );
            ceiling
        }
        Some(value) => value,
        None => ceiling,
    }
}

fn read_executor(table: &Table<'_>) -> Option<AgentExecutor> {
    let command = table.entry("command");
    let entry = table.required("executor", "\"claude_code\" or \"command\"")?;
    match (entry.text()?, command) {
        ("claude_code", None) => Some(AgentExecutor::ClaudeCode),
        ("claude_code", Some(command)) => {
            command.fault(
                "`command` does not go with the executor `claude_code`",
                "remove it, or write executor = \"command\"",
            );
            None
        }
        ("command", Some(command)) => read_command(&command),
        ("command", None) => {
            entry.fault(
                "the executor `command` needs a `command`",
                "add: command = [\"python3\", \"agent.py\"]",
            );
            None
        }
        (other, _) => {
            let message = format!("there is no executor `{}`", other.escape_debug());
            let help = match nearest(other, ["claude_code", "command"]) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => "the executors are \"claude_code\" and \"command\"".to_owned(),
            };
            entry.fault(message, help);
            None
        }
    }
}

fn read_command(entry: &Entry<'_>) -> Option<AgentExecutor> {
    let command = words(entry)?;
    for (word, element) in command.iter().zip(entry.list(COMMAND_WORDS_MAX)) {
        let Some(name) = placeholder(word).filter(|name| !FILLED_IN.contains(name)) else {
            continue;
        };
        let help = match nearest(name, FILLED_IN) {
            Some(near) => format!("did you mean `{{{near}}}`?"),
            None => format!("filled in are {{{}}}", FILLED_IN.join("}, {")),
        };
        element.fault(format!("nothing fills in `{{{name}}}`"), help);
    }
    Some(AgentExecutor::Command { command })
}

/// What an agent's command is given, each as a whole word.
const FILLED_IN: [&str; 4] = ["program", "task", "mcp_config", "inference_url"];

/// The name of a word that is one placeholder as a whole.
fn placeholder(word: &str) -> Option<&str> {
    let name = word.strip_prefix('{')?.strip_suffix('}')?;
    let plain = |c: char| c.is_ascii_lowercase() || c == '_';
    (!name.is_empty() && name.chars().all(plain)).then_some(name)
}

/// The words of a command: at least one, and the first not empty.
pub(super) fn words(entry: &Entry<'_>) -> Option<Vec<String>> {
    let mut words = Vec::new();
    for element in entry.list(COMMAND_WORDS_MAX) {
        words.push(word(&element)?);
    }
    if entry.is_empty_list() || words.first().is_some_and(String::is_empty) {
        entry.fault(
            format!("`{}` names no program", entry.name()),
            "write a list like [\"python3\", \"agent.py\"]",
        );
        return None;
    }
    (!words.is_empty()).then_some(words)
}

fn word(entry: &Entry<'_>) -> Option<String> {
    let text = entry.text()?;
    if text.contains('\0') || text.len() > WORD_BYTES_MAX {
        entry.fault(
            format!(
                "`{}` has a NUL byte or more than {WORD_BYTES_MAX} bytes",
                entry.name()
            ),
            "the kernel passes no such text to a program",
        );
        return None;
    }
    Some(text.to_owned())
}

/// A name that a shell could set: `[A-Za-z_][A-Za-z0-9_]*`.
pub(super) fn is_variable(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && name.chars().all(word) && name.len() <= LABEL_BYTES_MAX
}

fn read_environment(table: &Table<'_>) -> BTreeMap<String, String> {
    let mut environment = BTreeMap::new();
    let entries = table.named_entries();
    if entries.len() > ENVIRONMENT_MAX {
        let message = format!("`{}` has {} variables", table.name(), entries.len());
        table.fault(message, format!("at most {ENVIRONMENT_MAX} are allowed"));
        return environment;
    }
    for (name, place, entry) in entries {
        if !is_variable(name) {
            let message = format!("`{}` is no name of a variable", name.escape_debug());
            let help = "a name has A-Z a-z 0-9 and _, and begins with no digit";
            entry.source().fault(place, message, help);
        } else if let Some(value) = word(&entry) {
            environment.insert(name.to_owned(), value);
        }
    }
    environment
}

fn read_tools(
    entry: &Entry<'_>,
    executor: Option<&AgentExecutor>,
) -> Vec<(ToolName, Range<usize>)> {
    let mut tools = Vec::new();
    let names = entry.distinct_texts(ALLOWED_TOOLS_MAX);
    if entry.is_empty_list() {
        entry.fault(
            "`allowed_tools` is empty, and an agent without tools can do nothing",
            "name at least one tool, like [\"read_file\"]",
        );
    }
    for (text, element) in names {
        match ToolName::new(text) {
            Ok(_)
                if executor == Some(&AgentExecutor::ClaudeCode)
                    && text.len() > CLAUDE_CODE_TOOL_NAME_BYTES_MAX =>
            {
                let message = format!("`{text}` has {} characters", text.len());
                let remedy = format!(
                    "give the tool a name of at most {CLAUDE_CODE_TOOL_NAME_BYTES_MAX}: Claude \
                     Code puts `mcp__symbi__` before it, and providers take 128"
                );
                element.fault(message, remedy);
            }
            Ok(tool) => tools.push((tool, element.place())),
            Err(error) => element.fault(error.to_string(), "write the name of a tool's manifest"),
        }
    }
    tools
}
