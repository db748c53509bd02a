//! Which answers are protocol errors, and which are results.

use serde_json::{Value, json};
use testkit::tier::Play;

use crate::support::Setup;
use crate::support::wire::{WireClient, envelope, error_code, serve};

const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_has_exactly_the_advertised_tools() {
    let governed = Setup::default().start();
    let broker = serve(&governed);
    let mut client = WireClient::ready(broker.channel()).await;
    let listed = client.ask(1, "tools/list", json!({})).await;
    let listed = listed["result"]["tools"].as_array().unwrap();
    assert_eq!(listed.len(), governed.session.tools().len());
    for (shown, tool) in listed.iter().zip(governed.session.tools()) {
        assert_eq!(shown["name"], tool.name.as_str());
        assert_eq!(shown["description"], tool.description.as_str());
        assert_eq!(shown["inputSchema"], json!(tool.input_schema));
        assert_eq!(shown["annotations"]["readOnlyHint"], tool.read_only);
    }
    drop(client);
    broker.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_comes_back_as_an_envelope() {
    let governed = Setup::default().namespace().start();
    let broker = serve(&governed);
    let mut client = WireClient::ready(broker.channel()).await;
    let (scaled, error) = envelope(&client.call(1, "scale", json!({"count": 99})).await);
    assert!(!error);
    assert_eq!(scaled["status"], "succeeded");
    assert_eq!(scaled["results"], "10\n");
    assert_eq!(scaled["notes"], json!(["count: 99 was asked, 10 is used"]));
    assert_eq!(scaled["run_id"], governed.run.to_string());
    assert_eq!(
        scaled.get("journal"),
        None,
        "an agent is not told where its journal is"
    );
    let (rows, _) = envelope(&client.call(2, "rows", json!({})).await);
    assert_eq!(rows["results"], json!([1, 2]));
    let (failed, error) = envelope(&client.call(3, "fails", json!({})).await);
    assert!(
        error && failed["status"] == "failed" && failed["exit_code"] == 1,
        "{failed}"
    );
    broker.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_request_id_is_a_protocol_error_and_one_and_its_text_are_two() {
    let governed = Setup::default().start();
    let broker = serve(&governed);
    let mut client = WireClient::ready(broker.channel()).await;
    for id in [json!(1), json!("1")] {
        let (_, error) = envelope(&client.call(id, "scale", json!({"count": 1})).await);
        assert!(!error);
    }
    for id in [json!(1), json!("1")] {
        let answer = client.call(id, "scale", json!({"count": 1})).await;
        assert_eq!(error_code(&answer), INVALID_REQUEST);
    }
    assert!(client.is_served().await);
    assert_eq!(governed.tier.started(), 2);
    broker.close().await.unwrap();
    assert_eq!(
        governed.terminal()["calls"],
        2,
        "a replay spends no attempt"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extra_parameter_is_a_protocol_error_and_the_connection_lives_on() {
    let governed = Setup::default().start();
    let broker = serve(&governed);
    let mut client = WireClient::ready(broker.channel()).await;
    let params = json!({"name": "scale", "arguments": {"count": 1}, "principal": "root"});
    let answer = client.ask(1, "tools/call", params).await;
    assert_eq!(error_code(&answer), INVALID_PARAMS);
    let answer = client.ask(2, "resources/list", json!({})).await;
    assert_eq!(error_code(&answer), METHOD_NOT_FOUND);
    let wrong_version = json!({"jsonrpc": "1.0", "id": 3, "method": "ping"});
    client.send(&wrong_version).await;
    assert!(client.receive().await["error"].is_object());
    client
        .send(&json!({"jsonrpc": "2.0", "id": [4], "method": "ping"}))
        .await;
    assert!(client.receive().await["error"].is_object());
    assert!(client.is_served().await);
    broker.close().await.unwrap();
    assert_eq!(governed.terminal()["calls"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tools_request_before_initialization_is_a_protocol_error() {
    let governed = Setup::default().start();
    let broker = serve(&governed);
    let mut client = WireClient::connect(broker.channel()).await;
    let answer = client.call(1, "scale", json!({"count": 1})).await;
    assert_eq!(error_code(&answer), INVALID_REQUEST);
    client.initialize().await;
    let (_, error) = envelope(&client.call(2, "scale", json!({"count": 1})).await);
    assert!(!error);
    broker.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denials_unknown_tools_and_bad_arguments_are_results_with_is_error() {
    let policy = r#"permit(principal, action == Action::"tool_call::scale", resource);"#;
    let governed = Setup::default().policies(policy).start();
    let broker = serve(&governed);
    let mut client = WireClient::ready(broker.channel()).await;
    for (id, tool, arguments, stage) in [
        (1, "fails", json!({}), "authorize"),
        (2, "no_such_tool", json!({}), "prepare"),
        (3, "scale", json!({"count": 1, "team": "red"}), "prepare"),
    ] {
        let (refused, error) = envelope(&client.call(id, tool, arguments).await);
        assert!(error);
        assert_eq!(refused["status"], "refused");
        assert_eq!(refused["refusal"]["stage"], stage);
    }
    assert_eq!(governed.tier.started(), 0);
    broker.close().await.unwrap();
    assert_eq!(governed.terminal()["completed"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_output_is_cut_and_its_envelope_stays_whole_json() {
    let governed = Setup::default().start();
    let broker = serve(&governed);
    let mut client = WireClient::ready(broker.channel()).await;
    let text = "\u{1}\"\n".repeat(100_000);
    governed.tier.next_runs(Play::exits(0).stdout(text));
    let (cut, _) = envelope(&client.call(1, "scale", json!({"count": 1})).await);
    assert_eq!(cut["output_truncated"], true);
    let (head, mark) = cut["results"].as_str().unwrap().rsplit_once("\n[").unwrap();
    let missing: usize = mark.split_once(' ').unwrap().0.parse().unwrap();
    assert_eq!(head.len() + missing, 300_000, "{mark}");
    let rows: Vec<Value> = (0..60_000).map(|n| json!({ "n": n })).collect();
    governed
        .tier
        .next_runs(Play::exits(0).stdout(json!(rows).to_string()));
    let (cut, _) = envelope(&client.call(2, "rows", json!({})).await);
    assert_eq!(cut["output_truncated"], true);
    assert!(
        cut["results"]
            .as_str()
            .unwrap()
            .ends_with("more bytes are not shown]")
    );
    broker.close().await.unwrap();
}
