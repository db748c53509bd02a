//! SIGKILL of owner, supervisor and both.

use std::io::Read as _;
use std::os::unix::net::UnixListener;
use std::process::{Child, Output};
use std::time::Duration;

use testkit::engine_proxy::Fault;

use crate::owner::{AT_MOST, User, keeper};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Owner,
    Supervisor,
    Both,
}

/// Requests of one worker's life: create, inspect, start, kill, remove.
const STEPS: usize = 5;

fn ended(child: Child) -> Output {
    child.wait_with_output().unwrap()
}

fn killed_at(step: usize, fault: &Fault, victim: Victim) {
    let what = format!("{victim:?} at {fault:?} {step}");
    let user = User::new();
    let foreign = user.engine.add("foreign", &[("symbi.owner", "4294967294")]);
    user.proxy.at(step, fault.clone());
    let owner = user.owner("one_worker");
    assert!(user.proxy.await_held(Duration::from_secs(20)), "{what}");
    let supervisor = user.supervisor_pid();
    if victim != Victim::Supervisor {
        user.kill(owner.id());
    }
    if victim != Victim::Owner {
        user.kill(supervisor);
    }
    // What the engine had not heard of yet, it hears now: a creation that comes late.
    user.proxy.release();
    let owner = ended(owner);
    if victim == Victim::Supervisor {
        let said = String::from_utf8_lossy(&owner.stderr).into_owned();
        assert!(owner.status.success(), "{what}: {said}");
    }
    if victim != Victim::Owner {
        // Whoever comes next starts another one, which removes what is left.
        drop(keeper(user.folder.path()));
        assert_ne!(user.supervisor_pid(), supervisor, "{what}");
    }
    user.until(&format!("{what}: no container"), || {
        user.engine.containers().len() == 1
    });
    assert!(user.engine.containers().contains_key(&foreign), "{what}");
    user.until(&format!("{what}: no lease"), || {
        user.client().status().is_ok_and(|it| it.leases.is_empty())
    });
    assert!(user.pool().references().unwrap().is_empty(), "{what}");
    let workers = std::fs::read_dir(user.folder.path().join("workers")).unwrap();
    assert_eq!(workers.count(), 0, "{what}");
    user.pool().reclaim().unwrap();
    let staged = std::fs::read_dir(user.folder.path().join("state/symbi/staging")).unwrap();
    assert_eq!(staged.count(), 0, "{what}");
}

fn killed_at_every_step(victim: Victim) {
    for step in 1..=STEPS {
        for fault in [Fault::HoldRequest, Fault::HoldAnswer] {
            killed_at(step, &fault, victim);
        }
    }
}

#[test]
fn killed_at_any_step_an_owner_leaves_nothing_for_more_than_five_seconds() {
    killed_at_every_step(Victim::Owner);
}

#[test]
fn killed_at_any_step_a_supervisor_is_replaced_and_its_owners_go_on() {
    killed_at_every_step(Victim::Supervisor);
}

#[test]
fn killed_at_any_step_together_owner_and_supervisor_leave_nothing_to_the_next_start() {
    killed_at_every_step(Victim::Both);
}

#[test]
fn a_killed_supervisor_is_replaced_at_once_though_nobody_asks_anything() {
    let user = User::new();
    user.proxy.at(3, Fault::HoldAnswer);
    let owner = user.owner("one_worker");
    assert!(user.proxy.await_held(Duration::from_secs(20)));
    let first = user.supervisor_pid();
    user.kill(first);
    user.until("another supervisor", || {
        user.client()
            .status()
            .is_ok_and(|it| it.pid != first && it.leases.len() == 1)
    });
    user.kill(owner.id());
    ended(owner);
    user.proxy.release();
    user.until_nothing_is_left("the owner was killed then");
}

#[test]
fn thirty_two_concurrent_calls_of_four_processes_share_eight_workers_and_return_them() {
    let user = User::new();
    let owners: Vec<Child> = (0..4).map(|_| user.owner("eight_calls")).collect();
    for owner in owners {
        let owner = ended(owner);
        let said = String::from_utf8_lossy(&owner.stderr).into_owned();
        assert!(owner.status.success(), "{said}");
    }
    let created = user.engine.requests();
    let created = created.iter().filter(|it| it.ends_with("/create"));
    assert_eq!(created.count(), 32);
    assert!(user.engine.most_running() <= 8);
    user.until_nothing_is_left("all calls");
}

#[test]
fn an_engine_that_was_down_while_its_owner_died_is_cleaned_when_it_is_back() {
    let user = User::new();
    user.proxy.at(3, Fault::HoldAnswer);
    let owner = user.owner("one_worker");
    assert!(user.proxy.await_held(Duration::from_secs(20)));
    user.engine.stop();
    user.kill(owner.id());
    ended(owner);
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(user.engine.containers().len(), 1);
    assert!(AT_MOST > Duration::from_secs(1));
    user.engine.restart().unwrap();
    user.until_nothing_is_left("the engine is back");
}

#[test]
fn a_lease_whose_engine_is_gone_stays_through_every_prune_and_status_says_what_to_do() {
    let user = User::new();
    user.proxy.at(3, Fault::HoldAnswer);
    let owner = user.owner("one_worker");
    assert!(user.proxy.await_held(Duration::from_secs(20)));
    user.engine.stop();
    user.kill(owner.id());
    ended(owner);
    user.until("the lease ends", || {
        let leases = user.client().status().unwrap().leases;
        leases[0].state == supervisor::LeaseState::Ending
    });
    let supervisor = user.supervisor_pid();
    let (_, said, _) = user.symbi(&["sandbox", "status"]);
    let socket = user.engine.socket().display().to_string();
    for part in [
        format!("its engine at {socket} does not answer"),
        "start that engine".to_owned(),
        format!("end the supervisor (kill {supervisor})"),
    ] {
        assert!(said.contains(&part), "{part}: {said}");
    }
    // As it ends by itself after an hour.
    user.kill(supervisor);
    let (_, said, _) = user.symbi(&["sandbox", "status"]);
    assert!(
        said.contains("none runs") && said.contains("start that engine"),
        "{said}"
    );
    let (code, said, _) = user.symbi(&["sandbox", "prune"]);
    assert_eq!(code, 0);
    assert!(
        said.contains("left: lease") && said.contains("start that engine"),
        "{said}"
    );
    assert!(!said.contains("removed lease"), "{said}");
    user.kill(user.supervisor_pid());
    user.engine.restart().unwrap();
    user.until("the killed one is gone, and another is started", || {
        user.client().tend_what_is_left().unwrap()
    });
    assert!(!user.client().tend_what_is_left().unwrap());
    user.until_nothing_is_left("the next start has tended to it");
}

#[test]
fn another_process_at_the_supervisors_socket_is_never_talked_to_and_loses_it() {
    let user = User::new();
    let first = keeper(user.folder.path());
    let supervisor = user.supervisor_pid();
    let place = user.folder.path();
    let store = std::fs::read_to_string(place.join("state/symbi/supervisor/store")).unwrap();
    let path = place.join(format!("run/symbi/supervisor-{}", store.trim()));
    std::fs::remove_file(&path).unwrap();
    let listener = UnixListener::bind(&path).unwrap();
    let _second = keeper(user.folder.path());
    assert_eq!(user.supervisor_pid(), supervisor);
    listener.set_nonblocking(true).unwrap();
    // Some have come to it, and have said nothing.
    while let Ok((mut stream, _)) = listener.accept() {
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap();
        assert!(said.is_empty());
    }
    drop(first);
}
