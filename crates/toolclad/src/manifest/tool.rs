//! `[tool]`: who the tool is, how bad its misuse would be, how long it may take.

use model::{RiskTier, ToolName};
use serde_spanned::Spanned;

use super::backends::BackendKind;
use super::{prose, read_risk_tier, unknown_word};
use crate::contract::{CedarNames, Evidence, ToolLimits};
use crate::limits::{LIMIT_VALUE_MAX, TIMEOUT_SECONDS_MAX, VERSION_BYTES_MAX};
use crate::reader::{Faults, Section, quoted};

/// A manifest's name ends so.
const SUFFIX: &str = ".clad.toml";
/// Names of launch executors: their actions must never be a tool's.
const RESERVED_NAMES: [&str; 2] = ["claude_code", "command"];

/// `[tool]` without `binary`, which the backend's reader checks.
pub(super) struct Tool {
    pub(super) name: ToolName,
    pub(super) version: String,
    pub(super) description: String,
    pub(super) risk_tier: RiskTier,
    pub(super) human_approval: bool,
    pub(super) timeout_seconds: Option<u64>,
    pub(super) cedar: Option<CedarNames>,
    pub(super) limits: ToolLimits,
    pub(super) evidence: Option<Evidence>,
}

pub(super) fn binary_of<'a>(tool: &Section<'a>) -> Option<Spanned<&'a str>> {
    let (_, value) = tool.entries().find(|(key, _)| *key.get_ref() == "binary")?;
    let text = crate::reader::as_string(value)?;
    Some(Spanned::new(value.span(), text))
}

pub(super) fn read(
    file: &str,
    mut section: Section<'_>,
    kind: Option<BackendKind>,
    faults: &mut Faults<'_>,
) -> Option<Tool> {
    let name = read_name(file, &mut section, faults);
    let version = read_version(&mut section, faults);
    let description = read_description(&mut section, faults);
    let runs = matches!(
        kind,
        None | Some(BackendKind::Command | BackendKind::Session)
    );
    if section.string(faults, "binary").is_none() && section.entry("binary").is_none() && runs {
        section.missing(faults, "binary", "name the program that `exec` begins with");
    }
    read_mode(&mut section, kind, faults);
    read_dispatch(&mut section, faults);
    let evidence = match section.table(faults, "evidence") {
        Some(evidence) => read_evidence(evidence, faults),
        None => None,
    };
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
        evidence,
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
            faults.add(
                given.span(),
                error.to_string(),
                "rename the tool, like `copy_csv`",
            );
            return None;
        }
    };
    if RESERVED_NAMES.contains(&name.as_str()) {
        let message = format!("the name `{name}` is reserved for the launch of agents");
        faults.add(given.span(), message, "choose another name");
    }
    let file_name = file.rsplit('/').next().unwrap_or(file);
    match file_name.strip_suffix(SUFFIX) {
        Some(stem) if stem == name.as_str() => {}
        Some(stem) => {
            let message = format!("the tool is named `{name}`, its file {}", quoted(stem));
            let help = format!("name the file `{name}{SUFFIX}`");
            faults.add(given.span(), message, help);
        }
        None => {
            let help = format!("name the file `{name}{SUFFIX}`");
            faults.add(
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
        faults.add(given.span(), message, "write it like \"1.0.0\"");
        return None;
    }
    Some(version.to_owned())
}

fn read_description(section: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<String> {
    if let Some(given) = section.string(faults, "description") {
        return prose(&section.name_of("description"), &given, faults);
    }
    if section.entry("description").is_none() {
        section.missing(
            faults,
            "description",
            "say in a sentence what the tool does",
        );
    }
    None
}

/// `mode` says again what the backend's table says, and must agree.
fn read_mode(section: &mut Section<'_>, kind: Option<BackendKind>, faults: &mut Faults<'_>) {
    const MODES: [&str; 3] = ["oneshot", "session", "browser"];
    let given = section.string(faults, "mode");
    let wanted = match kind {
        Some(BackendKind::Session) => "session",
        Some(BackendKind::Browser) => "browser",
        _ => "oneshot",
    };
    match given {
        Some(given) if !MODES.contains(given.get_ref()) => {
            unknown_word(&section.name_of("mode"), &given, &MODES, faults);
        }
        Some(given) if *given.get_ref() != wanted && kind.is_some() => {
            let message = format!(
                "`tool.mode` is `{}`, but the manifest's backend is `{wanted}`",
                given.get_ref()
            );
            faults.add(
                given.span(),
                message,
                format!("write `mode = \"{wanted}\"`"),
            );
        }
        None if wanted != "oneshot" && section.entry("mode").is_none() => {
            section.missing(faults, "mode", &format!("write `mode = \"{wanted}\"`"));
        }
        _ => {}
    }
}

fn read_dispatch(section: &mut Section<'_>, faults: &mut Faults<'_>) {
    let Some(given) = section.string(faults, "dispatch") else {
        return;
    };
    match *given.get_ref() {
        "exec" => {}
        "callback" => faults.add(
            given.span(),
            "`tool.dispatch` = `callback` is not supported: every tool here has a backend",
            "remove it, or write `exec`",
        ),
        _ => unknown_word(&section.name_of("dispatch"), &given, &["exec"], faults),
    }
}

/// `output_dir` begins with `{evidence_dir}/`: where that is, the runtime says.
fn read_evidence(mut section: Section<'_>, faults: &mut Faults<'_>) -> Option<Evidence> {
    let capture = section.flag(faults, "capture");
    if let Some(hash) = section.string(faults, "hash")
        && *hash.get_ref() != "sha256"
    {
        unknown_word(&section.name_of("hash"), &hash, &["sha256"], faults);
    }
    let folder = match section.string(faults, "output_dir") {
        None => None,
        Some(given) => {
            let folder = evidence_folder(given.get_ref());
            if folder.is_none() {
                let message = format!("{} is no folder of evidence", quoted(given.get_ref()));
                let help = "write `{evidence_dir}/` and plain names in which `{scan_id}` may stand";
                faults.add(given.span(), message, help);
            }
            folder
        }
    };
    section.finish(faults);
    Some(Evidence { capture, folder })
}

fn evidence_folder(text: &str) -> Option<String> {
    let below = text.strip_prefix("{evidence_dir}/")?;
    let plain = below.replace("{scan_id}", "x").replace("{session_id}", "x");
    let alphabet = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let path = model::RelativePath::new(plain.as_str());
    (path.is_ok() && plain.bytes().all(alphabet))
        .then(|| below.replace("{session_id}", "{scan_id}"))
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
            faults.add(given.span(), message, "write it like `Tool::Scan`");
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
        faults.add(action.span(), message, help);
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
    let scaled = super::kinds::decimal_of(value.get_ref())
        .and_then(|number| u64::try_from(number.scaled()).ok())
        .filter(|scaled| scaled % TENTHS_OF_MILLI == 0)
        .map(|scaled| scaled / TENTHS_OF_MILLI)
        .filter(|milli| (1..=CPUS_MAX * 1000).contains(milli));
    if scaled.is_none() {
        let message = format!(
            "{} must be a number from 0.001 to {CPUS_MAX} with at most three fractional digits",
            section.name_of("cpus")
        );
        faults.add(value.span(), message, "write it like 0.5");
    }
    scaled
}
