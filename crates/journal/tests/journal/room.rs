//! Limits: at each and one past it, and room for what must still fit.

use crate::support::*;
use journal::limits::*;
use journal::*;
use model::{CallId, RelativePath, RunId};

/// Text that JSON writes as six bytes each.
fn worst(bytes: usize) -> String {
    "\u{1}".repeat(bytes)
}

fn worst_path() -> RelativePath {
    let component = "\"".repeat(255);
    let path = format!("{component}/").repeat(16);
    RelativePath::new(&path[..PATH_BYTES_MAX - 1]).unwrap()
}

fn worst_prepared(call: &str) -> FilePublicationPrepared {
    let name = || worst(NAME_BYTES_MAX);
    FilePublicationPrepared {
        path: worst_path(),
        parent_path: worst(PATH_BYTES_MAX),
        parent: FileIdentity {
            device: name(),
            inode: name(),
        },
        candidate: CandidateIdentity {
            name: name(),
            device: name(),
            inode: name(),
        },
        target_name: name(),
        bytes: NUMBER_MAX,
        ..prepared(call)
    }
}

fn worst_settled(call: &str, seq: u64, created_files: Vec<CreatedFile>) -> CallSettled {
    let outcome = OutcomeFact {
        status: OutcomeStatus::Unconfirmed,
        reason: Some(worst(TEXT_BYTES_MAX)),
        exit_code: Some(-(NUMBER_MAX as i64)),
        signal: Some(-(NUMBER_MAX as i64)),
        limit: Some(worst(NAME_BYTES_MAX)),
    };
    let stream = StreamFact {
        bytes: NUMBER_MAX,
        sha256: digest(""),
    };
    CallSettled {
        call_id: CallId::new("\"".repeat(256)).unwrap(),
        outcome,
        duration_us: NUMBER_MAX,
        stdout: stream.clone(),
        stderr: stream.clone(),
        created_files,
        worker: Some(worst(NAME_BYTES_MAX)),
        parser: Some(ParserFact {
            exit_code: Some(-(NUMBER_MAX as i64)),
            signal: Some(-(NUMBER_MAX as i64)),
            limit: Some(worst(NAME_BYTES_MAX)),
            duration_us: NUMBER_MAX,
            stdout: stream.clone(),
            stderr: stream.clone(),
            worker: Some(worst(NAME_BYTES_MAX)),
        }),
        evidence_sha256: Some(digest("")),
        effect_happened: false,
        ..settled(call, seq)
    }
}

fn worst_end() -> RunEnded {
    RunEnded {
        completed: false,
        cause: Some(worst(TEXT_BYTES_MAX)),
        calls: NUMBER_MAX,
    }
}

fn largest_answer() -> ApprovalFact {
    let shown = InputShown {
        input: worst(NAME_BYTES_MAX),
        shown_bytes: NUMBER_MAX,
        bytes: NUMBER_MAX,
    };
    ApprovalFact {
        held_id: worst(NAME_BYTES_MAX),
        surface: worst(NAME_BYTES_MAX),
        approver: worst(NOTE_TEXT_BYTES_MAX),
        decision: Decision::Denied,
        decided_at: worst(NAME_BYTES_MAX),
        created_at: worst(NAME_BYTES_MAX),
        expires_at: worst(NAME_BYTES_MAX),
        review_sha256: digest("review"),
        inputs_shown: vec![shown; INPUTS_SHOWN_MAX],
        signatures: vec![worst(NOTE_TEXT_BYTES_MAX); SIGNATURES_MAX],
    }
}

/// The largest refusal: nearly a whole record.
fn large_refusal() -> CallRefused {
    let note = PolicyNote {
        id: worst(NAME_BYTES_MAX),
        reason: Some(worst(POLICY_TEXT_BYTES_MAX)),
        advice: Some(worst(POLICY_TEXT_BYTES_MAX)),
    };
    CallRefused {
        tool: worst(TOOL_TEXT_BYTES_MAX),
        policies: vec![note; POLICIES_MAX],
        advice: Some(worst(TEXT_BYTES_MAX)),
        approval: Some(largest_answer()),
        ..refused(&worst(TEXT_BYTES_MAX))
    }
}

fn fill(journal: &Journal) {
    while journal.record(large_refusal()).is_ok() {}
    while journal.record(custom()).is_ok() {}
    let error = journal.record(custom()).unwrap_err();
    assert!(matches!(error, JournalError::NoRoom { .. }), "{error}");
}

#[test]
fn the_named_worst_cases_hold_for_the_largest_events() {
    let store = Store::default();
    let principal = worst(PRINCIPAL_BYTES_MAX);
    let signer = Some(key(1).signer());
    let journal = Journal::new(Box::new(store.clone()), signer, RunId::new(), principal);
    let mut lent = journal.lend(digest("c1")).unwrap();
    let (_, dispatch) = journal.record2(started(), dispatching("c1")).unwrap();
    let mut before = store.bytes().len();
    let mut grown = || {
        let now = store.bytes().len();
        std::mem::replace(&mut before, now).abs_diff(now)
    };
    let intent = lent.publication_prepared(worst_prepared("c1")).unwrap();
    let size = grown();
    assert!(size <= PUBLICATION_PREPARED_BYTES_MAX && size * 10 > PUBLICATION_PREPARED_BYTES_MAX);
    let error = Some(worst(TEXT_BYTES_MAX));
    let _ = lent
        .publication_finished(
            &intent,
            FilePublicationFinished {
                error,
                ..finished(&intent)
            },
        )
        .unwrap();
    let size = grown();
    assert!(size <= PUBLICATION_FINISHED_BYTES_MAX && size * 2 > PUBLICATION_FINISHED_BYTES_MAX);
    let file = CreatedFile {
        path: worst_path(),
        bytes: NUMBER_MAX,
        sha256: digest("abc"),
    };
    let _ = lent
        .settle(worst_settled("c1", dispatch.seq(), vec![file]))
        .unwrap();
    let size = grown() + (CREATED_FILES_MAX - 1) * (2 * PATH_BYTES_MAX + 256);
    assert!(size <= CALL_SETTLED_BYTES_MAX && size * 2 > CALL_SETTLED_BYTES_MAX);
    let _ = journal.record(worst_end()).unwrap();
    let size = grown();
    assert!(size <= RUN_ENDED_BYTES_MAX && size * 2 > RUN_ENDED_BYTES_MAX);
}

#[test]
fn a_full_journal_still_has_room_for_a_dispatched_call_an_answer_and_the_end() {
    let (key, store) = (key(1), Store::default());
    let journal = durable(&store, &key, RunId::new());
    let mut lent = journal.lend(digest("c1")).unwrap();
    let (_, dispatch) = journal.record2(started(), dispatching("c1")).unwrap();
    let _ = journal.record(requested(0)).unwrap();
    fill(&journal);
    let error = journal.lend(digest("c2")).unwrap_err();
    assert!(
        matches!(
            error,
            JournalError::NoRoom {
                need: CALL_RESERVED_BYTES,
                ..
            }
        ),
        "{error}"
    );
    let _ = journal
        .record(InferenceCompleted {
            reason: Some(worst(TEXT_BYTES_MAX)),
            ..completed(0)
        })
        .unwrap();
    let intent = lent.publication_prepared(worst_prepared("c1")).unwrap();
    let error = Some(worst(TEXT_BYTES_MAX));
    let finish = FilePublicationFinished {
        error,
        confirmed: false,
        ..finished(&intent)
    };
    let _ = lent.publication_finished(&intent, finish).unwrap();
    let _ = lent
        .settle(worst_settled("c1", dispatch.seq(), Vec::new()))
        .unwrap();
    let _ = journal.record(worst_end()).unwrap();
    let bytes = store.bytes();
    assert!(bytes.len() as u64 <= JOURNAL_BYTES_MAX);
    assert!(bytes.len() as u64 > JOURNAL_BYTES_MAX - CALL_RESERVED_BYTES);
    assert_eq!(verdict(&bytes, &options(&key)), Verdict::Intact);
}

#[test]
fn a_call_without_room_for_all_it_may_need_is_refused_before_its_effect() {
    let journal = durable(&Store::default(), &key(1), RunId::new());
    let _ = journal.record(started()).unwrap();
    fill(&journal);
    assert!(matches!(
        journal.lend(digest("c1")).unwrap_err(),
        JournalError::NoRoom { .. }
    ));
    assert!(!journal.failed(), "no room is a refusal, not a failure");
    let _ = journal.record(ended(true)).unwrap();
}

#[test]
fn a_dropped_loan_gives_its_room_back() {
    let journal = durable(&Store::default(), &key(1), RunId::new());
    let _ = journal.record(started()).unwrap();
    for call in 0..1000 {
        drop(journal.lend(digest(&call.to_string())).unwrap());
    }
    let loans: Vec<_> = (0..CALLS_LENT_MAX)
        .map(|n| journal.lend(digest(&n.to_string())).unwrap())
        .collect();
    let error = journal.lend(digest("one more")).unwrap_err();
    assert!(matches!(error, JournalError::OutOfOrder { .. }));
    drop(loans);
    assert!(journal.lend(digest("one more")).is_ok());
}

#[test]
fn a_record_over_one_mib_is_refused_and_the_journal_goes_on() {
    let (journal, writer) = memory(&key(1), RunId::new(), "operator");
    let _lent = journal.lend(digest("c1")).unwrap();
    let _ = journal.record(started()).unwrap();
    let descriptor = |bytes: usize| {
        let value = serde_json::json!({"task": "a".repeat(bytes)});
        let descriptor = model::Canonical::of(&value).unwrap();
        CallDispatching {
            descriptor,
            ..dispatching("c1")
        }
    };
    let size = writer.bytes().len();
    let error = journal.record(descriptor(RECORD_BYTES_MAX)).unwrap_err();
    let JournalError::RecordTooLarge {
        bytes,
        max: RECORD_BYTES_MAX,
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(writer.bytes().len(), size);
    let fits = RECORD_BYTES_MAX - (bytes - RECORD_BYTES_MAX);
    assert!(journal.record(descriptor(fits + 1)).is_err());
    let _ = journal.record(descriptor(fits)).unwrap();
    assert_eq!(
        verdict(&writer.bytes(), &options(&key(1))),
        Verdict::Unterminated
    );
}

#[test]
fn texts_lists_and_numbers_are_accepted_at_their_limit_and_refused_one_past_it() {
    let (journal, _) = memory(&key(1), RunId::new(), "operator");
    let _ = journal.record(started()).unwrap();
    let _ = journal
        .record(refused(&"a".repeat(TEXT_BYTES_MAX)))
        .unwrap();
    let error = journal
        .record(refused(&"a".repeat(TEXT_BYTES_MAX + 1)))
        .unwrap_err();
    let JournalError::Field(field) = &error else {
        panic!("{error}")
    };
    assert_eq!((field.event, field.field), ("CallRefused", "reason"));
    assert_eq!(
        error.to_string(),
        "`reason` of a `CallRefused` record is 16385, more than the 16384 allowed"
    );
    let value = "a".repeat(CUSTOM_BYTES_MAX);
    let _ = journal
        .record(Custom {
            value: value.clone(),
            ..custom()
        })
        .unwrap();
    assert!(
        journal
            .record(Custom {
                value: value + "a",
                ..custom()
            })
            .is_err()
    );
    let _ = journal.record(requested(NUMBER_MAX)).unwrap();
    assert!(journal.record(requested(NUMBER_MAX + 1)).is_err());
    let notes = |count| CallRefused {
        policies: vec![
            PolicyNote {
                id: "p".into(),
                reason: None,
                advice: None
            };
            count
        ],
        ..refused("no")
    };
    let _ = journal.record(notes(POLICIES_MAX)).unwrap();
    assert!(journal.record(notes(POLICIES_MAX + 1)).is_err());
    let _ = journal.record(large_refusal()).unwrap();
}

#[test]
fn a_principal_over_its_limit_cannot_record() {
    let record = |bytes: usize| {
        memory(&key(1), RunId::new(), &"p".repeat(bytes))
            .0
            .record(started())
            .map(|_| ())
    };
    assert!(record(PRINCIPAL_BYTES_MAX).is_ok());
    assert!(matches!(
        record(PRINCIPAL_BYTES_MAX + 1),
        Err(JournalError::Field(_))
    ));
}

#[test]
fn requests_hold_room_for_their_answers_up_to_a_limit() {
    let (journal, _) = memory(&key(1), RunId::new(), "operator");
    let _ = journal.record(started()).unwrap();
    for request in 0..REQUESTS_OPEN_MAX as u64 {
        let _ = journal.record(requested(request)).unwrap();
    }
    assert!(journal.record(requested(1000)).is_err());
    assert!(
        journal.record(requested(0)).is_err(),
        "it has no answer yet"
    );
    let _ = journal.record(completed(0)).unwrap();
    let _ = journal.record(requested(1000)).unwrap();
}

#[test]
fn the_memory_writer_has_the_same_byte_limits() {
    let mut writer = MemoryWriter::new();
    let large = vec![b'a'; APPEND_BYTES_MAX + 1];
    assert!(writer.append(&large).is_err());
    let chunk = vec![b'a'; 1 << 20];
    for _ in 0..64 {
        writer.append(&chunk).unwrap();
    }
    assert!(writer.append(b"a").is_err());
    assert_eq!(writer.bytes().len() as u64, JOURNAL_BYTES_MAX);
}

#[test]
fn a_shortened_text_says_what_it_was() {
    assert_eq!(shortened("abc", 3), "abc");
    let long = "ä".repeat(20_000);
    let short = shortened(&long, TEXT_BYTES_MAX);
    assert!(short.len() <= TEXT_BYTES_MAX && short.len() > TEXT_BYTES_MAX - 4);
    assert!(short.contains("40000 bytes, sha256 ") && short.starts_with("ää"));
    assert!(shortened(&long, 5).len() <= 5);
}
