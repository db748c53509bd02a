//! Values too large for a record.

use crate::support::*;
use journal::limits::*;
use journal::*;
use model::{Canonical, Digest, RunId};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// A descriptor whose canonical form has exactly `bytes` bytes.
fn descriptor(bytes: usize) -> Canonical {
    let text = "x".repeat(bytes - r#"{"a":""}"#.len());
    let made = Canonical::of(&serde_json::json!({ "a": text })).unwrap();
    assert_eq!(made.as_str().len(), bytes);
    made
}

#[test]
fn a_value_over_the_limit_is_recorded_as_hash_and_length_and_kept_in_a_private_file() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join(".symbiont");
    let key = key(1);
    let mut files = RunFiles::create(&state, RunId::new(), "operator", &key).unwrap();
    let journal = files.journal().clone();
    let _ = journal.record(started()).unwrap();
    files.started().unwrap();
    let record = |call: &str, bytes| {
        let lent = journal.lend(digest(call)).unwrap();
        let descriptor = descriptor(bytes);
        let event = CallDispatching {
            descriptor: descriptor.clone(),
            ..dispatching(call)
        };
        let recorded = journal.record(event.clone()).unwrap();
        assert_eq!(recorded.event(), &event, "the proof holds what was asked");
        let _ = lent.settle(settled(call, recorded.seq())).unwrap();
        descriptor
    };
    let inline = record("c1", RECORDED_VALUE_BYTES_MAX);
    let large = record("c2", RECORDED_VALUE_BYTES_MAX + 1);
    let again = record("c3", RECORDED_VALUE_BYTES_MAX + 1);
    assert_eq!(large, again);
    let file = fs::File::open(files.path()).unwrap();
    let stored: Vec<Canonical> = read_run(file, None, Some(key.public()))
        .filter_map(|record| match record.unwrap().event {
            Event::CallDispatching(it) => Some(it.descriptor),
            _ => None,
        })
        .collect();
    let sha256 = Digest::of(large.as_str().as_bytes());
    let reference = format!(
        "{{\"evidence\":{{\"bytes\":{},\"sha256\":\"{sha256}\"}}}}",
        RECORDED_VALUE_BYTES_MAX + 1
    );
    assert_eq!(stored[0], inline);
    assert_eq!(stored[1].as_str(), reference);
    assert_eq!(stored[2], stored[1]);
    let path = state.join("evidence").join(sha256.to_hex());
    let stat = fs::metadata(&path).unwrap();
    assert_eq!(stat.mode() & 0o7777, 0o600);
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    let evidence = Evidence::open(&state).unwrap();
    let kept = evidence.read(&sha256).unwrap().unwrap();
    assert_eq!(kept, large.as_str().as_bytes());
    assert_eq!(evidence.read(&digest("other")).unwrap(), None);
    fs::write(&path, "changed").unwrap();
    assert_eq!(evidence.read(&sha256).unwrap(), None);
}

#[test]
fn where_evidence_cannot_be_kept_the_call_is_refused_and_the_journal_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join(".symbiont");
    let files = RunFiles::create(&state, RunId::new(), "operator", &key(1)).unwrap();
    let journal = files.journal();
    let _ = journal.record(started()).unwrap();
    let lent = journal.lend(digest("c1")).unwrap();
    let event = CallDispatching {
        descriptor: descriptor(RECORDED_VALUE_BYTES_MAX + 1),
        ..dispatching("c1")
    };
    let name = Digest::of(event.descriptor.as_str().as_bytes()).to_hex();
    fs::remove_dir(state.join("evidence")).unwrap();
    assert!(matches!(
        journal.record(event.clone()),
        Err(JournalError::Evidence(_))
    ));
    drop(lent);
    let _ = journal.record(custom()).unwrap();
    assert!(!journal.failed());
    assert!(!state.join("evidence").join(name).exists());
}
