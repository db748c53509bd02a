//! `[output]`: the format, who reads it, and the schema of the result.

use model::OutputFormat;
use serde_spanned::Spanned;
use toml::de::DeValue;

use super::unknown_word;
use crate::limits::LIMIT_VALUE_MAX;
use crate::output::{Output, OutputSchema};
use crate::reader::{Faults, Section, printed, quoted};

pub(super) fn read(section: Option<Section<'_>>, faults: &mut Faults<'_>) -> Option<Output> {
    let Some(mut section) = section else {
        return Some(Output::default());
    };
    let format = read_format(&mut section, faults);
    let max_bytes = section.bounded(faults, "max_bytes", LIMIT_VALUE_MAX);
    let custom_parser = read_parser(&mut section, format, faults);
    if let Some((place, value)) = section.entry("envelope")
        && !matches!(value.get_ref(), DeValue::Boolean(true))
    {
        faults.add(
            place,
            "every result has an envelope: `output.envelope` can only be `true`",
            "remove it, or write `envelope = true`",
        );
    }
    let schema = read_schema(&mut section, faults);
    section.finish(faults);
    Some(Output {
        format: format?,
        max_bytes,
        custom_parser: custom_parser?,
        schema: schema?,
    })
}

fn read_format(section: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<OutputFormat> {
    if section.entry("format").is_none() {
        return Some(OutputFormat::Text);
    }
    let given = section.string(faults, "format")?;
    let found = OutputFormat::ALL
        .into_iter()
        .find(|format| format.as_str() == *given.get_ref());
    if found.is_none() {
        let names = OutputFormat::ALL.map(OutputFormat::as_str);
        unknown_word(&section.name_of("format"), &given, &names, faults);
    }
    found
}

/// The path of a custom parser; `Some(None)` where the format's own reads it.
fn read_parser(
    section: &mut Section<'_>,
    format: Option<OutputFormat>,
    faults: &mut Faults<'_>,
) -> Option<Option<String>> {
    if section.entry("parser").is_none() {
        return Some(None);
    }
    let given = section.string(faults, "parser")?;
    let text = *given.get_ref();
    let own = format.map(|format| format!("builtin:{}", format.as_str()));
    if let Some(path) = text.strip_prefix("custom:") {
        if is_worker_path(path) {
            return Some(Some(path.to_owned()));
        }
        let message = format!(
            "the output parser {} is no path in the worker",
            quoted(text)
        );
        faults.add(given.span(), message, "write `custom:/absolute/path`");
        return None;
    }
    match own {
        Some(own) if own == text => Some(None),
        Some(own) => {
            let message = format!(
                "the output parser {} does not read this format",
                quoted(text)
            );
            let help = format!("write `{own}`, or `custom:/absolute/path` in the worker");
            faults.add(given.span(), message, help);
            None
        }
        None => None,
    }
}

fn is_worker_path(path: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-/".contains(&byte);
    path.strip_prefix('/').is_some_and(|rest| {
        let parts = || rest.split('/');
        parts().all(|part| !matches!(part, "" | "." | "..")) && rest.bytes().all(plain)
    })
}

fn read_schema(section: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<Option<OutputSchema>> {
    let Some((place, value)) = section.entry("schema") else {
        return Some(None);
    };
    if !value.get_ref().is_table() {
        faults.add(
            value.span(),
            "`output.schema` must be a table",
            "write the schema as a table: `[output.schema]`, `type = \"object\"`",
        );
        return None;
    }
    match OutputSchema::new(json_of(value, faults)?) {
        Ok(schema) => Some(Some(schema)),
        Err(error) => {
            let message = format!(
                "`output.schema` is no JSON Schema 2020-12: {}",
                error.reason
            );
            faults.add(
                place,
                message,
                "correct the keyword, or remove it: what no schema asks is not checked",
            );
            None
        }
    }
}

/// The same value in JSON; TOML's dates have none.
fn json_of(value: &Spanned<DeValue<'_>>, faults: &mut Faults<'_>) -> Option<serde_json::Value> {
    use serde_json::Value;
    match value.get_ref() {
        DeValue::String(text) => Some(Value::String(text.clone().into_owned())),
        DeValue::Boolean(boolean) => Some(Value::Bool(*boolean)),
        number @ (DeValue::Integer(_) | DeValue::Float(_)) => {
            let read = serde_json::from_str(&printed(number)).ok();
            if read.is_none() {
                faults.add(
                    value.span(),
                    "the number has no spelling in JSON",
                    "write a plain number, like 1.5",
                );
            }
            read
        }
        DeValue::Array(items) => {
            let items = items.iter().map(|item| json_of(item, faults));
            items.collect::<Option<Vec<_>>>().map(Value::Array)
        }
        DeValue::Table(table) => {
            let entries = table
                .iter()
                .map(|(key, value)| Some((key.get_ref().to_string(), json_of(value, faults)?)));
            entries.collect::<Option<_>>().map(Value::Object)
        }
        DeValue::Datetime(_) => {
            faults.add(
                value.span(),
                "a date has no spelling in JSON: write a string",
                "write it as a string, in quotes",
            );
            None
        }
    }
}
