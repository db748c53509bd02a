//! Calls that wait for a person: seen as they are, answered once, and gone without a trace.

use std::time::Duration;

use governance::{EndCause, Outcome, RefusalKind};
use model::Digest;
use serde_json::json;
use symbi_runtime::reasoning::governed_session::{DecideError, UncountedAnswer};
use testkit::tier::Play;

use crate::support::session::{Governed, Setup, succeeded};
use crate::support::{TESTER, approver, call, refused, until};

/// Nothing is held any more, and no answer counts.
#[track_caller]
fn assert_gone(governed: &Governed, held_id: &str, digest: Digest) {
    assert!(governed.session.pending().is_empty());
    for approved in [true, false] {
        let late = governed
            .session
            .decide(held_id, digest, approved, approver());
        assert!(matches!(late, Err(DecideError::NotHeld { .. })), "{late:?}");
    }
}

#[tokio::test]
async fn an_approval_lets_the_call_run_once_and_is_recorded_with_it() {
    let governed = Setup::default().start_durable();
    let waiting = governed.spawn("1", "guarded", json!({"count": 99}));
    let held = governed.held().await;
    assert_eq!(
        (held.principal.as_str(), held.tool.as_str()),
        (TESTER, "guarded")
    );
    assert!(
        held.call.as_str().contains(r#""argv":["echo","10"]"#),
        "{}",
        held.call.as_str()
    );
    assert_eq!(held.call_sha256, held.call.digest());
    assert_eq!(held.review_sha256, held.review.sha256());
    for part in [
        &held.held_id,
        TESTER,
        &held.expires_at,
        &held.call_sha256.to_hex(),
    ] {
        assert!(held.review.text().contains(part), "{part}");
    }
    assert_eq!(governed.tier.started(), 0);
    governed.approve(&held);
    let again = governed
        .session
        .decide(&held.held_id, held.review_sha256, true, approver());
    assert!(matches!(again, Err(DecideError::NotHeld { .. })));
    let outcome = succeeded(waiting.await.unwrap());
    assert_eq!(outcome.call_sha256, held.call_sha256);
    assert_gone(&governed, &held.held_id, held.review_sha256);
    assert_eq!(governed.tier.started(), 1);
    let record = &governed.of_kind("CallDispatching")[0];
    let approval = &record["approval"];
    assert_eq!(approval["held_id"], held.held_id.as_str());
    assert_eq!(approval["surface"], "terminal");
    assert_eq!(approval["approver"], "uid 1000");
    assert_eq!(approval["review_sha256"], held.review_sha256.to_hex());
    let time = |key: &str| approval[key].as_str().unwrap().to_owned();
    assert!(time("created_at") <= time("decided_at") && time("decided_at") <= time("expires_at"));
    governed.close().await.unwrap();
}

#[tokio::test]
async fn an_answer_that_names_another_review_or_call_does_not_count() {
    let governed = Setup::default().start();
    let waiting = governed.spawn("1", "guarded", json!({"count": 1}));
    let held = governed.held().await;
    let other = Digest::of(b"another text");
    let wrong = governed
        .session
        .decide(&held.held_id, other, true, approver());
    assert!(matches!(wrong, Err(DecideError::OtherReview { .. })));
    let unknown = governed
        .session
        .decide("held-0", held.review_sha256, true, approver());
    assert!(matches!(unknown, Err(DecideError::NotHeld { .. })));
    assert_eq!(governed.session.pending().len(), 1);
    governed.approve(&held);
    succeeded(waiting.await.unwrap());
    governed.close().await.unwrap();
}

#[tokio::test]
async fn a_denial_leaves_no_effect_nothing_pending_and_a_session_that_completes() {
    let governed = Setup::default().start();
    let waiting = governed.spawn("1", "guarded_copy", copy());
    let held = governed.held().await;
    assert_eq!(governed.project.candidates().len(), 0);
    let digest = held.review_sha256;
    governed
        .session
        .decide(&held.held_id, digest, false, approver())
        .unwrap();
    let refusal = refused(waiting.await.unwrap());
    assert_eq!(refusal.kind, RefusalKind::NotApproved);
    assert!(refusal.reason.contains("uid 1000"), "{refusal}");
    assert_gone(&governed, &held.held_id, digest);
    assert_eq!(governed.project.staged(), 0);
    let refusal = refused(governed.call("1", "guarded", json!({"count": 2})).await);
    assert!(refusal.reason.contains("reuse"), "{refusal}");
    governed.close().await.unwrap();
    assert_eq!(governed.tier.started(), 0);
    assert!(!governed.project.exists("out/b.csv"));
}

#[tokio::test]
async fn an_expired_call_is_refused_with_its_timeout_and_a_late_answer_is_an_error() {
    let timeout = Duration::from_millis(200);
    let governed = Setup::default().approval_time(timeout).start();
    let waiting = governed.spawn("1", "guarded", json!({"count": 1}));
    let held = governed.held().await;
    let refusal = refused(waiting.await.unwrap());
    assert_eq!(refusal.kind, RefusalKind::NotApproved);
    assert!(refusal.reason.contains("timeout of 0.2 s"), "{refusal}");
    assert_gone(&governed, &held.held_id, held.review_sha256);
    governed.close().await.unwrap();
    assert_eq!(governed.terminal()["completed"], true);
    assert_eq!(governed.tier.started(), 0);
}

#[tokio::test]
async fn a_client_takes_back_a_held_call_and_the_session_goes_on() {
    let governed = Setup::default().start();
    let pending = governed
        .session
        .submit(call("1", "guarded", json!({"count": 1})))
        .await;
    let pending = pending.unwrap();
    let held = governed.held().await;
    assert!(pending.withdraw());
    let refusal = refused(pending.await);
    assert_eq!(refusal.kind, RefusalKind::Withdrawn);
    assert_gone(&governed, &held.held_id, held.review_sha256);
    assert_eq!(governed.of_kind("CallWithdrawn").len(), 1);
    succeeded(governed.call("2", "scale", json!({"count": 1})).await);
    governed.close().await.unwrap();
    assert_eq!(governed.terminal()["calls"], 2);
}

#[tokio::test]
async fn a_client_takes_back_a_queued_call_and_nothing_of_it_is_prepared() {
    let governed = Setup::default().start();
    governed.tier.next_runs(Play::runs_on());
    let first = governed.spawn("1", "scale", json!({"count": 1}));
    governed.until_started(1).await;
    let queued = governed
        .session
        .submit(call("2", "guarded", json!({"count": 1})))
        .await;
    let queued = queued.unwrap();
    assert!(queued.withdraw());
    assert!(governed.tier.end(0, Play::exits(0)));
    succeeded(first.await.unwrap());
    let refusal = refused(queued.await);
    assert_eq!(refusal.kind, RefusalKind::Withdrawn);
    assert_eq!(refusal.call_sha256, None);
    governed.close().await.unwrap();
    assert_eq!(governed.terminal()["calls"], 2);
}

#[tokio::test]
async fn an_owner_that_drops_a_held_call_withdraws_it_alone() {
    let governed = Setup::default().start();
    let waiting = governed.spawn("1", "guarded", json!({"count": 1}));
    let held = governed.held().await;
    waiting.abort();
    until("the withdrawal", || {
        !governed.of_kind("CallWithdrawn").is_empty()
    })
    .await;
    assert_gone(&governed, &held.held_id, held.review_sha256);
    succeeded(governed.call("2", "scale", json!({"count": 1})).await);
    governed.close().await.unwrap();
    assert_eq!(governed.terminal()["completed"], true);
}

#[tokio::test]
async fn an_owner_that_cancels_ends_a_held_call_and_the_session() {
    let governed = Setup::default().start();
    let waiting = governed.spawn("1", "guarded", json!({"count": 1}));
    let held = governed.held().await;
    governed.session.cancel();
    assert_eq!(waiting.await.unwrap().unwrap_err(), EndCause::Cancelled);
    assert_eq!(governed.close().await.unwrap_err(), EndCause::Cancelled);
    assert_gone(&governed, &held.held_id, held.review_sha256);
    assert_eq!(
        governed.kinds(),
        ["RunStarted", "CallWithdrawn", "RunEnded"]
    );
    assert_eq!(governed.terminal()["completed"], false);
}

#[tokio::test]
async fn a_close_while_a_call_is_held_is_an_error_and_the_call_is_gone() {
    let governed = Setup::default().start();
    let waiting = governed.spawn("1", "guarded", json!({"count": 1}));
    let held = governed.held().await;
    assert_eq!(
        governed.close().await.unwrap_err(),
        EndCause::ClosedWithCall
    );
    assert_eq!(
        waiting.await.unwrap().unwrap_err(),
        EndCause::ClosedWithCall
    );
    assert_gone(&governed, &held.held_id, held.review_sha256);
    assert_eq!(
        governed.kinds(),
        ["RunStarted", "CallWithdrawn", "RunEnded"]
    );
    assert_eq!(governed.tier.started(), 0);
}

#[tokio::test]
async fn nobody_is_asked_about_a_call_that_policy_would_deny_even_then() {
    let policy = r#"
permit(principal, action, resource);
@id("never-guarded")
forbid(principal, action == Action::"tool_call::guarded", resource);
"#;
    let governed = Setup::default().policies(policy).start();
    let refusal = refused(governed.call("1", "guarded", json!({"count": 1})).await);
    assert_eq!(refusal.kind, RefusalKind::Denied);
    assert_eq!(refusal.policies[0].id, "never-guarded");
    governed.close().await.unwrap();
    assert_eq!(governed.tier.started(), 0);
}

#[tokio::test]
async fn where_nobody_can_be_asked_a_permit_is_not_enough() {
    let governed = Setup::default().nobody().start();
    let refusal = refused(governed.call("1", "guarded", json!({"count": 1})).await);
    assert_eq!(refusal.kind, RefusalKind::NotApproved);
    assert!(refusal.reason.contains("approval"), "{refusal}");
    assert_eq!(refusal.advice.as_deref(), Some("ask somebody"));
    governed.close().await.unwrap();
    assert_eq!(governed.tier.started(), 0);
}

#[tokio::test]
async fn what_was_approved_is_what_runs_whatever_became_of_the_input() {
    let governed = Setup::default().namespace().start_durable();
    let waiting = governed.spawn("1", "guarded_copy", copy());
    let held = governed.held().await;
    assert!(!governed.project.exists("out/b.csv"));
    std::fs::write(
        governed.project.file("data/a.csv"),
        "changed after the review",
    )
    .unwrap();
    governed.approve(&held);
    let outcome = succeeded(waiting.await.unwrap());
    assert_eq!(outcome.outcome, Outcome::Succeeded);
    let published = std::fs::read(governed.project.file("out/b.csv")).unwrap();
    assert_eq!(published, b"a,b\n1,2\n");
    governed.close().await.unwrap();
}

fn copy() -> serde_json::Value {
    json!({"input": "data/a.csv", "output": "out/b.csv"})
}

#[tokio::test]
async fn a_tool_is_held_as_often_as_it_may_in_an_hour_and_then_refused_unasked() {
    let governed = Setup::default().start();
    let most = governance::limits::HOLDS_PER_HOUR_DEFAULT;
    for number in 0..most {
        let waiting = governed.spawn(&number.to_string(), "guarded", json!({"count": 1}));
        let held = governed.held().await;
        governed
            .session
            .decide(&held.held_id, held.review_sha256, false, approver())
            .unwrap();
        refused(waiting.await.unwrap());
    }
    let refusal = refused(governed.call("more", "guarded", json!({"count": 1})).await);
    assert_eq!(refusal.kind, RefusalKind::NotApproved);
    assert!(refusal.reason.contains("holds_per_hour"), "{refusal}");
    // Another tool can still ask.
    let waiting = governed.spawn("other", "guarded_copy", copy());
    let held = governed.held().await;
    governed
        .session
        .decide(&held.held_id, held.review_sha256, false, approver())
        .unwrap();
    refused(waiting.await.unwrap());
    governed.close().await.unwrap();
}

#[tokio::test]
async fn a_surface_is_woken_by_every_change_and_keeps_no_session_alive() {
    let governed = Setup::default().start();
    let mut calls = governed.session.held_calls();
    let waiting = governed.spawn("1", "guarded", json!({"count": 1}));
    calls.changed().await;
    let held = calls.pending().remove(0);
    calls
        .decide(&held.held_id, held.review_sha256, false, approver())
        .unwrap();
    calls.changed().await;
    assert!(calls.pending().is_empty());
    refused(waiting.await.unwrap());
    governed.close().await.unwrap();
}

#[tokio::test]
async fn an_input_is_shown_from_its_snapshot_and_the_record_says_how_much_was() {
    let governed = Setup::default().namespace().start_durable();
    let waiting = governed.spawn("1", "guarded_copy", copy());
    let held = governed.held().await;
    assert_eq!(held.inputs, ["input"]);
    let path = governed.project.file("data/a.csv");
    std::fs::write(path, "changed after the review").unwrap();
    let calls = governed.session.held_calls();
    let read = |surface, id, input, offset| calls.read_input(surface, id, input, offset);
    let part = read("gate", &held.held_id, "input", 4).unwrap();
    assert_eq!(
        part.content, b"1,2\n",
        "a gap before it: not yet shown from its beginning"
    );
    let part = read("terminal", &held.held_id, "input", 0).unwrap();
    assert_eq!(
        (part.content.as_slice(), part.bytes),
        (&b"a,b\n1,2\n"[..], 8)
    );
    assert_eq!(part.sha256, Digest::of(b"a,b\n1,2\n"));
    for (id, input, offset, why) in [
        ("held-0", "input", 0, "no call is held"),
        (&held.held_id, "output", 0, "no such input; it has: input"),
        (&held.held_id, "input", 8, "nothing begins at 8"),
    ] {
        let refused = read("gate", id, input, offset).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    governed.approve(&held);
    succeeded(waiting.await.unwrap());
    assert!(read("gate", &held.held_id, "input", 0).is_err());
    let approval = governed.of_kind("CallDispatching")[0]["approval"].clone();
    assert_eq!(approval["decision"], "approved");
    let shown = json!([{"input": "input", "shown_bytes": 8, "bytes": 8}]);
    assert_eq!(approval["inputs_shown"], shown);
    governed.close().await.unwrap();
}

#[tokio::test]
async fn what_another_surface_showed_does_not_count_for_the_one_that_answers() {
    let governed = Setup::default().start();
    let waiting = governed.spawn("1", "guarded_copy", copy());
    let held = governed.held().await;
    let calls = governed.session.held_calls();
    calls.read_input("gate", &held.held_id, "input", 0).unwrap();
    governed
        .session
        .decide(&held.held_id, held.review_sha256, false, approver())
        .unwrap();
    refused(waiting.await.unwrap());
    assert_eq!(governed.project.staged(), 0);
    let record = &governed.of_kind("CallRefused")[0];
    assert_eq!(record["approval"]["decision"], "denied");
    assert_eq!(record["approval"]["held_id"], held.held_id.as_str());
    let shown = json!([{"input": "input", "shown_bytes": 0, "bytes": 8}]);
    assert_eq!(record["approval"]["inputs_shown"], shown);
    governed.close().await.unwrap();
}

fn from_gate(number: usize) -> UncountedAnswer {
    UncountedAnswer {
        surface: "gate".to_owned(),
        from: format!("uid {number}\u{1b}[2J"),
        held_id: None,
        reason: "garbage".to_owned(),
    }
}

#[tokio::test]
async fn answers_that_do_not_count_are_recorded_while_the_call_still_waits() {
    let governed = Setup::default().start();
    let waiting = governed.spawn("1", "guarded", json!({"count": 1}));
    let held = governed.held().await;
    governed.session.held_calls().uncounted(from_gate(7));
    let wrong = Digest::of(b"another text");
    let _ = governed
        .session
        .decide(&held.held_id, wrong, true, approver());
    until("both records", || {
        governed.of_kind("AnswerRefused").len() == 2
    })
    .await;
    assert_eq!(governed.session.pending().len(), 1);
    let records = governed.of_kind("AnswerRefused");
    assert_eq!(records[0]["from"], "uid 7\\u{1b}[2J");
    assert_eq!(records[1]["surface"], "terminal");
    assert_eq!(records[1]["held_id"], held.held_id.as_str());
    assert!(
        records[1]["reason"]
            .as_str()
            .unwrap()
            .contains("review digest")
    );
    governed.approve(&held);
    succeeded(waiting.await.unwrap());
    // Late, and twice.
    let _ = governed
        .session
        .decide(&held.held_id, held.review_sha256, true, approver());
    governed.close().await.unwrap();
    let kinds = governed.kinds();
    let ends: Vec<&str> = kinds.iter().rev().take(3).map(String::as_str).collect();
    assert_eq!(ends, ["RunEnded", "AnswerRefused", "CallSettled"]);
}

#[tokio::test]
async fn a_flood_of_wrong_answers_fills_no_journal() {
    let governed = Setup::default().start();
    let waiting = governed.spawn("1", "guarded", json!({"count": 1}));
    let held = governed.held().await;
    for number in 0..approval::limits::ANSWERS_REFUSED_MAX + 100 {
        governed.session.held_calls().uncounted(from_gate(number));
    }
    governed.approve(&held);
    succeeded(waiting.await.unwrap());
    governed.close().await.unwrap();
    let records = governed.of_kind("AnswerRefused");
    assert_eq!(records.len(), approval::limits::ANSWERS_REFUSED_MAX);
    let last: Vec<bool> = records
        .iter()
        .map(|it| it["last"].as_bool().unwrap())
        .collect();
    assert_eq!(last.iter().filter(|last| **last).count(), 1);
    assert_eq!(last.last(), Some(&true));
    assert_eq!(governed.terminal()["completed"], true);
}
