//! No effect without its record, and no session that hides a journal that failed.

use governance::{EndCause, Outcome};
use journal::limits::{CALL_RESERVED_BYTES, CUSTOM_BYTES_MAX, JOURNAL_BYTES_MAX};
use journal::{Custom, Verdict};
use model::Digest;
use serde_json::json;
use testkit::tier::Play;

use crate::support::session::{Failing, Noted, Setup, second_verifier, settled, succeeded};
use crate::support::{TESTER, refused};

#[tokio::test]
async fn a_pre_effect_record_that_fails_prevents_the_effect_and_every_later_call() {
    for failing in [Failing::new(Some(0), None), Failing::new(None, Some(0))] {
        let governed = Setup::default().writer(failing).start();
        let answer = governed.call("1", "scale", json!({"count": 1})).await;
        let Err(EndCause::Journal { reason }) = answer else {
            panic!("{answer:?}");
        };
        assert!(reason.contains("the disk is"), "{reason}");
        let after = governed.call("2", "scale", json!({"count": 1})).await;
        assert!(matches!(after, Err(EndCause::Journal { .. })), "{after:?}");
        let closed = governed.close().await;
        assert!(
            matches!(closed, Err(EndCause::Journal { .. })),
            "{closed:?}"
        );
        assert_eq!(governed.tier.started(), 0);
    }
}

#[tokio::test]
async fn an_outcome_that_cannot_be_recorded_is_unconfirmed_and_ends_the_session() {
    let failing = Failing::new(Some(1), None);
    let governed = Setup::default().writer(failing).start();
    let outcome = settled(governed.call("1", "scale", json!({"count": 1})).await);
    let Outcome::Unconfirmed { reason } = outcome.outcome else {
        panic!("{outcome:?}");
    };
    assert!(
        reason.contains("succeeded") && reason.contains("recorded"),
        "{reason}"
    );
    assert_eq!(governed.tier.started(), 1);
    let after = governed.call("2", "scale", json!({"count": 1})).await;
    assert!(matches!(after, Err(EndCause::Journal { .. })), "{after:?}");
    assert!(matches!(
        governed.close().await,
        Err(EndCause::Journal { .. })
    ));
}

#[tokio::test]
async fn a_refusal_that_cannot_be_recorded_ends_the_session() {
    let failing = Failing::new(Some(0), None);
    let governed = Setup::default().writer(failing).start();
    let answer = governed.call("1", "scale", json!({"count": "x"})).await;
    assert!(
        matches!(answer, Err(EndCause::Journal { .. })),
        "{answer:?}"
    );
    assert!(matches!(
        governed.close().await,
        Err(EndCause::Journal { .. })
    ));
}

#[tokio::test]
async fn a_terminal_record_that_fails_makes_the_close_an_error() {
    let failing = Failing::new(Some(2), None);
    let governed = Setup::default().writer(failing).start();
    succeeded(governed.call("1", "scale", json!({"count": 1})).await);
    assert!(matches!(
        governed.close().await,
        Err(EndCause::Journal { .. })
    ));
}

#[tokio::test]
async fn a_journal_that_fails_elsewhere_stops_the_call_that_runs() {
    let failing = Failing::new(Some(1), None);
    let governed = Setup::default().writer(failing).start();
    governed.tier.next_runs(Play::runs_on());
    let running = governed.spawn("1", "scale", json!({"count": 1}));
    governed.until_started(1).await;
    assert!(governed.journal.record(custom("elsewhere")).is_err());
    let outcome = settled(running.await.unwrap());
    assert!(matches!(outcome.outcome, Outcome::Unconfirmed { .. }));
    assert!(governed.tier.live().is_empty());
    assert!(matches!(
        governed.close().await,
        Err(EndCause::Journal { .. })
    ));
}

#[tokio::test]
async fn a_call_without_room_for_all_its_records_is_refused_before_its_effect() {
    let governed = Setup::default().start();
    succeeded(governed.call("1", "scale", json!({"count": 1})).await);
    let text = "x".repeat(CUSTOM_BYTES_MAX - 2);
    let filler = governed.journal.clone();
    tokio::task::spawn_blocking(move || {
        // Small records at the end leave no gap that a reservation would fit into.
        while filler.record(custom(&text)).is_ok() {}
    })
    .await
    .unwrap();
    let refusal = refused(governed.call("2", "scale", json!({"count": 1})).await);
    assert_eq!(refusal.kind, governance::RefusalKind::Capacity, "{refusal}");
    assert_eq!(governed.tier.started(), 1);
    governed.close().await.unwrap();
    assert_eq!(governed.terminal()["completed"], true);
    const { assert!(CALL_RESERVED_BYTES < JOURNAL_BYTES_MAX) };
}

#[tokio::test]
async fn the_ledger_has_the_run_before_its_first_effect_and_its_end_after_the_last_record() {
    let register = Noted::default();
    let governed = Setup::default().register(register.clone()).start();
    assert!(register.log.lock().unwrap().is_empty());
    succeeded(governed.call("1", "scale", json!({"count": 1})).await);
    assert_eq!(*register.log.lock().unwrap(), ["started"]);
    governed.close().await.unwrap();
    assert_eq!(*register.log.lock().unwrap(), ["started", "ended"]);
}

#[tokio::test]
async fn a_ledger_that_fails_prevents_the_effect_and_the_run_is_an_error() {
    let register = Noted {
        start_fails: true,
        ..Noted::default()
    };
    let governed = Setup::default().register(register).start();
    let answer = governed.call("1", "scale", json!({"count": 1})).await;
    let Err(EndCause::Journal { reason }) = answer else {
        panic!("{answer:?}");
    };
    assert!(reason.contains("ledger"), "{reason}");
    assert_eq!(governed.tier.started(), 0);
    assert!(governed.close().await.is_err());
    assert_eq!(
        governed.of_kind("CallSettled")[0]["outcome"]["status"],
        "not_started"
    );
    assert_eq!(governed.terminal()["completed"], false);
}

#[tokio::test]
async fn a_one_shot_session_ends_with_its_call_in_one_write() {
    let governed = Setup::default().one_shot().start_durable();
    succeeded(governed.call("1", "scale", json!({"count": 1})).await);
    let ends = ["RunStarted", "CallDispatching", "CallSettled", "RunEnded"];
    assert_eq!(governed.kinds(), ends);
    assert_eq!(governed.terminal()["completed"], true);
    let report = governed.project.verify(governed.run);
    assert_eq!(report.verdict, Verdict::Intact);
}

#[tokio::test]
async fn a_clean_run_verifies_here_and_with_the_second_verifier() {
    let governed = Setup::default().start_durable();
    succeeded(governed.call("1", "scale", json!({"count": 1})).await);
    refused(governed.call("2", "scale", json!({"count": "x"})).await);
    governed.close().await.unwrap();
    let report = governed.project.verify(governed.run);
    assert_eq!(
        (report.verdict, report.completed),
        (Verdict::Intact, Some(true))
    );
    assert_eq!(report.principal.as_deref(), Some(TESTER));
    let project = &governed.project;
    let output = std::process::Command::new("python3")
        .arg(second_verifier())
        .arg(project.journal_path(governed.run))
        .args(["--public-key", &project.key().vkey()])
        .args(["--run-id", &governed.run.to_string(), "--ledger"])
        .arg(journal::ledger_path(&project.state()))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("intact"),
        "{text}{errors}"
    );
}

#[tokio::test]
async fn a_session_without_a_call_still_leaves_its_two_records() {
    let governed = Setup::default().start_durable();
    governed.close().await.unwrap();
    assert_eq!(governed.kinds(), ["RunStarted", "RunEnded"]);
    assert_eq!(
        governed.project.verify(governed.run).verdict,
        Verdict::Intact
    );
}

fn custom(text: &str) -> Custom {
    Custom {
        custom_kind: "filler".to_owned(),
        digest: Digest::of(text.as_bytes()),
        value: text.to_owned(),
    }
}
