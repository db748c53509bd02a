//! `[args.*]`: the declared arguments and the rules of their types.

use std::collections::{BTreeMap, BTreeSet};

use model::{ArgumentName, ArgumentValue};
use serde_spanned::Spanned;
use toml::de::DeValue;

use super::kinds::read_kind;
use super::prose;
use super::types::CustomTypes;
use crate::contract::ArgumentSpec;
use crate::kind::{Given, Kind};
use crate::limits::ARGUMENTS_MAX;
use crate::reader::{Faults, Place, Section, listed, printed, suggestion};

/// All arguments of a manifest.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub(super) specs: Vec<ArgumentSpec>,
    /// Declared with a fault of their own: who names one of these makes no second fault.
    faulty: BTreeSet<String>,
    /// Of the names, for faults of other tables.
    places: BTreeMap<ArgumentName, Place>,
}

pub(super) enum Lookup<'a> {
    Declared(&'a ArgumentSpec),
    Faulty,
    Unknown,
}

impl Arguments {
    pub(super) fn lookup(&self, name: &str) -> Lookup<'_> {
        match self.specs.iter().find(|spec| spec.name.as_str() == name) {
            Some(spec) => Lookup::Declared(spec),
            None if self.faulty.contains(name) => Lookup::Faulty,
            None => Lookup::Unknown,
        }
    }

    pub(super) fn place(&self, name: &ArgumentName) -> Place {
        self.places.get(name).cloned().unwrap_or(0..0)
    }

    /// The help for a name that no argument has.
    pub(super) fn known(&self, name: &str) -> String {
        let names = self.names();
        match suggestion(name, &names) {
            Some(help) => help,
            None if names.is_empty() && !self.faulty.is_empty() => {
                "the argument may be one that is refused above: correct that first".to_owned()
            }
            None if names.is_empty() => "the manifest has no `[args]`: add the argument".to_owned(),
            None => format!("its arguments are {}", listed(names)),
        }
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.specs.iter().map(|spec| spec.name.as_str()).collect()
    }
}

/// Every key that some type understands.
pub(super) const KEYS: [&str; 13] = [
    "allowed",
    "pattern",
    "sanitize",
    "min",
    "max",
    "min_float",
    "max_float",
    "clamp",
    "allow_leading_dash",
    "allow_whitespace",
    "schemes",
    "scope_check",
    "block_internal",
];

pub(super) fn read(
    section: Option<Section<'_>>,
    types: &CustomTypes,
    faults: &mut Faults<'_>,
) -> Arguments {
    let mut arguments = Arguments::default();
    let Some(section) = section else {
        return arguments;
    };
    if !section.at_most(ARGUMENTS_MAX, faults) {
        return arguments;
    }
    let mut positions = BTreeMap::new();
    for (key, value) in section.entries() {
        let spec = read_name(&key, faults).and_then(|name| {
            let table = section.section(faults, &key, value)?;
            read_argument(name, table, types, &mut positions, faults)
        });
        match spec {
            Some(spec) => {
                arguments.places.insert(spec.name.clone(), key.span());
                arguments.specs.push(spec);
            }
            None => {
                arguments.faulty.insert((*key.get_ref()).to_owned());
            }
        }
    }
    arguments.specs.sort_by(|a, b| order(a).cmp(&order(b)));
    arguments
}

/// Arguments without a position stand last.
fn order(spec: &ArgumentSpec) -> (u64, &ArgumentName) {
    (spec.position.unwrap_or(u64::MAX), &spec.name)
}

fn read_name(key: &Spanned<&str>, faults: &mut Faults<'_>) -> Option<ArgumentName> {
    let name = match ArgumentName::new(*key.get_ref()) {
        Ok(name) => name,
        Err(error) => {
            faults.add(
                key.span(),
                error.to_string(),
                "rename the argument, like `input_file`",
            );
            return None;
        }
    };
    if !name.as_str().starts_with(|c: char| c.is_ascii_alphabetic()) {
        let message = format!("the argument name `{name}` must begin with a letter");
        let help = "`_` begins generated placeholders, digits are indexes of literal paths";
        faults.add(key.span(), message, help);
        return None;
    }
    Some(name)
}

fn read_argument(
    name: ArgumentName,
    mut section: Section<'_>,
    types: &CustomTypes,
    positions: &mut BTreeMap<u64, ArgumentName>,
    faults: &mut Faults<'_>,
) -> Option<ArgumentSpec> {
    let description = match section.string(faults, "description") {
        Some(given) => prose(&section.name_of("description"), &given, faults),
        None => Some(String::new()),
    };
    let required = section.flag(faults, "required");
    let position = section.bounded(faults, "position", ARGUMENTS_MAX as u64);
    if let Some(position) = position
        && let Some(other) = positions.insert(position, name.clone())
    {
        let message = format!("`{name}` and `{other}` have the same position {position}");
        faults.add(
            section.place.clone(),
            message,
            "give each argument a position of its own",
        );
    }
    let sensitive = section.flag(faults, "sensitive");
    let feeds_decision = section.flag(faults, "feeds_decision");
    let kind = read_kind(&mut section, types, faults);
    let default = read_default(&mut section, kind.as_ref(), required, faults);
    if sensitive && default.is_some() {
        let message = format!("the sensitive argument `{name}` has a default");
        let help = "everybody who lists the tool would read it: remove one of them";
        faults.add(section.place.clone(), message, help);
    }
    let type_name = section.string(faults, "type").map(|given| *given.get_ref());
    refuse_foreign(section, type_name.filter(|_| kind.is_some()), faults);
    Some(ArgumentSpec {
        name,
        description: description?,
        kind: kind?,
        required,
        default,
        position,
        sensitive,
        feeds_decision,
    })
}

fn read_default(
    section: &mut Section<'_>,
    kind: Option<&Kind>,
    required: bool,
    faults: &mut Faults<'_>,
) -> Option<ArgumentValue> {
    let (place, value) = section.entry("default")?;
    if required {
        let message = format!("{} on a required argument", section.name_of("default"));
        let help = "a required argument is always given: remove one";
        faults.add(place, message, help);
        return None;
    }
    let read = default_value(value, kind?);
    if let Err(reason) = &read {
        let message = format!("{} {reason}", section.name_of("default"));
        faults.add(
            value.span(),
            message,
            "write a value that a call could give, or remove `default`",
        );
    }
    read.ok()
}

/// Refuses the keys of other types; those of an argument without a valid type are let be.
fn refuse_foreign(mut section: Section<'_>, type_name: Option<&str>, faults: &mut Faults<'_>) {
    for key in KEYS {
        if section.was_read(key) {
            continue;
        }
        if let (Some((place, _)), Some(type_name)) = (section.entry(key), type_name) {
            let message = format!(
                "{} does not apply to type `{type_name}`",
                section.name_of(key)
            );
            faults.add(
                place,
                message,
                "remove it, or give the argument another `type`",
            );
        }
    }
    section.finish(faults);
}

/// A default is checked as a call's value is.
fn default_value(value: &Spanned<DeValue<'_>>, kind: &Kind) -> Result<ArgumentValue, String> {
    let given = match value.get_ref() {
        DeValue::String(text) => Given::Text(text),
        DeValue::Boolean(boolean) => Given::Boolean(*boolean),
        number @ (DeValue::Float(_) | DeValue::Integer(_)) => Given::Number(printed(number)),
        other => {
            return Err(format!(
                "cannot be a value: it is of type {}",
                other.type_str()
            ));
        }
    };
    match kind.check(&given) {
        Ok(checked) if checked.stripped => Err("has parts that nobody would see".to_owned()),
        Ok(checked) if checked.clamped.is_none() => Ok(checked.value),
        Ok(_) => Err("is outside the argument's own bounds".to_owned()),
        Err(fault) => Err(fault.to_string()),
    }
}
