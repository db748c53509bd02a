//! What the owner is told while a session lives.

use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::json;
use symbi_runtime::reasoning::governed_session::{CallStep, Progress, RunObserver};
use testkit::tier::Play;

use crate::support::session::{Setup, agent_ended, agent_plan, refused, succeeded};
use crate::support::until;

/// Writes down what it sees, a line each.
#[derive(Default)]
struct Seen(Mutex<Vec<String>>);

impl Seen {
    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl RunObserver for Seen {
    fn see(&self, progress: &Progress<'_>) {
        let line = match progress {
            Progress::Call {
                call_id,
                tool,
                step,
            } => {
                let step = match step {
                    CallStep::Prepared { spent, .. } => format!("prepared, {spent} spent"),
                    CallStep::Held(held) => {
                        assert!(held.held_id.starts_with("held-"));
                        "held".to_owned()
                    }
                    CallStep::Running => "running".to_owned(),
                    CallStep::Refused { refusal, spent } => {
                        format!("refused at {:?}, {spent} spent", refusal.stage)
                    }
                    CallStep::Ended(outcome) => {
                        format!("ended {:?}", outcome.outcome.status())
                    }
                };
                format!("{tool} {call_id}: {step}")
            }
            Progress::AgentSaid(bytes) => format!("said {}", String::from_utf8_lossy(bytes)),
            Progress::Model(step) => panic!("there is no model: {step:?}"),
        };
        self.0.lock().unwrap().push(line);
    }
}

#[tokio::test]
async fn the_owner_is_told_what_an_agent_says_and_how_far_its_calls_are_while_it_runs() {
    let seen = Arc::new(Seen::default());
    let plan = agent_plan(&["sleep", "60"], Path::new("/run/channel"), false);
    let governed = Setup::default()
        .launch(plan)
        .observer(Arc::clone(&seen) as Arc<dyn RunObserver>)
        .start();
    governed.tier.next_runs(Play::runs_on());
    let agent = governed.session.launch("command").await.unwrap();
    assert!(governed.tier.says(0, b"one "));
    until("its first words", || {
        seen.lines().contains(&"said one ".to_owned())
    })
    .await;
    assert!(governed.tier.says(0, b"two "));
    until("its next words", || {
        seen.lines().contains(&"said two ".to_owned())
    })
    .await;
    succeeded(governed.call("1", "scale", json!({"count": 1})).await);
    refused(governed.call("2", "nothing", json!({})).await);
    assert!(governed.tier.end(0, Play::exits(0).stdout("one two three")));
    agent_ended(agent.ended().await);
    governed.close().await.unwrap();
    assert_eq!(
        seen.lines(),
        [
            "command launch: prepared, 0 spent",
            "command launch: running",
            "said one ",
            "said two ",
            "scale 1: prepared, 1 spent",
            "scale 1: running",
            "scale 1: ended Succeeded",
            "nothing 2: refused at Prepare, 2 spent",
            "said three",
            "command launch: ended Succeeded",
        ]
    );
}

#[tokio::test]
async fn the_owner_is_told_that_a_call_waits_for_a_person() {
    let seen = Arc::new(Seen::default());
    let plan = agent_plan(&["sleep", "60"], Path::new("/run/channel"), true);
    let governed = Setup::default()
        .launch(plan)
        .observer(Arc::clone(&seen) as Arc<dyn RunObserver>)
        .start();
    governed.tier.next_runs(Play::exits(0));
    let session = governed.session.clone();
    let launch = tokio::spawn(async move { session.launch("command").await });
    let held = governed.held().await;
    assert_eq!(seen.lines().last().unwrap(), "command launch: held");
    governed.approve(&held);
    agent_ended(launch.await.unwrap().unwrap().ended().await);
    governed.close().await.unwrap();
    assert_eq!(seen.lines()[2], "command launch: running");
}
