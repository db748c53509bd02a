//! A user's folders with an engine, and processes that own workers, as runs do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use filegrants::StagingPool;
use rustix::process::{Pid, Signal, kill_process};
use sandbox::engine::{ContainerConfig, ContainerCreate, Engine, HostConfig};
use sandbox::lease::{
    LEASE_LABEL, Lease, LeaseKeeper as _, LeaseRefused, LeaseTerms, MADE_MARK, OWNER_LABEL,
};
use supervisor::{Client, Keeper, Launch};
use tempfile::TempDir;
use testkit::engine::{FakeEngine, IMAGE};
use testkit::engine_proxy::EngineProxy;
use worker::TierKind;

/// What a dead owner's container may outlive it by.
pub(crate) const AT_MOST: Duration = Duration::from_secs(5);
/// Where a child finds the user's folders.
const PLACE: &str = "SYMBI_TEST_PLACE";

pub(crate) struct User {
    pub(crate) folder: TempDir,
    pub(crate) engine: FakeEngine,
    /// What owners talk to; the supervisor talks to the engine itself.
    pub(crate) proxy: EngineProxy,
}

impl User {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let engine = FakeEngine::start(&folder.path().join("engine.sock")).unwrap();
        let proxy = EngineProxy::start(&folder.path().join("proxy.sock"), engine.socket());
        Self {
            proxy: proxy.unwrap(),
            engine,
            folder,
        }
    }

    pub(crate) fn client(&self) -> Client {
        client(self.folder.path())
    }

    pub(crate) fn symbi(&self, arguments: &[&str]) -> (i32, String, String) {
        let place = self.folder.path();
        let output = Command::new(env!("CARGO_BIN_EXE_symbi"))
            .args(arguments)
            .current_dir(place)
            .env_clear()
            .env("XDG_CONFIG_HOME", place.join("config"))
            .env("XDG_STATE_HOME", place.join("state"))
            .env("XDG_RUNTIME_DIR", place.join("run"))
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap();
        (code, text(output.stdout), text(output.stderr))
    }

    /// A process that plays `part`, a test of this file.
    pub(crate) fn owner(&self, part: &str) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                &format!("owner::{part}"),
                "--ignored",
                "--nocapture",
            ])
            .env(PLACE, self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    pub(crate) fn supervisor_pid(&self) -> u32 {
        self.client().status().unwrap().pid
    }

    pub(crate) fn kill(&self, pid: u32) {
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
    }

    pub(crate) fn pool(&self) -> StagingPool {
        StagingPool::open_ambient(&staging(self.folder.path()), 1 << 20).unwrap()
    }

    #[track_caller]
    pub(crate) fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let until = Instant::now() + AT_MOST;
        while !is_so() {
            assert!(Instant::now() < until, "not in time: {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[track_caller]
    pub(crate) fn until_nothing_is_left(&self, what: &str) {
        self.until(&format!("{what}: no container"), || {
            self.engine.containers().is_empty()
        });
        self.until(&format!("{what}: no lease"), || {
            self.client().status().is_ok_and(|it| it.leases.is_empty())
        });
        assert!(self.pool().references().unwrap().is_empty(), "{what}");
        assert!(self.pool().reclaim().is_ok());
        let staged = std::fs::read_dir(staging(self.folder.path())).unwrap();
        assert_eq!(staged.count(), 0, "{what}");
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if let Ok(status) = self.client().status() {
            self.kill(status.pid);
        }
    }
}

fn staging(place: &Path) -> PathBuf {
    place.join("state/symbi/staging")
}

/// Where a tier puts what its workers are shown.
fn workers(place: &Path) -> PathBuf {
    let folder = place.join("workers");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn client(place: &Path) -> Client {
    let folders = ["config/symbi", "state/symbi", "run/symbi"].map(|it| place.join(it));
    let mut arguments = vec!["supervisor".into(), "--folders".into()];
    arguments.extend(folders.iter().map(|it| it.as_os_str().to_owned()));
    Client {
        state: folders[1].join("supervisor"),
        sockets: folders[2].clone(),
        launch: Launch {
            program: env!("CARGO_BIN_EXE_symbi").into(),
            arguments,
            detach: "--detach".into(),
            unit: None,
        },
    }
}

pub(crate) fn keeper(place: &Path) -> Keeper {
    Keeper::open(client(place), place.join("engine.sock")).unwrap()
}

pub(crate) fn terms(place: &Path) -> LeaseTerms {
    LeaseTerms {
        tier: TierKind::Docker,
        socket: place.join("engine.sock"),
        staging: workers(place),
        memory_mib: 256,
        cpu_milli: 500,
        lifetime: Duration::from_secs(60),
    }
}

pub(crate) fn container(lease: &Lease, image: &str) -> ContainerCreate {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let labels = BTreeMap::from([
        (LEASE_LABEL.to_owned(), lease.id().to_string()),
        (OWNER_LABEL.to_owned(), uid),
    ]);
    ContainerCreate {
        config: ContainerConfig {
            image: image.to_owned(),
            labels,
            ..ContainerConfig::default()
        },
        host_config: HostConfig::default(),
    }
}

/// The folders that a child was started for; `None` where it was started by hand.
fn place() -> Option<PathBuf> {
    std::env::var_os(PLACE).map(PathBuf::from)
}

/// One worker's whole life, as a tier leads it: five requests to the engine.
fn lead(engine: &Engine, lease: &Lease, files: Option<&Path>) {
    let name = lease.container_name();
    let id = engine.create(&name, &container(lease, IMAGE)).unwrap();
    if let Some(files) = files {
        std::fs::write(files.join(MADE_MARK), "").unwrap();
    }
    assert!(engine.inspect(id.as_str()).unwrap().is_some());
    engine.start(&id).unwrap();
    engine.kill(&id).unwrap();
    engine.remove(id.as_str()).unwrap();
}

#[test]
#[ignore = "the child of the test killed_at_any_step…, which runs it"]
fn one_worker() {
    let Some(place) = place() else { return };
    let mut keeper = keeper(&place);
    let pool = StagingPool::open_ambient(&staging(&place), 1 << 20).unwrap();
    let _charge = pool.reserve(4096).unwrap();
    let lease = keeper.take(&terms(&place)).unwrap();
    let files = workers(&place).join(lease.id().as_str());
    std::fs::create_dir(&files).unwrap();
    lead(&Engine::at(place.join("proxy.sock")), &lease, Some(&files));
    std::fs::remove_dir_all(&files).unwrap();
    keeper.release(lease).unwrap();
}

#[test]
#[ignore = "the child of the test thirty_two_concurrent_calls…, which runs it"]
fn eight_calls() {
    let Some(place) = place() else { return };
    let keeper = std::sync::Mutex::new(keeper(&place));
    let engine = Engine::at(place.join("proxy.sock"));
    let call = || {
        let lease = loop {
            let taken = keeper.lock().unwrap().take(&terms(&place));
            match taken {
                Ok(lease) => break lease,
                Err(LeaseRefused::Exhausted { reason }) => {
                    assert!(reason.contains("8 of 8 workers"), "{reason}");
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => panic!("{error}"),
            }
        };
        lead(&engine, &lease, None);
        keeper.lock().unwrap().release(lease).unwrap();
    };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(call);
        }
    });
}
