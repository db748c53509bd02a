//! What the tests share: a tier, a job, and a run of it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

pub(crate) use crate::done::{Done, wait};
use model::{CreateMode, Digest, OutputFormat, RelativePath, RiskTier, ToolName};
use sandbox::{NamespaceConfig, NamespaceTier, locate_init, programs};
use worker::{
    CommandBoundary, CommandDescriptor, CreateGrant, Descriptor, Enforcement, Filesystem, Limit,
    Limits, Network, OutputFile, ParentIdentity, ParserDescriptor, ProgramIdentity, ReadGrant,
    Running, StartError, Tier, TierKind, WorkerHoldings, WorkerRoot, WorkerSpec, confirm_removal,
    lower,
};

/// Longest time that a test waits for a worker.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The helper, built if it is missing or older than its sources.
pub(crate) fn init_path() -> PathBuf {
    if let Some(path) = std::env::var_os("SYMBI_TEST_INIT") {
        return PathBuf::from(path);
    }
    let me = std::env::current_exe().unwrap();
    if let Ok(found) = locate_init(&me, None)
        && modified(&found) >= newest_source()
    {
        return found;
    }
    let profile_folder = me.ancestors().nth(2).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "build",
        "--quiet",
        "--package",
        "sandbox-init",
        "--bin",
        "symbi-init",
    ]);
    cargo
        .arg("--target-dir")
        .arg(profile_folder.parent().unwrap());
    cargo
        .arg("--manifest-path")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
    if profile_folder.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success());
    locate_init(&me, None).unwrap()
}

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

fn newest_source() -> SystemTime {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../sandbox-init/src");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|entry| modified(&entry.unwrap().path()));
    files.max().unwrap()
}

pub(crate) fn config() -> NamespaceConfig {
    let mut config = NamespaceConfig::new(init_path());
    if is_root() {
        config.locks = Some(PathBuf::from("/run/symbi-test"));
    }
    config
}

pub(crate) fn tier() -> NamespaceTier {
    NamespaceTier::new(config()).unwrap()
}

/// One piece of work for a worker.
pub(crate) struct Job {
    pub(crate) argv: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) inputs: Vec<(String, Vec<u8>)>,
    pub(crate) output: Option<(String, CreateMode)>,
    pub(crate) memory_mib: u64,
    pub(crate) cpu_milli: u64,
    pub(crate) pids: u64,
    pub(crate) file_bytes: u64,
    pub(crate) scratch_bytes: u64,
    pub(crate) stream_bytes: u64,
    pub(crate) time_ms: u64,
    pub(crate) also: Vec<String>,
    pub(crate) working_dir: String,
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
            memory_mib: MEMORY_MIB_DEFAULT,
            cpu_milli: CPU_MILLI_DEFAULT,
            pids: PIDS_DEFAULT,
            file_bytes: SCRATCH_FILE_BYTES_DEFAULT,
            scratch_bytes: SCRATCH_BYTES_DEFAULT,
            stream_bytes: STREAM_BYTES_DEFAULT,
            time_ms: TIME_MS_DEFAULT,
            also: vec![],
            working_dir: "/workspace".to_owned(),
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

    fn wanted(&self) -> Limits {
        let limit = |value| Limit {
            value,
            enforcement: Enforcement::NotEnforced,
        };
        Limits {
            memory_mib: limit(self.memory_mib),
            cpu_milli: limit(self.cpu_milli),
            pids: limit(self.pids),
            file_bytes: limit(self.file_bytes),
            scratch_bytes: limit(self.scratch_bytes),
            stream_bytes: limit(self.stream_bytes),
            time_ms: limit(self.time_ms),
            landlock: Enforcement::NotEnforced,
        }
    }

    fn boundary(&self, limits: Limits) -> CommandBoundary {
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
            let parent = ParentIdentity {
                device: "1".to_owned(),
                inode: "1".to_owned(),
            };
            let grant = CreateGrant {
                path: path(name),
                mode: *mode,
                parent,
            };
            (name.clone(), grant)
        });
        CommandBoundary {
            tier: TierKind::Namespace,
            root: WorkerRoot::System {
                also: self.also.clone(),
            },
            network: Network::None,
            working_dir: self.working_dir.clone(),
            limits,
            filesystem: Filesystem {
                read: read.collect(),
                create: create.collect(),
                max_file_bytes: self.file_bytes,
            },
        }
    }

    pub(crate) fn program(&self) -> ProgramIdentity {
        let root = WorkerRoot::System {
            also: self.also.clone(),
        };
        programs::resolve(&self.argv[0], &root).unwrap()
    }

    pub(crate) fn spec(&self, tier: &NamespaceTier) -> WorkerSpec {
        self.spec_of(tier, self.program())
    }

    pub(crate) fn spec_of(&self, tier: &NamespaceTier, program: ProgramIdentity) -> WorkerSpec {
        self.spec_with(program, tier.enforceable(self.wanted()))
    }

    pub(crate) fn spec_with(&self, program: ProgramIdentity, limits: Limits) -> WorkerSpec {
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
            boundary: self.boundary(limits.clone()),
            parser: self.stdin.as_ref().map(|_| ParserDescriptor {
                argv: self.argv.clone(),
                environment: self.environment.clone(),
                program,
                boundary: self.boundary(limits),
            }),
        }));
        let inputs = self.inputs.iter().map(|(name, content)| {
            let mut file = tempfile::tempfile().unwrap();
            std::io::Write::write_all(&mut file, content).unwrap();
            (RelativePath::new(name.as_str()).unwrap(), file)
        });
        let holdings = WorkerHoldings {
            inputs: inputs.collect(),
            ..WorkerHoldings::default()
        };
        let workers = lower(&descriptor, holdings).unwrap();
        match (&self.stdin, workers.parser) {
            (Some(content), Some(parser)) => {
                let mut file = tempfile::tempfile().unwrap();
                std::io::Write::write_all(&mut file, content).unwrap();
                parser.reading(file)
            }
            _ => workers.first,
        }
    }
}

pub(crate) fn start(tier: &mut NamespaceTier, job: &Job) -> Result<Box<dyn Running>, StartError> {
    let spec = job.spec(tier);
    tier.start(spec)
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
    file.read_to_end(&mut content).unwrap();
    assert_eq!(content.len() as u64, bytes);
    assert_eq!(file.metadata().unwrap().size(), bytes);
    content
}

pub(crate) fn run(job: &Job) -> Done {
    let mut tier = tier();
    finish(start(&mut tier, job).unwrap())
}

pub(crate) fn run_in(tier: &mut NamespaceTier, job: &Job) -> Done {
    finish(start(tier, job).unwrap())
}

/// The states of every live process whose name or command line has `marker`.
pub(crate) fn processes_with(marker: &str) -> Vec<String> {
    let mut found = vec![];
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let path = entry.path();
        let text = |file: &str| fs::read(path.join(file)).unwrap_or_default();
        let stat = String::from_utf8_lossy(&text("stat")).into_owned();
        let Some((_, state)) = stat.rsplit_once(") ") else {
            continue;
        };
        let names = [text("comm"), text("cmdline")].concat();
        let names = String::from_utf8_lossy(&names).into_owned();
        if names.contains(marker) && !state.starts_with('Z') && !state.starts_with('X') {
            found.push(format!("{} {names:?} {state}", path.display()));
        }
    }
    found
}
