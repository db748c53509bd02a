//! The rules of each argument type, as a manifest writes them.

use std::collections::BTreeSet;

use model::Decimal;
use serde_spanned::Spanned;
use toml::de::DeValue;

use super::types::CustomTypes;
use super::unknown_word;
use crate::hygiene::{self, Allowance};
use crate::kind::{Bounds, Kind, TextRules};
use crate::limits::{ALLOWED_VALUES_MAX, DURATION_SECONDS_MAX};
use crate::pattern::Pattern;
use crate::reach::TargetRules;
use crate::reader::{Faults, Section, listed, printed, quoted};
use crate::url::SCHEMES;

pub(super) const TYPES: [&str; 17] = [
    "string",
    "integer",
    "number",
    "boolean",
    "enum",
    "path",
    "port",
    "regex_match",
    "literal_text",
    "duration",
    "ip_address",
    "cidr",
    "url",
    "scope_target",
    "credential_file",
    "msf_options",
    "agent_summary",
];

/// The type of an argument with all its rules.
pub(super) fn read_kind(
    section: &mut Section<'_>,
    types: &CustomTypes,
    faults: &mut Faults<'_>,
) -> Option<Kind> {
    let Some(given) = section.string(faults, "type") else {
        if section.entry("type").is_none() {
            section.missing(faults, "type", "for example `type = \"string\"`");
        }
        return None;
    };
    let word = *given.get_ref();
    if let Some(kind) = types.get(word) {
        let mut kind = kind.clone();
        tighten(&mut kind, section, faults);
        return Some(kind);
    }
    if TYPES.contains(&word) {
        return read_built_in(word, section, faults);
    }
    let mut valid = TYPES.to_vec();
    valid.extend(types.names());
    unknown_word(&section.name_of("type"), &given, &valid, faults);
    None
}

/// One of [`TYPES`].
pub(super) fn read_built_in(
    word: &str,
    section: &mut Section<'_>,
    faults: &mut Faults<'_>,
) -> Option<Kind> {
    match word {
        "string" => read_text(section, faults).map(Kind::Text),
        "path" => read_text(section, faults).map(Kind::Path),
        "credential_file" => read_text(section, faults).map(Kind::CredentialFile),
        "integer" => read_integer(section, faults),
        "port" => read_port(section, faults),
        "number" => read_number(section, faults),
        "boolean" => Some(Kind::Boolean),
        "enum" => read_enum(section, faults),
        "regex_match" => read_regex_match(section, faults),
        "literal_text" => Some(Kind::LiteralText {
            leading_dash: section.flag(faults, "allow_leading_dash"),
        }),
        "agent_summary" => Some(Kind::AgentSummary {
            leading_dash: section.flag(faults, "allow_leading_dash"),
        }),
        "duration" => read_duration(section, faults),
        "ip_address" => Some(Kind::IpAddress(read_target_rules(section, faults))),
        "cidr" => Some(Kind::Cidr(read_target_rules(section, faults))),
        "scope_target" => Some(Kind::ScopeTarget(read_scope_target(section, faults))),
        "msf_options" => Some(Kind::MsfOption),
        "url" => read_url(section, faults),
        _ => None,
    }
}

/// What an alias may add to its type: a demand, never a permission.
pub(super) fn tighten(kind: &mut Kind, section: &mut Section<'_>, faults: &mut Faults<'_>) {
    let Some(rules) = kind.target_rules_mut() else {
        return;
    };
    for (key, rule) in [
        ("scope_check", &mut rules.scope_check),
        ("block_internal", &mut rules.block_internal),
    ] {
        let Some(given) = section.boolean(faults, key) else {
            continue;
        };
        if *rule && !*given.get_ref() {
            let message = format!("{} takes back what the type demands", section.name_of(key));
            faults.add(given.span(), message, "remove it");
        }
        *rule |= *given.get_ref();
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
pub(super) fn read_sanitize(section: &mut Section<'_>, key: &'static str, faults: &mut Faults<'_>) {
    let Some(rules) = section.strings(faults, key) else {
        return;
    };
    for rule in rules.get_ref() {
        if *rule.get_ref() != "injection" {
            unknown_word(&section.name_of(key), rule, &["injection"], faults);
        }
    }
}

fn read_text(section: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<TextRules> {
    read_sanitize(section, "sanitize", faults);
    let allowance = read_allowance(section, faults);
    let pattern = match section.string(faults, "pattern") {
        Some(given) => match Pattern::new(given.get_ref()) {
            Ok(pattern) => Some(pattern),
            Err(error) => {
                faults.add(
                    given.span(),
                    error.to_string(),
                    "correct the regular expression",
                );
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
            faults.add(
                bound.span(),
                "a port is from 1 to 65535",
                "choose a number in that range",
            );
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
        faults.add(
            max.span(),
            "the maximum is below the minimum",
            "swap the two, or remove one",
        );
        return None;
    }
    match clamp {
        Some(place) if bounds.clamp && bounds.min.is_none() && bounds.max.is_none() => {
            faults.add(
                place,
                "`clamp` without `min` or `max` has nothing to clamp to",
                "add `min` or `max`, or remove `clamp`",
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
        faults.add(section.place.clone(), message, help);
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
        faults.add(place.clone(), message, "remove one of the two");
    }
    let (_, value) = whole.or(float)?;
    let read = decimal_of(value.get_ref());
    if read.is_none() {
        let name = section.name_of(key);
        faults.add(
            value.span(),
            format!("{name} must be a plain number with at most four fractional digits"),
            "write it like 1.5",
        );
    }
    Some(Spanned::new(value.span(), read?))
}

/// A TOML number as an exact decimal.
pub(super) fn decimal_of(value: &DeValue<'_>) -> Option<Decimal> {
    match value {
        DeValue::Integer(_) | DeValue::Float(_) => printed(value).parse().ok(),
        _ => None,
    }
}

fn read_enum(section: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<Kind> {
    read_sanitize(section, "sanitize", faults);
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
            "list the values, each once: `allowed = [\"a\", \"b\"]`",
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
                "name it once",
            );
        } else if text.is_empty() {
            faults.add(
                value.span(),
                "an allowed value cannot be empty: make the argument optional",
                "leave it out; without `required` a call can do without the argument",
            );
        } else if let Err(fault) = crate::kind::bounded(text, crate::limits::VALUE_BYTES_MAX)
            .and_then(|()| hygiene::check(text, allowance))
        {
            faults.add(
                value.span(),
                format!("the allowed value {fault}"),
                "choose another value: no call could give this one",
            );
        }
    }
    Some(Kind::Enum {
        allowed: values
            .iter()
            .map(|value| (*value.get_ref()).to_owned())
            .collect(),
    })
}

fn read_regex_match(section: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<Kind> {
    if section.entry("pattern").is_none() {
        section.missing(
            faults,
            "pattern",
            "`regex_match` is text that matches a `pattern`",
        );
        return None;
    }
    read_text(section, faults).map(Kind::Text)
}

/// Bounds are whole seconds.
fn read_duration(section: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<Kind> {
    let second_max = i64::try_from(DURATION_SECONDS_MAX).ok()?;
    let min = section.integer(faults, "min");
    let max = section.integer(faults, "max");
    for bound in [&min, &max].into_iter().flatten() {
        if !(0..=second_max).contains(bound.get_ref()) {
            let message = format!("a duration is from 0 to {second_max} seconds");
            faults.add(bound.span(), message, "choose a number in that range");
            return None;
        }
    }
    let mut bounds = read_bounds(section, faults, min, max)?;
    bounds.min = bounds.min.or(Some(0));
    bounds.max = bounds.max.or(Some(second_max));
    Some(Kind::Duration { bounds })
}

fn read_target_rules(section: &mut Section<'_>, faults: &mut Faults<'_>) -> TargetRules {
    TargetRules {
        scope_check: section.flag(faults, "scope_check"),
        block_internal: section.flag(faults, "block_internal"),
    }
}

/// Always inside the scope.
fn read_scope_target(section: &mut Section<'_>, faults: &mut Faults<'_>) -> TargetRules {
    if let Some(given) = section.boolean(faults, "scope_check")
        && !*given.get_ref()
    {
        faults.add(
            given.span(),
            "a `scope_target` is always checked against the scope",
            "remove `scope_check`",
        );
    }
    TargetRules {
        scope_check: true,
        block_internal: section.flag(faults, "block_internal"),
    }
}

fn read_url(section: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<Kind> {
    let rules = read_target_rules(section, faults);
    let schemes = match section.strings(faults, "schemes") {
        Some(given) => {
            let known = SCHEMES.map(|(name, _)| name);
            if given.get_ref().is_empty() {
                faults.add(
                    given.span(),
                    "an empty list of schemes accepts no URL",
                    format!("name some of {}", listed(known)),
                );
                return None;
            }
            for scheme in given.get_ref() {
                if !known.contains(scheme.get_ref()) {
                    unknown_word(&section.name_of("schemes"), scheme, &known, faults);
                    return None;
                }
            }
            let names = given.get_ref().iter();
            names.map(|name| (*name.get_ref()).to_owned()).collect()
        }
        None if section.entry("schemes").is_some() => return None,
        None => vec!["http".to_owned(), "https".to_owned()],
    };
    Some(Kind::Url { schemes, rules })
}
