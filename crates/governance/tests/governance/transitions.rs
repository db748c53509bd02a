//! From a proposal to a worker that runs: who may stop it, and what each step proves.

use std::collections::BTreeMap;

use governance::{
    ActionExecutor as _, Approver, Lack, Outcome, PreparedWork, ProposedCall, Receipt,
    RecordFailure, Refusal, RefusalKind, Verdict,
};
use journal::{Event, JournalError, PolicyNote, Stage};
use model::{Canonical, Digest, RelativePath};
use serde_json::{Value, json};
use testkit::executor::{CREATE, ECHO, FAIL, GUARDED, command};
use testkit::tier::{FakeTier, Happened, Script};
use worker::{CreateGrant, Descriptor, ParentIdentity, StartError, WorkerHoldings};

use crate::support::{FaultyStore, started};
use crate::world::{FixedGate, World, call, note};

fn receipt(call_sha256: Digest) -> Receipt {
    Receipt {
        held_id: "held-1".to_owned(),
        call_sha256,
        review_sha256: call_sha256,
        approver: Approver {
            surface: "terminal".to_owned(),
            identity: "uid 1000".to_owned(),
            signatures: Vec::new(),
        },
        created_at: "2026-01-01T00:00:00Z".to_owned(),
        decided_at: "2026-01-01T00:00:01Z".to_owned(),
        expires_at: "2026-01-01T00:05:00Z".to_owned(),
        inputs_shown: Vec::new(),
    }
}

fn propose(tool: &str, arguments: Value) -> ProposedCall {
    ProposedCall::parse(call("1", tool, arguments)).unwrap()
}

fn work(descriptor: Descriptor) -> PreparedWork {
    PreparedWork {
        descriptor,
        holdings: WorkerHoldings::default(),
        target: None,
        charge: None,
        needs_approval: false,
        time_limit: None,
        notes: BTreeMap::new(),
        result: governance::ResultTerms::default(),
    }
}

fn refused(failure: RecordFailure) -> Refusal {
    match failure {
        RecordFailure::Refused(refusal) => *refusal,
        RecordFailure::Journal(error) => panic!("{error}"),
    }
}

#[test]
fn what_is_shown_recorded_and_run_has_one_digest() {
    let mut world = World::new();
    let prepared = world.prepare(FAIL, json!({"content": "x"}));
    let digest = prepared.call_sha256();
    assert_eq!(prepared.canonical().digest(), digest);
    let recorded = world.record(prepared);
    assert_eq!(recorded.call_sha256(), digest);
    let dispatched = recorded.dispatch(&mut world.executor).unwrap();
    assert_eq!(dispatched.call_sha256(), digest);
    let Event::CallDispatching(event) = &world.events()[1] else {
        panic!("no record")
    };
    assert_eq!(
        (event.call_sha256, event.descriptor.digest()),
        (digest, digest)
    );
    assert_eq!(world.gate.asked, [(digest, None)]);
    let expected = |it: &Happened| {
        matches!(it, Happened::Started { call_sha256, argv, .. }
            if *call_sha256 == digest && argv == &["fail", "x"])
    };
    assert!(
        world.tier.log().iter().any(expected),
        "{:?}",
        world.tier.log()
    );
}

#[test]
fn a_call_that_demands_approval_cannot_go_without_one() {
    let mut world = World::new();
    let prepared = world.prepare(GUARDED, json!({}));
    assert!(prepared.needs_approval());
    let refusal = prepared.approval_not_needed().unwrap_err();
    assert_eq!(
        (refusal.stage, refusal.kind),
        (Stage::Approve, RefusalKind::NotApproved)
    );
    assert!(refusal.reason.contains("approval"), "{refusal}");
    assert!(world.bytes().is_empty() && world.tier.log().is_empty());
}

#[test]
fn an_executor_cannot_waive_the_approval_that_its_descriptor_demands() {
    let proposed = propose(GUARDED, json!({}));
    let descriptor = command(&proposed, &FakeTier::new()).unwrap();
    assert!(descriptor.human_approval);
    let prepared = proposed
        .prepared(work(Descriptor::Command(Box::new(descriptor))))
        .unwrap();
    assert!(prepared.needs_approval() && prepared.approval_not_needed().is_err());
}

#[test]
fn a_receipt_is_good_for_the_call_that_was_shown_and_for_no_other() {
    let mut world = World::new();
    let shown = world
        .prepare(GUARDED, json!({"content": "shown"}))
        .call_sha256();
    let other = world.prepare(GUARDED, json!({"content": "other"}));
    let refusal = other.approve(receipt(shown)).unwrap_err();
    assert_eq!(
        (refusal.stage, refusal.kind),
        (Stage::Approve, RefusalKind::NotApproved)
    );
    assert!(refusal.reason.contains(&shown.to_string()), "{refusal}");
}

#[test]
fn an_approval_is_asked_about_recorded_and_bound_to_its_call() {
    let mut world = World::new();
    let prepared = world.prepare(GUARDED, json!({}));
    let digest = prepared.call_sha256();
    let prepared = prepared
        .worth_asking(&mut world.gate, &world.state)
        .unwrap();
    let approved = prepared.approve(receipt(digest)).unwrap();
    let authorized = approved.authorize(&mut world.gate, &world.state).unwrap();
    let recorded = authorized.record(&world.journal, &mut world.first).unwrap();
    // Asked once with a supposed yes, once with the given one.
    assert_eq!(
        world.gate.asked,
        [(digest, Some(digest)), (digest, Some(digest))]
    );
    let Event::CallDispatching(event) = &world.events()[1] else {
        panic!("no record")
    };
    let approval = event.approval.as_ref().unwrap();
    assert_eq!(approval.held_id, "held-1");
    assert_eq!(
        (approval.surface.as_str(), approval.approver.as_str()),
        ("terminal", "uid 1000")
    );
    assert_eq!(approval.review_sha256, digest);
    assert!(approval.created_at <= approval.decided_at);
    assert!(approval.decided_at <= approval.expires_at);
    drop(recorded);
}

#[test]
fn nobody_is_asked_about_a_call_that_policy_would_deny_anyway() {
    let mut world = World::new();
    world.gate = FixedGate::saying(Verdict::Deny {
        policies: vec![note("never")],
        reason: "no policy permits it".to_owned(),
        advice: Some("ask the operator".to_owned()),
    });
    let prepared = world.prepare(GUARDED, json!({}));
    let digest = prepared.call_sha256();
    let refusal = prepared
        .worth_asking(&mut world.gate, &world.state)
        .unwrap_err();
    assert_eq!(
        (refusal.stage, refusal.kind),
        (Stage::Authorize, RefusalKind::Denied)
    );
    assert_eq!(refusal.policies, [note("never")]);
    assert_eq!(refusal.advice.as_deref(), Some("ask the operator"));
    assert_eq!(refusal.call_sha256, Some(digest));
}

#[test]
fn a_denial_after_an_approval_is_still_a_denial() {
    let mut world = World::new();
    let prepared = world.prepare(GUARDED, json!({}));
    let digest = prepared.call_sha256();
    let approved = prepared.approve(receipt(digest)).unwrap();
    world.gate.verdict = Verdict::Deny {
        policies: Vec::new(),
        reason: "it changed its mind".to_owned(),
        advice: None,
    };
    let refusal = approved
        .authorize(&mut world.gate, &world.state)
        .unwrap_err();
    assert_eq!(
        (refusal.stage, refusal.kind),
        (Stage::Authorize, RefusalKind::Denied)
    );
    assert!(world.bytes().is_empty() && world.tier.log().is_empty());
}

#[test]
fn a_withdrawal_at_the_last_moment_leaves_no_record_and_no_worker() {
    let mut world = World::new();
    let approved = world
        .prepare(FAIL, json!({}))
        .approval_not_needed()
        .unwrap();
    let authorized = approved.authorize(&mut world.gate, &world.state).unwrap();
    let refusal = authorized.withdraw("withdrawn before it ran");
    assert_eq!(
        (refusal.stage, refusal.kind),
        (Stage::Record, RefusalKind::Withdrawn)
    );
    assert!(world.bytes().is_empty() && world.tier.log().is_empty());
}

#[test]
fn work_for_another_tool_or_a_launch_is_not_this_calls() {
    let tier = FakeTier::new();
    let other = Descriptor::Command(Box::new(command(&propose(FAIL, json!({})), &tier).unwrap()));
    let refusal = propose(GUARDED, json!({}))
        .prepared(work(other))
        .unwrap_err();
    assert!(refusal.reason.contains("another tool"), "{refusal}");

    let mut world = World::new();
    let mut rules = governance::SessionRules::new(
        &world.state,
        &governance::LoopConfig::default(),
        world.executor.tools(),
    )
    .unwrap();
    let launch = world
        .executor
        .prepare(rules.admit_launch("agent").unwrap())
        .unwrap();
    let refusal = propose("agent", json!({})).prepared(work(launch.descriptor().clone()));
    let refusal = refusal.unwrap_err();
    assert!(refusal.reason.contains("only the owner"), "{refusal}");
}

#[test]
fn a_new_file_is_in_the_descriptor_and_in_the_holdings_or_in_neither() {
    let mut world = World::new();
    let whole = world.propose(CREATE, json!({"path": "out/a", "content": ""}));
    let mut named = command(&whole, &world.tier).unwrap();
    let grant = CreateGrant {
        path: RelativePath::new("out/a").unwrap(),
        mode: model::CreateMode::File,
        parent: ParentIdentity {
            device: "1".to_owned(),
            inode: "1".to_owned(),
        },
    };
    named
        .boundary
        .filesystem
        .create
        .insert("path".to_owned(), grant);
    let refusal = whole
        .prepared(work(Descriptor::Command(Box::new(named))))
        .unwrap_err();
    assert!(refusal.reason.contains("another new file"), "{refusal}");
    assert!(world.prepare_create("b").creates_file());
}

#[test]
fn custom_work_that_no_record_could_hold_is_refused() {
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    let custom = |levels: usize| Descriptor::Custom {
        custom_kind: ECHO.to_owned(),
        value: Canonical::of(&nested(levels)).unwrap(),
    };
    let prepared = propose(ECHO, json!({})).prepared(work(custom(63))).unwrap();
    let text = prepared.canonical().as_str();
    let back: Canonical = serde_json::from_str(text).unwrap();
    assert_eq!(back.digest(), prepared.call_sha256());
    for levels in [64, 65, 150] {
        let refusal = propose(ECHO, json!({}))
            .prepared(work(custom(levels)))
            .unwrap_err();
        assert!(refusal.reason.contains("too deep"), "{levels}: {refusal}");
    }
}

#[test]
fn an_output_without_a_signed_and_durable_journal_is_refused_before_its_worker() {
    let unsigned = World::with(FaultyStore::default(), false);
    let volatile = FaultyStore {
        volatile: true,
        ..FaultyStore::default()
    };
    let volatile = World::with(volatile, true);
    for mut world in [unsigned, volatile] {
        let approved = world.prepare_create("a").approval_not_needed().unwrap();
        let authorized = approved.authorize(&mut world.gate, &world.state).unwrap();
        let refusal = refused(
            authorized
                .record(&world.journal, &mut world.first)
                .unwrap_err(),
        );
        assert_eq!(
            (refusal.stage, refusal.kind),
            (Stage::Record, RefusalKind::Capacity)
        );
        assert!(refusal.reason.contains("live audit authority"), "{refusal}");
        assert!(world.bytes().is_empty() && world.tier.log().is_empty());
        assert_eq!((world.out("a"), world.candidates()), (None, 0));
        // The session goes on, and its first record is not lost.
        let next = world.prepare(FAIL, json!({}));
        drop(world.record(next));
        assert_eq!(world.kinds(), ["RunStarted", "CallDispatching"]);
    }
}

#[test]
fn a_call_without_room_in_the_journal_is_refused_and_the_first_record_is_kept() {
    let mut world = World::new();
    // Larger than a record: nothing is written, and the session goes on.
    let arguments = json!({"content": "\u{1}".repeat(150_000)});
    let approved = world
        .prepare(FAIL, arguments)
        .approval_not_needed()
        .unwrap();
    let authorized = approved.authorize(&mut world.gate, &world.state).unwrap();
    let refusal = refused(
        authorized
            .record(&world.journal, &mut world.first)
            .unwrap_err(),
    );
    assert_eq!(
        (refusal.stage, refusal.kind),
        (Stage::Record, RefusalKind::Capacity)
    );
    assert!(world.first.is_some() && world.bytes().is_empty());
    let next = world.prepare(FAIL, json!({}));
    drop(world.record(next));
    assert_eq!(world.kinds(), ["RunStarted", "CallDispatching"]);
}

#[test]
fn a_full_journal_refuses_the_call_and_still_takes_the_end() {
    let mut world = World::new();
    let mut count = 0_u32;
    let refusal = loop {
        let arguments = json!({"content": "x".repeat(500_000)});
        let approved = world
            .prepare(FAIL, arguments)
            .approval_not_needed()
            .unwrap();
        let authorized = approved.authorize(&mut world.gate, &world.state).unwrap();
        match authorized.record(&world.journal, &mut world.first) {
            Ok(recorded) => {
                let settled = recorded.not_started("a test".to_owned());
                settled.record().unwrap();
                count += 1;
            }
            Err(failure) => break refused(failure),
        }
    };
    assert!(count > 10, "{count}");
    assert_eq!(
        (refusal.stage, refusal.kind),
        (Stage::Record, RefusalKind::Capacity)
    );
    assert!(refusal.reason.contains("bytes left"), "{refusal}");
    let end = journal::RunEnded {
        completed: true,
        cause: None,
        calls: 1,
    };
    assert!(world.journal.record(end).is_ok());
}

#[test]
fn a_journal_that_fails_before_the_effect_ends_the_session_without_one() {
    for sync in [false, true] {
        let mut world = World::new();
        {
            let mut disk = world.store.disk.lock().unwrap();
            (disk.fail_append, disk.fail_sync) = if sync {
                (None, Some(1))
            } else {
                (Some(1), None)
            };
        }
        let approved = world
            .prepare(FAIL, json!({}))
            .approval_not_needed()
            .unwrap();
        let authorized = approved.authorize(&mut world.gate, &world.state).unwrap();
        let failure = authorized
            .record(&world.journal, &mut world.first)
            .unwrap_err();
        assert!(
            matches!(failure, RecordFailure::Journal(JournalError::Store(_))),
            "{failure}"
        );
        assert!(world.journal.failed() && world.tier.log().is_empty());
        // And no later call gets further.
        let approved = world
            .prepare(FAIL, json!({}))
            .approval_not_needed()
            .unwrap();
        let authorized = approved.authorize(&mut world.gate, &world.state).unwrap();
        let failure = authorized
            .record(&world.journal, &mut world.first)
            .unwrap_err();
        assert!(
            matches!(failure, RecordFailure::Journal(JournalError::Failed)),
            "{failure}"
        );
    }
}

#[test]
fn after_an_unconfirmed_outcome_no_call_is_recorded() {
    let mut world = World::new();
    let prepared = world.prepare(FAIL, json!({}));
    drop(world.record(prepared)); // recorded, and nobody says what became of it
    let approved = world
        .prepare(FAIL, json!({"n": "2"}))
        .approval_not_needed()
        .unwrap();
    let authorized = approved.authorize(&mut world.gate, &world.state).unwrap();
    let failure = authorized
        .record(&world.journal, &mut world.first)
        .unwrap_err();
    let expected = |it: &RecordFailure| {
        matches!(
            it,
            RecordFailure::Journal(JournalError::EffectForbidden { .. })
        )
    };
    assert!(expected(&failure), "{failure}");
}

#[test]
fn a_gate_cannot_make_a_call_unrecordable_by_many_words() {
    let mut world = World::new();
    let wordy = PolicyNote {
        id: "i".repeat(10_000),
        reason: Some("r".repeat(10_000)),
        advice: Some("a".repeat(10_000)),
    };
    world.gate.verdict = Verdict::Permit {
        policies: vec![wordy.clone(); 100],
    };
    let prepared = world.prepare(FAIL, json!({}));
    drop(world.record(prepared));
    let Event::CallDispatching(event) = &world.events()[1] else {
        panic!("no record")
    };
    assert_eq!(event.policies.len(), journal::limits::POLICIES_MAX);
    world.gate.verdict = Verdict::Deny {
        policies: vec![wordy; 100],
        reason: "r".repeat(100_000),
        advice: None,
    };
    let mut other = World::new();
    let approved = other
        .prepare(FAIL, json!({}))
        .approval_not_needed()
        .unwrap();
    let refusal = approved
        .authorize(&mut world.gate, &world.state)
        .unwrap_err();
    assert!(other.journal.record2(started(), refusal.record()).is_ok());
}

#[test]
fn an_approvers_name_too_long_for_a_record_refuses_its_call_alone() {
    let mut world = World::new();
    let prepared = world.prepare(GUARDED, json!({}));
    let mut receipt = receipt(prepared.call_sha256());
    receipt.approver.identity = "x".repeat(2000);
    let approved = prepared.approve(receipt).unwrap();
    let authorized = approved.authorize(&mut world.gate, &world.state).unwrap();
    let refusal = refused(
        authorized
            .record(&world.journal, &mut world.first)
            .unwrap_err(),
    );
    assert_eq!(refusal.kind, RefusalKind::Invalid);
    assert!(refusal.reason.contains("approval.approver"), "{refusal}");
    assert!(world.first.is_some());
}

#[test]
fn a_worker_that_does_not_start_is_an_outcome_and_no_effect() {
    type Make = fn() -> StartError;
    let errors: [(Make, Option<Lack>); 4] = [
        (
            || StartError::Unavailable {
                reason: "no namespaces".to_owned(),
            },
            Some(Lack::Isolation),
        ),
        (
            || StartError::NoRoom {
                reason: "8 of 8 workers are in use".to_owned(),
            },
            Some(Lack::Room),
        ),
        (
            || StartError::ProgramChanged {
                path: "/usr/bin/tool".to_owned(),
            },
            None,
        ),
        (
            || StartError::Failed {
                step: "clone".to_owned(),
                reason: "ENOMEM".to_owned(),
            },
            Some(Lack::Isolation),
        ),
    ];
    for (make, lack) in errors {
        let mut world = World::new();
        world.tier.next(Script::Refuses(make()));
        let prepared = world.prepare(FAIL, json!({}));
        let recorded = world.record(prepared);
        let settled = recorded.dispatch(&mut world.executor).unwrap_err();
        let reason = make().to_string();
        assert_eq!(*settled.outcome(), Outcome::NotStarted { reason });
        let outcome = settled.record().unwrap();
        assert_eq!(outcome.lack, lack);
        let Some(Event::CallSettled(event)) = world.events().pop() else {
            panic!("no record")
        };
        assert_eq!(event.outcome.status, journal::OutcomeStatus::NotStarted);
        assert!(!event.effect_happened && event.worker.is_none());
        // Nothing ran, so the session may go on.
        let next = world.prepare(FAIL, json!({"n": "2"}));
        drop(world.record(next));
    }
}

#[test]
fn a_descriptor_and_holdings_that_do_not_fit_start_nothing() {
    let mut world = World::new();
    let proposed = world.propose(FAIL, json!({}));
    let descriptor = command(&proposed, &world.tier).unwrap();
    let mut odd = work(Descriptor::Command(Box::new(descriptor)));
    odd.holdings.channel = Some("/run/channel".into());
    let prepared = proposed.prepared(odd).unwrap();
    let recorded = world.record(prepared);
    let settled = recorded.dispatch(&mut world.executor).unwrap_err();
    let reason = settled.outcome().reason().unwrap().to_owned();
    assert!(
        reason.contains("lowering") && reason.contains("channel"),
        "{reason}"
    );
    assert!(world.tier.log().is_empty());
    settled.record().unwrap();
}

#[test]
fn a_recorded_call_that_must_not_start_any_more_is_settled_as_not_started() {
    let mut world = World::new();
    let prepared = world.prepare_create("a");
    let recorded = world.record(prepared);
    let outcome = recorded
        .not_started("the ledger failed".to_owned())
        .record()
        .unwrap();
    let reason = "the ledger failed".to_owned();
    assert_eq!(outcome.outcome, Outcome::NotStarted { reason });
    assert_eq!(
        world.kinds(),
        ["RunStarted", "CallDispatching", "CallSettled"]
    );
    assert!(world.tier.log().is_empty());
    assert_eq!((world.out("a"), world.candidates()), (None, 0));
}
