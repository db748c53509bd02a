//! Bounded text: results, messages, and what is quoted of a client's words.

use std::borrow::Cow;

use model::Untrusted;

use crate::limits::{QUOTE_CHARS_MAX, TEXT_BYTES_MAX, TEXT_MARK_BYTES_MAX};

/// `text`, or its beginning and a mark that says how many bytes are missing: at most
/// [`TEXT_BYTES_MAX`] bytes with the mark, cut between two characters.
#[must_use]
pub fn fit_text(text: &str) -> Cow<'_, str> {
    if text.len() <= TEXT_BYTES_MAX {
        return Cow::Borrowed(text);
    }
    let kept = prefix(text, TEXT_BYTES_MAX - TEXT_MARK_BYTES_MAX);
    let missing = text.len() - kept.len();
    Cow::Owned(format!("{kept}\n[cut here: {missing} bytes are missing]"))
}

/// The longest beginning of `text` that has at most `max` bytes and ends with a character.
pub(crate) fn prefix(text: &str, max: usize) -> &str {
    text.get(..text.floor_char_boundary(max)).unwrap_or(text)
}

/// The beginning of a client's text, escaped, to be named in an error.
pub(crate) fn quote(text: &str) -> String {
    format!("`{}`", escaped(text))
}

/// The beginning of a client's text, escaped.
pub(crate) fn escaped(text: &str) -> String {
    let mut characters = text.chars();
    let head: String = characters.by_ref().take(QUOTE_CHARS_MAX).collect();
    let more = characters.next().map_or("", |_| "…");
    format!("{}{more}", Untrusted::new(head).escaped())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_text_at_the_limit_is_whole_and_one_byte_past_it_is_cut_with_a_mark() {
        let whole = "x".repeat(TEXT_BYTES_MAX);
        assert!(matches!(fit_text(&whole), Cow::Borrowed(text) if text == whole));

        let over = "x".repeat(TEXT_BYTES_MAX + 1);
        let cut = fit_text(&over);
        assert!(cut.ends_with("\n[cut here: 65 bytes are missing]"), "{cut}");
        assert!(cut.len() <= TEXT_BYTES_MAX);
    }

    #[test]
    fn the_longest_possible_mark_fits_into_its_room() {
        let mark = format!("\n[cut here: {} bytes are missing]", usize::MAX);
        assert!(mark.len() <= TEXT_MARK_BYTES_MAX);
    }

    #[test]
    fn a_quote_is_short_and_escaped() {
        assert_eq!(quote("a\x1b[2J"), "`a\\u{1b}[2J`");
        let long = quote(&"y".repeat(QUOTE_CHARS_MAX + 1));
        assert_eq!(long, format!("`{}…`", "y".repeat(QUOTE_CHARS_MAX)));
        assert!(!quote(&"y".repeat(QUOTE_CHARS_MAX)).contains('…'));
    }

    proptest! {
        #[test]
        fn a_cut_text_says_the_true_number_of_missing_bytes(
            unit in "\\PC{1,3}", extra in 0_usize..300,
        ) {
            let text = unit.repeat((TEXT_BYTES_MAX + extra) / unit.len() + 1);
            let fitted = fit_text(&text);
            prop_assert!(fitted.len() <= TEXT_BYTES_MAX);
            prop_assert_eq!(fit_text(&fitted), fitted.as_ref());
            if text.len() > TEXT_BYTES_MAX {
                let (kept, mark) = fitted.rsplit_once("\n[cut here: ").unwrap();
                let missing: usize = mark.split_once(' ').unwrap().0.parse().unwrap();
                prop_assert_eq!(kept.len() + missing, text.len());
                prop_assert!(text.starts_with(kept));
            }
        }
    }
}
