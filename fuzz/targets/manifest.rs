//! Any text as a manifest, and, after a line `%%`, any JSON as the arguments of a call to it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use model::json::parse_object;
use toolclad::{Contract, ScanId, Surroundings};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let (manifest, arguments) = text.split_once("\n%%\n").unwrap_or((text, "{}"));
    let contract = match Contract::parse("tools/t.clad.toml", manifest) {
        Ok(contract) => contract,
        Err(faults) => {
            assert!(!faults.to_string().is_empty());
            return;
        }
    };
    let definition = contract.definition();
    assert_eq!(definition.name.as_str(), "t");
    let Ok(arguments) = parse_object(arguments.as_bytes(), 1 << 16) else {
        return;
    };
    let scan_id = ScanId::new("fuzz").ok();
    let surroundings = Surroundings {
        scan_id: scan_id.as_ref(),
        ..Surroundings::default()
    };
    let bound = match contract.bind_with(&arguments, &surroundings) {
        Ok(bound) => bound,
        Err(error) => {
            assert!(!error.to_string().chars().any(char::is_control));
            return;
        }
    };
    assert_eq!(bound.argv[0], contract.program());
    assert_eq!(bound.argv.len(), bound.shown_argv.len());
    assert!(bound.argv.iter().all(|entry| !entry.contains('\0')));
    let again = contract.bind_with(&arguments, &surroundings);
    assert_eq!(again.as_ref(), Ok(&bound));
});
