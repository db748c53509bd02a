//! A project on disk, a journal that can fail, and the few words that all tests use.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use journal::{
    CallDispatching, CallJournal, Client, Durability, Journal, JournalWriter, ProjectKey,
    RunStarted,
};
use model::{CallId, Canonical, CreateMode, Digest, RelativePath, RunId, ToolName};
use tempfile::TempDir;

use crate::{Ceilings, FileAccessPlan, FileBroker, FileRefusal, FileRequest, OutputTarget};

pub(super) const LIMIT: u64 = 1 << 20;
pub(super) const VOLUMES: [&str; 3] = [
    "./data:/workspace/data:ro",
    "./out:/workspace/out:rw",
    "./:/workspace/all:ro",
];

/// A project with `data/a.csv`, an `out/` and control files, in a folder of its own.
pub(super) struct Project {
    /// `None` where the folder is another process's.
    _folder: Option<TempDir>,
    pub(super) path: PathBuf,
}

impl Project {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let project = Self {
            path: folder.path().to_owned(),
            _folder: Some(folder),
        };
        for name in ["project", "project/data", "project/out", "project/tools"] {
            fs::create_dir(project.path.join(name)).unwrap();
        }
        DirBuilder::new()
            .mode(0o700)
            .create(project.path.join("staging"))
            .unwrap();
        project.write("data/a.csv", b"a,b\n1,2\n");
        project.write("data/neighbour", b"not granted");
        project.write("symbiont.toml", b"[project]\n");
        project.write("tools/x.clad.toml", b"[tool]\n");
        project
    }

    pub(super) fn at(path: &Path) -> Self {
        Self {
            _folder: None,
            path: path.to_owned(),
        }
    }

    /// A path below the project's folder.
    pub(super) fn file(&self, path: &str) -> PathBuf {
        self.path.join("project").join(path)
    }

    pub(super) fn write(&self, path: &str, bytes: &[u8]) {
        fs::write(self.file(path), bytes).unwrap();
    }

    pub(super) fn read(&self, path: &str) -> Vec<u8> {
        fs::read(self.file(path)).unwrap()
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        fs::symlink_metadata(self.file(path)).is_ok()
    }

    pub(super) fn open(&self, volumes: &[&str]) -> Result<FileBroker, crate::OpenError> {
        let volumes: Vec<String> = volumes.iter().map(|it| (*it).to_owned()).collect();
        let ceilings = Ceilings::parse(&volumes, "/workspace").unwrap();
        let folder = OwnedFd::from(File::open(self.path.join("project")).unwrap());
        FileBroker::open(folder, &self.path.join("staging"), ceilings)
    }

    pub(super) fn broker(&self) -> FileBroker {
        self.open(&VOLUMES).unwrap()
    }

    /// A place for `path`, prepared.
    pub(super) fn target(&self, path: &str) -> OutputTarget {
        self.broker().plan(&creates(path)).unwrap().target.unwrap()
    }

    /// Names of the candidates on disk.
    pub(super) fn candidates(&self) -> Vec<String> {
        match fs::read_dir(self.file("out/.symbi-candidates")) {
            Ok(entries) => entries
                .map(|it| it.unwrap().file_name().into_string().unwrap())
                .collect(),
            Err(_) => Vec::new(),
        }
    }

    pub(super) fn staged(&self) -> usize {
        fs::read_dir(self.path.join("staging")).unwrap().count()
    }
}

pub(super) fn path(text: &str) -> RelativePath {
    RelativePath::new(text).unwrap()
}

pub(super) fn reads(paths: &[&str]) -> FileRequest {
    let reads = paths
        .iter()
        .enumerate()
        .map(|(n, it)| (n.to_string(), path(it)))
        .collect();
    FileRequest {
        reads,
        max_file_bytes: LIMIT,
        ..FileRequest::default()
    }
}

pub(super) fn creates(target: &str) -> FileRequest {
    let creates = [("output".to_owned(), (path(target), CreateMode::File))].into();
    FileRequest {
        creates,
        max_file_bytes: LIMIT,
        ..FileRequest::default()
    }
}

pub(super) fn refusal(plan: Result<FileAccessPlan, FileRefusal>) -> (FileRefusal, String) {
    let refusal = plan.unwrap_err();
    let text = refusal.to_string();
    (refusal, text)
}

pub(super) fn content(mut file: &File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

/// A worker's output: a file without a name, with `bytes` in it.
pub(super) fn output(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

/// Storage in memory that claims to be durable, and fails its append number `fails_at`.
#[derive(Clone, Default)]
pub(super) struct Store {
    bytes: Arc<Mutex<Vec<u8>>>,
    appends: usize,
    fails_at: Option<usize>,
}

/// The appends of one call's journal.
pub(super) const APPEND_PREPARED: usize = 3;
pub(super) const APPEND_FINISHED: usize = 4;

impl Store {
    pub(super) fn failing(fails_at: usize) -> Self {
        Self {
            fails_at: Some(fails_at),
            ..Self::default()
        }
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.bytes.lock().unwrap().clone()).unwrap()
    }
}

impl JournalWriter for Store {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.appends += 1;
        if self.fails_at == Some(self.appends) {
            return Err(io::Error::other("the store fails here"));
        }
        self.bytes.lock().unwrap().extend_from_slice(bytes);
        Ok(())
    }

    fn make_durable(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn durability(&self) -> Durability {
        Durability::Storage
    }
}

/// A journal whose one call has just been dispatched, and that call's digest.
pub(super) fn dispatched(
    writer: impl JournalWriter + 'static,
    run: RunId,
) -> (CallJournal, Digest) {
    let signer = ProjectKey::from_seed(&[7; 32]).signer();
    let journal = Journal::new(
        Box::new(writer),
        Some(signer),
        run,
        "Agent::\"t\"".to_owned(),
    );
    let started = RunStarted {
        version: "0".to_owned(),
        project: "p".to_owned(),
        client: Client::Operator,
        tools: Vec::new(),
        tool_set_sha256: Digest::of(b""),
        policy_sha256: Digest::of(b""),
        init_sha256: None,
        max_calls: 1,
        lifetime_ms: 1000,
        tool_time_ms: 1000,
    };
    let _ = journal.record(started).unwrap();
    let descriptor = Canonical::of(&run.to_string()).unwrap();
    let call_sha256 = descriptor.digest();
    let call = journal.lend(call_sha256).unwrap();
    let dispatching = CallDispatching {
        call_id: CallId::new("1").unwrap(),
        tool: ToolName::new("copy").unwrap(),
        call_sha256,
        descriptor,
        policies: Vec::new(),
        approval: None,
    };
    let _ = journal.record(dispatching).unwrap();
    (call, call_sha256)
}
