use serde_json::{Value, json};

use super::*;
use crate::fixture::{Client, code, end, object, parse, server, sole_frame, text, tool, withdrawn};
use crate::limits::{
    BROKER_FRAMES_MAX, FRAME_VALUES_MAX, MESSAGE_BYTES_MAX, TEXT_BYTES_MAX, WIRE_ID_BYTES_MAX,
    WIRE_ID_INTEGER_MAX,
};
use crate::revision::REVISIONS;

const NEWEST: &str = "2025-11-25";

fn with_handshake() -> impl Iterator<Item = Revision> {
    REVISIONS.into_iter().filter(|it| !it.is_stateless())
}

#[test]
fn initialize_answers_the_clients_revision_and_exactly_one_capability() {
    for revision in with_handshake() {
        let mut client = Client::silent();
        let answer = client.ask(
            json!(0),
            "initialize",
            json!({
                "protocolVersion": revision.as_str(),
                "capabilities": {"roots": {}},
                "clientInfo": {"name": "t", "version": "1"},
            }),
        );
        assert_eq!(
            answer,
            json!({"jsonrpc": "2.0", "id": 0, "result": {
                "protocolVersion": revision.as_str(),
                "capabilities": {"tools": {"listChanged": false}},
                "serverInfo": {"name": "symbi", "version": "0.1.0"},
            }})
        );
    }
}

#[test]
fn an_unknown_revision_is_answered_with_the_newest() {
    for asked in ["2026-07-28", "2024-10-07", "", "x"] {
        let mut client = Client::silent();
        let answer = client.ask(json!(0), "initialize", json!({"protocolVersion": asked}));
        assert_eq!(answer["result"]["protocolVersion"], NEWEST, "{asked}");
    }
}

#[test]
fn instructions_are_given_where_there_are_any() {
    let mut server = server();
    server.instructions = Some("ask".into());
    let tools: Arc<[Tool]> = Arc::new([]);
    let connection = Connection::new(&server, tools, ConnectionLimits::broker());
    let answer =
        Client { connection }.ask(json!(0), "initialize", json!({"protocolVersion": NEWEST}));
    assert_eq!(answer["result"]["instructions"], "ask");
}

#[test]
fn a_malformed_initialize_is_an_error_and_a_second_attempt_may_be_right() {
    let mut client = Client::silent();
    for (id, params) in [
        json!({}),
        json!({"protocolVersion": 1}),
        json!({"protocolVersion": null}),
        json!({"protocolVersion": NEWEST, "capabilities": []}),
        json!({"protocolVersion": NEWEST, "clientInfo": "x"}),
        json!([]),
        json!(null),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = client.ask(json!(id), "initialize", params.clone());
        assert_eq!(code(&answer), -32602, "{params}");
    }
    assert_eq!(
        code(&client.ask(json!("l"), "tools/list", json!({}))),
        -32600
    );
    assert!(client.handshake(NEWEST).is_alive());
}

#[test]
fn requests_before_initialization_are_protocol_errors_and_the_connection_lives_on() {
    let mut client = Client::silent();
    assert_eq!(client.ask(json!(1), "ping", json!({}))["result"], json!({}));
    assert_eq!(code(&client.ask(json!(2), "tools/list", json!({}))), -32600);
    let call = client.ask(json!(3), "tools/call", json!({"name": "read_a"}));
    assert_eq!(code(&call), -32600);
    // Too early, and so without effect.
    assert!(
        client
            .notify("notifications/initialized", json!({}))
            .is_empty()
    );

    client.ask(json!(4), "initialize", json!({"protocolVersion": NEWEST}));
    let early = client.ask(json!(5), "tools/list", json!({}));
    assert_eq!(code(&early), -32600);
    assert!(
        early["error"]["message"]
            .as_str()
            .unwrap()
            .contains("notifications/initialized")
    );
    let early = client.ask(json!(6), "tools/call", json!({"name": "read_a"}));
    assert_eq!(code(&early), -32600);
    assert_eq!(client.ask(json!(7), "ping", json!({}))["result"], json!({}));

    client.notify("notifications/initialized", json!({}));
    assert!(client.ask(json!(8), "tools/list", json!({}))["result"].is_object());
}

#[test]
fn a_second_initialize_is_a_protocol_error_in_every_state() {
    let mut client = Client::silent();
    client.ask(json!(1), "initialize", json!({"protocolVersion": NEWEST}));
    let again = |client: &mut Client, id: i64| {
        code(&client.ask(
            json!(id),
            "initialize",
            json!({"protocolVersion": "2024-11-05"}),
        ))
    };
    assert_eq!(again(&mut client, 2), -32600);
    client.notify("notifications/initialized", json!({}));
    client.notify("notifications/initialized", json!({}));
    assert_eq!(again(&mut client, 3), -32600);
    assert!(client.ask(json!(4), "tools/list", json!({}))["result"].is_object());
}

#[test]
fn tools_are_listed_exactly_and_in_the_order_of_their_names() {
    let mut client = Client::ready(NEWEST);
    let schema = json!({"type": "object", "properties": {}});
    let expected = json!({"tools": [
        {"name": "read_a", "description": "does read_a", "inputSchema": schema,
         "annotations": {"readOnlyHint": true}},
        {"name": "write_b", "description": "does write_b", "inputSchema": schema,
         "annotations": {"readOnlyHint": false}},
    ]});
    assert_eq!(
        client.ask(json!(1), "tools/list", json!({}))["result"],
        expected
    );
    let meta = client.ask(json!(2), "tools/list", json!({"_meta": {"x": 1}}));
    assert_eq!(meta["result"], expected);
    let bare = client.frame(&json!({"jsonrpc": "2.0", "id": 3, "method": "tools/list"}));
    assert_eq!(sole_frame(&bare)["result"], expected);
}

#[test]
fn a_cursor_or_any_other_parameter_of_tools_list_is_refused() {
    let mut client = Client::ready(NEWEST);
    for (id, params) in [
        json!({"cursor": "x"}),
        json!({"cursor": null}),
        json!({"principal": "root"}),
        json!({"_meta": 1}),
        json!([]),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = client.ask(json!(id), "tools/list", params.clone());
        assert_eq!(code(&answer), -32602, "{params}");
    }
}

#[test]
fn a_list_of_tools_fits_at_one_frame_and_is_an_error_past_it() {
    let length = |client: &mut Client| match &client.request(json!(1), "tools/list", json!({}))[..]
    {
        [Output::Send(frame)] => (frame.len(), parse(frame)),
        other => panic!("{other:?}"),
    };
    let client = |description: usize| {
        let mut tool = tool("a");
        tool.description = "x".repeat(description);
        let tools: Arc<[Tool]> = Arc::new([tool]);
        let connection = Connection::new(&server(), tools, ConnectionLimits::broker());
        Client { connection }.handshake(NEWEST)
    };
    let (envelope, _) = length(&mut client(0));
    let room = FRAME_BYTES_MAX + 1 - envelope;
    let (bytes, answer) = length(&mut client(room));
    assert_eq!(bytes, FRAME_BYTES_MAX + 1);
    assert!(answer["result"].is_object());
    assert_eq!(code(&length(&mut client(room + 1)).1), -32603);
}

#[test]
fn a_call_is_handed_out_with_its_name_and_arguments_and_answered_once() {
    let mut client = Client::ready(NEWEST);
    let call = client.call(
        json!(7),
        json!({"name": "read_a", "arguments": {"k": [1, "v"]}, "_meta": {"claudecode/toolUseId": "t"}}),
    );
    assert_eq!(call.identity, WireId::integer(7).unwrap());
    assert_eq!(call.name, "read_a");
    assert_eq!(call.arguments, object(json!({"k": [1, "v"]})));
    assert_eq!(call.progress_token, None);
    assert_eq!(client.connection.outstanding(), 1);

    let frame = client
        .connection
        .answer(call.ticket, &text("done"))
        .unwrap();
    assert_eq!(
        parse(&frame),
        json!({"jsonrpc": "2.0", "id": 7, "result": {
            "content": [{"type": "text", "text": "done"}], "isError": false,
        }})
    );
    assert_eq!(client.connection.outstanding(), 0);
    assert_eq!(client.connection.answer(call.ticket, &text("twice")), None);
}

#[test]
fn missing_arguments_are_none() {
    let mut client = Client::ready(NEWEST);
    let call = client.call(json!(1), json!({"name": "read_a"}));
    assert_eq!(call.arguments, JsonObject::default());
}

#[test]
fn an_unknown_tool_is_handed_out_to_be_denied_as_a_result() {
    let mut client = Client::ready(NEWEST);
    let call = client.call(
        json!(1),
        json!({"name": "no such\u{0} tool", "arguments": {}}),
    );
    assert_eq!(call.name, "no such\u{0} tool");
    let mut denial = text("there is no such tool");
    denial.is_error = true;
    let frame = client.connection.answer(call.ticket, &denial).unwrap();
    assert_eq!(parse(&frame)["result"]["isError"], true);
}

#[test]
fn a_call_with_any_further_parameter_or_a_wrong_shape_is_a_protocol_error() {
    let mut client = Client::ready(NEWEST);
    for (id, params) in [
        json!({"name": "read_a", "principal": "Agent::\"root\""}),
        json!({"name": "read_a", "agent_id": "a"}),
        json!({"name": "read_a", "trusted_context": {}}),
        json!({"name": "read_a", "approval": "yes"}),
        json!({"name": "read_a", "sandbox": {"tier": "none"}}),
        json!({"name": "read_a", "task": {}}),
        json!({"name": "read_a", "": 1}),
        json!({"name": "read_a", "arguments": null}),
        json!({"name": "read_a", "arguments": []}),
        json!({"name": "read_a", "arguments": "{}"}),
        json!({"name": "read_a", "_meta": null}),
        json!({"name": "read_a", "_meta": {"progressToken": 1.5}}),
        json!({"name": "read_a", "_meta": {"progressToken": null}}),
        json!({"name": 1}),
        json!({"name": null}),
        json!({"arguments": {}}),
        json!(["read_a", {}]),
        json!("read_a"),
        json!(null),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = client.ask(json!(id), "tools/call", params.clone());
        assert_eq!(code(&answer), -32602, "{params}");
        assert_eq!(answer["id"], json!(id));
    }
    assert!(client.is_alive());
}

#[test]
fn a_frame_with_any_further_member_is_a_protocol_error() {
    let mut client = Client::ready(NEWEST);
    let outputs = client.frame(&json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "read_a"},
        "principal": "operator",
    }));
    let answer = sole_frame(&outputs);
    assert_eq!(code(&answer), -32600);
    assert_eq!(answer["id"], 1);
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("`principal`")
    );
    assert!(client.is_alive());
}

#[test]
fn a_repeated_request_id_is_a_protocol_error_and_makes_no_second_call() {
    let mut client = Client::ready(NEWEST);
    let first = client.call(json!(1), json!({"name": "read_a"}));
    let params = json!({"name": "write_b", "arguments": {"x": 1}});
    let replay = client.ask(json!(1), "tools/call", params.clone());
    assert_eq!(code(&replay), -32600);
    assert_eq!(replay["error"]["message"], "request id was used before");

    assert!(
        client
            .connection
            .answer(first.ticket, &text("one"))
            .is_some()
    );
    assert_eq!(code(&client.ask(json!(1), "tools/call", params)), -32600);
    // Another type is another id.
    client.call(json!("1"), json!({"name": "read_a"}));
    assert!(client.is_alive());
}

#[test]
fn every_request_spends_its_id_whatever_becomes_of_it() {
    let call = json!({"name": "read_a"});
    let first: [(&str, Value); 6] = [
        ("ping", json!({})),
        ("tools/list", json!({})),
        ("tools/call", json!({"name": "read_a", "extra": 1})),
        ("no/such", json!({})),
        ("initialize", json!({})),
        ("tools/call", json!([])),
    ];
    let mut client = Client::ready(NEWEST);
    for (id, (method, params)) in first.into_iter().enumerate() {
        client.ask(json!(id), method, params);
        let answer = client.ask(json!(id), "tools/call", call.clone());
        assert_eq!(
            answer["error"]["message"], "request id was used before",
            "{method}"
        );
    }
    let outputs = client.frame(&json!({"jsonrpc": "1.0", "id": "v", "method": "ping"}));
    assert_eq!(code(&sole_frame(&outputs)), -32600);
    assert_eq!(code(&client.ask(json!("v"), "tools/call", call)), -32600);
}

#[test]
fn unknown_methods_are_refused_and_unknown_notifications_ignored() {
    let mut client = Client::ready(NEWEST);
    for (id, method) in [
        "resources/list",
        "prompts/list",
        "sampling/createMessage",
        "",
        "tools/call ",
    ]
    .iter()
    .enumerate()
    {
        assert_eq!(
            code(&client.ask(json!(id), method, json!({}))),
            -32601,
            "{method}"
        );
    }
    assert!(
        client
            .notify("notifications/roots/list_changed", json!({}))
            .is_empty()
    );
    assert!(
        client
            .notify("tools/call", json!({"name": "read_a"}))
            .is_empty()
    );
    assert!(client.notify("notifications/x", json!([])).is_empty());
    assert!(client.is_alive());
}

#[test]
fn an_error_quotes_only_a_short_escaped_piece_of_the_clients_text() {
    let mut client = Client::ready(NEWEST);
    let answer = client.ask(json!(1), &"\u{1b}".repeat(100_000), json!({}));
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(
        message.len() <= MESSAGE_BYTES_MAX && !message.contains('\u{1b}'),
        "{message}"
    );

    let key = "k".repeat(100_000);
    let twice = format!("{{\"{key}\":1,\"{key}\":2}}\n");
    let answer = sole_frame(&client.raw(twice));
    assert_eq!(code(&answer), -32700);
    assert!(answer["error"]["message"].as_str().unwrap().len() <= MESSAGE_BYTES_MAX);
}

#[test]
fn frames_that_are_not_strict_json_are_parse_errors_and_the_connection_lives_on() {
    let mut client = Client::ready(NEWEST);
    for bad in [
        &b"\n"[..],
        b"{\n",
        b"{} {}\n",
        b"nope\n",
        b"\xff\n",
        b"\"\\ud800\"\n",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"ping\"}\n",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"\\u006dethod\":\"tools/list\"}\n",
        b"\xef\xbb\xbf{}\n",
    ] {
        let answer = sole_frame(&client.raw(bad));
        assert_eq!(code(&answer), -32700, "{}", String::from_utf8_lossy(bad));
        assert_eq!(answer["id"], Value::Null);
    }
    let deep = format!("{}1{}\n", "[".repeat(65), "]".repeat(65));
    assert_eq!(code(&sole_frame(&client.raw(deep))), -32700);
    assert!(client.is_alive());
}

#[test]
fn carriage_returns_and_spaces_around_a_frame_do_no_harm() {
    let mut client = Client::silent();
    let outputs = client.raw(" {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"} \r\n");
    assert_eq!(sole_frame(&outputs)["id"], 1);
}

#[test]
fn batches_and_other_json_are_invalid_requests() {
    let mut client = Client::ready("2025-03-26");
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    for bad in [
        json!([]),
        json!([ping]),
        json!(1),
        json!("x"),
        json!(null),
        json!({}),
    ] {
        let answer = sole_frame(&client.frame(&bad));
        assert_eq!(code(&answer), -32600, "{bad}");
        assert_eq!(answer["id"], Value::Null);
    }
    assert!(client.is_alive());
}

#[test]
fn a_wrong_json_rpc_version_or_method_is_an_invalid_request() {
    let mut client = Client::ready(NEWEST);
    for (id, (version, method)) in [
        (json!("1.0"), json!("ping")),
        (json!(2.0), json!("ping")),
        (json!(null), json!("ping")),
        (json!("2.0"), json!(1)),
        (json!("2.0"), json!(null)),
    ]
    .into_iter()
    .enumerate()
    {
        let frame = json!({"jsonrpc": version, "id": id, "method": method});
        let answer = sole_frame(&client.frame(&frame));
        assert_eq!(code(&answer), -32600, "{frame}");
        assert_eq!(answer["id"], json!(id));
    }
    let outputs = client.frame(&json!({"id": "none", "method": "ping"}));
    assert_eq!(code(&sole_frame(&outputs)), -32600);
    let outputs = client.frame(&json!({"jsonrpc": "2.0", "id": "m"}));
    assert_eq!(code(&sole_frame(&outputs)), -32600);
    assert!(client.is_alive());
}

#[test]
fn an_id_that_is_no_short_string_or_integer_is_a_protocol_error_without_id() {
    let mut client = Client::ready(NEWEST);
    for bad in [
        json!(null),
        json!(1.0),
        json!(-0.0),
        json!(true),
        json!({}),
        json!([1]),
        json!(WIRE_ID_INTEGER_MAX + 1),
        json!("x".repeat(WIRE_ID_BYTES_MAX + 1)),
    ] {
        let outputs = client.request(bad.clone(), "tools/call", json!({"name": "read_a"}));
        let answer = sole_frame(&outputs);
        assert_eq!(code(&answer), -32600, "{bad}");
        assert_eq!(answer["id"], Value::Null);
    }
    for good in [
        json!(WIRE_ID_INTEGER_MAX),
        json!(-WIRE_ID_INTEGER_MAX),
        json!("x".repeat(WIRE_ID_BYTES_MAX)),
        json!(""),
    ] {
        assert_eq!(client.ask(good.clone(), "ping", json!({}))["id"], good);
    }
}

#[test]
fn answers_to_requests_that_nobody_made_are_ignored() {
    let mut client = Client::ready(NEWEST);
    assert!(
        client
            .frame(&json!({"jsonrpc": "2.0", "id": 1, "result": {}}))
            .is_empty()
    );
    let error = json!({"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": "x"}});
    assert!(client.frame(&error).is_empty());
    assert_eq!(client.ask(json!(1), "ping", json!({}))["result"], json!({}));
}

#[test]
fn pipelined_calls_are_all_handed_out_up_to_the_bound_and_one_past_it_is_busy() {
    let mut client = Client::ready(NEWEST);
    let calls: Vec<IncomingCall> = (0..CALLS_OUTSTANDING_MAX)
        .map(|id| client.call(json!(id), json!({"name": "read_a"})))
        .collect();
    let busy = client.ask(json!("more"), "tools/call", json!({"name": "read_a"}));
    assert_eq!(code(&busy), -31000);
    assert!(client.is_alive());

    // Answers may come in any order, and make room.
    let last = calls.last().unwrap();
    let frame = client.connection.answer(last.ticket, &text("x")).unwrap();
    assert_eq!(parse(&frame)["id"], json!(CALLS_OUTSTANDING_MAX - 1));
    client.call(json!("again"), json!({"name": "read_a"}));
    assert_eq!(
        code(&client.ask(json!("z"), "tools/call", json!({"name": "read_a"}))),
        -31000
    );
}

#[test]
fn a_frame_may_have_16384_values_and_one_more_is_an_invalid_request() {
    let mut client = Client::ready(NEWEST);
    let frame = |id: i64, zeros: usize| {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
               "params": {"name": "read_a", "arguments": {"many": vec![0; zeros]}}})
    };
    let other = frame::values(frame(1, 1).to_string().as_bytes()) - 1;
    let call = client.frame(&frame(1, FRAME_VALUES_MAX - other));
    assert!(matches!(&call[..], [Output::Call(_)]), "{call:?}");
    let answer = sole_frame(&client.frame(&frame(2, FRAME_VALUES_MAX - other + 1)));
    assert_eq!(code(&answer), -32600);
    // Separators inside a text count nothing.
    let text = json!({"name": "read_a", "arguments": {"csv": "a,b\",".repeat(100_000)}});
    client.call(json!(3), text);
}

#[test]
fn calls_that_would_take_too_much_memory_together_are_busy() {
    let mut client = Client::ready(NEWEST);
    let dense = json!({"name": "read_a", "arguments": {"many": vec![json!({"a": 1}); 8_000]}});
    let first = client.call(json!(1), dense.clone());
    assert_eq!(
        code(&client.ask(json!(2), "tools/call", dense.clone())),
        -31000
    );
    client.call(json!(3), json!({"name": "read_a"}));
    assert!(client.connection.answer(first.ticket, &text("x")).is_some());
    client.call(json!(4), dense);
}

#[test]
fn a_cancelled_call_is_withdrawn_once_and_its_answer_is_not_sent() {
    let mut client = Client::ready(NEWEST);
    let one = client.call(json!(1), json!({"name": "read_a"}));
    let two = client.call(json!("1"), json!({"name": "read_a"}));
    let cancel = json!({"requestId": "1", "reason": "time limit"});
    let outputs = client.notify("notifications/cancelled", cancel.clone());
    assert_eq!(outputs, [Output::Withdraw(two.ticket)]);
    assert!(client.notify("notifications/cancelled", cancel).is_empty());
    assert_eq!(client.connection.progress(two.ticket, "x"), None);
    let sent = client.connection.bytes_out();
    assert_eq!(client.connection.answer(two.ticket, &text("late")), None);
    assert_eq!(client.connection.bytes_out(), sent);
    assert!(client.connection.answer(one.ticket, &text("x")).is_some());
    // The identity stays spent.
    assert_eq!(
        code(&client.ask(json!("1"), "tools/call", json!({"name": "read_a"}))),
        -32600
    );
}

#[test]
fn cancelling_what_does_not_wait_is_ignored() {
    let mut client = Client::ready(NEWEST);
    let call = client.call(json!(1), json!({"name": "read_a"}));
    for params in [
        json!({"requestId": 2}),
        json!({"requestId": "1"}),
        json!({"requestId": 1.0}),
        json!({"requestId": null}),
        json!({"reason": "x"}),
        json!([1]),
    ] {
        assert!(
            client
                .notify("notifications/cancelled", params.clone())
                .is_empty(),
            "{params}"
        );
    }
    assert!(client.connection.answer(call.ticket, &text("x")).is_some());
    assert!(
        client
            .notify("notifications/cancelled", json!({"requestId": 1}))
            .is_empty()
    );
}

#[test]
fn a_withdrawn_call_keeps_its_place_until_its_owner_has_ended_it() {
    let mut client = Client::ready(NEWEST);
    let calls: Vec<IncomingCall> = (0..CALLS_OUTSTANDING_MAX)
        .map(|id| client.call(json!(id), json!({"name": "read_a"})))
        .collect();
    client.notify("notifications/cancelled", json!({"requestId": 0}));
    assert_eq!(client.connection.outstanding(), CALLS_OUTSTANDING_MAX);
    assert_eq!(
        code(&client.ask(json!("a"), "tools/call", json!({"name": "read_a"}))),
        -31000
    );
    assert_eq!(client.connection.answer(calls[0].ticket, &text("x")), None);
    client.call(json!("b"), json!({"name": "read_a"}));
}

#[test]
fn progress_is_sent_where_asked_for_with_a_growing_count() {
    let mut client = Client::ready(NEWEST);
    for (id, token) in [(1, json!("t")), (2, json!(9))] {
        let call = client.call(
            json!(id),
            json!({"name": "read_a", "_meta": {"progressToken": token}}),
        );
        assert!(call.progress_token.is_some());
        for step in 1..3 {
            let frame = client
                .connection
                .progress(call.ticket, "waits for approval")
                .unwrap();
            assert_eq!(
                parse(&frame),
                json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {
                    "progressToken": token, "progress": step, "message": "waits for approval",
                }})
            );
        }
        assert!(client.connection.answer(call.ticket, &text("x")).is_some());
        assert_eq!(client.connection.progress(call.ticket, "late"), None);
    }
    let silent = client.call(json!(3), json!({"name": "read_a"}));
    assert_eq!(client.connection.progress(silent.ticket, "x"), None);
}

#[test]
fn a_progress_message_is_cut_and_left_out_for_the_first_revision() {
    let params = json!({"name": "read_a", "_meta": {"progressToken": 1}});
    let mut client = Client::ready(NEWEST);
    let call = client.call(json!(1), params.clone());
    let long = "m".repeat(MESSAGE_BYTES_MAX + 1);
    let frame = client.connection.progress(call.ticket, &long).unwrap();
    assert_eq!(
        parse(&frame)["params"]["message"],
        "m".repeat(MESSAGE_BYTES_MAX)
    );

    let mut client = Client::ready("2024-11-05");
    let call = client.call(json!(1), params);
    let frame = client.connection.progress(call.ticket, "x").unwrap();
    assert_eq!(
        parse(&frame)["params"],
        json!({"progressToken": 1, "progress": 1})
    );
}

#[test]
fn a_call_may_end_in_a_protocol_error() {
    let mut client = Client::ready(NEWEST);
    let call = client.call(json!(1), json!({"name": "read_a"}));
    let error = (ErrorCode::Internal, "the session has ended");
    let frame = client
        .connection
        .protocol_error(call.ticket, error.0, error.1)
        .unwrap();
    assert_eq!(
        parse(&frame),
        json!({"jsonrpc": "2.0", "id": 1,
               "error": {"code": -32603, "message": "the session has ended"}})
    );
    assert_eq!(
        client
            .connection
            .protocol_error(call.ticket, error.0, error.1),
        None
    );
}

#[test]
fn structured_content_goes_to_the_revisions_that_know_it() {
    for revision in with_handshake() {
        let mut client = Client::ready(revision.as_str());
        let call = client.call(json!(1), json!({"name": "read_a"}));
        let mut result = text("{}");
        result.structured = Some(object(json!({"a": 1})));
        let answer = parse(&client.connection.answer(call.ticket, &result).unwrap());
        let known = revision >= Revision::V2025_06_18;
        assert_eq!(
            answer["result"].get("structuredContent").is_some(),
            known,
            "{revision:?}"
        );
    }
}

#[test]
fn a_result_is_cut_to_its_limit_and_always_fits_into_one_frame() {
    let mut client = Client::ready(NEWEST);
    let call = client.call(json!(1), json!({"name": "read_a"}));
    let over = text(&"\u{1}".repeat(TEXT_BYTES_MAX + 1));
    let frame = client.connection.answer(call.ticket, &over).unwrap();
    assert!(frame.len() <= FRAME_BYTES_MAX);
    let answer = parse(&frame);
    let shown = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(shown.len() <= TEXT_BYTES_MAX && shown.ends_with("65 bytes are missing]"));
}

#[test]
fn structured_content_is_sent_at_one_frame_and_named_as_missing_past_it() {
    let answer = |pad: usize| {
        let mut client = Client::ready(NEWEST);
        let call = client.call(json!("i"), json!({"name": "read_a"}));
        let mut result = text("t");
        result.structured = Some(object(json!({"pad": "x".repeat(pad)})));
        client.connection.answer(call.ticket, &result).unwrap()
    };
    let room = FRAME_BYTES_MAX + 1 - answer(0).len();
    let whole = answer(room);
    assert_eq!(whole.len(), FRAME_BYTES_MAX + 1);
    assert!(parse(&whole)["result"]["structuredContent"].is_object());

    let cut = parse(&answer(room + 1));
    assert_eq!(cut["result"].get("structuredContent"), None);
    let shown = cut["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        shown.starts_with("t\n[structured content is missing"),
        "{shown}"
    );
}

#[test]
fn a_frame_at_1_mib_is_read_and_one_byte_past_it_ends_the_connection() {
    let mut client = Client::ready(NEWEST);
    let frame = |bytes: usize| {
        let ping = json!({"jsonrpc": "2.0", "id": bytes, "method": "ping"}).to_string();
        format!("{ping}{}\n", " ".repeat(bytes - ping.len()))
    };
    let answer = sole_frame(&client.raw(frame(FRAME_BYTES_MAX)));
    assert_eq!(answer["result"], json!({}));

    let call = client.call(json!(1), json!({"name": "read_a"}));
    let outputs = client.raw(frame(FRAME_BYTES_MAX + 1));
    assert_eq!(
        outputs,
        [
            Output::Withdraw(call.ticket),
            Output::End(EndReason::FrameTooLong)
        ]
    );
    assert!(client.raw("{}\n").is_empty());
    assert!(client.eof().is_empty());
    assert_eq!(client.connection.answer(call.ticket, &text("x")), None);
}

#[test]
fn a_frame_that_never_ends_ends_the_connection_before_its_line_feed() {
    let mut client = Client::ready(NEWEST);
    assert!(client.raw(vec![b' '; FRAME_BYTES_MAX]).is_empty());
    assert_eq!(end(&client.raw(" ")), Some(EndReason::FrameTooLong));
}

#[test]
fn frame_1024_is_read_and_frame_1025_ends_the_connection() {
    let mut client = Client::silent();
    for _ in 1..BROKER_FRAMES_MAX {
        client.raw("{}\n");
    }
    assert!(client.is_alive());
    let outputs = client.raw("{}\n{}\n");
    let max = BROKER_FRAMES_MAX;
    assert_eq!(outputs, [Output::End(EndReason::TooManyFrames { max })]);
    assert!(client.raw("{}\n").is_empty());
}

#[test]
fn the_limit_of_frames_is_the_owners_choice() {
    let mut client = Client::with(ConnectionLimits { frames: 2 }, &[]);
    assert!(
        client
            .raw("{}\n{}\n")
            .iter()
            .all(|output| matches!(output, Output::Send(_)))
    );
    assert_eq!(
        end(&client.raw("\n")),
        Some(EndReason::TooManyFrames { max: 2 })
    );
}

#[test]
fn end_of_input_between_frames_withdraws_what_waits_and_answers_may_still_be_sent() {
    let mut client = Client::ready(NEWEST);
    let calls: Vec<IncomingCall> = (0..3)
        .map(|id| client.call(json!(id), json!({"name": "read_a"})))
        .collect();
    client.notify("notifications/cancelled", json!({"requestId": 1}));
    let outputs = client.eof();
    assert_eq!(withdrawn(&outputs), [calls[0].ticket, calls[2].ticket]);
    assert_eq!(end(&outputs), Some(EndReason::InputClosed));
    assert!(client.eof().is_empty());
    assert!(client.raw("{}\n").is_empty());
    assert!(
        client
            .connection
            .answer(calls[0].ticket, &text("x"))
            .is_some()
    );
    assert_eq!(client.connection.answer(calls[1].ticket, &text("x")), None);
    assert!(
        client
            .connection
            .answer(calls[2].ticket, &text("x"))
            .is_some()
    );
    assert_eq!(client.connection.outstanding(), 0);
}

#[test]
fn end_of_input_inside_a_frame_ends_the_connection_without_further_answers() {
    let mut client = Client::ready(NEWEST);
    let call = client.call(json!(1), json!({"name": "read_a"}));
    client.raw("{\"jsonrpc\"");
    let outputs = client.eof();
    assert_eq!(withdrawn(&outputs), [call.ticket]);
    assert_eq!(end(&outputs), Some(EndReason::InsideFrame { bytes: 10 }));
    assert_eq!(client.connection.answer(call.ticket, &text("x")), None);
}

#[test]
fn the_owner_sees_that_a_frame_has_begun() {
    let mut client = Client::silent();
    assert!(!client.connection.is_inside_frame());
    client.raw("{}\n{");
    assert!(client.connection.is_inside_frame());
    client.raw("}\n");
    assert!(!client.connection.is_inside_frame());
}

#[test]
fn traffic_is_counted_both_ways_to_the_byte() {
    let mut client = Client::silent();
    let mut sent = 0;
    let ping = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";
    for output in client.raw(ping) {
        let Output::Send(frame) = output else {
            panic!()
        };
        sent += frame.len() as u64;
    }
    assert_eq!(client.connection.bytes_in(), ping.len() as u64);
    assert_eq!(client.connection.bytes_out(), sent);
    client.raw("{\"js");
    assert_eq!(client.connection.bytes_in(), ping.len() as u64 + 4);

    let mut client = Client::ready(NEWEST);
    let call = client.call(
        json!(2),
        json!({"name": "x", "_meta": {"progressToken": 1}}),
    );
    let before = client.connection.bytes_out();
    let progress = client.connection.progress(call.ticket, "m").unwrap();
    let answer = client.connection.answer(call.ticket, &text("t")).unwrap();
    let after = client.connection.bytes_out();
    assert_eq!(after - before, (progress.len() + answer.len()) as u64);
}

#[test]
fn end_reasons_say_what_happened() {
    let texts = [
        (EndReason::InputClosed, "the client closed its side"),
        (
            EndReason::FrameTooLong,
            "a frame has more than 1048576 bytes",
        ),
        (
            EndReason::TooManyFrames { max: 2 },
            "the client sent more than 2 frames",
        ),
        (
            EndReason::InsideFrame { bytes: 3 },
            "the client closed its side after 3 bytes of a frame without its line feed",
        ),
    ];
    for (reason, text) in texts {
        assert_eq!(reason.to_string(), text);
    }
}
