//! A tool as a client sees it: its name, its description, and a JSON Schema 2020-12 of its
//! arguments.

use model::{ArgumentValue, JsonObject, RiskTier, ToolName};
use serde::Serialize;
use serde_json::{Map, Number, Value, json};

use crate::backend::Work;
use crate::contract::{ArgumentSpec, Contract};
use crate::kind::{Bounds, Kind, TextRules};

/// What a client is told about a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolDefinition {
    pub name: ToolName,
    pub description: String,
    /// An object schema that allows no other properties.
    pub input_schema: JsonObject,
    /// Nothing can be created, and the risk is low or medium.
    pub read_only_hint: bool,
    /// The risk is high or critical.
    pub destructive_hint: bool,
}

impl Contract {
    /// The tool's definition. It promises no more than [`Contract::bind`] accepts.
    #[must_use]
    pub fn definition(&self) -> ToolDefinition {
        let mut properties = Map::new();
        for argument in self.arguments() {
            let name = argument.name().as_str().to_owned();
            properties.insert(name, Value::Object(property(argument)));
        }
        let required: Vec<&str> = self
            .arguments()
            .filter(|argument| argument.required())
            .map(|argument| argument.name().as_str())
            .collect();
        let mut schema = Map::new();
        schema.insert("type".into(), "object".into());
        schema.insert("properties".into(), Value::Object(properties));
        schema.insert("required".into(), json!(required));
        schema.insert("additionalProperties".into(), false.into());
        let risky = self.risk_tier >= RiskTier::High;
        ToolDefinition {
            name: self.name.clone(),
            description: self.description.clone(),
            input_schema: JsonObject::from_map(schema),
            read_only_hint: self.creates_nothing() && !risky,
            destructive_hint: risky,
        }
    }
}

impl Contract {
    /// Whether no call can change anything, as far as this program sees: an upstream server and a
    /// session can always.
    fn creates_nothing(&self) -> bool {
        match self.work {
            Work::Command(_) => self.grants.create.is_empty(),
            Work::Source(_) => true,
            Work::Mcp(_) | Work::Session(_) => false,
        }
    }
}

fn property(argument: &ArgumentSpec) -> Map<String, Value> {
    let mut schema = Map::new();
    let mut notes = Vec::new();
    if !argument.description.is_empty() {
        notes.push(argument.description.clone());
    }
    match &argument.kind {
        Kind::Text(rules) => describe_text(rules, &mut schema),
        Kind::Integer { bounds, .. } => {
            schema.insert("type".into(), "integer".into());
            let number = |value: i64| Value::from(value);
            describe_bounds(bounds, number, &mut schema, &mut notes);
        }
        Kind::Number { bounds, .. } => {
            schema.insert("type".into(), "number".into());
            describe_bounds(bounds, decimal, &mut schema, &mut notes);
            notes.push("At most four fractional digits.".into());
        }
        Kind::Boolean => {
            schema.insert("type".into(), "boolean".into());
        }
        Kind::Enum { allowed } => {
            schema.insert("type".into(), "string".into());
            schema.insert("enum".into(), json!(allowed));
        }
        Kind::Path(rules) => {
            describe_text(rules, &mut schema);
            notes.push("A relative path.".into());
        }
        Kind::CredentialFile(rules) => {
            describe_text(rules, &mut schema);
            notes.push("A relative path of a file with credentials.".into());
        }
        Kind::LiteralText { .. } | Kind::AgentSummary { .. } => string(&mut schema),
        Kind::MsfOption => {
            string(&mut schema);
            notes.push("One option like `set RPORT 445`.".into());
        }
        Kind::ScopeTarget(_) => {
            string(&mut schema);
            notes.push("An address, network or host name inside the project's scope.".into());
        }
        Kind::Duration { bounds } => {
            string(&mut schema);
            notes.push("A duration like `90s`, `5m` or `1h30m`.".into());
            let seconds = bounds.min.map(|min| format!("At least {min} s."));
            notes.extend(seconds);
            notes.extend(bounds.max.map(|max| format!("At most {max} s.")));
        }
        Kind::IpAddress(_) => {
            string(&mut schema);
            notes.push("An IPv4 or IPv6 address.".into());
        }
        Kind::Cidr(_) => {
            string(&mut schema);
            notes.push("A network like `10.0.1.0/24`.".into());
        }
        Kind::Url { schemes, .. } => {
            string(&mut schema);
            schema.insert("format".into(), "uri".into());
            notes.push(format!("A URL with the scheme {}.", schemes.join(" or ")));
        }
    }
    if let Some(default) = &argument.default {
        schema.insert("default".into(), json_value(default));
    }
    if !notes.is_empty() {
        schema.insert("description".into(), notes.join(" ").into());
    }
    schema
}

fn string(schema: &mut Map<String, Value>) {
    schema.insert("type".into(), "string".into());
}

fn describe_text(rules: &TextRules, schema: &mut Map<String, Value>) {
    string(schema);
    if let Some(pattern) = rules
        .pattern
        .as_ref()
        .and_then(|pattern| pattern.portable())
    {
        schema.insert("pattern".into(), pattern.into());
    }
}

/// A clamped argument accepts every number, so its bounds are told in words.
fn describe_bounds<N: Copy + ToString>(
    bounds: &Bounds<N>,
    number: impl Fn(N) -> Value,
    schema: &mut Map<String, Value>,
    notes: &mut Vec<String>,
) {
    for (key, word, bound) in [
        ("minimum", "at least", bounds.min),
        ("maximum", "at most", bounds.max),
    ] {
        let Some(bound) = bound else { continue };
        if bounds.clamp {
            notes.push(format!("Brought to {word} {}.", bound.to_string()));
        } else {
            schema.insert(key.into(), number(bound));
        }
    }
}

fn json_value(value: &ArgumentValue) -> Value {
    match value {
        ArgumentValue::Text(text) | ArgumentValue::IpAddress(text) => text.as_str().into(),
        ArgumentValue::Integer(integer) => (*integer).into(),
        ArgumentValue::Decimal(number) => decimal(*number),
        ArgumentValue::Boolean(boolean) => (*boolean).into(),
    }
}

/// The nearest JSON number; a bound or default of more than 15 digits loses its last ones, in the
/// schema only.
fn decimal(value: model::Decimal) -> Value {
    let number = value.to_string().parse().ok().and_then(Number::from_f64);
    number.map_or(Value::Null, Value::Number)
}
