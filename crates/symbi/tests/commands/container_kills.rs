//! SIGKILL of a call, of its supervisor, and of both, at every request to a real engine: before the
//! engine hears of it, and after it has done it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use model::RunId;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use sandbox::engine::{
    ContainerConfig, ContainerCreate, ContainerFilter, ContainerId, Engine, HostConfig,
};
use sandbox::lease::{LEASE_LABEL, LeaseId, OWNER_LABEL};
use serde_json::Value;
use testkit::engine_proxy::{EngineProxy, Fault};
use testkit::left_process::LeftProcess;

use crate::containers::{on_engine, told};
use crate::desk::{Desk, send, wait};

/// What a dead owner's container may outlive it by, once supervisor and engine live: five seconds,
/// and as much again on a machine with other work.
const AT_MOST: Duration = Duration::from_secs(10);
/// For a request to reach the proxy.
const PATIENCE: Duration = Duration::from_secs(30);
/// The ordinary user.
const ORDINARY: u32 = 1001;
/// Time to see a container before its life is over.
const STARTING: Duration = Duration::from_secs(2);

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
        Self::with(tier, |desk| desk)
    }

    fn with(tier: &str, given: impl FnOnce(Desk) -> Desk) -> Self {
        let engine = PathBuf::from(told("SYMBI_TEST_ENGINE"));
        // Its folder outlives the desk, whose home has too long a name for a socket.
        let folder = tempfile::tempdir().unwrap().keep();
        let socket = folder.join("proxy.sock");
        let proxy = EngineProxy::start(&socket, &engine).unwrap();
        let socket = socket.to_str().unwrap();
        let desk = on_engine(tier, &told("SYMBI_TEST_IMAGE"), socket, "");
        let engine = Engine::at(engine);
        Self {
            desk: given(desk),
            proxy,
            engine,
        }
    }

    /// The same as an ordinary user, who may use the engine.
    fn ordinary(tier: &str) -> Self {
        // Whoever is not root is one already.
        let user = Self::with(tier, |desk| match geteuid().is_root() {
            true => desk.given_to(ORDINARY, &["symbi", "symbi-init"]),
            false => desk,
        });
        let socket = user.proxy.socket();
        for (path, mode) in [(socket.parent().unwrap(), 0o755), (socket, 0o666)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        user
    }

    /// The call with `id`, whose file has its name.
    fn call(&self, id: &str) -> Child {
        let output = format!("output=out/{id}.csv");
        let words = ["copy_csv", "--arg", "input=data/example.csv", "--arg"];
        let last = [output.as_str(), "--invocation-id", id];
        let all = [&["--project", "project", "call"], &words[..], &last];
        self.desk.start(&all.concat())
    }

    fn finished_call(&self) {
        wait(self.call(&RunId::new().to_string())).expect(0);
    }

    /// The same id again: it has its result, is unresolved, or had not begun.
    fn call_again(&self, id: &str, victim: Victim, what: &str) {
        let inode = || fs::metadata(self.output(id)).map(|it| it.ino()).ok();
        let before = inode();
        let again = wait(self.call(id));
        let (is_done, is_published) = (again.code == Some(0), self.is_published(id));
        match victim {
            Victim::Supervisor => assert!(is_done && inode() == before, "{what}: {}", again.stderr),
            _ if is_done => assert!(is_published, "{what}"),
            _ => {
                assert_eq!(again.code, Some(5), "{what}: {}", again.stderr);
                assert!(!is_published, "{what}: a second effect");
            }
        }
        let name = format!(".symbiont/governed/{id}.jsonl");
        // It may have died before it had one.
        let journal = fs::read_to_string(self.desk.project().join(name)).unwrap_or_default();
        let dispatched = journal.matches("\"kind\":\"CallDispatching\"").count();
        assert!(dispatched <= 1, "{what}: {journal}");
    }

    fn output(&self, id: &str) -> PathBuf {
        self.desk.project().join(format!("out/{id}.csv"))
    }

    /// The file is absent, or all of it is there and right.
    fn is_published(&self, id: &str) -> bool {
        let source = fs::read(self.desk.project().join("data/example.csv")).ok();
        let found = fs::read(self.output(id)).ok();
        assert!(found.is_none() || found == source, "{id}: a partial file");
        found.is_some()
    }

    fn status(&self) -> Value {
        let status = self.desk.symbi(&["sandbox", "status", "--json"]);
        serde_json::from_str(&status.expect(0).stdout).unwrap()
    }

    fn supervisor(&self) -> Option<i32> {
        let status = self.status();
        let supervisor = status["supervisor"].as_object()?;
        let pid = supervisor["process"].as_i64().unwrap();
        Some(i32::try_from(pid).unwrap())
    }

    fn kill_supervisor(&self) {
        let pid = self.supervisor().expect("a supervisor runs");
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
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
            let log = fs::read_to_string(self.desk.path("state/symbi/supervisor/log"));
            assert!(
                Instant::now() < until,
                "not in time: {what}: {status}\n{}",
                log.unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.proxy.release();
        if self.supervisor().is_some() {
            self.kill_supervisor();
        }
        let _ = fs::remove_dir_all(self.proxy.socket().parent().unwrap());
    }
}

/// Containers of other owners: another user's, another state folder's, and somebody's without a
/// word of ours but a label.
struct Foreign {
    engine: Engine,
    ids: Vec<ContainerId>,
}

impl Foreign {
    fn new(engine: &Engine) -> Self {
        let ours = geteuid().as_raw().to_string();
        let lease = || LeaseId::random().unwrap().to_string();
        let all = [
            vec![
                (LEASE_LABEL, lease()),
                (OWNER_LABEL, "4294967294".to_owned()),
            ],
            vec![(LEASE_LABEL, lease()), (OWNER_LABEL, ours.clone())],
            vec![(OWNER_LABEL, ours)],
            vec![("somebody", "else".to_owned())],
        ];
        let ids = all.map(|labels| {
            let wanted = ContainerCreate {
                config: ContainerConfig {
                    image: told("SYMBI_TEST_IMAGE"),
                    entrypoint: vec!["true".to_owned()],
                    network_disabled: true,
                    labels: labels
                        .into_iter()
                        .map(|(name, value)| (name.to_owned(), value))
                        .collect::<BTreeMap<_, _>>(),
                    ..ContainerConfig::default()
                },
                host_config: HostConfig::default(),
            };
            let name = format!("symbi-test-foreign-{}", lease());
            engine.create(&name, &wanted).unwrap()
        });
        Self {
            engine: engine.clone(),
            ids: ids.into(),
        }
    }

    fn are_untouched(&self) -> bool {
        let is_as_made = |id: &ContainerId| {
            let found = self.engine.inspect(id.as_str()).unwrap();
            found.is_some_and(|it| it.state.status == "created")
        };
        self.ids.iter().all(is_as_made)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        for id in &self.ids {
            let _ = self.engine.remove(id.as_str());
        }
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
    let id = RunId::new().to_string();
    let before = user.proxy.counted();
    user.proxy.at(before + number, fault.clone());
    let call = user.call(&id);
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
            assert!(user.is_published(&id), "{what}");
        }
        _ => assert!(!user.is_published(&id), "{what}: an effect without a yes"),
    }
    if victim == Victim::Both {
        // Whoever comes next starts another one, which removes what is left.
        user.finished_call();
    }
    user.until(&what, || user.containers().is_empty() && user.leases() == 0);
    user.until(&format!("{what}: processes"), || !has_process(&ids));
    user.call_again(&id, victim, &what);
}

fn nothing_outlives_a_kill_at_any_request(user: &User) {
    let foreign = Foreign::new(&user.engine);
    user.finished_call();
    let before = user.proxy.seen().len();
    user.finished_call();
    let requests = user.proxy.seen().split_off(before);
    for part in ["/create", "/start", "DELETE"] {
        let is_there = requests.iter().any(|it| it.contains(part));
        assert!(is_there, "{requests:?}");
    }
    let counted = user.proxy.counted();
    user.finished_call();
    for number in 1..=user.proxy.counted() - counted {
        for fault in [Fault::HoldRequest, Fault::HoldAnswer] {
            for victim in [Victim::Call, Victim::Both, Victim::Supervisor] {
                killed_at(user, number, &fault, victim);
            }
        }
    }
    assert!(foreign.are_untouched());
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
    nothing_outlives_a_kill_at_any_request(&User::new("docker"));
}

#[test]
#[ignore = "needs docker: run ./test"]
fn of_an_ordinary_user_nothing_outlives_a_kill_at_any_request() {
    nothing_outlives_a_kill_at_any_request(&User::ordinary("docker"));
}

#[test]
#[ignore = "needs docker: run ./test"]
fn on_gvisor_nothing_outlives_a_kill_at_any_request() {
    nothing_outlives_a_kill_at_any_request(&User::new("gvisor"));
}

#[test]
#[ignore = "needs docker: run ./test"]
fn on_gvisor_a_process_left_by_a_removal_that_its_owner_did_not_survive_is_ended() {
    for victim in [Victim::Call, Victim::Both] {
        let user = User::new("gvisor");
        user.finished_call();
        // Every step before the removal's answer is held for a moment, and looked at.
        user.proxy
            .on("DELETE", "/containers/", Fault::HoldAnswer, 1);
        user.proxy.on("POST", "/start", Fault::Delay(STARTING), 1);
        let before: BTreeSet<String> = user.containers().into_iter().collect();
        let call = user.call(&RunId::new().to_string());
        let made = || {
            user.containers()
                .into_iter()
                .find(|it| !before.contains(it))
        };
        user.until("its container", || made().is_some());
        let container = made().unwrap();
        let left = LeftProcess::of(&container).unwrap();
        assert!(user.proxy.await_held(PATIENCE), "{:?}", user.proxy.seen());
        assert!(!left.has_ended() && user.containers().is_empty());
        if victim == Victim::Both {
            user.kill_supervisor();
        }
        send(&call, Signal::KILL);
        user.proxy.release();
        wait(call);
        if victim == Victim::Both {
            user.finished_call();
        }
        user.until("its lease", || user.leases() == 0);
        assert!(left.has_ended(), "{victim:?}: the lease ended before it");
    }
}
