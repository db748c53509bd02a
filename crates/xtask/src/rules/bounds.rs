//! `docs/limits.md`: every named bound, taken from the `limits.rs` files, so that it stays true.

use std::fmt::Write as _;

use crate::fault::Fault;
use crate::tree::TextFile;

/// The page that the bounds are written to.
pub(crate) const PAGE: &str = "docs/limits.md";

const HEAD: &str = "\
# Limits

Every bound of the product, with its unit last in its name. Each is refused past it with a message that
says which bound it was. This page is written by `cargo xtask limits` from the `limits.rs` files.
";

/// Crates for development only.
const LEFT_OUT: [&str; 2] = ["crates/testkit/", "crates/xtask/"];

/// The page, as the sources say it.
pub(crate) fn page(files: &[TextFile]) -> String {
    let mut page = HEAD.to_owned();
    for file in files.iter().filter(|file| is_source(file)) {
        let rows = rows(&file.text);
        if rows.is_empty() {
            continue;
        }
        let _ = write!(
            page,
            "\n## {}\n\n| bound | value | of what |\n|---|---|---|\n",
            title(file)
        );
        for Row { name, value, about } in rows {
            let _ = writeln!(page, "| `{name}` | `{value}` | {about} |");
        }
    }
    page
}

/// A page that is not what the sources say.
pub(crate) fn check(files: &[TextFile]) -> Vec<Fault> {
    let found = files.iter().find(|file| file.path == PAGE);
    if found.is_some_and(|file| file.text == page(files)) {
        return Vec::new();
    }
    vec![Fault::new(
        PAGE,
        1,
        "the page is not what the `limits.rs` files say",
        "cargo xtask limits",
    )]
}

fn is_source(file: &TextFile) -> bool {
    file.path.starts_with("crates/")
        && file.name() == "limits.rs"
        && !LEFT_OUT
            .iter()
            .any(|left_out| file.path.starts_with(left_out))
}

fn title(file: &TextFile) -> &str {
    file.path.split('/').nth(1).unwrap_or(&file.path)
}

struct Row {
    name: String,
    value: String,
    about: String,
}

/// The public constants with their documentation.
fn rows(text: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut about = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let line = line.trim();
        if let Some(words) = line.strip_prefix("///") {
            about.push_str(words);
        } else if let Some(rest) = line
            .strip_prefix("pub const ")
            .or_else(|| line.strip_prefix("pub(crate) const "))
        {
            let mut whole = rest.to_owned();
            while !whole.ends_with(';') {
                let Some(more) = lines.next() else { break };
                whole.push(' ');
                whole.push_str(more.trim());
            }
            if let Some((declared, value)) = whole.trim_end_matches(';').split_once('=')
                && let Some((name, _)) = declared.split_once(':')
            {
                rows.push(Row {
                    name: name.trim().to_owned(),
                    value: value.trim().replace('|', "\\|"),
                    about: about.trim().replace('|', "\\|"),
                });
            }
            about.clear();
        } else if !line.starts_with("#[") {
            about.clear();
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_bound_is_listed_with_its_value_and_what_it_bounds() {
        let source = file(
            "crates/a/src/limits.rs",
            "/// Longest name,\n/// in bytes.\npub const NAME_BYTES_MAX: usize =\n    1 << 20;\nconst _: () = ();\n",
        );
        let page = page(&[source]);
        assert!(page.contains("## a\n"), "{page}");
        assert!(
            page.contains("| `NAME_BYTES_MAX` | `1 << 20` | Longest name, in bytes. |"),
            "{page}"
        );
    }

    #[test]
    fn a_page_that_differs_from_the_sources_is_a_fault() {
        let source = file(
            "crates/a/src/limits.rs",
            "/// X.\npub const X_MAX: u8 = 1;\n",
        );
        let right = file(PAGE, &page(std::slice::from_ref(&source)));
        assert!(check(&[source.clone(), right]).is_empty());
        assert_eq!(check(&[source.clone(), file(PAGE, "old")]).len(), 1);
        assert_eq!(check(&[source]).len(), 1);
    }

    #[test]
    fn crates_for_development_have_no_bounds_of_the_product() {
        let source = file(
            "crates/xtask/src/limits.rs",
            "/// X.\npub const X_MAX: u8 = 1;\n",
        );
        assert_eq!(page(&[source]), HEAD);
    }
}
