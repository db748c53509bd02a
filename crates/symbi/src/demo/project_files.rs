//! The demonstration's project, and the user's configuration and secrets around it.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use model::{Digest, Redacted};
use project::{Project, Trust, TrustStatus};

use crate::demo::lock_file::LockFile;
use crate::demo::place::{Place, canary};
use crate::demo::provider::Provider;
use crate::demo::script::{LOCK, PRIVATE, REPORT, SECRET};
use crate::demo::witness::Witness;
use crate::exit::{Exit, Failure};
use crate::open::OpenProject;

const FOLDERS: [&str; 7] = [
    "tools",
    "policies",
    "policies/run",
    "agents",
    "data",
    "out",
    "private",
];
/// Where a file is prepared before its rename; empty again after it.
const CANDIDATES: &str = ".symbi-candidates";
const AGENT: &str = "agents/demo_agent.py";
const CONFIG: &str = include_str!("template/symbiont.toml");
const FILES: [(&str, &str); 7] = [
    (AGENT, include_str!("agent.py")),
    (
        "policies/run/agent.cedar",
        include_str!("template/policies/agent.cedar"),
    ),
    (
        "tools/count_lines.clad.toml",
        include_str!("template/tools/count_lines.clad.toml"),
    ),
    (
        "tools/lock_to_csv.clad.toml",
        include_str!("template/tools/lock_to_csv.clad.toml"),
    ),
    (
        "tools/peek.clad.toml",
        include_str!("template/tools/peek.clad.toml"),
    ),
    (
        "tools/read_lines.clad.toml",
        include_str!("template/tools/read_lines.clad.toml"),
    ),
    (
        "tools/show_environment.clad.toml",
        include_str!("template/tools/show_environment.clad.toml"),
    ),
];

/// Texts that must stay where they were put.
#[derive(Debug)]
pub(crate) struct Canaries {
    /// The provider's key.
    pub(crate) key: Redacted<String>,
    /// A file of the host's.
    file: Redacted<String>,
    /// A file of the project below a ceiling.
    secret: Redacted<String>,
    /// A file of the project below none.
    private: Redacted<String>,
}

impl Canaries {
    pub(crate) fn make() -> Result<Self, Failure> {
        Ok(Self {
            key: canary("key")?,
            file: canary("file")?,
            secret: canary("secret")?,
            private: canary("private")?,
        })
    }

    /// Each with its name.
    pub(crate) fn named(&self) -> [(&'static str, &Redacted<String>); 4] {
        [
            ("the provider's key", &self.key),
            ("the host's file", &self.file),
            (SECRET, &self.secret),
            (PRIVATE, &self.private),
        ]
    }
}

/// The written and trusted project.
#[derive(Debug)]
pub(crate) struct DemoProject {
    pub(crate) open: OpenProject,
    /// Files that the run must leave as they are, each with its hash.
    untouched: Vec<(PathBuf, Digest)>,
}

impl DemoProject {
    /// Writes everything, and trusts what was just written. A folder that is kept is empty again
    /// where that fails.
    pub(crate) fn write(
        place: &Place,
        lock: &LockFile,
        canaries: &Canaries,
        witness: &Witness,
        provider: &Provider,
    ) -> Result<Self, Failure> {
        let written = Self::write_all(place, lock, canaries, witness, provider);
        if written.is_err() {
            unwrite(&place.project);
        }
        written
    }

    fn write_all(
        place: &Place,
        lock: &LockFile,
        canaries: &Canaries,
        witness: &Witness,
        provider: &Provider,
    ) -> Result<Self, Failure> {
        let key_file = place.beside("provider.key");
        let canary_file = place.beside("canary.txt");
        let secret_file = place.project.join(SECRET);
        let private_file = place.project.join(PRIVATE);
        for folder in FOLDERS {
            let path = place.project.join(folder);
            let made = std::fs::DirBuilder::new().mode(0o755).create(&path);
            made.map_err(|error| unwritten(&path, &error))?;
        }
        for (path, text) in FILES {
            write(&place.project.join(path), text, 0o644)?;
        }
        make_executable(&place.project.join(AGENT))?;
        let lock_file = place.project.join(LOCK);
        write(&lock_file, &lock.text, 0o644)?;
        for (path, canary) in [
            (&key_file, &canaries.key),
            (&canary_file, &canaries.file),
            (&secret_file, &canaries.secret),
            (&private_file, &canaries.private),
        ] {
            write(path, &format!("{}\n", canary.expose()), 0o600)?;
        }
        let config = provider_config(provider, &key_file)?;
        write(&place.dirs.config.join("config.toml"), &config, 0o600)?;
        let targets = targets(witness, &canary_file, &key_file, &private_file)?;
        let config = CONFIG.replace("@TARGETS@", &targets);
        write(&place.project.join(project::CONFIG_FILE), &config, 0o644)?;
        let mut untouched = Vec::new();
        for path in [key_file, canary_file, secret_file, private_file, lock_file] {
            let digest = hash(&path).map_err(|error| unwritten(&path, &error))?;
            untouched.push((path, digest));
        }
        Ok(Self {
            open: trusted(place)?,
            untouched,
        })
    }

    /// Removes the project: one in which nothing ran is not kept.
    pub(crate) fn withdraw(self) {
        unwrite(self.open.project.path());
    }

    /// The first thing that is not as it was written, besides the report.
    pub(crate) fn changed(&self) -> Option<String> {
        let root = self.open.project.path();
        for (path, digest) in &self.untouched {
            match hash(path) {
                Ok(found) if found == *digest => {}
                Ok(_) => return Some(format!("`{}` was changed", path.display())),
                Err(error) => return Some(format!("`{}`: {error}", path.display())),
            }
        }
        let expected: [(&str, &[&str]); 4] = [
            ("out", &[file_name(REPORT), CANDIDATES]),
            ("out/.symbi-candidates", &[]),
            ("data", &[file_name(LOCK), file_name(SECRET)]),
            ("private", &[file_name(PRIVATE)]),
        ];
        for (folder, names) in expected {
            match names_in(&root.join(folder)) {
                Ok(found) if found.iter().all(|name| names.contains(&name.as_str())) => {}
                Ok(found) => return Some(format!("`{folder}` holds {}", found.join(", "))),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Some(format!("`{folder}`: {error}")),
            }
        }
        match Project::open(root).map(|now| Trust::status(&now, &self.open.dirs)) {
            Ok(Ok(TrustStatus::Trusted { .. })) => None,
            _ => Some("a control file was changed".to_owned()),
        }
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn names_in(folder: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}

fn hash(path: &Path) -> std::io::Result<Digest> {
    std::fs::read(path).map(|bytes| Digest::of(&bytes))
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    let path = path.display();
    Failure::new(Exit::Storage, format!("cannot write `{path}`: {error}"))
}

/// A new file.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let open = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path);
    open.and_then(|mut file: File| file.write_all(text.as_bytes()))
        .map_err(|error| unwritten(path, &error))
}

fn make_executable(path: &Path) -> Result<(), Failure> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
        .map_err(|error| unwritten(path, &error))
}

/// The user's own configuration: where the model is, and where its key.
fn provider_config(provider: &Provider, key_file: &Path) -> Result<String, Failure> {
    let url = quoted(&provider.url());
    let file = quoted(utf8(key_file)?);
    Ok(format!(
        "[providers.scripted]\nbase_url = {url}\napi_key_file = {file}\n"
    ))
}

/// Where the hostile half of the agent will knock, as JSON in a TOML string.
fn targets(
    witness: &Witness,
    canary: &Path,
    key: &Path,
    private: &Path,
) -> Result<String, Failure> {
    let port = |port: std::io::Result<u16>| {
        port.map_err(|error| Failure::new(Exit::Storage, format!("a listener's port: {error}")))
    };
    let targets = serde_json::json!({
        "tcp": port(witness.tcp_port())?,
        "udp": port(witness.udp_port())?,
        "abstract": witness.name,
        "canary": utf8(canary)?,
        "key": utf8(key)?,
        "project": utf8(private)?,
    });
    Ok(quoted(&targets.to_string()))
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn utf8(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| {
        let path = path.display();
        Failure::new(Exit::Usage, format!("the path `{path}` is not UTF-8"))
            .help("set TMPDIR to a folder with a plain name")
    })
}

fn trusted(place: &Place) -> Result<OpenProject, Failure> {
    let project =
        Project::open(&place.project).map_err(|error| Failure::of(Exit::Usage, &error))?;
    let open = OpenProject {
        project,
        dirs: place.dirs.clone(),
    };
    let verdict = crate::commands::trust::check_all(&open)?;
    Trust::grant(&open.project, &open.dirs, Some(verdict))
        .map_err(|error| Failure::of(Exit::Storage, &error))?;
    Ok(open)
}

/// Removes what was written of a project that did not become one.
fn unwrite(root: &Path) {
    let state = std::iter::once(project::STATE_FOLDER);
    for folder in FOLDERS.into_iter().chain(state) {
        let _ = std::fs::remove_dir_all(root.join(folder));
    }
    let _ = std::fs::remove_file(root.join(project::CONFIG_FILE));
}
