//! A user with a home of their own, a project in it, and the built `symbi`.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a command ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ended {
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        let Self {
            code: found,
            stdout,
            stderr,
        } = &self;
        assert_eq!(*found, Some(code), "stdout:\n{stdout}\nstderr:\n{stderr}");
        self
    }

    #[track_caller]
    pub(crate) fn says(self, words: &str) -> Self {
        let Self { stdout, stderr, .. } = &self;
        assert!(
            stdout.contains(words) || stderr.contains(words),
            "`{words}` is not in stdout:\n{stdout}\nstderr:\n{stderr}"
        );
        self
    }
}

/// The user.
pub(crate) struct Desk {
    home: TempDir,
    program: PathBuf,
    /// Who runs it, if not who runs the tests.
    user: Option<u32>,
}

impl Drop for Desk {
    fn drop(&mut self) {
        testkit::journals::keep_home(self.home.path());
    }
}

impl Desk {
    /// A home without a project.
    pub(crate) fn empty() -> Self {
        build_init();
        let home = tempfile::tempdir().unwrap();
        for folder in ["config", "state", "run", "tmp"] {
            fs::DirBuilder::new()
                .mode(0o700)
                .create(home.path().join(folder))
                .unwrap();
        }
        Self {
            home,
            program: env!("CARGO_BIN_EXE_symbi").into(),
            user: None,
        }
    }

    /// A home with what `symbi init` makes, the agents of `config`, and a policy by which they
    /// start.
    pub(crate) fn with_agents(config: &str) -> Self {
        let desk = Self::empty();
        desk.symbi(&["init", "project"]).expect(0);
        let project = desk.project();
        fs::DirBuilder::new()
            .mode(0o755)
            .create(project.join("agents"))
            .unwrap();
        append(&project.join("symbiont.toml"), config);
        append(
            &project.join("policies/run/agents.cedar"),
            "@id(\"agents-may-start\")\n\
             permit(principal, action == Action::\"tool_call::command\", resource);\n",
        );
        desk
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.home.path().join("project")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Writes an executable file of the project.
    pub(crate) fn program(&self, name: &str, text: &str) {
        fs::write(self.project().join(name), text).unwrap();
        self.program_mode(name);
    }

    /// Makes a file of the project executable.
    pub(crate) fn program_mode(&self, name: &str) {
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.project().join(name), mode).unwrap();
    }

    /// Writes a private file of the user's configuration.
    pub(crate) fn configure(&self, name: &str, text: &str) -> PathBuf {
        let folder = self.path("config/symbi");
        fs::DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(&folder)
            .unwrap();
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// Puts the programs of `names` into the home and hands all of it to an ordinary user, who
    /// runs `symbi` from then on. For root only.
    pub(crate) fn given_to(mut self, user: u32, names: &[&str]) -> Self {
        let built = Path::new(env!("CARGO_BIN_EXE_symbi")).parent().unwrap();
        for name in names {
            fs::copy(built.join(name), self.path(name)).unwrap();
        }
        give(self.home.path(), user);
        self.user = Some(user);
        self.program = self.path("symbi");
        self
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments);
        self.equip(&mut command);
        command
    }

    /// The user's identity, place and environment.
    fn equip(&self, command: &mut Command) {
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
            .current_dir(self.home.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.home.path())
            .env("TMPDIR", self.path("tmp"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .stdin(Stdio::null());
    }

    /// Runs `symbi` in the home folder.
    pub(crate) fn symbi(&self, arguments: &[&str]) -> Ended {
        self.command(arguments).output().unwrap().into()
    }

    /// Runs `symbi` as `script` says, which finds it and its arguments in `"$0" "$@"`.
    pub(crate) fn shell(&self, script: &str, arguments: &[&str]) -> Ended {
        let mut shell = Command::new("/bin/bash");
        shell.args(["-c", script]).arg(&self.program);
        shell.args(arguments);
        self.equip(&mut shell);
        shell.output().unwrap().into()
    }

    /// Starts `symbi` and does not wait.
    pub(crate) fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// The same, with a standard input to write to.
    pub(crate) fn start_client(&self, arguments: &[&str]) -> Child {
        self.command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// The same, as `nohup` starts it.
    pub(crate) fn start_without_hangup(&self, arguments: &[&str]) -> Child {
        let symbi = self.command(arguments);
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", "trap '' HUP; exec \"$0\" \"$@\""])
            .arg(symbi.get_program())
            .args(symbi.get_args());
        self.equip(&mut shell);
        shell
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Trusts the project as it is now.
    pub(crate) fn trust(&self) {
        self.symbi(&["--project", "project", "trust", "--yes"])
            .expect(0);
    }

    /// Trusts the project and runs an agent of it.
    pub(crate) fn run(&self, agent: &str, more: &[&str]) -> Ended {
        self.trust();
        let arguments = ["--project", "project", "run", agent, "--task", "the task"];
        self.symbi(&[&arguments, more].concat())
    }

    /// The journals of the project's runs, oldest first.
    pub(crate) fn journals(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.project().join(".symbiont/governed")) else {
            return Vec::new();
        };
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut paths: Vec<PathBuf> = paths
            .filter(|path| path.extension().is_some_and(|it| it == "jsonl"))
            .filter(|path| path.file_stem().is_some_and(|stem| stem != "ledger"))
            .collect();
        paths.sort();
        paths
    }

    /// The only run: its journal is whole, terminal, and known to the ledger. Returns its text.
    #[track_caller]
    pub(crate) fn verified_journal(&self) -> String {
        let journals = self.journals();
        assert_eq!(journals.len(), 1, "{journals:?}");
        let run = journals[0]
            .file_stem()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        self.symbi(&["--project", "project", "audit", "verify", &run])
            .expect(0)
            .says("intact");
        self.independently_verified(&journals[0], &run);
        let text = fs::read_to_string(&journals[0]).unwrap();
        assert!(text.contains("\"kind\":\"RunEnded\""), "{text}");
        text
    }

    /// The verifier that shares no code with `symbi` says the same.
    #[track_caller]
    pub(crate) fn independently_verified(&self, journal: &Path, run: &str) {
        let key = self.symbi(&["--project", "project", "audit", "key"]).stdout;
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../scripts/verify-journal.py"
        );
        let output = Command::new("python3")
            .arg(script)
            .arg(journal)
            .args(["--run-id", run, "--public-key", key.trim(), "--ledger"])
            .arg(self.project().join(".symbiont/ledger.jsonl"))
            .output()
            .unwrap();
        Ended::from(output).expect(0).says("intact");
    }

    /// Neither a folder of sockets nor a staged file is left.
    #[track_caller]
    pub(crate) fn nothing_is_left(&self) {
        for folder in ["run/symbi", "state/symbi/staging", "tmp"] {
            let left: Vec<_> = fs::read_dir(self.path(folder))
                .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
                .unwrap_or_default();
            assert!(left.is_empty(), "{left:?}");
        }
    }
}

/// Waits until `wanted` holds, at most [`PATIENCE`].
#[track_caller]
pub(crate) fn until(what: &str, mut wanted: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !wanted() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn send(child: &Child, signal: Signal) {
    rustix::process::kill_process(Pid::from_child(child), signal).unwrap();
}

/// Asks a running `symbi` to end, as Ctrl-C does, and waits for it.
pub(crate) fn interrupt(child: Child) -> Ended {
    send(&child, Signal::INT);
    wait(child)
}

/// Waits for the end of a `symbi` that was started.
pub(crate) fn wait(mut child: Child) -> Ended {
    let mut stdout = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut stdout)
        .unwrap();
    let mut stderr = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    Ended {
        code: child.wait().unwrap().code(),
        stdout,
        stderr,
    }
}

/// Whether a process runs whose command line holds `word`.
pub(crate) fn runs(word: &str) -> bool {
    let word = word.as_bytes();
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .any(|line| line.windows(word.len()).any(|window| window == word))
}

fn give(path: &Path, user: u32) {
    std::os::unix::fs::lchown(path, Some(user), Some(user)).unwrap();
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path(), user);
        }
    }
}

pub(crate) fn append(path: &Path, text: &str) {
    let before = fs::read_to_string(path).unwrap();
    fs::write(path, format!("{before}\n{text}")).unwrap();
}

/// The helper beside the built `symbi`, built again if it is missing or older than its sources.
fn build_init() {
    let symbi = Path::new(env!("CARGO_BIN_EXE_symbi"));
    let folder = symbi.parent().unwrap();
    let built = fs::metadata(folder.join("symbi-init")).and_then(|found| found.modified());
    if built.is_ok_and(|built| built >= newest_source()) {
        return;
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "build",
        "--quiet",
        "--package",
        "sandbox-init",
        "--target-dir",
    ]);
    cargo.arg(folder.parent().unwrap());
    cargo.args([
        "--manifest-path",
        concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
    ]);
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success());
}

fn newest_source() -> SystemTime {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sandbox-init/src");
    let files = fs::read_dir(sources).unwrap();
    files
        .map(|file| file.unwrap().metadata().unwrap().modified().unwrap())
        .max()
        .unwrap()
}
