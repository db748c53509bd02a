//! From what a client says to a call with a shape.

use governance::{BrokerToolCall, ProposedCall, RefusalKind};
use journal::Stage;
use model::limits::{CALL_BYTES_MAX, CALL_ID_BYTES_MAX, JSON_DEPTH_MAX};
use serde_json::{Value, json};

use crate::world::call;

#[test]
fn a_client_can_say_an_id_a_name_and_arguments_and_nothing_else() {
    let fine = json!({"call_id": "1", "name": "echo", "arguments": {}});
    assert!(serde_json::from_value::<BrokerToolCall>(fine.clone()).is_ok());
    for field in [
        "principal",
        "agent_id",
        "trusted",
        "approval",
        "sandbox",
        "policy",
    ] {
        let mut more = fine.clone();
        more[field] = json!("mine");
        let error = serde_json::from_value::<BrokerToolCall>(more).unwrap_err();
        assert!(error.to_string().contains(field), "{error}");
    }
    for field in ["call_id", "name", "arguments"] {
        let mut less = fine.clone();
        less.as_object_mut().unwrap().remove(field);
        assert!(serde_json::from_value::<BrokerToolCall>(less).is_err());
    }
}

#[test]
fn an_unusable_id_is_refused_under_a_digest_of_itself() {
    for bad in [
        "",
        "a b",
        "ä",
        "\u{202e}",
        &"x".repeat(CALL_ID_BYTES_MAX + 1),
    ] {
        let refusal = ProposedCall::parse(call(bad, "echo", json!({}))).unwrap_err();
        assert_eq!(
            (refusal.stage, refusal.kind),
            (Stage::Parse, RefusalKind::Invalid)
        );
        assert_eq!(refusal.call_id, model::CallId::of_unusable(bad));
        assert!(refusal.reason.contains("call id"), "{}", refusal.reason);
    }
    let longest = "x".repeat(CALL_ID_BYTES_MAX);
    assert!(ProposedCall::parse(call(&longest, "echo", json!({}))).is_ok());
}

#[test]
fn an_unusable_tool_name_is_shown_escaped_and_short() {
    let name = format!("\x1b]0;title\u{202e}{}", "n".repeat(1 << 20));
    let refusal = ProposedCall::parse(call("1", &name, json!({}))).unwrap_err();
    assert!(
        refusal.tool.starts_with("\\u{1b}]0;title\\u{202e}nnn"),
        "{}",
        refusal.tool
    );
    assert!(refusal.tool.len() <= 128);
    assert_eq!(refusal.stage, Stage::Parse);
}

#[test]
fn arguments_that_are_no_object_are_refused() {
    for arguments in [Value::Null, json!([]), json!("{}"), json!(1), json!(true)] {
        let refusal = ProposedCall::parse(call("1", "echo", arguments)).unwrap_err();
        assert_eq!(refusal.reason, "`arguments` is not an object");
    }
}

#[test]
fn a_call_is_accepted_at_its_size_limit_and_refused_one_past_it() {
    // `{"a":"…"}` has 8 bytes around the text; id and name have 5 more.
    let text = "x".repeat(CALL_BYTES_MAX - 8 - 5);
    assert!(ProposedCall::parse(call("1", "echo", json!({"a": text}))).is_ok());
    let refusal =
        ProposedCall::parse(call("12", "echo", json!({"a": text}))).expect_err("one more byte");
    assert!(
        refusal.reason.contains("1048577 bytes"),
        "{}",
        refusal.reason
    );
}

#[test]
fn arguments_are_accepted_at_their_deepest_and_refused_one_level_past_it() {
    let nested = |levels: usize| {
        let inner = (1..levels).fold(json!(1), |inner, _| json!([inner]));
        json!({ "a": inner })
    };
    assert!(ProposedCall::parse(call("1", "echo", nested(JSON_DEPTH_MAX))).is_ok());
    let refusal = ProposedCall::parse(call("1", "echo", nested(JSON_DEPTH_MAX + 1)));
    let refusal = refusal.unwrap_err();
    assert!(
        refusal.reason.contains("deeper than 64"),
        "{}",
        refusal.reason
    );
    assert!(ProposedCall::parse(call("1", "echo", nested(200))).is_err());
}

#[test]
fn a_clients_call_is_never_a_launch() {
    let proposed = ProposedCall::parse(call("launch", "agent", json!({}))).unwrap();
    assert!(!proposed.is_launch());
}
