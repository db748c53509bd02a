//! A manifest's text becomes a contract. What is not understood is refused with its place; what a
//! later version will understand is refused as not supported yet. Nothing is ignored.

mod arguments;
mod command;
mod filesystem;
mod kinds;
mod spreads;

use model::{Digest, OutputFormat, RiskTier, SourceError, SourceErrors, ToolName, Untrusted};
use serde_spanned::Spanned;
use toml::de::{DeTable, DeValue};

use crate::contract::{CedarNames, Contract, Output, ToolLimits};
use crate::hygiene::{hidden_in_prose, name as character_name};
use crate::limits::{
    DESCRIPTION_BYTES_MAX, LIMIT_VALUE_MAX, MANIFEST_BYTES_MAX, TIMEOUT_SECONDS_MAX,
    VERSION_BYTES_MAX,
};
use crate::reader::{Faults, Section, listed, quoted, suggestion};

/// A manifest's name ends so.
const SUFFIX: &str = ".clad.toml";
/// Names of launch executors: their actions must never be a tool's.
const RESERVED_NAMES: [&str; 2] = ["claude_code", "command"];

pub(crate) fn parse(file: &str, text: &str) -> Result<Contract, SourceErrors> {
    if text.len() > MANIFEST_BYTES_MAX {
        let message = format!(
            "the manifest has {} bytes, more than the {MANIFEST_BYTES_MAX} allowed",
            text.len()
        );
        return Err(SourceError::whole_file(file, message).into());
    }
    let document = DeTable::parse(text).map_err(|error| {
        let message = Untrusted::new(error.message()).escaped();
        SourceError::at(file, text, error.span().unwrap_or(0..0), message)
    })?;
    let mut faults = Faults::new(file, text);
    let contract = read_document(file, text, document.get_ref(), &mut faults);
    faults.check()?;
    contract.ok_or_else(|| SourceError::whole_file(file, "the manifest is incomplete").into())
}

/// `None` only beside a fault.
fn read_document(
    file: &str,
    text: &str,
    document: &DeTable<'_>,
    faults: &mut Faults<'_>,
) -> Option<Contract> {
    let mut root = Section::new(String::new(), 0..0, document);
    let tool = root.table(faults, "tool");
    let argument_table = root.table(faults, "args");
    let command_table = root.table(faults, "command");
    let filesystem_table = root.table(faults, "filesystem");
    let output_table = root.table(faults, "output");
    for later in ["http", "mcp", "session", "browser", "source"] {
        root.not_yet(faults, later);
    }

    let binary = tool.as_ref().and_then(binary_of);
    let tool = match tool {
        Some(section) => read_tool(file, section, faults),
        None => {
            root.missing(faults, "tool", "a manifest begins with a `[tool]` table");
            None
        }
    };
    let arguments = arguments::read(argument_table, faults);
    let command = match command_table {
        Some(section) => command::read(section, binary.as_ref(), &arguments, faults),
        None => {
            root.missing(
                faults,
                "command",
                "say what runs: `[command] exec = [\"…\"]`",
            );
            None
        }
    };
    let grants = filesystem::read(filesystem_table, &arguments, faults);
    let output = read_output(output_table, faults);
    root.finish(faults);

    let tool = tool?;
    Some(Contract {
        name: tool.name,
        version: tool.version,
        description: tool.description,
        digest: Digest::of(text.as_bytes()),
        risk_tier: tool.risk_tier,
        human_approval: tool.human_approval,
        timeout_seconds: tool.timeout_seconds,
        cedar: tool.cedar,
        limits: tool.limits,
        arguments: arguments.specs,
        command: command?,
        grants: grants?,
        output: output?,
    })
}

/// `[tool]` without `binary`, which the command's reader checks.
struct Tool {
    name: ToolName,
    version: String,
    description: String,
    risk_tier: RiskTier,
    human_approval: bool,
    timeout_seconds: Option<u64>,
    cedar: Option<CedarNames>,
    limits: ToolLimits,
}

fn binary_of<'a>(tool: &Section<'a>) -> Option<Spanned<&'a str>> {
    let (_, value) = tool.entries().find(|(key, _)| *key.get_ref() == "binary")?;
    let text = crate::reader::as_string(value)?;
    Some(Spanned::new(value.span(), text))
}

fn read_tool(file: &str, mut section: Section<'_>, faults: &mut Faults<'_>) -> Option<Tool> {
    let name = read_name(file, &mut section, faults);
    let version = read_version(&mut section, faults);
    let description = match section.string(faults, "description") {
        Some(given) => prose(&section.name_of("description"), &given, faults),
        None => {
            if section.entry("description").is_none() {
                section.missing(
                    faults,
                    "description",
                    "say in a sentence what the tool does",
                );
            }
            None
        }
    };
    if section.string(faults, "binary").is_none() && section.entry("binary").is_none() {
        section.missing(faults, "binary", "name the program that `exec` begins with");
    }
    only(
        &mut section,
        faults,
        "mode",
        "oneshot",
        &["session", "browser"],
    );
    only(&mut section, faults, "dispatch", "exec", &["callback"]);
    section.not_yet(faults, "evidence");
    let timeout_seconds = section.bounded(faults, "timeout_seconds", TIMEOUT_SECONDS_MAX);
    let risk_tier = read_risk_tier(&mut section, faults);
    let human_approval = section.flag(faults, "human_approval");
    let cedar = match section.table(faults, "cedar") {
        Some(cedar) => read_cedar(cedar, faults),
        None => None,
    };
    let limits = match section.table(faults, "limits") {
        Some(limits) => read_limits(limits, faults),
        None => ToolLimits::default(),
    };
    section.finish(faults);
    Some(Tool {
        name: name?,
        version: version?,
        description: description?,
        risk_tier: risk_tier?,
        human_approval,
        timeout_seconds,
        cedar,
        limits,
    })
}

fn read_name(file: &str, section: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<ToolName> {
    let Some(given) = section.string(faults, "name") else {
        if section.entry("name").is_none() {
            section.missing(
                faults,
                "name",
                "the tool's name is the file's, without `.clad.toml`",
            );
        }
        return None;
    };
    let name = match ToolName::new(*given.get_ref()) {
        Ok(name) => name,
        Err(error) => {
            faults.add(given.span(), error.to_string());
            return None;
        }
    };
    if RESERVED_NAMES.contains(&name.as_str()) {
        let message = format!("the name `{name}` is reserved for the launch of agents");
        faults.add_with(given.span(), message, "choose another name");
    }
    let file_name = file.rsplit('/').next().unwrap_or(file);
    match file_name.strip_suffix(SUFFIX) {
        Some(stem) if stem == name.as_str() => {}
        Some(stem) => {
            let message = format!("the tool is named `{name}`, its file {}", quoted(stem));
            let help = format!("name the file `{name}{SUFFIX}`");
            faults.add_with(given.span(), message, help);
        }
        None => {
            let help = format!("name the file `{name}{SUFFIX}`");
            faults.add_with(
                given.span(),
                format!("a manifest's file ends in `{SUFFIX}`"),
                help,
            );
        }
    }
    Some(name)
}

fn read_version(section: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<String> {
    let Some(given) = section.string(faults, "version") else {
        if section.entry("version").is_none() {
            section.missing(faults, "version", "for example `version = \"1.0.0\"`");
        }
        return None;
    };
    let version = *given.get_ref();
    let printable = version.bytes().all(|byte| byte.is_ascii_graphic());
    if version.is_empty() || version.len() > VERSION_BYTES_MAX || !printable {
        let message = format!(
            "{} must be 1 to {VERSION_BYTES_MAX} printable ASCII characters",
            section.name_of("version")
        );
        faults.add(given.span(), message);
        return None;
    }
    Some(version.to_owned())
}

/// Text for people and models: bounded, and all of it visible.
fn prose(key: &str, given: &Spanned<&str>, faults: &mut Faults<'_>) -> Option<String> {
    let text = *given.get_ref();
    if text.len() > DESCRIPTION_BYTES_MAX {
        let bytes = text.len();
        let message =
            format!("{key} has {bytes} bytes, more than the {DESCRIPTION_BYTES_MAX} allowed");
        faults.add(given.span(), message);
        return None;
    }
    if let Some((at, character)) = hidden_in_prose(text) {
        let message = format!(
            "{key} has a hidden character, {}",
            character_name(character)
        );
        let place = faults.inside(&given.span(), text, at..at + character.len_utf8());
        faults.add(place, message);
        return None;
    }
    Some(text.to_owned())
}

/// A key of the format with one value that is served, and others that are not yet.
fn only(
    section: &mut Section<'_>,
    faults: &mut Faults<'_>,
    key: &'static str,
    served: &str,
    later: &[&str],
) {
    let Some(given) = section.string(faults, key) else {
        return;
    };
    let value = *given.get_ref();
    if value == served {
        return;
    }
    let what = format!("{} = {}", section.name_of(key), quoted(value));
    if later.contains(&value) {
        faults.add(given.span(), format!("{what} is not supported yet"));
    } else {
        faults.add_with(
            given.span(),
            format!("{what} is unknown"),
            format!("write `{served}`"),
        );
    }
}

fn read_risk_tier(section: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<RiskTier> {
    const TIERS: [RiskTier; 4] = [
        RiskTier::Low,
        RiskTier::Medium,
        RiskTier::High,
        RiskTier::Critical,
    ];
    if section.entry("risk_tier").is_none() {
        return Some(RiskTier::Low);
    }
    let given = section.string(faults, "risk_tier")?;
    let found = TIERS
        .into_iter()
        .find(|tier| tier.as_str() == *given.get_ref());
    if found.is_none() {
        let names = TIERS.map(RiskTier::as_str);
        unknown_word(&section.name_of("risk_tier"), &given, &names, faults);
    }
    found
}

/// A fault for a word outside a closed list.
fn unknown_word(key: &str, given: &Spanned<&str>, valid: &[&str], faults: &mut Faults<'_>) {
    let word = *given.get_ref();
    let help = suggestion(word, valid)
        .unwrap_or_else(|| format!("valid are {}", listed(valid.iter().copied())));
    faults.add_with(
        given.span(),
        format!("{key} has the unknown value {}", quoted(word)),
        help,
    );
}

fn read_cedar(mut section: Section<'_>, faults: &mut Faults<'_>) -> Option<CedarNames> {
    let resource = section.string(faults, "resource");
    let action = section.string(faults, "action");
    if section.entry("action").is_none() {
        section.missing(faults, "action", "for example `action = \"execute_tool\"`");
    }
    let resource_type = resource.map(|given| {
        if !is_cedar_name(given.get_ref()) {
            let message = format!("{} is not a Cedar entity type", quoted(given.get_ref()));
            faults.add_with(given.span(), message, "write it like `Tool::Scan`");
        }
        (*given.get_ref()).to_owned()
    });
    section.finish(faults);
    let action = action?;
    let (action_type, action_id) = split_action(action.get_ref());
    let plain = action_id
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte));
    let is_action = action_type == "Action" || action_type.ends_with("::Action");
    if action_id.is_empty() || !plain || !is_action || !is_cedar_name(action_type) {
        let message = format!("{} is not a Cedar action", quoted(action.get_ref()));
        let help = "write its id, like `execute_tool`, or all of it, like `Scan::Action::\"run\"`";
        faults.add_with(action.span(), message, help);
        return None;
    }
    Some(CedarNames {
        action_type: action_type.to_owned(),
        action_id: action_id.to_owned(),
        resource_type,
    })
}

/// `Scan::Action::"run"` as its type and id; a bare id has the type `Action`.
fn split_action(text: &str) -> (&str, &str) {
    match text
        .strip_suffix('"')
        .and_then(|inner| inner.split_once("::\""))
    {
        Some(parts) => parts,
        None => ("Action", text),
    }
}

fn is_cedar_name(text: &str) -> bool {
    text.split("::").all(|part| {
        let mut bytes = part.bytes();
        bytes
            .next()
            .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

fn read_limits(mut section: Section<'_>, faults: &mut Faults<'_>) -> ToolLimits {
    let limits = ToolLimits {
        memory_mib: section.bounded(faults, "memory_mib", LIMIT_VALUE_MAX),
        cpu_milli: read_cpus(&mut section, faults),
        pids: section.bounded(faults, "pids", LIMIT_VALUE_MAX),
        max_output_bytes: section.bounded(faults, "max_output_bytes", LIMIT_VALUE_MAX),
    };
    section.finish(faults);
    limits
}

/// `cpus` in thousandths: a number with at most three fractional digits.
fn read_cpus(section: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<u64> {
    const CPUS_MAX: u64 = 1024;
    const TENTHS_OF_MILLI: u64 = 10;
    let (_, value) = section.entry("cpus")?;
    let scaled = kinds::decimal_of(value.get_ref())
        .and_then(|number| u64::try_from(number.scaled()).ok())
        .filter(|scaled| scaled % TENTHS_OF_MILLI == 0)
        .map(|scaled| scaled / TENTHS_OF_MILLI)
        .filter(|milli| (1..=CPUS_MAX * 1000).contains(milli));
    if scaled.is_none() {
        let message = format!(
            "{} must be a number from 0.001 to {CPUS_MAX} with at most three fractional digits",
            section.name_of("cpus")
        );
        faults.add(value.span(), message);
    }
    scaled
}

fn read_output(section: Option<Section<'_>>, faults: &mut Faults<'_>) -> Option<Output> {
    let Some(mut section) = section else {
        return Some(Output {
            format: OutputFormat::Text,
            max_bytes: None,
        });
    };
    let format = match section.string(faults, "format") {
        Some(given) => match *given.get_ref() {
            "text" => Some(OutputFormat::Text),
            "json" => Some(OutputFormat::Json),
            later @ ("jsonl" | "csv" | "xml") => {
                let message = format!("the output format `{later}` is not supported yet");
                faults.add_with(
                    given.span(),
                    message,
                    "`text` passes the output through as it is",
                );
                None
            }
            _ => {
                unknown_word(
                    &section.name_of("format"),
                    &given,
                    &["text", "json"],
                    faults,
                );
                None
            }
        },
        None => Some(OutputFormat::Text),
    };
    let max_bytes = section.bounded(faults, "max_bytes", LIMIT_VALUE_MAX);
    if let Some(given) = section.string(faults, "parser") {
        let own = match format {
            Some(OutputFormat::Json) => "builtin:json",
            _ => "builtin:text",
        };
        if *given.get_ref() != own {
            let message = format!(
                "the output parser {} is not supported yet",
                quoted(given.get_ref())
            );
            faults.add_with(
                given.span(),
                message,
                format!("this format's own is `{own}`"),
            );
        }
    }
    if let Some((place, value)) = section.entry("envelope")
        && !matches!(value.get_ref(), DeValue::Boolean(true))
    {
        faults.add(
            place,
            "every result has an envelope: `output.envelope` can only be `true`",
        );
    }
    section.not_yet(faults, "schema");
    section.finish(faults);
    Some(Output {
        format: format?,
        max_bytes,
    })
}
