//! A supervisor that is killed, or fails, at each of its own writes: a test build names them as it
//! reaches them, so none is forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command, Stdio};

use crate::owner::{User, keeper};

/// What is said where there is no room.
const REMEDY: &str = "make room there, and try again: No space left";

/// A supervisor with a variable more, once it listens or has ended.
fn supervisor(user: &User, (name, value): (&str, &str)) -> Child {
    let launch = user.client().launch;
    let mut child = Command::new(launch.program)
        .args(launch.arguments)
        .env_clear()
        .env(name, value)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    user.until("it listens or has ended", || {
        child.try_wait().unwrap().is_some() || user.client().status().is_ok()
    });
    child
}

/// The points that a supervisor reaches from its start to the end of one worker, as `POINT@TIME`.
fn steps() -> Vec<String> {
    let user = User::new();
    let log = user.folder.path().join("steps");
    let child = supervisor(&user, ("SYMBI_FAULT_LOG", log.to_str().unwrap()));
    let owner = user.owner("one_worker").wait_with_output().unwrap();
    assert!(owner.status.success());
    user.until_nothing_is_left("one worker");
    user.kill(child.id());
    child.wait_with_output().unwrap();
    let mut times = BTreeMap::new();
    let number = |name: &str| {
        let time = times.entry(name.to_owned()).or_insert(0);
        *time += 1;
        format!("{name}@{time}")
    };
    let text = std::fs::read_to_string(log).unwrap();
    text.lines().map(number).collect()
}

#[test]
fn a_supervisor_reaches_every_point_of_its_own_that_the_program_lists() {
    let user = User::new();
    let (_, listed, _) = user.symbi(&["faults"]);
    let listed = listed.lines().filter(|it| it.starts_with("supervisor."));
    let listed: BTreeSet<String> = listed.map(str::to_owned).collect();
    let steps = steps();
    let reached = steps
        .iter()
        .map(|it| it.split('@').next().unwrap().to_owned());
    assert_eq!(listed, reached.collect());
    assert!(steps.len() > listed.len());
}

fn nothing_is_left(user: &User, what: &str) {
    user.until(&format!("{what}: no container"), || {
        user.engine.containers().is_empty()
    });
    user.until(&format!("{what}: no lease"), || {
        user.client().status().is_ok_and(|it| it.leases.is_empty())
    });
    user.until(&format!("{what}: no reference"), || {
        user.pool().references().unwrap().is_empty()
    });
    user.pool().reclaim().unwrap();
    for folder in ["workers", "state/symbi/staging"] {
        let left = std::fs::read_dir(user.folder.path().join(folder));
        assert_eq!(left.map_or(0, Iterator::count), 0, "{what}: {folder}");
    }
    // A name that is not a socket's, and no file that is written aside.
    for folder in ["run/symbi", "state/symbi/supervisor"] {
        for entry in std::fs::read_dir(user.folder.path().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(!name.starts_with('.'), "{what}: {folder}/{name}");
        }
    }
}

#[test]
fn killed_at_any_of_its_writes_a_supervisor_is_replaced_and_its_owner_goes_on() {
    for step in steps() {
        let user = User::new();
        let mut armed = supervisor(&user, ("SYMBI_FAULT", &format!("{step}=kill")));
        let owner = user.owner("one_worker").wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&owner.stderr).into_owned();
        assert!(owner.status.success(), "{step}: {said}");
        user.until(&format!("{step}: it was killed"), || {
            armed
                .try_wait()
                .unwrap()
                .is_some_and(|it| it.code().is_none())
        });
        // The last write may be the last that is done: whoever comes next starts another.
        drop(keeper(user.folder.path()));
        assert_ne!(user.supervisor_pid(), armed.id(), "{step}");
        nothing_is_left(&user, &step);
    }
}

#[test]
fn killed_together_with_its_owner_at_any_of_its_writes_it_leaves_nothing_to_the_next_start() {
    for step in steps() {
        let user = User::new();
        let mut armed = supervisor(&user, ("SYMBI_FAULT", &format!("{step}=kill")));
        let owner = user.owner("one_worker");
        while armed.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        user.kill(owner.id());
        owner.wait_with_output().unwrap();
        drop(keeper(user.folder.path()));
        nothing_is_left(&user, &step);
    }
}

#[test]
fn a_write_that_fails_ends_or_refuses_says_why_and_leaves_nothing() {
    for step in steps() {
        let user = User::new();
        let mut armed = supervisor(&user, ("SYMBI_FAULT", &format!("{step}=ENOSPC")));
        let owner = user.owner("one_worker").wait_with_output().unwrap();
        let mut said = String::from_utf8_lossy(&owner.stderr).into_owned();
        if let Some(status) = armed.try_wait().unwrap() {
            assert_eq!(status.code(), Some(6), "{step}");
            let output = armed.wait_with_output().unwrap();
            said = String::from_utf8(output.stderr).unwrap();
            assert!(said.contains(REMEDY), "{step}: {said}");
        } else if !owner.status.success() {
            assert!(said.contains(REMEDY), "{step}: {said}");
        }
        drop(keeper(user.folder.path()));
        nothing_is_left(&user, &step);
    }
}
