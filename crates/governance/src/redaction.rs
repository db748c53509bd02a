//! Sensitive values taken out of what a tool said, before anybody reads, saves or hashes it: a hash
//! of a text that holds a short secret is one that can be guessed.

use std::borrow::Cow;
use std::fmt::Write as _;

use model::Redacted;
use serde_json::Value;

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
        // A longer one can have a shorter one in it.
        spellings.sort_by_key(|it| std::cmp::Reverse(it.len()));
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

/// `bytes` with a mask in place of each secret.
pub(crate) fn without<'a>(bytes: &'a [u8], secrets: &[Redacted<String>]) -> Cow<'a, [u8]> {
    let mut clean = Cow::Borrowed(bytes);
    for secret in secrets {
        let secret = secret.expose().as_bytes();
        if secret.is_empty() || !clean.windows(secret.len()).any(|part| part == secret) {
            continue;
        }
        clean = Cow::Owned(replaced(&clean, secret));
    }
    clean
}

fn replaced(bytes: &[u8], secret: &[u8]) -> Vec<u8> {
    let mut clean = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, after)) = rest.split_first() {
        match rest.strip_prefix(secret) {
            Some(after) => {
                clean.extend_from_slice(MASK.as_bytes());
                rest = after;
            }
            None => {
                clean.push(*first);
                rest = after;
            }
        }
    }
    clean
}

/// The same for every text, key and number of a value.
pub(crate) fn value_without(value: Value, secrets: &[Redacted<String>]) -> Value {
    if secrets.is_empty() {
        return value;
    }
    let text = |text: &str| {
        let clean = without(text.as_bytes(), secrets);
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
            let clean = without(written.as_bytes(), &secrets).into_owned();
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
            without(text, &secrets).as_ref(),
            b"\xff[sensitive][sensitive] hunter [sensitive]1\n"
        );
        assert!(matches!(without(b"plain", &secrets), Cow::Borrowed(_)));
        let value = json!({"a hunter2": ["x", {"n": 1234, "m": 12}], "b": null});
        assert_eq!(
            value_without(value, &secrets),
            json!({"a [sensitive]": ["x", {"n": "[sensitive]", "m": 12}], "b": null})
        );
    }
}
