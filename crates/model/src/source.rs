//! An error in a file that a person wrote: where it is, what is wrong, and what to do.

use std::fmt;
use std::ops::Range;

/// One fault at one place of a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceError {
    pub file: String,
    /// 1-based; 0 where the fault concerns the whole file.
    pub line: usize,
    /// 1-based, in characters.
    pub column: usize,
    /// Lower-case, names in backticks.
    pub message: String,
    /// The source line.
    pub text: String,
    /// Length of the marked part, in characters.
    pub width: usize,
    pub help: Option<String>,
}

impl SourceError {
    /// A fault at the byte range `span` of `source`.
    #[must_use]
    pub fn at(file: &str, source: &str, span: Range<usize>, message: impl Into<String>) -> Self {
        let start = floor_boundary(source, span.start);
        let end = floor_boundary(source, span.end.max(start));
        let before = source.get(..start).unwrap_or("");
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let rest = source.get(line_start..).unwrap_or("");
        let text = rest.split('\n').next().unwrap_or("").trim_end_matches('\r');
        let column = source.get(line_start..start).unwrap_or("").chars().count() + 1;
        let marked = source
            .get(start..end)
            .unwrap_or("")
            .split('\n')
            .next()
            .unwrap_or("");
        Self {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column,
            message: message.into(),
            text: text.to_owned(),
            width: marked.chars().count().max(1),
            help: None,
        }
    }

    /// A fault of the whole file: it is missing, unreadable, or belongs to somebody else.
    #[must_use]
    pub fn whole_file(file: &str, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line: 0,
            column: 0,
            message: message.into(),
            text: String::new(),
            width: 0,
            help: None,
        }
    }

    /// Adds the next step for the reader.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

fn floor_boundary(source: &str, at: usize) -> usize {
    let mut at = at.min(source.len());
    while !source.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Least bytes of a word that may stand for a longer one: `memory` for `memory_mib`.
const SHORTENED_BYTES_MIN: usize = 3;
/// Most characters of a source line that a message shows.
const SHOWN_CHARS_MAX: usize = 240;

impl fmt::Display for SourceError {
    /// `file:line:column: message`, then the line with its mark, then the help.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escape = |text: &str| crate::Untrusted::new(text).escaped();
        write!(f, "{}", escape(&self.file))?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        write!(f, ": {}", self.message)?;
        if self.line > 0 {
            let number = self.line.to_string();
            let column = self.column.saturating_sub(1);
            // A line can be as long as its file: what stands around the mark is enough.
            let first = match self.text.char_indices().nth(SHOWN_CHARS_MAX) {
                Some(_) => column.saturating_sub(SHOWN_CHARS_MAX / 4),
                None => 0,
            };
            let shown: String = self
                .text
                .chars()
                .skip(first)
                .take(SHOWN_CHARS_MAX)
                .collect();
            let prefix: String = shown.chars().take(column - first).collect();
            let marked: String = shown
                .chars()
                .skip(column - first)
                .take(self.width)
                .collect();
            let mark = "^".repeat(escape(&marked).chars().count().max(1));
            let indent = " ".repeat(escape(&prefix).chars().count());
            write!(f, "\n  {number} | {}", escape(&shown))?;
            write!(f, "\n  {} | {indent}{mark}", " ".repeat(number.len()))?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n  help: {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SourceError {}

/// All faults of a set of files, in order. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceErrors(Vec<SourceError>);

impl SourceErrors {
    /// `Err(self)` if there is any fault.
    ///
    /// # Errors
    /// The faults.
    pub fn check(faults: Vec<SourceError>) -> Result<(), Self> {
        if faults.is_empty() {
            Ok(())
        } else {
            Err(Self(faults))
        }
    }

    pub fn iter(&self) -> std::slice::Iter<'_, SourceError> {
        self.0.iter()
    }

    #[must_use]
    pub fn into_vec(self) -> Vec<SourceError> {
        self.0
    }
}

impl<'a> IntoIterator for &'a SourceErrors {
    type Item = &'a SourceError;
    type IntoIter = std::slice::Iter<'a, SourceError>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl From<SourceError> for SourceErrors {
    fn from(fault: SourceError) -> Self {
        Self(vec![fault])
    }
}

impl fmt::Display for SourceErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for SourceErrors {}

/// The candidate that `word` most likely meant: at most a third of its letters differ, whatever
/// their case, or it is how this candidate begins and no other.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters = word.chars().count();
    let limit = letters.div_ceil(3).max(1);
    let (mut near, mut longer): (Option<(usize, &'a str)>, Option<&'a str>) = (None, None);
    let mut beginning = 0;
    for candidate in candidates {
        let begins = word.len() >= SHORTENED_BYTES_MIN && candidate.starts_with(word);
        if begins {
            beginning += 1;
            longer = Some(candidate);
        }
        // So many letters differ at least: a long word is not compared letter by letter.
        if candidate.chars().count().abs_diff(letters) > limit {
            continue;
        }
        let far = distance(word, candidate).min(distance(&word.to_lowercase(), candidate));
        if far <= limit && near.is_none_or(|(best, _)| far < best) {
            near = Some((far, candidate));
        }
    }
    near.map(|(_, candidate)| candidate)
        .or(longer.filter(|_| beginning == 1))
}

/// Levenshtein distance, two rows at a time.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut next = vec![i + 1];
        for ((y, pair), left) in b.iter().zip(row.windows(2)).zip(0..) {
            let [diagonal, above] = pair else { continue };
            let here: usize = next.get(left).copied().unwrap_or(usize::MAX);
            next.push(
                (diagonal + usize::from(x != *y))
                    .min(above + 1)
                    .min(here + 1),
            );
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_shows_its_place_text_and_help() {
        let source = "[tool]\ntmieout = 5\n";
        let fault = SourceError::at("a.toml", source, 7..14, "unknown key `tmieout`")
            .help("did you mean `timeout`?");
        assert_eq!(
            fault.to_string(),
            "a.toml:2:1: unknown key `tmieout`\n  2 | tmieout = 5\n    | ^^^^^^^\n  help: did you mean `timeout`?"
        );
    }

    #[test]
    fn a_mark_stands_below_escaped_text() {
        let fault = SourceError::at("a", "ä\u{202e} = 1", 0.."ä\u{202e}".len(), "bad");
        assert!(
            fault
                .to_string()
                .ends_with("\n  1 | \\u{e4}\\u{202e} = 1\n    | ^^^^^^^^^^^^^^"),
            "{fault}"
        );
    }

    #[test]
    fn a_long_line_is_shown_around_its_mark() {
        let source = format!("{}!{}", "a".repeat(1000), "b".repeat(1000));
        let shown = SourceError::at("a", &source, 1000..1001, "bad").to_string();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "a:1:1001: bad");
        assert_eq!(lines[1].find('!'), lines[2].find('^'));
        assert!(shown.len() < 2 * SHOWN_CHARS_MAX, "{}", shown.len());
        let wide = SourceError::at("a", &source, 0..2001, "bad").to_string();
        assert!(wide.len() < 3 * SHOWN_CHARS_MAX, "{}", wide.len());
    }

    #[test]
    fn a_range_outside_the_text_does_not_panic() {
        let fault = SourceError::at("a", "ä", 1..99, "x");
        assert_eq!((fault.line, fault.column), (1, 1));
        assert_eq!(SourceError::at("a", "", 5..9, "x").line, 1);
    }

    #[test]
    fn the_nearest_key_is_close_or_nothing() {
        assert_eq!(nearest("tmieout", ["timeout", "tool"]), Some("timeout"));
        assert_eq!(nearest("zzz", ["timeout", "tool"]), None);
        assert_eq!(nearest("TIMEOUT", ["tool", "timeout"]), Some("timeout"));
        assert_eq!(
            nearest("memory", ["pids", "memory_mib"]),
            Some("memory_mib")
        );
        assert_eq!(nearest("int", ["ip", "integer"]), Some("integer"));
        assert_eq!(nearest("allow", ["allowed_ips", "allowed_cidrs"]), None);
        assert_eq!(nearest("me", ["me_too_long"]), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
