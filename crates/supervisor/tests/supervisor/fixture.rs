//! A user's folders, an engine, and a supervisor that runs in a thread.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use filegrants::StagingPool;
use sandbox::engine::{ContainerConfig, ContainerCreate, ContainerId, Engine, HostConfig};
use sandbox::lease::{LEASE_LABEL, Lease, LeaseTerms, OWNER_LABEL};
use supervisor::{CapacityLimits, Client, FolderFault, Keeper, Launch, Status, Terms, serve};
use tempfile::TempDir;
use testkit::engine::{FakeEngine, IMAGE};
use testkit::engine_proxy::EngineProxy;
use worker::TierKind;

pub(crate) const SOON: Duration = Duration::from_secs(5);
pub(crate) const LIMITS: CapacityLimits = CapacityLimits {
    workers: 3,
    cpu_milli: 3000,
    memory_mib: 2048,
};

pub(crate) struct World {
    pub(crate) folder: TempDir,
    pub(crate) engine: FakeEngine,
    pub(crate) proxy: EngineProxy,
}

/// A supervisor in a thread. It ends by itself when nothing is left to do.
pub(crate) struct Running(JoinHandle<Result<(), FolderFault>>);

impl Running {
    pub(crate) fn ends(self) -> Result<(), FolderFault> {
        self.0.join().unwrap()
    }
}

impl World {
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

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where the supervisor of this world listens, which has run before.
    pub(crate) fn socket(&self) -> PathBuf {
        let store = fs::read_to_string(self.path("state/store")).unwrap();
        self.path("run")
            .join(format!("supervisor-{}", store.trim()))
    }

    pub(crate) fn terms(&self) -> Terms {
        let limits = Box::new(|| Ok(LIMITS));
        let mut terms = Terms::new(
            self.path("state"),
            self.path("run"),
            self.path("staging"),
            limits,
        );
        terms.idle = Duration::from_millis(300);
        terms.unseen = Duration::from_millis(800);
        terms
    }

    pub(crate) fn serve(&self) -> Running {
        self.serve_on(self.terms())
    }

    pub(crate) fn serve_on(&self, terms: Terms) -> Running {
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::spawn(move || serve(terms, |stage| ready.send(stage).unwrap()));
        is_ready.recv_timeout(SOON).unwrap();
        Running(thread)
    }

    /// A client that finds the supervisor, and cannot start one.
    pub(crate) fn client(&self) -> Client {
        Client {
            state: self.path("state"),
            sockets: self.path("run"),
            launch: Launch {
                program: "/bin/false".into(),
                arguments: Vec::new(),
                detach: "--detach".into(),
                unit: None,
            },
        }
    }

    pub(crate) fn keeper(&self) -> Keeper {
        Keeper::open(self.client(), self.proxy.socket().to_owned()).unwrap()
    }

    pub(crate) fn status(&self) -> Status {
        self.client().status().unwrap()
    }

    /// Makes the folder of a worker's files; it is there before its container is asked for.
    pub(crate) fn make_folder_of(&self, lease: &Lease) -> PathBuf {
        let folder = self.lease_terms().staging.join(lease.id().as_str());
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    pub(crate) fn lease_terms(&self) -> LeaseTerms {
        LeaseTerms {
            tier: TierKind::Docker,
            socket: self.proxy.socket().to_owned(),
            staging: self.path("staging"),
            memory_mib: 512,
            cpu_milli: 1000,
            lifetime: Duration::from_secs(60),
        }
    }

    pub(crate) fn pool(&self) -> StagingPool {
        StagingPool::open_ambient(&self.path("staging"), 1 << 20).unwrap()
    }

    /// Makes and starts the container of a lease, as a tier does.
    pub(crate) fn run(&self, lease: &Lease) -> ContainerId {
        let engine = Engine::at(self.proxy.socket());
        let id = engine.create(&lease.container_name(), &container(lease, IMAGE));
        let id = id.unwrap();
        engine.start(&id).unwrap();
        id
    }

    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let until = Instant::now() + SOON;
        while !is_so(self) {
            assert!(Instant::now() < until, "not in time: {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn until_nothing_is_left(&self) {
        self.until("nothing is left", |world| {
            world.engine.containers().is_empty() && world.status().leases.is_empty()
        });
        assert!(self.pool().references().unwrap().is_empty());
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
