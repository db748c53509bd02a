//! A project's folder: manifests, policies, files, keys and journals.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use filegrants::{Ceilings, FileBroker};
use journal::{ProjectKey, Report, VerifyOptions, verify_file};
use model::RunId;
use policy::{LaunchShape, Policies, PolicySource, ToolKind, ToolShape};
use symbi_runtime::CedarGate;
use symbi_runtime::tools::BoundarySettings;
use tempfile::TempDir;
use toolclad::{Contract, ContractSet, ProjectRules};
use worker::WorkerRoot;

use super::TESTER;

/// Real manifests of every kind that the tests need.
pub const MANIFESTS: [(&str, &str); 7] = [
    (
        "scale",
        r#"
[tool]
name = "scale"
version = "1.0.0"
description = "Print a number of at most ten"
binary = "echo"
timeout_seconds = 10
[args.count]
position = 1
required = true
type = "integer"
min = 1
max = 10
clamp = true
[command]
exec = ["echo", "{count}"]
"#,
    ),
    (
        "guarded",
        r#"
[tool]
name = "guarded"
version = "1.0.0"
description = "Print a number after a person's yes"
binary = "echo"
human_approval = true
timeout_seconds = 10
[args.count]
position = 1
required = true
type = "integer"
min = 1
max = 10
clamp = true
[command]
exec = ["echo", "{count}"]
"#,
    ),
    (
        "copy_csv",
        r#"
[tool]
name = "copy_csv"
version = "1.0.0"
description = "Copy one CSV file"
binary = "cp"
timeout_seconds = 10
[args.input]
position = 1
required = true
type = "path"
[args.output]
position = 2
required = true
type = "path"
[command]
exec = ["cp", "{input}", "{output}"]
[filesystem]
read = ["{input}"]
create = ["{output}"]
"#,
    ),
    (
        "guarded_copy",
        r#"
[tool]
name = "guarded_copy"
version = "1.0.0"
description = "Copy one file after a person's yes"
binary = "cp"
human_approval = true
timeout_seconds = 10
[args.input]
position = 1
required = true
type = "path"
[args.output]
position = 2
required = true
type = "path"
[command]
exec = ["cp", "{input}", "{output}"]
[filesystem]
read = ["{input}"]
create = ["{output}"]
"#,
    ),
    (
        "nap",
        r#"
[tool]
name = "nap"
version = "1.0.0"
description = "Sleep"
binary = "sleep"
timeout_seconds = 30
[args.seconds]
position = 1
required = true
type = "integer"
min = 1
max = 60
[command]
exec = ["sleep", "{seconds}"]
"#,
    ),
    (
        "fails",
        r#"
[tool]
name = "fails"
version = "1.0.0"
description = "Exit with 1"
binary = "false"
timeout_seconds = 10
[command]
exec = ["false"]
"#,
    ),
    (
        "rows",
        r#"
[tool]
name = "rows"
version = "1.0.0"
description = "Print JSON"
binary = "echo"
timeout_seconds = 10
[command]
exec = ["echo", "[1,2]"]
[output]
format = "json"
"#,
    ),
];

/// Permits everything to the tester.
pub const PERMIT_ALL: &str = "@id(\"tester-may\")\npermit(principal, action, resource);\n";

/// A project, a private staging folder and a state folder, all below one temporary folder.
#[derive(Debug)]
pub struct Project {
    folder: TempDir,
    key: ProjectKey,
}

impl Drop for Project {
    fn drop(&mut self) {
        testkit::journals::keep_project(&self.state(), self.key.public());
    }
}

impl Project {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["project", "project/data", "project/out"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        for name in ["staging", "state", "channel-parent"] {
            let mut private = fs::DirBuilder::new();
            private
                .mode(0o700)
                .create(folder.path().join(name))
                .unwrap();
        }
        fs::write(folder.path().join("project/data/a.csv"), "a,b\n1,2\n").unwrap();
        Self {
            folder,
            key: ProjectKey::from_seed(&[7; 32]),
        }
    }

    pub fn key(&self) -> &ProjectKey {
        &self.key
    }

    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// A private folder for a channel.
    pub fn channel_parent(&self) -> PathBuf {
        self.folder.path().join("channel-parent")
    }

    pub fn file(&self, path: &str) -> PathBuf {
        self.folder.path().join("project").join(path)
    }

    pub fn exists(&self, path: &str) -> bool {
        fs::symlink_metadata(self.file(path)).is_ok()
    }

    /// Snapshots that are on disk now.
    pub fn staged(&self) -> usize {
        let staging = fs::read_dir(self.folder.path().join("staging")).unwrap();
        staging
            .filter(|entry| {
                !entry
                    .as_ref()
                    .unwrap()
                    .file_name()
                    .as_encoded_bytes()
                    .ends_with(b".lock")
            })
            .count()
    }

    /// The staging pool, with `bytes_max` as its bound.
    pub fn pool(&self, bytes_max: u64) -> filegrants::StagingPool {
        let staging = self.folder.path().join("staging");
        filegrants::StagingPool::open_ambient(&staging, bytes_max).unwrap()
    }

    /// Candidates that are on disk now.
    pub fn candidates(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.file("out/.symbi-candidates")) else {
            return Vec::new();
        };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    pub fn files(&self) -> FileBroker {
        let volumes = ["./data:/workspace/data:ro", "./out:/workspace/out:rw"];
        let volumes = volumes.map(str::to_owned);
        let ceilings = Ceilings::parse(&volumes, "/workspace").unwrap();
        let project = fs::File::open(self.folder.path().join("project")).unwrap();
        let staging = self.folder.path().join("staging");
        FileBroker::open(OwnedFd::from(project), &staging, ceilings).unwrap()
    }

    pub fn contracts() -> ContractSet {
        let files =
            MANIFESTS.map(|(name, text)| (format!("tools/{name}.clad.toml"), text.to_owned()));
        ContractSet::parse(files).unwrap_or_else(|faults| panic!("{faults}"))
    }

    /// The usual manifests, and `more` of them.
    pub fn contracts_and(more: &[(&str, String)]) -> ContractSet {
        let usual = MANIFESTS.map(|(name, text)| (name, text.to_owned()));
        let files = usual.iter().chain(more);
        let files = files.map(|(name, text)| (format!("tools/{name}.clad.toml"), text.clone()));
        let scope = "[scope]\ndomains = [\"localhost\"]\n";
        let rules = ProjectRules::parse(None, Some(("scope/scope.toml", scope))).unwrap();
        ContractSet::parse_with(files, &rules).unwrap_or_else(|faults| panic!("{faults}"))
    }

    pub fn gate(text: &str, trusted_keys: &[&str]) -> CedarGate {
        Self::gate_for(&Self::contracts(), text, trusted_keys)
    }

    pub fn gate_for(contracts: &ContractSet, text: &str, trusted_keys: &[&str]) -> CedarGate {
        CedarGate::new(Arc::new(policies(contracts, text, trusted_keys)))
    }

    pub fn journal_path(&self, run: RunId) -> PathBuf {
        journal::journal_path(&self.state(), run)
    }

    pub fn verify(&self, run: RunId) -> Report {
        let options = VerifyOptions {
            public_key: Some(self.key.public().clone()),
            run: Some(run),
            ..VerifyOptions::default()
        };
        verify_file(&self.journal_path(run), &options).unwrap()
    }

    pub fn root(&self) -> &Path {
        self.folder.path()
    }
}

fn policies(contracts: &ContractSet, text: &str, trusted_keys: &[&str]) -> Policies {
    let source = PolicySource {
        file: "policies/p.cedar".to_owned(),
        text: text.to_owned(),
    };
    let shapes: Vec<ToolShape> = contracts.iter().map(shape).collect();
    let launches = [LaunchShape {
        executor: "command".to_owned(),
    }];
    let trusted: Vec<String> = trusted_keys.iter().map(|it| (*it).to_owned()).collect();
    Policies::load(
        &[source],
        &shapes,
        &launches,
        &[TESTER.to_owned()],
        &trusted,
    )
    .unwrap_or_else(|faults| panic!("{faults}"))
}

fn shape(contract: &Contract) -> ToolShape {
    let keys = |creates: bool| {
        let files = contract.file_arguments().into_iter();
        let files = files.filter(|file| file.creates == creates);
        files.map(|file| (file.key, file.optional)).collect()
    };
    let seen = contract.arguments().filter(|it| !it.sensitive());
    let arguments = seen.map(|argument| {
        (
            argument.name().clone(),
            argument.kind(),
            argument.always_present(),
        )
    });
    ToolShape {
        name: contract.name().clone(),
        kind: ToolKind::Command,
        action: contract.cedar_action(),
        resource: contract.cedar_resource_type().map(str::to_owned),
        arguments: arguments.collect(),
        read_keys: keys(false),
        create_keys: keys(true),
        needs_approval: contract.needs_approval(),
    }
}

/// The operator's ceiling.
pub fn boundary() -> BoundarySettings {
    BoundarySettings {
        root: WorkerRoot::System { also: Vec::new() },
        network: worker::Network::None,
        working_dir: "/workspace".to_owned(),
        memory_mib: 512,
        cpu_milli: 1000,
        pids: 64,
        file_bytes: 64 << 20,
        scratch_bytes: 64 << 20,
        stream_bytes: 8 << 20,
        time_ms: 30_000,
        require_enforced: false,
        parsers: ["cat", "false", "ls", "yes"]
            .map(|it| format!("/usr/bin/{it}"))
            .into(),
    }
}
