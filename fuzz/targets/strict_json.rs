//! Any bytes as strict JSON: what is accepted has one canonical text, which is accepted too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use model::Canonical;
use model::json::parse_strict;

fuzz_target!(|bytes: &[u8]| {
    let Ok(value) = parse_strict(bytes, 1 << 20) else {
        return;
    };
    let lenient: serde_json::Value = serde_json::from_slice(bytes).expect("strict is JSON");
    assert_eq!(lenient, value);
    let Ok(canonical) = Canonical::of(&value) else {
        return;
    };
    let again = parse_strict(canonical.as_str().as_bytes(), usize::MAX).expect("canonical JSON");
    let canonical_again = Canonical::of(&again).expect("canonical JSON");
    assert_eq!(canonical_again.as_str(), canonical.as_str());
});
