//! Sensitive values taken out of what a tool said, before anybody reads, saves or hashes it: a hash
//! of a text that holds a short secret is one that can be guessed.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;

use model::Redacted;
use serde_json::Value;

use crate::limits::CUT_SECRET_BYTES_MIN;

const MASK: &str = "[sensitive]";

/// The secrets, and each as JSON, CSV and XML write it where they write it otherwise: the text of
/// an output shows it so, while its value has it plain.
pub(crate) fn with_spellings(secrets: &[Redacted<String>]) -> Vec<Redacted<String>> {
    let mut all = Vec::new();
    for secret in secrets {
        let plain = secret.expose();
        let csv = plain.replace('"', "\"\"");
        let xml = plain.replace('&', "&amp;").replace('<', "&lt;");
        let xml = xml.replace('>', "&gt;");
        let quoted =
            |quote: &str, apostrophe: &str| xml.replace('"', quote).replace('\'', apostrophe);
        let mut spellings = vec![
            json_spelling(plain, false),
            json_spelling(plain, true),
            csv,
            quoted("&quot;", "&apos;"),
            quoted("&quot;", "&#39;"),
            quoted("&quot;", "&#x27;"),
            quoted("&quot;", "'"),
            xml,
        ];
        spellings.sort();
        spellings.dedup();
        spellings.retain(|it| it != plain);
        all.extend(spellings.into_iter().map(Redacted::new));
    }
    all.extend(secrets.iter().map(|it| Redacted::new(it.expose().clone())));
    all
}

/// What stands between the quotes: `\"`, `\n`; in ASCII alone also `\u00e4`.
fn json_spelling(plain: &str, ascii: bool) -> String {
    let quoted = Value::String(plain.to_owned()).to_string();
    let inner = quoted.get(1..quoted.len() - 1).unwrap_or_default();
    let mut spelling = String::with_capacity(inner.len());
    let mut units = [0; 2];
    for character in inner.chars() {
        if ascii && !character.is_ascii() {
            for unit in character.encode_utf16(&mut units) {
                let _ = write!(spelling, "\\u{unit:04x}");
            }
        } else {
            spelling.push(character);
        }
    }
    spelling
}

/// `bytes` with a mask in place of each secret, also where two of them overlap or one is within
/// another. Where the output was `cut`, what it ends with may be the beginning of one.
pub(crate) fn without<'a>(
    bytes: &'a [u8],
    secrets: &[Redacted<String>],
    cut: bool,
) -> Cow<'a, [u8]> {
    let places = places(bytes, secrets, cut);
    if places.is_empty() {
        return Cow::Borrowed(bytes);
    }
    let mut clean = Vec::with_capacity(bytes.len());
    let mut from = 0;
    for place in places {
        clean.extend_from_slice(bytes.get(from..place.start).unwrap_or_default());
        clean.extend_from_slice(MASK.as_bytes());
        from = place.end;
    }
    clean.extend_from_slice(bytes.get(from..).unwrap_or_default());
    Cow::Owned(clean)
}

/// Whether a mask would stand anywhere.
pub(crate) fn repeats(bytes: &[u8], secrets: &[Redacted<String>], cut: bool) -> bool {
    !places(bytes, secrets, cut).is_empty()
}

/// Where secrets stand, in order; none overlaps the next.
fn places(bytes: &[u8], secrets: &[Redacted<String>], cut: bool) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for secret in secrets {
        let secret = secret.expose().as_bytes();
        add_places_of(secret, bytes, &mut found);
        if cut {
            found.extend(beginning_at_the_end(secret, bytes));
        }
    }
    found.sort_by_key(|place| place.start);
    let mut places: Vec<Range<usize>> = Vec::with_capacity(found.len());
    for place in found {
        add_place(&mut places, place);
    }
    places
}

fn add_places_of(secret: &[u8], bytes: &[u8], found: &mut Vec<Range<usize>>) {
    let Some(first) = secret.first() else {
        return;
    };
    let mut own: Vec<Range<usize>> = Vec::new();
    let mut from = 0;
    while let Some(rest) = bytes.get(from..).filter(|rest| rest.len() >= secret.len()) {
        let Some(skipped) = rest.iter().position(|byte| byte == first) else {
            break;
        };
        let start = from + skipped;
        if bytes.get(start..).is_some_and(|at| at.starts_with(secret)) {
            add_place(&mut own, start..start + secret.len());
        }
        from = start + 1;
    }
    found.append(&mut own);
}

/// What overlaps the last place makes it longer; what touches it is a place of its own.
fn add_place(places: &mut Vec<Range<usize>>, place: Range<usize>) {
    match places.last_mut() {
        Some(last) if place.start < last.end => last.end = last.end.max(place.end),
        _ => places.push(place),
    }
}

/// The longest beginning of a secret that `bytes` end with.
fn beginning_at_the_end(secret: &[u8], bytes: &[u8]) -> Option<Range<usize>> {
    let most = secret.len().checked_sub(1)?.min(bytes.len());
    let length = (CUT_SECRET_BYTES_MIN..=most)
        .rev()
        .find(|length| bytes.ends_with(secret.get(..*length).unwrap_or_default()))?;
    Some(bytes.len() - length..bytes.len())
}

/// The same for every text, key and number of a value.
pub(crate) fn value_without(value: Value, secrets: &[Redacted<String>]) -> Value {
    if secrets.is_empty() {
        return value;
    }
    let text = |text: &str| {
        let clean = without(text.as_bytes(), secrets, false);
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
            let items = items.into_iter().map(|item| value_without(item, secrets));
            Value::Array(items.collect())
        }
        Value::Object(map) => {
            let fields = map.into_iter();
            let fields = fields.map(|(key, item)| (text(&key), value_without(item, secrets)));
            Value::Object(fields.collect())
        }
        other @ (Value::Null | Value::Bool(_)) => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_secret_is_masked_as_json_csv_and_xml_write_it() {
        let plain = "a\"b<c>d&e'f\\g\nä😀h";
        let secrets = with_spellings(&[Redacted::new(plain.to_owned())]);
        for written in [
            plain,
            &json!({ "x": plain }).to_string(),
            r#"{"x": "a\"b<c>d&e'f\\g\n\u00e4\ud83d\ude00h"}"#,
            &plain.replace('"', "\"\""),
            "<x>a\"b&lt;c&gt;d&amp;e'f\\g\nä😀h</x>",
            "<x y=\"a&quot;b&lt;c&gt;d&amp;e'f\\g\nä😀h\"/>",
            "<x>a&quot;b&lt;c&gt;d&amp;e&apos;f\\g\nä😀h</x>",
            "<x>a&quot;b&lt;c&gt;d&amp;e&#x27;f\\g\nä😀h</x>",
        ] {
            let clean = without(written.as_bytes(), &secrets, false).into_owned();
            let clean = String::from_utf8(clean).unwrap();
            assert!(clean.contains(MASK), "{written}: {clean}");
            assert!(!clean.contains('h'), "{written}: {clean}");
        }
        // What all write alike is one text.
        assert_eq!(
            with_spellings(&[Redacted::new("plain".to_owned())]).len(),
            1
        );
    }

    #[test]
    fn a_secret_is_masked_wherever_it_stands() {
        let secrets = [
            Redacted::new("hunter2".to_owned()),
            Redacted::new("1234".to_owned()),
        ];
        let text = b"\xffhunter2hunter2 hunter 12341\n";
        assert_eq!(
            without(text, &secrets, false).as_ref(),
            b"\xff[sensitive][sensitive] hunter [sensitive]1\n"
        );
        assert!(matches!(
            without(b"plain", &secrets, false),
            Cow::Borrowed(_)
        ));
        let value = json!({"a hunter2": ["x", {"n": 1234, "m": 12}], "b": null});
        assert_eq!(
            value_without(value, &secrets),
            json!({"a [sensitive]": ["x", {"n": "[sensitive]", "m": 12}], "b": null})
        );
    }
    fn masked(secrets: &[&str], text: &str, cut: bool) -> String {
        let secrets: Vec<_> = secrets
            .iter()
            .map(|it| Redacted::new((*it).to_owned()))
            .collect();
        String::from_utf8(without(text.as_bytes(), &secrets, cut).into_owned()).unwrap()
    }

    #[test]
    fn secrets_that_overlap_or_hold_each_other_are_masked_whole_in_any_order() {
        for secrets in [["SECRET", "SECRET-LONG"], ["SECRET-LONG", "SECRET"]] {
            let text = "SECRET SECRET-LONG SECRETSECRET-LONG";
            let expected = "[sensitive] [sensitive] [sensitive][sensitive]";
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
            let secrets = [Redacted::new(secret.to_owned())];
            assert_eq!(repeats(said.as_bytes(), &secrets, true), expected != said);
        }
    }
}
