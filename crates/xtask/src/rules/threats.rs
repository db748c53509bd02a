//! Each row of docs/threats.md names a test that exists.

use std::collections::BTreeSet;

use crate::fault::Fault;
use crate::rust::{Sources, crate_folder};
use crate::tree::TextFile;

const PLACE: &str = "docs/threats.md";

/// Checks the tables of docs/threats.md: three columns, the last with tests in backticks. A test is
/// `crate::function`, or a check of a script as `scripts/name.py::function`.
pub(crate) fn check(files: &[TextFile], sources: &Sources) -> Vec<Fault> {
    let Some(threats) = files.iter().find(|file| file.path == PLACE) else {
        let remedy = "write the table of attacks and their tests";
        return vec![Fault::new(PLACE, 1, "the file is missing", remedy)];
    };
    let tests = Tests::read(files, sources);
    let mut faults = Vec::new();
    for (number, cells) in rows(&threats.text) {
        let fault = |what: String, remedy| Fault::new(PLACE, number, what, remedy);
        let [_, _, named] = cells.as_slice() else {
            let what = format!("a row of {} columns", cells.len());
            faults.push(fault(what, "write attack, what stops it, tests"));
            continue;
        };
        let names: Vec<&str> = named.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            let what = "an attack without a test".to_owned();
            faults.push(fault(what, "name its test in backticks"));
        }
        for name in names.into_iter().filter(|name| !tests.has(name)) {
            let what = format!("`{name}` is no test of the tree");
            faults.push(fault(what, "name one as `crate::function`, or write it"));
        }
    }
    faults
}

/// The rows below the heads of tables, with the numbers of their lines.
fn rows(text: &str) -> Vec<(usize, Vec<&str>)> {
    let mut rows = Vec::new();
    let mut is_below_head = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let is_row = line.starts_with('|');
        let is_rule = is_row && line.chars().all(|next| "|-: ".contains(next));
        if is_row && is_below_head && !is_rule {
            let inside = line.trim_start_matches('|').trim_end_matches('|');
            rows.push((index + 1, inside.split('|').map(str::trim).collect()));
        }
        is_below_head = is_row && (is_rule || is_below_head);
    }
    rows
}

/// The tests of the tree by their names in the table.
struct Tests(BTreeSet<String>);

impl Tests {
    fn read(files: &[TextFile], sources: &Sources) -> Self {
        let mut names = BTreeSet::new();
        for source in sources.iter() {
            let Some(folder) = crate_folder(&source.path) else {
                continue;
            };
            let tests = source.functions.iter().filter(|function| function.is_test);
            names.extend(tests.map(|test| format!("{folder}::{}", test.name)));
        }
        for file in files.iter().filter(|file| file.path.ends_with(".py")) {
            names.insert(file.path.clone());
            let functions = file.text.lines().filter_map(|line| {
                let (name, _) = line.trim_start().strip_prefix("def ")?.split_once('(')?;
                Some(format!("{}::{name}", file.path))
            });
            names.extend(functions);
        }
        Self(names)
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rust::{sources, text_file};

    fn faults(table: &str) -> Vec<String> {
        let rust = "fn product() {}\n#[test]\nfn it_is_stopped() {\n}\n";
        let files = [
            text_file(
                PLACE,
                &format!("# Threats\n\n| a | b | c |\n|---|---|---|\n{table}"),
            ),
            text_file("scripts/test-a.py", "def check_it():\n    pass\n"),
        ];
        let sources = sources(&[("crates/a/src/lib.rs", rust)]);
        let faults = check(&files, &sources);
        faults.into_iter().map(|fault| fault.what).collect()
    }

    #[test]
    fn a_row_names_tests_of_crates_and_of_scripts() {
        let row = "| x | y | `a::it_is_stopped`, `scripts/test-a.py::check_it` |\n";
        assert_eq!(faults(row), [""; 0]);
    }

    #[test]
    fn a_row_without_an_existing_test_is_a_fault() {
        assert_eq!(faults("| x | y | z |\n"), ["an attack without a test"]);
        assert_eq!(
            faults("| x | `a::it_is_stopped` |\n"),
            ["a row of 2 columns"]
        );
        for name in [
            "a::gone",
            "b::it_is_stopped",
            "a::product",
            "scripts/test-b.py",
        ] {
            let row = format!("| x | y | `{name}` |\n");
            assert_eq!(faults(&row), [format!("`{name}` is no test of the tree")]);
        }
    }

    #[test]
    fn a_missing_table_is_a_fault() {
        assert_eq!(check(&[], &sources(&[])).len(), 1);
    }
}
