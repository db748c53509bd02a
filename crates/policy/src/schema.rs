//! The Cedar schema of a session, generated from its tools, launches and principals.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::str::FromStr;

use cedar_policy::{EntityId, EntityTypeName, EntityUid};
use model::{AgentName, PolicyType, SourceError};

use crate::limits::{ACTIONS_COUNT_MAX, CEDAR_NAME_BYTES_MAX, TRUSTED_KEY_BYTES_MAX};
use crate::shape::{LaunchShape, ToolKind, ToolShape};

/// The types that every action's context is made of.
const TYPES: &str = "\
type Contract = { version: String, sha256: String };
type Limit = { value: Long, enforcement: String };
type Limits = { memory_mib: Limit, cpu_milli: Limit, pids: Limit, file_bytes: Limit, \
scratch_bytes: Limit, stream_bytes: Limit, time_ms: Limit, landlock: String };
type Program = { path: String, sha256?: String };
type ParentIdentity = { device: String, inode: String };
type InputFile = { path: String, parent: String, name: String, extension?: String, \
bytes: Long, sha256: String };
type OutputFile = { path: String, parent: String, name: String, extension?: String };
type Launch = { agent: String, executor: String, task: String, argv: Set<String>, \
shown?: Program, tools: Set<String>, tool_set_sha256: String, max_calls: Long, \
lifetime_ms: Long, \
provider?: String, model?: String, base_url?: String, max_requests?: Long, \
max_output_tokens?: Long, max_total_output_tokens?: Long };
type Custom = { kind: String, sha256: String };
type Parser = { program: Program, limits: Limits };
";

/// What a policy reads of any resource.
const RESOURCE: &str = "{ name: String, version: String, contract_sha256: String, fingerprint: String, \
     risk_tier: String }";

/// The schema's own names. Cedar lets no other namespace use one of them again.
const OWN_NAMES: [&str; 12] = [
    "Agent",
    "Contract",
    "Custom",
    "InputFile",
    "Launch",
    "Limit",
    "Limits",
    "OutputFile",
    "ParentIdentity",
    "Parser",
    "Program",
    "Trusted",
];

/// The type of a resource whose manifest names none.
const TOOL: &str = "Tool";

/// What one descriptor is called in a request.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) kind: SubjectKind,
    pub(crate) action: EntityUid,
    pub(crate) resource: EntityUid,
    /// Other tools have the same action.
    pub(crate) shared: bool,
    pub(crate) needs_approval: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubjectKind {
    Command,
    Custom,
    Launch,
}

/// The schema's text and the names in it.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    pub(crate) text: String,
    pub(crate) subjects: BTreeMap<String, Subject>,
    pub(crate) agent: EntityTypeName,
    pub(crate) principals: BTreeSet<String>,
}

/// Type and id of an action: `Action` and `tool_call::copy_csv`.
type ActionName = (String, String);

/// One action: its tools, which may be several.
#[derive(Debug)]
struct ActionShape<'a> {
    kind: SubjectKind,
    tools: Vec<&'a ToolShape>,
    /// Types of what it applies to.
    resources: BTreeSet<String>,
}

/// Writes the schema.
///
/// # Errors
/// A fault for each tool, launch, principal or trusted key that Cedar cannot speak about.
pub(crate) fn generate(
    tools: &[ToolShape],
    launches: &[LaunchShape],
    principals: &[String],
    trusted_keys: &[String],
) -> Result<Vocabulary, Vec<SourceError>> {
    let count = tools.len() + launches.len();
    if count > ACTIONS_COUNT_MAX {
        let message =
            format!("{count} tools and launches are more than the {ACTIONS_COUNT_MAX} allowed");
        return Err(vec![fault("tools", message)]);
    }
    let mut faults = Vec::new();
    let mut actions: BTreeMap<ActionName, ActionShape<'_>> = BTreeMap::new();
    let mut subjects: BTreeMap<String, Subject> = BTreeMap::new();
    for added in tools
        .iter()
        .map(|tool| add_tool(tool, &mut actions))
        .collect::<Vec<_>>()
        .into_iter()
        .chain(
            launches
                .iter()
                .map(|launch| add_launch(launch, &mut actions)),
        )
    {
        match added {
            Ok(subject) if subjects.contains_key(&subject.name) => {
                let message = format!("two tools or launches have the name `{}`", subject.name);
                faults.push(fault(&subject.name, message));
            }
            Ok(subject) => drop(subjects.insert(subject.name.clone(), subject)),
            Err(error) => faults.push(error),
        }
    }
    for subject in subjects.values_mut() {
        let uid = &subject.action;
        let name = (
            uid.type_name().to_string(),
            AsRef::<str>::as_ref(uid.id()).to_owned(),
        );
        subject.shared = actions
            .get(&name)
            .is_some_and(|action| action.tools.len() > 1);
    }
    let names = check_names(principals, trusted_keys, &mut faults);
    let mut text = preamble(&names);
    write_actions(&mut text, &actions, &mut faults);
    match type_name("Agent") {
        Ok(agent) if faults.is_empty() => Ok(Vocabulary {
            text,
            subjects,
            agent,
            principals: names.principals,
        }),
        Ok(_) => Err(faults),
        Err(error) => Err(vec![fault("schema", error)]),
    }
}

/// What is wrong with a tool as policies see it, or with who may act.
fn fault(file: &str, message: impl Into<String>) -> SourceError {
    let help = "correct `name` or `[tool.cedar]` in the tool's manifest, or the agent's name in \
                symbiont.toml";
    SourceError::whole_file(file, message).help(help)
}

fn add_tool<'a>(
    tool: &'a ToolShape,
    actions: &mut BTreeMap<ActionName, ActionShape<'a>>,
) -> Result<Subject, SourceError> {
    let name = tool.name.as_str();
    let kind = match tool.kind {
        ToolKind::Command => SubjectKind::Command,
        ToolKind::Custom => SubjectKind::Custom,
    };
    let action = match &tool.action {
        None => default_action(name),
        Some(pair) => checked_action(pair).map_err(|error| fault(name, error))?,
    };
    let resource = match &tool.resource {
        None => TOOL.to_owned(),
        Some(kind) => checked_resource(kind).map_err(|error| fault(name, error))?,
    };
    let subject = subject(name, kind, &action, &resource)?;
    let subject = Subject {
        needs_approval: tool.needs_approval,
        ..subject
    };
    let entry = actions.entry(action).or_insert_with(|| ActionShape {
        kind,
        tools: Vec::new(),
        resources: BTreeSet::new(),
    });
    if entry.kind != kind {
        let message = format!("{} is shared by tools of different kinds", subject.action);
        return Err(fault(name, message));
    }
    entry.tools.push(tool);
    entry.resources.insert(resource);
    Ok(subject)
}

fn add_launch(
    launch: &LaunchShape,
    actions: &mut BTreeMap<ActionName, ActionShape<'_>>,
) -> Result<Subject, SourceError> {
    let name = &launch.executor;
    AgentName::new(name.as_str()).map_err(|error| fault("launch", error.to_string()))?;
    let action = default_action(name);
    let subject = subject(name, SubjectKind::Launch, &action, TOOL)?;
    actions.entry(action).or_insert_with(|| ActionShape {
        kind: SubjectKind::Launch,
        tools: Vec::new(),
        resources: BTreeSet::from([TOOL.to_owned()]),
    });
    Ok(subject)
}

fn default_action(name: &str) -> ActionName {
    ("Action".to_owned(), format!("tool_call::{name}"))
}

fn type_name(text: &str) -> Result<EntityTypeName, String> {
    EntityTypeName::from_str(text).map_err(|_| format!("`{text}` is not a Cedar type name"))
}

fn subject(
    name: &str,
    kind: SubjectKind,
    (action_type, action): &ActionName,
    resource_type: &str,
) -> Result<Subject, SourceError> {
    let uid = |kind: &str, id: &str| match type_name(kind) {
        Ok(kind) => Ok(EntityUid::from_type_name_and_id(kind, EntityId::new(id))),
        Err(error) => Err(fault(name, error)),
    };
    Ok(Subject {
        name: name.to_owned(),
        kind,
        action: uid(action_type, action)?,
        resource: uid(resource_type, name)?,
        shared: false,
        needs_approval: false,
    })
}

/// The pair of `[tool.cedar]`. Cedar wants the last part of an action's type to be `Action`.
fn checked_action((kind, id): &(String, String)) -> Result<ActionName, String> {
    let namespace = kind.strip_suffix("Action").unwrap_or("?");
    let qualified = namespace.is_empty() || namespace.ends_with("::");
    if !qualified || kind.len() > CEDAR_NAME_BYTES_MAX || kind.contains("__cedar") {
        return Err(
            "the type of a `[tool.cedar]` action is `Action` or ends with `::Action`".to_owned(),
        );
    }
    let allowed = |c: char| c.is_ascii_graphic() && c != '"' && c != '\\';
    if id.is_empty() || id.len() > CEDAR_NAME_BYTES_MAX || !id.chars().all(allowed) {
        return Err(format!(
            "a `[tool.cedar]` action has 1 to {CEDAR_NAME_BYTES_MAX} printable ASCII characters \
             without quote and backslash"
        ));
    }
    if id.starts_with("tool_call::") {
        return Err("a `[tool.cedar]` action must not start with `tool_call::`".to_owned());
    }
    Ok((type_name(kind)?.to_string(), id.clone()))
}

/// The resource type of `[tool.cedar]`.
fn checked_resource(kind: &str) -> Result<String, String> {
    let last = kind.rsplit("::").next().unwrap_or(kind);
    let taken = OWN_NAMES.contains(&last) || last == "Action" || (last == TOOL && kind != TOOL);
    if taken || kind.len() > CEDAR_NAME_BYTES_MAX || kind.contains("__cedar") {
        return Err(format!(
            "a `[tool.cedar]` resource cannot end in `{last}`, which the schema has already: choose \
             another name, like `Scan::Target`"
        ));
    }
    Ok(type_name(kind)?.to_string())
}

struct Names {
    principals: BTreeSet<String>,
    trusted: BTreeSet<String>,
}

fn check_names(
    principals: &[String],
    trusted_keys: &[String],
    faults: &mut Vec<SourceError>,
) -> Names {
    if principals.is_empty() {
        faults.push(fault(
            "principals",
            "a policy set needs at least one principal",
        ));
    }
    for principal in principals {
        if let Err(error) = AgentName::new(principal.as_str()) {
            faults.push(fault("principals", error.to_string()));
        }
    }
    for key in trusted_keys {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if key.is_empty() || key.len() > TRUSTED_KEY_BYTES_MAX || !key.chars().all(allowed) {
            let message = format!(
                "a trusted context name has 1 to {TRUSTED_KEY_BYTES_MAX} of `A-Z a-z 0-9 _ - .`"
            );
            faults.push(fault("trusted context", message));
        }
    }
    Names {
        principals: principals.iter().cloned().collect(),
        trusted: trusted_keys.iter().cloned().collect(),
    }
}

fn preamble(names: &Names) -> String {
    let quote = |name: &String| format!("\"{name}\"");
    let principals: Vec<String> = names.principals.iter().map(quote).collect();
    let attribute = |key: &String| format!("\"{key}\": String");
    let trusted: Vec<String> = names.trusted.iter().map(attribute).collect();
    format!(
        "entity Agent enum [{}];\n{TYPES}type Trusted = {{ {} }};\n",
        principals.join(", "),
        trusted.join(", ")
    )
}

/// Actions and resource types, each in the block of its namespace.
fn write_actions(
    text: &mut String,
    actions: &BTreeMap<ActionName, ActionShape<'_>>,
    faults: &mut Vec<SourceError>,
) {
    let mut blocks: BTreeMap<&str, String> = BTreeMap::new();
    let tool = TOOL.to_owned();
    let resources = actions.values().flat_map(|action| &action.resources);
    for resource in resources.chain([&tool]).collect::<BTreeSet<_>>() {
        let (namespace, name) = resource.rsplit_once("::").unwrap_or(("", resource));
        let _ = writeln!(
            blocks.entry(namespace).or_default(),
            "entity {name} = {RESOURCE};"
        );
    }
    for ((kind, id), action) in actions {
        let namespace = kind.strip_suffix("::Action").unwrap_or_default();
        if let Err(error) = write_action(blocks.entry(namespace).or_default(), id, action) {
            faults.push(fault(&format!("action {id}"), error));
        }
    }
    for (namespace, block) in blocks {
        let _ = match namespace {
            "" => write!(text, "{block}"),
            _ => write!(text, "namespace {namespace} {{\n{block}}}\n"),
        };
    }
}

fn write_action(text: &mut String, id: &str, action: &ActionShape<'_>) -> Result<(), String> {
    let invocation = match action.kind {
        SubjectKind::Custom => "custom: Custom".to_owned(),
        SubjectKind::Launch => {
            let filesystem = filesystem(&BTreeMap::new(), &BTreeMap::new());
            format!("launch: Launch, resolved: {}", resolved(&filesystem, ""))
        }
        SubjectKind::Command => {
            let arguments = merged_arguments(&action.tools)?;
            let arguments: Vec<String> = arguments
                .into_iter()
                .map(|(name, (kind, required))| attribute(name, !required, kind.as_cedar()))
                .collect();
            let filesystem = filesystem(
                &merged_keys(&action.tools, |tool| &tool.read_keys),
                &merged_keys(&action.tools, |tool| &tool.create_keys),
            );
            format!(
                "arguments: {{ {} }}, contract: Contract, sensitive: Set<String>,\n    resolved: {}",
                arguments.join(", "),
                resolved(&filesystem, ", parser?: Parser")
            )
        }
    };
    let resources: Vec<&str> = action.resources.iter().map(String::as_str).collect();
    let _ = writeln!(
        text,
        "action \"{id}\" appliesTo {{ principal: [Agent], resource: [{}], context: {{\n  \
         trusted: Trusted, has_human_approval: Bool, approved_fingerprint?: String,\n  \
         invocation: {{ {invocation} }}\n}} }};",
        resources.join(", ")
    );
    Ok(())
}

fn attribute(name: &str, optional: bool, kind: &str) -> String {
    let mark = if optional { "?" } else { "" };
    format!("\"{name}\"{mark}: {kind}")
}

fn resolved(filesystem: &str, more: &str) -> String {
    format!(
        "{{ command_boundary: {{ tier: String, network: String, image?: String, program: Program, \
         working_dir: String, limits: Limits,\n      filesystem: {filesystem} }}{more} }}"
    )
}

/// Keys with whether they are optional.
type Keys<'a> = BTreeMap<&'a str, bool>;

fn filesystem(read: &Keys<'_>, create: &Keys<'_>) -> String {
    let record = |keys: &Keys<'_>, kind: &str| {
        let keys: Vec<String> = keys
            .iter()
            .map(|(key, optional)| attribute(key, *optional, kind))
            .collect();
        keys.join(", ")
    };
    let identity = if create.is_empty() {
        ""
    } else if create.values().any(|optional| !optional) {
        ", output_parent_identity: ParentIdentity"
    } else {
        ", output_parent_identity?: ParentIdentity"
    };
    format!(
        "{{ read: {{ {} }}, create: {{ {} }}, max_file_bytes: Long, overwrite: Bool, \
         read_paths: Set<String>, read_parents: Set<String>{identity} }}",
        record(read, "InputFile"),
        record(create, "OutputFile")
    )
}

/// The union of the tools' arguments: required where all of them require it.
fn merged_arguments<'a>(
    tools: &[&'a ToolShape],
) -> Result<BTreeMap<&'a str, (PolicyType, bool)>, String> {
    let mut merged: BTreeMap<&str, (PolicyType, usize)> = BTreeMap::new();
    for tool in tools {
        for (name, kind, required) in &tool.arguments {
            let entry = merged.entry(name.as_str()).or_insert((*kind, 0));
            if entry.0 != *kind {
                return Err(format!(
                    "the argument `{name}` is {} in one tool and {} in `{}`; tools that share \
                     an action agree in the types of equally named arguments",
                    entry.0.as_cedar(),
                    kind.as_cedar(),
                    tool.name
                ));
            }
            entry.1 += usize::from(*required);
        }
    }
    let all = tools.len();
    Ok(merged
        .into_iter()
        .map(|(name, (kind, required))| (name, (kind, required == all)))
        .collect())
}

fn merged_keys<'a>(
    tools: &[&'a ToolShape],
    keys_of: impl Fn(&'a ToolShape) -> &'a Vec<(String, bool)>,
) -> Keys<'a> {
    let mut required: BTreeMap<&str, usize> = BTreeMap::new();
    for tool in tools {
        for (key, optional) in keys_of(tool) {
            *required.entry(key.as_str()).or_default() += usize::from(!optional);
        }
    }
    let all = tools.len();
    required
        .into_iter()
        .map(|(key, count)| (key, count < all))
        .collect()
}
