//! Service managers that do not start what they are asked to: the supervisor is then a process of
//! the login. A real systemd is in `scripts/test-supervisor-systemd.py`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use supervisor::limits::START_TIME_MAX;
use supervisor::{Client, Keeper, UnitLaunch};

use crate::owner::User;

/// On a machine with other work.
const GRACE: Duration = Duration::from_secs(5);

/// A client whose manager listens, and whose `systemd-run` does `what`.
fn client(user: &User, what: &str) -> (Client, UnixListener) {
    let place = user.folder.path();
    let (program, manager) = (place.join("systemd-run"), place.join("manager"));
    let script = format!("#!/bin/sh\necho $$ > {}/pid\n{what}\n", place.display());
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let listener = UnixListener::bind(&manager).unwrap();
    let mut client = user.client();
    client.launch.unit = Some(UnitLaunch {
        systemd_run: program,
        arguments: Vec::new(),
        manager,
        environment: Vec::new(),
        mark: "--unit".into(),
    });
    (client, listener)
}

/// Says how long it took until a supervisor that is in no unit was there.
fn time_without_unit(what: &str) -> Duration {
    let user = User::new();
    let (client, _listener) = client(&user, what);
    let begun = Instant::now();
    let engine = user.engine.socket().to_owned();
    let keeper = Keeper::open(client, engine).unwrap_or_else(|error| panic!("{what}: {error}"));
    let took = begun.elapsed();
    assert!(!user.client().status().unwrap().independent);
    let pid = fs::read_to_string(user.folder.path().join("pid")).unwrap();
    let process = format!("/proc/{}", pid.trim());
    assert!(!fs::exists(process).unwrap(), "{what}: it goes on");
    drop(keeper);
    took
}

#[test]
fn a_service_manager_that_refuses_is_done_without_at_once() {
    assert!(time_without_unit("exit 1") < GRACE);
}

#[test]
fn a_service_manager_that_hangs_is_done_without_after_the_time_for_a_start() {
    let took = time_without_unit("exec sleep 600");
    assert!((START_TIME_MAX..START_TIME_MAX + GRACE).contains(&took));
}

#[test]
fn a_service_manager_that_starts_nothing_is_asked_once() {
    let took = time_without_unit("exit 0");
    assert!((START_TIME_MAX..START_TIME_MAX + GRACE).contains(&took));
}
