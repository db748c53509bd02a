//! Any bytes as a journal: each line, and the whole of it. Without a key the best is that it agrees
//! with itself.
#![no_main]

use journal::{VerifyOptions, read_run, verify_run};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut reader = read_run(bytes, None, None);
    let mut records = 0;
    for record in reader.by_ref() {
        match record {
            Ok(record) => assert_eq!(record.seq, records),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        records += 1;
    }
    let options = VerifyOptions::default();
    let report = verify_run(bytes, &options).expect("reading from memory");
    assert!(report.self_consistent_only);
    assert_ne!(report.exit_code(false), 0);
    assert!(report.whole_bytes() <= bytes.len() as u64);
});
