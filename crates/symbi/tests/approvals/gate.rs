//! The gate: another process of the operator answers.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};

use serde_json::{Value, json};

use crate::desk::{Desk, Ended, interrupt, until, wait};
use crate::world::{call, configure, created, guarded, on_terminal, press, records};

/// A call that waits at the gate, and its held id.
fn held(desk: &Desk) -> (Child, String) {
    let arguments = call(&["--approval-gate", "--approval-timeout", "60"]);
    held_of(desk, &arguments)
}

fn held_of(desk: &Desk, arguments: &[&str]) -> (Child, String) {
    let child = desk.start(arguments);
    (child, first_held(desk))
}

fn first_held(desk: &Desk) -> String {
    let mut id = String::new();
    until("a held call", || {
        let listed = desk.symbi(&["gate", "list", "--json"]).expect(0);
        let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
        id = listed["held"][0]["held_id"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        !id.is_empty()
    });
    id
}

fn gate(desk: &Desk, words: &[&str]) -> Ended {
    desk.symbi(&[&["gate"], words].concat())
}

fn socket(desk: &Desk) -> PathBuf {
    let sockets: Vec<PathBuf> = fs::read_dir(desk.path("run/symbi"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == "gate"))
        .collect();
    assert_eq!(sockets.len(), 1, "{sockets:?}");
    sockets[0].clone()
}

#[test]
fn a_held_call_is_listed_shown_and_approved_from_another_process() {
    let desk = guarded();
    let (child, id) = held(&desk);
    gate(&desk, &["list"])
        .expect(0)
        .says(&id)
        .says("operator wants guarded");
    let shown = gate(&desk, &["show", &id]).expect(0);
    let review: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(review["held_id"], id.as_str());
    assert!(shown.stdout.contains("\"out/new.csv\"") && shown.stdout.contains("\"argv\": ["));
    assert!(!created(&desk));
    gate(&desk, &["approve", &id]).expect(0).says("approved");
    wait(child).expect(0);
    assert!(created(&desk));
    let approval = &records(&desk, "CallDispatching")[0]["approval"];
    assert_eq!(approval["surface"], "gate");
    assert_eq!(approval["held_id"], id.as_str());
    desk.verified_journal();
    desk.nothing_is_left();
}

#[test]
fn a_denial_at_the_gate_ends_the_call_with_4() {
    let desk = guarded();
    let (child, id) = held(&desk);
    gate(&desk, &["deny", &id]).expect(0);
    wait(child).expect(4).says("(gate)");
    assert!(!created(&desk));
    desk.nothing_is_left();
}

#[test]
fn answering_twice_late_or_to_a_made_up_id_is_refused() {
    let desk = guarded();
    let (child, id) = held(&desk);
    gate(&desk, &["approve", "held-0"]).expect(3).says("held-0");
    gate(&desk, &["approve", "../held"]).expect(2);
    let real = id.clone();
    gate(&desk, &["deny", &real]).expect(0);
    wait(child).expect(4);
    gate(&desk, &["approve", &real])
        .expect(3)
        .says("no running run holds");
    assert!(!created(&desk));
    // Another call of the same kind is another held call.
    let (child, second) = held(&desk);
    assert_ne!(second, real);
    gate(&desk, &["approve", &real])
        .expect(3)
        .says("and none of late was");
    gate(&desk, &["deny", &second]).expect(0);
    wait(child).expect(4);
}

#[test]
fn an_interrupted_run_holds_nothing_any_more() {
    let desk = guarded();
    let (child, id) = held(&desk);
    interrupt(child).expect(1);
    gate(&desk, &["approve", &id]).expect(3);
    assert!(!created(&desk));
    desk.nothing_is_left();
}

/// A socket as of a run that is stopped: it takes `connections`, and answers none.
fn stopped(desk: &Desk, run: &str, connections: i32) -> std::os::fd::OwnedFd {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
    let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    let path = desk.path("run/symbi").join(format!("{run}.gate"));
    bind(&listener, &SocketAddrUnix::new(path).unwrap()).unwrap();
    listen(&listener, connections).unwrap();
    listener
}

#[test]
fn a_run_that_is_stopped_holds_up_no_answer_to_another() {
    let desk = guarded();
    let (child, id) = held(&desk);
    let listeners = [
        stopped(&desk, "00000000-0000-7000-8000-000000000001", 4096),
        stopped(&desk, "00000000-0000-7000-8000-000000000002", 4096),
    ];
    let start = std::time::Instant::now();
    gate(&desk, &["show", &id]).expect(0);
    gate(&desk, &["approve", &id]).expect(0).says("approved");
    assert!(start.elapsed() < std::time::Duration::from_secs(5));
    drop(listeners);
    wait(child).expect(0);
    assert!(created(&desk));
}

#[test]
fn a_run_that_takes_no_connection_is_named_and_the_others_are_listed() {
    let desk = guarded();
    let (child, id) = held(&desk);
    let full = "00000000-0000-7000-8000-000000000001";
    let listener = stopped(&desk, full, 0);
    let taken = UnixStream::connect(desk.path("run/symbi").join(format!("{full}.gate"))).unwrap();
    let start = std::time::Instant::now();
    gate(&desk, &["list"]).expect(0).says(&id).says(&format!(
        "run {full}: it does not answer; if it is stopped, continue it"
    ));
    gate(&desk, &["deny", &id]).expect(0);
    assert!(start.elapsed() < std::time::Duration::from_secs(5));
    drop((listener, taken));
    wait(child).expect(4);
}

#[test]
fn both_surfaces_ask_and_the_first_answer_counts() {
    let desk = guarded();
    let symbi = env!("CARGO_BIN_EXE_symbi");
    let run = format!("{symbi} gate approve {{id}} > /dev/null");
    let steps = [
        crate::world::wait("> "),
        serde_json::json!({ "run": run }),
        crate::world::wait("waits no longer"),
        press("deny {id}\n"),
    ];
    let arguments = call(&["--approval-terminal", "--approval-gate"]);
    on_terminal(&desk, &arguments, &steps).expect(0);
    assert!(created(&desk));
    assert_eq!(
        records(&desk, "CallDispatching")[0]["approval"]["surface"],
        "gate"
    );
}

/// One raw line to the socket, and the answer.
fn raw(desk: &Desk, line: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket(desk)).unwrap();
    stream.write_all(line).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    answer
}

#[test]
fn what_is_no_request_is_refused_with_its_reason() {
    let desk = guarded();
    let (child, id) = held(&desk);
    for line in [
        "\n".to_owned(),
        "approve\n".to_owned(),
        "{\"v\":2,\"request\":\"list\"}\n".to_owned(),
        "{\"v\":1,\"request\":\"list\",\"x\":1}\n".to_owned(),
        format!(
            "{{\"v\":1,\"request\":{{\"decide\":{{\"held_id\":\"{id}\",\"answer\":\"approve\"}}}}}}\n"
        ),
        format!("{}\n", "x".repeat(20_000)),
    ] {
        let answer = raw(&desk, line.as_bytes());
        assert!(answer.contains("refused"), "{line}: {answer}");
    }
    // A digest of another text.
    let line = format!(
        "{{\"v\":1,\"request\":{{\"decide\":{{\"held_id\":\"{id}\",\"review_sha256\":\"{}\",\
         \"answer\":\"approve\"}}}}}}\n",
        "0".repeat(64)
    );
    assert!(raw(&desk, line.as_bytes()).contains("review digest"));
    gate(&desk, &["deny", &id]).expect(0);
    wait(child).expect(4);
    assert!(!created(&desk));
    let reasons: Vec<String> = records(&desk, "AnswerRefused")
        .iter()
        .map(|it| it["reason"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(reasons.len(), 7, "{reasons:?}");
    assert!(reasons[2].contains("version 2") && reasons[6].contains("review digest"));
    desk.verified_journal();
}

#[test]
fn an_input_is_shown_escaped_as_the_call_will_get_it() {
    let desk = guarded();
    let hostile = "a,b\n\u{1b}[2Japproved held-1\u{202e}\n";
    let path = desk.project().join("data/example.csv");
    fs::write(&path, hostile.repeat(2000)).unwrap();
    let (child, id) = held(&desk);
    fs::write(&path, "changed\n").unwrap();
    let shown = gate(&desk, &["show", &id, "--file", "input"]).expect(0);
    let first = "| a,b\n| \\u{1b}[2Japproved held-1\\u{202e}\n";
    assert!(
        shown.stdout.starts_with(&first.repeat(2)),
        "{}",
        shown.stdout
    );
    assert!(
        shown.stderr.contains("bytes 0 to 54000 of 54000"),
        "{}",
        shown.stderr
    );
    let json = gate(
        &desk,
        &["show", &id, "--file", "input", "--from", "53998", "--json"],
    )
    .expect(0);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["content_hex"], "ae0a");
    gate(&desk, &["show", &id, "--file", "nothing"])
        .expect(3)
        .says("it has: input");
    gate(&desk, &["approve", &id]).expect(0);
    wait(child).expect(0);
    let approval = &records(&desk, "CallDispatching")[0]["approval"];
    let all = json!([{"input": "input", "shown_bytes": 54000, "bytes": 54000}]);
    assert_eq!(approval["inputs_shown"], all);
    let journal = desk.journals().pop().unwrap();
    let run = journal.file_stem().unwrap().to_str().unwrap();
    desk.symbi(&["--project", "project", "audit", "show", run])
        .expect(0)
        .says("input input: 54000 of 54000 bytes were shown there");
}

#[test]
fn an_input_of_many_parts_is_shown_from_where_one_left_off() {
    let desk = guarded();
    let path = desk.project().join("data/example.csv");
    fs::write(&path, "x".repeat(70_000)).unwrap();
    let (child, id) = held(&desk);
    let first = gate(&desk, &["show", &id, "--file", "input"]).expect(0);
    let go_on = format!("symbi gate show {id} --file input --from 65536");
    assert!(first.stderr.contains(&go_on), "{}", first.stderr);
    gate(&desk, &["show", &id, "--file", "input", "--from", "65536"])
        .expect(0)
        .says("bytes 65536 to 70000 of 70000");
    gate(&desk, &["show", &id, "--file", "input", "--from", "70000"]).expect(3);
    gate(&desk, &["deny", &id]).expect(0);
    wait(child).expect(4);
    let answer = &records(&desk, "CallRefused")[0]["approval"];
    assert_eq!(answer["inputs_shown"][0]["shown_bytes"], 70_000);
}

#[test]
fn the_socket_is_in_a_private_folder() {
    use std::os::unix::fs::PermissionsExt as _;
    let desk = guarded();
    let (child, id) = held(&desk);
    let folder = fs::metadata(desk.path("run/symbi")).unwrap();
    assert_eq!(folder.permissions().mode() & 0o777, 0o700);
    gate(&desk, &["deny", &id]).expect(0);
    wait(child).expect(4);
}

/// Sends a request as another identity, by a program in between.
fn raw_as(desk: &Desk, wrapper: &[&str]) -> String {
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
                  try: s.sendall(b'{\"v\":1,\"request\":\"list\"}\\n')\n\
                  except OSError: pass\nprint(s.makefile().readline())";
    let ended = Command::new(wrapper[0])
        .args(&wrapper[1..])
        .args(["python3", "-c", script])
        .arg(socket(desk))
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    said + &String::from_utf8_lossy(&ended.stderr)
}

#[test]
fn another_user_and_another_namespace_are_refused() {
    let desk = guarded();
    let (child, id) = held(&desk);
    if rustix::process::geteuid().is_root() {
        // The folder keeps them out; opened on purpose, the socket still does.
        for folder in ["", "run", "run/symbi"] {
            use std::os::unix::fs::PermissionsExt as _;
            let open = fs::Permissions::from_mode(0o755);
            fs::set_permissions(desk.path(folder), open).unwrap();
        }
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(socket(&desk), fs::Permissions::from_mode(0o666)).unwrap();
        let said = raw_as(
            &desk,
            &["setpriv", "--reuid=1001", "--clear-groups", "--regid=1001"],
        );
        assert!(said.contains("and the other to uid 1001"), "{said}");
        fs::set_permissions(desk.path("run/symbi"), fs::Permissions::from_mode(0o700)).unwrap();
    }
    let said = raw_as(&desk, &["unshare", "--user", "--map-current-user"]);
    assert!(said.contains("other user or pid namespaces"), "{said}");
    let said = raw_as(
        &desk,
        &["unshare", "--user", "--map-root-user", "--pid", "--fork"],
    );
    assert!(said.contains("other user or pid namespaces"), "{said}");
    gate(&desk, &["deny", &id]).expect(0);
    let ended = wait(child).expect(4);
    assert!(
        ended.stderr.contains("the gate refused a connection"),
        "{}",
        ended.stderr
    );
    let recorded = records(&desk, "AnswerRefused");
    assert!(recorded.len() >= 2, "{recorded:?}");
    let elsewhere =
        "the connection was refused: the other process is in other user or pid namespaces";
    let last = recorded.last().unwrap();
    assert!(
        last["reason"].as_str().unwrap().starts_with(elsewhere),
        "{last}"
    );
    assert!(last["from"].as_str().unwrap().starts_with("uid "), "{last}");
}

/// Makes an SSH key in the home; returns its public half.
fn key(desk: &Desk, name: &str) -> String {
    let made = Command::new("ssh-keygen")
        .args(["-q", "-N", "", "-t", "ed25519", "-C", name, "-f"])
        .arg(desk.path(name))
        .status()
        .expect("ssh-keygen is needed: package openssh-client");
    assert!(made.success());
    let public = fs::read_to_string(desk.path(&format!("{name}.pub"))).unwrap();
    public.trim().to_owned()
}

#[test]
fn a_client_that_is_not_contained_is_served_only_what_an_operator_signed() {
    let desk = guarded();
    let folder = desk.project().join("policies/mcp");
    fs::create_dir_all(&folder).unwrap();
    let shared = desk.project().join("policies/call/guarded.cedar");
    fs::copy(shared, folder.join("guarded.cedar")).unwrap();
    let alice = key(&desk, "alice");
    configure(
        &desk,
        &format!("[approval.operators]\nalice = \"{alice}\"\n"),
    );
    let mut child = desk.start_client(&["--project", "project", "mcp"]);
    let about = json!({"name": "t", "version": "1"});
    let files = json!({"input": "data/example.csv", "output": "out/new.csv"});
    let frames = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
            "name": "guarded", "arguments": files}}),
    ];
    let mut client = child.stdin.take().unwrap();
    for frame in frames {
        client.write_all(format!("{frame}\n").as_bytes()).unwrap();
    }
    let id = first_held(&desk);
    gate(&desk, &["approve", &id])
        .expect(3)
        .says("needs the signature");
    assert!(!created(&desk));
    gate(&desk, &["approve", &id, "--sign", "alice"]).expect(0);
    until("the file is published", || created(&desk));
    drop(client);
    wait(child).expect(0);
    assert!(desk.verified_journal().contains("alice SHA256:"));
}

#[test]
fn an_operator_signs_and_the_signature_is_in_the_record() {
    let desk = guarded();
    let [alice, bob, _] = ["alice", "bob", "mallory"].map(|name| key(&desk, name));
    configure(
        &desk,
        &format!(
            "[approval]\nsurfaces = [\"gate\"]\nrequire = 2\n[approval.operators]\nalice = \
             \"{alice}\"\nbob = [\"{bob}\"]\n"
        ),
    );
    let (child, id) = held(&desk);
    gate(&desk, &["approve", &id])
        .expect(3)
        .says("needs the signatures of 2");
    gate(&desk, &["approve", &id, "--sign", "mallory"])
        .expect(3)
        .says("belongs to no operator");
    gate(&desk, &["approve", &id, "--sign", "alice"])
        .expect(0)
        .says("1 of 2");
    gate(&desk, &["approve", &id, "--sign", "alice"])
        .expect(0)
        .says("1 of 2");
    assert!(!created(&desk));
    // Made elsewhere, over exactly what is shown.
    let shown = gate(&desk, &["show", &id]).expect(0).stdout;
    fs::write(desk.path("review"), shown).unwrap();
    let signed = Command::new("ssh-keygen")
        .args(["-q", "-Y", "sign", "-n", "symbi-approval-v1", "-f"])
        .args([desk.path("bob"), desk.path("review")])
        .status()
        .unwrap();
    assert!(signed.success());
    gate(&desk, &["approve", &id, "--signature", "review.sig"])
        .expect(0)
        .says("alice SHA256:");
    wait(child).expect(0);
    assert!(created(&desk));
    let approval = &records(&desk, "CallDispatching")[0]["approval"];
    assert_eq!(approval["signatures"].as_array().unwrap().len(), 2);
    let approver = approval["approver"].as_str().unwrap();
    assert!(approver.contains("alice SHA256:") && approver.contains("bob SHA256:"));
    desk.verified_journal();
    // The terminal cannot sign.
    desk.symbi(&call(&["--approval-terminal"]))
        .expect(2)
        .says("--sign");
}

#[test]
fn watching_tells_what_comes_and_goes_of_runs_that_start_later() {
    let desk = guarded();
    let mut watcher = desk.start(&["gate", "watch"]);
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    let (child, id) = held(&desk);
    let come = lines.next().unwrap().unwrap();
    assert!(come.contains(&id) && come.contains("guarded"), "{come}");
    gate(&desk, &["deny", &id]).expect(0);
    let gone = lines.next().unwrap().unwrap();
    assert!(
        gone.contains(&id) && gone.contains("waits no longer"),
        "{gone}"
    );
    wait(child).expect(4);
    watcher.kill().unwrap();
    let _ = watcher.wait();
}

#[test]
fn the_socket_of_a_run_that_was_killed_is_swept() {
    let desk = guarded();
    let (mut child, _) = held(&desk);
    child.kill().unwrap();
    let mut said = String::new();
    let _ = child.stderr.take().unwrap().read_to_string(&mut said);
    child.wait().unwrap();
    gate(&desk, &["list"]).expect(0).says("no call waits");
    assert!(
        fs::read_dir(desk.path("run/symbi"))
            .unwrap()
            .next()
            .is_none()
    );
}

#[test]
fn a_run_that_was_killed_while_its_call_was_held_is_told_alike_by_all_commands() {
    let desk = guarded();
    let (mut child, _) = held(&desk);
    let listed = |code| {
        desk.symbi(&[
            "--project",
            "project",
            "audit",
            "list",
            "--strict",
            "--json",
        ])
        .expect(code)
    };
    let row = |code| {
        let list: Value = serde_json::from_str(&listed(code).stdout).unwrap();
        assert_eq!(list["unknown_to_ledger"], json!([]));
        list["starting"][0].clone()
    };
    let live = row(0);
    let run = live["run"].as_str().unwrap().to_owned();
    assert_eq!(live["state"], "live");
    desk.symbi(&[
        "--project",
        "project",
        "invocation",
        "inspect",
        "--id",
        &run,
    ])
    .expect(3)
    .says("still owned by a live process");
    child.kill().unwrap();
    child.wait().unwrap();
    gate(&desk, &["list"])
        .expect(0)
        .says(&format!("run {run}: its process is gone"))
        .says("no call waits");
    let dead = json!({ "run": run, "state": "never_began", "records": 0, "next": null });
    assert_eq!(row(0), dead);
    desk.symbi(&["--project", "project", "audit", "list"])
        .expect(0)
        .says(&format!(
            "{run}  never began  0 records; nothing of it happened"
        ));
    desk.symbi(&[
        "--project",
        "project",
        "invocation",
        "inspect",
        "--id",
        &run,
    ])
    .expect(0)
    .says("never began")
    .says("nothing of it happened");
    desk.symbi(&[
        "--project",
        "project",
        "invocation",
        "resolve",
        "--id",
        &run,
        "--rationale",
        "x",
    ])
    .expect(3)
    .says("nothing is left to resolve");
}

const ORDINARY: u32 = 1001;

#[test]
fn an_ordinary_user_decides_too() {
    // Whoever is no root has done so above.
    if rustix::process::geteuid().is_root() {
        let desk = guarded().given_to(ORDINARY, &["symbi", "symbi-init"]);
        desk.trust();
        let (child, id) = held(&desk);
        gate(&desk, &["approve", &id]).expect(0);
        wait(child).expect(0);
        assert!(created(&desk));
        desk.nothing_is_left();
    }
}

#[test]
fn the_launch_of_an_agent_is_held_whole_and_starts_with_a_yes_only() {
    let desk = guarded();
    configure(
        &desk,
        "[agents.plain]\nexecutor = \"command\"\ncommand = [\"echo\", \"{task}\"]\n\
         allowed_tools = [\"word_count\"]\nhuman_approval = true\n",
    );
    let policy = "@id(\"start\")\npermit(principal, action == Action::\"tool_call::command\", \
                  resource);\n";
    fs::write(desk.project().join("policies/run/start.cedar"), policy).unwrap();
    desk.trust();
    let run = [
        "--project",
        "project",
        "run",
        "plain",
        "--task",
        "hello there",
    ];
    desk.symbi(&run).expect(4).says("nobody can be asked here");
    let asking = [&run[..], &["--approval-gate"]].concat();
    let (child, id) = held_of(&desk, &asking);
    gate(&desk, &["show", &id])
        .expect(0)
        .says("\"hello there\"")
        .says("\"policy_sha256\": ");
    gate(&desk, &["deny", &id]).expect(0);
    let ended = wait(child).expect(4);
    assert!(!ended.stdout.contains("hello there"), "{}", ended.stdout);
    let (child, id) = held_of(&desk, &asking);
    gate(&desk, &["approve", &id]).expect(0);
    wait(child).expect(0).says("hello there");
    desk.nothing_is_left();
}

/// Connections of one process, which say `words` each, and then nothing.
fn flood(desk: &Desk, words: &[u8]) -> Vec<UnixStream> {
    let connect = |_| {
        let mut stream = UnixStream::connect(socket(desk)).unwrap();
        // It may be closed by now: it was too many.
        let _ = stream.write_all(words);
        stream
    };
    (0..300).map(connect).collect()
}

#[test]
fn three_hundred_idle_connections_hold_up_no_operator() {
    for words in [&b""[..], b"{", b"{\"v\":1,\"request\":\"watch\"}\n"] {
        let desk = guarded();
        let (child, id) = held(&desk);
        let idle = flood(&desk, words);
        let start = std::time::Instant::now();
        let listed = gate(&desk, &["list"]).expect(0).says(&id);
        assert!(
            !listed.stderr.contains("did not answer"),
            "{}",
            listed.stderr
        );
        gate(&desk, &["approve", &id]).expect(0).says("approved");
        assert!(start.elapsed() < std::time::Duration::from_secs(3));
        wait(child).expect(0);
        drop(idle);
        assert!(created(&desk));
    }
}

#[test]
fn a_run_that_does_not_answer_is_not_told_to_have_no_call() {
    let desk = guarded();
    let sockets = desk.path("run/symbi");
    fs::create_dir_all(&sockets).unwrap();
    fs::set_permissions(
        &sockets,
        std::os::unix::fs::PermissionsExt::from_mode(0o700),
    )
    .unwrap();
    let run = "00000000-0000-7000-8000-000000000001";
    let listener = stopped(&desk, run, 0);
    let taken = UnixStream::connect(sockets.join(format!("{run}.gate"))).unwrap();
    gate(&desk, &["list"])
        .expect(0)
        .says("0 runs can be asked about, and 1 did not answer");
    let listed = gate(&desk, &["list", "--json"]).expect(0);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(
        listed,
        json!({ "held": [], "unanswered": [run], "gone": [] })
    );
    drop((listener, taken));
}

#[test]
fn a_watch_that_yielded_to_a_crowd_goes_on_when_it_is_gone() {
    let desk = guarded();
    let (child, id) = held(&desk);
    let mut watcher = desk.start(&["gate", "watch"]);
    let lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    let (told, telling) = std::sync::mpsc::channel();
    std::thread::spawn(move || lines.for_each(|line| drop(told.send(line.unwrap()))));
    let soon = std::time::Duration::from_secs(10);
    assert!(telling.recv_timeout(soon).unwrap().contains(&id));
    drop(flood(&desk, b"{\"v\":1,\"request\":\"watch\"}\n"));
    gate(&desk, &["deny", &id]).expect(0);
    let next = telling.recv_timeout(soon).unwrap();
    assert!(
        next.contains(&id) && next.contains("waits no longer"),
        "{next}"
    );
    wait(child).expect(4);
    watcher.kill().unwrap();
    let _ = watcher.wait();
}
