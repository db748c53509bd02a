//! `[args.*]`: the declared arguments and the rules of their types.

use std::collections::{BTreeMap, BTreeSet};

use model::{ArgumentName, ArgumentValue, Decimal};
use serde_spanned::Spanned;
use toml::de::DeValue;

use super::{prose, unknown_word};
use crate::contract::ArgumentSpec;
use crate::hygiene::{self, Allowance};
use crate::kind::{Bounds, Given, Kind, TextRules};
use crate::limits::{ALLOWED_VALUES_MAX, ARGUMENTS_MAX};
use crate::pattern::Pattern;
use crate::reader::{Faults, Section, quoted};

/// All arguments of a manifest.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub(super) specs: Vec<ArgumentSpec>,
    /// Declared with a fault of their own: who names one of these makes no second fault.
    faulty: BTreeSet<String>,
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

    pub(super) fn names(&self) -> Vec<&str> {
        self.specs.iter().map(|spec| spec.name.as_str()).collect()
    }
}

/// Every key that some type understands.
const KEYS: [&str; 20] = [
    "type",
    "description",
    "required",
    "position",
    "default",
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
    "sensitive",
    "feeds_decision",
];
const TYPES: [&str; 7] = [
    "string", "integer", "number", "boolean", "enum", "path", "port",
];
const TYPES_NOT_YET: [&str; 10] = [
    "scope_target",
    "url",
    "ip_address",
    "cidr",
    "credential_file",
    "msf_options",
    "duration",
    "literal_text",
    "regex_match",
    "agent_summary",
];

pub(super) fn read(section: Option<Section<'_>>, faults: &mut Faults<'_>) -> Arguments {
    let mut arguments = Arguments::default();
    let Some(section) = section else {
        return arguments;
    };
    let count = section.entries().count();
    if count > ARGUMENTS_MAX {
        let message = format!("{count} arguments are more than the {ARGUMENTS_MAX} allowed");
        faults.add(section.place.clone(), message);
        return arguments;
    }
    let mut positions = BTreeMap::new();
    for (key, value) in section.entries() {
        let spec = read_name(&key, faults).and_then(|name| {
            let table = section.section(faults, &key, value)?;
            read_argument(name, table, &mut positions, faults)
        });
        match spec {
            Some(spec) => arguments.specs.push(spec),
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
            faults.add(key.span(), error.to_string());
            return None;
        }
    };
    if !name.as_str().starts_with(|c: char| c.is_ascii_alphabetic()) {
        let message = format!("the argument name `{name}` must begin with a letter");
        let help = "`_` begins generated placeholders, digits are indexes of literal paths";
        faults.add_with(key.span(), message, help);
        return None;
    }
    Some(name)
}

fn read_argument(
    name: ArgumentName,
    mut section: Section<'_>,
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
        faults.add(section.place.clone(), message);
    }
    section.not_yet(faults, "sensitive");
    section.not_yet(faults, "feeds_decision");
    let default = section.entry("default");
    let kind = read_kind(&mut section, faults);
    let default = match (default, &kind) {
        (Some((place, _)), _) if required => {
            let message = format!("{} on a required argument", section.name_of("default"));
            faults.add_with(
                place,
                message,
                "a required argument is always given: remove one",
            );
            None
        }
        (Some((_, value)), Some(kind)) => {
            let read = read_default(value, kind);
            if let Err(reason) = &read {
                let message = format!("{} {reason}", section.name_of("default"));
                faults.add(value.span(), message);
            }
            read.ok()
        }
        _ => None,
    };
    let type_name = section.string(faults, "type").map(|given| *given.get_ref());
    refuse_foreign(section, type_name.filter(|_| kind.is_some()), faults);
    Some(ArgumentSpec {
        name,
        description: description?,
        kind: kind?,
        required,
        default,
        position,
    })
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
            faults.add(place, message);
        }
    }
    section.finish(faults);
}

/// A default is checked as a call's value is.
fn read_default(value: &Spanned<DeValue<'_>>, kind: &Kind) -> Result<ArgumentValue, String> {
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
        Ok(checked) if checked.clamped.is_none() => Ok(checked.value),
        Ok(_) => Err("is outside the argument's own bounds".to_owned()),
        Err(fault) => Err(fault.to_string()),
    }
}

fn read_kind(section: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<Kind> {
    let Some(given) = section.string(faults, "type") else {
        if section.entry("type").is_none() {
            section.missing(faults, "type", "for example `type = \"string\"`");
        }
        return None;
    };
    match *given.get_ref() {
        "string" => read_text(section, faults).map(Kind::Text),
        "path" => read_text(section, faults).map(Kind::Path),
        "integer" => read_integer(section, faults),
        "port" => read_port(section, faults),
        "number" => read_number(section, faults),
        "boolean" => Some(Kind::Boolean),
        "enum" => read_enum(section, faults),
        later if TYPES_NOT_YET.contains(&later) => {
            let message = format!("the argument type `{later}` is not supported yet");
            faults.add(given.span(), message);
            None
        }
        _ => {
            unknown_word(&section.name_of("type"), &given, &TYPES, faults);
            None
        }
    }
}

fn read_allowance(section: &mut Section<'_>, faults: &mut Faults<'_>) -> Allowance {
    Allowance {
        leading_dash: section.flag(faults, "allow_leading_dash"),
        space: section.flag(faults, "allow_whitespace"),
        syntax: "",
    }
}

/// `sanitize = ["injection"]` names what is always done; other rules do not exist.
fn read_sanitize(section: &mut Section<'_>, faults: &mut Faults<'_>) {
    let Some(rules) = section.strings(faults, "sanitize") else {
        return;
    };
    for rule in rules.get_ref() {
        if *rule.get_ref() != "injection" {
            unknown_word(&section.name_of("sanitize"), rule, &["injection"], faults);
        }
    }
}

fn read_text(section: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<TextRules> {
    read_sanitize(section, faults);
    let allowance = read_allowance(section, faults);
    let pattern = match section.string(faults, "pattern") {
        Some(given) => match Pattern::new(given.get_ref()) {
            Ok(pattern) => Some(pattern),
            Err(error) => {
                faults.add(given.span(), error.to_string());
                return None;
            }
        },
        None => None,
    };
    Some(TextRules { allowance, pattern })
}

fn read_integer(section: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<Kind> {
    let allowance = Allowance {
        leading_dash: section.flag(faults, "allow_leading_dash"),
        ..Allowance::default()
    };
    let min = section.integer(faults, "min");
    let max = section.integer(faults, "max");
    let bounds = read_bounds(section, faults, min, max)?;
    refuse_negative(section, faults, allowance, bounds, 0)?;
    Some(Kind::Integer { bounds, allowance })
}

fn read_port(section: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<Kind> {
    const PORTS: (i64, i64) = (1, 65_535);
    let min = section.integer(faults, "min");
    let max = section.integer(faults, "max");
    for bound in [&min, &max].into_iter().flatten() {
        if !(PORTS.0..=PORTS.1).contains(bound.get_ref()) {
            faults.add(bound.span(), "a port is from 1 to 65535");
            return None;
        }
    }
    let mut bounds = read_bounds(section, faults, min, max)?;
    bounds.min = bounds.min.or(Some(PORTS.0));
    bounds.max = bounds.max.or(Some(PORTS.1));
    Some(Kind::Integer {
        bounds,
        allowance: Allowance::default(),
    })
}

fn read_number(section: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<Kind> {
    let allowance = Allowance {
        leading_dash: section.flag(faults, "allow_leading_dash"),
        ..Allowance::default()
    };
    let min = read_decimal_bound(section, faults, "min", "min_float");
    let max = read_decimal_bound(section, faults, "max", "max_float");
    let bounds = read_bounds(section, faults, min, max)?;
    let zero: Decimal = "0".parse().ok()?;
    refuse_negative(section, faults, allowance, bounds, zero)?;
    Some(Kind::Number { bounds, allowance })
}

fn read_bounds<N: Copy + Ord>(
    section: &mut Section<'_>,
    faults: &mut Faults<'_>,
    min: Option<Spanned<N>>,
    max: Option<Spanned<N>>,
) -> Option<Bounds<N>> {
    let clamp = section.entry("clamp").map(|(place, _)| place);
    let bounds = Bounds {
        min: min.as_ref().map(|min| *min.get_ref()),
        max: max.as_ref().map(|max| *max.get_ref()),
        clamp: section.flag(faults, "clamp"),
    };
    if let (Some(min), Some(max)) = (min, max)
        && min.get_ref() > max.get_ref()
    {
        faults.add(max.span(), "the maximum is below the minimum");
        return None;
    }
    match clamp {
        Some(place) if bounds.clamp && bounds.min.is_none() && bounds.max.is_none() => {
            faults.add(
                place,
                "`clamp` without `min` or `max` has nothing to clamp to",
            );
            None
        }
        _ => Some(bounds),
    }
}

/// Negative bounds are out of reach, or would be clamped to, where no value may begin with `-`.
fn refuse_negative<N: Copy + Ord>(
    section: &Section<'_>,
    faults: &mut Faults<'_>,
    allowance: Allowance,
    bounds: Bounds<N>,
    zero: N,
) -> Option<()> {
    let negative = [bounds.min, bounds.max]
        .into_iter()
        .flatten()
        .any(|bound| bound < zero);
    if negative && !allowance.leading_dash {
        let message = "a bound is negative, but no value may begin with `-`";
        let help = "add `allow_leading_dash = true`, or begin at 0";
        faults.add_with(section.place.clone(), message, help);
        return None;
    }
    Some(())
}

fn read_decimal_bound(
    section: &mut Section<'_>,
    faults: &mut Faults<'_>,
    key: &'static str,
    float_key: &'static str,
) -> Option<Spanned<Decimal>> {
    let whole = section.entry(key);
    let float = section.entry(float_key);
    if let (Some(_), Some((place, _))) = (&whole, &float) {
        let message = format!("`{key}` and `{float_key}` say the same: keep one");
        faults.add(place.clone(), message);
    }
    let (_, value) = whole.or(float)?;
    let read = decimal_of(value.get_ref());
    if read.is_none() {
        let name = section.name_of(key);
        faults.add(
            value.span(),
            format!("{name} must be a plain number with at most four fractional digits"),
        );
    }
    Some(Spanned::new(value.span(), read?))
}

/// A TOML number or boolean, as it prints.
pub(super) fn printed(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix())
            .map_or_else(|_| integer.to_string(), |read| read.to_string()),
        DeValue::Float(float) => float.as_str().to_owned(),
        DeValue::Boolean(boolean) => boolean.to_string(),
        _ => String::new(),
    }
}

/// A TOML number as an exact decimal.
pub(super) fn decimal_of(value: &DeValue<'_>) -> Option<Decimal> {
    match value {
        DeValue::Integer(_) | DeValue::Float(_) => printed(value).parse().ok(),
        _ => None,
    }
}

fn read_enum(section: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<Kind> {
    read_sanitize(section, faults);
    let allowance = read_allowance(section, faults);
    let Some(given) = section.strings(faults, "allowed") else {
        if section.entry("allowed").is_none() {
            section.missing(
                faults,
                "allowed",
                "an enum lists its values: `allowed = [\"a\", \"b\"]`",
            );
        }
        return None;
    };
    let values = given.get_ref();
    if values.is_empty() || values.len() > ALLOWED_VALUES_MAX {
        let name = section.name_of("allowed");
        faults.add(
            given.span(),
            format!("{name} must have 1 to {ALLOWED_VALUES_MAX} values"),
        );
        return None;
    }
    let mut seen = BTreeSet::new();
    for value in values {
        let text = *value.get_ref();
        if !seen.insert(text) {
            faults.add(
                value.span(),
                format!("{} stands in the list twice", quoted(text)),
            );
        } else if text.is_empty() {
            faults.add(
                value.span(),
                "an allowed value cannot be empty: make the argument optional",
            );
        } else if let Err(fault) = crate::kind::bounded(text, crate::limits::VALUE_BYTES_MAX)
            .and_then(|()| hygiene::check(text, allowance))
        {
            faults.add(value.span(), format!("the allowed value {fault}"));
        }
    }
    Some(Kind::Enum {
        allowed: values
            .iter()
            .map(|value| (*value.get_ref()).to_owned())
            .collect(),
    })
}
