//! `symbi supervisor` and `symbi sandbox` as a person uses them.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use sandbox::lease::LeaseKeeper as _;
use serde_json::Value;

use crate::owner::{User, keeper, terms};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn status_of_a_new_user_starts_nothing_and_makes_nothing() {
    let user = User::new();
    let (code, said, _) = user.symbi(&["sandbox", "status"]);
    assert_eq!(code, 0);
    assert!(said.contains("supervisor: none runs"), "{said}");
    assert!(said.contains("0 of 8 workers, 0.0 of 8.0 CPUs"), "{said}");
    let (code, said, _) = user.symbi(&["sandbox", "prune"]);
    assert_eq!((code, said.as_str()), (0, "nothing is dead\n"));
    assert!(!user.folder.path().join("state").exists());
    assert!(!user.folder.path().join("run").exists());
}

#[test]
fn status_shows_leases_capacity_and_how_far_the_supervisor_outlives_a_login() {
    let user = User::new();
    let config = user.folder.path().join("config/symbi");
    fs::create_dir_all(&config).unwrap();
    fs::write(
        config.join("config.toml"),
        "[capacity]\nworkers = 1\ncpus = 0.5\n",
    )
    .unwrap();
    let mut keeper = keeper(user.folder.path());
    let lease = keeper.take(&terms(user.folder.path())).unwrap();
    let (_, said, _) = user.symbi(&["sandbox", "status"]);
    assert!(said.contains("not independent of the login"), "{said}");
    assert!(
        said.contains("1 of 1 workers, 0.5 of 0.5 CPUs, 256 of 8192 MiB"),
        "{said}"
    );
    assert!(
        said.contains(&format!("lease {}: live, docker", lease.id())),
        "{said}"
    );
    let error = keeper
        .take(&terms(user.folder.path()))
        .unwrap_err()
        .to_string();
    assert!(error.contains("1 of 1 workers"), "{error}");
    let (_, said, _) = user.symbi(&["sandbox", "status", "--json"]);
    let status = json(&said);
    assert_eq!(status["leases"][0]["lease"], lease.id().as_str());
    assert_eq!(status["capacity"]["workers"], 1);
    assert_eq!(status["dead"]["leases"], 0);
    keeper.release(lease).unwrap();
    user.until_nothing_is_left("released");
}

#[test]
fn prune_removes_what_is_dead_says_so_and_leaves_the_rest() {
    let user = User::new();
    let mut keeper = keeper(user.folder.path());
    let kept = keeper.take(&terms(user.folder.path())).unwrap();
    // The look that a new owner asks for is over before anything dead is there.
    user.until("the look at the engine", || {
        user.engine
            .requests()
            .iter()
            .any(|it| it == "GET /containers/json")
    });
    let store = &kept.id().as_str()[..8];
    let uid = rustix::process::geteuid().as_raw().to_string();
    let late = format!("{store}{}", "0".repeat(24));
    let labels = |lease| [("symbi.lease", lease), ("symbi.owner", uid.as_str())];
    let leased = user.engine.add("leased", &labels(kept.id().as_str()));
    let elsewhere = "f".repeat(32);
    let elsewhere = user.engine.add("elsewhere", &labels(&elsewhere));
    let unclaimed = user.engine.add("late", &labels(&late));
    let staging = user.folder.path().join("state/symbi/staging/charge-0");
    fs::write(&staging, "").unwrap();
    let (_, said, _) = user.symbi(&["sandbox", "status"]);
    assert!(
        said.contains("dead: 0 leases, 1 containers, 1 staging charges"),
        "{said}"
    );
    let (code, said, _) = user.symbi(&["sandbox", "prune"]);
    assert_eq!(code, 0);
    assert!(
        said.contains(&format!("removed container {}", &unclaimed[..12])),
        "{said}"
    );
    assert!(said.contains("removed staging charge"), "{said}");
    assert!(!staging.exists());
    let left: Vec<String> = user.engine.containers().into_keys().collect();
    assert_eq!(left, [leased, elsewhere]);
    let (_, said, _) = user.symbi(&["sandbox", "prune", "--json"]);
    assert_eq!(json(&said)["removed"], Value::Array(Vec::new()));
    keeper.release(kept).unwrap();
}

#[test]
fn a_supervisor_that_was_started_on_demand_is_tied_to_nobody() {
    let user = User::new();
    let _keeper = keeper(user.folder.path());
    let pid = user.supervisor_pid();
    let process = |name: &str| format!("/proc/{pid}/{name}");
    assert!(fs::read(process("environ")).unwrap().is_empty());
    let stat = fs::read_to_string(process("stat")).unwrap();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    let (parent, session, terminal) = (fields[1], fields[3], fields[4]);
    assert_ne!(parent, std::process::id().to_string());
    let ours = fs::read_to_string("/proc/self/stat").unwrap();
    let ours: Vec<&str> = ours
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    assert_ne!(session, ours[3]);
    assert_eq!(terminal, "0");
    let limits = fs::read_to_string(process("limits")).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    let status = fs::read_to_string(process("status")).unwrap();
    assert!(status.contains("Umask:\t0077"), "{status}");
    // One that it opens for a moment is gone at the next look; one that it inherited is not.
    let is_own = |target: &str| {
        let is_in_place = target.starts_with(&*user.folder.path().to_string_lossy());
        let is_nameless = target.starts_with("socket:") || target.starts_with("anon_inode:");
        is_in_place || is_nameless || target == "/dev/null"
    };
    user.until("no descriptor is somebody else's", || {
        let entries = fs::read_dir(process("fd")).unwrap().flatten();
        let mut targets = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
        targets.all(|target| is_own(&target.to_string_lossy()))
    });
}

#[test]
fn one_that_is_started_by_hand_keeps_nothing_of_the_caller_s_environment_and_folder() {
    let user = User::new();
    let place = user.folder.path();
    let mut started = Command::new(env!("CARGO_BIN_EXE_symbi"))
        .args(["supervisor", "--persistent"])
        .current_dir(place)
        .env_clear()
        .env("SECRET", "told")
        .env("XDG_CONFIG_HOME", place.join("config"))
        .env("XDG_STATE_HOME", place.join("state"))
        .env("XDG_RUNTIME_DIR", place.join("run"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    user.until("it listens", || user.client().status().is_ok());
    assert_eq!(user.supervisor_pid(), started.id());
    let process = |name: &str| format!("/proc/{}/{name}", started.id());
    assert!(fs::read(process("environ")).unwrap().is_empty());
    assert_eq!(fs::read_link(process("cwd")).unwrap(), Path::new("/"));
    let (_, said, _) = user.symbi(&["sandbox", "status"]);
    assert!(
        said.contains("persistent, not independent of the login"),
        "{said}"
    );
    started.kill().unwrap();
    started.wait().unwrap();
}

#[test]
fn a_second_supervisor_is_refused_and_says_where_to_look() {
    let user = User::new();
    let _keeper = keeper(user.folder.path());
    let (code, _, said) = user.symbi(&["supervisor"]);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("a supervisor runs already"), "{said}");
}

#[test]
fn a_supervisor_that_cannot_begin_says_why_to_whoever_needs_it() {
    let user = User::new();
    let state = user.folder.path().join("state/symbi/supervisor");
    fs::create_dir_all(&state).unwrap();
    fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let engine = user.engine.socket().to_owned();
    let error = supervisor::Keeper::open(user.client(), engine).unwrap_err();
    assert!(error.to_string().contains("mode 0755"), "{error}");
}

#[test]
fn a_folder_of_another_user_is_refused_with_whose_it_is_and_what_to_do() {
    let user = User::new();
    let (mut client, ours) = (user.client(), rustix::process::geteuid());
    let (ours, mut owner) = (ours.as_raw(), 0);
    // Only root can give a folder away; everybody else finds one of root's.
    if ours == 0 {
        fs::create_dir_all(&client.state).unwrap();
        owner = 1001;
        std::os::unix::fs::chown(&client.state, Some(owner), None).unwrap();
    } else {
        client.state = "/".into();
    }
    let path = client.state.display().to_string();
    let engine = user.engine.socket().to_owned();
    let error = supervisor::Keeper::open(client, engine).unwrap_err();
    let mut said = vec![error.to_string()];
    if ours == 0 {
        for words in [
            &["supervisor"][..],
            &["sandbox", "status"],
            &["sandbox", "prune"],
        ] {
            let (code, _, error) = user.symbi(words);
            assert_eq!(code, 6, "{words:?}: {error}");
            said.push(error);
        }
    }
    for said in said {
        let whose = format!("`{path}` belongs to uid {owner}, and this is uid {ours}");
        assert!(said.contains(&whose), "{said}");
        assert!(said.contains(&format!("chown -R {ours} {path}")), "{said}");
    }
}

#[test]
fn a_state_folder_without_room_is_refused_with_what_to_do() {
    let user = User::new();
    let state = user.folder.path().join("state/symbi/supervisor");
    fs::create_dir_all(&state).unwrap();
    fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let launch = user.client().launch;
    let script = "mount -t tmpfs -o size=16k,mode=0700 tmpfs \"$STATE\" || exit 99
        head -c 100000 /dev/zero > \"$STATE/fill\" 2>/dev/null
        exec \"$0\" \"$@\"";
    let output = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .arg(launch.program)
        .args(launch.arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("STATE", &state)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(6), "{said}");
    let what = format!("cannot write `{}/", state.display());
    assert!(
        said.contains(&what) && said.contains("make room there"),
        "{said}"
    );
}
