//! How calls and sessions end when somebody, or time, ends them.

use std::time::{Duration, Instant};

use governance::{EndCause, Outcome};
use serde_json::json;
use testkit::tier::{Happened, Play};
use worker::Ending;

use crate::support::session::{Setup, settled, succeeded};
use crate::support::{call, started_log, until};

fn failed(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Failed { reason } => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_time_limit_is_a_failure_and_the_session_goes_on() {
    let limit = Duration::from_millis(300);
    let governed = Setup::default().tool_time(limit).namespace().start();
    let began = Instant::now();
    let outcome = settled(governed.call("1", "nap", json!({"seconds": 60})).await);
    assert!(failed(&outcome.outcome).contains("time limit of 0.3 s"));
    assert!(began.elapsed() < Duration::from_secs(10));
    succeeded(governed.call("2", "scale", json!({"count": 1})).await);
    governed.close().await.unwrap();
    let settled = &governed.of_kind("CallSettled")[0];
    assert_eq!(settled["outcome"]["status"], "failed");
    assert_eq!(settled["effect_happened"], false);
}

#[tokio::test]
async fn an_unconfirmed_removal_stops_the_session_and_demands_reconciliation() {
    let governed = Setup::default().start();
    governed
        .tier
        .next_runs(Play::exits(0).removal_fails("a process is stuck"));
    let outcome = settled(governed.call("1", "scale", json!({"count": 1})).await);
    assert!(matches!(outcome.outcome, Outcome::Unconfirmed { .. }));
    let after = governed.call("2", "scale", json!({"count": 1})).await;
    assert!(
        matches!(after, Err(EndCause::Unconfirmed { .. })),
        "{after:?}"
    );
    let closed = governed.close().await;
    assert!(
        matches!(closed, Err(EndCause::Unconfirmed { .. })),
        "{closed:?}"
    );
    assert_eq!(governed.tier.started(), 1);
    assert_eq!(governed.terminal()["completed"], false);
}

#[tokio::test]
async fn a_worker_that_the_tier_lost_is_unconfirmed() {
    let governed = Setup::default().start();
    governed.tier.next_runs(Play::ends(Ending::Lost));
    let outcome = settled(governed.call("1", "scale", json!({"count": 1})).await);
    assert!(matches!(outcome.outcome, Outcome::Unconfirmed { .. }));
    assert!(governed.close().await.is_err());
}

#[tokio::test]
async fn a_deadline_stops_what_runs_and_is_the_terminal_records_cause() {
    let lifetime = Duration::from_millis(300);
    let governed = Setup::default().lifetime(lifetime).start();
    governed.tier.next_runs(Play::runs_on());
    let outcome = settled(governed.call("1", "scale", json!({"count": 1})).await);
    assert!(failed(&outcome.outcome).contains("lifetime"));
    let deadline = EndCause::Deadline { lifetime };
    let after = governed.call("2", "scale", json!({"count": 1})).await;
    assert_eq!(after.unwrap_err(), deadline);
    assert_eq!(governed.close().await.unwrap_err(), deadline);
    let cause = governed.terminal()["cause"].as_str().unwrap().to_owned();
    assert!(cause.contains("deadline of 0.3 s"), "{cause}");
}

#[tokio::test]
async fn an_idle_session_ends_at_its_deadline_by_itself() {
    let governed = Setup::default()
        .lifetime(Duration::from_millis(100))
        .start();
    until("the end", || {
        governed.kinds().ends_with(&["RunEnded".to_owned()])
    })
    .await;
    assert!(
        governed.terminal()["cause"]
            .as_str()
            .unwrap()
            .contains("deadline")
    );
}

#[tokio::test]
async fn an_earlier_cause_is_kept_past_the_deadline() {
    let lifetime = Duration::from_millis(200);
    let governed = Setup::default().lifetime(lifetime).start();
    let reason = "more than 64 MiB".to_owned();
    governed.session.cancel_for(EndCause::Transport { reason });
    tokio::time::sleep(lifetime).await;
    governed.session.cancel();
    let closed = governed.close().await;
    assert!(
        matches!(closed, Err(EndCause::Transport { .. })),
        "{closed:?}"
    );
}

#[tokio::test]
async fn an_owner_that_drops_a_running_call_stops_it_and_poisons_the_session() {
    let governed = Setup::default().start();
    governed.tier.next_runs(Play::runs_on());
    let running = governed.spawn("1", "scale", json!({"count": 1}));
    governed.until_started(1).await;
    running.abort();
    let abandoned = EndCause::AbandonedCall {
        call_id: "1".to_owned(),
    };
    until("the removal", || governed.tier.live().is_empty()).await;
    let after = governed.call("2", "scale", json!({"count": 1})).await;
    assert_eq!(after.unwrap_err(), abandoned);
    assert_eq!(governed.close().await.unwrap_err(), abandoned);
    let ends = ["RunStarted", "CallDispatching", "CallSettled", "RunEnded"];
    assert_eq!(governed.kinds(), ends);
    assert_eq!(governed.terminal()["completed"], false);
}

#[tokio::test]
async fn a_client_cannot_take_back_a_running_call() {
    let governed = Setup::default().start();
    governed.tier.next_runs(Play::runs_on());
    let pending = governed
        .session
        .submit(call("1", "scale", json!({"count": 1})))
        .await;
    let pending = pending.unwrap();
    governed.until_started(1).await;
    assert!(!pending.withdraw());
    assert!(governed.tier.end(0, Play::exits(0).stdout("done")));
    assert_eq!(succeeded(pending.await).output.stdout, b"done");
    governed.close().await.unwrap();
}

#[tokio::test]
async fn a_cancel_stops_what_runs_and_awaits_its_removal() {
    let governed = Setup::default().start();
    governed.tier.next_runs(Play::runs_on());
    let running = governed.spawn("1", "scale", json!({"count": 1}));
    governed.until_started(1).await;
    governed.session.cancel();
    let outcome = settled(running.await.unwrap());
    assert!(failed(&outcome.outcome).contains("owner"));
    assert_eq!(governed.close().await.unwrap_err(), EndCause::Cancelled);
    assert!(governed.tier.log().ends_with(&[
        Happened::Stopped { worker: 0 },
        Happened::Ended { worker: 0 },
        Happened::Removed { worker: 0 },
    ]));
    assert_eq!(
        governed.of_kind("CallSettled")[0]["outcome"]["status"],
        "failed"
    );
}

#[tokio::test]
async fn a_close_stops_what_runs_and_refuses_what_is_queued() {
    let governed = Setup::default().start();
    governed.tier.next_runs(Play::runs_on());
    let running = governed.spawn("1", "scale", json!({"count": 1}));
    governed.until_started(1).await;
    let queued = governed.spawn("2", "scale", json!({"count": 2}));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(
        governed.close().await.unwrap_err(),
        EndCause::ClosedWithCall
    );
    settled(running.await.unwrap());
    assert_eq!(queued.await.unwrap().unwrap_err(), EndCause::ClosedWithCall);
    assert_eq!(started_log(&governed.tier).len(), 1);
    assert_eq!(governed.terminal()["completed"], false);
}

#[tokio::test]
async fn a_call_that_comes_after_the_close_does_not_spoil_it() {
    let governed = Setup::default().start();
    let (mut closes, mut calls) = (Vec::new(), Vec::new());
    for round in 0..20 {
        let session = governed.session.clone();
        closes.push(tokio::spawn(session.close()));
        calls.push(governed.spawn(&format!("{round}"), "scale", json!({"count": 1})));
    }
    let mut clean = 0;
    for close in closes {
        match close.await.unwrap() {
            Ok(()) => clean += 1,
            Err(cause) => assert_eq!(cause, EndCause::Closed),
        }
    }
    assert_eq!(
        clean, 1,
        "one close is the first, every other one is an error"
    );
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap_err(), EndCause::Closed);
    }
    assert_eq!(governed.kinds(), ["RunStarted", "RunEnded"]);
    assert_eq!(governed.terminal()["completed"], true);
}

#[tokio::test]
async fn the_last_handle_dropped_cancels_what_runs() {
    let governed = Setup::default().start();
    governed.tier.next_runs(Play::runs_on());
    let pending = governed
        .session
        .submit(call("1", "scale", json!({"count": 1})))
        .await;
    let pending = pending.unwrap();
    governed.until_started(1).await;
    let crate::support::Governed { session, tier, .. } = governed;
    drop(session);
    settled(pending.await);
    assert!(tier.live().is_empty());
}

#[tokio::test]
async fn a_worker_that_ignores_its_stop_is_unconfirmed_and_nobody_spins_for_it() {
    let governed = Setup::default().start();
    governed
        .tier
        .next_runs(Play::runs_on().ignores_stop().removal_fails("stuck"));
    let running = governed.spawn("1", "scale", json!({"count": 1}));
    governed.until_started(1).await;
    governed.session.cancel();
    let busy = |at: &str| -> u64 {
        let stat = std::fs::read_to_string(at).unwrap();
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let before = busy("/proc/self/stat");
    let outcome = settled(running.await.unwrap());
    let ticks = busy("/proc/self/stat") - before;
    assert!(
        ticks < 300,
        "{ticks} ticks of CPU in the ten seconds of waiting"
    );
    assert!(matches!(outcome.outcome, Outcome::Unconfirmed { .. }));
    assert!(governed.close().await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_call_that_races_with_the_end_is_always_answered() {
    for _ in 0..100 {
        let governed = Setup::default().start();
        let (session, after) = (governed.session.clone(), governed.session.clone());
        let ends = tokio::spawn(async move { session.close().await });
        let calls = tokio::spawn(async move {
            for id in 0.. {
                let call = after.call(call(&id.to_string(), "scale", json!({"count": 1})));
                match tokio::time::timeout(crate::support::PATIENCE, call).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(_)) => return true,
                    Err(_) => return false,
                }
            }
            true
        });
        let _ = ends.await.unwrap();
        assert!(calls.await.unwrap(), "nobody answers");
    }
}
