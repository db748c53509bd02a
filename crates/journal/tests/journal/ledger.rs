//! The ledger: what it knows, and what it notices.

use crate::support::*;
use journal::limits::*;
use journal::*;
use model::RunId;
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

fn head(n: u64) -> Checkpoint {
    Checkpoint {
        size: n,
        root: digest(&n.to_string()),
    }
}

fn ledger(home: &tempfile::TempDir) -> (Ledger, PathBuf) {
    let path = home.path().join("state/ledger.jsonl");
    (Ledger::open(&path, key(1).signer()).unwrap(), path)
}

fn append(path: &Path, bytes: &[u8]) {
    let mut whole = fs::read(path).unwrap();
    whole.extend_from_slice(bytes);
    fs::write(path, whole).unwrap();
}

#[test]
fn starts_ends_and_seals_are_known_oldest_first() {
    let home = tempfile::tempdir().unwrap();
    let (mut ledger, path) = ledger(&home);
    assert_eq!(ledger.runs().unwrap(), LedgerReport::default());
    let (a, b, c) = (RunId::new(), RunId::new(), RunId::new());
    ledger.run_started(a, head(1)).unwrap();
    ledger.run_started(b, head(2)).unwrap();
    ledger.run_ended(a, head(9)).unwrap();
    ledger.run_started(c, head(1)).unwrap();
    let seal = Seal {
        run: b,
        checkpoint: head(5),
        verdict: Verdict::Unterminated,
        file_bytes: 7,
        file_sha256: digest("f"),
    };
    ledger.seal(vec![seal.clone()]).unwrap();
    ledger.seal(vec![seal]).unwrap();
    assert_eq!(ledger.open_runs().unwrap(), vec![c]);
    let report = ledger.runs().unwrap();
    assert_eq!((report.fault, report.records, report.tail), (None, 5, None));
    let known: Vec<_> = report
        .runs
        .iter()
        .map(|r| (r.run, r.ended, r.sealed))
        .collect();
    assert_eq!(
        known,
        [
            (a, Some(head(9)), None),
            (b, None, Some(head(5))),
            (c, None, None)
        ]
    );
    let other = read_ledger(fs::File::open(&path).unwrap(), Some(key(2).public())).unwrap();
    assert!(other.runs.is_empty() && other.fault.is_some());
}

#[test]
fn a_run_starts_and_ends_once() {
    let home = tempfile::tempdir().unwrap();
    let (mut ledger, _) = ledger(&home);
    let run = RunId::new();
    assert!(matches!(
        ledger.run_ended(run, head(1)),
        Err(LedgerError::NotOpen { .. })
    ));
    ledger.run_started(run, head(1)).unwrap();
    assert!(matches!(
        ledger.run_started(run, head(1)),
        Err(LedgerError::AlreadyOpen { .. })
    ));
    ledger.run_ended(run, head(2)).unwrap();
    assert!(matches!(
        ledger.run_ended(run, head(2)),
        Err(LedgerError::NotOpen { .. })
    ));
}

#[test]
fn the_open_set_holds_256_runs_and_refuses_one_more_clearly() {
    let home = tempfile::tempdir().unwrap();
    let (mut ledger, path) = ledger(&home);
    let runs: Vec<_> = (0..OPEN_RUNS_MAX).map(|_| RunId::new()).collect();
    for run in &runs {
        ledger.run_started(*run, head(1)).unwrap();
    }
    let size = fs::metadata(&path).unwrap().len();
    let error = ledger.run_started(RunId::new(), head(1)).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("256 runs of this project have no end"),
        "{error}"
    );
    assert_eq!(fs::metadata(&path).unwrap().len(), size);
    let longest = fs::read_to_string(&path)
        .unwrap()
        .lines()
        .map(str::len)
        .max()
        .unwrap();
    assert!(longest <= LEDGER_LINE_BYTES_MAX, "{longest}");
    ledger.run_ended(runs[7], head(2)).unwrap();
    ledger.run_started(RunId::new(), head(1)).unwrap();
    assert_eq!(ledger.runs().unwrap().runs.len(), 257);
}

#[test]
fn a_torn_tail_is_cut_and_named_in_the_next_line() {
    let home = tempfile::tempdir().unwrap();
    let (mut ledger, path) = ledger(&home);
    let run = RunId::new();
    ledger.run_started(run, head(1)).unwrap();
    let whole = fs::read(&path).unwrap();
    ledger.run_ended(run, head(2)).unwrap();
    let both = fs::read(&path).unwrap();
    for cut in whole.len() + 1..both.len() {
        fs::write(&path, &both[..cut]).unwrap();
        let read = ledger.runs().unwrap();
        assert_eq!((read.records, read.fault), (1, None));
        assert_eq!(read.tail.unwrap().bytes, (cut - whole.len()) as u64);
        if cut % 37 != 0 && cut + 2 < both.len() {
            continue;
        }
        ledger.run_ended(run, head(2)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let torn = &both[whole.len()..cut];
        let named = format!(
            "\"torn\":{{\"bytes\":{},\"sha256\":\"{}\"}}",
            torn.len(),
            model::Digest::of(torn)
        );
        assert!(text.contains(&named), "{named} in {text}");
        let read = ledger.runs().unwrap();
        assert_eq!((read.records, read.fault, read.tail), (2, None, None));
    }
}

#[test]
fn a_torn_first_line_is_cut_too() {
    let home = tempfile::tempdir().unwrap();
    let (mut ledger, path) = ledger(&home);
    ledger.run_started(RunId::new(), head(1)).unwrap();
    let first = fs::read(&path).unwrap();
    fs::write(&path, &first[..first.len() - 1]).unwrap();
    ledger.run_started(RunId::new(), head(1)).unwrap();
    let read = ledger.runs().unwrap();
    assert_eq!((read.records, read.runs.len(), read.fault), (1, 1, None));
}

#[test]
fn a_ledger_whose_end_is_not_ours_is_refused_and_left_as_it_is() {
    let home = tempfile::tempdir().unwrap();
    let (mut ledger, path) = ledger(&home);
    let run = RunId::new();
    ledger.run_started(run, head(1)).unwrap();
    let good = fs::read(&path).unwrap();
    for at in 0..good.len() - 1 {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&path, &bad).unwrap();
        let (mut handle, _) = self::ledger(&home);
        assert!(handle.run_ended(run, head(2)).is_err(), "byte {at}");
        assert_eq!(fs::read(&path).unwrap(), bad, "byte {at}");
    }
    fs::write(&path, &good).unwrap();
    append(&path, &vec![b'x'; 40_000]);
    assert!(matches!(
        ledger.run_ended(run, head(2)),
        Err(LedgerError::Corrupt { .. })
    ));
}

#[test]
fn a_change_anywhere_in_the_ledger_is_found_by_reading_it() {
    let home = tempfile::tempdir().unwrap();
    let (mut ledger, path) = ledger(&home);
    let runs = [RunId::new(), RunId::new(), RunId::new()];
    for run in runs {
        ledger.run_started(run, head(1)).unwrap();
        ledger.run_ended(run, head(3)).unwrap();
    }
    let good = fs::read(&path).unwrap();
    let key = key(1);
    for at in 0..good.len() - 1 {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        let report = read_ledger(Cursor::new(&bad), Some(key.public())).unwrap();
        // A changed line feed near the end looks like a write that did not finish.
        assert!(report.fault.is_some() || report.tail.is_some(), "byte {at}");
    }
    let lines: Vec<_> = good.split_inclusive(|b| *b == b'\n').collect();
    let without_first = lines[2..].concat();
    let report = read_ledger(Cursor::new(&without_first), Some(key.public())).unwrap();
    assert!(report.fault.is_some());
}

#[test]
fn a_run_that_was_killed_is_sealed_by_the_next_start_and_a_later_cut_shows() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join(".symbiont");
    let (key, killed) = (key(1), RunId::new());
    let mut files = RunFiles::create(&state, killed, "operator", &key).unwrap();
    let _ = files.journal().record(started()).unwrap();
    files.started().unwrap();
    let _ = files.journal().record(custom()).unwrap();
    let path = files.path().to_owned();

    let alive = RunFiles::create(&state, RunId::new(), "operator", &key).unwrap();
    let ledger = Ledger::open(&ledger_path(&state), key.signer()).unwrap();
    assert_eq!(
        ledger.open_runs().unwrap(),
        vec![killed],
        "a live run is not sealed"
    );
    drop(files);
    drop(alive);
    let _next = RunFiles::create(&state, RunId::new(), "operator", &key).unwrap();
    assert!(ledger.open_runs().unwrap().is_empty());
    let known = ledger.runs().unwrap().runs.remove(0);
    assert_eq!(known.sealed.unwrap().size, 2);
    let with = VerifyOptions {
        ledger: Some(known),
        ..options(&key)
    };
    assert_eq!(
        verify_file(&path, &with).unwrap().verdict,
        Verdict::Unterminated
    );
    let text = fs::read_to_string(&path).unwrap();
    let cut: String = text.split_inclusive('\n').take(2).collect();
    fs::write(&path, cut).unwrap();
    assert_eq!(
        verify_file(&path, &with).unwrap().verdict,
        Verdict::Truncated
    );
    assert_eq!(
        verify_file(&path, &options(&key)).unwrap().verdict,
        Verdict::Unterminated
    );
}

#[test]
fn a_run_whose_file_is_gone_or_replaced_is_sealed_as_such_and_does_not_stop_the_next() {
    let replacements: [fn(&Path); 3] = [
        |_| {},
        |path| fs::create_dir(path).unwrap(),
        |path| std::os::unix::fs::symlink("/etc/passwd", path).unwrap(),
    ];
    replacements.into_iter().for_each(seals_without_its_file);
}

fn seals_without_its_file(replace: fn(&Path)) {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join(".symbiont");
    let key = key(1);
    let mut files = RunFiles::create(&state, RunId::new(), "operator", &key).unwrap();
    let _ = files.journal().record(started()).unwrap();
    files.started().unwrap();
    fs::remove_file(files.path()).unwrap();
    replace(files.path());
    drop(files);
    let _next = RunFiles::create(&state, RunId::new(), "operator", &key).unwrap();
    let ledger = Ledger::open(&ledger_path(&state), key.signer()).unwrap();
    let known = ledger.runs().unwrap().runs.remove(0);
    assert_eq!((known.sealed.unwrap().size, known.started.size), (0, 1));
}

#[test]
fn the_next_start_removes_an_empty_journal_without_an_owner_and_leaves_a_live_one() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join(".symbiont");
    let key = key(1);
    let dead = RunFiles::create(&state, RunId::new(), "operator", &key).unwrap();
    let alive = RunFiles::create(&state, RunId::new(), "operator", &key).unwrap();
    let left = dead.path().to_owned();
    drop(dead);
    assert_eq!(fs::metadata(&left).unwrap().len(), 0);
    let _next = RunFiles::create(&state, RunId::new(), "operator", &key).unwrap();
    assert!(!left.exists());
    assert!(alive.path().exists());
    let _ = alive.journal().record(started()).unwrap();
}

#[test]
fn the_next_start_adopts_a_dead_run_that_the_ledger_does_not_know_and_does_it_once() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join(".symbiont");
    let key = key(1);
    let files = RunFiles::create(&state, RunId::new(), "operator", &key).unwrap();
    let run = files.journal().run();
    let lent = files.journal().lend(digest("c1")).unwrap();
    let _ = files
        .journal()
        .record2(started(), dispatching("c1"))
        .unwrap();
    let alive = RunFiles::create(&state, RunId::new(), "operator", &key).unwrap();
    let ledger = Ledger::open(&ledger_path(&state), key.signer()).unwrap();
    assert!(ledger.runs().unwrap().runs.is_empty(), "its owner lives");
    drop((lent, files, alive));
    for _ in 0..2 {
        let _next = RunFiles::create(&state, RunId::new(), "operator", &key).unwrap();
        let report = ledger.runs().unwrap();
        assert_eq!((report.records, &report.fault), (2, &None));
        let known = &report.runs[0];
        assert_eq!((known.run, known.started.size), (run, 2));
        assert_eq!(known.sealed, Some(known.started));
    }
}

#[test]
fn a_stray_that_another_key_signed_is_neither_adopted_nor_removed() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join(".symbiont");
    let files = RunFiles::create(&state, RunId::new(), "operator", &key(2)).unwrap();
    let _ = files.journal().record(started()).unwrap();
    let path = files.path().to_owned();
    drop(files);
    let _next = RunFiles::create(&state, RunId::new(), "operator", &key(1)).unwrap();
    assert!(path.exists());
    let ledger = Ledger::open(&ledger_path(&state), key(1).signer()).unwrap();
    assert_eq!(ledger.runs().unwrap(), LedgerReport::default());
}

#[test]
fn what_an_append_would_refuse_after_the_last_pair_is_a_fault_for_a_reader_too() {
    for (garbage, is_fault) in [("x\n", true), ("x", false)] {
        let home = tempfile::tempdir().unwrap();
        let (mut ledger, path) = ledger(&home);
        ledger.run_started(RunId::new(), head(1)).unwrap();
        append(&path, garbage.as_bytes());
        let report = ledger.runs().unwrap();
        assert_eq!(report.fault.is_some(), is_fault, "{report:?}");
        assert_eq!(report.tail.is_some(), !is_fault, "{report:?}");
        assert_eq!(ledger.open_runs().is_err(), is_fault);
        fs::write(&path, garbage).unwrap();
        assert_eq!(ledger.runs().unwrap().fault.is_some(), is_fault);
        assert_eq!(ledger.open_runs().is_err(), is_fault);
    }
}
