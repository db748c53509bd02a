//! The Cedar schema of a session, generated from its tools, launches and principals.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::str::FromStr;

use cedar_policy::{EntityId, EntityTypeName, EntityUid};
use model::{AgentName, SourceError};

use crate::limits::{ACTIONS_COUNT_MAX, CEDAR_NAME_BYTES_MAX, TRUSTED_KEY_BYTES_MAX};
use crate::shape::{LaunchShape, PolicyType, ToolKind, ToolShape};

/// The types that every action's context is made of.
const TYPES: &str = "\
type Limit = { value: Long, enforcement: String };
type Limits = { memory_mib: Limit, cpu_milli: Limit, pids: Limit, file_bytes: Limit, \
scratch_bytes: Limit, stream_bytes: Limit, time_ms: Limit, landlock: String };
type Program = { path: String, sha256: String };
type ParentIdentity = { device: String, inode: String };
type InputFile = { path: String, parent: String, name: String, extension?: String, \
bytes: Long, sha256: String };
type OutputFile = { path: String, parent: String, name: String, extension?: String };
type Launch = { agent: String, executor: String, task: String, argv: Set<String>, \
tools: Set<String>, tool_set_sha256: String, max_calls: Long, lifetime_ms: Long, \
provider?: String, model?: String, base_url?: String, max_requests?: Long, \
max_output_tokens?: Long, max_total_output_tokens?: Long };
type Custom = { kind: String, sha256: String };
";

/// Unqualified names that a `[tool.cedar]` resource cannot take.
const RESERVED: [&str; 18] = [
    "Agent",
    "Action",
    "Limit",
    "Limits",
    "Program",
    "ParentIdentity",
    "InputFile",
    "OutputFile",
    "Launch",
    "Custom",
    "Trusted",
    "String",
    "Long",
    "Bool",
    "Boolean",
    "Set",
    "Record",
    "Entity",
];

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

/// One action: its tools, which may be several.
#[derive(Debug)]
struct ActionShape<'a> {
    kind: SubjectKind,
    resource_types: BTreeSet<String>,
    tools: Vec<&'a ToolShape>,
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
    let mut faults = Vec::new();
    let mut actions: BTreeMap<String, ActionShape<'_>> = BTreeMap::new();
    let mut subjects = BTreeMap::new();
    if tools.len() + launches.len() > ACTIONS_COUNT_MAX {
        let count = tools.len() + launches.len();
        return Err(vec![fault(
            "tools",
            format!("{count} tools and launches are more than the {ACTIONS_COUNT_MAX} allowed"),
        )]);
    }
    for tool in tools {
        match add_tool(tool, &mut actions) {
            Ok(subject) if subjects.contains_key(tool.name.as_str()) => {
                let name = subject.name;
                faults.push(fault(&name, format!("two tools have the name `{name}`")));
            }
            Ok(subject) => drop(subjects.insert(subject.name.clone(), subject)),
            Err(error) => faults.push(fault(tool.name.as_str(), error)),
        }
    }
    for launch in launches {
        let name = &launch.executor;
        match add_launch(name, &mut actions) {
            Ok(subject) if !subjects.contains_key(name) => {
                drop(subjects.insert(name.clone(), subject))
            }
            Ok(_) => faults.push(fault(
                name,
                format!("a tool must not have the launch's name `{name}`"),
            )),
            Err(error) => faults.push(fault(name, error)),
        }
    }
    for subject in subjects.values_mut() {
        let action = actions.get(AsRef::<str>::as_ref(subject.action.id()));
        subject.shared = action.is_some_and(|action| action.tools.len() > 1);
    }
    let names = check_names(principals, trusted_keys, &mut faults);
    let mut text = preamble(&names, &actions);
    for (id, action) in &actions {
        if let Err(error) = write_action(&mut text, id, action) {
            faults.push(fault(&format!("action {id}"), error));
        }
    }
    match EntityTypeName::from_str("Agent") {
        Ok(agent) if faults.is_empty() => Ok(Vocabulary {
            text,
            subjects,
            agent,
            principals: names.principals,
        }),
        Ok(_) => Err(faults),
        Err(error) => Err(vec![fault("schema", error.to_string())]),
    }
}

fn fault(file: &str, message: impl Into<String>) -> SourceError {
    SourceError::whole_file(file, message)
}

fn add_tool<'a>(
    tool: &'a ToolShape,
    actions: &mut BTreeMap<String, ActionShape<'a>>,
) -> Result<Subject, String> {
    let name = tool.name.as_str();
    let kind = match tool.kind {
        ToolKind::Command => SubjectKind::Command,
        ToolKind::Custom => SubjectKind::Custom,
    };
    let (resource_type, action) = match &tool.action {
        None => ("Tool", format!("tool_call::{name}")),
        Some((resource, action)) => (resource.as_str(), checked_action(action)?),
    };
    let subject = subject(name, kind, resource_type, &action, tool.needs_approval)?;
    let entry = actions
        .entry(action.clone())
        .or_insert_with(|| ActionShape {
            kind,
            resource_types: BTreeSet::new(),
            tools: Vec::new(),
        });
    if entry.kind != kind {
        return Err(format!(
            "the action `{action}` is shared by tools of different kinds"
        ));
    }
    entry.resource_types.insert(resource_type.to_owned());
    entry.tools.push(tool);
    Ok(subject)
}

fn add_launch(
    executor: &str,
    actions: &mut BTreeMap<String, ActionShape<'_>>,
) -> Result<Subject, String> {
    AgentName::new(executor).map_err(|error| error.to_string())?;
    let action = format!("tool_call::{executor}");
    let subject = subject(executor, SubjectKind::Launch, "Tool", &action, false)?;
    actions.entry(action).or_insert_with(|| ActionShape {
        kind: SubjectKind::Launch,
        resource_types: BTreeSet::from(["Tool".to_owned()]),
        tools: Vec::new(),
    });
    Ok(subject)
}

fn subject(
    name: &str,
    kind: SubjectKind,
    resource_type: &str,
    action: &str,
    needs_approval: bool,
) -> Result<Subject, String> {
    let parse = |text: &str| {
        EntityTypeName::from_str(text).map_err(|_| {
            format!("the resource type `{text}` is not a Cedar type name such as `Files::Table`")
        })
    };
    let last = resource_type.rsplit("::").next().unwrap_or(resource_type);
    if resource_type.len() > CEDAR_NAME_BYTES_MAX
        || last == "Action"
        || RESERVED.contains(&resource_type)
        || resource_type.starts_with("__cedar")
    {
        return Err(format!(
            "the resource type `{resource_type}` is reserved or too long"
        ));
    }
    Ok(Subject {
        name: name.to_owned(),
        kind,
        action: EntityUid::from_type_name_and_id(parse("Action")?, EntityId::new(action)),
        resource: EntityUid::from_type_name_and_id(parse(resource_type)?, EntityId::new(name)),
        shared: false,
        needs_approval,
    })
}

fn checked_action(action: &str) -> Result<String, String> {
    let allowed =
        |character: char| character.is_ascii_graphic() && character != '"' && character != '\\';
    if action.is_empty() || action.len() > CEDAR_NAME_BYTES_MAX || !action.chars().all(allowed) {
        return Err(format!(
            "a `[tool.cedar]` action has 1 to {CEDAR_NAME_BYTES_MAX} printable ASCII characters \
             without quote and backslash"
        ));
    }
    if action.starts_with("tool_call::") {
        return Err("a `[tool.cedar]` action must not start with `tool_call::`".to_owned());
    }
    Ok(action.to_owned())
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

fn preamble(names: &Names, actions: &BTreeMap<String, ActionShape<'_>>) -> String {
    let quote = |name: &String| format!("\"{name}\"");
    let principals: Vec<String> = names.principals.iter().map(quote).collect();
    let trusted: Vec<String> = names
        .trusted
        .iter()
        .map(|key| format!("\"{key}\": String"))
        .collect();
    let mut text = format!("entity Agent enum [{}];\n", principals.join(", "));
    let types: BTreeSet<&str> = actions
        .values()
        .flat_map(|action| action.resource_types.iter().map(String::as_str))
        .chain(["Tool"])
        .collect();
    for name in types {
        let (namespace, base) = match name.rsplit_once("::") {
            Some((namespace, base)) => (Some(namespace), base),
            None => (None, name),
        };
        let entity = format!(
            "entity {base} = {{ name: __cedar::String, version: __cedar::String, \
             contract_sha256: __cedar::String, risk_tier: __cedar::String }};"
        );
        let _ = match namespace {
            Some(namespace) => writeln!(text, "namespace {namespace} {{ {entity} }}"),
            None => writeln!(text, "{entity}"),
        };
    }
    text.push_str(TYPES);
    let _ = writeln!(text, "type Trusted = {{ {} }};", trusted.join(", "));
    text
}

fn write_action(text: &mut String, id: &str, action: &ActionShape<'_>) -> Result<(), String> {
    let resources: Vec<&str> = action.resource_types.iter().map(String::as_str).collect();
    let invocation = match action.kind {
        SubjectKind::Custom => "custom: Custom".to_owned(),
        SubjectKind::Launch => {
            let filesystem = filesystem(&BTreeMap::new(), &BTreeMap::new());
            format!("launch: Launch, resolved: {}", resolved(&filesystem))
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
                "arguments: {{ {} }},\n    resolved: {}",
                arguments.join(", "),
                resolved(&filesystem)
            )
        }
    };
    let _ = writeln!(
        text,
        "action \"{id}\" appliesTo {{ principal: [Agent], resource: [{}], context: {{\n  \
         trusted: Trusted, has_human_approval: Bool, approved_sha256?: String,\n  \
         invocation: {{ {invocation} }}\n}} }};",
        resources.join(", ")
    );
    Ok(())
}

fn attribute(name: &str, optional: bool, kind: &str) -> String {
    let mark = if optional { "?" } else { "" };
    format!("\"{name}\"{mark}: {kind}")
}

fn resolved(filesystem: &str) -> String {
    format!(
        "{{ command_boundary: {{ tier: String, network: String, image?: String, program: Program, \
         working_dir: String, limits: Limits,\n      filesystem: {filesystem} }} }}"
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
