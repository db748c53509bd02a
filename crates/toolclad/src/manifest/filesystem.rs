//! `[filesystem]`: each entry is a literal path or one whole `{argument}`.

use model::{CreateMode, RelativePath};
use serde_spanned::Spanned;

use super::arguments::{Arguments, Lookup};
use super::unknown_word;
use crate::grants::{Grant, Grants};
use crate::kind::Kind;
use crate::limits::{CREATES_MAX, FILE_BYTES_DEFAULT, FILE_BYTES_MAX, READS_MAX};
use crate::reader::{Faults, Section, quoted};

pub(super) fn read(
    section: Option<Section<'_>>,
    arguments: &Arguments,
    faults: &mut Faults<'_>,
) -> Option<Grants> {
    let Some(mut section) = section else {
        return Some(Grants::default());
    };
    let mut seen = Vec::new();
    let read = read_list(
        &mut section,
        "read",
        READS_MAX,
        arguments,
        &mut seen,
        faults,
    );
    let create = read_list(
        &mut section,
        "create",
        CREATES_MAX,
        arguments,
        &mut seen,
        faults,
    );
    let max_file_bytes = section
        .bounded(faults, "max_file_bytes", FILE_BYTES_MAX)
        .unwrap_or(FILE_BYTES_DEFAULT);
    let create_mode = read_create_mode(&mut section, faults);
    section.finish(faults);
    Some(Grants {
        read: read?,
        create: create?,
        max_file_bytes,
        create_mode: create_mode?,
    })
}

fn read_create_mode(section: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<CreateMode> {
    if section.entry("create_mode").is_none() {
        return Some(CreateMode::File);
    }
    let given = section.string(faults, "create_mode")?;
    if section.entry("create").is_none() {
        faults.add(
            given.span(),
            "`create_mode` without `create` says nothing",
            "remove it, or add `create = [\"{output}\"]`",
        );
    }
    match *given.get_ref() {
        "file" => Some(CreateMode::File),
        "fresh" => Some(CreateMode::Fresh),
        _ => {
            unknown_word(
                &section.name_of("create_mode"),
                &given,
                &["file", "fresh"],
                faults,
            );
            None
        }
    }
}

fn read_list<'a>(
    section: &mut Section<'a>,
    key: &'static str,
    max: usize,
    arguments: &Arguments,
    seen: &mut Vec<&'a str>,
    faults: &mut Faults<'_>,
) -> Option<Vec<Grant>> {
    if section.entry(key).is_none() {
        return Some(Vec::new());
    }
    let entries = section.strings(faults, key)?;
    if entries.get_ref().len() > max {
        let count = entries.get_ref().len();
        let name = section.name_of(key);
        let message = format!("{name} has {count} entries, more than the {max} allowed");
        faults.add(
            entries.span(),
            message,
            "remove some: a call gets single files",
        );
        return None;
    }
    let mut grants = Vec::new();
    for (index, entry) in entries.get_ref().iter().enumerate() {
        let text = *entry.get_ref();
        if seen.contains(&text) {
            let message = format!("{} is granted twice", quoted(text));
            faults.add(entry.span(), message, "name it once");
            continue;
        }
        seen.push(text);
        let creates = key == "create";
        grants.extend(read_grant(index, entry, creates, arguments, faults));
    }
    Some(grants)
}

fn read_grant(
    index: usize,
    entry: &Spanned<&str>,
    creates: bool,
    arguments: &Arguments,
    faults: &mut Faults<'_>,
) -> Option<Grant> {
    let text = *entry.get_ref();
    if text.contains(['{', '}']) {
        return read_reference(entry, creates, arguments, faults);
    }
    match RelativePath::new(text) {
        Ok(_) if text.contains(['*', '?']) => {
            let message = format!("{} is no file: nothing expands a pattern", quoted(text));
            faults.add(
                entry.span(),
                message,
                "grant each file, or one whole argument like `{input}`",
            );
            None
        }
        Ok(path) => Some(Grant::Literal {
            key: index.to_string(),
            path,
        }),
        Err(error) => {
            faults.add(
                entry.span(),
                error.what(),
                "write a path like `data/a.csv`, or one whole argument like `{input}`",
            );
            None
        }
    }
}

fn read_reference(
    entry: &Spanned<&str>,
    creates: bool,
    arguments: &Arguments,
    faults: &mut Faults<'_>,
) -> Option<Grant> {
    let text = *entry.get_ref();
    let name = text
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    let Some(name) = name.filter(|name| !name.contains(['{', '}'])) else {
        let message = format!("{} is neither a path nor one whole argument", quoted(text));
        let help = "write a literal path, or `{argument}` and nothing around it";
        faults.add(entry.span(), message, help);
        return None;
    };
    match arguments.lookup(name) {
        Lookup::Declared(spec) if spec.sensitive => {
            let message = format!("the argument `{}` is sensitive", spec.name);
            faults.add(
                entry.span(),
                message,
                "the names of granted files stand in every record: remove `sensitive`",
            );
            None
        }
        Lookup::Declared(spec) if matches!(spec.kind, Kind::Path(_)) => {
            Some(Grant::Argument(spec.name.clone()))
        }
        Lookup::Declared(spec) if !creates && matches!(spec.kind, Kind::CredentialFile(_)) => {
            Some(Grant::Argument(spec.name.clone()))
        }
        Lookup::Declared(spec) => {
            let message = format!("the argument `{}` is not of type `path`", spec.name);
            faults.add(
                entry.span(),
                message,
                "a file grant needs `type = \"path\"`",
            );
            None
        }
        Lookup::Faulty => None,
        Lookup::Unknown => {
            let message = format!("{} names no argument", quoted(text));
            faults.add(entry.span(), message, arguments.known(name));
            None
        }
    }
}
