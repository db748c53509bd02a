//! `[command.mappings]` and `[command.conditionals]`: placeholders that stand for several entries,
//! all of them fixed by the manifest.

use std::collections::BTreeMap;

use model::ArgumentName;
use serde_spanned::Spanned;
use toml::de::DeValue;

use super::arguments::{Arguments, Lookup};
use super::command::{Generated, Named, braced, check_literal, read_entry};
use crate::command::{Element, Entry};
use crate::condition::{self, Comparison, Condition};
use crate::kind::{Given, Kind};
use crate::limits::{ALLOWED_VALUES_MAX, EXEC_ELEMENTS_MAX, PLACEHOLDERS_MAX};
use crate::reader::{Faults, Section, listed, quoted, suggestion};

/// `[command.mappings.<argument>]`: entries for each value of an enum.
pub(super) fn read_mappings(
    section: &mut Section<'_>,
    arguments: &Arguments,
    faults: &mut Faults<'_>,
) -> BTreeMap<String, Named<Option<Element>>> {
    let mut mappings = BTreeMap::new();
    let Some(table) = section.table(faults, "mappings") else {
        return mappings;
    };
    if !table.at_most(PLACEHOLDERS_MAX, faults) {
        return mappings;
    }
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
            faults.add(table.place.clone(), message, arguments.known(name));
            return None;
        }
    };
    let Kind::Enum { allowed } = &spec.kind else {
        let message = format!("the argument `{name}` is not an enum: only an enum can be mapped");
        faults.add(
            table.place.clone(),
            message,
            "give it `type = \"enum\"` and `allowed`, or remove the mapping",
        );
        return None;
    };
    if spec.sensitive {
        let message = format!("the argument `{name}` is sensitive and cannot be mapped");
        let help = "what its value stands for would be shown and recorded: remove one of them";
        faults.add(table.place.clone(), message, help);
        return None;
    }
    if !table.at_most(ALLOWED_VALUES_MAX, faults) {
        return None;
    }
    let mut entries = BTreeMap::new();
    for (key, value) in table.entries() {
        let choice = *key.get_ref();
        if !allowed.iter().any(|one| one == choice) {
            let message = format!("{} is not a value of `{name}`", quoted(choice));
            let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
            let help = suggestion(choice, &allowed)
                .unwrap_or_else(|| format!("its values are {}", listed(allowed)));
            faults.add(key.span(), message, help);
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
            faults.add(
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
pub(super) fn read_words<'v>(
    key: &str,
    value: &'v Spanned<DeValue<'v>>,
    faults: &mut Faults<'_>,
) -> Option<Vec<Spanned<&'v str>>> {
    let words: Vec<Spanned<&str>> = match value.get_ref() {
        DeValue::String(text) => {
            if let Some(at) = text.find(['\'', '"', '\\', '\n', '\r', '\t']) {
                let place = faults.inside(&value.span(), text, at..at + 1);
                let help = "write an array instead, one element an entry: [\"-e\", \"a b\"]";
                faults.add(
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
        faults.add(
            value.span(),
            message,
            "write it like \"-v\" or [\"-o\", \"json\"]",
        );
        return None;
    }
    for word in &words {
        check_literal(word, faults)?;
    }
    Some(words)
}

/// `[command.conditionals.<name>]`: entries that stand only where `when` holds.
pub(super) fn read_conditionals(
    section: &mut Section<'_>,
    generated: &mut Generated<'_>,
    faults: &mut Faults<'_>,
) -> BTreeMap<String, Named<Option<Element>>> {
    let mut conditionals = BTreeMap::new();
    let Some(table) = section.table(faults, "conditionals") else {
        return conditionals;
    };
    if !table.at_most(PLACEHOLDERS_MAX, faults) {
        return conditionals;
    }
    for (key, value) in table.entries() {
        let placeholder = format!("_{}", key.get_ref());
        if ArgumentName::new(placeholder.as_str()).is_err()
            || placeholder == "_scan_id"
            || generated.mappings.contains_key(&placeholder)
            || generated.defaults.contains_key(placeholder.as_str())
        {
            let message = format!(
                "{} cannot be a placeholder, or is one",
                quoted(&braced(&placeholder))
            );
            faults.add(
                key.span(),
                message,
                "choose another name, of a-z, A-Z, 0-9 and `_`",
            );
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
        faults.add(given.span(), message, condition::GRAMMAR);
        return None;
    };
    let mut comparisons = Vec::new();
    for one in written {
        let spec = match arguments.lookup(one.name) {
            Lookup::Declared(spec) => spec,
            Lookup::Faulty => return None,
            Lookup::Unknown => {
                let message = format!("the condition names no argument: {}", quoted(one.name));
                faults.add(given.span(), message, arguments.known(one.name));
                return None;
            }
        };
        // Whether it is there at all is told anyway.
        if spec.sensitive && !one.literal.is_empty() {
            let message = format!(
                "the condition compares the sensitive argument `{}`",
                spec.name
            );
            let help = "which entries follow would tell its value: compare it with `''` alone";
            faults.add(given.span(), message, help);
            return None;
        }
        let Some(literal) = comparable(&spec.kind, one.literal) else {
            let message = format!("`{}` is never {}", spec.name, quoted(one.literal));
            let help = "compare with a value that the argument can have, or with `''` for none";
            faults.add(given.span(), message, help);
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
        Kind::Duration { .. } => {
            let seconds = kind.check(&Given::Text(literal)).ok()?;
            Some(seconds.value.to_string())
        }
        _ => Some(literal.to_owned()),
    }
}
