//! The rules of a session.

use std::time::Duration;

use governance::limits::{CALLS_MAX, LIFETIME_MAX, TOOL_SET_BYTES_MAX, TOOLS_MAX};
use governance::{
    Admission, BrokerToolCall, EndCause, LoopConfig, LoopState, Refusal, RefusalKind, SessionRules,
    StartRefusal, ToolDefinition,
};
use journal::Stage;
use model::{CallId, RunId};
use serde_json::json;
use testkit::executor::tool;

use crate::world::call;

const NANO: Duration = Duration::from_nanos(1);

fn principal(name: &str) -> LoopState {
    LoopState {
        run: RunId::new(),
        principal: name.to_owned(),
        trusted: [].into(),
    }
}

fn tools(names: &[&str]) -> Vec<ToolDefinition> {
    names.iter().map(|name| tool(name).unwrap()).collect()
}

fn start(config: &LoopConfig) -> Result<SessionRules, StartRefusal> {
    SessionRules::new(&principal("tester"), config, &tools(&["echo", "fail"]))
}

fn with_budget(max_calls: u64) -> SessionRules {
    let config = LoopConfig {
        max_calls,
        ..LoopConfig::default()
    };
    start(&config).unwrap()
}

fn echo(id: &str) -> BrokerToolCall {
    call(id, "echo", json!({}))
}

fn refused(admission: Admission) -> Refusal {
    match admission {
        Admission::Refused(refusal) => *refusal,
        other => panic!("{other:?}"),
    }
}

fn admitted(admission: Admission) {
    assert!(matches!(admission, Admission::Admitted(_)), "{admission:?}");
}

#[test]
fn a_session_takes_one_to_a_thousand_calls() {
    for (max_calls, fine) in [
        (0, false),
        (1, true),
        (CALLS_MAX, true),
        (CALLS_MAX + 1, false),
    ] {
        let config = LoopConfig {
            max_calls,
            ..LoopConfig::default()
        };
        assert_eq!(start(&config).is_ok(), fine, "{max_calls}");
    }
    assert_eq!(CALLS_MAX, 1000);
}

#[test]
fn a_session_lives_longer_than_zero_and_up_to_a_day() {
    assert_eq!(LIFETIME_MAX, Duration::from_secs(86_400));
    for (time, fine) in [
        (Duration::ZERO, false),
        (NANO, true),
        (LIFETIME_MAX, true),
        (LIFETIME_MAX + NANO, false),
    ] {
        let lifetime = LoopConfig {
            lifetime: time,
            ..LoopConfig::default()
        };
        let tool_time = LoopConfig {
            tool_time_limit: time,
            ..LoopConfig::default()
        };
        let approval = LoopConfig {
            approval_timeout: time,
            ..LoopConfig::default()
        };
        for config in [lifetime, tool_time, approval] {
            assert_eq!(start(&config).is_ok(), fine, "{config:?}");
        }
    }
    // A limit that no clock can add would end the session's thread.
    let config = LoopConfig {
        tool_time_limit: Duration::MAX,
        ..LoopConfig::default()
    };
    let refusal = start(&config).unwrap_err();
    assert!(matches!(refusal, StartRefusal::ToolTime { .. }));
    assert!(
        refusal.to_string().contains("tools' time limit"),
        "{refusal}"
    );
}

#[test]
fn a_registry_has_one_to_256_tools_with_names_of_their_own() {
    let start = |tools: &[ToolDefinition]| {
        SessionRules::new(&principal("tester"), &LoopConfig::default(), tools)
    };
    let many: Vec<_> = (0..=TOOLS_MAX)
        .map(|n| tool(&format!("t{n}")).unwrap())
        .collect();
    assert_eq!(start(&[]).unwrap_err(), StartRefusal::NoTools);
    assert!(start(&many[..1]).is_ok() && start(&many[..TOOLS_MAX]).is_ok());
    assert_eq!(
        start(&many).unwrap_err(),
        StartRefusal::TooManyTools {
            count: TOOLS_MAX + 1,
            max: 256
        }
    );
    let twice = start(&tools(&["a", "b", "a"])).unwrap_err();
    assert_eq!(
        twice,
        StartRefusal::DuplicateTool {
            name: "a".to_owned()
        }
    );
}

#[test]
fn a_registry_is_accepted_at_one_mebibyte_and_refused_one_byte_past_it() {
    let with_description = |bytes: usize| {
        let mut tools = tools(&["a"]);
        tools[0].description = "d".repeat(bytes);
        tools
    };
    let start = |tools: &[ToolDefinition]| {
        SessionRules::new(&principal("tester"), &LoopConfig::default(), tools)
    };
    let around = model::Canonical::of(&with_description(0))
        .unwrap()
        .as_str()
        .len();
    let most = TOOL_SET_BYTES_MAX - around;
    assert!(start(&with_description(most)).is_ok());
    assert_eq!(
        start(&with_description(most + 1)).unwrap_err(),
        StartRefusal::ToolSetTooLarge {
            bytes: (1 << 20) + 1,
            max: 1 << 20
        }
    );
}

#[test]
fn a_principal_is_a_plain_name() {
    for bad in ["", "a b", "Agent::\"x\"", &"a".repeat(65)] {
        let state = principal(bad);
        let refusal = SessionRules::new(&state, &LoopConfig::default(), &tools(&["echo"]));
        assert!(
            matches!(refusal, Err(StartRefusal::Principal { .. })),
            "{bad}"
        );
    }
}

#[test]
fn a_budget_of_n_takes_n_calls_and_the_next_ends_the_session() {
    let mut rules = with_budget(3);
    for id in ["1", "2", "3"] {
        admitted(rules.admit(echo(id)));
    }
    assert_eq!((rules.spent(), rules.cause()), (3, None));
    assert!(matches!(rules.admit(echo("4")), Admission::OverBudget));
    assert_eq!(rules.cause(), Some(&EndCause::Budget { max_calls: 3 }));
    assert_eq!(
        rules.spent(),
        3,
        "an attempt that there is not is not spent"
    );
    assert!(matches!(rules.admit(echo("5")), Admission::OverBudget));
}

#[test]
fn every_call_spends_an_attempt_whatever_becomes_of_it() {
    let mut rules = with_budget(4);
    refused(rules.admit(call("a b", "echo", json!({}))));
    refused(rules.admit(call("2", "echo", json!([]))));
    refused(rules.admit(call("3", "no/tool", json!({}))));
    refused(rules.admit(call("4", "unknown", json!({}))));
    assert_eq!(rules.spent(), 4);
    assert!(matches!(rules.admit(echo("5")), Admission::OverBudget));
}

#[test]
fn an_identity_is_used_up_by_allowed_denied_and_invalid_calls_alike() {
    let mut rules = with_budget(100);
    admitted(rules.admit(echo("allowed"))); // what becomes of it later makes no difference
    refused(rules.admit(call("not-an-object", "echo", json!([]))));
    refused(rules.admit(call("bad-tool", "ec ho", json!({}))));
    refused(rules.admit(call("unknown-tool", "unknown", json!({}))));
    for id in ["allowed", "not-an-object", "bad-tool", "unknown-tool"] {
        let refusal = rules.admit(call(id, "echo", json!({"other": "arguments"})));
        let refusal = refused(refusal);
        assert!(refusal.reason.contains("reuse"), "{id}: {}", refusal.reason);
        assert_eq!(
            (refusal.stage, refusal.kind),
            (Stage::Parse, RefusalKind::Invalid)
        );
        assert_eq!(refusal.call_id.as_str(), id);
    }
    assert_eq!(rules.cause(), None, "the session stays usable");
    admitted(rules.admit(echo("fresh")));
}

#[test]
fn an_unusable_identity_uses_up_the_one_that_it_is_recorded_under() {
    let mut rules = with_budget(100);
    refused(rules.admit(call("a b", "echo", json!({}))));
    let recorded = CallId::of_unusable("a b");
    assert!(
        refused(rules.admit(echo(recorded.as_str())))
            .reason
            .contains("reuse")
    );
}

#[test]
fn a_tool_that_is_not_advertised_is_refused_with_the_list() {
    let mut rules = with_budget(2);
    let refusal = refused(rules.admit(call("1", "echos", json!({}))));
    assert_eq!(refusal.reason, "there is no such tool");
    assert_eq!(
        refusal.advice.unwrap(),
        "the tools of this session are: echo, fail"
    );
}

#[test]
fn an_agent_is_launched_once() {
    let mut rules = with_budget(2);
    let launch = rules.admit_launch("command").unwrap();
    assert!(launch.is_launch());
    assert_eq!(rules.spent(), 0, "a launch is no call of the client's");
    let second = rules.admit_launch("command").unwrap_err();
    assert!(second.reason.contains("already"), "{second}");
    let stolen = refused(rules.admit(echo(launch.id().as_str())));
    assert!(stolen.reason.contains("reuse"), "{stolen}");
}

#[test]
fn an_agent_is_launched_before_any_call_even_an_invalid_one() {
    let mut rules = with_budget(2);
    refused(rules.admit(call("1", "echo", json!([]))));
    let late = rules.admit_launch("command").unwrap_err();
    assert!(late.reason.contains("before any tool call"), "{late}");
}

#[test]
fn a_launch_with_an_ill_formed_name_leaves_room_for_a_right_one() {
    let mut rules = with_budget(2);
    assert!(rules.admit_launch("no name").is_err());
    assert!(rules.admit_launch("command").is_ok());
}

#[test]
fn a_registry_that_changes_ends_the_session() {
    let same = tools(&["echo", "fail"]);
    let mut described = same.clone();
    described[0].description.push('!');
    let mut reordered = same.clone();
    reordered.reverse();
    let mut mutating = same.clone();
    mutating[1].read_only = false;
    let others = [
        described,
        reordered,
        mutating,
        same[..1].to_vec(),
        Vec::new(),
    ];
    for other in others {
        let mut rules = with_budget(2);
        assert_eq!(rules.check_registry(&same), Ok(()));
        assert_eq!(rules.check_registry(&other), Err(EndCause::RegistryChanged));
        assert_eq!(rules.cause(), Some(&EndCause::RegistryChanged));
        refused(rules.admit(echo("1")));
    }
}

#[test]
fn the_first_cause_of_an_end_is_kept() {
    let mut rules = with_budget(1);
    let reason = "no space".to_owned();
    let first = EndCause::Journal { reason };
    rules.end(first.clone());
    rules.end(EndCause::Deadline {
        lifetime: Duration::from_secs(1),
    });
    rules.end(EndCause::Cancelled);
    assert_eq!(rules.cause(), Some(&first));
}

#[test]
fn an_ended_session_admits_nothing_and_says_why() {
    let mut rules = with_budget(5);
    rules.end(EndCause::Deadline {
        lifetime: Duration::from_secs(7),
    });
    let refusal = refused(rules.admit(echo("1")));
    assert!(refusal.reason.contains("deadline of 7 s"), "{refusal}");
    assert!(rules.admit_launch("command").is_err());
}
