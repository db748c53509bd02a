//! What the tests share: an engine, a tier, a job, and a run of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

pub(crate) use crate::done::{Done, PATIENCE, await_news, wait};
use model::{CreateMode, Digest, OutputFormat, RelativePath, RiskTier, ToolName};
use sandbox::engine::{ContainerFilter, Engine};
use sandbox::lease::OWNER_LABEL;
use sandbox::{ContainerKind, ContainerSpec, ContainerTier, programs};
use testkit::lease::MemoryKeeper;
use worker::{
    CommandBoundary, CommandDescriptor, CreateGrant, Descriptor, Enforcement, Filesystem, Limit,
    Limits, Network, OutputFile, ParentIdentity, ParserDescriptor, ReadGrant, Running, StartError,
    Tier, WorkerHoldings, WorkerSpec, confirm_removal, lower,
};

/// Longest time that a test waits for a worker.
/// Workers that one bench has room for.
pub(crate) const PLACES: usize = 4;

fn told(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("`{name}` is not set: run ./test"))
}

pub(crate) fn socket() -> PathBuf {
    told("SYMBI_TEST_ENGINE").into()
}

pub(crate) fn image() -> String {
    told("SYMBI_TEST_IMAGE")
}

/// A tier with all that belongs to it.
pub(crate) struct Bench {
    pub(crate) tier: ContainerTier,
    pub(crate) keeper: MemoryKeeper,
    pub(crate) engine: Engine,
    pub(crate) staging: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new(kind: ContainerKind) -> Self {
        Self::with_image(kind, &image()).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn with_image(kind: ContainerKind, image: &str) -> Result<Self, StartError> {
        Self::at(kind, image, socket())
    }

    /// A tier that asks its engine through `socket`.
    pub(crate) fn at(
        kind: ContainerKind,
        image: &str,
        socket: PathBuf,
    ) -> Result<Self, StartError> {
        let staging = tempfile::tempdir().unwrap();
        let keeper = MemoryKeeper::new(PLACES);
        let spec = ContainerSpec {
            socket,
            ..spec(kind, image, staging.path())
        };
        let tier = ContainerTier::new(spec, |_| Ok(Box::new(keeper.clone())))?;
        Ok(Self {
            tier,
            keeper,
            engine: Engine::at(self::socket()),
            staging,
        })
    }

    pub(crate) fn start(&mut self, job: &Job) -> Result<Box<dyn Running>, StartError> {
        let spec = job.spec(&self.tier);
        self.tier.start(spec)
    }

    /// Runs a job to its confirmed removal, after which nothing is held or there.
    pub(crate) fn run(&mut self, job: &Job) -> Done {
        let done = finish(self.start(job).unwrap_or_else(|error| panic!("{error}")));
        self.assert_nothing_is_left();
        done
    }

    pub(crate) fn assert_nothing_is_left(&self) {
        assert_eq!(self.keeper.held(), []);
        assert_eq!(self.containers(), 0);
        let left = std::fs::read_dir(self.staging.path()).unwrap().count();
        assert_eq!(left, 0, "copies of files are left");
    }

    /// Containers that have a file of this bench's staging, or are its leases'.
    pub(crate) fn containers(&self) -> usize {
        let filter = ContainerFilter::default().with_label(OWNER_LABEL);
        let all = self.engine.list(&filter).unwrap();
        let staging = self.staging.path().to_str().unwrap();
        let is_ours = |id: &String| {
            let found = self.engine.inspect(id).unwrap();
            found.is_some_and(|it| {
                it.mounts
                    .iter()
                    .any(|mount| mount.source.starts_with(staging))
            })
        };
        all.iter().filter(|it| is_ours(&it.id)).count()
    }
}

pub(crate) fn spec(kind: ContainerKind, image: &str, staging: &Path) -> ContainerSpec {
    ContainerSpec {
        kind,
        socket: socket(),
        image: image.to_owned(),
        user: (65534, 65534),
        staging: staging.to_owned(),
    }
}

/// One piece of work for a worker.
pub(crate) struct Job {
    pub(crate) argv: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) inputs: Vec<(String, Vec<u8>)>,
    pub(crate) output: Option<(String, CreateMode)>,
    pub(crate) memory_mib: u64,
    pub(crate) pids: u64,
    pub(crate) file_bytes: u64,
    pub(crate) scratch_bytes: u64,
    pub(crate) stream_bytes: u64,
    /// The worker is an output parser that reads this.
    pub(crate) stdin: Option<Vec<u8>>,
}

impl Job {
    pub(crate) fn new(argv: &[&str]) -> Self {
        use worker::limits::*;
        let environment = [
            ("PATH", "/usr/bin:/bin"),
            ("HOME", "/tmp"),
            ("LANG", "C.UTF-8"),
        ];
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Self {
            argv: argv.iter().map(|&text| text.to_owned()).collect(),
            environment: environment.into_iter().map(owned).collect(),
            inputs: vec![],
            output: None,
            memory_mib: 256,
            pids: PIDS_DEFAULT,
            file_bytes: SCRATCH_FILE_BYTES_DEFAULT,
            scratch_bytes: SCRATCH_BYTES_DEFAULT,
            stream_bytes: STREAM_BYTES_DEFAULT,
            stdin: None,
        }
    }

    pub(crate) fn sh(script: &str) -> Self {
        Self::new(&["sh", "-c", script])
    }

    pub(crate) fn python(script: &str) -> Self {
        Self::new(&["python3", "-c", script])
    }

    pub(crate) fn input(mut self, path: &str, content: &[u8]) -> Self {
        self.inputs.push((path.to_owned(), content.to_vec()));
        self
    }

    pub(crate) fn output(mut self, path: &str, mode: CreateMode) -> Self {
        self.output = Some((path.to_owned(), mode));
        self
    }

    pub(crate) fn reading(mut self, stdin: &[u8]) -> Self {
        self.stdin = Some(stdin.to_vec());
        self
    }

    pub(crate) fn wanted(&self) -> Limits {
        let limit = |value| Limit {
            value,
            enforcement: Enforcement::NotEnforced,
        };
        Limits {
            memory_mib: limit(self.memory_mib),
            cpu_milli: limit(1000),
            pids: limit(self.pids),
            file_bytes: limit(self.file_bytes),
            scratch_bytes: limit(self.scratch_bytes),
            stream_bytes: limit(self.stream_bytes),
            time_ms: limit(30_000),
            landlock: Enforcement::NotEnforced,
        }
    }

    fn filesystem(&self) -> Filesystem {
        let path = |text: &str| RelativePath::new(text).unwrap();
        let read = self.inputs.iter().map(|(name, content)| {
            let grant = ReadGrant {
                path: path(name),
                bytes: content.len() as u64,
                sha256: Digest::of(content),
            };
            (name.clone(), grant)
        });
        let create = self.output.iter().map(|(name, mode)| {
            let grant = CreateGrant {
                path: path(name),
                mode: *mode,
                parent: ParentIdentity {
                    device: "1".to_owned(),
                    inode: "1".to_owned(),
                },
            };
            (name.clone(), grant)
        });
        Filesystem {
            read: read.collect(),
            create: create.collect(),
            max_file_bytes: self.file_bytes,
        }
    }

    pub(crate) fn boundary(&self, tier: &ContainerTier) -> CommandBoundary {
        CommandBoundary {
            tier: tier.kind(),
            root: tier.root(),
            network: Network::None,
            working_dir: "/workspace".to_owned(),
            limits: tier.enforceable(self.wanted()),
            filesystem: self.filesystem(),
        }
    }

    pub(crate) fn spec(&self, tier: &ContainerTier) -> WorkerSpec {
        let program = programs::resolve(&self.argv[0], &tier.root()).unwrap();
        let descriptor = Descriptor::Command(Box::new(CommandDescriptor {
            tool: ToolName::new("test_tool").unwrap(),
            version: "1.0.0".to_owned(),
            contract_sha256: Digest::of(b""),
            risk_tier: RiskTier::Low,
            human_approval: false,
            arguments: BTreeMap::new(),
            argv: self.argv.clone(),
            sealed: worker::SealedValues::default(),
            environment: self.environment.clone(),
            program: program.clone(),
            output_format: OutputFormat::Text,
            boundary: self.boundary(tier),
            parser: self.stdin.as_ref().map(|_| ParserDescriptor {
                argv: self.argv.clone(),
                environment: self.environment.clone(),
                program,
                boundary: CommandBoundary {
                    filesystem: Filesystem::default(),
                    ..self.boundary(tier)
                },
            }),
        }));
        let path = |text: &str| RelativePath::new(text).unwrap();
        let inputs = self
            .inputs
            .iter()
            .map(|(name, content)| (path(name), file(content)));
        let holdings = WorkerHoldings {
            inputs: inputs.collect(),
            ..WorkerHoldings::default()
        };
        let workers = lower(&descriptor, holdings).unwrap();
        match (&self.stdin, workers.parser) {
            (Some(content), Some(parser)) => parser.reading(file(content)),
            _ => workers.first,
        }
    }
}

fn file(content: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content).unwrap();
    file
}

/// Waits until the worker has written `text`.
pub(crate) fn wait_for(running: &mut dyn Running, text: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !String::from_utf8_lossy(&running.stdout_since(0)).contains(text) {
        await_news(running);
        assert!(running.advance().is_none(), "it has ended");
        assert!(
            Instant::now() < deadline,
            "the worker does not say `{text}`"
        );
    }
}

pub(crate) fn finish(mut running: Box<dyn Running>) -> Done {
    let ended = wait(running.as_mut());
    assert_eq!(confirm_removal(running.as_mut()).unwrap().len(), 1);
    let output = match &ended.output {
        OutputFile::Written { file, bytes } => Some(read(file, *bytes)),
        _ => None,
    };
    Done { ended, output }
}

fn read(mut file: &File, bytes: u64) -> Vec<u8> {
    let mut content = vec![];
    std::io::Seek::rewind(&mut file).unwrap();
    file.read_to_end(&mut content).unwrap();
    assert_eq!(content.len() as u64, bytes);
    content
}
