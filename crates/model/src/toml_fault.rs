//! What a TOML parser says, as a fault with its place, in the words of whoever wrote the file.

use std::ops::Range;

use crate::source::SourceError;
use crate::untrusted::Untrusted;

/// The mark that some editors write before the first character.
const BYTE_ORDER_MARK: char = '\u{feff}';
/// Dots of a line that is nested deeper than the parser goes.
const DOTS_DEEP_MIN: usize = 79;
/// Characters of a value that a message repeats.
const FOUND_CHARS_MAX: usize = 64;

/// Whether a message may repeat what stands in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    Shown,
    /// A key could stand there by mistake.
    Hidden,
}

impl SourceError {
    /// A fault where `text` begins with a byte order mark: it would shift every column, and not
    /// all that read the file pass over it.
    ///
    /// # Errors
    /// The fault.
    pub fn check_byte_order_mark(file: &str, text: &str) -> Result<(), Self> {
        if !text.starts_with(BYTE_ORDER_MARK) {
            return Ok(());
        }
        let place = 0..BYTE_ORDER_MARK.len_utf8();
        let message = "the file begins with a byte order mark (U+FEFF)";
        let help = "save the file as UTF-8 without a byte order mark, which some editors call BOM";
        Err(Self::at(file, text, place, message).help(help))
    }

    /// What a TOML parser said of `text`: its `message` and, where it has one, its place.
    #[must_use]
    pub fn of_toml(
        file: &str,
        text: &str,
        place: Option<Range<usize>>,
        message: &str,
        values: Values,
    ) -> Self {
        let Some(place) = place else {
            return without_place(file, text, message);
        };
        let found = text.get(place.clone()).unwrap_or_default().trim_ascii();
        let (message, help) = match values {
            Values::Shown => told(message, &quoted(found), found),
            // It is a key that is there twice.
            Values::Hidden if message == "duplicate key" => told(message, &quoted(found), ""),
            Values::Hidden => told(message, "what stands here", ""),
        };
        Self::at(file, text, place, message).help(help)
    }
}

/// A parser that only says `recursion limit`: the place is the line with the most dots.
fn without_place(file: &str, text: &str, message: &str) -> SourceError {
    let (message, help) = told(message, "what stands here", "");
    let mut start = 0;
    let mut deepest: Option<(usize, Range<usize>)> = None;
    for line in text.split_inclusive('\n') {
        let dots = dots_outside_texts(line);
        if dots >= DOTS_DEEP_MIN && deepest.as_ref().is_none_or(|(most, _)| dots > *most) {
            deepest = Some((dots, start..start + line.trim_end().len()));
        }
        start += line.len();
    }
    match deepest {
        Some((_, place)) => SourceError::at(file, text, place, message).help(help),
        None => SourceError::whole_file(file, message).help(help),
    }
}

/// Dots of a line that stand in no comment and between no quotation marks.
fn dots_outside_texts(line: &str) -> usize {
    let (mut dots, mut quote) = (0, None);
    for byte in line.bytes() {
        match (byte, quote) {
            (b'#', None) => break,
            (b'.', None) => dots += 1,
            (b'"' | b'\'', None) => quote = Some(byte),
            (_, Some(open)) if open == byte => quote = None,
            _ => {}
        }
    }
    dots
}

/// `text` in backticks: escaped, and cut where it is long.
fn quoted(text: &str) -> String {
    let shown: String = text.chars().take(FOUND_CHARS_MAX).collect();
    let more = if shown.len() < text.len() { "…" } else { "" };
    format!("`{}{more}`", Untrusted::new(shown).escaped())
}

/// How a message of the parser begins, what is said instead where that is clearer (`{}` is what
/// stands at the place), and what to do. The first that fits.
const TOLD: [(&str, Option<&str>, &str); 15] = [
    (
        "duplicate key",
        Some("{} is given twice"),
        "keep one of the two; the keys of one table stand together below its [NAME]",
    ),
    ("recursion limit", Some(TOO_DEEP), LESS_DEEP),
    ("cannot recurse further", Some(TOO_DEEP), LESS_DEEP),
    (
        "invalid boolean",
        Some("{} is no value of TOML"),
        "write true or false, in small letters",
    ),
    (
        "invalid multi-line",
        Some(NO_END),
        "end the text with the three quotation marks that it begins with",
    ),
    (
        "invalid basic string",
        Some(NO_END),
        "end the text with \" on its line; several lines stand between \"\"\" and \"\"\"",
    ),
    (
        "invalid literal string",
        Some(NO_END),
        "end the text with ' on its line, or write it between two \"",
    ),
    ("missing escaped value", Some(NO_ESCAPE), BACKSLASH),
    ("too few unicode", Some(NO_ESCAPE), BACKSLASH),
    (
        "carriage return must",
        Some("a carriage return stands inside a line"),
        "save the file with one kind of line end, LF or CRLF",
    ),
    (
        "unquoted keys cannot be empty",
        Some("a key is missing here"),
        "write KEY = VALUE, or [TABLE]",
    ),
    (
        "invalid unquoted key",
        Some("{} is no part of a key"),
        "a key has A-Z a-z 0-9 _ and -; any other stands in quotes, like \"a b\"",
    ),
    ("missing comma between array", None, COMMAS),
    ("extra comma", None, COMMAS),
    ("unclosed array", None, COMMAS),
];
const TOO_DEEP: &str = "tables or lists are nested too deep";
const LESS_DEEP: &str = "no key of this file is so deep: take out the brackets or dots";
const NO_END: &str = "the text has no end, or a control character";
const NO_ESCAPE: &str = "no such escape follows the backslash";
const BACKSLASH: &str =
    "write \\\\ for a backslash, or put the text between two ' where none is special";
const COMMAS: &str = "put one comma between elements, and the closing bracket after the last";
/// What to do about all else.
const FORM: &str =
    "a line is KEY = VALUE, [TABLE] or # COMMENT, and a text stands in quotes: \"a\"";

/// The parser's message, and what to do. `shown` is what stands at the place, for a message.
fn told(message: &str, shown: &str, found: &str) -> (String, String) {
    if message.starts_with("string values must be quoted") {
        return value(shown, found);
    }
    let known = TOLD.iter().find(|(begins, ..)| message.starts_with(begins));
    let line = message.trim().replace('\n', "; ");
    let own = Untrusted::new(line.trim_end_matches(", expected nothing")).escaped();
    match known {
        Some((_, Some(instead), help)) => (instead.replace("{}", shown), (*help).to_owned()),
        Some((_, None, help)) => (own, (*help).to_owned()),
        None => (own, FORM.to_owned()),
    }
}

/// A value that is neither a number nor `true` nor quoted.
fn value(shown: &str, found: &str) -> (String, String) {
    let message = match found {
        "" => "no value of TOML stands here".to_owned(),
        _ => format!("{shown} is no value of TOML"),
    };
    let help = match found.to_lowercase().as_str() {
        "" => "write one, like \"text\", 5 or true; a text stands in quotes".to_owned(),
        "yes" | "no" | "on" | "off" => "write true or false, without quotes".to_owned(),
        word if word.starts_with(['“', '”', '„', '«', '‘', '’']) => {
            "write straight quotation marks: \"text\"".to_owned()
        }
        _ if found.starts_with(|first: char| first.is_ascii_digit()) => {
            format!("a number has digits only; a text stands in quotes: \"{found}\"")
        }
        _ => format!("put a text into quotes: \"{found}\""),
    };
    (message, Untrusted::new(help).escaped())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, place: Range<usize>, message: &str) -> String {
        SourceError::of_toml("a.toml", text, Some(place), message, Values::Shown).to_string()
    }

    #[test]
    fn a_byte_order_mark_is_refused_at_the_first_character() {
        assert!(SourceError::check_byte_order_mark("a", "x = 1").is_ok());
        assert!(SourceError::check_byte_order_mark("a", "x = \"\u{feff}\"").is_ok());
        let fault = SourceError::check_byte_order_mark("a", "\u{feff}x = 1").unwrap_err();
        assert_eq!((fault.line, fault.column), (1, 1));
        assert!(
            fault.to_string().contains("without a byte order mark"),
            "{fault}"
        );
    }

    #[test]
    fn a_word_without_quotes_is_shown_with_them() {
        let fault = shown(
            "a = wc",
            4..6,
            "string values must be quoted, expected literal string",
        );
        assert!(
            fault.starts_with("a.toml:1:5: `wc` is no value of TOML\n"),
            "{fault}"
        );
        assert!(
            fault.ends_with("help: put a text into quotes: \"wc\""),
            "{fault}"
        );
        for (word, help) in [
            ("", "write one, like"),
            ("yes", "write true or false"),
            ("“wc”", "straight quotation marks"),
            ("10s", "a number has digits only"),
        ] {
            let text = format!("a = {word}");
            let fault = shown(&text, 4..text.len(), "string values must be quoted");
            assert!(fault.contains(help), "{fault}");
        }
    }

    #[test]
    fn every_fault_of_syntax_says_what_to_do() {
        for message in [
            "duplicate key",
            "recursion limit",
            "cannot recurse further; max recursion depth met",
            "invalid boolean, expected `true`",
            "invalid basic string, expected `\"`",
            "invalid literal string, expected `'`",
            "missing escaped value, expected `b`",
            "extra `=`, expected nothing",
            "carriage return must be followed by newline",
            "invalid unquoted key, expected letters",
            "missing comma between array elements, expected `,`",
            "unclosed table, expected `]`",
            "key with no value, expected `=`",
        ] {
            assert!(
                shown("a = 1", 0..1, message).contains("\n  help: "),
                "{message}"
            );
            let whole = SourceError::of_toml("a", "a = 1", None, message, Values::Shown);
            assert!(whole.help.is_some(), "{message}");
        }
    }

    #[test]
    fn a_table_of_thousands_of_levels_is_named_where_it_stands() {
        let deep = ".x".repeat(5000);
        for line in [
            format!("[tool{deep}]\na = 1"),
            format!("tool{deep} = 1"),
            format!("a = {{ b{deep} = 1 }}"),
        ] {
            let text = format!("# {deep}\nt = \"{deep}.\"\n{line}\n");
            let fault = SourceError::of_toml("a", &text, None, "recursion limit", Values::Shown);
            assert_eq!((fault.line, fault.column), (3, 1), "{}", fault.message);
        }
        let none = SourceError::of_toml("a", "a = 1", None, "recursion limit", Values::Shown);
        assert_eq!(none.line, 0);
    }

    #[test]
    fn a_file_near_secrets_has_no_value_repeated() {
        let text = "api_key = sk-12345";
        for message in ["string values must be quoted", "invalid boolean"] {
            let fault = SourceError::of_toml("a", text, Some(10..18), message, Values::Hidden);
            let told = format!("{} {:?}", fault.message, fault.help);
            assert!(!told.contains("sk-1"), "{told}");
        }
    }
}
