//! What changed in a control file, line by line, in the unified form that everybody reads.

use std::fmt::Write as _;

use model::Untrusted;

use crate::limits::{DIFF_CELLS_MAX, DIFF_CONTEXT_LINES};

/// One line of a diff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line<'a> {
    Kept(&'a str),
    Removed(&'a str),
    Added(&'a str),
}

/// The unified diff of two texts of the file `path`; empty if they are equal. Every line is
/// safe on a terminal.
#[must_use]
pub fn unified_diff(path: &str, old: &str, new: &str) -> String {
    if old == new {
        return String::new();
    }
    let path = Untrusted::new(path).escaped();
    let mut out = format!("--- a/{path}\n+++ b/{path}\n");
    let lines = compare(&split(old), &split(new));
    let mut written = 0;
    for hunk in hunks(&lines) {
        let before = lines.get(..hunk.start).unwrap_or_default();
        let inside = lines.get(hunk.clone()).unwrap_or_default();
        let (old_start, new_start) = (old_len(before) + 1, new_len(before) + 1);
        let (old_lines, new_lines) = (old_len(inside), new_len(inside));
        let start = |at: usize, count: usize| if count == 0 { at - 1 } else { at };
        let _ = writeln!(
            out,
            "@@ -{},{old_lines} +{},{new_lines} @@",
            start(old_start, old_lines),
            start(new_start, new_lines)
        );
        for line in inside {
            show(&mut out, *line);
        }
        written += 1;
    }
    debug_assert!(written > 0, "different texts have a hunk");
    out
}

fn split(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

fn show(out: &mut String, line: Line<'_>) {
    let (sign, text) = match line {
        Line::Kept(text) => (' ', text),
        Line::Removed(text) => ('-', text),
        Line::Added(text) => ('+', text),
    };
    let (text, ending) = match text.strip_suffix('\n') {
        Some(text) => (text, ""),
        None => (text, "\\ No newline at end of file\n"),
    };
    let _ = write!(out, "{sign}{}\n{ending}", Untrusted::new(text).escaped());
}

fn old_len(lines: &[Line<'_>]) -> usize {
    lines
        .iter()
        .filter(|line| !matches!(line, Line::Added(_)))
        .count()
}

fn new_len(lines: &[Line<'_>]) -> usize {
    lines
        .iter()
        .filter(|line| !matches!(line, Line::Removed(_)))
        .count()
}

/// Ranges of lines to show: each change with its context, joined where they touch.
fn hunks(lines: &[Line<'_>]) -> Vec<std::ops::Range<usize>> {
    let mut hunks: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if matches!(line, Line::Kept(_)) {
            continue;
        }
        let start = at.saturating_sub(DIFF_CONTEXT_LINES);
        let end = (at + 1 + DIFF_CONTEXT_LINES).min(lines.len());
        match hunks.last_mut() {
            Some(last) if start <= last.end => last.end = end,
            _ => hunks.push(start..end),
        }
    }
    hunks
}

/// The lines of both texts in order: the longest common subsequence is kept, where it can be
/// found within the limit; otherwise the changed middle is shown as replaced.
fn compare<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Line<'a>> {
    let same = |pair: &(&&str, &&str)| pair.0 == pair.1;
    let head = old.iter().zip(new).take_while(same).count();
    let (kept, old) = old.split_at(head);
    let new = new.get(head..).unwrap_or_default();
    let tail = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take_while(same)
        .count();
    let (old, end) = old.split_at(old.len() - tail);
    let new = new.get(..new.len() - tail).unwrap_or_default();
    let mut lines: Vec<Line<'a>> = kept.iter().map(|text| Line::Kept(text)).collect();
    lines.extend(compare_middle(old, new));
    lines.extend(end.iter().map(|text| Line::Kept(text)));
    lines
}

fn compare_middle<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Line<'a>> {
    let width = new.len() + 1;
    if (old.len() + 1).saturating_mul(width) > DIFF_CELLS_MAX {
        let removed = old.iter().map(|text| Line::Removed(text));
        return removed
            .chain(new.iter().map(|text| Line::Added(text)))
            .collect();
    }
    // common[i * width + j]: the longest common subsequence of old[i..] and new[j..].
    let mut common = vec![0_u32; (old.len() + 1) * width];
    let at = |table: &[u32], i: usize, j: usize| table.get(i * width + j).copied().unwrap_or(0);
    for (i, a) in old.iter().enumerate().rev() {
        for (j, b) in new.iter().enumerate().rev() {
            let longest = if a == b {
                at(&common, i + 1, j + 1) + 1
            } else {
                at(&common, i + 1, j).max(at(&common, i, j + 1))
            };
            if let Some(cell) = common.get_mut(i * width + j) {
                *cell = longest;
            }
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut lines = Vec::with_capacity(old.len() + new.len());
    loop {
        match (old.get(i), new.get(j)) {
            (Some(a), Some(b)) if a == b => {
                lines.push(Line::Kept(a));
                (i, j) = (i + 1, j + 1);
            }
            (Some(a), other)
                if other.is_none() || at(&common, i + 1, j) >= at(&common, i, j + 1) =>
            {
                lines.push(Line::Removed(a));
                i += 1;
            }
            (_, Some(b)) => {
                lines.push(Line::Added(b));
                j += 1;
            }
            (_, None) => return lines,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_changed_line_stands_between_three_lines_of_context() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let new = old.replace("5\n", "five\n");
        assert_eq!(
            unified_diff("a.toml", old, &new),
            "--- a/a.toml\n+++ b/a.toml\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"
        );
    }

    #[test]
    fn distant_changes_are_two_hunks() {
        let old: String = (0..40).map(|n| format!("{n}\n")).collect();
        let new = old.replacen("1\n", "one\n", 1).replace("38\n", "");
        let diff = unified_diff("x", &old, &new);
        assert!(diff.contains("@@ -1,5 +1,5 @@"), "{diff}");
        assert!(diff.contains("@@ -36,5 +36,4 @@"), "{diff}");
    }

    #[test]
    fn equal_texts_have_no_diff_and_new_ones_only_additions() {
        assert_eq!(unified_diff("x", "a\n", "a\n"), "");
        assert_eq!(
            unified_diff("x", "", "a\nb"),
            "--- a/x\n+++ b/x\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n"
        );
    }

    #[test]
    fn a_line_cannot_write_to_the_terminal() {
        let diff = unified_diff("x", "", "# \u{1b}[2Jhidden\u{202e}\r\n");
        assert!(
            diff.ends_with("+# \\u{1b}[2Jhidden\\u{202e}\\r\n"),
            "{diff:?}"
        );
    }

    #[test]
    fn texts_past_the_limit_are_shown_as_replaced() {
        let lines = 1 + DIFF_CELLS_MAX.isqrt();
        let old: String = (0..lines).map(|n| format!("a{n}\n")).collect();
        let diff = unified_diff("x", &old, &old.replace('a', "b"));
        assert_eq!(diff.lines().count(), 3 + 2 * lines);
    }

    proptest! {
        #[test]
        fn a_comparison_holds_both_texts(old in "([ab]\n){0,12}c?", new in "([ab]\n){0,12}c?") {
            let lines = compare(&split(&old), &split(&new));
            let (mut before, mut after) = (String::new(), String::new());
            for line in &lines {
                match line {
                    Line::Kept(text) => { before.push_str(text); after.push_str(text); }
                    Line::Removed(text) => before.push_str(text),
                    Line::Added(text) => after.push_str(text),
                }
            }
            prop_assert_eq!(before, old);
            prop_assert_eq!(after, new);
        }
    }
}
