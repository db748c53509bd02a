//! `[output]`: what a tool's stdout must be, and how it is read.

use std::fmt;
use std::sync::Arc;

use jsonschema::{PatternOptions, Validator};
use model::{OutputError, OutputFormat, Untrusted};
use serde_json::{Value, json};

use crate::limits::{PATTERN_PROGRAM_BYTES_MAX, SCHEMA_FAULTS_MAX};

/// `[output]`.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    pub(crate) format: OutputFormat,
    pub(crate) max_bytes: Option<u64>,
    /// An absolute path in the parser's own worker.
    pub(crate) custom_parser: Option<String>,
    pub(crate) schema: Option<OutputSchema>,
}

impl Default for Output {
    fn default() -> Self {
        Self {
            format: OutputFormat::Text,
            max_bytes: None,
            custom_parser: None,
            schema: None,
        }
    }
}

/// `[output.schema]`, compiled.
#[derive(Clone)]
pub(crate) struct OutputSchema {
    pub(crate) value: Value,
    validator: Arc<Validator>,
}

impl fmt::Debug for OutputSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// The schema is none; the reason is safe to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SchemaError {
    pub(crate) reason: String,
}

/// Why a tool's stdout is not the result that its manifest promises. Holds nothing of the output
/// but the places of its faults.
#[derive(Debug)]
pub enum ResultFault {
    Format(OutputError),
    /// The output is of its format and breaks `[output.schema]`; the first of the faults. Whoever
    /// reports it keeps the raw output as `schema_error`.
    Schema {
        faults: Vec<String>,
    },
}

impl fmt::Display for ResultFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format(error) => {
                write!(f, "the output is not of its manifest's format: {error}")
            }
            Self::Schema { faults } => write!(
                f,
                "the output breaks its manifest's schema: {}",
                faults.join("; ")
            ),
        }
    }
}

impl std::error::Error for ResultFault {}

impl OutputSchema {
    /// Compiles a JSON Schema 2020-12. It can refer to itself only: nothing is ever fetched.
    pub(crate) fn new(value: Value) -> Result<Self, SchemaError> {
        let patterns = PatternOptions::regex()
            .size_limit(PATTERN_PROGRAM_BYTES_MAX)
            .dfa_size_limit(PATTERN_PROGRAM_BYTES_MAX);
        let validator = jsonschema::draft202012::options()
            .with_pattern_options(patterns)
            .build(&value)
            .map_err(|error| SchemaError {
                reason: Untrusted::new(error.to_string()).escaped(),
            })?;
        Ok(Self {
            value,
            validator: Arc::new(validator),
        })
    }

    fn check(&self, value: &Value) -> Result<(), ResultFault> {
        let faults: Vec<String> = self
            .validator
            .iter_errors(value)
            .take(SCHEMA_FAULTS_MAX)
            .map(|error| describe(&error))
            .collect();
        if faults.is_empty() {
            return Ok(());
        }
        Err(ResultFault::Schema { faults })
    }
}

/// Places only: the output's own text stays out.
fn describe(error: &jsonschema::ValidationError<'_>) -> String {
    const PLACE_CHARS_MAX: usize = 128;
    let place: String = error
        .instance_path()
        .as_str()
        .chars()
        .take(PLACE_CHARS_MAX)
        .collect();
    let place = if place.is_empty() { "/" } else { &place };
    let rule = error.schema_path().as_str();
    format!(
        "`{}` breaks `{}`",
        Untrusted::new(place).escaped(),
        Untrusted::new(rule).escaped()
    )
}

impl Output {
    /// Reads and checks a whole stdout. The schema sees text as `{"raw_output": …}`.
    pub(crate) fn result(&self, stdout: &[u8]) -> Result<Value, ResultFault> {
        let format = match self.custom_parser {
            Some(_) => OutputFormat::Json,
            None => self.format,
        };
        let value = format.parse(stdout).map_err(ResultFault::Format)?;
        match (&self.schema, format) {
            (None, _) => Ok(value),
            (Some(schema), OutputFormat::Text) => {
                let wrapped = json!({ "raw_output": value });
                schema.check(&wrapped).map(|()| value)
            }
            (Some(schema), _) => schema.check(&value).map(|()| value),
        }
    }
}
