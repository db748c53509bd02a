//! The Rust files of the tree as the rules want them: code apart from comments and literals,
//! functions with their sizes, and which lines are tests.

mod blank;
mod items;

use crate::tree::TextFile;

pub(crate) use self::blank::is_word;
pub(crate) use self::items::Function;

/// One Rust file.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) lines: Vec<Line>,
    pub(crate) functions: Vec<Function>,
}

/// One line of it.
#[derive(Debug)]
pub(crate) struct Line {
    /// From 1.
    pub(crate) number: usize,
    pub(crate) raw: String,
    /// Without comments and without what literals say.
    pub(crate) code: String,
    pub(crate) has_string: bool,
    /// Whether it is compiled for tests, benches or examples only.
    pub(crate) is_test: bool,
}

impl Source {
    fn read(file: &TextFile, is_test: bool) -> Self {
        let blanked = blank::blank(&file.text);
        let mut test_lines = items::test_lines(&blanked.code);
        if is_test {
            test_lines.fill(true);
        }
        let functions = items::functions(&blanked.code, &test_lines);
        let parts = file.text.lines().zip(blanked.code.lines());
        let marks = blanked.strings.into_iter().zip(test_lines);
        let lines = parts.zip(marks).enumerate();
        let lines = lines.map(|(index, ((raw, code), (has_string, is_test)))| Line {
            number: index + 1,
            raw: raw.to_owned(),
            code: code.to_owned(),
            has_string,
            is_test,
        });
        Self {
            path: file.path.clone(),
            lines: lines.collect(),
            functions,
        }
    }

    /// The crate's folder below `crates/`, if the file is in one.
    pub(crate) fn crate_folder(&self) -> Option<&str> {
        crate_folder(&self.path)
    }
}

/// The crate's folder below `crates/`, if `path` is in one.
pub(crate) fn crate_folder(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("crates/")?;
    rest.split_once('/').map(|(folder, _)| folder)
}

/// All Rust files.
#[derive(Debug)]
pub(crate) struct Sources(Vec<Source>);

impl Sources {
    /// Reads the Rust files among `files`. A file is a test if its place says so or if the module
    /// that declares it is compiled for tests only.
    pub(crate) fn read(files: &[TextFile]) -> Self {
        let rust = || files.iter().filter(|file| file.is_rust());
        let declared: Vec<String> = rust()
            .flat_map(|file| items::test_modules(&file.path, &file.text))
            .collect();
        let is_declared = |path: &str| {
            let mut stems = declared.iter();
            stems.any(|stem| {
                let rest = path.strip_prefix(stem.as_str());
                rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
            })
        };
        let read = |file| Source::read(file, is_test_place(&file.path) || is_declared(&file.path));
        Self(rust().map(read).collect())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Source> {
        self.0.iter()
    }

    pub(crate) fn find(&self, path: &str) -> Option<&Source> {
        self.iter().find(|source| source.path == path)
    }
}

/// Whether cargo compiles `path` for tests, benches or examples only, or `testkit` has it.
fn is_test_place(path: &str) -> bool {
    let folders = ["tests", "benches", "examples", "fuzz"];
    let mut parts = path.split('/');
    parts.any(|part| folders.contains(&part)) || crate_folder(path) == Some("testkit")
}

#[cfg(test)]
pub(crate) fn sources(files: &[(&str, &str)]) -> Sources {
    Sources::read(
        &files
            .iter()
            .map(|&(path, text)| text_file(path, text))
            .collect::<Vec<_>>(),
    )
}

#[cfg(test)]
pub(crate) fn text_file(path: &str, text: &str) -> TextFile {
    TextFile {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_test(sources: &Sources, path: &str) -> bool {
        sources
            .find(path)
            .unwrap()
            .lines
            .iter()
            .all(|line| line.is_test)
    }

    #[test]
    fn a_file_is_a_test_by_its_place_or_by_its_declaration() {
        let sources = sources(&[
            (
                "crates/a/src/lib.rs",
                "#[cfg(test)]\nmod histories;\nmod b;\n",
            ),
            ("crates/a/src/histories.rs", "fn f() {}\n"),
            ("crates/a/src/histories/deep.rs", "fn f() {}\n"),
            (
                "crates/a/src/b.rs",
                "#[cfg(test)]\n#[path = \"b_tests.rs\"]\nmod tests;\n",
            ),
            ("crates/a/src/b_tests.rs", "fn f() {}\n"),
            ("crates/a/tests/all.rs", "fn f() {}\n"),
            ("crates/testkit/src/lib.rs", "fn f() {}\n"),
        ]);
        assert!(is_test(&sources, "crates/a/src/histories.rs"));
        assert!(is_test(&sources, "crates/a/src/histories/deep.rs"));
        assert!(is_test(&sources, "crates/a/src/b_tests.rs"));
        assert!(is_test(&sources, "crates/a/tests/all.rs"));
        assert!(is_test(&sources, "crates/testkit/src/lib.rs"));
        let lib = sources.find("crates/a/src/lib.rs").unwrap();
        let marks: Vec<bool> = lib.lines.iter().map(|line| line.is_test).collect();
        assert_eq!(marks, [true, true, false]);
    }
}
