//! `[command]`: what runs, resolved against the declared arguments before any value exists.

use std::collections::{BTreeMap, BTreeSet};

use model::ArgumentName;
use serde_spanned::Spanned;
use toml::de::DeValue;

use super::arguments::{Arguments, Lookup};
use super::spreads::{read_conditionals, read_mappings, read_words};
use crate::command::{Command, Element, Entry, Part};
use crate::hygiene::{is_invisible, name as character_name};
use crate::limits::{EXEC_ELEMENT_BYTES_MAX, EXEC_ELEMENTS_MAX, PLACEHOLDERS_MAX};
use crate::reader::{Faults, Place, Section, printed, quoted, suggestion};
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
    for (key, reason, help) in [
        (
            "executor",
            "a command has no executor script: `exec` is the whole command",
            "remove it, and write the program and its words in `exec`",
        ),
        (
            "env",
            "a manifest cannot set the environment: the worker's is fixed",
            "remove it; what a program needs to know stands in `exec`, or is an argument",
        ),
    ] {
        if let Some((place, _)) = section.entry(key) {
            faults.add(place, reason, help);
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
    let exec = read_exec(&mut section, arguments, faults);
    let mut command = exec.and_then(|exec| {
        let program = read_program(&exec, binary, interpreter, faults);
        let elements = read_elements(&exec, &mut generated, faults);
        Some(Command {
            program: program?,
            elements: elements?,
        })
    });
    read_end_of_options(&mut section, command.as_mut(), faults);
    if command.is_some() {
        generated.refuse_unused(faults);
    }
    section.finish(faults);
    command
}

/// `[session] startup_command`: as `exec`, or a string split at its spaces.
pub(super) fn read_startup(
    section: &mut Section<'_>,
    binary: Option<&Spanned<&str>>,
    arguments: &Arguments,
    faults: &mut Faults<'_>,
) -> Option<Command> {
    const KEY: &str = "startup_command";
    let interpreter = section.flag(faults, "allow_interpreter");
    let Some((_, value)) = section.entry(KEY) else {
        section.missing(faults, KEY, "say what runs: `[\"psql\", \"-h\", …]`");
        return None;
    };
    let words = read_words(&section.name_of(KEY), value, faults)?;
    let words = Spanned::new(value.span(), words);
    let mut generated = Generated {
        arguments,
        defaults: BTreeMap::new(),
        mappings: BTreeMap::new(),
        conditionals: BTreeMap::new(),
        used: BTreeSet::new(),
    };
    let program = read_program(&words, binary, interpreter, faults);
    let elements = read_elements(&words, &mut generated, faults);
    Some(Command {
        program: program?,
        elements: elements?,
    })
}

const END_OF_OPTIONS: &str = "--";

/// `end_of_options = "--"` puts that entry before the first operand: the first entry that begins
/// with an argument. Everything behind it must be an operand too.
fn read_end_of_options(
    section: &mut Section<'_>,
    command: Option<&mut Command>,
    faults: &mut Faults<'_>,
) {
    let Some(given) = section.string(faults, "end_of_options") else {
        return;
    };
    if *given.get_ref() != END_OF_OPTIONS {
        let message = format!("{} ends no options", quoted(given.get_ref()));
        faults.add(given.span(), message, "the only such entry is `--`");
        return;
    }
    let Some(command) = command else {
        return;
    };
    let operand = |element: &Element| match element {
        Element::Entry(entry) => matches!(entry.0.first(), Some(Part::Argument(_) | Part::ScanId)),
        Element::Flags { .. } | Element::Conditional { .. } => false,
    };
    let option = |element: &Element| match element {
        Element::Entry(entry) => {
            matches!(entry.0.first(), Some(Part::Literal(text)) if text.starts_with('-'))
        }
        Element::Flags { .. } | Element::Conditional { .. } => true,
    };
    let Some(first) = command.elements.iter().position(operand) else {
        faults.add(
            given.span(),
            "`end_of_options` without an entry that begins with an argument",
            "remove it, or add an entry that is an argument, like `\"{input}\"`",
        );
        return;
    };
    let (options, operands) = command.elements.split_at(first);
    let marker = Element::Entry(Entry(vec![Part::Literal(END_OF_OPTIONS.to_owned())]));
    let written = |element: &Element| match element {
        Element::Entry(entry) => entry.0 == [Part::Literal(END_OF_OPTIONS.to_owned())],
        Element::Flags { .. } | Element::Conditional { .. } => false,
    };
    if options.iter().any(written) {
        faults.add(
            given.span(),
            "the command has `--` already: remove one",
            "keep one of them: remove `end_of_options`, or the `--`",
        );
    } else if operands.iter().any(option) {
        let message = "an option stands behind the first operand";
        let help = "write all options before the first entry that begins with an argument";
        faults.add(given.span(), message, help);
    } else {
        command.elements.insert(first, marker);
    }
}

/// What a shell would make of these words nobody does here.
const SHELL_WORDS: [&str; 10] = ["|", "||", "&&", "&", ";", ">", ">>", "<", "2>", "2>&1"];

/// The elements: `exec`, or the older `template`, split at its spaces before any value exists.
fn read_exec<'a>(
    section: &mut Section<'a>,
    arguments: &Arguments,
    faults: &mut Faults<'_>,
) -> Option<Spanned<Vec<Spanned<&'a str>>>> {
    let exec = section.strings(faults, "exec");
    let Some((place, template)) = section.entry("template") else {
        if section.entry("exec").is_none() {
            let help = "say what runs, one element an entry: `exec = [\"cp\", …]`";
            section.missing(faults, "exec", help);
        }
        return exec;
    };
    if section.entry("exec").is_some() {
        faults.add(
            place,
            "`command.exec` and `command.template` say the same: keep `exec`",
            "remove `template`",
        );
        return None;
    }
    if !template.get_ref().is_str() {
        let message = "`command.template` must be a string";
        faults.add(
            template.span(),
            message,
            "an array of elements is named `exec`",
        );
        return None;
    }
    for spec in arguments
        .specs
        .iter()
        .filter(|spec| spec.kind.accepts_spaces())
    {
        let message = format!(
            "argument `{}` may have spaces, but the command is a template",
            spec.name
        );
        faults.add(
            place.clone(),
            message,
            "write the command as an `exec` array",
        );
    }
    let words = read_words(&section.name_of("template"), template, faults)?;
    for word in &words {
        if SHELL_WORDS.contains(word.get_ref()) {
            let message = format!(
                "no shell reads the command: {} would be an argument",
                quoted(word.get_ref())
            );
            let help = "a tool is one program; write two tools, or the word in an `exec` array if \
                        the program wants it";
            faults.add(word.span(), message, help);
        }
    }
    Some(Spanned::new(template.span(), words))
}

/// What a placeholder can name.
pub(super) struct Generated<'m> {
    pub(super) arguments: &'m Arguments,
    pub(super) defaults: BTreeMap<&'m str, Named<String>>,
    /// By placeholder: `_<argument>_flags`.
    pub(super) mappings: BTreeMap<String, Named<Option<Element>>>,
    /// By placeholder: `_<condition>`.
    pub(super) conditionals: BTreeMap<String, Named<Option<Element>>>,
    used: BTreeSet<String>,
}

/// A thing of the manifest that must be used, with the place of its name.
pub(super) struct Named<T> {
    pub(super) place: Place,
    pub(super) what: T,
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
                faults.add(place.clone(), message, "use it in `exec`, or remove it");
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
        if name == "_scan_id" {
            return Some(Part::ScanId);
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
            faults.add(place, message, "write it as an element of its own");
            return None;
        }
        let message = format!("the placeholder {} names nothing", quoted(&braced(name)));
        let reason = match name.split(':').next() {
            Some("_secret") => "a command gets no secret: every process could read its argv",
            Some("_output_file" | "_evidence_dir") => {
                "a command's only files are those of `[filesystem]`"
            }
            _ => "",
        };
        if !reason.is_empty() {
            faults.add(place, message, reason);
            return None;
        }
        let mut names = self.arguments.names();
        names.extend(self.defaults.keys());
        names.extend(self.mappings.keys().map(String::as_str));
        names.extend(self.conditionals.keys().map(String::as_str));
        let help = suggestion(name, &names)
            .unwrap_or_else(|| "declare it under `[args]`; a brace itself is written `{{`".into());
        faults.add(place, message, help);
        None
    }
}

pub(super) fn braced(name: &str) -> String {
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
        faults.add(
            exec.span(),
            "the command is empty",
            "the program comes first: `exec = [\"cp\", \"{input}\", \"{output}\"]`",
        );
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
        let help = match program.contains(' ') {
            true => "write each word as an element of its own: `exec = [\"wc\", \"-l\"]`",
            false => "a command begins with a fixed name, or an absolute path in the worker",
        };
        faults.add(first.span(), message, help);
        return None;
    }
    if let Some(binary) = binary
        && *binary.get_ref() != program
    {
        let message = format!(
            "`tool.binary` is {}, but the command begins with {}",
            quoted(binary.get_ref()),
            quoted(program)
        );
        faults.add(first.span(), message, "both must be the same");
        return None;
    }
    if is_interpreter(name) && !interpreter {
        let message = format!("{} runs other programs or program text", quoted(program));
        let help = "add `allow_interpreter = true` to `[command]` if that is what you want";
        faults.add(first.span(), message, help);
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
        let message =
            format!("the command has {count} elements, more than the {EXEC_ELEMENTS_MAX} allowed");
        faults.add(
            exec.span(),
            message,
            "let the program read the rest from a file, or split the work over two tools",
        );
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
pub(super) fn read_entry(
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
            faults.add(
                place,
                error.to_string(),
                "write `{NAME}` for the argument NAME",
            );
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
pub(super) fn check_literal(element: &Spanned<&str>, faults: &mut Faults<'_>) -> Option<()> {
    let text = *element.get_ref();
    if text.len() > EXEC_ELEMENT_BYTES_MAX {
        let bytes = text.len();
        let message = format!(
            "the element has {bytes} bytes, more than the {EXEC_ELEMENT_BYTES_MAX} allowed"
        );
        faults.add(
            element.span(),
            message,
            "shorten it; a long text stands in a file that the call reads",
        );
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
                "remove the character; it may have come by copy and paste",
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
    if !table.at_most(PLACEHOLDERS_MAX, faults) {
        return defaults;
    }
    for (key, value) in table.entries() {
        let name = *key.get_ref();
        if !matches!(arguments.lookup(name), Lookup::Unknown) {
            let message = format!("{} is an argument", quoted(name));
            let help = format!("give `[args.{name}]` a `default` instead");
            faults.add(key.span(), message, help);
            continue;
        }
        let text = match value.get_ref() {
            DeValue::String(text) => Spanned::new(value.span(), text.clone().into_owned()),
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) => {
                let printed = printed(value.get_ref());
                Spanned::new(value.span(), printed)
            }
            _ => {
                let message = format!("{} must be a single value", table.name_of(name));
                faults.add(
                    value.span(),
                    message,
                    "write a string, a number, true or false",
                );
                continue;
            }
        };
        let borrowed = Spanned::new(text.span(), text.get_ref().as_str());
        if ArgumentName::new(name).is_err() {
            faults.add(
                key.span(),
                format!("{} cannot be a placeholder", quoted(name)),
                "a name has a-z, A-Z, 0-9 and `_`",
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
