//! Rust text with its comments and the insides of its literals replaced by spaces, so that a rule
//! sees code only. Not a parser: enough of the lexical grammar to tell the three apart.

/// The text again, of the same number of characters and lines, and what was blanked.
#[derive(Debug)]
pub(crate) struct Blanked {
    pub(crate) code: String,
    /// For each line, whether a part of a string literal stands on it.
    pub(crate) strings: Vec<bool>,
}

/// Blanks `text`.
pub(crate) fn blank(text: &str) -> Blanked {
    let mut blanker = Blanker {
        rest: text,
        code: String::with_capacity(text.len()),
        strings: vec![false],
        word_before: false,
    };
    while blanker.step() {}
    Blanked {
        code: blanker.code,
        strings: blanker.strings,
    }
}

struct Blanker<'a> {
    rest: &'a str,
    code: String,
    strings: Vec<bool>,
    /// Whether the last character was part of a word: then `r"` is no raw string's start.
    word_before: bool,
}

impl Blanker<'_> {
    /// Takes the next piece; `false` at the end.
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else {
            return false;
        };
        if self.rest.starts_with("//") {
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            self.hide(end, false);
        } else if self.rest.starts_with("/*") {
            self.hide(block_comment(self.rest), false);
        } else if first == '"' {
            self.hide(string(self.rest), true);
        } else if let Some(length) = raw_string(self.rest).filter(|_| !self.word_before) {
            self.hide(length, true);
        } else if let Some(length) = character(self.rest) {
            self.hide(length, false);
        } else {
            self.keep(first);
        }
        true
    }

    fn keep(&mut self, character: char) {
        self.code.push(character);
        self.rest = self.rest.strip_prefix(character).unwrap_or_default();
        self.word_before = is_word(character);
        if character == '\n' {
            self.strings.push(false);
        }
    }

    /// Writes spaces for the next `length` bytes; a string keeps its quotes' place as `"`.
    fn hide(&mut self, length: usize, is_string: bool) {
        let (hidden, rest) = self
            .rest
            .split_at_checked(length)
            .unwrap_or((self.rest, ""));
        for character in hidden.chars() {
            if is_string && let Some(line) = self.strings.last_mut() {
                *line = true;
            }
            match character {
                '\n' => {
                    self.code.push('\n');
                    self.strings.push(false);
                }
                _ => self.code.push(if is_string { '"' } else { ' ' }),
            }
        }
        self.rest = rest;
        self.word_before = false;
    }
}

pub(crate) fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Bytes of the block comment that `text` starts with; comments nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth = depth.saturating_sub(1);
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// Bytes of the string literal that `text` starts with.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Bytes of the raw string literal that `text` starts with, if it does.
fn raw_string(text: &str) -> Option<usize> {
    let prefixes = ["br", "cr", "r"];
    let after = prefixes
        .iter()
        .find_map(|prefix| text.strip_prefix(prefix))?;
    let inside = after.trim_start_matches('#').strip_prefix('"')?;
    let marks = after.len() - inside.len() - 1;
    let close = format!("\"{}", "#".repeat(marks));
    let start = text.len() - inside.len();
    let end = inside.find(&close).map(|end| start + end + close.len());
    Some(end.unwrap_or(text.len()))
}

/// Bytes of the character literal that `text` starts with; a lifetime is none.
fn character(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('\'')?;
    let mut characters = inside.char_indices();
    let (_, first) = characters.next()?;
    if first == '\\' {
        let (escaped, _) = characters.next()?;
        let after = inside.get(escaped + 1..)?;
        return after.find('\'').map(|end| 1 + escaped + 1 + end + 1);
    }
    let (at, second) = characters.next()?;
    (second == '\'').then_some(1 + at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        blank(text).code
    }

    #[test]
    fn comments_become_spaces_and_nest() {
        assert_eq!(code("a // b\nc"), "a     \nc");
        assert_eq!(code("a /* x /* y */ z */ b"), "a                   b");
        assert_eq!(code("a /* open"), "a        ");
    }

    #[test]
    fn strings_keep_their_place_and_hide_what_they_say() {
        assert_eq!(code(r#"f("a\"{", 1)"#), r#"f("""""", 1)"#);
        assert_eq!(code("f(r#\"a\"{\"#)"), format!("f({})", "\"".repeat(8)));
        assert_eq!(
            code("\"// no comment\" x"),
            format!("{} x", "\"".repeat(15))
        );
    }

    #[test]
    fn a_word_that_ends_in_r_starts_no_raw_string() {
        assert_eq!(code("for\"x\" {"), "for\"\"\" {");
        assert_eq!(code("r#fn()"), "r#fn()");
    }

    #[test]
    fn characters_are_hidden_and_lifetimes_are_not() {
        assert_eq!(
            code("'{' 'a' '\\'' '\\u{7f}' x"),
            format!("{}x", " ".repeat(22))
        );
        assert_eq!(code("fn f<'a>(x: &'a str)"), "fn f<'a>(x: &'a str)");
    }

    #[test]
    fn lines_know_whether_a_string_stands_on_them() {
        let blanked = blank("a\n\"b\nc\"\nd \"é\"\n// \"x\"");
        assert_eq!(blanked.strings, [false, true, true, true, false]);
        assert_eq!(blanked.code.lines().count(), 5);
    }
}
