//! A tool's stdout as its manifest promises it: the built-in parsers, as pure functions.
//!
//! The output is hostile text of bounded size. Each reader refuses what it does not understand,
//! and none makes much more out of it than it was.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

use crate::contract::OutputFormat;
use crate::json::{JsonError, parse_strict};
use crate::limits::{OUTPUT_COLUMNS_MAX, OUTPUT_NAME_BYTES_MAX, OUTPUT_NODES_MAX, OUTPUT_ROWS_MAX};

/// Why an output is not of its format. The message holds nothing of the output itself.
#[derive(Debug)]
pub enum OutputError {
    NotUtf8,
    Json(JsonError),
    /// Lines count from 1.
    JsonLine {
        line: usize,
        error: JsonError,
    },
    /// Lines count from 1.
    Csv {
        line: usize,
        reason: &'static str,
    },
    Xml {
        line: usize,
        reason: &'static str,
    },
    TooMany {
        what: &'static str,
        max: usize,
    },
}

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUtf8 => f.write_str("the text is not UTF-8"),
            Self::Json(error) => error.fmt(f),
            Self::JsonLine { line, error } => write!(f, "line {line}: {error}"),
            Self::Csv { line, reason } => write!(f, "invalid CSV at line {line}: {reason}"),
            Self::Xml { line, reason } => write!(f, "invalid XML at line {line}: {reason}"),
            Self::TooMany { what, max } => write!(f, "more than the {max} {what} allowed"),
        }
    }
}

impl std::error::Error for OutputError {}

impl OutputFormat {
    /// Whether `stdout` is what the format promises.
    ///
    /// # Errors
    /// [`OutputError`] with the place of the first fault.
    pub fn check(self, stdout: &[u8]) -> Result<(), OutputError> {
        match self {
            Self::Text => Ok(()),
            _ => self.parse(stdout).map(drop),
        }
    }

    /// `stdout` as one JSON value: text as a string (what is not UTF-8 is replaced), JSON as it is,
    /// JSON Lines as an array, CSV as an array of objects of strings, XML as
    /// `{"root": {"@attribute": …, "#text": …, "child": … or […]}}`.
    ///
    /// # Errors
    /// [`OutputError`] with the place of the first fault.
    pub fn parse(self, stdout: &[u8]) -> Result<Value, OutputError> {
        match self {
            Self::Text => Ok(Value::String(String::from_utf8_lossy(stdout).into_owned())),
            Self::Json => parse_strict(stdout, usize::MAX).map_err(OutputError::Json),
            Self::Jsonl => parse_lines(utf8(stdout)?),
            Self::Csv => parse_csv(utf8(stdout)?),
            Self::Xml => crate::xml::parse(utf8(stdout)?),
        }
    }
}

fn utf8(stdout: &[u8]) -> Result<&str, OutputError> {
    std::str::from_utf8(stdout).map_err(|_| OutputError::NotUtf8)
}

/// The last line may end without a line feed; no line is empty.
fn parse_lines(text: &str) -> Result<Value, OutputError> {
    let mut values = Vec::new();
    let body = text.strip_suffix('\n').unwrap_or(text);
    if body.is_empty() {
        return Ok(Value::Array(values));
    }
    for (index, line) in body.split('\n').enumerate() {
        if index >= OUTPUT_ROWS_MAX {
            return Err(OutputError::TooMany {
                what: "lines",
                max: OUTPUT_ROWS_MAX,
            });
        }
        let line = line.strip_suffix('\r').unwrap_or(line);
        let value = parse_strict(line.as_bytes(), usize::MAX);
        values.push(value.map_err(|error| OutputError::JsonLine {
            line: index + 1,
            error,
        })?);
    }
    Ok(Value::Array(values))
}

/// RFC 4180 with `,` between cells; a line feed alone ends a row too.
fn parse_csv(text: &str) -> Result<Value, OutputError> {
    let mut reader = CsvReader {
        rest: text,
        line: 1,
    };
    let mut rows = Vec::new();
    let Some(header) = reader.row(OUTPUT_COLUMNS_MAX)? else {
        return Ok(Value::Array(rows));
    };
    let refuse = |line, reason| Err(OutputError::Csv { line, reason });
    let mut seen = BTreeSet::new();
    for name in &header {
        if name.is_empty() || name.len() > OUTPUT_NAME_BYTES_MAX {
            return refuse(1, "a column's name has 1 to 256 bytes");
        }
        if !seen.insert(name.as_str()) {
            return refuse(1, "two columns have the same name");
        }
    }
    let mut cells = 0;
    loop {
        let line = reader.line;
        let Some(row) = reader.row(header.len())? else {
            return Ok(Value::Array(rows));
        };
        if row.len() != header.len() {
            return refuse(line, "the row has fewer cells than the header");
        }
        cells += row.len();
        if rows.len() >= OUTPUT_ROWS_MAX || cells > OUTPUT_NODES_MAX {
            return Err(OutputError::TooMany {
                what: "rows, or cells",
                max: OUTPUT_ROWS_MAX,
            });
        }
        let named = header
            .iter()
            .cloned()
            .zip(row.into_iter().map(Value::String));
        rows.push(Value::Object(named.collect::<Map<_, _>>()));
    }
}

struct CsvReader<'a> {
    rest: &'a str,
    line: usize,
}

impl CsvReader<'_> {
    /// The next row of at most `cells_max` cells; `None` at the end.
    fn row(&mut self, cells_max: usize) -> Result<Option<Vec<String>>, OutputError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let mut cells = Vec::new();
        loop {
            if cells.len() >= cells_max {
                return Err(OutputError::Csv {
                    line: self.line,
                    reason: "the row has more cells than the header, or than allowed",
                });
            }
            cells.push(self.cell()?);
            if let Some(rest) = self.rest.strip_prefix(',') {
                self.rest = rest;
                continue;
            }
            let ended = self.rest.strip_prefix("\r\n");
            self.rest = ended.or_else(|| self.rest.strip_prefix('\n')).unwrap_or("");
            self.line += 1;
            return Ok(Some(cells));
        }
    }

    /// One cell; what follows it is `,`, a line's end or the end.
    fn cell(&mut self) -> Result<String, OutputError> {
        let line = self.line;
        let refuse = |reason| Err(OutputError::Csv { line, reason });
        let Some(mut rest) = self.rest.strip_prefix('"') else {
            let end = self.rest.find([',', '\n', '"', '\r']);
            let (cell, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
            if rest.starts_with('"') || (rest.starts_with('\r') && !rest.starts_with("\r\n")) {
                return refuse("a quote or carriage return stands in an unquoted cell");
            }
            self.rest = rest;
            return Ok(cell.to_owned());
        };
        let mut cell = String::new();
        loop {
            let Some((part, after)) = rest.split_once('"') else {
                return refuse("a quoted cell does not end");
            };
            cell.push_str(part);
            self.line += part.bytes().filter(|byte| *byte == b'\n').count();
            match after.strip_prefix('"') {
                Some(more) => {
                    cell.push('"');
                    rest = more;
                }
                None if after.is_empty() || after.starts_with([',', '\n']) => {
                    self.rest = after;
                    return Ok(cell);
                }
                None if after.starts_with("\r\n") => {
                    self.rest = after;
                    return Ok(cell);
                }
                None => return refuse("text follows a closing quote"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(format: OutputFormat, text: &str) -> Result<Value, String> {
        format
            .parse(text.as_bytes())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn each_format_has_its_value() {
        let cases = [
            (OutputFormat::Text, "a\n", json!("a\n")),
            (OutputFormat::Json, "{\"a\": [1]}\n", json!({"a": [1]})),
            (
                OutputFormat::Jsonl,
                "{\"a\":1}\r\n2\n",
                json!([{"a": 1}, 2]),
            ),
            (OutputFormat::Jsonl, "", json!([])),
            (
                OutputFormat::Csv,
                "a,b\r\n1,\"x, \"\"y\"\"\nz\"\r\n,",
                json!([{"a": "1", "b": "x, \"y\"\nz"}, {"a": "", "b": ""}]),
            ),
            (OutputFormat::Csv, "", json!([])),
            (
                OutputFormat::Xml,
                "<r><a x=\"1\">t</a><a/></r>",
                json!({"r": {"a": [{"@x": "1", "#text": "t"}, {}]}}),
            ),
        ];
        for (format, text, value) in cases {
            assert_eq!(parse(format, text), Ok(value), "{text}");
            assert!(format.check(text.as_bytes()).is_ok());
        }
        assert!(OutputFormat::Text.check(b"\xff").is_ok());
    }

    #[test]
    fn what_is_not_of_its_format_is_refused_with_its_line() {
        for (format, text, part) in [
            (OutputFormat::Json, "{\"a\":1,\"a\":2}", "duplicate"),
            (OutputFormat::Jsonl, "1\n\n2\n", "line 2"),
            (OutputFormat::Jsonl, "1\n{\n", "line 2"),
            (OutputFormat::Csv, "a,a\n", "same name"),
            (OutputFormat::Csv, "a,\n", "1 to 256 bytes"),
            (OutputFormat::Csv, "a,b\n1\n", "line 2: the row has fewer"),
            (OutputFormat::Csv, "a\n1,2\n", "line 2: the row has more"),
            (OutputFormat::Csv, "a\n\"1\n", "does not end"),
            (OutputFormat::Csv, "a\n\"1\"x\n", "follows a closing quote"),
            (OutputFormat::Csv, "a\nx\"y\n", "unquoted cell"),
        ] {
            let error = parse(format, text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(OutputFormat::Csv.check(b"\xff").is_err());
    }

    #[test]
    fn rows_columns_and_names_hold_at_their_limits_and_not_past_them() {
        let lines = |count: usize| OutputFormat::Jsonl.check("1\n".repeat(count).as_bytes());
        assert!(lines(OUTPUT_ROWS_MAX).is_ok());
        assert!(lines(OUTPUT_ROWS_MAX + 1).is_err());
        let rows = |count: usize| {
            OutputFormat::Csv.check(format!("a\n{}", "1\n".repeat(count)).as_bytes())
        };
        assert!(rows(OUTPUT_ROWS_MAX).is_ok());
        assert!(rows(OUTPUT_ROWS_MAX + 1).is_err());
        let columns = |count: usize| {
            let names: Vec<String> = (0..count).map(|n| format!("c{n}")).collect();
            OutputFormat::Csv.check(names.join(",").as_bytes())
        };
        assert!(columns(OUTPUT_COLUMNS_MAX).is_ok());
        assert!(columns(OUTPUT_COLUMNS_MAX + 1).is_err());
        let named = |bytes: usize| OutputFormat::Csv.check("n".repeat(bytes).as_bytes());
        assert!(named(OUTPUT_NAME_BYTES_MAX).is_ok());
        assert!(named(OUTPUT_NAME_BYTES_MAX + 1).is_err());
        let cells = |rows: usize| {
            let names: Vec<String> = (0..OUTPUT_COLUMNS_MAX).map(|n| format!("c{n}")).collect();
            let row = format!("{}\n", ",".repeat(OUTPUT_COLUMNS_MAX - 1));
            OutputFormat::Csv.check(format!("{}\n{}", names.join(","), row.repeat(rows)).as_bytes())
        };
        assert!(cells(OUTPUT_NODES_MAX / OUTPUT_COLUMNS_MAX).is_ok());
        assert!(cells(OUTPUT_NODES_MAX / OUTPUT_COLUMNS_MAX + 1).is_err());
    }
}
