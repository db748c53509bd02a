//! Sizes that a reader can hold: of functions, files and lines.

use crate::fault::Fault;
use crate::limits::{FILE_LINES_MAX, FUNCTION_LINES_MAX, LINE_COLUMNS_MAX};
use crate::rust::Source;

/// Checks one file.
pub(crate) fn check(source: &Source) -> Vec<Fault> {
    let mut faults = Vec::new();
    let product = source.lines.iter().filter(|line| !line.is_test).count();
    if product > FILE_LINES_MAX {
        let what = format!("{product} lines without tests, more than {FILE_LINES_MAX}");
        faults.push(Fault::new(&source.path, 1, what, "split it by idea"));
    }
    for function in &source.functions {
        if function.body_lines > FUNCTION_LINES_MAX {
            let what = format!(
                "`{}` has {} lines of code, more than {FUNCTION_LINES_MAX}",
                function.name, function.body_lines
            );
            faults.push(Fault::new(
                &source.path,
                function.line,
                what,
                "split it by idea",
            ));
        }
    }
    for line in &source.lines {
        let columns = line.raw.chars().count();
        let is_exempt = line.has_string || line.raw.contains("://");
        if columns > LINE_COLUMNS_MAX && !is_exempt {
            let what = format!("a line of {columns} columns, more than {LINE_COLUMNS_MAX}");
            faults.push(Fault::new(&source.path, line.number, what, "break it"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rust::sources;

    fn faults(text: &str) -> Vec<String> {
        let sources = sources(&[("crates/a/src/lib.rs", text)]);
        sources
            .iter()
            .flat_map(check)
            .map(|fault| fault.to_string())
            .collect()
    }

    #[test]
    fn a_function_holds_at_its_limit_and_not_past_it() {
        let function = |lines| format!("fn long() {{\n{}}}\n", "    f();\n".repeat(lines));
        assert_eq!(faults(&function(FUNCTION_LINES_MAX)), [""; 0]);
        assert_eq!(
            faults(&function(FUNCTION_LINES_MAX + 1)),
            ["crates/a/src/lib.rs:1: `long` has 71 lines of code, more than 70: split it by idea"]
        );
    }

    #[test]
    fn a_file_holds_at_its_limit_without_its_tests() {
        let tests = "#[cfg(test)]\nmod tests {\n    fn f() {}\n}\n";
        let file = |lines| format!("{}{tests}", "const A: u8 = 1;\n".repeat(lines));
        assert_eq!(faults(&file(FILE_LINES_MAX)), [""; 0]);
        assert_eq!(faults(&file(FILE_LINES_MAX + 1)).len(), 1);
    }

    #[test]
    fn a_line_holds_at_its_limit_unless_it_is_text_or_an_address() {
        let comment = |columns| format!("// {}\n", "x".repeat(columns - 3));
        assert_eq!(faults(&comment(LINE_COLUMNS_MAX)), [""; 0]);
        assert_eq!(faults(&comment(LINE_COLUMNS_MAX + 1)).len(), 1);
        assert_eq!(
            faults(&format!("// https://{}\n", "x".repeat(100))),
            [""; 0]
        );
        assert_eq!(faults(&format!("f(\"{}\");\n", "x".repeat(100))), [""; 0]);
    }
}
