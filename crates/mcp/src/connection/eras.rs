//! The stateless era, and how a connection comes to its era.

use serde_json::{Value, json};

use super::*;
use crate::fixture::{Client, code, object, parse, server, sole_frame, text, tool, with_meta};
use crate::limits::{BROKER_FRAMES_MAX, QUOTE_CHARS_MAX};

const NEWEST: &str = "2025-11-25";
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT: &str = "io.modelcontextprotocol/clientInfo";

fn spoken() -> Value {
    json!([
        "2026-07-28",
        "2025-11-25",
        "2025-06-18",
        "2025-03-26",
        "2024-11-05"
    ])
}

fn stamp() -> Value {
    json!({"io.modelcontextprotocol/serverInfo": {"name": "symbi", "version": "0.1.0"}})
}

fn stateless() -> Client {
    let mut client = Client::silent();
    client.ask_stateless(json!("opening"), "tools/list", json!({}));
    client
}

#[test]
fn server_discover_names_all_revisions_and_exactly_one_capability() {
    let answer = Client::silent().ask_stateless(json!("d"), "server/discover", json!({}));
    assert_eq!(
        answer,
        json!({"jsonrpc": "2.0", "id": "d", "result": {
            "resultType": "complete",
            "supportedVersions": spoken(),
            "capabilities": {"tools": {"listChanged": false}},
            "ttlMs": 300_000,
            "cacheScope": "private",
            "_meta": stamp(),
        }})
    );
}

#[test]
fn server_discover_gives_the_instructions_where_there_are_any() {
    let mut server = server();
    server.instructions = Some("ask".into());
    let connection = Connection::new(&server, Arc::new([]), ConnectionLimits::broker());
    let answer = Client { connection }.ask_stateless(json!(0), "server/discover", json!({}));
    assert_eq!(answer["result"]["instructions"], "ask");
}

#[test]
fn a_client_may_discover_and_then_choose_either_era() {
    let mut client = Client::silent();
    client.ask_stateless(json!("d"), "server/discover", json!({}));
    client.ask_stateless(json!("d2"), "server/discover", json!({}));
    assert!(client.handshake(NEWEST).is_alive());

    let mut client = Client::silent();
    client.ask_stateless(json!("d"), "server/discover", json!({}));
    let listed = client.ask_stateless(json!(1), "tools/list", json!({}));
    assert_eq!(listed["result"]["resultType"], "complete");
    let again = client.ask_stateless(json!("d2"), "server/discover", json!({}));
    assert!(again["result"].is_object(), "also later");
}

#[test]
fn a_request_that_is_refused_decides_no_era() {
    let mut client = Client::silent();
    let refused = [
        ("server/discover", json!({})),
        (
            "server/discover",
            json!({"_meta": {VERSION: "2099-01-01", CAPABILITIES: {}}}),
        ),
        (
            "tools/list",
            json!({"_meta": {VERSION: "2025-11-25", CAPABILITIES: {}}}),
        ),
        (
            "tools/call",
            with_meta(json!({"name": "read_a", "principal": "root"})),
        ),
        ("resources/list", with_meta(json!({}))),
        ("initialize", json!({})),
        ("tools/list", json!({})),
    ];
    for (id, (method, params)) in refused.into_iter().enumerate() {
        let answer = client.ask(json!(id), method, params);
        assert!(answer["error"].is_object(), "{method}: {answer}");
    }
    let mut other = Client::silent();
    other.ask(
        json!("x"),
        "tools/list",
        json!({"_meta": {VERSION: "x", CAPABILITIES: {}}}),
    );
    assert!(other.ask_stateless(json!(1), "tools/list", json!({}))["result"].is_object());
    assert!(client.handshake(NEWEST).is_alive());
}

#[test]
fn a_stateless_list_is_stamped_cacheable_and_in_the_order_of_names() {
    let mut client = Client::silent();
    let schema = json!({"type": "object", "properties": {}});
    let answer = client.ask_stateless(json!(1), "tools/list", json!({}));
    assert_eq!(
        answer["result"],
        json!({
            "resultType": "complete",
            "tools": [
                {"name": "read_a", "description": "does read_a", "inputSchema": schema,
                 "annotations": {"readOnlyHint": true}},
                {"name": "write_b", "description": "does write_b", "inputSchema": schema,
                 "annotations": {"readOnlyHint": false}},
            ],
            "ttlMs": 300_000,
            "cacheScope": "private",
            "_meta": stamp(),
        })
    );
    let again = client.ask_stateless(json!(2), "tools/list", json!({}));
    assert_eq!(again["result"], answer["result"]);
}

#[test]
fn a_stateless_call_is_handed_out_and_answered_with_its_type() {
    let mut client = Client::silent();
    let params = json!({"name": "read_a", "arguments": {"k": 1}, "_meta": {"progressToken": 4}});
    let call = client.call(json!(7), with_meta(params));
    assert_eq!(
        (call.name.as_str(), &call.arguments),
        ("read_a", &object(json!({"k": 1})))
    );
    let progress = client.connection.progress(call.ticket, "runs").unwrap();
    assert_eq!(
        parse(&progress),
        json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {
            "progressToken": 4, "progress": 1, "message": "runs",
        }})
    );
    let mut result = text("done");
    result.structured = Some(object(json!({"a": 1})));
    let frame = client.connection.answer(call.ticket, &result).unwrap();
    assert_eq!(
        parse(&frame),
        json!({"jsonrpc": "2.0", "id": 7, "result": {
            "resultType": "complete",
            "content": [{"type": "text", "text": "done"}],
            "structuredContent": {"a": 1},
            "isError": false,
            "_meta": stamp(),
        }})
    );
    // No handshake was needed, and none is possible any more.
    let late = client.ask(json!(8), "initialize", json!({"protocolVersion": NEWEST}));
    assert_eq!(code(&late), -32022);
    assert_eq!(
        late["error"]["data"],
        json!({"supported": ["2026-07-28"], "requested": NEWEST})
    );
}

#[test]
fn another_revision_is_answered_with_those_that_are_spoken() {
    for asked in ["1900-01-01", "2099-01-01", "2025-11-25", ""] {
        for method in ["server/discover", "tools/list", "tools/call", "no/such"] {
            let params = json!({"name": "read_a", "_meta": {VERSION: asked, CAPABILITIES: {}}});
            let answer = Client::silent().ask(json!(1), method, params);
            assert_eq!(code(&answer), -32022, "{asked} {method}");
            assert_eq!(
                answer["error"]["data"],
                json!({"supported": spoken(), "requested": asked})
            );
        }
    }
    let requested = |asked: &str| {
        let params = json!({"_meta": {VERSION: asked, CAPABILITIES: {}}});
        let answer = Client::silent().ask(json!(1), "server/discover", params);
        answer["error"]["data"]["requested"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let shown = "x".repeat(QUOTE_CHARS_MAX);
    assert_eq!(requested(&"x".repeat(100_000)), format!("{shown}…"));
    // Whoever logs an answer is not to obey what a client wrote.
    assert_eq!(requested("2026\u{9b}2J\u{202e}"), "2026\\u{9b}2J\\u{202e}");
}

#[test]
fn a_stateless_request_without_its_whole_meta_is_refused() {
    let whole = json!({VERSION: "2026-07-28", CAPABILITIES: {}});
    let mut client = stateless();
    for (id, meta) in [
        json!(null),
        json!([]),
        json!({}),
        json!({VERSION: "2026-07-28"}),
        json!({CAPABILITIES: {}}),
        json!({VERSION: null, CAPABILITIES: {}}),
        json!({VERSION: 20_260_728, CAPABILITIES: {}}),
        json!({VERSION: "2026-07-28", CAPABILITIES: null}),
        json!({VERSION: "2026-07-28", CAPABILITIES: []}),
        json!({VERSION: "2026-07-28", CAPABILITIES: {}, CLIENT: "me"}),
        json!({VERSION: "2026-07-28", CAPABILITIES: {}, CLIENT: null}),
    ]
    .into_iter()
    .enumerate()
    {
        for method in ["server/discover", "tools/list", "tools/call", "ping"] {
            let params = json!({"name": "read_a", "_meta": meta});
            let answer = client.ask(json!(format!("{id}{method}")), method, params);
            assert_eq!(code(&answer), -32602, "{method} {meta}");
        }
    }
    let bare = client.frame(&json!({"jsonrpc": "2.0", "id": "b", "method": "tools/list"}));
    assert_eq!(code(&sole_frame(&bare)), -32602);
    let mut open = Client::silent();
    for (id, meta) in [json!({VERSION: "2026-07-28"}), json!({CAPABILITIES: {}})]
        .into_iter()
        .enumerate()
    {
        let answer = open.ask(json!(id), "tools/list", json!({"_meta": meta}));
        assert_eq!(code(&answer), -32602, "also as the first request");
    }
    let mut more = whole;
    more[CLIENT] = json!({"name": "t", "version": "1"});
    more["io.modelcontextprotocol/logLevel"] = json!("debug");
    more["traceparent"] = json!("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01");
    let answer = client.ask(json!("more"), "tools/list", json!({"_meta": more}));
    assert!(answer["result"].is_object(), "{answer}");
}

#[test]
fn the_stateless_era_has_no_ping_and_no_other_method() {
    let mut client = stateless();
    for (id, method) in [
        "ping",
        "initialize",
        "resources/list",
        "prompts/list",
        "logging/setLevel",
        "subscriptions/listen",
        "tasks/get",
        "",
    ]
    .iter()
    .enumerate()
    {
        let answer = client.ask_stateless(json!(id), method, json!({}));
        assert_eq!(code(&answer), -32601, "{method}");
    }
    assert!(
        client
            .notify("notifications/initialized", json!({}))
            .is_empty()
    );
    assert!(client.ask_stateless(json!("l"), "tools/list", json!({}))["result"].is_object());
}

#[test]
fn any_further_stateless_parameter_is_refused() {
    let mut client = stateless();
    for (id, (method, params)) in [
        ("server/discover", json!({"principal": "root"})),
        ("tools/list", json!({"cursor": "x"})),
        ("tools/list", json!({"principal": "root"})),
        ("tools/call", json!({"name": "read_a", "principal": "root"})),
        (
            "tools/call",
            json!({"name": "read_a", "inputResponses": {}}),
        ),
        ("tools/call", json!({"name": "read_a", "requestState": "x"})),
        ("tools/call", json!({"name": "read_a", "arguments": []})),
        ("tools/call", json!({"name": 1})),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = client.ask_stateless(json!(id), method, params.clone());
        assert_eq!(code(&answer), -32602, "{method} {params}");
    }
    assert!(client.ask_stateless(json!("l"), "tools/list", json!({}))["result"].is_object());
}

#[test]
fn a_request_of_the_stateless_era_is_refused_after_initialize() {
    let mut client = Client::ready(NEWEST);
    for (id, method) in ["tools/list", "tools/call", "ping"].into_iter().enumerate() {
        let answer = client.ask_stateless(json!(id), method, json!({"name": "read_a"}));
        assert_eq!(code(&answer), -32600, "{method}");
    }
    let probe = client.frame(&json!({"jsonrpc": "2.0", "id": "d", "method": "server/discover"}));
    assert_eq!(code(&sole_frame(&probe)), -32601);
    assert!(client.is_alive());
}

#[test]
fn an_initialize_that_names_a_revision_too_is_an_initialize() {
    let mut client = Client::silent();
    let params = with_meta(json!({"protocolVersion": NEWEST}));
    let answer = client.ask(json!(0), "initialize", params);
    assert_eq!(answer["result"]["protocolVersion"], NEWEST);
}

#[test]
fn a_stateless_error_that_answers_no_readable_id_has_none() {
    let mut client = stateless();
    let answer = sole_frame(&client.raw("nope\n"));
    assert_eq!(code(&answer), -32700);
    assert_eq!(answer.get("id"), None);
    let null = sole_frame(&Client::silent().raw("nope\n"));
    assert_eq!(null.get("id"), Some(&Value::Null));
}

#[test]
fn identities_limits_and_cancellation_are_the_same_in_both_eras() {
    let mut client = stateless();
    let params = || with_meta(json!({"name": "read_a"}));
    let one = client.call(json!(1), params());
    let replay = client.ask(json!(1), "tools/call", params());
    assert_eq!(replay["error"]["message"], "request id was used before");
    let two = client.call(json!("1"), params());
    let outputs = client.notify("notifications/cancelled", json!({"requestId": 1}));
    assert_eq!(outputs, [Output::Withdraw(one.ticket)]);
    assert_eq!(client.connection.answer(one.ticket, &text("x")), None);
    for id in client.connection.outstanding()..CALLS_OUTSTANDING_MAX {
        client.call(json!(format!("more {id}")), params());
    }
    assert_eq!(
        code(&client.ask(json!("busy"), "tools/call", params())),
        -31000
    );
    assert!(client.connection.answer(two.ticket, &text("x")).is_some());

    let mut client = stateless();
    for id in 1..BROKER_FRAMES_MAX {
        let answer = client.ask_stateless(json!(id), "server/discover", json!({}));
        assert!(answer["result"].is_object());
    }
    let max = BROKER_FRAMES_MAX;
    let outputs = client.raw("{}\n");
    assert_eq!(outputs, [Output::End(EndReason::TooManyFrames { max })]);
}

#[test]
fn a_stateless_list_fits_at_one_frame_and_is_an_error_past_it() {
    let list = |description: usize| {
        let mut tool = tool("a");
        tool.description = "x".repeat(description);
        let connection = Connection::new(&server(), Arc::new([tool]), ConnectionLimits::broker());
        let mut client = Client { connection };
        match &client.request(json!(1), "tools/list", with_meta(json!({})))[..] {
            [Output::Send(frame)] => (frame.len(), parse(frame)),
            other => panic!("{other:?}"),
        }
    };
    let room = FRAME_BYTES_MAX + 1 - list(0).0;
    let (bytes, answer) = list(room);
    assert_eq!(bytes, FRAME_BYTES_MAX + 1);
    assert!(answer["result"].is_object());
    assert_eq!(code(&list(room + 1).1), -32603);
}
