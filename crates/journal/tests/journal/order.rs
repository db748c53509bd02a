//! What may follow what, and what an append proves.

use crate::support::*;
use journal::*;
use model::RunId;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn twelve_concurrent_appends_come_out_in_one_gapless_sequence() {
    let key = key(1);
    let (journal, writer) = memory(&key, RunId::new(), "operator");
    let _ = journal.record(started()).unwrap();
    let mut seqs: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..12)
            .map(|_| scope.spawn(|| journal.clone().record(custom()).unwrap().seq()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=12).collect::<Vec<_>>());
    let report = verify_run(writer.bytes().as_slice(), &options(&key)).unwrap();
    assert_eq!(
        (report.verdict, report.records),
        (Verdict::Unterminated, 13)
    );
}

#[test]
fn a_recorded_event_carries_its_run_sequence_and_leaf_hash() {
    let (key, run) = (key(1), RunId::new());
    let (journal, writer) = memory(&key, run, "operator");
    let (first, second) = journal.record2(started(), custom()).unwrap();
    assert_eq!((first.seq(), second.seq(), second.run()), (0, 1, run));
    let records: Vec<_> = read_run(writer.bytes().as_slice(), Some(run), Some(key.public()))
        .map(Result::unwrap)
        .collect();
    assert_eq!(records[0].digest, first.digest());
    assert_eq!(records[1].digest, second.digest());
    assert_eq!(records[1].event, Event::Custom(custom()));
    assert_eq!(records[0].principal, "operator");
}

fn answer() -> ApprovalFact {
    ApprovalFact {
        held_id: "h1".into(),
        surface: "terminal".into(),
        approver: "chat/team/42".into(),
        decision: Decision::Approved,
        decided_at: "2026-01-01T00:00:01Z".into(),
        created_at: "2026-01-01T00:00:00Z".into(),
        expires_at: "2026-01-01T00:05:00Z".into(),
        review_sha256: digest("review"),
        inputs_shown: vec![InputShown {
            input: "data".into(),
            shown_bytes: 3,
            bytes: 4,
        }],
        signatures: vec!["signed".into()],
    }
}

fn uncounted() -> AnswerRefused {
    AnswerRefused {
        surface: "gate".into(),
        from: "uid 7".into(),
        held_id: None,
        reason: "no".into(),
        last: false,
    }
}

#[test]
fn every_event_is_read_as_it_was_written() {
    let (key, run) = (key(1), RunId::new());
    let store = Store::default();
    let journal = durable(&store, &key, run);
    let mut lent = journal.lend(digest("c1")).unwrap();
    let dispatch = dispatching("c1");
    let dispatch = CallDispatching {
        approval: Some(answer()),
        ..dispatch
    };
    let _ = journal.record(started()).unwrap();
    let _ = journal.record(refused("no\u{7}")).unwrap();
    let withdrawn = CallWithdrawn {
        call_id: model::CallId::new("w").unwrap(),
        tool: "t".into(),
        cause: "client".into(),
    };
    let _ = journal.record(withdrawn.clone()).unwrap();
    let unanswered = uncounted();
    let _ = journal.record(unanswered.clone()).unwrap();
    let seq = journal.record(dispatch.clone()).unwrap().seq();
    let intent = lent.publication_prepared(prepared("c1")).unwrap();
    let _ = lent
        .publication_finished(&intent, finished(&intent))
        .unwrap();
    let settled = CallSettled {
        created_files: vec![receipt()],
        ..settled("c1", seq)
    };
    let _ = lent.settle(settled.clone()).unwrap();
    let _ = journal.record(requested(0)).unwrap();
    let _ = journal.record(completed(0)).unwrap();
    let _ = journal.record(custom()).unwrap();
    let _ = journal.record(ended(true)).unwrap();
    let events: Vec<_> = read_run(store.bytes().as_slice(), Some(run), Some(key.public()))
        .map(|record| record.unwrap().event)
        .collect();
    assert_eq!(
        events,
        vec![
            Event::RunStarted(started()),
            Event::CallRefused(refused("no\u{7}")),
            Event::CallWithdrawn(withdrawn),
            Event::AnswerRefused(unanswered),
            Event::CallDispatching(dispatch),
            Event::FilePublicationPrepared(intent.event().clone()),
            Event::FilePublicationFinished(finished(&intent)),
            Event::CallSettled(settled),
            Event::InferenceRequested(requested(0)),
            Event::InferenceCompleted(completed(0)),
            Event::Custom(custom()),
            Event::RunEnded(ended(true)),
        ]
    );
    assert_eq!(verdict(&store.bytes(), &options(&key)), Verdict::Intact);
}

#[test]
fn a_record_line_is_its_own_canonical_form() {
    let bytes = small_run(&key(1), RunId::new());
    for line in bytes
        .split(|b| *b == b'\n')
        .step_by(2)
        .filter(|line| !line.is_empty())
    {
        let value = model::json::parse_strict(line, 1 << 20).unwrap();
        assert_eq!(
            model::Canonical::of(&value).unwrap().as_str().as_bytes(),
            line
        );
    }
}

#[test]
fn after_an_unconfirmed_outcome_nothing_that_starts_an_effect_is_recorded() {
    let key = key(1);
    let store = Store::default();
    let journal = durable(&store, &key, RunId::new());
    let mut lent = journal.lend(digest("c1")).unwrap();
    let _ = journal.record2(started(), dispatching("c1")).unwrap();
    let waiting = journal.lend(digest("c2")).unwrap();
    journal.mark_unconfirmed();
    let forbidden = |error| matches!(error, JournalError::EffectForbidden { .. });
    assert!(forbidden(journal.record(dispatching("c2")).unwrap_err()));
    assert!(forbidden(journal.record(requested(0)).unwrap_err()));
    assert!(forbidden(journal.lend(digest("c3")).unwrap_err()));
    assert!(forbidden(
        lent.publication_prepared(prepared("c1")).unwrap_err()
    ));
    drop(waiting);
    assert!(
        journal.record(ended(true)).is_err(),
        "such a run did not complete"
    );
    let _ = lent.settle(settled("c1", 1)).unwrap();
    let _ = journal.record(ended(false)).unwrap();
    assert_eq!(verdict(&store.bytes(), &options(&key)), Verdict::Intact);
}

#[test]
fn an_unconfirmed_outcome_and_a_lost_call_mark_the_run_by_themselves() {
    for settles in [true, false] {
        let (journal, _) = memory(&key(1), RunId::new(), "operator");
        let lent = journal.lend(digest("c1")).unwrap();
        let _ = journal.record2(started(), dispatching("c1")).unwrap();
        if settles {
            let mut event = settled("c1", 1);
            event.outcome.status = OutcomeStatus::Unconfirmed;
            let _ = lent.settle(event).unwrap();
        } else {
            drop(lent);
        }
        let error = journal.record(requested(0)).unwrap_err();
        assert!(
            matches!(error, JournalError::EffectForbidden { .. }),
            "{settles}"
        );
    }
}

#[test]
fn a_call_that_was_lent_and_never_dispatched_leaves_no_trace() {
    let (journal, writer) = memory(&key(1), RunId::new(), "operator");
    let _ = journal.record(started()).unwrap();
    drop(journal.lend(digest("c1")).unwrap());
    let lent = journal.lend(digest("c1")).unwrap();
    drop(lent);
    let _ = journal.record(ended(true)).unwrap();
    assert_eq!(verdict(&writer.bytes(), &options(&key(1))), Verdict::Intact);
}

#[test]
fn the_legal_order_of_a_run_is_enforced_without_a_write() {
    let store = Store::default();
    let journal = durable(&store, &key(1), RunId::new());
    let illegal = |error| matches!(error, JournalError::OutOfOrder { .. });
    assert!(
        illegal(journal.record(custom()).unwrap_err()),
        "nothing before the start"
    );
    let _ = journal.record(started()).unwrap();
    let size = store.bytes().len();
    assert!(illegal(journal.record(started()).unwrap_err()), "one start");
    assert!(
        illegal(journal.record(dispatching("c1")).unwrap_err()),
        "not lent"
    );
    assert!(
        illegal(journal.record(completed(0)).unwrap_err()),
        "no such request"
    );
    let mut lent = journal.lend(digest("c1")).unwrap();
    assert!(
        illegal(journal.lend(digest("c1")).unwrap_err()),
        "lent twice"
    );
    assert!(
        illegal(lent.publication_prepared(prepared("c1")).unwrap_err()),
        "not dispatched"
    );
    assert_eq!(store.bytes().len(), size, "refusals write nothing");
    let _ = journal.record(dispatching("c1")).unwrap();
    assert!(
        illegal(journal.record(dispatching("c1")).unwrap_err()),
        "dispatched twice"
    );
    assert!(
        illegal(journal.record(ended(true)).unwrap_err()),
        "a call runs"
    );
    let other = lent.publication_prepared(prepared("c2")).unwrap_err();
    assert!(matches!(other, JournalError::OtherCall { .. }));
    let _ = journal.record(ended(false)).unwrap();
    assert!(matches!(
        journal.record(custom()).unwrap_err(),
        JournalError::Ended
    ));
    assert!(matches!(
        lent.settle(settled("c1", 1)).unwrap_err(),
        JournalError::Ended
    ));
    assert!(matches!(
        journal.lend(digest("c2")).unwrap_err(),
        JournalError::Ended
    ));
}

#[test]
fn one_call_has_one_publication_and_its_outcome_shows_that_receipt_only() {
    let journal = durable(&Store::default(), &key(1), RunId::new());
    let _ = journal.record(started()).unwrap();
    let call = |name: &str| {
        let lent = journal.lend(digest(name)).unwrap();
        (lent, journal.record(dispatching(name)).unwrap().seq())
    };
    let illegal = |error| matches!(error, JournalError::OutOfOrder { .. });
    let with = |name, seq, files| CallSettled {
        created_files: files,
        ..settled(name, seq)
    };

    let (lent, seq) = call("a");
    assert!(
        illegal(lent.settle(with("a", seq, vec![receipt()])).unwrap_err()),
        "no publication"
    );

    let journal = durable(&Store::default(), &key(1), RunId::new());
    let _ = journal.record(started()).unwrap();
    let mut lent = journal.lend(digest("b")).unwrap();
    let seq = journal.record(dispatching("b")).unwrap().seq();
    let intent = lent.publication_prepared(prepared("b")).unwrap();
    assert!(
        illegal(lent.publication_prepared(prepared("b")).unwrap_err()),
        "a second one"
    );
    let mut other = finished(&intent);
    other.publication_id = model::PublicationId::new();
    assert!(
        illegal(lent.publication_finished(&intent, other).unwrap_err()),
        "another one"
    );
    let _ = lent
        .publication_finished(&intent, finished(&intent))
        .unwrap();
    let twice = lent
        .publication_finished(&intent, finished(&intent))
        .unwrap_err();
    assert!(illegal(twice), "finished twice");
    let mut wrong = receipt();
    wrong.bytes += 1;
    assert!(
        illegal(lent.settle(with("b", seq, vec![wrong])).unwrap_err()),
        "another receipt"
    );
}

#[test]
fn a_publication_whose_end_is_unknown_settles_as_unconfirmed_only() {
    let journal = durable(&Store::default(), &key(1), RunId::new());
    let mut lent = journal.lend(digest("c1")).unwrap();
    let _ = journal.record2(started(), dispatching("c1")).unwrap();
    let _ = lent.publication_prepared(prepared("c1")).unwrap();
    let mut event = settled("c1", 1);
    event.outcome.status = OutcomeStatus::Unconfirmed;
    let _ = lent.settle(event).unwrap();
    let _ = journal.record(ended(false)).unwrap();
}

#[test]
fn only_a_signed_journal_on_storage_publishes() {
    let (memory, _) = memory(&key(1), RunId::new(), "operator");
    let store = Store::default();
    let run = RunId::new();
    let unsigned = Journal::new(Box::new(store.clone()), None, run, "operator".into());
    for journal in [memory, unsigned] {
        let mut lent = journal.lend(digest("c1")).unwrap();
        let _ = journal.record2(started(), dispatching("c1")).unwrap();
        assert!(!journal.publishes() && !lent.publishes());
        let error = lent.publication_prepared(prepared("c1")).unwrap_err();
        assert!(matches!(error, JournalError::NotDurable));
        let _ = lent.settle(settled("c1", 1)).unwrap();
    }
    assert!(durable(&Store::default(), &key(1), RunId::new()).publishes());
    // Unsigned records can be read, but never verify.
    assert_eq!(
        read_run(store.bytes().as_slice(), Some(run), None).count(),
        3
    );
    assert_eq!(
        verdict(&store.bytes(), &VerifyOptions::default()),
        Verdict::Corrupt
    );
}

#[test]
fn a_failure_wakes_whoever_asked_once() {
    let journal = durable(&Store::failing(2, Failure::Refused), &key(1), RunId::new());
    let calls = Arc::new(AtomicUsize::new(0));
    let count = |calls: &Arc<AtomicUsize>| {
        let calls = Arc::clone(calls);
        move || {
            calls.fetch_add(1, Ordering::SeqCst);
        }
    };
    journal.on_failure(count(&calls));
    let _ = journal.record(started()).unwrap();
    assert_eq!((calls.load(Ordering::SeqCst), journal.failed()), (0, false));
    assert!(matches!(
        journal.record(custom()).unwrap_err(),
        JournalError::Store(_)
    ));
    assert!(matches!(
        journal.record(custom()).unwrap_err(),
        JournalError::Failed
    ));
    assert_eq!((calls.load(Ordering::SeqCst), journal.failed()), (1, true));
    journal.on_failure(count(&calls));
    assert_eq!(
        calls.load(Ordering::SeqCst),
        2,
        "a late one is called at once"
    );
    assert!(!journal.publishes());
    assert!(journal.checkpoint().is_err());
}
