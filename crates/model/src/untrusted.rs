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
    /// written as escapes, a line feed as `\n`.
    #[must_use]
    pub fn escaped(&self) -> String {
        escape(self.0.as_ref(), false)
    }

    /// The same, but with line feeds kept as they are.
    #[must_use]
    pub fn escaped_lines(&self) -> String {
        escape(self.0.as_ref(), true)
    }
}

impl<T: AsRef<str>> fmt::Debug for Untrusted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escaped())
    }
}

fn escape(text: &str, keep_lines: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' if keep_lines => out.push('\n'),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\\' => out.push_str("\\\\"),
            ' '..='~' => out.push(character),
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
        assert_eq!(text.escaped(), "a\\u{1b}]0;t\\u{7}\\u{202e}\\u{e4}\\n\\\\");
        assert_eq!(Untrusted::new("a\nb").escaped_lines(), "a\nb");
    }

    #[test]
    fn debug_is_escaped_too() {
        assert_eq!(format!("{:?}", Untrusted::new("\x1b")), "\"\\u{1b}\"");
    }
}
