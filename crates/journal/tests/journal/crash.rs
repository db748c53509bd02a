//! A store that fails at step n for every n, and a writer that is killed.

use crate::python::agree;
use crate::support::*;
use journal::*;
use model::RunId;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

/// In all, by two loops at once.
const KILLS: u64 = 500;
const LOOPS: u64 = 2;
const CHILD_FOLDER: &str = "JOURNAL_TEST_CHILD_FOLDER";

/// Not a test: the process that the next one kills. Prints each acknowledged number.
#[test]
fn writer_that_is_killed() {
    let Ok(state) = std::env::var(CHILD_FOLDER) else {
        return;
    };
    let files = RunFiles::create(state.as_ref(), RunId::new(), "operator", &key(1));
    let mut files = files.unwrap();
    let mut out = std::io::stderr();
    writeln!(out, "run {}", files.journal().run()).unwrap();
    let first = files.journal().record(started()).unwrap();
    files.started().unwrap();
    writeln!(out, "seq {}", first.seq()).unwrap();
    loop {
        let seq = files.journal().record(custom()).unwrap().seq();
        writeln!(out, "seq {seq}").unwrap();
    }
}

#[test]
fn a_killed_writer_loses_nothing_that_it_acknowledged() {
    std::thread::scope(|scope| {
        for at in 0..LOOPS {
            scope.spawn(move || kill_writers((at..KILLS).step_by(2)));
        }
    });
}

/// A killed process does not lose what the kernel has: memory serves as well as a disk here.
fn fast_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

fn kill_writers(kills: impl Iterator<Item = u64>) {
    let home = fast_folder();
    let state = home.path().join(".symbiont");
    let key = key(1);
    let mut killed = 0;
    for kill in kills {
        killed += 1;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::writer_that_is_killed", "--nocapture"])
            .env(CHILD_FOLDER, &state)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut run = None;
        let mut acknowledged = None;
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        // Kill at another moment each time: after some number, then a little later.
        for line in lines.by_ref() {
            let line = line.unwrap();
            if let Some(id) = line.strip_prefix("run ") {
                run = Some(id.parse::<RunId>().unwrap());
            }
            if let Some(seq) = line.strip_prefix("seq ") {
                acknowledged = Some(seq.parse::<u64>().unwrap());
            }
            if acknowledged.is_some_and(|seq| seq >= kill % 5) {
                break;
            }
        }
        std::thread::sleep(Duration::from_micros(kill * 377 % 4000));
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines.map_while(Result::ok) {
            if let Some(seq) = line.strip_prefix("seq ") {
                acknowledged = seq.parse().ok().or(acknowledged);
            }
        }
        let run = run.unwrap();
        let with_run = VerifyOptions {
            run: Some(run),
            ..options(&key)
        };
        let report = verify_file(&journal_path(&state, run), &with_run).unwrap();
        assert_eq!(report.verdict, Verdict::Unterminated, "{report:?}");
        if kill % 50 == 0 {
            agree(&journal_path(&state, run), &with_run, &[]);
        }
        assert!(
            report.records > acknowledged.unwrap(),
            "{report:?}, {acknowledged:?}"
        );
    }
    // Every killed run but the last is sealed by the start after it.
    let ledger = Ledger::open(&ledger_path(&state), key.signer()).unwrap();
    let known = ledger.runs().unwrap();
    assert_eq!((known.runs.len() as u64, &known.fault), (killed, &None));
    assert_eq!(
        known.runs.iter().filter(|run| run.sealed.is_none()).count(),
        1
    );
}

#[test]
fn after_a_failure_at_any_step_nothing_more_is_recorded_and_no_acknowledged_record_is_lost() {
    let key = key(1);
    let steps = {
        let store = Store::default();
        whole_run(&durable(&store, &key, RunId::new())).1.unwrap();
        store.inner.lock().unwrap().steps
    };
    assert_eq!(steps, 8, "four writes, four syncs");
    for step in 0..steps {
        for failure in [Failure::Refused, Failure::Short, Failure::After] {
            let store = Store::failing(step, failure);
            let journal = durable(&store, &key, RunId::new());
            let (acknowledged, outcome) = whole_run(&journal);
            let place = format!("{failure:?} at step {step}");
            assert!(matches!(outcome, Err(JournalError::Store(_))), "{place}");
            assert!(journal.failed() && !journal.publishes(), "{place}");
            let size = store.bytes().len();
            assert!(
                matches!(journal.record(custom()), Err(JournalError::Failed)),
                "{place}"
            );
            assert!(
                matches!(journal.record(ended(false)), Err(JournalError::Failed)),
                "{place}"
            );
            assert!(
                matches!(journal.lend(digest("z")), Err(JournalError::Failed)),
                "{place}"
            );
            assert_eq!(store.bytes().len(), size, "{place}");

            // A crash keeps at least what was synced, at most what was written.
            let durable = store.inner.lock().unwrap().durable;
            let bytes = store.bytes();
            for kept in [durable, (durable + bytes.len()) / 2, bytes.len()] {
                let read = read_run(&bytes[..kept], None, Some(key.public()));
                let whole = read.map(Result::unwrap).count() as u64;
                assert!(whole >= acknowledged, "{place}: {whole} of {acknowledged}");
            }
        }
    }
}

#[test]
fn a_failed_pre_effect_record_leaves_no_dispatch_behind() {
    let store = Store::failing(2, Failure::Refused);
    let journal = durable(&store, &key(1), RunId::new());
    let _ = journal.record(started()).unwrap();
    let lent = journal.lend(digest("c1")).unwrap();
    assert!(matches!(
        journal.record(dispatching("c1")),
        Err(JournalError::Store(_))
    ));
    assert!(matches!(
        lent.settle(settled("c1", 1)),
        Err(JournalError::Failed)
    ));
}

#[test]
fn a_failed_attempt_to_record_an_intent_forbids_every_further_step_of_the_publication() {
    let store = Store::failing(2, Failure::After);
    let journal = durable(&store, &key(1), RunId::new());
    let mut lent = journal.lend(digest("c1")).unwrap();
    let _ = journal.record2(started(), dispatching("c1")).unwrap();
    assert!(matches!(
        lent.publication_prepared(prepared("c1")),
        Err(JournalError::Store(_))
    ));
    assert!(matches!(
        lent.publication_prepared(prepared("c1")),
        Err(JournalError::Failed)
    ));
    assert!(!lent.publishes());
}
