//! Reads a TOML document key by key, so that every fault has its place and no key is left over.

use std::ops::Range;

use model::{SourceError, SourceErrors, Untrusted, Values, nearest};
use serde_spanned::Spanned;
use toml::de::{DeTable, DeValue};

use crate::limits::FAULTS_MAX;

pub(crate) type Place = Range<usize>;

/// The document of a text of at most `bytes_max`.
pub(crate) fn parse_document<'t>(
    file: &str,
    text: &'t str,
    bytes_max: usize,
) -> Result<Spanned<DeTable<'t>>, SourceErrors> {
    if text.len() > bytes_max {
        let bytes = text.len();
        let message = format!("the file has {bytes} bytes, more than the {bytes_max} allowed");
        let help = "shorten it; data that a tool reads stands in a file of its own";
        return Err(SourceError::whole_file(file, message).help(help).into());
    }
    SourceError::check_byte_order_mark(file, text)?;
    DeTable::parse(text).map_err(|error| {
        SourceError::of_toml(file, text, error.span(), error.message(), Values::Shown).into()
    })
}

/// The faults of one manifest, with the text that they point into.
pub(crate) struct Faults<'a> {
    file: &'a str,
    text: &'a str,
    found: Vec<(Place, SourceError)>,
}

impl<'a> Faults<'a> {
    pub(crate) const fn new(file: &'a str, text: &'a str) -> Self {
        Self {
            file,
            text,
            found: Vec::new(),
        }
    }

    /// No further fault will be kept: whoever walks something long can stop.
    pub(crate) const fn is_full(&self) -> bool {
        self.found.len() >= FAULTS_MAX
    }

    /// Every fault of a manifest says what to do.
    pub(crate) fn add(
        &mut self,
        place: Place,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let fault = SourceError::at(self.file, self.text, place.clone(), message).help(help);
        self.keep(place, fault);
    }

    /// Once: a key can be read from more than one side.
    fn keep(&mut self, place: Place, fault: SourceError) {
        if !self.is_full() && self.found.iter().all(|(_, found)| *found != fault) {
            self.found.push((place, fault));
        }
    }

    /// The faults from the top of the file to its end.
    pub(crate) fn check(mut self) -> Result<(), SourceErrors> {
        self.found.sort_by_key(|(place, _)| place.start);
        SourceErrors::check(self.found.into_iter().map(|(_, fault)| fault).collect())
    }

    /// The place of `part` inside a string value whose whole place is `place`. The whole place,
    /// where the string was written with escapes.
    pub(crate) fn inside(&self, place: &Place, value: &str, part: Place) -> Place {
        let written = self.text.get(place.clone()).unwrap_or("");
        let quotes = match written.len().checked_sub(value.len()) {
            Some(2) => 1,
            Some(6) => 3,
            _ => return place.clone(),
        };
        let start = place.start + quotes;
        if self.text.get(start..start + value.len()) == Some(value) {
            start + part.start..start + part.end.max(part.start + 1)
        } else {
            place.clone()
        }
    }
}

/// `text` in backticks: escaped, and cut where it is long.
pub(crate) fn quoted(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 64;
    let shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    let more = if shown.len() < text.len() { "…" } else { "" };
    format!("`{}{more}`", Untrusted::new(shown.as_str()).escaped())
}

/// Words as a list for a message: `a`, `b`.
pub(crate) fn listed<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    words.into_iter().map(quoted).collect::<Vec<_>>().join(", ")
}

/// The help for a word that is not among `candidates`.
pub(crate) fn suggestion(word: &str, candidates: &[&str]) -> Option<String> {
    const WORD_BYTES_MAX: usize = 64;
    if word.len() > WORD_BYTES_MAX {
        return None;
    }
    nearest(word, candidates.iter().copied()).map(|near| format!("did you mean `{near}`?"))
}

/// One table of the document. Each key is asked for by name; [`Section::finish`] refuses the rest.
pub(crate) struct Section<'a> {
    /// Dotted, as a person would write it; empty for the document.
    path: String,
    pub(crate) place: Place,
    entries: &'a DeTable<'a>,
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    pub(crate) const fn new(path: String, place: Place, entries: &'a DeTable<'a>) -> Self {
        Self {
            path,
            place,
            entries,
            known: Vec::new(),
        }
    }

    /// The key's full name.
    pub(crate) fn name_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            quoted(key)
        } else {
            quoted(&format!("{}.{key}", self.path))
        }
    }

    pub(crate) fn entry(&mut self, key: &'static str) -> Option<(Place, &'a Spanned<DeValue<'a>>)> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.entries
            .get_key_value(key)
            .map(|(key, value)| (key.span(), value))
    }

    pub(crate) fn was_read(&self, key: &str) -> bool {
        self.known.contains(&key)
    }

    /// All keys, for tables whose keys the manifest's author chooses.
    pub(crate) fn entries(
        &self,
    ) -> impl Iterator<Item = (Spanned<&'a str>, &'a Spanned<DeValue<'a>>)> {
        self.entries
            .iter()
            .map(|(key, value)| (Spanned::new(key.span(), key.get_ref().as_ref()), value))
    }

    pub(crate) fn string(
        &mut self,
        faults: &mut Faults<'_>,
        key: &'static str,
    ) -> Option<Spanned<&'a str>> {
        let (_, value) = self.entry(key)?;
        let read = as_string(value);
        self.typed(faults, key, value, "a string", read)
    }

    pub(crate) fn boolean(
        &mut self,
        faults: &mut Faults<'_>,
        key: &'static str,
    ) -> Option<Spanned<bool>> {
        let (_, value) = self.entry(key)?;
        let read = value.get_ref().as_bool();
        self.typed(faults, key, value, "`true` or `false`", read)
    }

    /// `true` only where the key says so.
    pub(crate) fn flag(&mut self, faults: &mut Faults<'_>, key: &'static str) -> bool {
        self.boolean(faults, key)
            .is_some_and(|flag| *flag.get_ref())
    }

    pub(crate) fn integer(
        &mut self,
        faults: &mut Faults<'_>,
        key: &'static str,
    ) -> Option<Spanned<i64>> {
        let (_, value) = self.entry(key)?;
        let DeValue::Integer(integer) = value.get_ref() else {
            return self.typed(faults, key, value, "a whole number", None);
        };
        let Ok(read) = i64::from_str_radix(integer.as_str(), integer.radix()) else {
            let name = self.name_of(key);
            let message = format!("{name} is outside the 64-bit numbers");
            faults.add(value.span(), message, "write a smaller number");
            return None;
        };
        Some(Spanned::new(value.span(), read))
    }

    /// A whole number of 1 to `max`.
    pub(crate) fn bounded(
        &mut self,
        faults: &mut Faults<'_>,
        key: &'static str,
        max: u64,
    ) -> Option<u64> {
        let given = self.integer(faults, key)?;
        match u64::try_from(*given.get_ref()) {
            Ok(value) if (1..=max).contains(&value) => Some(value),
            _ => {
                let name = self.name_of(key);
                let message = format!("{name} is {}, which is out of range", given.get_ref());
                faults.add(given.span(), message, format!("the range is 1 to {max}"));
                None
            }
        }
    }

    pub(crate) fn strings(
        &mut self,
        faults: &mut Faults<'_>,
        key: &'static str,
    ) -> Option<Spanned<Vec<Spanned<&'a str>>>> {
        let (_, value) = self.entry(key)?;
        let Some(array) = value.get_ref().as_array() else {
            return self.typed(faults, key, value, "an array of strings", None);
        };
        let mut items = Vec::with_capacity(array.len());
        for (at, item) in array.iter().enumerate() {
            let name = format!("{key}[{at}]");
            items.push(self.typed(faults, &name, item, "a string", as_string(item))?);
        }
        Some(Spanned::new(value.span(), items))
    }

    pub(crate) fn table(
        &mut self,
        faults: &mut Faults<'_>,
        key: &'static str,
    ) -> Option<Section<'a>> {
        let (place, value) = self.entry(key)?;
        self.section(faults, &Spanned::new(place, key), value)
    }

    /// The value of one of [`Section::entries`] as a table.
    pub(crate) fn section(
        &self,
        faults: &mut Faults<'_>,
        key: &Spanned<&str>,
        value: &'a Spanned<DeValue<'a>>,
    ) -> Option<Section<'a>> {
        let word = *key.get_ref();
        let Some(entries) = value.get_ref().as_table() else {
            let message = format!("{} must be a table", self.name_of(word));
            let table = match self.path.as_str() {
                "" => word.to_owned(),
                path => format!("{path}.{word}"),
            };
            faults.add(value.span(), message, format!("write a table: [{table}]"));
            return None;
        };
        let path = if self.path.is_empty() {
            word.to_owned()
        } else {
            format!("{}.{word}", self.path)
        };
        Some(Section::new(path, key.span(), entries))
    }

    /// Whether a table whose keys the manifest's author chooses has at most `max` of them.
    pub(crate) fn at_most(&self, max: usize, faults: &mut Faults<'_>) -> bool {
        let count = self.entries.len();
        if count > max {
            let table = quoted(&self.path);
            let message = format!("{table} has {count} entries, more than the {max} allowed");
            faults.add(self.place.clone(), message, "remove some");
        }
        count <= max
    }

    /// A fault at the table's own name for a key that must be there.
    pub(crate) fn missing(&self, faults: &mut Faults<'_>, key: &str, help: &str) {
        let message = format!("{} is missing", self.name_of(key));
        faults.add(self.place.clone(), message, help);
    }

    /// Refuses every key that was not asked for.
    pub(crate) fn finish(self, faults: &mut Faults<'_>) {
        for key in self.entries.keys() {
            let word = key.get_ref().as_ref();
            if faults.is_full() {
                return;
            }
            if self.known.contains(&word) {
                continue;
            }
            let message = format!("unknown key {}", self.name_of(word));
            let help = suggestion(word, &self.known)
                .unwrap_or_else(|| format!("valid keys are {}", listed(self.known.clone())));
            faults.add(key.span(), message, help);
        }
    }

    fn typed<T>(
        &self,
        faults: &mut Faults<'_>,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        wanted: &str,
        read: Option<T>,
    ) -> Option<Spanned<T>> {
        if let Some(read) = read {
            return Some(Spanned::new(value.span(), read));
        }
        let found = value.get_ref().type_str();
        let message = format!(
            "{} must be {wanted}, not {}",
            self.name_of(key),
            article(found)
        );
        faults.add(value.span(), message, retyped(value.get_ref(), wanted));
        None
    }
}

/// Most words of a text that a help writes as a list.
const RETYPED_WORDS_MAX: usize = 16;

/// How a value of another type is written as it is wanted.
fn retyped(found: &DeValue<'_>, wanted: &str) -> String {
    let number = |text: &str| text.parse::<i64>().is_ok();
    match (found, wanted) {
        (DeValue::String(text), "a whole number") if number(text) => {
            format!("write it without quotes: {text}")
        }
        (DeValue::String(text), "`true` or `false`") if matches!(&**text, "true" | "false") => {
            format!("write it without quotes: {text}")
        }
        // A command's words stand for themselves.
        (DeValue::String(text), "an array of strings") if text.contains(' ') => {
            let words = text.split_whitespace().take(RETYPED_WORDS_MAX);
            let words: Vec<String> = words.map(|word| format!("{word:?}")).collect();
            format!(
                "write each word in quotes, all in brackets: [{}]",
                words.join(", ")
            )
        }
        (DeValue::String(text), "an array of strings") => {
            format!("write it in brackets: [\"{}\"]", text.escape_debug())
        }
        (DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_), "a string") => {
            format!("write it in quotes: \"{}\"", printed(found))
        }
        (_, "a whole number") => "write it like 10".to_owned(),
        (_, "a string") => "write it like \"text\"".to_owned(),
        (_, "an array of strings") => "write it like [\"one\", \"two\"]".to_owned(),
        _ => "write true or false, without quotes".to_owned(),
    }
}

pub(crate) fn as_string<'a>(value: &'a Spanned<DeValue<'a>>) -> Option<&'a str> {
    value.get_ref().as_str()
}

/// A TOML number or boolean, as it prints.
pub(crate) fn printed(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix())
            .map_or_else(|_| integer.to_string(), |read| read.to_string()),
        DeValue::Float(float) => float.as_str().to_owned(),
        DeValue::Boolean(boolean) => boolean.to_string(),
        _ => String::new(),
    }
}

fn article(word: &str) -> String {
    let vowel = word.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {word}", if vowel { "an" } else { "a" })
}
