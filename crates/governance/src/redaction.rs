//! Sensitive values taken out of what a tool said, before anybody reads, saves or hashes it: a hash
//! of a text that holds a short secret is one that can be guessed.
//!
//! Each pass is linear in the output, whatever the secret: both may be an agent's choice.

mod writing;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use model::Redacted;
use serde_json::{Map, Value};

use crate::limits::CUT_SECRET_BYTES_MIN;
use writing::Writing;

const MASK: &str = "[sensitive]";

/// What must not be repeated.
pub(crate) struct Secrets(Vec<Secret>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}

/// One of them, as Knuth, Morris and Pratt look for a text.
struct Secret {
    text: Redacted<Vec<u8>>,
    /// For each beginning: how long a shorter one is that it ends with.
    borders: Vec<usize>,
}

impl Secrets {
    pub(crate) fn new(secrets: &[Redacted<String>]) -> Self {
        let secrets = secrets.iter().map(|it| it.expose().as_bytes());
        let some = secrets.filter(|text| !text.is_empty());
        Self(some.map(Secret::new).collect())
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `bytes` with a mask in place of each secret, however it is written; secrets that overlap or
    /// touch have one. Where the output was `cut`, what it ends with may be the beginning of one.
    pub(crate) fn out_of<'a>(&self, bytes: &'a [u8], cut: bool) -> Cow<'a, [u8]> {
        let covered = self.covered(bytes, cut);
        if covered.is_empty() {
            return Cow::Borrowed(bytes);
        }
        let mut clean = Vec::with_capacity(bytes.len());
        let mut from = 0;
        for run in covered.chunk_by(|one, next| one == next) {
            let end = from + run.len();
            match run.first() {
                Some(true) => clean.extend_from_slice(MASK.as_bytes()),
                _ => clean.extend_from_slice(bytes.get(from..end).unwrap_or_default()),
            }
            from = end;
        }
        Cow::Owned(clean)
    }

    /// Whether a mask would stand anywhere.
    pub(crate) fn are_in(&self, bytes: &[u8], cut: bool) -> bool {
        !self.covered(bytes, cut).is_empty()
    }

    /// Of each byte, whether a mask takes its place. Empty where there is none.
    fn covered(&self, bytes: &[u8], cut: bool) -> Vec<bool> {
        let mut covered = Vec::new();
        for writing in Writing::ALL {
            if !writing.may_be_in(bytes) {
                continue;
            }
            for secret in &self.0 {
                // No writing is shorter than what it writes.
                if cut || secret.borders.len() <= bytes.len() {
                    secret.cover(bytes, writing, cut, &mut covered);
                }
            }
        }
        covered
    }

    /// The same for every text, key and number of a value.
    pub(crate) fn out_of_value(&self, value: Value) -> Value {
        if self.is_empty() {
            return value;
        }
        let text = |text: &str| {
            let clean = self.out_of(text.as_bytes(), false);
            String::from_utf8_lossy(&clean).into_owned()
        };
        match value {
            Value::String(given) => Value::String(text(&given)),
            Value::Number(number) => {
                let clean = text(&number.to_string());
                match clean.contains(MASK) {
                    true => Value::String(clean),
                    false => Value::Number(number),
                }
            }
            Value::Array(items) => {
                let items = items.into_iter().map(|item| self.out_of_value(item));
                Value::Array(items.collect())
            }
            Value::Object(map) => {
                let mut fields = Map::new();
                for (key, item) in map {
                    let mut key = text(&key);
                    // Two names may have been told apart by their secrets alone.
                    while fields.contains_key(&key) {
                        key.push('+');
                    }
                    fields.insert(key, self.out_of_value(item));
                }
                Value::Object(fields)
            }
            other @ (Value::Null | Value::Bool(_)) => other,
        }
    }
}

impl Secret {
    fn new(text: &[u8]) -> Self {
        let mut secret = Self {
            text: Redacted::new(text.to_vec()),
            borders: vec![0],
        };
        let mut matched = 0;
        for byte in text.iter().skip(1) {
            matched = secret.longer(matched, *byte);
            secret.borders.push(matched);
        }
        secret
    }

    /// How much of the beginning is there after one more byte, where `matched` was before it.
    fn longer(&self, mut matched: usize, byte: u8) -> usize {
        let text = self.text.expose();
        while matched > 0 && text.get(matched) != Some(&byte) {
            matched = self.borders.get(matched - 1).copied().unwrap_or(0);
        }
        matched + usize::from(text.get(matched) == Some(&byte))
    }

    /// Marks where it stands in `bytes`, and where its beginning does that they are `cut` in.
    fn cover(&self, bytes: &[u8], writing: Writing, cut: bool, covered: &mut Vec<bool>) {
        let first = self.text.expose().first().copied().unwrap_or_default();
        let mut starts = Starts(vec![0; self.borders.len()]);
        let (mut read, mut matched, mut done) = (0, 0, 0);
        let mut at = 0;
        loop {
            let mut rest = bytes.get(at..).unwrap_or_default();
            if matched == 0 {
                let skipped = writing.until(first, rest);
                at += skipped;
                rest = rest.get(skipped..).unwrap_or_default();
            }
            let ends = rest.is_empty() || writing.is_cut(rest);
            if cut && ends && matched >= CUT_SECRET_BYTES_MIN {
                mark(covered, bytes.len(), starts.of(read - matched)..bytes.len());
            }
            if rest.is_empty() {
                return;
            }
            let piece = writing.next(rest);
            for byte in piece.meant() {
                starts.set(read, at);
                read += 1;
                matched = self.longer(matched, *byte);
                if matched == self.borders.len() {
                    let start = starts.of(read - matched).max(done);
                    done = at + piece.length();
                    mark(covered, bytes.len(), start..done);
                }
            }
            at += piece.length();
        }
    }
}

/// Where the last pieces that were read begin, one for each byte of the secret.
struct Starts(Vec<usize>);

impl Starts {
    fn set(&mut self, read: usize, start: usize) {
        let place = read % self.0.len();
        if let Some(place) = self.0.get_mut(place) {
            *place = start;
        }
    }

    fn of(&self, read: usize) -> usize {
        self.0.get(read % self.0.len()).copied().unwrap_or_default()
    }
}

fn mark(covered: &mut Vec<bool>, length: usize, place: Range<usize>) {
    covered.resize(length, false);
    if let Some(covered) = covered.get_mut(place) {
        covered.fill(true);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn secrets(texts: &[&str]) -> Secrets {
        let texts = texts.iter().map(|it| Redacted::new((*it).to_owned()));
        Secrets::new(&texts.collect::<Vec<_>>())
    }

    fn masked(texts: &[&str], text: &str, cut: bool) -> String {
        let clean = secrets(texts).out_of(text.as_bytes(), cut).into_owned();
        String::from_utf8(clean).unwrap()
    }

    #[test]
    fn a_secret_is_masked_as_json_csv_and_xml_write_it() {
        let plain = "a\"b<c>d&e'f\\g\nä/😀h";
        for written in [
            plain,
            &json!(plain).to_string(),
            r#"a\"b<c>d&e'f\\g\n\u00e4/\ud83d\ude00h"#,
            // As PHP, Go and .NET write JSON.
            r#"a\"b<c>d&e'f\\g\n\u00e4\/\ud83d\ude00h"#,
            r#"a\"b\u003cc\u003ed\u0026e'f\\g\nä/😀h"#,
            r#"a\u0022b\u003Cc\u003Ed\u0026e\u0027f\\g\n\u00E4/\uD83D\uDE00h"#,
            &plain.replace('"', "\"\""),
            "a\"b&lt;c&gt;d&amp;e'f\\g\nä/😀h",
            "a&quot;b&lt;c&gt;d&amp;e'f\\g\nä/😀h",
            "a&quot;b&lt;c&gt;d&amp;e&apos;f\\g\nä/😀h",
            "a&quot;b&lt;c&gt;d&amp;e&#x27;f\\g\nä/😀h",
            "a&#34;b&lt;c&gt;d&amp;e&#39;f\\g&#xA;&#228;/&#128512;h",
            "a%22b%3Cc%3Ed%26e%27f%5Cg%0A%C3%A4%2F%f0%9f%98%80h",
        ] {
            let written = written.trim_matches('"');
            assert_eq!(
                masked(&[plain], &format!("x{written}y"), false),
                "x[sensitive]y"
            );
            for length in (0..written.len()).filter(|it| written.is_char_boundary(*it)) {
                let said = format!("x{}", &written[..length]);
                // The longest piece is of twelve bytes.
                let few = length < CUT_SECRET_BYTES_MIN + 11;
                let clean = masked(&[plain], &said, true);
                assert!(
                    clean == "x[sensitive]" || few && clean == said,
                    "{said}: {clean}"
                );
            }
        }
    }

    #[test]
    fn a_secret_is_masked_wherever_it_stands() {
        let both = secrets(&["hunter2", "1234", ""]);
        let text = b"\xffhunter2hunter2 hunter 12341\n";
        assert_eq!(
            both.out_of(text, false).as_ref(),
            b"\xff[sensitive] hunter [sensitive]1\n"
        );
        assert!(matches!(both.out_of(b"plain", false), Cow::Borrowed(_)));
        let value = json!({"a hunter2": ["x", {"n": 1234, "m": 12}], "b": null});
        assert_eq!(
            both.out_of_value(value),
            json!({"a [sensitive]": ["x", {"n": "[sensitive]", "m": 12}], "b": null})
        );
        let value = json!({"hunter2": 1, "1234": 2, "12341234": 3});
        let clean = both.out_of_value(value);
        assert_eq!(clean.as_object().unwrap().len(), 3, "{clean}");
    }

    #[test]
    fn the_longest_secret_is_looked_for_in_linear_time() {
        let half = "a".repeat(60 << 10);
        let text = "a".repeat(1 << 20);
        let began = std::time::Instant::now();
        for (secret, is_there) in [
            (format!("{half}{half}"), true),
            (format!("{half}{half}b"), true),
            (format!("{half}b{half}"), true),
            (format!("b{half}"), false),
        ] {
            assert_eq!(masked(&[&secret], &text, true) != text, is_there);
        }
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}",
            began.elapsed()
        );
    }

    proptest! {
        #[test]
        fn no_secret_is_left_of_any_output_and_all_else_is(
            one in "[ab\"\\\\]{1,4}", other in "[ab\"\\\\]{1,4}", text in "[ab\"\\\\]{0,24}",
        ) {
            let both = secrets(&[&one, &other]);
            let clean = both.out_of(text.as_bytes(), false).into_owned();
            let clean = String::from_utf8(clean).unwrap();
            for secret in [&one, &other] {
                prop_assert!(!clean.replace(MASK, "|").contains(secret.as_str()));
            }
            let special = text.contains(['\\', '"']);
            if !special && !text.contains(&one) && !text.contains(&other) {
                prop_assert_eq!(&clean, &text);
            }
            prop_assert_eq!(both.are_in(text.as_bytes(), false), clean != text);
        }
    }

    #[test]
    fn secrets_that_overlap_or_hold_each_other_are_masked_whole_in_any_order() {
        for secrets in [["SECRET", "SECRET-LONG"], ["SECRET-LONG", "SECRET"]] {
            let text = "SECRET SECRET-LONG SECRETSECRET-LONG";
            let expected = "[sensitive] [sensitive] [sensitive]";
            assert_eq!(masked(&secrets, text, false), expected);
        }
        for secrets in [["ABCDE", "CDEFG"], ["CDEFG", "ABCDE"]] {
            assert_eq!(masked(&secrets, "xABCDEFGx", false), "x[sensitive]x");
        }
        // Of the mask itself nothing is a secret.
        for secrets in [["sens", "other"], ["other", "sens"]] {
            let expected = "[sensitive] [sensitive]";
            assert_eq!(masked(&secrets, "other sens", false), expected);
        }
        assert_eq!(masked(&["aaaa"], &"a".repeat(1 << 20), false), MASK);
    }

    #[test]
    fn an_output_that_was_cut_within_a_secret_ends_with_a_mask() {
        let secret = "SECRET-LONG";
        for length in 0..=secret.len() {
            let said = format!("x {}", &secret[..length]);
            let expected = match length {
                0..CUT_SECRET_BYTES_MIN => said.clone(),
                _ => "x [sensitive]".to_owned(),
            };
            assert_eq!(masked(&[secret], &said, true), expected);
            let whole = length == secret.len();
            assert_eq!(masked(&[secret], &said, false) == said, !whole);
            let is_there = secrets(&[secret]).are_in(said.as_bytes(), true);
            assert_eq!(is_there, expected != said);
        }
    }
}
