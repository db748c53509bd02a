//! Argument types: one value, as given, becomes one checked value.

use model::{ArgumentValue, Decimal, PolicyType, RelativePath};
use serde_json::Value;

use crate::hygiene::{self, Allowance, CharacterClass};
use crate::limits::{LITERAL_TEXT_BYTES_MAX, VALUE_BYTES_MAX};
use crate::network::{self, Target, TargetFault};
use crate::pattern::Pattern;
use crate::reach::TargetRules;
use crate::value::ValueFault;
use crate::{msf, summary, url};

/// A value as a call or a manifest's `default` spells it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Given<'a> {
    Text(&'a str),
    /// A JSON or TOML number, as it prints.
    Number(String),
    Boolean(bool),
}

impl<'a> Given<'a> {
    /// `None` for JSON that is no single value; the string is its type's name.
    pub(crate) fn from_json(value: &'a Value) -> Result<Self, &'static str> {
        match value {
            Value::String(text) => Ok(Self::Text(text)),
            Value::Number(number) => Ok(Self::Number(number.to_string())),
            Value::Bool(boolean) => Ok(Self::Boolean(*boolean)),
            Value::Null => Err("null"),
            Value::Array(_) => Err("an array"),
            Value::Object(_) => Err("an object"),
        }
    }

    const fn found(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Number(_) => "a number",
            Self::Boolean(_) => "a boolean",
        }
    }
}

/// What an accepted value became.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) value: ArgumentValue,
    /// The value that was asked for, where `clamp` changed it.
    pub(crate) clamped: Option<ArgumentValue>,
    /// What the value reaches.
    pub(crate) target: Option<Target>,
    /// Hidden parts were taken out.
    pub(crate) stripped: bool,
}

impl Checked {
    pub(crate) const fn plain(value: ArgumentValue) -> Self {
        Self {
            value,
            clamped: None,
            target: None,
            stripped: false,
        }
    }

    fn bounded(asked: ArgumentValue, used: ArgumentValue) -> Self {
        let changed = asked != used;
        Self {
            clamped: changed.then_some(asked),
            ..Self::plain(used)
        }
    }

    fn reaching(value: ArgumentValue, target: impl Into<Option<Target>>) -> Self {
        Self {
            target: target.into(),
            ..Self::plain(value)
        }
    }
}

/// Inclusive bounds of a numeric type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds<N> {
    pub(crate) min: Option<N>,
    pub(crate) max: Option<N>,
    /// Bring a value outside into the bounds instead of refusing it.
    pub(crate) clamp: bool,
}

impl<N: Copy + Ord + ToString> Bounds<N> {
    fn apply(&self, value: N) -> Result<N, ValueFault> {
        let inside = self.max.map_or(value, |max| value.min(max));
        let inside = self.min.map_or(inside, |min| inside.max(min));
        if inside == value || self.clamp {
            return Ok(inside);
        }
        Err(ValueFault::OutOfRange {
            min: self.min.map(|min| min.to_string()),
            max: self.max.map(|max| max.to_string()),
        })
    }
}

/// Free text: `string` and `regex_match`.
#[derive(Debug, Clone)]
pub(crate) struct TextRules {
    pub(crate) allowance: Allowance,
    pub(crate) pattern: Option<Pattern>,
}

/// The type of one argument with its rules.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Text(TextRules),
    Integer {
        bounds: Bounds<i64>,
        allowance: Allowance,
    },
    Number {
        bounds: Bounds<Decimal>,
        allowance: Allowance,
    },
    Boolean,
    Enum {
        allowed: Vec<String>,
    },
    Path(TextRules),
    /// Data as it is, without NUL. `-` may begin it only where the manifest says so.
    LiteralText {
        leading_dash: bool,
    },
    /// Whole seconds.
    Duration {
        bounds: Bounds<i64>,
    },
    IpAddress(TargetRules),
    Cidr(TargetRules),
    Url {
        schemes: Vec<String>,
        rules: TargetRules,
    },
    /// An address, a network or a host name, always inside the scope.
    ScopeTarget(TargetRules),
    /// A path that must be a granted input.
    CredentialFile(TextRules),
    /// One `set KEY VALUE`.
    MsfOption,
    /// Free text, reduced to what can be seen.
    AgentSummary {
        leading_dash: bool,
    },
}

impl Kind {
    /// How policy sees the values.
    pub(crate) const fn policy_type(&self) -> PolicyType {
        match self {
            Self::Text(_)
            | Self::Enum { .. }
            | Self::Path(_)
            | Self::CredentialFile(_)
            | Self::LiteralText { .. }
            | Self::Url { .. }
            | Self::ScopeTarget(_)
            | Self::MsfOption
            | Self::AgentSummary { .. } => PolicyType::Text,
            Self::Integer { .. } | Self::Duration { .. } => PolicyType::Integer,
            Self::IpAddress(_) | Self::Cidr(_) => PolicyType::IpAddress,
            Self::Number { .. } => PolicyType::Decimal,
            Self::Boolean => PolicyType::Boolean,
        }
    }

    /// Whether a value can contain a space. Literal text can contain anything, and says so.
    pub(crate) fn accepts_spaces(&self) -> bool {
        match self {
            Self::Text(rules) | Self::Path(rules) | Self::CredentialFile(rules) => {
                rules.allowance.space
            }
            Self::Enum { allowed } => allowed.iter().any(|value| value.contains(' ')),
            Self::LiteralText { .. } | Self::MsfOption | Self::AgentSummary { .. } => true,
            _ => false,
        }
    }

    /// Whether the values are whatever somebody writes, within hygiene.
    pub(crate) const fn is_free_text(&self) -> bool {
        match self {
            Self::Text(rules) => rules.pattern.is_none(),
            Self::LiteralText { .. } | Self::MsfOption | Self::AgentSummary { .. } => true,
            _ => false,
        }
    }

    /// What the type demands of the target that a value names.
    pub(crate) const fn target_rules(&self) -> TargetRules {
        match self {
            Self::IpAddress(rules)
            | Self::Cidr(rules)
            | Self::ScopeTarget(rules)
            | Self::Url { rules, .. } => *rules,
            Self::MsfOption => TargetRules {
                scope_check: true,
                block_internal: false,
            },
            _ => TargetRules {
                scope_check: false,
                block_internal: false,
            },
        }
    }

    /// The same, where a manifest can say it.
    pub(crate) const fn target_rules_mut(&mut self) -> Option<&mut TargetRules> {
        match self {
            Self::IpAddress(rules)
            | Self::Cidr(rules)
            | Self::ScopeTarget(rules)
            | Self::Url { rules, .. } => Some(rules),
            _ => None,
        }
    }

    /// Checks one value.
    pub(crate) fn check(&self, given: &Given<'_>) -> Result<Checked, ValueFault> {
        match self {
            Self::Text(rules) => check_text(given, |text| rules.check(text)),
            Self::Integer { bounds, allowance } => check_integer(given, bounds, *allowance),
            Self::Number { bounds, allowance } => check_number(given, bounds, *allowance),
            Self::Boolean => check_boolean(given),
            Self::Enum { allowed } => check_enum(given, allowed),
            Self::Path(rules) | Self::CredentialFile(rules) => check_text(given, |text| {
                rules.check(text)?;
                RelativePath::new(text).map(drop).map_err(ValueFault::Path)
            }),
            Self::LiteralText { leading_dash } => {
                check_text(given, |text| check_literal_text(text, *leading_dash))
            }
            Self::Duration { bounds } => check_duration(given, bounds),
            Self::IpAddress(rules) => check_address(given, |text| {
                network::check_address(text, rules.block_internal)
            }),
            Self::Cidr(rules) => check_address(given, |text| {
                network::check_network(text, rules.block_internal)
            }),
            Self::Url { schemes, rules } => check_target(given, |text| {
                hygiene::check(text, URL_ALLOWANCE)?;
                url::check_url(text, schemes, rules.block_internal)
                    .map(Some)
                    .map_err(ValueFault::Target)
            }),
            Self::ScopeTarget(rules) => check_target(given, |text| {
                hygiene::check(text, Allowance::default())?;
                network::check_target(text, rules.block_internal)
                    .map(Some)
                    .map_err(ValueFault::Target)
            }),
            Self::MsfOption => check_target(given, msf::check),
            Self::AgentSummary { leading_dash } => check_summary(given, *leading_dash),
        }
    }
}

impl TextRules {
    fn check(&self, text: &str) -> Result<(), ValueFault> {
        bounded(text, VALUE_BYTES_MAX)?;
        hygiene::check(text, self.allowance)?;
        match &self.pattern {
            Some(pattern) if !pattern.matches(text) => Err(ValueFault::Pattern {
                pattern: crate::reader::quoted(pattern.source()),
            }),
            _ => Ok(()),
        }
    }
}

fn text_of<'g>(given: &'g Given<'_>, expected: &'static str) -> Result<&'g str, ValueFault> {
    match given {
        Given::Text(text) => Ok(text),
        other => Err(ValueFault::Type {
            expected,
            found: other.found(),
        }),
    }
}

/// What the syntax of a URL needs; [`url::check_url`] says where.
const URL_ALLOWANCE: Allowance = Allowance {
    leading_dash: false,
    space: false,
    syntax: "?&#~[]",
};

fn check_text(
    given: &Given<'_>,
    check: impl FnOnce(&str) -> Result<(), ValueFault>,
) -> Result<Checked, ValueFault> {
    let text = text_of(given, "a string")?;
    check(text)?;
    Ok(Checked::plain(ArgumentValue::Text(text.to_owned())))
}

/// A text that names what it reaches.
fn check_target(
    given: &Given<'_>,
    check: impl FnOnce(&str) -> Result<Option<Target>, ValueFault>,
) -> Result<Checked, ValueFault> {
    let text = text_of(given, "a string")?;
    bounded(text, VALUE_BYTES_MAX)?;
    let target = check(text)?;
    Ok(Checked::reaching(
        ArgumentValue::Text(text.to_owned()),
        target,
    ))
}

fn check_address(
    given: &Given<'_>,
    check: impl FnOnce(&str) -> Result<Target, TargetFault>,
) -> Result<Checked, ValueFault> {
    let text = text_of(given, "a string")?;
    bounded(text, VALUE_BYTES_MAX)?;
    hygiene::check(text, Allowance::default())?;
    let target = check(text).map_err(ValueFault::Target)?;
    Ok(Checked::reaching(
        ArgumentValue::IpAddress(text.to_owned()),
        target,
    ))
}

fn check_summary(given: &Given<'_>, leading_dash: bool) -> Result<Checked, ValueFault> {
    let text = text_of(given, "a string")?;
    bounded(text, LITERAL_TEXT_BYTES_MAX)?;
    let shown = summary::visible(text).ok_or(ValueFault::Syntax {
        expected: "text without markup inside markup",
    })?;
    if shown.trim().is_empty() {
        return Err(ValueFault::Syntax {
            expected: "text that can be seen",
        });
    }
    check_literal_text(&shown, leading_dash)?;
    let stripped = shown != text;
    Ok(Checked {
        stripped,
        ..Checked::plain(ArgumentValue::Text(shown))
    })
}

fn check_literal_text(text: &str, leading_dash: bool) -> Result<(), ValueFault> {
    bounded(text, LITERAL_TEXT_BYTES_MAX)?;
    if let Some(sign @ ('-' | '+')) = text.chars().next()
        && !leading_dash
    {
        return Err(ValueFault::LeadingSign { sign });
    }
    match text.chars().position(|character| character == '\0') {
        Some(index) => Err(ValueFault::Character {
            character: '\0',
            class: CharacterClass::Control,
            position: index + 1,
        }),
        None => Ok(()),
    }
}

/// `1h30m`, `90s`, `45`: hours, minutes and seconds in this order, each at most once.
fn check_duration(given: &Given<'_>, bounds: &Bounds<i64>) -> Result<Checked, ValueFault> {
    const EXPECTED: &str = "a duration like `90`, `90s`, `5m` or `1h30m`";
    let text = digits_of(given, EXPECTED, Allowance::default())?;
    let seconds = duration_seconds(text).ok_or(ValueFault::Syntax { expected: EXPECTED })?;
    let used = bounds.apply(seconds)?;
    Ok(Checked::bounded(
        ArgumentValue::Integer(seconds),
        ArgumentValue::Integer(used),
    ))
}

fn duration_seconds(text: &str) -> Option<i64> {
    let number = |digits: &str| {
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let leading_zero = digits.len() > 1 && digits.starts_with('0');
        (plain && !leading_zero).then(|| digits.parse::<i64>().ok())?
    };
    if let Some(seconds) = number(text) {
        return Some(seconds);
    }
    let mut seconds: i64 = 0;
    let mut rest = text;
    for (unit, length) in [('h', 3600), ('m', 60), ('s', 1)] {
        if let Some((digits, after)) = rest.split_once(unit) {
            seconds = number(digits)?.checked_mul(length)?.checked_add(seconds)?;
            rest = after;
        }
    }
    (rest.is_empty() && !text.is_empty()).then_some(seconds)
}

/// A number's spelling: a JSON number, or a string of the same digits.
fn digits_of<'g>(
    given: &'g Given<'_>,
    expected: &'static str,
    allowance: Allowance,
) -> Result<&'g str, ValueFault> {
    let text = match given {
        Given::Text(text) => text,
        Given::Number(text) => text.as_str(),
        Given::Boolean(_) => {
            return Err(ValueFault::Type {
                expected,
                found: given.found(),
            });
        }
    };
    bounded(text, VALUE_BYTES_MAX)?;
    hygiene::check(text, allowance)?;
    Ok(text)
}

pub(crate) fn bounded(text: &str, max: usize) -> Result<(), ValueFault> {
    if text.len() > max {
        return Err(ValueFault::TooLong {
            bytes: text.len(),
            max,
        });
    }
    Ok(())
}

fn check_integer(
    given: &Given<'_>,
    bounds: &Bounds<i64>,
    allowance: Allowance,
) -> Result<Checked, ValueFault> {
    const EXPECTED: &str = "a whole number in plain digits, like `42`";
    let text = digits_of(given, EXPECTED, allowance)?;
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ValueFault::Syntax { expected: EXPECTED });
    }
    let Ok(asked) = text.parse::<i64>() else {
        return Err(ValueFault::OutOfRange {
            min: Some(bounds.min.unwrap_or(i64::MIN).to_string()),
            max: Some(bounds.max.unwrap_or(i64::MAX).to_string()),
        });
    };
    if asked.to_string() != text {
        return Err(ValueFault::Syntax {
            expected: "a whole number without leading zeros",
        });
    }
    let used = bounds.apply(asked)?;
    Ok(Checked::bounded(
        ArgumentValue::Integer(asked),
        ArgumentValue::Integer(used),
    ))
}

fn check_number(
    given: &Given<'_>,
    bounds: &Bounds<Decimal>,
    allowance: Allowance,
) -> Result<Checked, ValueFault> {
    let text = digits_of(given, "a number", allowance)?;
    let asked: Decimal = text.parse().map_err(ValueFault::Number)?;
    let used = bounds.apply(asked)?;
    Ok(Checked::bounded(
        ArgumentValue::Decimal(asked),
        ArgumentValue::Decimal(used),
    ))
}

fn check_boolean(given: &Given<'_>) -> Result<Checked, ValueFault> {
    const EXPECTED: &str = "`true` or `false`";
    let value = match given {
        Given::Boolean(value) => *value,
        Given::Text("true") => true,
        Given::Text("false") => false,
        Given::Text(_) => return Err(ValueFault::Syntax { expected: EXPECTED }),
        Given::Number(_) => {
            return Err(ValueFault::Type {
                expected: EXPECTED,
                found: given.found(),
            });
        }
    };
    Ok(Checked::plain(ArgumentValue::Boolean(value)))
}

fn check_enum(given: &Given<'_>, allowed: &[String]) -> Result<Checked, ValueFault> {
    let text = text_of(given, "a string")?;
    match allowed.iter().find(|one| *one == text) {
        Some(one) => Ok(Checked::plain(ArgumentValue::Text(one.clone()))),
        None => Err(ValueFault::NotAllowed {
            allowed: allowed.to_vec(),
        }),
    }
}
