//! The container tiers as a user meets them. `./test` says where its engine is.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use sandbox::engine::Engine;

use crate::desk::{Desk, append};

/// For an agent's container to start and ask, on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(60);

/// Each of these tests once on docker and once on gVisor.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod docker {
            $(#[test] #[ignore = "needs docker: run ./test"] fn $name() { super::$name("docker"); })*
        }
        mod gvisor {
            $(#[test] #[ignore = "needs docker: run ./test"] fn $name() { super::$name("gvisor"); })*
        }
    };
}

pub(crate) use on_both;

pub(crate) fn told(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("`{name}` is not set: run ./test"))
}

/// A project on the tier `tier` with the image `image`.
pub(crate) fn on(tier: &str, image: &str, more: &str) -> Desk {
    on_engine(tier, image, &told("SYMBI_TEST_ENGINE"), more)
}

pub(crate) fn on_engine(tier: &str, image: &str, socket: &str, more: &str) -> Desk {
    let desk = Desk::empty();
    desk.symbi(&["init", "project"]).expect(0);
    let config = format!(
        "[sandbox]\ntier = \"{tier}\"\n[sandbox.{tier}]\nimage = \"{image}\"\nsocket = \"{socket}\"\n\
         memory_mib = 256\n\
         volumes = [\"./data:/workspace/data:ro\", \"./out:/workspace/out:rw\"]\n{more}"
    );
    fs::write(desk.project().join("symbiont.toml"), config).unwrap();
    let policy = "@id(\"agents-may-start\")\n\
                  permit(principal, action == Action::\"tool_call::command\", resource);\n";
    fs::write(desk.project().join("policies/run/start.cedar"), policy).unwrap();
    desk.trust();
    desk
}

fn call(desk: &Desk, words: &[&str]) -> crate::desk::Ended {
    desk.symbi(&[&["--project", "project", "call"], words].concat())
}

/// No copy of a file is left, and no lease is charged.
pub(crate) fn nothing_is_left(desk: &Desk) {
    let workers = desk.path("state/symbi/workers");
    let left = fs::read_dir(workers).map_or(0, Iterator::count);
    assert_eq!(left, 0);
    desk.symbi(&["sandbox", "status"])
        .expect(0)
        .says("capacity: 0 of");
}

fn a_call_gets_its_file_and_publishes_its_output(tier: &str) {
    let desk = on(tier, &told("SYMBI_TEST_IMAGE"), "");
    let words = [
        "copy_csv",
        "--arg",
        "input=data/example.csv",
        "--arg",
        "output=out/b.csv",
    ];
    call(&desk, &words).expect(0).says("created out/b.csv");
    let read = |name: &str| fs::read(desk.project().join(name)).unwrap();
    assert_eq!(read("out/b.csv"), read("data/example.csv"));
    let journal = desk.verified_journal();
    assert!(
        journal.contains(&format!("\"tier\":\"{tier}\"")),
        "{journal}"
    );
    assert!(journal.contains("\"bound_by\":\"image\""), "{journal}");
    assert!(journal.contains("\"id\":\"sha256:"), "{journal}");
    // It is there now, and is not replaced.
    call(&desk, &words).expect(3).says("out/b.csv");
    nothing_is_left(&desk);
}

fn wrong_images_are_exit_7_and_charge_nothing(tier: &str) {
    let desk = on(tier, "no-such-image:1", "");
    let words = ["word_count", "--arg", "input=data/example.csv"];
    for _ in 0..10 {
        call(&desk, &words)
            .expect(7)
            .says("has no image `no-such-image:1`; nothing is pulled");
    }
    let config = desk.project().join("symbiont.toml");
    let text = fs::read_to_string(&config).unwrap();
    let text = text.replace("no-such-image:1", &told("SYMBI_TEST_IMAGE"));
    fs::write(&config, text).unwrap();
    desk.trust();
    call(&desk, &words).expect(0);
    nothing_is_left(&desk);
}

/// Asks for tools (names and arguments in turn) over the bridge, and looks for what it must not
/// see.
const AGENT: &str = "import json, os, subprocess, sys\n\
    server = json.loads(os.environ['SYMBI_MCP_CONFIG'])['mcpServers']['symbi']\n\
    bridge = subprocess.Popen([server['command']] + server['args'], stdin=subprocess.PIPE, \
    stdout=subprocess.PIPE)\n\
    def ask(number, method, params):\n\
    \x20 line = json.dumps({'jsonrpc': '2.0', 'id': number, 'method': method, 'params': params})\n\
    \x20 bridge.stdin.write(line.encode() + b'\\n'); bridge.stdin.flush()\n\
    \x20 return json.loads(bridge.stdout.readline() or b'\"closed\"')\n\
    ask(0, 'initialize', {'protocolVersion': '2025-11-25', 'capabilities': {}, 'clientInfo': \
    {'name': 't', 'version': '1'}})\n\
    bridge.stdin.write(b'{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\\n')\n\
    def look(): return os.path.exists('/workspace/data') or os.path.exists(sys.argv[1])\n\
    print('before', look())\n\
    for at in range(2, len(sys.argv), 2):\n\
    \x20 print(json.dumps(ask(at, 'tools/call', {'name': sys.argv[at], 'arguments': \
    json.loads(sys.argv[at + 1])})))\n\
    print('after', look(), os.getuid())\n";

/// A tool without files that runs `exec`, as a manifest has it, and may be called.
pub(crate) fn add_tool(desk: &Desk, name: &str, seconds: u32, exec: &[&str], more: &str) {
    let exec = json!(exec);
    let manifest = format!(
        "[tool]\nname = \"{name}\"\nversion = \"1.0.0\"\ndescription = \"d\"\nbinary = {}\n\
         timeout_seconds = {seconds}\n[command]\nexec = {exec}\nallow_interpreter = true\n{more}",
        exec[0]
    );
    let place = desk.project().join(format!("tools/{name}.clad.toml"));
    fs::write(place, manifest).unwrap();
    let policy = format!(
        "permit(principal == Agent::\"operator\", action == Action::\"tool_call::{name}\", resource);"
    );
    let place = desk.project().join(format!("policies/call/{name}.cedar"));
    fs::write(place, policy).unwrap();
}

/// The configuration of an agent that makes these calls.
pub(crate) fn asker(canary: &Path, calls: &[(&str, Value)]) -> String {
    let mut words = vec![json!("python3"), json!("-c"), json!(AGENT), json!(canary)];
    for (tool, arguments) in calls {
        words.extend([json!(tool), json!(arguments.to_string())]);
    }
    let tools: Vec<&str> = calls.iter().map(|(tool, _)| *tool).collect();
    format!(
        "[agents.asker]\nexecutor = \"command\"\ncommand = {}\nallowed_tools = {}\n",
        Value::from(words),
        json!(tools)
    )
}

fn an_agent_asks_through_the_bridge_and_its_tool_runs_in_a_container_of_its_own(tier: &str) {
    let canary = tempfile::NamedTempFile::new().unwrap();
    let arguments = json!({ "input": "data/example.csv" });
    let agent = asker(canary.path(), &[("word_count", arguments)]);
    let desk = on(tier, &told("SYMBI_TEST_IMAGE"), &agent);
    let ended = desk.run("asker", &[]).expect(0).says("agent: succeeded");
    assert!(ended.stdout.contains("before False"), "{}", ended.stdout);
    assert!(
        ended.stdout.contains("after False 65534"),
        "{}",
        ended.stdout
    );
    assert!(ended.stdout.contains("succeeded"), "{}", ended.stdout);
    let journal = desk.verified_journal();
    assert_eq!(journal.matches("\"kind\":\"CallDispatching\"").count(), 2);
    nothing_is_left(&desk);
}

fn an_agents_effect_in_a_container_waits_for_a_person_and_happens_once(tier: &str) {
    let canary = tempfile::NamedTempFile::new().unwrap();
    let arguments = json!({ "input": "data/example.csv", "output": "out/b.csv" });
    let agent = asker(canary.path(), &[("copy_csv", arguments)]);
    let desk = on(tier, &told("SYMBI_TEST_IMAGE"), &agent);
    let manifest = desk.project().join("tools/copy_csv.clad.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    let asking = text.replacen("[tool]\n", "[tool]\nhuman_approval = true\n", 1);
    fs::write(&manifest, asking).unwrap();
    let policy = "permit(principal == Agent::\"asker\", \
                  action == Action::\"tool_call::copy_csv\", resource)\n\
                  when { context.has_human_approval };\n";
    fs::write(desk.project().join("policies/run/copy.cedar"), policy).unwrap();
    desk.trust();
    let output = desk.project().join("out/b.csv");
    let words = ["--project", "project", "run", "asker", "--task", "copy"];
    let run = desk.start(&[&words[..], &["--approval-gate"]].concat());
    let held = held_at_the_gate(&desk);
    assert!(!output.exists(), "nothing happens before the yes");
    desk.symbi(&["gate", "approve", &held]).expect(0);
    let ended = crate::desk::Ended::from(run.wait_with_output().unwrap()).expect(0);
    assert!(ended.stdout.contains("before False"), "{}", ended.stdout);
    assert!(ended.stdout.contains("after False"), "{}", ended.stdout);
    let copied = fs::read(&output).unwrap();
    let source = fs::read(desk.project().join("data/example.csv")).unwrap();
    assert_eq!(copied, source);
    let journal = desk.verified_journal();
    assert_eq!(journal.matches("\"surface\":\"gate\"").count(), 1);
    assert_eq!(journal.matches("\"kind\":\"CallDispatching\"").count(), 2);
    nothing_is_left(&desk);
}

fn held_at_the_gate(desk: &Desk) -> String {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let listed = desk.symbi(&["gate", "list", "--json"]).expect(0);
        let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
        if let Some(id) = listed["held"][0]["held_id"].as_str() {
            return id.to_owned();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("no call waits at the gate");
}

fn doctor_tries_each_promise_from_inside_a_container(tier: &str) {
    let desk = on(tier, &told("SYMBI_TEST_IMAGE"), "");
    let ended = desk.symbi(&["--project", "project", "doctor", "--json"]);
    let found: Value = serde_json::from_str(&ended.expect(0).stdout).unwrap();
    let probes = found["probes"].as_array().unwrap();
    assert!(probes.iter().all(|it| it["verdict"] == "holds"), "{found}");
    // The same as on the namespace tier.
    assert_eq!(probes.len(), 13, "{found}");
    with_an_agent(&desk);
    desk.symbi(&["--project", "project", "doctor"])
        .expect(0)
        .says("holds   agent       the image has Python 3, and a socket in a read-only bind");
    nothing_is_left(&desk);
}

fn with_an_agent(desk: &Desk) {
    let agent = "[agents.a]\nexecutor = \"command\"\ncommand = [\"true\"]\n\
                 allowed_tools = [\"word_count\"]\n";
    append(&desk.project().join("symbiont.toml"), agent);
    desk.trust();
}

fn an_image_that_cannot_run_the_probes_is_told_and_is_not_called_unsound(tier: &str) {
    let engine = Engine::at(told("SYMBI_TEST_ENGINE"));
    let name = format!("symbi-test-empty-{tier}-{}", std::process::id());
    // An image of one empty folder.
    let tar = vec![0; 10240];
    engine
        .import_image(&name, &mut tar.as_slice(), tar.len() as u64)
        .unwrap();
    let desk = on(tier, &name, "");
    desk.symbi(&["--project", "project", "doctor"])
        .expect(0)
        .says("available, but it could not be tried from inside")
        .says("untried inside      the image cannot run symbi-init: ");
    with_an_agent(&desk);
    desk.symbi(&["--project", "project", "doctor"])
        .expect(7)
        .says("FAILS   agent       the image has no Python 3")
        .says("this project has agents");
    engine.remove_image(&name).unwrap();
    nothing_is_left(&desk);
}

#[test]
#[ignore = "needs docker: run ./test"]
fn with_the_engines_network_a_worker_has_it_and_policies_and_journal_say_so() {
    let desk = on("docker", &told("SYMBI_TEST_IMAGE"), "");
    let config = desk.project().join("symbiont.toml");
    let text = fs::read_to_string(&config).unwrap() + "network = \"bridge\"\n";
    fs::write(&config, &text).unwrap();
    let refused = desk.symbi(&["--project", "project", "trust", "--yes"]);
    refused.expect(2).says("lets workers out");
    fs::write(&config, format!("[project]\nproduction = false\n{text}")).unwrap();
    add_tool(&desk, "devices", 30, &["cat", "/proc/net/dev"], "");
    desk.trust();
    call(&desk, &["devices"]).expect(0).says("eth0:");
    let journal = desk.verified_journal();
    assert!(journal.contains("\"network\":\"bridge\""), "{journal}");
    let policy = "permit(principal, action == Action::\"tool_call::devices\", resource)\n\
                  when { context.invocation.resolved.command_boundary.network == \"none\" };";
    fs::write(desk.project().join("policies/call/devices.cedar"), policy).unwrap();
    desk.trust();
    call(&desk, &["devices"]).expect(3);
    nothing_is_left(&desk);
}

#[test]
#[ignore = "needs docker: run ./test"]
fn an_agent_whose_program_is_not_in_the_image_is_exit_7_and_names_it() {
    let agent = "[agents.absent]\nexecutor = \"command\"\ncommand = [\"{program}\"]\n\
                 program = \"/opt/none/agent\"\nallowed_tools = [\"word_count\"]\n";
    let desk = on("docker", &told("SYMBI_TEST_IMAGE"), agent);
    desk.run("absent", &[])
        .expect(7)
        .says("the image has no program `/opt/none/agent`");
    assert!(desk.journals().is_empty());
    nothing_is_left(&desk);
}

/// Runs `symbi` where another file system is in the place of its workers' files.
const ELSEWHERE: &str = r#"
workers=$XDG_STATE_HOME/symbi/workers
mkdir -p -m 0700 "$XDG_STATE_HOME/symbi" "$workers"
mapfile -t kept < <(env)
sudo=()
[[ $(id -u) == 0 ]] || sudo=(sudo -n)
exec "${sudo[@]}" unshare --mount \
    bash -ec 'mount -t tmpfs -o mode=0700,uid="$1" none "$2"; shift 2; exec "$@"' bash \
    "$(id -u)" "$workers" setpriv --reuid="$(id -u)" --regid="$(id -g)" --clear-groups \
    env -i "${kept[@]}" "$0" "$@"
"#;

fn an_engine_that_sees_other_files_than_we_is_exit_7_and_runs_nothing(tier: &str) {
    let desk = on(tier, &told("SYMBI_TEST_IMAGE"), "");
    let words = ["--project", "project", "call", "word_count", "--arg"];
    let words = [&words[..], &["input=data/example.csv"]].concat();
    desk.shell(ELSEWHERE, &words)
        .expect(7)
        .says("does not see this machine's files")
        .says("in the same mount namespace");
    let journal = desk.verified_journal();
    assert!(journal.contains("\"status\":\"not_started\""), "{journal}");
    desk.symbi(&words).expect(0);
    nothing_is_left(&desk);
}

#[test]
fn a_docker_host_that_is_no_unix_socket_is_exit_7() {
    let desk = Desk::empty();
    desk.symbi(&["init", "project"]).expect(0);
    let config = "[sandbox]\ntier = \"docker\"\n[sandbox.docker]\nimage = \"x\"\n";
    fs::write(desk.project().join("symbiont.toml"), config).unwrap();
    desk.trust();
    desk.shell(
        "DOCKER_HOST=tcp://192.0.2.1:2375 exec \"$0\" \"$@\"",
        &[
            "--project",
            "project",
            "call",
            "word_count",
            "--arg",
            "input=data/example.csv",
        ],
    )
    .expect(7)
    .says("names no unix socket");
}

on_both!(
    a_call_gets_its_file_and_publishes_its_output,
    wrong_images_are_exit_7_and_charge_nothing,
    an_agent_asks_through_the_bridge_and_its_tool_runs_in_a_container_of_its_own,
    an_agents_effect_in_a_container_waits_for_a_person_and_happens_once,
    an_engine_that_sees_other_files_than_we_is_exit_7_and_runs_nothing,
    doctor_tries_each_promise_from_inside_a_container,
    an_image_that_cannot_run_the_probes_is_told_and_is_not_called_unsound,
    a_folder_of_the_supervisor_or_of_workers_without_room_is_exit_7_and_says_what_to_do,
);

fn a_folder_of_the_supervisor_or_of_workers_without_room_is_exit_7_and_says_what_to_do(tier: &str) {
    let desk = on(tier, &told("SYMBI_TEST_IMAGE"), "");
    let words = ["--project", "project", "call", "copy_csv"];
    let more = [
        "--arg",
        "input=data/example.csv",
        "--arg",
        "output=out/b.csv",
    ];
    let alone = match rustix::process::geteuid().is_root() {
        true => "",
        false => "--user --map-current-user --keep-caps",
    };
    for folder in ["supervisor", "workers"] {
        let full = desk.path(&format!("state/symbi/{folder}"));
        fs::DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(&full)
            .unwrap();
        let script = format!(
            "exec unshare {alone} --mount bash -c '
             mount -t tmpfs -o size=16k,mode=0700 tmpfs {0} || exit 99
             head -c 100000 /dev/zero > {0}/fill 2>/dev/null
             exec \"$0\" \"$@\"' \"$0\" \"$@\"",
            full.display()
        );
        desk.shell(&script, &[&words[..], &more].concat())
            .expect(7)
            .says(full.to_str().unwrap())
            .says("make room there, and try again");
        assert!(!desk.project().join("out/b.csv").exists());
    }
}
