//! An owner that is killed leaves nothing.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sandbox::{NamespaceConfig, NamespaceTier};

use crate::host::{Job, config, init_path, is_root, processes_with, start};
use crate::limits::{groups_of, owner_tag};

/// Everything of a worker must be gone this long after its owner was killed.
const GONE_WITHIN: Duration = Duration::from_secs(1);
const MARKER: &str = "SYMBI_TEST_MARKER";
const FOLDER: &str = "SYMBI_TEST_FOLDER";

/// Not a test of its own: the owner that the tests below start and kill.
#[test]
#[ignore = "the child of the test of killed owners, which runs it"]
fn owner_process() {
    let (Ok(marker), Ok(folder)) = (std::env::var(MARKER), std::env::var(FOLDER)) else {
        return;
    };
    let folder = Path::new(&folder);
    let mut tier = NamespaceTier::new(owner_config(folder, &marker)).unwrap();
    let script = format!(
        "setsid sleep 9999.{marker} & (trap '' TERM HUP; setsid setsid sleep 9998.{marker}) & \
         exec sleep 9997.{marker}"
    );
    println!("READY");
    let running = start(&mut tier, &Job::sh(&script)).unwrap();
    println!("RUNS");
    std::thread::sleep(Duration::from_secs(600));
    drop(running);
}

fn owner_config(folder: &Path, marker: &str) -> NamespaceConfig {
    NamespaceConfig {
        // The name of the file is the name of helper and init in /proc.
        init: folder.join(marker),
        locks: Some(folder.join("locks")),
        first_id: 2_000_600_000,
        ..config()
    }
}

/// Killed when dropped.
struct Owner {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

fn spawn_owner(folder: &Path, marker: &str) -> Owner {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "owner::owner_process",
        "--ignored",
        "--nocapture",
    ]);
    command.env(MARKER, marker).env(FOLDER, folder);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    Owner { child, lines }
}

impl Owner {
    fn await_line(&mut self, wanted: &str) {
        assert!(
            self.lines.any(|line| line.unwrap().ends_with(wanted)),
            "no {wanted}"
        );
    }

    fn kill(self) {
        drop(self);
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// How long it took until no live process had the marker.
fn await_nothing(marker: &str) -> Duration {
    let began = Instant::now();
    loop {
        let left = processes_with(marker);
        if left.is_empty() {
            return began.elapsed();
        }
        assert!(began.elapsed() < GONE_WITHIN, "left: {left:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn folder_with_init(marker: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(init_path(), folder.path().join(marker)).unwrap();
    folder
}

/// Digits, because it is also an argument of `sleep`.
fn marker(kind: u32) -> String {
    format!("9{kind}017{}", std::process::id())
}

#[test]
fn an_owner_killed_at_any_moment_of_a_start_leaves_nothing() {
    let marker = marker(1);
    let folder = folder_with_init(&marker);
    let mut slowest = Duration::ZERO;
    for step in 0..48u64 {
        let mut owner = spawn_owner(folder.path(), &marker);
        owner.await_line("READY");
        let until = Instant::now() + Duration::from_micros(step * 300);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        owner.kill();
        slowest = slowest.max(await_nothing(&marker));
    }
    // Removes the groups of the dead.
    drop(NamespaceTier::new(owner_config(folder.path(), &marker)).unwrap());
    eprintln!("48 owners killed within 14 ms of their start: slowest end {slowest:?}");
}

#[test]
fn an_owner_killed_while_its_worker_runs_leaves_nothing() {
    let marker = marker(2);
    let folder = folder_with_init(&marker);
    let mut slowest = Duration::ZERO;
    for step in 0..12u64 {
        let mut owner = spawn_owner(folder.path(), &marker);
        owner.await_line("RUNS");
        std::thread::sleep(Duration::from_millis(step));
        assert!(!processes_with(&marker).is_empty());
        owner.kill();
        slowest = slowest.max(await_nothing(&marker));
    }
    // Removes the groups of the dead.
    drop(NamespaceTier::new(owner_config(folder.path(), &marker)).unwrap());
    eprintln!("12 owners killed beside a running worker: slowest end {slowest:?}");
}

#[test]
fn the_next_owner_removes_the_groups_of_a_killed_one() {
    if !is_root() {
        return;
    }
    let marker = marker(3);
    let folder = folder_with_init(&marker);
    let mut owner = spawn_owner(folder.path(), &marker);
    owner.await_line("RUNS");
    let tag = owner_tag(&folder.path().join("locks"));
    // A live owner's groups are not touched.
    drop(NamespaceTier::new(owner_config(folder.path(), &marker)).unwrap());
    assert!(!groups_of(&tag).is_empty());
    owner.kill();
    await_nothing(&marker);
    let tier = NamespaceTier::new(owner_config(folder.path(), &marker)).unwrap();
    assert!(groups_of(&tag).is_empty());
    drop(tier);
    assert!(
        !folder
            .path()
            .join(format!("locks/owner-{tag}.lock"))
            .exists()
    );
}

#[test]
fn an_init_killed_from_outside_is_a_lost_worker() {
    let marker = marker(4);
    let folder = folder_with_init(&marker);
    let mut tier = NamespaceTier::new(owner_config(folder.path(), &marker)).unwrap();
    let mut running = start(&mut tier, &Job::new(&["sleep", "1000"])).unwrap();
    let found = processes_with(&marker);
    assert_eq!(found.len(), 1, "{found:?}");
    let pid = found[0]
        .split(' ')
        .next()
        .unwrap()
        .rsplit('/')
        .next()
        .unwrap();
    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let ended = crate::host::wait(running.as_mut());
    assert_eq!(ended.ending, worker::Ending::Lost);
    running.remove().unwrap();
}

#[test]
fn a_helper_that_cannot_be_read_is_named() {
    use std::os::unix::fs::PermissionsExt;
    if is_root() {
        return;
    }
    let marker = marker(5);
    let folder = folder_with_init(&marker);
    let path = folder.path().join(&marker);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o311)).unwrap();
    let error = NamespaceTier::new(owner_config(folder.path(), &marker))
        .unwrap_err()
        .to_string();
    assert!(error.contains("readable"), "{error}");
}

#[test]
fn a_failed_start_leaves_no_process_and_no_zombie() {
    let marker = marker(6);
    let folder = folder_with_init(&marker);
    let mut tier = NamespaceTier::new(owner_config(folder.path(), &marker)).unwrap();
    // An input that is shorter than its descriptor says.
    let mut job = Job::new(&["true"]).input("a", b"four");
    let me = rustix::thread::gettid().as_raw_nonzero();
    let children = || fs::read_to_string(format!("/proc/self/task/{me}/children")).unwrap();
    for _ in 0..5 {
        job.inputs[0].1 = b"four".to_vec();
        let mut spec = job.spec(&tier);
        spec = truncate_input(spec);
        assert!(worker::Tier::start(&mut tier, spec).is_err());
    }
    assert!(processes_with(&marker).is_empty());
    assert_eq!(children(), "");
}

fn truncate_input(spec: worker::WorkerSpec) -> worker::WorkerSpec {
    spec.inputs()[0].content.set_len(2).unwrap();
    spec
}

#[test]
fn a_helper_that_was_replaced_is_not_run() {
    let marker = marker(7);
    let folder = folder_with_init(&marker);
    let mut tier = NamespaceTier::new(owner_config(folder.path(), &marker)).unwrap();
    let before = tier.init_sha256();
    fs::copy("/usr/bin/true", folder.path().join(&marker)).unwrap();
    let error = tier.probe().unwrap_err().to_string();
    assert!(error.contains("replaced"), "{error}");
    assert_eq!(before, model::Digest::of(&fs::read(init_path()).unwrap()));
}

#[test]
fn many_workers_leave_no_descriptor_and_no_child() {
    let mut tier = crate::host::tier();
    let me = rustix::thread::gettid().as_raw_nonzero();
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let job = Job::sh("echo x; echo y > o")
        .input("i", b"z")
        .output("o", model::CreateMode::File);
    crate::host::run_in(&mut tier, &job);
    let before = open();
    for round in 0..30 {
        match round % 3 {
            0 => drop(crate::host::run_in(&mut tier, &job)),
            1 => drop(start(&mut tier, &job).unwrap()),
            _ => {
                let mut running = start(&mut tier, &Job::new(&["sleep", "100"])).unwrap();
                running.stop();
                running.remove().unwrap();
            }
        }
    }
    // Tests of the same process may run beside this one.
    assert!(open() <= before + 40, "{before} {}", open());
    let children = fs::read_to_string(format!("/proc/self/task/{me}/children")).unwrap();
    assert_eq!(children, "");
}

#[test]
fn init_holds_nothing_of_its_owner() {
    // Only root can look at it.
    if !is_root() {
        return;
    }
    let marker = marker(8);
    let folder = folder_with_init(&marker);
    let secret = folder.path().join("secret");
    fs::write(&secret, "x").unwrap();
    // A descriptor that the owner forgot to protect.
    let leaked = fs::File::open(&secret).unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    let mut tier = NamespaceTier::new(owner_config(folder.path(), &marker)).unwrap();
    let job = Job::new(&["sleep", "1000"]).output("o", model::CreateMode::File);
    let running = start(&mut tier, &job).unwrap();
    let found = processes_with(&marker);
    assert_eq!(found.len(), 1, "{found:?}");
    let path = found[0].split(' ').next().unwrap();
    let entries = fs::read_dir(format!("{path}/fd")).unwrap().flatten();
    let mut held: Vec<String> = entries
        .map(|entry| {
            fs::read_link(entry.path())
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .map(|link| link.split(':').next().unwrap().to_owned())
        .collect();
    held.sort();
    assert_eq!(
        held,
        ["/dev/null", "/dev/null", "/output", "anon_inode", "socket"]
    );
    assert_eq!(fs::read(format!("{path}/environ")).unwrap(), b"");
    let name = fs::read(format!("{path}/cmdline")).unwrap();
    assert_eq!(name, b"symbi-init\0");
    drop(running);
}
