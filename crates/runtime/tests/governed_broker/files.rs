//! One new file, from its snapshot to its receipt, by real workers and a real journal.

use governance::{Outcome, RefusalKind};
use journal::Verdict;
use model::Digest;
use serde_json::json;
use testkit::tier::Play;

use crate::support::refused;
use crate::support::session::{Setup, settled, succeeded};

fn copy(output: &str) -> serde_json::Value {
    json!({"input": "data/a.csv", "output": output})
}

#[tokio::test]
async fn a_file_is_created_with_its_receipt_between_its_two_records() {
    let governed = Setup::default().namespace().start_durable();
    let outcome = succeeded(governed.call("1", "copy_csv", copy("out/b.csv")).await);
    let bytes = std::fs::read(governed.project.file("out/b.csv")).unwrap();
    assert_eq!(bytes, b"a,b\n1,2\n");
    let [created] = outcome.created_files.as_slice() else {
        panic!("{outcome:?}");
    };
    assert_eq!(created.path.as_str(), "out/b.csv");
    assert_eq!(
        (created.bytes, created.sha256),
        (bytes.len() as u64, Digest::of(&bytes))
    );
    governed.close().await.unwrap();
    let ends = [
        "RunStarted",
        "CallDispatching",
        "FilePublicationPrepared",
        "FilePublicationFinished",
        "CallSettled",
        "RunEnded",
    ];
    assert_eq!(governed.kinds(), ends);
    let (prepared, finished) = (&governed.events()[2], &governed.events()[3]);
    assert_eq!(prepared["publication_id"], finished["publication_id"]);
    assert_eq!(finished["confirmed"], true);
    let settled = &governed.events()[4];
    assert_eq!(settled["created_files"][0]["path"], "out/b.csv");
    assert_eq!(settled["effect_happened"], true);
    assert_eq!(
        governed.project.verify(governed.run).verdict,
        Verdict::Intact
    );
    assert!(governed.project.candidates().is_empty());
    assert_eq!(governed.project.staged(), 0);
}

#[tokio::test]
async fn an_existing_output_or_a_missing_parent_is_refused_with_its_path() {
    let governed = Setup::default().start_durable();
    std::fs::write(governed.project.file("out/taken.csv"), "mine").unwrap();
    for output in [
        "out/taken.csv",
        "out/absent/b.csv",
        "data/b.csv",
        "elsewhere/b.csv",
    ] {
        let id = output.replace('/', "-");
        let refusal = refused(governed.call(&id, "copy_csv", copy(output)).await);
        assert_eq!(refusal.kind, RefusalKind::Invalid, "{refusal}");
        assert!(refusal.reason.contains(output), "{refusal}");
        assert_eq!(governed.project.staged(), 0);
    }
    assert_eq!(governed.tier.started(), 0);
    assert_eq!(
        std::fs::read(governed.project.file("out/taken.csv")).unwrap(),
        b"mine"
    );
    governed.close().await.unwrap();
}

#[tokio::test]
async fn a_full_staging_pool_refuses_the_call_starts_nothing_and_names_the_holder() {
    let governed = Setup::default().start_durable();
    let all = worker::limits::CAPACITY_STAGING_MIB_DEFAULT << 20;
    let held = governed.project.pool(all).reserve(all).unwrap();
    let refusal = refused(governed.call("1", "copy_csv", copy("out/b.csv")).await);
    assert_eq!(refusal.kind, RefusalKind::Capacity, "{refusal}");
    let holder = filegrants::Holder::this().to_string();
    assert!(refusal.reason.contains(&holder), "{refusal}");
    assert_eq!(governed.tier.started(), 0);
    drop(held);
    succeeded(governed.call("2", "copy_csv", copy("out/b.csv")).await);
    assert_eq!(governed.project.staged(), 0);
    governed.close().await.unwrap();
}

#[tokio::test]
async fn a_competitor_at_the_target_keeps_its_file_and_the_call_fails() {
    let governed = Setup::default().start_durable();
    governed.tier.next_runs(Play::runs_on());
    let running = governed.spawn("1", "copy_csv", copy("out/b.csv"));
    governed.until_started(1).await;
    std::fs::write(governed.project.file("out/b.csv"), "first").unwrap();
    assert!(governed.tier.end(0, Play::exits(0).writes("second")));
    let outcome = settled(running.await.unwrap());
    assert!(
        matches!(outcome.outcome, Outcome::Failed { .. }),
        "{outcome:?}"
    );
    assert!(outcome.created_files.is_empty());
    assert_eq!(
        std::fs::read(governed.project.file("out/b.csv")).unwrap(),
        b"first"
    );
    let finished = governed.of_kind("FilePublicationFinished");
    assert!(finished.iter().all(|it| it["confirmed"] == false));
    assert!(governed.project.candidates().is_empty());
    succeeded(governed.call("2", "scale", json!({"count": 1})).await);
    governed.close().await.unwrap();
}

#[tokio::test]
async fn a_failed_stopped_or_late_worker_publishes_nothing() {
    let governed = Setup::default().start_durable();
    governed.tier.next_runs(Play::exits(3).writes("half"));
    let outcome = settled(governed.call("1", "copy_csv", copy("out/b.csv")).await);
    assert!(matches!(outcome.outcome, Outcome::Failed { .. }));
    governed.tier.next_runs(Play::runs_on().writes("half"));
    let running = governed.spawn("2", "copy_csv", copy("out/c.csv"));
    governed.until_started(2).await;
    governed.session.cancel();
    settled(running.await.unwrap());
    assert!(governed.close().await.is_err());
    for path in ["out/b.csv", "out/c.csv"] {
        assert!(!governed.project.exists(path));
    }
    assert!(governed.project.candidates().is_empty());
    assert!(governed.of_kind("FilePublicationPrepared").is_empty());
    assert_eq!(governed.project.staged(), 0);
}

#[tokio::test]
async fn without_a_signed_durable_journal_a_file_is_refused_before_its_worker() {
    let governed = Setup::default().start();
    let refusal = refused(governed.call("1", "copy_csv", copy("out/b.csv")).await);
    assert!(refusal.reason.contains("live audit authority"), "{refusal}");
    assert_eq!(governed.tier.started(), 0);
    assert_eq!(governed.project.staged(), 0);
    assert!(!governed.project.exists("out/b.csv"));
    governed.close().await.unwrap();
}

#[tokio::test]
async fn two_sessions_with_one_target_publish_once() {
    let first = Setup::default().namespace().start_durable();
    let outcome = succeeded(first.call("1", "copy_csv", copy("out/b.csv")).await);
    assert_eq!(outcome.created_files.len(), 1);
    first.close().await.unwrap();
    let crate::support::Governed { project, .. } = first;
    let second = Setup::default().namespace().start_in(project);
    let refusal = refused(second.call("1", "copy_csv", copy("out/b.csv")).await);
    assert!(refusal.reason.contains("out/b.csv"), "{refusal}");
    second.close().await.unwrap();
}
