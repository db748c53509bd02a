use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::terms::tests::terms;

const MESSAGES_ROUTE: Route = Route::Messages { beta: true };

fn guard() -> Guard {
    Guard::new(terms()).unwrap()
}

fn minimal() -> Value {
    json!({
        "model": "claude-test-1",
        "max_tokens": 5,
        "messages": [{"role": "user", "content": "hello"}],
    })
}

fn with(field: &str, value: Value) -> Value {
    let mut body = minimal();
    body[field] = value;
    body
}

fn with_block(block: Value) -> Value {
    with("messages", json!([{"role": "user", "content": [block]}]))
}

fn admit(guard: &mut Guard, body: &Value) -> Result<Admitted, Refusal> {
    guard.admit(MESSAGES_ROUTE, &[], body.to_string().as_bytes())
}

/// The message of the 400 that `body` meets.
fn refused(body: &Value) -> String {
    let mut guard = guard();
    let refusal = admit(&mut guard, body).unwrap_err();
    assert_eq!(refusal.status, 400, "{body}: {}", refusal.reason);
    assert_eq!((guard.requests(), guard.reserved_output_tokens()), (0, 0));
    refusal.reason
}

/// What a real coding agent sends, in small.
fn full() -> Value {
    let short = json!({"type": "ephemeral"});
    let hour = json!({"type": "ephemeral", "ttl": "1h"});
    json!({
        "model": "claude-test-1",
        "max_tokens": 100,
        "stream": true,
        "temperature": 1,
        "top_p": 0.9,
        "top_k": 5,
        "stop_sequences": ["END"],
        "metadata": {"user_id": "user_1"},
        "system": [
            {"type": "text", "text": "a"},
            {"type": "text", "text": "b", "cache_control": short},
            {"type": "text", "text": "c", "cache_control": hour},
        ],
        "tools": [
            {"name": "mcp__s__read", "description": "d", "input_schema": {"type": "object",
              "properties": {"n": {"type": "integer", "maximum": 9_007_199_254_740_993_u64}}}},
            {"type": "custom", "name": "t", "input_schema": {}, "cache_control": short},
        ],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
        "thinking": {"type": "enabled", "budget_tokens": 50, "display": "updates"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "cache_control": short,
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "hello", "citations": null},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                  "data": "AA=="}},
                {"type": "document", "title": "t", "source": {"type": "text",
                  "media_type": "text/plain", "data": "x"}},
                {"type": "document", "source": {"type": "base64",
                  "media_type": "application/pdf", "data": "AA=="}}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "redacted_thinking", "data": "d"},
                {"type": "tool_use", "id": "toolu_1", "name": "t",
                  "input": {"id": 12_345_678_901_234_567_890_u64, "x": 0.1}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": false,
                  "content": [{"type": "text", "text": "r"}]},
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": "plain"},
                {"type": "tool_result", "tool_use_id": "toolu_3"}]},
        ],
    })
}

#[test]
fn a_whole_request_of_a_real_client_is_rebuilt_to_the_same_value() {
    let admitted = admit(&mut guard(), &full()).unwrap();
    let rebuilt: Value = serde_json::from_slice(&admitted.body).unwrap();
    assert_eq!(rebuilt, full());
    assert!(admitted.streaming);
    assert_eq!(admitted.path, "/v1/messages?beta=true");
    assert_eq!((admitted.number, admitted.reserved_output_tokens), (1, 100));
}

#[test]
fn a_rebuilt_body_has_one_form_whatever_the_client_wrote() {
    let spaced = br#" { "messages" :[{"content":"hell\u006f","role":"user"}],
        "max_tokens": 5, "model":"claude-test-1" } "#;
    let admitted = guard().admit(MESSAGES_ROUTE, &[], spaced).unwrap();
    assert_eq!(
        String::from_utf8(admitted.body).unwrap(),
        r#"{"max_tokens":5,"messages":[{"content":"hello","role":"user"}],"model":"claude-test-1"}"#
    );
}

#[test]
fn forged_headers_are_dropped_and_the_operators_are_sent() {
    let forged = [
        ("Host", "evil.example"),
        ("X-Api-Key", "forged"),
        ("Authorization", "Bearer forged"),
        ("Cookie", "forged=1"),
        ("anthropic-beta", "forged-2025-01-01"),
        ("anthropic-version", "forged"),
        ("Accept-Encoding", "gzip, br"),
        ("X-Forwarded-For", "forged"),
        ("Content-Type", "application/json; charset=utf-8"),
    ]
    .map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
    let body = minimal().to_string();
    let admitted = guard()
        .admit(MESSAGES_ROUTE, &forged, body.as_bytes())
        .unwrap();
    let sent: Vec<(&str, &str)> = admitted
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        sent,
        [
            ("accept", "application/json"),
            ("accept-encoding", "identity"),
            ("anthropic-version", "2023-06-01"),
            ("anthropic-beta", "one-2025-01-01,two-2025-02-02"),
            ("content-type", "application/json"),
            ("user-agent", concat!("symbi/", env!("CARGO_PKG_VERSION"))),
        ]
    );
}

#[test]
fn without_configured_betas_no_beta_header_is_sent() {
    let mut guard = Guard::new(Terms {
        beta_headers: vec![],
        ..terms()
    })
    .unwrap();
    let admitted = admit(&mut guard, &minimal()).unwrap();
    assert!(
        admitted
            .headers
            .iter()
            .all(|(name, _)| name != "anthropic-beta")
    );
}

#[test]
fn headers_that_contradict_the_body_or_are_too_many_are_refused() {
    let body = minimal().to_string();
    for (name, value) in [
        ("content-type", "text/plain"),
        ("Content-Encoding", "gzip"),
        ("content-type", "application/jsonx"),
    ] {
        let headers = [(name.to_owned(), value.as_bytes().to_vec())];
        let refusal = guard()
            .admit(MESSAGES_ROUTE, &headers, body.as_bytes())
            .unwrap_err();
        assert_eq!(refusal.status, 400, "{name}");
    }
    let many = |count| vec![("x".to_owned(), vec![b'y']); count];
    let long = |bytes| vec![("x".to_owned(), vec![b'y'; bytes - 1])];
    for (headers, good) in [
        (many(REQUEST_HEADERS_MAX), true),
        (many(REQUEST_HEADERS_MAX + 1), false),
        (long(REQUEST_HEADER_BYTES_MAX), true),
        (long(REQUEST_HEADER_BYTES_MAX + 1), false),
    ] {
        let answer = guard().admit(MESSAGES_ROUTE, &headers, body.as_bytes());
        assert_eq!(answer.is_ok(), good);
    }
}

#[test]
fn with_an_output_budget_of_ten_the_third_request_of_five_is_refused() {
    let mut guard = Guard::new(Terms {
        max_total_output_tokens: 10,
        ..terms()
    })
    .unwrap();
    assert_eq!(admit(&mut guard, &minimal()).unwrap().number, 1);
    assert_eq!(admit(&mut guard, &minimal()).unwrap().number, 2);
    let refusal = admit(&mut guard, &minimal()).unwrap_err();
    assert_eq!(refusal.status, 403);
    assert!(
        refusal.reason.contains("already reserved"),
        "{}",
        refusal.reason
    );
    assert_eq!((guard.requests(), guard.reserved_output_tokens()), (2, 10));
}

#[test]
fn every_admitted_request_counts_and_one_past_the_bound_is_refused() {
    let mut guard = Guard::new(Terms {
        max_requests: 3,
        ..terms()
    })
    .unwrap();
    let mut counting = minimal();
    counting.as_object_mut().unwrap().remove("max_tokens");
    let counting = counting.to_string();
    let _ = guard.admit(Route::Head, &[], b"").unwrap();
    let count = guard
        .admit(Route::CountTokens { beta: true }, &[], counting.as_bytes())
        .unwrap();
    assert_eq!((count.number, count.reserved_output_tokens), (2, 0));
    assert_eq!(admit(&mut guard, &minimal()).unwrap().number, 3);
    assert_eq!(admit(&mut guard, &minimal()).unwrap_err().status, 403);
    assert_eq!(guard.admit(Route::Head, &[], b"").unwrap_err().status, 403);
}

#[test]
fn max_tokens_is_required_and_bounded() {
    let mut missing = minimal();
    missing.as_object_mut().unwrap().remove("max_tokens");
    assert_eq!(refused(&missing), "`max_tokens` is required");
    assert!(admit(&mut guard(), &with("max_tokens", json!(100))).is_ok());
    assert_eq!(
        refused(&with("max_tokens", json!(101))),
        "`max_tokens` is 101; this run allows at most 100 a request"
    );
    for bad in [json!(-1), json!(1.5), json!("5"), json!(1e30), json!(null)] {
        assert!(refused(&with("max_tokens", bad)).contains("max_tokens"));
    }
    let thinking = json!({"type": "enabled", "budget_tokens": 101});
    assert!(refused(&with("thinking", thinking)).contains("budget_tokens"));
    let mut guard = guard();
    let huge = with("max_tokens", json!(u64::MAX));
    assert_eq!(admit(&mut guard, &huge).unwrap_err().status, 400);
}

#[test]
fn another_model_is_refused() {
    assert_eq!(
        refused(&with("model", json!("claude-other"))),
        "`model` is `claude-other`; this run may use only `claude-test-1`"
    );
    assert!(refused(&with("model", json!(["claude-test-1"]))).contains("model"));
}

#[test]
fn hosted_tools_are_refused_by_their_type() {
    for kind in [
        "web_search_20250305",
        "code_execution_20250825",
        "bash_20250124",
        "mcp_toolset",
    ] {
        let tools = json!([{"type": kind, "name": "x", "input_schema": {}}]);
        let reason = refused(&with("tools", tools));
        assert!(
            reason.contains("tools.0.type") && reason.contains(kind),
            "{reason}"
        );
    }
    let callers = json!([{"name": "x", "input_schema": {}, "allowed_callers": ["code_execution"]}]);
    assert!(refused(&with("tools", callers)).contains("tools.0.allowed_callers"));
}

#[test]
fn a_tool_that_comes_during_the_conversation_is_held_to_the_same_rule() {
    let say = |blocks: Value| {
        with(
            "messages",
            json!([{"role": "system", "content": blocks, "output_config": {"effort": "low"}}]),
        )
    };
    let added = |tool: Value| json!([{"type": "tool_addition", "tool": tool}]);
    for good in [
        json!("text"),
        json!([]),
        added(json!({"type": "tool_reference", "name": "t"})),
        added(json!({"type": "tool_definition", "definition": {"name": "t", "input_schema": {}}})),
        json!([{"type": "tool_removal", "tool": {"type": "tool_reference", "name": "t"}}]),
    ] {
        assert!(admit(&mut guard(), &say(good)).is_ok());
    }
    let hosted = json!({"type": "web_search_20250305", "name": "w"});
    let hosted = added(json!({"type": "tool_definition", "definition": hosted}));
    assert!(refused(&say(hosted)).contains("tool.definition.type"));
    let server = added(json!({"type": "mcp_toolset", "mcp_server_name": "w"}));
    assert!(refused(&say(server)).contains("tool.type"));
    let format = json!([{"role": "system", "content": "x", "output_config": {"format": {}}}]);
    assert!(refused(&with("messages", format)).contains("messages.0.output_config.format"));
}

#[test]
fn fields_that_reach_beyond_the_model_are_refused_by_name() {
    for field in [
        "mcp_servers",
        "container",
        "service_tier",
        "speed",
        "inference_geo",
        "fallbacks",
        "betas",
        "anthropic_beta",
        "unknown",
    ] {
        let reason = refused(&with(field, json!([])));
        assert_eq!(reason, format!("`{field}` is not a field that may be sent"));
    }
    let reason = refused(&with("metadata", json!({"user_id": "u", "x": 1})));
    assert!(reason.contains("metadata.x"), "{reason}");
}

#[test]
fn sources_by_url_or_file_are_refused_wherever_they_stand() {
    for kind in ["image", "document"] {
        for source in [
            json!({"type": "url", "url": "https://evil.example"}),
            json!({"type": "file", "file_id": "file_1"}),
            json!({"type": "content", "content": []}),
            json!({"type": "base64", "media_type": "image/png", "data": "", "url": "https://e"}),
        ] {
            let block = json!({"type": kind, "source": source});
            assert!(refused(&with_block(block.clone())).contains("content.0.source"));
            let nested = json!({"type": "tool_result", "tool_use_id": "t", "content": [block]});
            assert!(refused(&with_block(nested)).contains("content.0.content.0.source"));
        }
    }
}

#[test]
fn blocks_that_the_provider_would_act_on_are_refused() {
    for kind in [
        "server_tool_use",
        "web_search_tool_result",
        "mcp_tool_use",
        "container_upload",
        "search_result",
        "compaction",
    ] {
        let reason = refused(&with_block(json!({"type": kind})));
        assert!(reason.contains("messages.0.content.0.type"), "{reason}");
    }
    let called = json!({"type": "tool_use", "id": "a", "name": "b", "input": {},
        "caller": {"type": "code_execution_20250825", "tool_id": "x"}});
    assert!(refused(&with_block(called)).contains("caller.type"));
    assert!(refused(&with("system", json!([{"type": "image"}]))).contains("system.0.type"));
    let other = json!([{"role": "tool", "content": "x"}]);
    assert!(refused(&with("messages", other)).contains("messages.0.role"));
}

#[test]
fn only_the_context_hint_that_keeps_all_is_forwarded() {
    for keep in [json!("all"), json!({"type": "all"})] {
        let edits = json!({"edits": [{"type": "clear_thinking_20251015", "keep": keep}]});
        assert!(admit(&mut guard(), &with("context_management", edits)).is_ok());
    }
    for edit in [
        json!({"type": "clear_tool_uses_20250919"}),
        json!({"type": "compact_20260112"}),
        json!({"type": "clear_thinking_20251015"}),
        json!({"type": "clear_thinking_20251015", "keep": "some"}),
        json!({"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}),
        json!({"type": "clear_thinking_20251015", "keep": "all", "x": 1}),
    ] {
        let reason = refused(&with("context_management", json!({"edits": [edit]})));
        assert!(reason.contains("context_management.edits.0"), "{reason}");
    }
    let extra = json!({"edits": [], "x": 1});
    assert!(refused(&with("context_management", extra)).contains("context_management.x"));
}

#[test]
fn text_that_two_readers_could_read_differently_is_refused() {
    let twice = br#"{"model":"claude-test-1","model":"other","max_tokens":5,"messages":[]}"#;
    let refusal = guard().admit(MESSAGES_ROUTE, &[], twice).unwrap_err();
    assert!(
        refusal.reason.contains("duplicate key `model`"),
        "{}",
        refusal.reason
    );
    for bad in [
        &b""[..],
        b"[]",
        b"null",
        b"{}{}",
        b"\xff",
        b"{\"model\":NaN}",
    ] {
        let refusal = guard().admit(MESSAGES_ROUTE, &[], bad).unwrap_err();
        assert_eq!(refusal.status, 400);
    }
    let deep = format!("{}{}", "[".repeat(70), "]".repeat(70));
    let input: Value = serde_json::from_str(&deep).unwrap();
    let deep = json!({"type": "tool_use", "id": "a", "name": "b", "input": {"x": input}});
    assert!(refused(&with_block(deep)).contains("nested deeper"));
}

#[test]
fn the_body_is_accepted_at_the_limit_and_refused_one_past_it() {
    let sized = |bytes: usize| {
        let empty = with("system", json!("")).to_string().len();
        with("system", json!("x".repeat(bytes - empty))).to_string()
    };
    let at_limit = sized(REQUEST_BYTES_MAX);
    assert_eq!(at_limit.len(), REQUEST_BYTES_MAX);
    assert!(
        guard()
            .admit(MESSAGES_ROUTE, &[], at_limit.as_bytes())
            .is_ok()
    );
    let past = sized(REQUEST_BYTES_MAX + 1);
    let refusal = guard()
        .admit(MESSAGES_ROUTE, &[], past.as_bytes())
        .unwrap_err();
    assert_eq!(refusal.status, 400);
}

#[test]
fn counting_takes_no_field_that_generates() {
    let body = minimal().to_string();
    let refusal = guard()
        .admit(Route::CountTokens { beta: false }, &[], body.as_bytes())
        .unwrap_err();
    assert!(refusal.reason.contains("max_tokens"), "{}", refusal.reason);
    assert_eq!(
        guard().admit(Route::Head, &[], b"x").unwrap_err().status,
        400
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::btree_map("[a-z_]{0,8}", inner, 0..6)
                .prop_map(|map| Value::from(serde_json::Map::from_iter(map))),
        ]
    })
}

proptest! {
    #[test]
    fn no_bytes_make_the_guard_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = guard().admit(MESSAGES_ROUTE, &[(String::new(), bytes.clone())], &bytes);
    }

    #[test]
    fn no_value_in_any_field_makes_the_guard_panic_or_be_charged_for_a_refusal(
        field in 0..16_usize,
        value in any_json(),
    ) {
        let mut body = full();
        let names: Vec<String> = body.as_object().unwrap().keys().cloned().collect();
        let name = names[field % names.len()].clone();
        body[&name] = value;
        let mut guard = guard();
        let admitted = admit(&mut guard, &body).is_ok();
        prop_assert_eq!(guard.requests(), u64::from(admitted));
    }

    #[test]
    fn a_rebuilt_body_parses_to_the_same_value(input in any_json(), text in "\\PC{0,40}") {
        let body = with("messages", json!([
            {"role": "user", "content": text},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "a", "name": "b", "input": {"x": input}}]},
        ]));
        let admitted = admit(&mut guard(), &body).unwrap();
        prop_assert_eq!(serde_json::from_slice::<Value>(&admitted.body).unwrap(), body);
    }
}
