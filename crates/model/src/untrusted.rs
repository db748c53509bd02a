//! Text from a worker, a server or an agent. It cannot be shown without being escaped.

use std::fmt;

/// Text that an untrusted party wrote. There is no `Display`: use [`Untrusted::escaped`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Untrusted<T = String>(T);

impl<T: AsRef<str>> Untrusted<T> {
    pub const fn new(text: T) -> Self {
        Self(text)
    }

    /// The raw text: to compute with, never to print.
    pub fn raw(&self) -> &str {
        self.0.as_ref()
    }

    /// One line that is safe on a terminal: controls, invisible and non-ASCII characters are
    /// written as escapes, a line feed as `\n`. A backslash is doubled where it would read as the
    /// beginning of an escape, and nowhere else: two texts are never shown alike.
    #[must_use]
    pub fn escaped(&self) -> String {
        escape(self.0.as_ref())
    }

    /// Lines that are safe on a terminal: line feeds and tabs are kept, what is escaped is written
    /// as `\u{…}`, and a backslash that would begin just that is written so itself.
    #[must_use]
    pub fn escaped_lines(&self) -> String {
        escape_lines(self.0.as_ref())
    }
}

impl<T: AsRef<str>> fmt::Debug for Untrusted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escaped())
    }
}

fn is_plain(character: char) -> bool {
    matches!(character, ' '..='~')
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\\' => out.push_str(match characters.peek() {
                Some('\\' | 'n' | 't' | 'r' | 'u') => "\\\\",
                Some(next) if !is_plain(*next) => "\\\\",
                _ => "\\",
            }),
            plain if is_plain(plain) => out.push(plain),
            other => out.extend(other.escape_unicode()),
        }
    }
    out
}

fn escape_lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, character) in text.char_indices() {
        let rest = text.get(at..).unwrap_or_default();
        match character {
            '\n' | '\t' => out.push(character),
            '\\' if rest.starts_with("\\u{") => out.extend(character.escape_unicode()),
            plain if is_plain(plain) => out.push(plain),
            other => out.extend(other.escape_unicode()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_bidi_and_non_ascii_are_visible() {
        let text = Untrusted::new("a\x1b]0;t\x07\u{202e}ä\n\\");
        assert_eq!(text.escaped(), "a\\u{1b}]0;t\\u{7}\\u{202e}\\u{e4}\\n\\");
        assert_eq!(Untrusted::new("a\nb").escaped_lines(), "a\nb");
    }

    #[test]
    fn a_backslash_is_doubled_only_where_it_would_read_as_an_escape() {
        let escaped = |text: &str| Untrusted::new(text).escaped();
        assert_eq!(escaped(r"^\d+\.csv$"), r"^\d+\.csv$");
        assert_eq!(escaped(r"\n"), r"\\n");
        assert_eq!(escaped("\\\n"), r"\\\n");
        assert_eq!(escaped(r"\u{1b}"), r"\\u{1b}");
        assert_eq!(escaped("\\\u{1b}"), r"\\\u{1b}");
    }

    #[test]
    fn lines_keep_backslashes_and_tabs_and_say_which_escapes_are_ours() {
        let lines = |text: &str| Untrusted::new(text).escaped_lines();
        let text = "C:\\new\t\\\\server\\d\n";
        assert_eq!(lines(text), text);
        assert_eq!(lines(r"\u{1b}"), r"\u{5c}u{1b}");
        assert_eq!(lines("\u{1b}\r"), r"\u{1b}\u{d}");
    }

    #[test]
    fn two_texts_are_never_shown_alike() {
        let letters = ['\\', 'u', '{', '1', 'b', '}', 'n', '\n', '\u{1b}', 'x'];
        let mut texts = vec![String::new()];
        for _ in 0..4 {
            let longer = texts
                .iter()
                .flat_map(|text| letters.map(|it| format!("{text}{it}")));
            texts = texts.iter().cloned().chain(longer).collect();
        }
        texts.sort();
        texts.dedup();
        let distinct = |shown: fn(&Untrusted<String>) -> String| {
            let shown: std::collections::BTreeSet<String> = texts
                .iter()
                .map(|text| shown(&Untrusted::new(text.clone())))
                .collect();
            shown.len()
        };
        assert_eq!(distinct(Untrusted::escaped), texts.len());
        assert_eq!(distinct(Untrusted::escaped_lines), texts.len());
    }

    #[test]
    fn debug_is_escaped_too() {
        assert_eq!(format!("{:?}", Untrusted::new("\x1b")), "\"\\u{1b}\"");
    }
}
