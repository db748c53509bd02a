//! The agent's own launch: a call like every other, alive while others run.

use std::path::Path;
use std::time::Duration;

use governance::{EndCause, Outcome, RefusalKind};
use serde_json::json;
use symbi_runtime::reasoning::governed_session::LaunchEnd;
use testkit::tier::{Happened, Play, PlayedOutput};

use crate::support::session::{Governed, Setup, agent_ended, agent_plan, refused, succeeded};
use crate::support::until;

fn setup() -> Setup {
    Setup::default().launch(agent_plan(
        &["sleep", "60"],
        Path::new("/run/channel"),
        false,
    ))
}

fn launch_refused(end: LaunchEnd) -> governance::Refusal {
    match end {
        LaunchEnd::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

async fn launched(
    setup: Setup,
) -> (
    Governed,
    symbi_runtime::reasoning::governed_session::LaunchedAgent,
) {
    let governed = setup.start();
    governed.tier.next_runs(Play::runs_on());
    let agent = governed.session.launch("command").await.unwrap();
    (governed, agent)
}

#[tokio::test]
async fn an_agent_lives_while_its_calls_run_and_its_end_is_recorded() {
    let (governed, agent) = launched(setup()).await;
    succeeded(governed.call("1", "scale", json!({"count": 1})).await);
    assert!(governed.tier.end(0, Play::exits(0).stdout("report")));
    let outcome = agent_ended(agent.ended().await);
    assert_eq!(outcome.outcome, Outcome::Succeeded);
    assert_eq!(outcome.output.stdout, b"report");
    governed.close().await.unwrap();
    let kinds = governed.kinds();
    assert_eq!(kinds.len(), 6, "{kinds:?}");
    let launch = &governed.of_kind("CallDispatching")[0];
    assert_eq!(launch["descriptor"]["kind"], "launch");
    assert_eq!(launch["descriptor"]["argv"], json!(["sleep", "60"]));
    assert_eq!(launch["descriptor"]["task"], "count the rows");
    assert!(launch["descriptor"]["policy_sha256"].is_string());
    assert_eq!(governed.terminal()["calls"], 1, "a launch is no attempt");
}

#[tokio::test]
async fn a_second_launch_and_one_after_a_call_are_refused() {
    let (governed, agent) = launched(setup()).await;
    let second = governed.session.launch("command").await.unwrap_err();
    let refusal = launch_refused(second);
    assert!(refusal.reason.contains("already"), "{refusal}");
    assert!(governed.tier.end(0, Play::exits(0)));
    agent_ended(agent.ended().await);
    governed.close().await.unwrap();

    let governed = setup().start();
    succeeded(governed.call("1", "scale", json!({"count": 1})).await);
    let late = launch_refused(governed.session.launch("command").await.unwrap_err());
    assert!(late.reason.contains("before any tool call"), "{late}");
    governed.close().await.unwrap();
    assert_eq!(governed.tier.started(), 1);
}

#[tokio::test]
async fn a_launch_that_policy_denies_starts_nothing() {
    let policy = r#"permit(principal, action == Action::"tool_call::scale", resource);"#;
    let governed = setup().policies(policy).start();
    let refusal = launch_refused(governed.session.launch("command").await.unwrap_err());
    assert_eq!(refusal.kind, RefusalKind::Denied);
    governed.close().await.unwrap();
    assert_eq!(governed.tier.started(), 0);
    assert_eq!(governed.kinds(), ["RunStarted", "CallRefused", "RunEnded"]);
}

#[tokio::test]
async fn a_launch_that_demands_approval_is_shown_whole_and_waits() {
    let plan = agent_plan(&["sleep", "60"], Path::new("/run/channel"), true);
    let governed = Setup::default().launch(plan).start();
    governed.tier.next_runs(Play::runs_on());
    let session = governed.session.clone();
    let launch = tokio::spawn(async move { session.launch("command").await });
    let held = governed.held().await;
    for part in ["policy_sha256", r#"["sleep","60"]"#, "count the rows"] {
        assert!(held.call.as_str().contains(part), "{}", held.call.as_str());
    }
    assert_eq!(governed.tier.started(), 0);
    governed.approve(&held);
    let agent = launch.await.unwrap().unwrap();
    assert!(governed.tier.end(0, Play::exits(0)));
    agent_ended(agent.ended().await);
    governed.close().await.unwrap();
}

#[tokio::test]
async fn a_close_while_the_agent_runs_writes_the_end_only_after_its_removal() {
    let (governed, agent) = launched(setup()).await;
    succeeded(governed.call("1", "scale", json!({"count": 1})).await);
    assert_eq!(
        governed.close().await.unwrap_err(),
        EndCause::ClosedWithCall
    );
    let outcome = agent_ended(agent.ended().await);
    assert!(matches!(outcome.outcome, Outcome::Failed { .. }));
    assert!(
        governed
            .tier
            .log()
            .contains(&Happened::Removed { worker: 0 })
    );
    let kinds = governed.kinds();
    assert!(
        kinds.ends_with(&["CallSettled".to_owned(), "RunEnded".to_owned()]),
        "{kinds:?}"
    );
    assert_eq!(governed.terminal()["completed"], false);
    assert_eq!(
        governed.of_kind("CallSettled").len(),
        2,
        "the earlier effect stays, once"
    );
}

#[tokio::test]
async fn an_agent_whose_removal_is_not_confirmed_makes_the_end_an_error() {
    let (governed, agent) = launched(setup()).await;
    assert!(
        governed
            .tier
            .end(0, Play::exits(0).removal_fails("a process is stuck"))
    );
    let outcome = agent_ended(agent.ended().await);
    assert!(matches!(outcome.outcome, Outcome::Unconfirmed { .. }));
    let closed = governed.close().await;
    assert!(
        matches!(closed, Err(EndCause::Unconfirmed { .. })),
        "{closed:?}"
    );
}

#[tokio::test]
async fn an_owner_that_drops_its_agent_stops_it_and_the_call_that_runs() {
    let (governed, agent) = launched(setup()).await;
    governed.tier.next_runs(Play::runs_on());
    let running = governed.spawn("1", "scale", json!({"count": 1}));
    governed.until_started(2).await;
    drop(agent);
    until("both removals", || governed.tier.live().is_empty()).await;
    crate::support::settled(running.await.unwrap());
    let closed = governed.close().await.unwrap_err();
    assert_eq!(
        closed,
        EndCause::AbandonedCall {
            call_id: "launch".to_owned()
        }
    );
    assert_eq!(governed.terminal()["completed"], false);
}

#[tokio::test]
async fn a_launch_dropped_while_it_is_held_starts_nothing() {
    let plan = agent_plan(&["sleep", "60"], Path::new("/run/channel"), true);
    let governed = Setup::default().launch(plan).start();
    let session = governed.session.clone();
    let launch = tokio::spawn(async move { session.launch("command").await });
    governed.held().await;
    launch.abort();
    until("the withdrawal", || {
        !governed.of_kind("CallWithdrawn").is_empty()
    })
    .await;
    governed.close().await.unwrap();
    assert_eq!(governed.tier.started(), 0);
}

#[tokio::test]
async fn the_deadline_ends_the_agent_too() {
    let lifetime = Duration::from_millis(300);
    let (governed, agent) = launched(setup().lifetime(lifetime)).await;
    let outcome = agent_ended(agent.ended().await);
    let Outcome::Failed { reason } = outcome.outcome else {
        panic!("{outcome:?}");
    };
    assert!(reason.contains("lifetime"), "{reason}");
    assert_eq!(
        governed.close().await.unwrap_err(),
        EndCause::Deadline { lifetime }
    );
}

#[tokio::test]
async fn a_wire_client_cannot_take_the_launchs_identity() {
    let (governed, agent) = launched(setup()).await;
    let refusal = refused(governed.call("launch", "scale", json!({"count": 1})).await);
    assert!(refusal.reason.contains("reuse"), "{refusal}");
    assert!(governed.tier.end(0, Play::exits(0)));
    agent_ended(agent.ended().await);
    governed.close().await.unwrap();
}

#[tokio::test]
async fn a_launch_cancelled_after_an_effect_leaves_that_effect_once_and_no_worker() {
    let governed = setup().start_durable();
    governed.tier.next_runs(Play::runs_on());
    governed.tier.next_runs(Play {
        output: PlayedOutput::Written(b"a,b\n".to_vec()),
        ..Play::exits(0)
    });
    let agent = governed.session.launch("command").await.unwrap();
    let copy = json!({"input": "data/a.csv", "output": "out/b.csv"});
    succeeded(governed.call("1", "copy_csv", copy).await);
    governed.session.cancel();
    let outcome = agent_ended(agent.ended().await);
    assert!(matches!(outcome.outcome, Outcome::Failed { .. }));
    assert_eq!(governed.close().await.unwrap_err(), EndCause::Cancelled);
    assert!(governed.tier.live().is_empty());
    assert_eq!(governed.terminal()["completed"], false);
    assert_eq!(governed.of_kind("FilePublicationFinished").len(), 1);
    let written = std::fs::read(governed.project.file("out/b.csv")).unwrap();
    assert_eq!(written, b"a,b\n");
}

#[tokio::test]
async fn an_effect_before_the_agent_was_cancelled_stays_once_and_no_worker_survives() {
    let project = crate::support::Project::new();
    let channel = project.channel_parent().join("channel");
    std::fs::create_dir(&channel).unwrap();
    let plan = agent_plan(&["sleep", "4242"], &channel, false);
    let governed = Setup::default().namespace().launch(plan).start_in(project);
    let agent = governed.session.launch("command").await.unwrap();
    let copy = json!({"input": "data/a.csv", "output": "out/b.csv"});
    succeeded(governed.call("1", "copy_csv", copy).await);
    governed.session.cancel();
    let outcome = agent_ended(agent.ended().await);
    assert!(matches!(outcome.outcome, Outcome::Failed { .. }));
    assert_eq!(governed.close().await.unwrap_err(), EndCause::Cancelled);
    assert_eq!(governed.terminal()["completed"], false);
    assert_eq!(
        std::fs::read(governed.project.file("out/b.csv")).unwrap(),
        b"a,b\n1,2\n"
    );
    assert_eq!(governed.of_kind("FilePublicationFinished").len(), 1);
    let alive = std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        std::fs::read(entry.path().join("cmdline")).is_ok_and(|it| it == b"sleep\x004242\x00")
    });
    assert!(!alive);
}
