//! `[http]` and `[browser]`: read as strictly as all else, so that a manifest's faults are known
//! before something serves it. Nothing is kept of them.

use model::ArgumentName;
use serde_spanned::Spanned;
use toml::de::DeValue;

use super::arguments::{self, Arguments, Lookup};
use super::backends::unknown_argument;
use super::session::read_described;
use super::types::CustomTypes;
use super::unknown_word;
use crate::limits::{INTERACTIONS_MAX, SESSION_COMMANDS_MAX, TIMEOUT_SECONDS_MAX};
use crate::reader::{Faults, Section, as_string, quoted};
use crate::template::{self, Piece};

const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"];

pub(super) fn read_http(mut section: Section<'_>, arguments: &Arguments, faults: &mut Faults<'_>) {
    for (key, help) in [
        ("method", "for example `method = \"GET\"`"),
        ("url", "the address, with `{argument}` placeholders"),
    ] {
        let given = section.string(faults, key);
        match given {
            Some(given) if key == "method" => one_of(&section, key, &given, &METHODS, faults),
            Some(given) => check_text(&given, arguments, faults),
            None if section.entry(key).is_none() => section.missing(faults, key, help),
            None => {}
        }
    }
    if let Some(headers) = section.table(faults, "headers") {
        for (key, value) in headers.entries() {
            match as_string(value) {
                Some(text) => check_text(&Spanned::new(value.span(), text), arguments, faults),
                None => {
                    let message = format!("{} must be a string", headers.name_of(key.get_ref()));
                    faults.add(value.span(), message, "write it in quotes");
                }
            }
        }
    }
    if let Some(body) = section.string(faults, "body_template") {
        check_body(&body, arguments, faults);
    }
    for key in ["success_status", "error_status"] {
        if let Some((_, value)) = section.entry(key) {
            check_statuses(&section.name_of(key), value, faults);
        }
    }
    section.finish(faults);
}

fn one_of(
    section: &Section<'_>,
    key: &str,
    given: &Spanned<&str>,
    words: &[&str],
    faults: &mut Faults<'_>,
) {
    if !words.contains(given.get_ref()) {
        unknown_word(&section.name_of(key), given, words, faults);
    }
}

/// Every placeholder names an argument or a secret.
fn check_text(given: &Spanned<&str>, arguments: &Arguments, faults: &mut Faults<'_>) {
    match template::parse(given.get_ref()) {
        Ok(pieces) => {
            for piece in pieces {
                if let Piece::Placeholder { name, place } = piece {
                    let place = faults.inside(&given.span(), given.get_ref(), place);
                    check_name(name, place, arguments, faults);
                }
            }
        }
        Err(error) => faults.add(
            given.span(),
            error.to_string(),
            "write `{NAME}` for the argument NAME",
        ),
    }
}

fn check_name(
    name: &str,
    place: std::ops::Range<usize>,
    arguments: &Arguments,
    faults: &mut Faults<'_>,
) {
    let secret = name.strip_prefix("_secret:");
    if secret.is_some_and(|secret| ArgumentName::new(secret).is_ok()) {
        return;
    }
    if matches!(arguments.lookup(name), Lookup::Unknown) {
        unknown_argument(&Spanned::new(place, name), arguments, faults);
    }
}

/// A body is often JSON: braces that enclose no name are its own.
fn check_body(given: &Spanned<&str>, arguments: &Arguments, faults: &mut Faults<'_>) {
    let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    for part in given.get_ref().split('{').skip(1) {
        if let Some((name, _)) = part.split_once('}')
            && !name.is_empty()
            && name.chars().all(named)
        {
            check_name(name, given.span(), arguments, faults);
        }
    }
}

fn check_statuses(key: &str, value: &Spanned<DeValue<'_>>, faults: &mut Faults<'_>) {
    let status = |item: &Spanned<DeValue<'_>>| {
        let printed = crate::reader::printed(item.get_ref());
        printed
            .parse()
            .is_ok_and(|code: u16| (100..=599).contains(&code))
    };
    let array = value.get_ref().as_array();
    if !array.is_some_and(|array| array.iter().all(status)) {
        faults.add(
            value.span(),
            format!("{key} must be an array of status codes from 100 to 599"),
            "write it like [200, 201]",
        );
    }
}

pub(super) fn read_browser(mut section: Section<'_>, types: &CustomTypes, faults: &mut Faults<'_>) {
    const EXTRACT: (&str, [&str; 3]) = ("extract_mode", ["accessibility_tree", "html", "text"]);
    if let Some(given) = section.string(faults, "engine") {
        one_of(
            &section,
            "engine",
            &given,
            &["cdp", "cdp-direct", "playwright"],
            faults,
        );
    }
    if let Some(given) = section.string(faults, "connect") {
        one_of(&section, "connect", &given, &["launch", "live"], faults);
    }
    if let Some(given) = section.string(faults, EXTRACT.0) {
        one_of(&section, EXTRACT.0, &given, &EXTRACT.1, faults);
    }
    section.flag(faults, "headless");
    for key in [
        "startup_timeout_seconds",
        "session_timeout_seconds",
        "idle_timeout_seconds",
    ] {
        section.bounded(faults, key, TIMEOUT_SECONDS_MAX);
    }
    section.bounded(faults, "max_interactions", INTERACTIONS_MAX);
    if let Some(mut defaults) = section.table(faults, "defaults") {
        if let Some(given) = defaults.string(faults, EXTRACT.0) {
            one_of(&defaults, EXTRACT.0, &given, &EXTRACT.1, faults);
        }
        defaults.finish(faults);
    }
    if let Some(mut scope) = section.table(faults, "scope") {
        scope.strings(faults, "allowed_domains");
        scope.strings(faults, "blocked_domains");
        scope.flag(faults, "allow_external");
        scope.finish(faults);
    }
    if let Some(mut state) = section.table(faults, "state") {
        state.strings(faults, "fields");
        state.finish(faults);
    }
    if let Some(commands) = section.table(faults, "commands")
        && commands.at_most(SESSION_COMMANDS_MAX, faults)
    {
        for (key, value) in commands.entries() {
            read_command(&commands, &key, value, types, faults);
        }
    }
    section.finish(faults);
}

fn read_command(
    commands: &Section<'_>,
    key: &Spanned<&str>,
    value: &Spanned<DeValue<'_>>,
    types: &CustomTypes,
    faults: &mut Faults<'_>,
) {
    if let Err(error) = ArgumentName::new(*key.get_ref()) {
        faults.add(
            key.span(),
            quoted(&error.to_string()),
            "rename the command, like `open_page`",
        );
    }
    if let Some(mut command) = commands.section(faults, key, value) {
        read_described(&mut command, faults);
        let table = command.table(faults, "args");
        arguments::read(table, types, faults);
        command.finish(faults);
    }
}
