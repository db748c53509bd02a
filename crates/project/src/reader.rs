//! Reading a TOML text strictly: every key is asked for by name, every fault has its place,
//! and all faults of a text are reported together.

use std::cell::{Cell, RefCell};
use std::ops::{Range, RangeInclusive};

use model::{SourceError, SourceErrors, Untrusted, Values, nearest};
use serde_spanned::Spanned;
use toml::de::{DeTable, DeValue};

use crate::limits::{FAULT_CHARS_MAX, FAULTS_MAX};

/// A file's text, and the faults found in it so far.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    file: &'a str,
    text: &'a str,
    /// Whether values of this file may be shown: not where a key could stand by mistake.
    values_shown: bool,
    faults: RefCell<Vec<SourceError>>,
    /// Faults that were found after the report was full.
    more: Cell<usize>,
    marks: Cell<bool>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(file: &'a str, text: &'a str) -> Self {
        Self {
            file,
            text,
            values_shown: true,
            faults: RefCell::default(),
            more: Cell::new(0),
            marks: Cell::new(false),
        }
    }

    /// A file near secrets: no fault shows what stands behind a `=`.
    pub(crate) fn near_secrets(file: &'a str, text: &'a str) -> Self {
        Self {
            values_shown: false,
            ..Self::new(file, text)
        }
    }

    /// Parses the text; a fault of syntax is recorded, and the table then empty.
    pub(crate) fn parse(&self) -> DeTable<'a> {
        let marked = SourceError::check_byte_order_mark(self.file, self.text);
        let parsed = marked.and_then(|()| {
            DeTable::parse(self.text).map_err(|error| {
                let values = match self.values_shown {
                    true => Values::Shown,
                    false => Values::Hidden,
                };
                SourceError::of_toml(self.file, self.text, error.span(), error.message(), values)
            })
        });
        match parsed {
            Ok(table) => table.into_inner(),
            Err(fault) => {
                self.push(fault);
                DeTable::new()
            }
        }
    }

    /// Every fault says what to do.
    pub(crate) fn fault(
        &self,
        place: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        if !self.is_full_then_counted() {
            self.push(SourceError::at(self.file, self.text, place, message).help(help));
        }
    }

    /// Whether the report is full; the fault at hand is then counted only.
    fn is_full_then_counted(&self) -> bool {
        let is_full = self.faults.borrow().len() >= FAULTS_MAX;
        if is_full {
            self.more.set(self.more.get().saturating_add(1));
        }
        is_full
    }

    fn push(&self, mut fault: SourceError) {
        if !self.values_shown {
            fault.text = without_value(&fault.text);
        }
        if let Some((end, _)) = fault.message.char_indices().nth(FAULT_CHARS_MAX) {
            fault.message.truncate(end);
            fault.message.push('…');
        }
        self.faults.borrow_mut().push(fault);
    }

    /// Remembers one fact about the faults (which the reader of this text gives a meaning).
    pub(crate) fn mark(&self) {
        self.marks.set(true);
    }

    pub(crate) fn marked(&self) -> bool {
        self.marks.get()
    }

    /// The faults, in the order of the text.
    pub(crate) fn finish(self) -> Result<(), SourceErrors> {
        let mut faults = self.faults.into_inner();
        faults.sort_by_key(|fault| (fault.line, fault.column));
        let more = self.more.get();
        if more > 0 {
            let message = format!("… and {more} more");
            let help = "correct these first";
            faults.push(SourceError::whole_file(self.file, message).help(help));
        }
        SourceErrors::check(faults)
    }
}

fn without_value(line: &str) -> String {
    match line.split_once('=') {
        Some((key, _)) => format!("{key}= [not shown]"),
        None if line.trim_start().starts_with('[') => line.to_owned(),
        None => "[not shown]".to_owned(),
    }
}

/// One table. Keys that nobody asked for are faults when it is finished.
#[derive(Debug)]
pub(crate) struct Table<'s> {
    source: &'s Source<'s>,
    /// Dotted; empty for the whole text.
    name: String,
    place: Range<usize>,
    entries: &'s DeTable<'s>,
    asked: RefCell<Vec<&'static str>>,
}

/// One value with its key.
#[derive(Debug, Clone)]
pub(crate) struct Entry<'s> {
    source: &'s Source<'s>,
    name: String,
    value: &'s Spanned<DeValue<'s>>,
}

impl<'s> Table<'s> {
    pub(crate) fn root(source: &'s Source<'s>, entries: &'s DeTable<'s>) -> Self {
        Self {
            source,
            name: String::new(),
            place: 0..0,
            entries,
            asked: RefCell::default(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The dotted name of a key, safe to show.
    fn full(&self, key: &str) -> String {
        let key = Untrusted::new(key).escaped();
        if self.name.is_empty() {
            key
        } else {
            format!("{}.{key}", self.name)
        }
    }

    /// The value of `key`, if it is there.
    pub(crate) fn entry(&self, key: &'static str) -> Option<Entry<'s>> {
        self.asked.borrow_mut().push(key);
        self.entries.get(key).map(|value| Entry {
            source: self.source,
            name: self.full(key),
            value,
        })
    }

    /// The value of `key`; a fault if it is missing. `example` is a value to write.
    pub(crate) fn required(&self, key: &'static str, example: &str) -> Option<Entry<'s>> {
        let entry = self.entry(key);
        if entry.is_none() {
            self.source.fault(
                self.place.clone(),
                format!("`[{}]` has no `{key}`", self.name),
                format!("add: {key} = {example}"),
            );
        }
        entry
    }

    /// The table `key`, if it is there.
    pub(crate) fn table(&self, key: &'static str) -> Option<Table<'s>> {
        self.entry(key)?.table()
    }

    /// All entries with their keys, in the order of the text: for tables whose keys are names.
    pub(crate) fn named_entries(&self) -> Vec<(&'s str, Range<usize>, Entry<'s>)> {
        let mut entries: Vec<_> = self
            .entries
            .iter()
            .map(|(key, value)| {
                let entry = Entry {
                    source: self.source,
                    name: self.full(key.get_ref()),
                    value,
                };
                (key.get_ref().as_ref(), key.span(), entry)
            })
            .collect();
        entries.sort_by_key(|(_, place, _)| place.start);
        entries
    }

    pub(crate) fn fault(&self, message: impl Into<String>, help: impl Into<String>) {
        self.source.fault(self.place.clone(), message, help);
    }

    /// Reports the keys that nobody asked for.
    pub(crate) fn finish(self) {
        let asked = self.asked.into_inner();
        for key in self.entries.keys() {
            let name = key.get_ref().as_ref();
            if asked.contains(&name) || self.source.is_full_then_counted() {
                continue;
            }
            let shown = name.escape_debug();
            let message = if self.name.is_empty() {
                format!("unknown table or key `{shown}`")
            } else {
                format!("unknown key `{shown}` in `[{}]`", self.name)
            };
            let help = match nearest(name, asked.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None if asked.is_empty() => "no keys are known here".to_owned(),
                None => format!("known here: {}", asked.join(", ")),
            };
            self.source.fault(key.span(), message, help);
        }
    }
}

impl<'s> Entry<'s> {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn place(&self) -> Range<usize> {
        self.value.span()
    }

    pub(crate) fn source(&self) -> &'s Source<'s> {
        self.source
    }

    pub(crate) fn fault(&self, message: impl Into<String>, help: impl Into<String>) {
        self.source.fault(self.place(), message, help);
    }

    fn wrong_type(&self, wanted: &str, example: &str) {
        let found = match self.value.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a decimal number",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        let quoted = self.value.get_ref().as_str().filter(|text| {
            let number = text.parse::<f64>().is_ok_and(f64::is_finite);
            self.source.values_shown
                && wanted != "a list"
                && (number || text.parse::<bool>().is_ok())
        });
        let shown = self.value.get_ref().as_str();
        let listed = shown.filter(|_| wanted == "a list" && self.source.values_shown);
        let help = match (quoted, listed) {
            (Some(text), _) => format!("write it without quotes: {text}"),
            (None, Some(text)) => format!("write it in brackets: [\"{}\"]", text.escape_debug()),
            (None, None) if example.contains(' ') && !example.starts_with('[') => {
                format!("write {example}")
            }
            (None, None) => format!("write it like {example}"),
        };
        self.fault(
            format!("`{}` is {found}, but must be {wanted}", self.name),
            help,
        );
    }

    pub(crate) fn text(&self) -> Option<&'s str> {
        let text = self.value.get_ref().as_str();
        if text.is_none() {
            self.wrong_type("a string", "\"text\"");
        }
        text
    }

    /// Whether it is a list, and nothing is in it: another type is a fault of its own.
    pub(crate) fn is_empty_list(&self) -> bool {
        let list = self.value.get_ref().as_array();
        list.is_some_and(|array| array.is_empty())
    }

    pub(crate) fn is_text(&self) -> bool {
        matches!(self.value.get_ref(), DeValue::String(_))
    }

    pub(crate) fn boolean(&self) -> Option<bool> {
        let boolean = self.value.get_ref().as_bool();
        if boolean.is_none() {
            self.wrong_type("a boolean", "true or false");
        }
        boolean
    }

    /// An integer within `range`.
    pub(crate) fn integer(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let DeValue::Integer(integer) = self.value.get_ref() else {
            let (low, high) = (range.start(), range.end());
            let example = format!("a whole number from {low} to {high}, without quotes");
            self.wrong_type("an integer", &example);
            return None;
        };
        let value = u64::from_str_radix(integer.as_str(), integer.radix()).ok();
        let value = value.filter(|value| range.contains(value));
        if value.is_none() {
            self.out_of_range(
                integer,
                &range.start().to_string(),
                &range.end().to_string(),
            );
        }
        value
    }

    fn out_of_range(&self, value: impl std::fmt::Display, low: &str, high: &str) {
        self.fault(
            format!("`{}` is {value}, which is out of range", self.name),
            format!("the range is {low} to {high}"),
        );
    }

    /// A decimal number as thousandths within `range`; at most three decimal places.
    pub(crate) fn thousandths(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let text = match self.value.get_ref() {
            DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str(),
            DeValue::Float(float) => float.as_str(),
            _ => {
                self.wrong_type("a number", "1.5");
                return None;
            }
        };
        let value = parse_thousandths(text).filter(|value| range.contains(value));
        if value.is_none() {
            let decimal = |milli: &u64| format!("{}.{:03}", milli / 1000, milli % 1000);
            self.fault(
                format!("`{}` is {text}, which is out of range", self.name),
                format!(
                    "the range is {} to {}, with at most three decimal places",
                    decimal(range.start()),
                    decimal(range.end())
                ),
            );
        }
        value
    }

    /// The elements of a list of at most `max`.
    pub(crate) fn list(&self, max: usize) -> Vec<Entry<'s>> {
        let Some(array) = self.value.get_ref().as_array() else {
            self.wrong_type("a list", "[\"one\", \"two\"]");
            return Vec::new();
        };
        if array.len() > max {
            self.fault(
                format!("`{}` has {} elements", self.name, array.len()),
                format!("at most {max} are allowed"),
            );
            return Vec::new();
        }
        let element = |(at, value): (usize, &'s Spanned<DeValue<'s>>)| Entry {
            source: self.source,
            name: format!("{}[{at}]", self.name),
            value,
        };
        array.iter().enumerate().map(element).collect()
    }

    /// The strings of a list of at most `max`, with their entries; equal ones are faults.
    pub(crate) fn distinct_texts(&self, max: usize) -> Vec<(&'s str, Entry<'s>)> {
        let mut texts: Vec<(&'s str, Entry<'s>)> = Vec::new();
        for element in self.list(max) {
            let Some(text) = element.text() else { continue };
            if texts.iter().any(|(seen, _)| *seen == text) {
                element.fault(
                    format!("`{}` names `{}` twice", self.name, text.escape_debug()),
                    "name it once",
                );
            } else {
                texts.push((text, element));
            }
        }
        texts
    }

    pub(crate) fn table(&self) -> Option<Table<'s>> {
        match self.value.get_ref() {
            DeValue::Table(entries) => Some(Table {
                source: self.source,
                name: self.name.clone(),
                place: self.value.span(),
                entries,
                asked: RefCell::default(),
            }),
            _ => {
                self.wrong_type("a table", &format!("[{}]", self.name));
                None
            }
        }
    }
}

/// Thousandths of a plain decimal number: `1`, `0.5`, `1.25`, `1_000.0`.
fn parse_thousandths(text: &str) -> Option<u64> {
    let text = text.replace('_', "");
    let text = text.strip_prefix('+').unwrap_or(&text);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let fraction = fraction.trim_end_matches('0');
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 3 || !digits(whole) || !digits(fraction) {
        return None;
    }
    format!("{whole}{fraction:0<3}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_numbers_become_exact_thousandths() {
        for (text, milli) in [
            ("1", 1000),
            ("0.5", 500),
            ("1.250", 1250),
            ("+2.0", 2000),
            ("1_000", 1_000_000),
            ("0.001", 1),
            ("0.50000", 500),
        ] {
            assert_eq!(parse_thousandths(text), Some(milli), "{text}");
        }
        for bad in ["-1", "1.2345", "1e3", "nan", "inf", ".5", ""] {
            assert_eq!(parse_thousandths(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_line_near_secrets_loses_what_stands_behind_its_key() {
        assert_eq!(
            without_value("api_key = \"sk-1=2\""),
            "api_key = [not shown]"
        );
        assert_eq!(without_value("[providers.work]"), "[providers.work]");
        assert_eq!(without_value("  \"sk-1\","), "[not shown]");
    }
}
