//! The packaged adapter, started for real, between an HTTP client and the channel.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::json;
use symbi_runtime::cli_executor::limits::{CONNECTIONS_LIVE_MAX, CONNECTIONS_TOTAL_MAX};
use testkit::provider::{ScriptedProvider, Turn};
use tokio::net::UnixStream;

use crate::support::PATIENCE;
use crate::support::provider::{Http, KEY, Protected, ask, ask_stream, terms};
use crate::support::wire::WireClient;

const ENOUGH: usize = 300;

/// Each thread asks over one connection that it keeps.
const CLIENT: &str = r#"
import http.client, json, sys, threading
port, total, body = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
threads, statuses, lock = 6, {}, threading.Lock()
def work():
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    for _ in range(total // threads):
        connection.request("POST", "/v1/messages?beta=true", body,
                           {"content-type": "application/json", "x-api-key": "placeholder"})
        answer = connection.getresponse()
        text = answer.read()
        with lock:
            statuses[answer.status] = statuses.get(answer.status, 0) + 1
            if answer.status != 200:
                sys.stderr.write(text.decode() + "\n")
workers = [threading.Thread(target=work) for _ in range(threads)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
print(json.dumps(statuses))
"#;

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn adapter(channel: &Path, port: u16, agent: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command
        .arg("-I")
        .arg(channel.join("adapter.py"))
        .arg(channel.join("inference.sock"))
        .arg(port.to_string())
        .args(agent);
    command
}

async fn run(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap()
}

async fn ask_often(body: String) {
    let provider = ScriptedProvider::interactive(|_, _| Turn::text("hi there")).unwrap();
    let protected = Protected::before(provider, terms(), PATIENCE);
    let (port, total) = (free_port(), ENOUGH.to_string());
    let text = port.to_string();
    let agent = ["python3", "-I", "-c", CLIENT, &text, &total, &body];
    let output = run(adapter(protected.broker.channel(), port, &agent)).await;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said.trim(), format!("{{\"200\": {ENOUGH}}}"), "{stderr}");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(protected.provider.requests().len(), ENOUGH);
    for seen in protected.provider.requests() {
        assert_eq!(seen.header("x-api-key").as_deref(), Some(KEY));
    }
    let (governed, _) = protected.close().await;
    assert_eq!(governed.of_kind("InferenceRequested").len(), ENOUGH);
    assert_eq!(governed.of_kind("InferenceCompleted").len(), ENOUGH);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_requests_pass_over_a_few_kept_connections() {
    ask_often(ask(5).to_string()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_event_streams_pass_over_a_few_kept_connections() {
    ask_often(ask_stream().to_string()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_adapter_answers_head_and_ends_with_its_agents_code() {
    let protected = Protected::start(Vec::new());
    let port = free_port();
    let script = format!(
        "import http.client, sys\nc = http.client.HTTPConnection('127.0.0.1', {port})\n\
         c.request('HEAD', '/')\na = c.getresponse()\na.read()\n\
         c.request('GET', '/v1/models')\nb = c.getresponse()\nb.read()\n\
         sys.exit(41 if (a.status, b.status) in ((200, 400), (200, 403)) else 1)"
    );
    let agent = ["python3", "-I", "-c", &script];
    let output = run(adapter(protected.broker.channel(), port, &agent)).await;
    assert_eq!(output.status.code(), Some(41), "{output:?}");
    let killed = ["sh", "-c", "kill -9 $$"];
    let output = run(adapter(protected.broker.channel(), free_port(), &killed)).await;
    assert_eq!(output.status.code(), Some(137));
    let absent = run(adapter(
        protected.broker.channel(),
        free_port(),
        &["/absent"],
    ))
    .await;
    assert_eq!(absent.status.code(), Some(127));
    protected.close().await;
}

/// Runs alone too; the test below runs it once more among proxy variables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_goes_straight_to_its_provider() {
    let protected = Protected::start(vec![Turn::text("hi")]);
    assert_eq!(protected.client().await.post(&ask(5)).await.status, 200);
    assert_eq!(protected.provider.requests().len(), 1);
    protected.close().await;
}

#[test]
fn ambient_proxy_variables_are_ignored() {
    let dead = format!("http://127.0.0.1:{}", free_port());
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args([
        "--exact",
        "adapter::a_request_goes_straight_to_its_provider",
    ]);
    for name in [
        "http_proxy",
        "HTTP_PROXY",
        "https_proxy",
        "all_proxy",
        "ALL_PROXY",
    ] {
        test.env(name, &dead);
    }
    let output = test
        .env_remove("no_proxy")
        .env_remove("NO_PROXY")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connections_of_both_sockets_count_together() {
    let protected = Protected::start(Vec::new());
    let channel = protected.broker.channel().to_owned();
    let (mut agents, mut models) = (Vec::new(), Vec::new());
    for _ in 0..CONNECTIONS_LIVE_MAX / 2 {
        agents.push(WireClient::ready(&channel).await);
        let mut model = Http::connect(&channel).await;
        assert!(model.send("HEAD", "/", &[], "").await.is_some());
        models.push(model);
    }
    let mut over = WireClient::connect(&channel).await;
    over.request(1, "ping", json!({})).await;
    assert!(over.is_silent().await);
    models.pop();
    assert!(over.receive().await["result"].is_object());
    drop((agents, models, over));
    // So far one more than may live at once was accepted.
    for number in CONNECTIONS_LIVE_MAX + 1..CONNECTIONS_TOTAL_MAX {
        if number % 2 == 0 {
            assert!(WireClient::connect(&channel).await.is_served().await);
        } else {
            let mut model = Http::connect(&channel).await;
            assert!(model.send("HEAD", "/", &[], "").await.is_some());
        }
    }
    for name in ["broker.sock", "inference.sock"] {
        let refused = UnixStream::connect(channel.join(name)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{name}");
    }
    protected.close().await;
}
