//! `[command]`: what runs, resolved against the declared arguments before any value exists.

use std::collections::{BTreeMap, BTreeSet};

use model::ArgumentName;
use serde_spanned::Spanned;
use toml::de::DeValue;

use super::arguments::{Arguments, Lookup};
use crate::command::{Command, Element, Entry, Part};
use crate::condition::{self, Comparison, Condition};
use crate::hygiene::{is_invisible, name as character_name};
use crate::kind::{Given, Kind};
use crate::limits::{EXEC_ELEMENT_BYTES_MAX, EXEC_ELEMENTS_MAX};
use crate::reader::{Faults, Place, Section, quoted, suggestion};
use crate::template::{self, Piece};

/// Programs that run other programs or program text. A manifest must say that it wants one.
const INTERPRETERS: [&str; 34] = [
    "sh", "bash", "dash", "ash", "zsh", "ksh", "csh", "tcsh", "fish", "busybox", "toybox", "env",
    "xargs", "nohup", "setsid", "timeout", "nice", "stdbuf", "sudo", "su", "doas", "awk", "gawk",
    "mawk", "perl", "python", "ruby", "node", "nodejs", "php", "lua", "tclsh", "deno", "bun",
];

pub(super) fn read(
    mut section: Section<'_>,
    binary: Option<&Spanned<&str>>,
    arguments: &Arguments,
    faults: &mut Faults<'_>,
) -> Option<Command> {
    for later in ["template", "end_of_options"] {
        section.not_yet(faults, later);
    }
    for (key, reason) in [
        (
            "executor",
            "a command has no executor script: `exec` is the whole command",
        ),
        (
            "env",
            "a manifest cannot set the environment: the worker's is fixed",
        ),
    ] {
        if let Some((place, _)) = section.entry(key) {
            faults.add(place, reason);
        }
    }
    let interpreter = section.flag(faults, "allow_interpreter");
    let mut generated = Generated {
        arguments,
        defaults: read_defaults(&mut section, arguments, faults),
        mappings: read_mappings(&mut section, arguments, faults),
        conditionals: BTreeMap::new(),
        used: BTreeSet::new(),
    };
    generated.conditionals = read_conditionals(&mut section, &mut generated, faults);
    let exec = section.strings(faults, "exec");
    if section.entry("exec").is_none() {
        section.missing(
            faults,
            "exec",
            "say what runs, one element an entry: `exec = [\"cp\", …]`",
        );
    }
    let command = exec.and_then(|exec| {
        let program = read_program(&exec, binary, interpreter, faults);
        let elements = read_elements(&exec, &mut generated, faults);
        Some(Command {
            program: program?,
            elements: elements?,
        })
    });
    if command.is_some() {
        generated.refuse_unused(faults);
    }
    section.finish(faults);
    command
}

/// What a placeholder can name.
struct Generated<'m> {
    arguments: &'m Arguments,
    defaults: BTreeMap<&'m str, Named<String>>,
    /// By placeholder: `_<argument>_flags`.
    mappings: BTreeMap<String, Named<Option<Element>>>,
    /// By placeholder: `_<condition>`.
    conditionals: BTreeMap<String, Named<Option<Element>>>,
    used: BTreeSet<String>,
}

/// A thing of the manifest that must be used, with the place of its name.
struct Named<T> {
    place: Place,
    what: T,
}

impl Generated<'_> {
    fn refuse_unused(&self, faults: &mut Faults<'_>) {
        let defaults = self
            .defaults
            .iter()
            .map(|(name, named)| (*name, &named.place));
        let mappings = self
            .mappings
            .iter()
            .map(|(name, named)| (name.as_str(), &named.place));
        let conditionals = self
            .conditionals
            .iter()
            .map(|(name, named)| (name.as_str(), &named.place));
        for (name, place) in defaults.chain(mappings).chain(conditionals) {
            if !self.used.contains(name) {
                let message = format!("the placeholder {} is never used", quoted(&braced(name)));
                faults.add(place.clone(), message);
            }
        }
    }

    /// A placeholder inside an entry.
    fn part(&mut self, name: &str, place: Place, faults: &mut Faults<'_>) -> Option<Part> {
        match self.arguments.lookup(name) {
            Lookup::Declared(spec) => return Some(Part::Argument(spec.name.clone())),
            Lookup::Faulty => return None,
            Lookup::Unknown => {}
        }
        if let Some(default) = self.defaults.get(name) {
            self.used.insert(name.to_owned());
            return Some(Part::Literal(default.what.clone()));
        }
        if self.mappings.contains_key(name) || self.conditionals.contains_key(name) {
            self.used.insert(name.to_owned());
            let message = format!(
                "{} stands for several entries and must be a whole element of `exec`",
                quoted(&braced(name))
            );
            faults.add(place, message);
            return None;
        }
        let message = format!("the placeholder {} names nothing", quoted(&braced(name)));
        if name == "_scan_id" || name.starts_with("_secret") || name.starts_with("_output") {
            faults.add(
                place,
                format!("{message}: generated values are not supported yet"),
            );
            return None;
        }
        let mut names = self.arguments.names();
        names.extend(self.defaults.keys());
        names.extend(self.mappings.keys().map(String::as_str));
        names.extend(self.conditionals.keys().map(String::as_str));
        let help = suggestion(name, &names)
            .unwrap_or_else(|| "declare it under `[args]`; a brace itself is written `{{`".into());
        faults.add_with(place, message, help);
        None
    }
}

fn braced(name: &str) -> String {
    format!("{{{name}}}")
}

/// `argv[0]`: fixed, and the same as `tool.binary`.
fn read_program(
    exec: &Spanned<Vec<Spanned<&str>>>,
    binary: Option<&Spanned<&str>>,
    interpreter: bool,
    faults: &mut Faults<'_>,
) -> Option<String> {
    let Some(first) = exec.get_ref().first() else {
        faults.add(exec.span(), "`command.exec` is empty");
        return None;
    };
    let program = *first.get_ref();
    let plain = |c: char| c.is_ascii_alphanumeric() || "._+-/".contains(c);
    let name = program.rsplit('/').next().unwrap_or(program);
    let dots = program.split('/').any(|part| part == "." || part == "..");
    let relative = program.contains('/') && !program.starts_with('/');
    if name.is_empty()
        || program.starts_with('-')
        || !program.chars().all(plain)
        || dots
        || relative
    {
        let message = format!("{} is not a program", quoted(program));
        let help = "`exec` begins with a fixed name, or an absolute path in the worker";
        faults.add_with(first.span(), message, help);
        return None;
    }
    if let Some(binary) = binary
        && *binary.get_ref() != program
    {
        let message = format!(
            "`tool.binary` is {}, but `command.exec` begins with {}",
            quoted(binary.get_ref()),
            quoted(program)
        );
        faults.add_with(first.span(), message, "both must be the same");
        return None;
    }
    if is_interpreter(name) && !interpreter {
        let message = format!("{} runs other programs or program text", quoted(program));
        let help = "add `allow_interpreter = true` to `[command]` if that is what you want";
        faults.add_with(first.span(), message, help);
        return None;
    }
    Some(program.to_owned())
}

/// By name, with or without a version: `python3.12` is `python`.
fn is_interpreter(name: &str) -> bool {
    let unversioned = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    INTERPRETERS.contains(&unversioned) || INTERPRETERS.contains(&name)
}

fn read_elements(
    exec: &Spanned<Vec<Spanned<&str>>>,
    generated: &mut Generated<'_>,
    faults: &mut Faults<'_>,
) -> Option<Vec<Element>> {
    let count = exec.get_ref().len();
    if count > EXEC_ELEMENTS_MAX {
        let message = format!(
            "`command.exec` has {count} elements, more than the {EXEC_ELEMENTS_MAX} allowed"
        );
        faults.add(exec.span(), message);
        return None;
    }
    let elements: Vec<Option<Element>> = exec
        .get_ref()
        .iter()
        .skip(1)
        .map(|element| read_element(element, generated, faults))
        .collect();
    elements.into_iter().collect()
}

fn read_element(
    element: &Spanned<&str>,
    generated: &mut Generated<'_>,
    faults: &mut Faults<'_>,
) -> Option<Element> {
    let text = *element.get_ref();
    let whole = text
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    if let Some(name) = whole {
        let found = generated
            .mappings
            .get(name)
            .or_else(|| generated.conditionals.get(name));
        if let Some(named) = found {
            let spread = named.what.clone();
            generated.used.insert(name.to_owned());
            return spread;
        }
    }
    read_entry(element, generated, faults).map(Element::Entry)
}

/// One entry: its text and its placeholders.
fn read_entry(
    element: &Spanned<&str>,
    generated: &mut Generated<'_>,
    faults: &mut Faults<'_>,
) -> Option<Entry> {
    check_literal(element, faults)?;
    let text = *element.get_ref();
    let pieces = match template::parse(text) {
        Ok(pieces) => pieces,
        Err(error) => {
            let place = faults.inside(&element.span(), text, error.at..error.at + 1);
            faults.add(place, error.to_string());
            return None;
        }
    };
    let parts: Vec<Option<Part>> = pieces
        .into_iter()
        .map(|piece| match piece {
            Piece::Literal(literal) => Some(Part::Literal(literal)),
            Piece::Placeholder { name, place } => {
                let place = faults.inside(&element.span(), text, place);
                generated.part(name, place, faults)
            }
        })
        .collect();
    parts.into_iter().collect::<Option<Vec<Part>>>().map(Entry)
}

/// The manifest's own text is the operator's, but must be possible and visible.
fn check_literal(element: &Spanned<&str>, faults: &mut Faults<'_>) -> Option<()> {
    let text = *element.get_ref();
    if text.len() > EXEC_ELEMENT_BYTES_MAX {
        let bytes = text.len();
        let message = format!(
            "the element has {bytes} bytes, more than the {EXEC_ELEMENT_BYTES_MAX} allowed"
        );
        faults.add(element.span(), message);
        return None;
    }
    match text
        .char_indices()
        .find(|(_, c)| *c == '\0' || is_invisible(*c))
    {
        Some((at, character)) => {
            let place = faults.inside(&element.span(), text, at..at + character.len_utf8());
            faults.add(
                place,
                format!("the element has {}", character_name(character)),
            );
            None
        }
        None => Some(()),
    }
}

/// `[command.defaults]`: fixed texts for placeholders that no argument fills.
fn read_defaults<'m>(
    section: &mut Section<'m>,
    arguments: &Arguments,
    faults: &mut Faults<'_>,
) -> BTreeMap<&'m str, Named<String>> {
    let mut defaults = BTreeMap::new();
    let Some(table) = section.table(faults, "defaults") else {
        return defaults;
    };
    for (key, value) in table.entries() {
        let name = *key.get_ref();
        if !matches!(arguments.lookup(name), Lookup::Unknown) {
            let message = format!("{} is an argument", quoted(name));
            let help = format!("give `[args.{name}]` a `default` instead");
            faults.add_with(key.span(), message, help);
            continue;
        }
        let text = match value.get_ref() {
            DeValue::String(text) => Spanned::new(value.span(), text.clone().into_owned()),
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) => {
                let printed = super::arguments::printed(value.get_ref());
                Spanned::new(value.span(), printed)
            }
            _ => {
                let message = format!("{} must be a single value", table.name_of(name));
                faults.add(value.span(), message);
                continue;
            }
        };
        let borrowed = Spanned::new(text.span(), text.get_ref().as_str());
        if ArgumentName::new(name).is_err() {
            faults.add(
                key.span(),
                format!("{} cannot be a placeholder", quoted(name)),
            );
        } else if check_literal(&borrowed, faults).is_some() {
            let named = Named {
                place: key.span(),
                what: text.into_inner(),
            };
            defaults.insert(name, named);
        }
    }
    defaults
}

/// `[command.mappings.<argument>]`: entries for each value of an enum.
fn read_mappings(
    section: &mut Section<'_>,
    arguments: &Arguments,
    faults: &mut Faults<'_>,
) -> BTreeMap<String, Named<Option<Element>>> {
    let mut mappings = BTreeMap::new();
    let Some(table) = section.table(faults, "mappings") else {
        return mappings;
    };
    for (key, value) in table.entries() {
        let name = *key.get_ref();
        let element = table
            .section(faults, &key, value)
            .and_then(|entries| read_mapping(name, &entries, arguments, faults));
        let named = Named {
            place: key.span(),
            what: element,
        };
        mappings.insert(format!("_{name}_flags"), named);
    }
    mappings
}

fn read_mapping(
    name: &str,
    table: &Section<'_>,
    arguments: &Arguments,
    faults: &mut Faults<'_>,
) -> Option<Element> {
    let spec = match arguments.lookup(name) {
        Lookup::Declared(spec) => spec,
        Lookup::Faulty => return None,
        Lookup::Unknown => {
            let message = format!("{} names no argument", quoted(name));
            faults.add(table.place.clone(), message);
            return None;
        }
    };
    let Kind::Enum { allowed } = &spec.kind else {
        let message = format!("the argument `{name}` is not an enum: only an enum can be mapped");
        faults.add(table.place.clone(), message);
        return None;
    };
    let mut entries = BTreeMap::new();
    for (key, value) in table.entries() {
        let choice = *key.get_ref();
        if !allowed.iter().any(|one| one == choice) {
            let message = format!("{} is not a value of `{name}`", quoted(choice));
            let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
            match suggestion(choice, &allowed) {
                Some(help) => faults.add_with(key.span(), message, help),
                None => faults.add(key.span(), message),
            }
            continue;
        }
        let words = read_words(&table.name_of(choice), value, faults)?;
        let words = words.into_iter().map(|word| word.into_inner().to_owned());
        entries.insert(choice.to_owned(), words.collect::<Vec<_>>());
    }
    for choice in allowed {
        if !table
            .entries()
            .any(|(key, _)| *key.get_ref() == choice.as_str())
        {
            let message = format!(
                "the mapping of `{name}` has no entry for {}",
                quoted(choice)
            );
            faults.add_with(
                table.place.clone(),
                message,
                "a mapping covers every allowed value",
            );
        }
    }
    Some(Element::Flags {
        argument: spec.name.clone(),
        entries,
    })
}

/// Entries fixed by the manifest: an array, or a string split at its spaces.
fn read_words<'v>(
    key: &str,
    value: &'v Spanned<DeValue<'v>>,
    faults: &mut Faults<'_>,
) -> Option<Vec<Spanned<&'v str>>> {
    let words: Vec<Spanned<&str>> = match value.get_ref() {
        DeValue::String(text) => {
            if let Some(at) = text.find(['\'', '"', '\\', '\n', '\r', '\t']) {
                let place = faults.inside(&value.span(), text, at..at + 1);
                let help = "write an array instead, one element an entry: [\"-e\", \"a b\"]";
                faults.add_with(
                    place,
                    format!("{key} has a quote, backslash or control"),
                    help,
                );
                return None;
            }
            text.split(' ')
                .filter(|word| !word.is_empty())
                .map(|word| Spanned::new(value.span(), word))
                .collect()
        }
        DeValue::Array(array) => array
            .iter()
            .filter_map(|item| Some(Spanned::new(item.span(), item.get_ref().as_str()?)))
            .collect(),
        _ => Vec::new(),
    };
    let whole = match value.get_ref() {
        DeValue::String(_) => true,
        DeValue::Array(array) => array.len() == words.len(),
        _ => false,
    };
    if !whole || words.len() > EXEC_ELEMENTS_MAX {
        let message =
            format!("{key} must be a string or an array of at most {EXEC_ELEMENTS_MAX} strings");
        faults.add(value.span(), message);
        return None;
    }
    for word in &words {
        check_literal(word, faults)?;
    }
    Some(words)
}

/// `[command.conditionals.<name>]`: entries that stand only where `when` holds.
fn read_conditionals(
    section: &mut Section<'_>,
    generated: &mut Generated<'_>,
    faults: &mut Faults<'_>,
) -> BTreeMap<String, Named<Option<Element>>> {
    let mut conditionals = BTreeMap::new();
    let Some(table) = section.table(faults, "conditionals") else {
        return conditionals;
    };
    for (key, value) in table.entries() {
        let placeholder = format!("_{}", key.get_ref());
        if ArgumentName::new(placeholder.as_str()).is_err()
            || generated.mappings.contains_key(&placeholder)
            || generated.defaults.contains_key(placeholder.as_str())
        {
            let message = format!(
                "{} cannot be a placeholder, or is one",
                quoted(&braced(&placeholder))
            );
            faults.add(key.span(), message);
            continue;
        }
        let element = table
            .section(faults, &key, value)
            .and_then(|one| read_conditional(one, generated, faults));
        let named = Named {
            place: key.span(),
            what: element,
        };
        conditionals.insert(placeholder, named);
    }
    conditionals
}

fn read_conditional(
    mut section: Section<'_>,
    generated: &mut Generated<'_>,
    faults: &mut Faults<'_>,
) -> Option<Element> {
    let when = match section.string(faults, "when") {
        Some(given) => read_when(&given, generated.arguments, faults),
        None => {
            section.missing(faults, "when", condition::GRAMMAR);
            None
        }
    };
    let Some((_, template)) = section.entry("template") else {
        section.missing(
            faults,
            "template",
            "the entries: a string, or an array of strings",
        );
        return None;
    };
    let words = read_words(&section.name_of("template"), template, faults);
    section.finish(faults);
    let entries: Vec<Option<Entry>> = words?
        .iter()
        .map(|word| read_entry(word, generated, faults))
        .collect();
    Some(Element::Conditional {
        when: when?,
        entries: entries.into_iter().collect::<Option<Vec<Entry>>>()?,
    })
}

fn read_when(
    given: &Spanned<&str>,
    arguments: &Arguments,
    faults: &mut Faults<'_>,
) -> Option<Condition> {
    let Some(written) = condition::parse(given.get_ref()) else {
        let message = format!("{} is not a condition", quoted(given.get_ref()));
        faults.add_with(given.span(), message, condition::GRAMMAR);
        return None;
    };
    let mut comparisons = Vec::new();
    for one in written {
        let spec = match arguments.lookup(one.name) {
            Lookup::Declared(spec) => spec,
            Lookup::Faulty => return None,
            Lookup::Unknown => {
                let message = format!("the condition names no argument: {}", quoted(one.name));
                match suggestion(one.name, &arguments.names()) {
                    Some(help) => faults.add_with(given.span(), message, help),
                    None => faults.add(given.span(), message),
                }
                return None;
            }
        };
        let Some(literal) = comparable(&spec.kind, one.literal) else {
            let message = format!("`{}` is never {}", spec.name, quoted(one.literal));
            let help = "compare with a value that the argument can have, or with `''` for none";
            faults.add_with(given.span(), message, help);
            return None;
        };
        comparisons.push(Comparison {
            argument: spec.name.clone(),
            equal: one.equal,
            literal,
        });
    }
    Some(Condition(comparisons))
}

/// The literal as the argument would print it; `None` where it never does.
fn comparable(kind: &Kind, literal: &str) -> Option<String> {
    if literal.is_empty() {
        return Some(String::new());
    }
    match kind {
        // A bound may lie beside the literal: `port != 0` is a common way to say "given".
        Kind::Integer { .. } => Some(literal.parse::<i64>().ok()?.to_string()),
        Kind::Number { .. } => Some(literal.parse::<model::Decimal>().ok()?.to_string()),
        Kind::Boolean | Kind::Enum { .. } => {
            let checked = kind.check(&Given::Text(literal)).ok()?;
            Some(checked.value.to_string())
        }
        Kind::Text(_) | Kind::Path(_) => Some(literal.to_owned()),
    }
}
