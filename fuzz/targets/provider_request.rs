//! Any bytes as a request to the provider: what is admitted is within the terms, and admitted again
//! it is the same.
#![no_main]

use inference::{Guard, Terms, parse_route};
use libfuzzer_sys::fuzz_target;

fn terms() -> Terms {
    Terms {
        model: "claude-test-1".to_owned(),
        max_requests: 8,
        max_output_tokens: 100,
        max_total_output_tokens: 800,
        beta_headers: Vec::new(),
        anthropic_version: "2023-06-01".to_owned(),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let (path, body) = match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (&b"/v1/messages"[..], bytes),
    };
    let path = String::from_utf8_lossy(path);
    let Ok(route) = parse_route("POST", &path) else {
        return;
    };
    let mut guard = Guard::new(terms()).expect("the terms are in order");
    let Ok(admitted) = guard.admit(route, &[], body) else {
        assert_eq!(guard.requests(), 0);
        return;
    };
    assert!(admitted.reserved_output_tokens <= 100);
    let value: serde_json::Value = serde_json::from_slice(&admitted.body).expect("JSON");
    assert_eq!(value["model"], "claude-test-1");
    let again = guard.admit(route, &[], &admitted.body).expect("it was admitted");
    assert_eq!(again.body, admitted.body);
});
