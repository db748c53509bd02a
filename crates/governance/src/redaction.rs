//! Sensitive values taken out of what a tool said, before anybody reads, saves or hashes it: a hash
//! of a text that holds a short secret is one that can be guessed.

use std::borrow::Cow;

use model::Redacted;
use serde_json::Value;

const MASK: &str = "[sensitive]";

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
