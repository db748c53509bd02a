//! What code does not do: unfinished macros, silenced lints, `unsafe` and the environment outside
//! of their places, tests that are skipped without saying how they run.

use crate::fault::Fault;
use crate::rust::{Line, Source, is_word};

/// The only crates whose product code reads the process's environment.
const ENVIRONMENT_CRATES: [&str; 1] = ["symbi"];

/// Checks one file.
pub(crate) fn check(source: &Source) -> Vec<Fault> {
    let mut faults = Vec::new();
    for line in &source.lines {
        let here = [
            unfinished(line),
            silenced(source, line),
            unsafe_code(source, line),
            environment(source, line),
            skipped(source, line),
        ];
        let here = here.into_iter().flatten();
        faults
            .extend(here.map(|(what, remedy)| Fault::new(&source.path, line.number, what, remedy)));
    }
    faults
}

type Found = Option<(String, &'static str)>;

fn unfinished(line: &Line) -> Found {
    let macros = ["todo!", "unimplemented!", "dbg!"];
    let found = macros
        .iter()
        .find(|name| has_word_at_start(&line.code, name))?;
    Some((format!("`{found}`"), "finish it"))
}

/// A module that several test programs share is used by each in part, so that no expectation holds
/// in all of them: such a `support` module may silence a lint, with its reason.
fn silenced(source: &Source, line: &Line) -> Found {
    if source.path.contains("/tests/support/") {
        return None;
    }
    let has = line.code.contains("[allow(") || line.code.contains(", allow(");
    has.then(|| {
        let what = "a lint silenced with `allow`".to_owned();
        (what, "use `#[expect(…, reason = \"…\")]`")
    })
}

fn unsafe_code(source: &Source, line: &Line) -> Found {
    let is_place = source.path.ends_with("/sys.rs");
    let mut words = line.code.split(|next| !is_word(next));
    (!is_place && words.any(|word| word == "unsafe")).then(|| {
        let what = "`unsafe` outside of `sys.rs`".to_owned();
        (
            what,
            "move it to the crate's `sys.rs`, behind a safe function",
        )
    })
}

fn environment(source: &Source, line: &Line) -> Found {
    let is_place = source
        .crate_folder()
        .is_some_and(|name| ENVIRONMENT_CRATES.contains(&name));
    let reads = line.code.contains("env::var");
    (reads && !is_place && !line.is_test).then(|| {
        let what = "the environment is read outside of `symbi`".to_owned();
        (what, "let `symbi` read it and pass the value in")
    })
}

/// `#[ignore]` says what the test needs and that `./test` runs it, or that it is the child process
/// of another test.
fn skipped(source: &Source, line: &Line) -> Found {
    let at = line.code.find("#[ignore")?;
    let raw = source.lines.iter().skip(line.number - 1).take(4);
    let text: String = raw
        .map(|line| line.raw.trim())
        .collect::<Vec<_>>()
        .join(" ");
    let text = text
        .get(line.code.get(..at)?.trim().len()..)
        .unwrap_or(&text);
    let text = text.split_once("\"]").map_or("", |(reason, _)| reason);
    let needs = text.contains("\"needs ") && text.ends_with(": run ./test");
    let is_child = text.contains("\"the child of the test ") && text.ends_with(", which runs it");
    (!needs && !is_child).then(|| {
        let what = "an ignored test that does not say how it runs".to_owned();
        let remedy = "write `#[ignore = \"needs …: run ./test\"]`, or, for a child process, \
                      `\"the child of the test …, which runs it\"`";
        (what, remedy)
    })
}

/// Whether `word` stands in `code` with no other word's end before it.
fn has_word_at_start(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = code.get(..at).and_then(|before| before.chars().next_back());
        !before.is_some_and(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rust::sources;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let sources = sources(&[(path, text)]);
        let faults = sources.iter().flat_map(check);
        faults.map(|fault| fault.line).collect()
    }

    #[test]
    fn unfinished_macros_are_found_in_code_only() {
        let text = "todo!();\nunimplemented!()\ndbg!(x)\n// todo!()\n\"dbg!(x)\"\nmy_todo!()\n";
        assert_eq!(lines("crates/a/src/lib.rs", text), [1, 2, 3]);
    }

    #[test]
    fn lints_are_expected_and_not_allowed() {
        let text = "#[allow(dead_code)]\n#![allow(x)]\n#[cfg_attr(a, allow(x))]\n\
                    #[expect(x, reason = \"y\")]\nfn allow(x: u8) {}\n";
        assert_eq!(lines("crates/a/src/lib.rs", text), [1, 2, 3]);
    }

    #[test]
    fn unsafe_stands_in_sys_only() {
        let text = "unsafe { f() }\n#![forbid(unsafe_code)]\n// unsafe\n";
        assert_eq!(lines("crates/a/src/lib.rs", text), [1]);
        assert_eq!(lines("crates/a/src/sys.rs", text), [0_usize; 0]);
    }

    #[test]
    fn the_environment_is_read_by_symbi_and_by_tests() {
        let text = "std::env::var(\"X\");\n#[cfg(test)]\nmod tests { use std::env::var; }\n";
        assert_eq!(lines("crates/a/src/lib.rs", text), [1]);
        assert_eq!(lines("crates/symbi/src/lib.rs", text), [0_usize; 0]);
        assert_eq!(lines("crates/testkit/src/lib.rs", text), [0_usize; 0]);
        assert_eq!(lines("crates/a/benches/b.rs", text), [0_usize; 0]);
    }

    #[test]
    fn an_ignored_test_says_what_it_needs_and_who_runs_it() {
        let good = "#[ignore = \"needs a Docker daemon: run ./test\"]\n\
                    #[ignore = \"the child of the test above, which runs it\"]\n\
                    #[ignore =\n    \"needs root: run ./test\"]\n";
        assert_eq!(lines("crates/a/tests/a.rs", good), [0_usize; 0]);
        let bad = "#[ignore]\n#[ignore = \"slow\"]\n#[ignore = \"needs root\"]\n";
        assert_eq!(lines("crates/a/tests/a.rs", bad), [1, 2, 3]);
    }
}
