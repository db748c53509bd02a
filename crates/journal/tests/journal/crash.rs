//! A store that fails at step n for every n, and a writer that is killed.

use crate::support::*;
use journal::*;
use model::RunId;

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
