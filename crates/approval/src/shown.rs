//! Bytes and long texts on a screen: nothing in them is obeyed, and nothing in them can pass for
//! a line of ours.

/// Bytes as printable ASCII and line feeds: tabs and carriage returns as `\t` and `\r`, other
/// characters as `\u{…}`, bytes that are no UTF-8 as `\xNN`, a backslash as two, so that no two
/// inputs are shown alike.
#[must_use]
pub fn visible_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\n' | ' '..='[' | ']'..='~' => out.push(character),
                other => out.extend(other.escape_default()),
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

/// `text` (printable ASCII) in lines of at most `columns` characters. Each begins with `| `, or
/// with `+ ` where it continues the one before: a screen that wraps has nothing to wrap.
#[must_use]
pub fn framed(text: &str, columns: usize) -> String {
    let width = columns.saturating_sub(2).max(1);
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        let (mut mark, mut rest) = ("| ", line);
        loop {
            let (head, tail) = rest.split_at_checked(width).unwrap_or((rest, ""));
            out.push_str(mark);
            out.push_str(head);
            out.push('\n');
            if tail.is_empty() {
                break;
            }
            (mark, rest) = ("+ ", tail);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn controls_other_scripts_and_broken_text_are_visible() {
        assert_eq!(
            visible_bytes("a\t\u{1b}[2J\\\u{202e}é\nb".as_bytes()),
            "a\\t\\u{1b}[2J\\\\\\u{202e}\\u{e9}\nb"
        );
        assert_eq!(visible_bytes(b"a\xff\xc3\x28"), "a\\xff\\xc3(");
    }

    #[test]
    fn no_line_is_wider_than_the_screen_or_begins_like_one_of_ours() {
        assert_eq!(framed("ab\nabcdefgh\n", 6), "| ab\n| abcd\n+ efgh\n");
        assert_eq!(framed("", 80), "| \n");
        assert_eq!(framed("a\n\n", 80), "| a\n| \n");
    }

    proptest! {
        #[test]
        fn whatever_an_input_holds_the_screen_shows_printable_framed_lines(
            bytes in proptest::collection::vec(any::<u8>(), 0..300), columns in 0_usize..100
        ) {
            let shown = framed(&visible_bytes(&bytes), columns);
            prop_assert!(shown.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n')));
            for line in shown.lines() {
                prop_assert!(line.starts_with("| ") || line.starts_with("+ "));
                prop_assert!(line.len() <= columns.max(3));
            }
        }
    }
}
