//! What the verifier says of journals that somebody changed.

use crate::support::*;
use journal::limits::*;
use journal::*;
use model::RunId;
use proptest::prelude::*;

fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes
        .split_inclusive(|b| *b == b'\n')
        .map(<[u8]>::to_vec)
        .collect()
}

fn edited(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert!(text.contains(from), "{from}");
    text.replace(from, to).into_bytes()
}

#[test]
fn a_whole_run_is_intact_with_the_key_and_self_consistent_without() {
    let (key, run) = (key(1), RunId::new());
    let bytes = small_run(&key, run);
    let report = verify_run(bytes.as_slice(), &options(&key)).unwrap();
    assert_eq!(
        (report.verdict, report.records, report.run),
        (Verdict::Intact, 6, Some(run))
    );
    assert_eq!((report.completed, report.exit_code(false)), (Some(true), 0));
    assert_eq!((report.anchored, report.exit_code(true)), (false, 5));
    assert_eq!(report.file_sha256, model::Digest::of(&bytes));
    let report = verify_run(bytes.as_slice(), &VerifyOptions::default()).unwrap();
    assert_eq!(report.verdict, Verdict::Intact);
    assert!(report.self_consistent_only);
    assert_eq!(report.exit_code(false), 5);
}

#[test]
fn a_changed_bit_at_any_byte_is_found() {
    let (key, run) = (key(1), RunId::new());
    let bytes = small_run(&key, run);
    let options = options(&key);
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        let report = verify_run(changed.as_slice(), &options).unwrap();
        assert_ne!(report.verdict, Verdict::Intact, "byte {at}");
        let line = bytes[..at].iter().filter(|b| **b == b'\n').count() as u64 + 1;
        if let Some(fault) = report.fault {
            let near = [line - line.saturating_sub(1).min(1), line, line + 1];
            assert!(
                near.contains(&fault.line),
                "byte {at} of line {line}: {fault}"
            );
        }
    }
}

#[test]
fn a_file_cut_at_any_byte_is_never_intact_and_keeps_its_whole_records() {
    let (key, run) = (key(1), RunId::new());
    let bytes = small_run(&key, run);
    let options = options(&key);
    for at in 0..bytes.len() {
        let report = verify_run(&bytes[..at], &options).unwrap();
        let whole = bytes[..at].iter().filter(|b| **b == b'\n').count() as u64 / 2;
        assert_eq!(report.records, whole, "cut at {at}");
        let expected = if whole == 0 {
            Verdict::Corrupt
        } else {
            Verdict::Unterminated
        };
        assert_eq!(report.verdict, expected, "cut at {at}");
        assert_ne!(report.exit_code(false), 0);
        let kept: usize = lines(&bytes)
            .iter()
            .take(whole as usize * 2)
            .map(Vec::len)
            .sum();
        assert_eq!(report.tail.map_or(0, |tail| tail.bytes), (at - kept) as u64);
    }
}

#[test]
fn a_cut_at_a_whole_record_shows_against_the_ledger_and_an_anchor() {
    let (key, run) = (key(1), RunId::new());
    let bytes = small_run(&key, run);
    let full = verify_run(bytes.as_slice(), &options(&key)).unwrap();
    let start = verify_run(lines(&bytes)[..4].concat().as_slice(), &options(&key)).unwrap();
    let ledger = LedgerRun {
        run,
        time: String::new(),
        started: start.checkpoint,
        ended: Some(full.checkpoint),
        sealed: None,
        archived: None,
        public_key: None,
    };
    let with_ledger = VerifyOptions {
        ledger: Some(ledger.clone()),
        ..options(&key)
    };
    let with_anchor = VerifyOptions {
        anchors: vec![full.checkpoint],
        ..options(&key)
    };
    assert_eq!(verdict(&bytes, &with_ledger), Verdict::Intact);
    let report = verify_run(bytes.as_slice(), &with_anchor).unwrap();
    assert!(report.anchored && report.exit_code(true) == 0);
    for whole in 0..6 {
        let cut = lines(&bytes)[..whole * 2].concat();
        for options in [&with_ledger, &with_anchor] {
            let report = verify_run(cut.as_slice(), options).unwrap();
            assert_eq!(report.verdict, Verdict::Truncated, "{whole} records");
            assert_eq!((report.exit_code(false), report.anchored), (6, false));
        }
    }
    let absent = Report::absent(&ledger, Some(key.public()));
    assert_eq!(
        (absent.verdict, absent.exit_code(false)),
        (Verdict::Truncated, 6)
    );
}

#[test]
fn another_history_of_the_same_run_with_the_same_key_is_a_fork() {
    let (key, run) = (key(1), RunId::new());
    let (one, other) = (small_run(&key, run), small_run(&key, run));
    let head = verify_run(one.as_slice(), &options(&key))
        .unwrap()
        .checkpoint;
    let with = VerifyOptions {
        anchors: vec![head],
        ..options(&key)
    };
    assert_eq!(verdict(&one, &with), Verdict::Intact);
    let report = verify_run(other.as_slice(), &with).unwrap();
    assert_eq!(
        (report.verdict, report.exit_code(false)),
        (Verdict::Forked, 6)
    );
    // The run went on after the end that the ledger knows.
    let early = verify_run(lines(&one)[..4].concat().as_slice(), &options(&key)).unwrap();
    let ledger = LedgerRun {
        run,
        time: String::new(),
        started: early.checkpoint,
        ended: Some(early.checkpoint),
        sealed: None,
        archived: None,
        public_key: None,
    };
    let with = VerifyOptions {
        ledger: Some(ledger),
        ..options(&key)
    };
    assert_eq!(verdict(&one, &with), Verdict::Forked);
}

#[test]
fn another_key_never_verifies_even_for_a_whole_run_signed_again() {
    let (ours, theirs, run) = (key(1), key(2), RunId::new());
    let bytes = small_run(&theirs, run);
    let report = verify_run(bytes.as_slice(), &options(&ours)).unwrap();
    assert_eq!((report.verdict, report.records), (Verdict::Corrupt, 0));
    let fault = report.fault.unwrap();
    assert_eq!(fault.line, 2);
    assert!(
        fault.to_string().contains(theirs.public().name()),
        "{fault}"
    );
    // Their signatures under our name and key id.
    let renamed = edited(&bytes, theirs.public().name(), ours.public().name());
    assert_eq!(verdict(&renamed, &options(&ours)), Verdict::Corrupt);
    // One foreign pair inside ours.
    let mut mixed = lines(&small_run(&ours, run));
    mixed[7] = lines(&bytes)[7].clone();
    assert_eq!(verdict(&mixed.concat(), &options(&ours)), Verdict::Corrupt);
    assert_eq!(
        verdict(&mixed.concat(), &VerifyOptions::default()),
        Verdict::Corrupt
    );
}

#[test]
fn a_journal_of_another_run_or_with_its_run_id_edited_is_refused() {
    let (key, run, other) = (key(1), RunId::new(), RunId::new());
    let bytes = small_run(&key, run);
    let wanted = |run| VerifyOptions {
        run: Some(run),
        ..options(&key)
    };
    assert_eq!(verdict(&bytes, &wanted(run)), Verdict::Intact);
    let report = verify_run(bytes.as_slice(), &wanted(other)).unwrap();
    assert_eq!(report.verdict, Verdict::Corrupt);
    assert!(matches!(
        report.fault.unwrap().reason,
        FaultReason::Run { .. }
    ));
    let renamed = edited(&bytes, &run.to_string(), &other.to_string());
    for options in [wanted(other), options(&key)] {
        assert_eq!(verdict(&renamed, &options), Verdict::Corrupt);
    }
}

#[test]
fn lines_of_another_run_or_principal_swapped_repeated_or_missing_are_found() {
    let (key, run) = (key(1), RunId::new());
    let ours = lines(&small_run(&key, run));
    let other_run = lines(&small_run(&key, RunId::new()));
    let store = Store::default();
    let signer = Some(key.signer());
    let journal = Journal::new(Box::new(store.clone()), signer, run, "somebody".into());
    whole_run(&journal).1.unwrap();
    let other_principal = lines(&store.bytes());
    let options = options(&key);
    let check = |what: &str, changed: Vec<Vec<u8>>| {
        let report = verify_run(changed.concat().as_slice(), &options).unwrap();
        assert_eq!(report.verdict, Verdict::Corrupt, "{what}");
        report.fault.unwrap().reason
    };
    let spliced = |from: &[Vec<u8>], pair: usize| {
        let mut changed = ours.clone();
        changed[pair * 2..pair * 2 + 2].clone_from_slice(&from[pair * 2..pair * 2 + 2]);
        changed
    };
    for pair in 1..6 {
        let reason = check("another run", spliced(&other_run, pair));
        assert!(matches!(reason, FaultReason::Run { .. }), "{reason}");
        let reason = check("another principal", spliced(&other_principal, pair));
        assert!(matches!(reason, FaultReason::Principal { .. }), "{reason}");
    }
    for at in (0..8).step_by(2) {
        let mut swapped = ours.clone();
        swapped.swap(at, at + 2);
        swapped.swap(at + 1, at + 3);
        check("swapped", swapped);
        let mut doubled = ours.clone();
        doubled.splice(at..at, ours[at..at + 2].to_vec());
        check("doubled", doubled);
        let mut missing = ours.clone();
        missing.drain(at..at + 2);
        check("missing", missing);
        let mut half = ours.clone();
        half.remove(at);
        check("half a pair missing", half);
    }
    let mut more = ours.clone();
    more.push(b"{}".to_vec());
    let reason = check("a tail after the end", more);
    assert!(matches!(reason, FaultReason::AfterEnd));
}

#[test]
fn an_edited_origin_size_or_root_is_found() {
    let (key, run) = (key(1), RunId::new());
    let bytes = small_run(&key, run);
    let root = lines(&bytes)[1].clone();
    let root = String::from_utf8(root).unwrap();
    let root = root.split("\\n").nth(2).unwrap().to_owned();
    let zero = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    for (from, to) in [
        (format!("{run}\\n1\\n"), format!("{run}\\n2\\n")),
        (format!("{run}\\n1\\n"), format!("{run}\\n01\\n")),
        (
            format!("{}/{run}", key.public().name()),
            format!("example.org/{run}"),
        ),
        (root, zero.to_owned()),
    ] {
        let changed = edited(&bytes, &from, &to);
        assert_eq!(
            verdict(&changed, &options(&key)),
            Verdict::Corrupt,
            "{from} to {to}"
        );
        assert_eq!(
            verdict(&changed, &VerifyOptions::default()),
            Verdict::Corrupt,
            "{from}"
        );
    }
}

#[test]
fn an_empty_file_and_one_without_records_have_no_good_verdict() {
    for bytes in [&b""[..], b"\n", b"\n\n", b"{}\n{}\n", b"x", b"\0\0\0\0"] {
        let report = verify_run(bytes, &options(&key(1))).unwrap();
        assert_eq!(report.verdict, Verdict::Corrupt, "{bytes:?}");
        assert!(report.fault.is_some());
    }
}

#[test]
fn hostile_sizes_are_refused_in_bounded_memory() {
    let options = options(&key(1));
    let long = vec![b'a'; RECORD_BYTES_MAX + 1];
    let report = verify_run(long.as_slice(), &options).unwrap();
    assert!(
        report
            .fault
            .unwrap()
            .to_string()
            .contains("longer than the 1048576 bytes")
    );
    // An endless stream ends with a verdict.
    let report = verify_run(std::io::repeat(b'\n'), &options).unwrap();
    assert_eq!(report.verdict, Verdict::Corrupt);
    assert!(report.file_bytes <= JOURNAL_BYTES_MAX + (1 << 17));
    let deep = format!("{}\n{{}}\n", "[".repeat(RECORD_BYTES_MAX - 10));
    assert_eq!(verdict(deep.as_bytes(), &options), Verdict::Corrupt);
}

#[test]
fn an_unknown_version_event_or_field_is_refused_with_its_reason() {
    let bytes = small_run(&key(1), RunId::new());
    for (from, to, reason) in [
        (
            "\"v\":1}",
            "\"v\":2}",
            "has version 2; this program knows 1",
        ),
        (
            "\"kind\":\"RunStarted\"",
            "\"kind\":\"RunResumed\"",
            "unknown variant",
        ),
        ("\"project\":", "\"projekt\":", "projekt"),
        ("\"seq\":0,", "\"seq\":0,\"seq\":0,", "duplicate field"),
        (
            "\"max_calls\":100",
            "\"max_calls\":100,\"max_calls\":100",
            "duplicate field",
        ),
    ] {
        let mut changed = lines(&bytes);
        changed[0] = edited(&changed[0], from, to);
        let report = verify_run(changed.concat().as_slice(), &options(&key(1))).unwrap();
        let fault = report.fault.unwrap();
        assert_eq!(fault.line, 1);
        assert!(fault.to_string().contains(reason), "{fault}");
    }
}

#[test]
fn a_long_run_verifies_across_many_chunks() {
    let key = key(1);
    let (journal, writer) = memory(&key, RunId::new(), "operator");
    let _ = journal.record(started()).unwrap();
    for _ in 0..2 * VERIFY_CHUNK_RECORDS_MAX {
        let _ = journal.record(custom()).unwrap();
    }
    let _ = journal.record(ended(true)).unwrap();
    let mut bytes = writer.bytes();
    let report = verify_run(bytes.as_slice(), &options(&key)).unwrap();
    let records = 2 * VERIFY_CHUNK_RECORDS_MAX as u64 + 2;
    assert_eq!((report.verdict, report.records), (Verdict::Intact, records));
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    assert_eq!(verdict(&bytes, &options(&key)), Verdict::Corrupt);
}

proptest! {
    #[test]
    fn no_bytes_make_the_verifier_panic_or_content(
        bytes in proptest::collection::vec(any::<u8>(), 0..300)
    ) {
        let verdict = verdict(&bytes, &options(&key(1)));
        prop_assert_eq!(verdict, Verdict::Corrupt);
    }
}
