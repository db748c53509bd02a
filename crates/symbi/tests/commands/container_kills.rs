//! SIGKILL of a call, of its supervisor, and of both, at every request to a real engine.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sandbox::engine::{ContainerFilter, Engine};
use sandbox::lease::LEASE_LABEL;
use serde_json::Value;
use testkit::engine_proxy::{EngineProxy, Fault};

use crate::containers::{on_engine, told};
use crate::desk::{Desk, send, wait};

/// What a dead owner's container may outlive it by, once supervisor and engine live: five seconds;
/// and what gVisor takes to end one on a machine with other work.
const AT_MOST: Duration = Duration::from_secs(20);
/// For a request to reach the proxy.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Call,
    Supervisor,
    Both,
}

/// A user whose engine is behind a proxy that can hold each request.
struct User {
    desk: Desk,
    proxy: EngineProxy,
    engine: Engine,
}

impl User {
    fn new(tier: &str) -> Self {
        let engine = PathBuf::from(told("SYMBI_TEST_ENGINE"));
        // Its folder outlives the desk, whose home has too long a name for a socket.
        let folder = tempfile::tempdir().unwrap().keep();
        let socket = folder.join("proxy.sock");
        let proxy = EngineProxy::start(&socket, &engine).unwrap();
        let socket = socket.to_str().unwrap();
        let desk = on_engine(tier, &told("SYMBI_TEST_IMAGE"), socket, "");
        let engine = Engine::at(engine);
        Self {
            desk,
            proxy,
            engine,
        }
    }

    fn call(&self, name: &str) -> Child {
        let output = format!("output=out/{name}.csv");
        let words = ["copy_csv", "--arg", "input=data/example.csv", "--arg"];
        let all = [&["--project", "project", "call"], &words[..], &[&output]];
        self.desk.start(&all.concat())
    }

    /// The file is absent, or all of it is there and right.
    fn is_published(&self, name: &str) -> bool {
        let read = |name: String| fs::read(self.desk.project().join(name)).ok();
        let source = read("data/example.csv".to_owned());
        let found = read(format!("out/{name}.csv"));
        assert!(found.is_none() || found == source, "{name}: a partial file");
        found.is_some()
    }

    fn status(&self) -> Value {
        let status = self.desk.symbi(&["sandbox", "status", "--json"]);
        serde_json::from_str(&status.expect(0).stdout).unwrap()
    }

    fn supervisor(&self) -> Option<i32> {
        let pid = self.status()["supervisor"]["pid"].as_i64()?;
        i32::try_from(pid).ok()
    }

    fn kill_supervisor(&self) {
        if let Some(pid) = self.supervisor().and_then(Pid::from_raw) {
            kill_process(pid, Signal::KILL).unwrap();
        }
    }

    /// The ids of this user's containers.
    fn containers(&self) -> Vec<String> {
        let home = self.desk.path("state");
        let listed = self
            .engine
            .list(&ContainerFilter::default().with_label(LEASE_LABEL));
        let ids = listed.unwrap().into_iter().map(|it| it.id);
        let ours = |id: &String| {
            let found = self.engine.inspect(id).unwrap();
            let mut mounts = found.iter().flat_map(|it| &it.mounts);
            mounts.any(|mount| mount.source.starts_with(home.to_str().unwrap()))
        };
        ids.filter(ours).collect()
    }

    fn leases(&self) -> usize {
        self.status()["leases"].as_array().unwrap().len()
    }

    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let until = Instant::now() + AT_MOST;
        while !is_so() {
            let status = self.status();
            assert!(Instant::now() < until, "not in time: {what}: {status}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.proxy.release();
        self.kill_supervisor();
        let _ = fs::remove_dir_all(self.proxy.socket().parent().unwrap());
    }
}

/// Whether a process of the host has one of `ids` in its command line: a runtime's, or a shim.
fn has_process(ids: &BTreeSet<String>) -> bool {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let texts = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
    texts
        .into_iter()
        .any(|line| ids.iter().any(|id| line.contains(id.as_str())))
}

fn killed_at(user: &User, number: usize, fault: &Fault, victim: Victim) {
    let what = format!("{victim:?} at {fault:?} {number}");
    let name = what.replace(' ', "-");
    let before = user.proxy.counted();
    user.proxy.at(before + number, fault.clone());
    let call = user.call(&name);
    if !user.proxy.await_held(PATIENCE) {
        panic!("{what}: nothing was held: {:?}", user.proxy.seen());
    }
    let ids: BTreeSet<String> = user.containers().into_iter().collect();
    if victim != Victim::Call {
        user.kill_supervisor();
    }
    if victim != Victim::Supervisor {
        send(&call, Signal::KILL);
    }
    // What the engine had not heard of yet, it hears now.
    user.proxy.release();
    let ended = wait(call);
    match victim {
        Victim::Supervisor => {
            assert_eq!(ended.code, Some(0), "{what}: {}", ended.stderr);
            assert!(user.is_published(&name), "{what}");
        }
        _ => assert!(!user.is_published(&name), "{what}: an effect without a yes"),
    }
    if victim == Victim::Both {
        // Whoever comes next starts another one, which removes what is left.
        wait(user.call(&format!("{name}-next"))).expect(0);
    }
    user.until(&what, || user.containers().is_empty() && user.leases() == 0);
    user.until(&format!("{what}: processes"), || !has_process(&ids));
}

fn nothing_outlives_a_kill_at_any_request(tier: &str) {
    let user = User::new(tier);
    wait(user.call("first")).expect(0);
    let before = user.proxy.seen().len();
    wait(user.call("second")).expect(0);
    let requests = user.proxy.seen().split_off(before);
    for part in ["/create", "/start", "DELETE"] {
        let is_there = requests.iter().any(|it| it.contains(part));
        assert!(is_there, "{requests:?}");
    }
    let counted = user.proxy.counted();
    wait(user.call("third")).expect(0);
    for number in 1..=user.proxy.counted() - counted {
        killed_at(&user, number, &Fault::HoldRequest, Victim::Call);
        killed_at(&user, number, &Fault::HoldAnswer, Victim::Call);
        killed_at(&user, number, &Fault::HoldAnswer, Victim::Both);
        killed_at(&user, number, &Fault::HoldAnswer, Victim::Supervisor);
    }
    for folder in ["state/symbi/workers", "state/symbi/staging", "tmp"] {
        let left = fs::read_dir(user.desk.path(folder));
        assert_eq!(left.map_or(0, Iterator::count), 0, "{folder}");
    }
    let words = [
        "--project",
        "project",
        "--json",
        "audit",
        "list",
        "--strict",
    ];
    let listed: Value = serde_json::from_str(&user.desk.symbi(&words).stdout).unwrap();
    for run in listed["runs"].as_array().unwrap() {
        let verdict = run["verdict"].as_str().unwrap();
        assert!(["intact", "unterminated"].contains(&verdict), "{run}");
    }
}

#[test]
#[ignore = "needs docker: run ./test"]
fn on_docker_nothing_outlives_a_kill_at_any_request() {
    nothing_outlives_a_kill_at_any_request("docker");
}

#[test]
#[ignore = "needs docker: run ./test"]
fn on_gvisor_nothing_outlives_a_kill_at_any_request() {
    nothing_outlives_a_kill_at_any_request("gvisor");
}
