//! The one backend of a manifest: `[command]`, `[mcp]`, `[source]`, `[session]`; `[http]` and
//! `[browser]` are read whole and then refused, since nothing serves them.

use std::collections::{BTreeMap, BTreeSet};

use model::ArgumentName;
use serde_spanned::Spanned;

use super::arguments::{Arguments, Lookup};
use super::types::CustomTypes;
use super::{command, session, unknown_word, unserved};
use crate::backend::{McpBackend, SourceQuery, Work};
use crate::kind::Kind;
use crate::reader::{Faults, Section, as_string, quoted};

/// Which table a manifest has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BackendKind {
    Command,
    Mcp,
    Source,
    Session,
    Http,
    Browser,
}

impl BackendKind {
    const ALL: [Self; 6] = [
        Self::Command,
        Self::Mcp,
        Self::Source,
        Self::Session,
        Self::Http,
        Self::Browser,
    ];

    pub(super) const fn table(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Mcp => "mcp",
            Self::Source => "source",
            Self::Session => "session",
            Self::Http => "http",
            Self::Browser => "browser",
        }
    }
}

/// What a backend's reader knows of the rest of the manifest.
pub(super) struct Reading<'m> {
    pub(super) binary: Option<&'m Spanned<&'m str>>,
    pub(super) arguments: &'m Arguments,
    pub(super) types: &'m CustomTypes,
    /// The tool can create a file.
    pub(super) creates: bool,
}

/// The backend; `None` beside a fault.
pub(super) fn choose(root: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<BackendKind> {
    let mut found: Vec<BackendKind> = Vec::new();
    for kind in BackendKind::ALL {
        let Some((place, _)) = root.entry(kind.table()) else {
            continue;
        };
        if let Some(first) = found.first() {
            let message = format!(
                "the manifest has two backends, `{}` and `{}`",
                first.table(),
                kind.table()
            );
            faults.add(place, message, "a tool has one: write two manifests");
        }
        found.push(kind);
    }
    if found.is_empty() {
        root.missing(
            faults,
            "command",
            "say what runs: `[command] exec = [\"…\"]`",
        );
    }
    match found.as_slice() {
        [kind] => Some(*kind),
        _ => None,
    }
}

pub(super) fn read(
    kind: BackendKind,
    root: &mut Section<'_>,
    reading: &Reading<'_>,
    faults: &mut Faults<'_>,
) -> Option<Work> {
    let section = root.table(faults, kind.table())?;
    match kind {
        BackendKind::Command => {
            command::read(section, reading.binary, reading.arguments, faults).map(Work::Command)
        }
        BackendKind::Mcp => read_mcp(section, reading.arguments, faults).map(Work::Mcp),
        BackendKind::Source => read_source(section, reading.arguments, faults).map(Work::Source),
        BackendKind::Session => session::read(section, reading, faults)
            .map(Box::new)
            .map(Work::Session),
        BackendKind::Http | BackendKind::Browser => {
            let place = section.place.clone();
            if kind == BackendKind::Http {
                unserved::read_http(section, reading.arguments, faults);
            } else {
                unserved::read_browser(section, reading.types, faults);
            }
            let table = kind.table();
            if let Some((files, _)) = root.entry("filesystem") {
                let message = format!("`[filesystem]` cannot go with `[{table}]`");
                faults.add(
                    files,
                    message,
                    "file grants need a worker that gets the files",
                );
            }
            let message =
                format!("nothing serves `[{table}]` tools: the manifest cannot be loaded");
            faults.add(
                place,
                message,
                "let a program do it: write `[command]` instead, or move the manifest away",
            );
            None
        }
    }
}

/// A name of the project's configuration or of an upstream server.
pub(super) fn read_plain_name(
    section: &mut Section<'_>,
    key: &'static str,
    help: &str,
    faults: &mut Faults<'_>,
) -> Option<String> {
    let Some(given) = section.string(faults, key) else {
        if section.entry(key).is_none() {
            section.missing(faults, key, help);
        }
        return None;
    };
    let name = *given.get_ref();
    if !is_plain_name(name) {
        let message = format!("{} is no name", quoted(name));
        let help = "a name has 1 to 128 of A-Z, a-z, 0-9, `_`, `-`, `.` and `/`";
        faults.add(given.span(), message, help);
        return None;
    }
    Some(name.to_owned())
}

fn is_plain_name(name: &str) -> bool {
    const NAME_BYTES_MAX: usize = 128;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain)
}

fn read_mcp(
    mut section: Section<'_>,
    arguments: &Arguments,
    faults: &mut Faults<'_>,
) -> Option<McpBackend> {
    let help = "the server's name in the project's configuration";
    let server = read_plain_name(&mut section, "server", help, faults);
    let tool = read_plain_name(
        &mut section,
        "tool",
        "the tool's name at the server",
        faults,
    );
    let given = match section.table(faults, "field_map") {
        Some(table) => read_field_map(&table, arguments, faults),
        None => BTreeMap::new(),
    };
    let mut fields: BTreeMap<ArgumentName, String> = BTreeMap::new();
    let mut upstream = BTreeSet::new();
    for spec in &arguments.specs {
        let own = spec.name.as_str().to_owned();
        let field = given.get(&spec.name).cloned().unwrap_or(own);
        if !upstream.insert(field.clone()) {
            let message = format!("two arguments are sent as {}", quoted(&field));
            faults.add(
                section.place.clone(),
                message,
                "give each argument an upstream name of its own in `[mcp.field_map]`",
            );
        }
        fields.insert(spec.name.clone(), field);
    }
    section.finish(faults);
    Some(McpBackend {
        server: server?,
        tool: tool?,
        fields,
    })
}

fn read_field_map(
    table: &Section<'_>,
    arguments: &Arguments,
    faults: &mut Faults<'_>,
) -> BTreeMap<ArgumentName, String> {
    let mut fields = BTreeMap::new();
    for (key, value) in table.entries() {
        let name = *key.get_ref();
        let spec = match arguments.lookup(name) {
            Lookup::Declared(spec) => spec,
            Lookup::Faulty => continue,
            Lookup::Unknown => {
                unknown_argument(&key, arguments, faults);
                continue;
            }
        };
        match as_string(value).filter(|field| is_plain_name(field)) {
            Some(field) => {
                fields.insert(spec.name.clone(), field.to_owned());
            }
            None => {
                let message = format!("{} must be the upstream name", table.name_of(name));
                faults.add(value.span(), message, "write it in quotes; a name has 1 to 128 of A-Z, a-z, 0-9, `_`, `-`, `.` and `/`");
            }
        }
    }
    fields
}

pub(super) fn unknown_argument(
    key: &Spanned<&str>,
    arguments: &Arguments,
    faults: &mut Faults<'_>,
) {
    let message = format!("{} names no argument", quoted(key.get_ref()));
    faults.add(key.span(), message, arguments.known(key.get_ref()));
}

/// The arguments of each query: name, and whether it must be there.
const fn query_arguments(query: SourceQuery) -> &'static [(&'static str, bool)] {
    match query {
        SourceQuery::ReadFile => &[("path", true)],
        SourceQuery::ListFiles => &[("path", false)],
        SourceQuery::GrepFiles => &[("pattern", true), ("path", false)],
    }
}

fn read_source(
    mut section: Section<'_>,
    arguments: &Arguments,
    faults: &mut Faults<'_>,
) -> Option<SourceQuery> {
    let words = SourceQuery::ALL.map(SourceQuery::as_str);
    let given = section.string(faults, "query");
    if section.entry("query").is_none() {
        section.missing(faults, "query", "`read_file`, `list_files` or `grep_files`");
    }
    let name = section.name_of("query");
    let place = section.place.clone();
    section.finish(faults);
    let given = given?;
    let Some(query) = SourceQuery::ALL
        .into_iter()
        .find(|query| query.as_str() == *given.get_ref())
    else {
        unknown_word(&name, &given, &words, faults);
        return None;
    };
    let wanted = query_arguments(query);
    for (argument, required) in wanted {
        match arguments.lookup(argument) {
            Lookup::Declared(spec) => {
                let fits = match *argument {
                    "path" => matches!(spec.kind, Kind::Path(_)),
                    _ => matches!(spec.kind, Kind::Text(_) | Kind::LiteralText { .. }),
                };
                if !fits || (*required && !spec.always_present()) {
                    let message = format!(
                        "the argument `{argument}` of `{}` must be a {} and {}",
                        query.as_str(),
                        if *argument == "path" { "path" } else { "text" },
                        if *required {
                            "required"
                        } else {
                            "may be optional"
                        }
                    );
                    faults.add(
                        arguments.place(&spec.name),
                        message,
                        "correct its `type` and `required`",
                    );
                }
            }
            Lookup::Unknown if *required => {
                let message = format!("`{}` needs an argument `{argument}`", query.as_str());
                faults.add(
                    place.clone(),
                    message,
                    format!("add a table `[args.{argument}]`"),
                );
            }
            Lookup::Faulty | Lookup::Unknown => {}
        }
    }
    for spec in &arguments.specs {
        if !wanted.iter().any(|(name, _)| *name == spec.name.as_str()) {
            let message = format!("`{}` takes no argument `{}`", query.as_str(), spec.name);
            faults.add(arguments.place(&spec.name), message, "remove the argument");
        }
    }
    Some(query)
}
