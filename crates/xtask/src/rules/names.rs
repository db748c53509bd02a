//! Names that say nothing: of files, of functions, of types.

use crate::fault::Fault;
use crate::rust::{Source, is_word};
use crate::tree::TextFile;

const FILE_STEMS: [&str; 8] = [
    "util", "utils", "common", "helper", "helpers", "misc", "manager", "stuff",
];

const TYPE_ENDINGS: [&str; 4] = ["Manager", "Helper", "Util", "Utils"];

/// Checks the name of a file of code.
pub(crate) fn check_file(file: &TextFile) -> Vec<Fault> {
    let stem = file
        .name()
        .strip_suffix(".rs")
        .or_else(|| file.name().strip_suffix(".py"));
    let mut parts = file.path.rsplit('/');
    let parent = parts.nth(1);
    let is_module = stem == Some("mod");
    let name = if is_module { parent } else { stem };
    match name {
        Some(name) if FILE_STEMS.contains(&name) => vec![Fault::new(
            &file.path,
            1,
            format!("a file called `{name}`"),
            "name it after the idea that it holds",
        )],
        _ => vec![],
    }
}

/// Checks the names of functions and types in one file.
pub(crate) fn check_source(source: &Source) -> Vec<Fault> {
    let mut faults = Vec::new();
    for line in &source.lines {
        for name in names_after(&line.code, &["fn"]) {
            if name.starts_with("get_") {
                let plain = name.trim_start_matches("get_");
                let remedy = format!("call it `{plain}`, or by the verb of what it does");
                let what = format!("a function called `{name}`");
                faults.push(Fault::new(&source.path, line.number, what, remedy));
            }
        }
        for name in names_after(&line.code, &["struct", "enum", "trait", "type", "union"]) {
            if TYPE_ENDINGS.iter().any(|ending| name.ends_with(ending)) {
                let what = format!("a type called `{name}`");
                let remedy = "name it after what it is or proves";
                faults.push(Fault::new(&source.path, line.number, what, remedy));
            }
        }
    }
    faults
}

/// The words of `code` that follow one of `keywords`.
fn names_after<'a>(code: &'a str, keywords: &[&str]) -> Vec<&'a str> {
    let words: Vec<&str> = code
        .split(|next| !is_word(next))
        .filter(|word| !word.is_empty())
        .collect();
    let pairs = words.iter().zip(words.iter().skip(1));
    pairs
        .filter(|(keyword, _)| keywords.contains(keyword))
        .map(|(_, name)| *name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rust::{sources, text_file};

    #[test]
    fn files_are_named_after_an_idea() {
        for path in [
            "crates/a/src/util.rs",
            "crates/a/src/common/mod.rs",
            "scripts/helper.py",
        ] {
            assert_eq!(check_file(&text_file(path, "")).len(), 1, "{path}");
        }
        for path in [
            "crates/a/src/utility.rs",
            "crates/a/src/mod.rs",
            "docs/util.md",
        ] {
            assert_eq!(check_file(&text_file(path, "")), [], "{path}");
        }
    }

    #[test]
    fn functions_and_types_have_names_that_say_something() {
        let text = "fn get_key() {}\nstruct KeyManager;\nenum Helper {}\n\
                    fn target_of() {}\nstruct Managed;\n// fn get_it()\nlet x = get_key();\n";
        let sources = sources(&[("crates/a/src/lib.rs", text)]);
        let faults: Vec<Fault> = sources.iter().flat_map(check_source).collect();
        let lines: Vec<usize> = faults.iter().map(|fault| fault.line).collect();
        assert_eq!(lines, [1, 2, 3]);
        assert!(faults.first().unwrap().remedy.contains("`key`"));
    }
}
