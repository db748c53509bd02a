//! Functions, test items and modules in blanked code, found by their brackets.

use super::blank::{blank, is_word};

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// Line of its `fn`, from 1.
    pub(crate) line: usize,
    /// Lines between the body's braces that hold code.
    pub(crate) body_lines: usize,
    pub(crate) is_test: bool,
}

/// The functions in blanked `code`, whose test lines are marked in `test_lines`.
pub(crate) fn functions(code: &str, test_lines: &[bool]) -> Vec<Function> {
    let starts = code.match_indices("fn ").map(|(at, _)| at);
    starts
        .filter(|&at| {
            !code
                .get(..at)
                .is_some_and(|before| before.ends_with(is_word))
        })
        .filter_map(|at| function(code, at, test_lines))
        .collect()
}

fn function(code: &str, at: usize, test_lines: &[bool]) -> Option<Function> {
    let after = code.get(at..)?.strip_prefix("fn ")?;
    let name: String = after.chars().take_while(|&next| is_word(next)).collect();
    let rest = code.get(at..)?;
    let body = rest.get(..item_length(rest))?.split_once('{')?.1;
    let line = line_of(code, at);
    let holds_code = |line: &&str| !line.trim().is_empty();
    let opened = body.split_once('\n').map_or("", |(_, inside)| inside);
    let inside = opened.rsplit_once('\n').map_or("", |(inside, _)| inside);
    let is_test = test_lines.get(line - 1).copied().unwrap_or(false);
    (!name.is_empty()).then(|| Function {
        name,
        line,
        body_lines: inside.lines().filter(holds_code).count(),
        is_test,
    })
}

/// For each line of blanked `code`, whether it belongs to an item that is compiled for tests only.
pub(crate) fn test_lines(code: &str) -> Vec<bool> {
    let mut marks = vec![false; code.split('\n').count()];
    for at in test_attributes(code) {
        let Some(item) = code.get(at..) else { continue };
        let first = line_of(code, at) - 1;
        let lines = item
            .get(..item_length(item))
            .unwrap_or(item)
            .split('\n')
            .count();
        for mark in marks.iter_mut().skip(first).take(lines) {
            *mark = true;
        }
    }
    marks
}

/// Where the attributes stand that make an item a test's.
fn test_attributes(code: &str) -> Vec<usize> {
    let spellings = ["#[cfg(test)]", "#[cfg(all(test", "#[test]", "#[tokio::test"];
    let mut found: Vec<usize> = spellings
        .iter()
        .flat_map(|spelling| code.match_indices(spelling).map(|(at, _)| at))
        .collect();
    found.sort_unstable();
    found
}

/// The modules that `text` at `path` declares for tests only, as paths without `.rs`.
pub(crate) fn test_modules(path: &str, text: &str) -> Vec<String> {
    let code = blank(text).code;
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let below = match path.rsplit('/').next() {
        Some("lib.rs" | "main.rs" | "mod.rs") | None => folder,
        Some(_) => path.strip_suffix(".rs").unwrap_or(path),
    };
    let of_item = |at: usize| {
        let item = code.get(at..)?;
        let item = item.get(..item_length(item))?;
        let raw = slice_like(text, &code, at, item)?;
        let (_, name) = item.strip_suffix(';')?.rsplit_once("mod ")?;
        let named = raw
            .split_once("#[path = \"")
            .and_then(|(_, rest)| rest.split_once('"'));
        Some(match named {
            Some((file, _)) => format!("{folder}/{}", file.strip_suffix(".rs").unwrap_or(file)),
            None => format!("{below}/{}", name.trim()),
        })
    };
    test_attributes(&code)
        .into_iter()
        .filter_map(of_item)
        .collect()
}

/// The part of `text` that became `item`, which starts at byte `at` of `code`: both have the same
/// number of characters, not of bytes.
fn slice_like(text: &str, code: &str, at: usize, item: &str) -> Option<String> {
    let skipped = code.get(..at)?.chars().count();
    Some(
        text.chars()
            .skip(skipped)
            .take(item.chars().count())
            .collect(),
    )
}

/// Bytes of the item at the start of `code`, attributes included: up to the end of its first block
/// or to its `;`, whichever comes first outside of brackets.
fn item_length(code: &str) -> usize {
    let mut brackets = 0_usize;
    let mut braces = 0_usize;
    for (at, character) in code.char_indices() {
        match character {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.saturating_sub(1),
            '{' => braces += 1,
            '}' if braces <= 1 && brackets == 0 => return at + 1,
            '}' => braces = braces.saturating_sub(1),
            ';' if braces == 0 && brackets == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// The line, from 1, of byte `at`.
fn line_of(code: &str, at: usize) -> usize {
    let before = code.get(..at).unwrap_or(code);
    before.matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_counts_the_lines_of_code_between_its_braces() {
        let code =
            blank("fn a(x: [u8; 2]) -> u8 {\n    // why\n\n    1;\n    2\n}\n\nfn b() {}\n").code;
        let found = functions(&code, &test_lines(&code));
        let sizes: Vec<(&str, usize, usize)> = found
            .iter()
            .map(|function| (function.name.as_str(), function.line, function.body_lines))
            .collect();
        assert_eq!(sizes, [("a", 1, 2), ("b", 8, 0)]);
    }

    #[test]
    fn a_declaration_and_a_pointer_type_are_no_functions() {
        let code = "trait A { fn a(&self); }\ntype B = fn (u8) -> u8;\nstruct often { x: u8 }\n";
        assert_eq!(functions(code, &test_lines(code)), []);
    }

    #[test]
    fn an_item_for_tests_ends_with_its_block_or_semicolon() {
        let code = "#[cfg(test)]\nmod tests {\n    fn a() { x[0]; }\n}\nfn b() {}\n\
                    #[test]\n#[ignore]\nfn c() {\n}\nfn d() {}";
        let marks = test_lines(code);
        let expected = [true, true, true, true, false, true, true, true, true, false];
        assert_eq!(marks, expected);
    }

    #[test]
    fn modules_for_tests_are_found_below_their_parent() {
        let text = "#[cfg(test)]\nmod tests;\n";
        assert_eq!(
            test_modules("crates/a/src/lib.rs", text),
            ["crates/a/src/tests"]
        );
        assert_eq!(
            test_modules("crates/a/src/b.rs", text),
            ["crates/a/src/b/tests"]
        );
        let text = "// é\n#[cfg(test)]\n#[path = \"b_tests.rs\"]\nmod tests;\n";
        assert_eq!(
            test_modules("crates/a/src/b.rs", text),
            ["crates/a/src/b_tests"]
        );
    }
}
