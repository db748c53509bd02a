//! How leases begin and end, and what they are charged.

use std::fs;
use std::time::{Duration, Instant};

use sandbox::engine::Engine;
use sandbox::lease::{LeaseKeeper as _, LeaseRefused, MADE_MARK};
use supervisor::{FolderFault, LeaseState, Readiness, serve};
use testkit::engine_proxy::Fault;
use testkit::left_process::LeftProcess;
use worker::TierKind;

use crate::fixture::{SOON, World, container};

#[test]
fn a_lease_is_on_disk_before_it_is_given_and_gone_after_its_release() {
    let world = World::new();
    let running = world.serve();
    let mut keeper = world.keeper();
    let lease = keeper.take(&world.lease_terms()).unwrap();
    let text = std::fs::read_to_string(world.path("state/leases")).unwrap();
    assert!(text.contains(lease.id().as_str()), "{text}");
    assert_eq!(world.pool().references().unwrap(), [lease.id().as_str()]);
    let status = world.status();
    assert_eq!(status.leases.len(), 1);
    assert_eq!(status.leases[0].owner.pid, std::process::id());
    keeper.release(lease).unwrap();
    world.until_nothing_is_left();
    drop(keeper);
    running.ends().unwrap();
}

#[test]
fn what_is_recorded_of_a_lease_has_no_place_for_arguments_or_secrets() {
    let world = World::new();
    let _running = world.serve();
    let mut keeper = world.keeper();
    let _lease = keeper.take(&world.lease_terms()).unwrap();
    let text = std::fs::read_to_string(world.path("state/leases")).unwrap();
    let line: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let mut keys: Vec<&str> = line["take"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    keys.sort_unstable();
    let expected = [
        "boot",
        "cpu_milli",
        "lease",
        "memory_mib",
        "owner",
        "socket",
        "staging",
        "taken_at",
        "tier",
        "until_ms",
    ];
    assert_eq!(keys, expected);
}

#[test]
fn the_end_of_the_owners_connection_removes_its_containers_and_files_at_once() {
    let world = World::new();
    let _running = world.serve();
    let mut keeper = world.keeper();
    let leases: Vec<_> = (0..3)
        .map(|_| keeper.take(&world.lease_terms()).unwrap())
        .collect();
    for lease in &leases {
        world.run(lease);
        let files = world.path("staging").join(lease.id().as_str());
        std::fs::create_dir(&files).unwrap();
        std::fs::write(files.join("input"), "x").unwrap();
    }
    let foreign = world.engine.add(
        "symbi-foreign",
        &[("symbi.lease", "x"), ("symbi.owner", "1")],
    );
    let begun = Instant::now();
    drop(keeper);
    world.until("the containers are gone", |world| {
        world.engine.containers().len() == 1
    });
    assert!(begun.elapsed() < SOON);
    assert!(world.engine.containers().contains_key(&foreign));
    world.until("the leases have ended", |world| {
        world.status().leases.is_empty()
    });
    assert_eq!(std::fs::read_dir(world.path("staging")).unwrap().count(), 0);
}

#[test]
fn a_lease_past_its_lifetime_ends_though_its_owner_lives() {
    let world = World::new();
    let _running = world.serve();
    let mut keeper = world.keeper();
    let mut terms = world.lease_terms();
    terms.lifetime = Duration::ZERO;
    let short = keeper.take(&terms).unwrap();
    let long = keeper.take(&world.lease_terms()).unwrap();
    world.run(&short);
    let kept = world.run(&long);
    world.until("the short one is gone", |world| {
        world.engine.containers().len() == 1
    });
    assert!(world.engine.containers().contains_key(kept.as_str()));
    world.until("its lease too", |world| world.status().leases.len() == 1);
    keeper.release(short).unwrap();
    keeper.release(long).unwrap();
}

#[test]
fn a_lease_too_many_is_refused_with_its_holders_and_fits_after_a_release() {
    let world = World::new();
    let _running = world.serve();
    let mut keeper = world.keeper();
    let mut terms = world.lease_terms();
    let mut leases: Vec<_> = (0..3).map(|_| keeper.take(&terms).unwrap()).collect();
    match keeper.take(&terms) {
        Err(LeaseRefused::Exhausted { reason }) => {
            let pid = std::process::id();
            assert!(reason.starts_with("3 of 3 workers"), "{reason}");
            assert!(
                reason.contains(&format!("process {pid} has 3 workers")),
                "{reason}"
            );
        }
        other => panic!("{other:?}"),
    }
    keeper.release(leases.pop().unwrap()).unwrap();
    terms.memory_mib = 1025;
    match keeper.take(&terms) {
        Err(LeaseRefused::Exhausted { reason }) => {
            assert!(reason.contains("`memory_mib`"), "{reason}")
        }
        other => panic!("{other:?}"),
    }
    terms.memory_mib = 1024;
    keeper.take(&terms).unwrap();
}

#[test]
fn ten_refused_creations_leave_nothing_charged() {
    let world = World::new();
    let _running = world.serve();
    let mut keeper = world.keeper();
    let engine = Engine::at(world.proxy.socket());
    for _ in 0..10 {
        let lease = keeper.take(&world.lease_terms()).unwrap();
        let name = lease.container_name();
        let error = engine
            .create(&name, &container(&lease, "absent"))
            .unwrap_err();
        assert!(error.did_nothing());
        keeper.release(lease).unwrap();
    }
    world.until_nothing_is_left();
    let lease = keeper.take(&world.lease_terms()).unwrap();
    world.run(&lease);
}

#[test]
fn a_creation_that_comes_late_is_seen_and_removed() {
    let world = World::new();
    let mut terms = world.terms();
    terms.unseen = Duration::from_secs(60);
    let _running = world.serve_on(terms);
    let mut keeper = world.keeper();
    let lease = keeper.take(&world.lease_terms()).unwrap();
    world.make_folder_of(&lease);
    let name = lease.container_name();
    let (labels, wanted) = (
        lease.id().to_string(),
        container(&lease, testkit::engine::IMAGE),
    );
    world.proxy.on("POST", "/create", Fault::HoldRequest, 1);
    let engine = Engine::at(world.proxy.socket());
    let creating = std::thread::spawn(move || engine.create(&name, &wanted).is_ok());
    assert!(world.proxy.await_held(SOON));
    drop(keeper);
    world.until("its lease waits", |world| {
        let leases = world.status().leases;
        leases.len() == 1
            && leases[0].state == LeaseState::Ending
            && leases[0]
                .waits_for
                .as_ref()
                .is_some_and(|why| why.contains("still to be made"))
    });
    assert_eq!(world.status().leases[0].lease, labels);
    world.proxy.release();
    assert!(creating.join().unwrap());
    world.until_nothing_is_left();
}

#[test]
fn a_lease_whose_container_was_made_and_removed_or_never_asked_for_ends_at_once() {
    let world = World::new();
    let mut terms = world.terms();
    terms.unseen = Duration::from_secs(60);
    let _running = world.serve_on(terms);
    let mut keeper = world.keeper();
    let made = keeper.take(&world.lease_terms()).unwrap();
    fs::write(world.make_folder_of(&made).join(MADE_MARK), "").unwrap();
    let _never_asked_for = keeper.take(&world.lease_terms()).unwrap();
    drop(keeper);
    world.until_nothing_is_left();
}

#[test]
fn what_gvisor_left_of_a_container_that_its_dead_owner_removed_is_ended_before_the_lease() {
    for is_restarted in [false, true] {
        let world = World::new();
        let running = world.serve();
        let mut keeper = world.keeper();
        let mut terms = world.lease_terms();
        terms.tier = TierKind::Gvisor;
        let lease = keeper.take(&terms).unwrap();
        let id = world.run(&lease);
        let mark = world.make_folder_of(&lease).join(MADE_MARK);
        fs::write(mark, id.as_str()).unwrap();
        let left = LeftProcess::of(id.as_str()).unwrap();
        Engine::at(world.engine.socket())
            .remove(id.as_str())
            .unwrap();
        let text = fs::read_to_string(world.path("state/leases")).unwrap();
        if is_restarted {
            // As after the owner's death and the supervisor's, which left this of the lease.
            keeper.release(lease).unwrap();
            drop(keeper);
            running.ends().unwrap();
            let pid = format!("\"pid\":{}", std::process::id());
            let dead = text.replace(&pid, "\"pid\":4194303");
            fs::write(world.path("state/leases"), dead).unwrap();
            let _running = world.serve();
            world.until_nothing_is_left();
        } else {
            drop(keeper);
            world.until_nothing_is_left();
        }
        // The lease ended only after it.
        assert!(left.has_ended());
    }
}

#[test]
fn a_container_whose_owner_died_before_it_could_mark_it_is_marked_before_its_removal() {
    let world = World::new();
    let _running = world.serve();
    let mut keeper = world.keeper();
    let lease = keeper.take(&world.lease_terms()).unwrap();
    let folder = world.make_folder_of(&lease);
    let id = world.run(&lease);
    world
        .proxy
        .on("DELETE", "/containers/", Fault::HoldRequest, 1);
    drop(keeper);
    assert!(world.proxy.await_held(SOON));
    assert_eq!(
        fs::read_to_string(folder.join(MADE_MARK)).unwrap(),
        id.as_str()
    );
    world.proxy.release();
    world.until_nothing_is_left();
    assert!(!folder.exists());
}

#[test]
fn a_lease_of_docker_or_with_a_mark_that_names_nothing_ends_nobodys_process() {
    let world = World::new();
    let _running = world.serve();
    let id = "5c".repeat(32);
    let left = LeftProcess::of(&id).unwrap();
    for (tier, text) in [
        (TierKind::Docker, id.as_str()),
        (TierKind::Gvisor, ""),
        (TierKind::Gvisor, "runsc"),
        (TierKind::Gvisor, &id[..11]),
        (TierKind::Gvisor, &format!("{id}5c")),
    ] {
        let mut keeper = world.keeper();
        let mut terms = world.lease_terms();
        terms.tier = tier;
        let lease = keeper.take(&terms).unwrap();
        fs::write(world.make_folder_of(&lease).join(MADE_MARK), text).unwrap();
        drop(keeper);
        world.until_nothing_is_left();
    }
    assert!(!left.has_ended());
}

#[test]
fn a_creation_that_never_comes_ends_after_the_engine_has_denied_it_for_long_enough() {
    let world = World::new();
    let _running = world.serve();
    let mut keeper = world.keeper();
    let lease = keeper.take(&world.lease_terms()).unwrap();
    world.make_folder_of(&lease);
    drop(keeper);
    assert_eq!(world.status().leases.len(), 1);
    let begun = Instant::now();
    world.until_nothing_is_left();
    assert!(begun.elapsed() >= Duration::from_millis(500));
}

#[test]
fn a_container_that_comes_after_its_lease_has_ended_is_removed_by_the_next_start() {
    let world = World::new();
    let running = world.serve();
    let mut keeper = world.keeper();
    let lease = keeper.take(&world.lease_terms()).unwrap();
    let late = container(&lease, testkit::engine::IMAGE);
    let name = lease.container_name();
    keeper.release(lease).unwrap();
    Engine::at(world.engine.socket())
        .create(&name, &late)
        .unwrap();
    let other_store = "f".repeat(32);
    let uid = rustix::process::geteuid().as_raw().to_string();
    let labels = [
        ("symbi.lease", other_store.as_str()),
        ("symbi.owner", uid.as_str()),
    ];
    let elsewhere = world.engine.add("symbi-elsewhere", &labels);
    drop(keeper);
    running.ends().unwrap();
    let _running = world.serve();
    world.until("the late one is gone", |world| {
        world.engine.containers().len() == 1
    });
    assert!(world.engine.containers().contains_key(&elsewhere));
}

#[test]
fn a_supervisor_that_starts_again_removes_what_dead_owners_left_and_keeps_the_living() {
    let world = World::new();
    let running = world.serve();
    let mut keeper = world.keeper();
    let lease = keeper.take(&world.lease_terms()).unwrap();
    let kept = world.run(&lease);
    // What a dead process's lease looks like: the same, of another owner.
    let text = std::fs::read_to_string(world.path("state/leases")).unwrap();
    drop(keeper);
    world.until_nothing_is_left();
    running.ends().unwrap();
    assert!(!world.engine.containers().contains_key(kept.as_str()));
    let id = lease.id().to_string();
    let pid = format!("\"pid\":{}", std::process::id());
    let dead = text.replace(&id, &id.replace(&id[20..], &"0".repeat(12)));
    let dead = dead.replace(&pid, "\"pid\":4194303");
    std::fs::write(world.path("state/leases"), format!("{text}{dead}")).unwrap();
    let uid = rustix::process::geteuid().as_raw().to_string();
    let dead_id = format!("{}{}", &id[..20], "0".repeat(12));
    for lease in [id.as_str(), dead_id.as_str()] {
        let labels = [("symbi.lease", lease), ("symbi.owner", uid.as_str())];
        world.engine.add(&format!("symbi-{lease}"), &labels);
    }
    let _running = world.serve();
    world.until("the dead one's is gone", |world| {
        world.engine.containers().len() == 1
    });
    world.until("and its lease", |world| world.status().leases.len() == 1);
    assert_eq!(world.status().leases[0].state, LeaseState::Live);
    assert_eq!(world.status().leases[0].lease, id);
}

#[test]
fn only_one_supervisor_runs_and_it_ends_when_nothing_is_left_to_do() {
    let world = World::new();
    let running = world.serve();
    assert!(matches!(
        serve(world.terms(), |_| ()),
        Err(FolderFault::Taken)
    ));
    running.ends().unwrap();
    assert!(!world.socket().exists());
    world.serve().ends().unwrap();
}

#[test]
fn a_capacity_that_cannot_be_read_gives_no_lease_and_says_why() {
    let world = World::new();
    let mut terms = world.terms();
    terms.capacity = Box::new(|| Err("config.toml: line 1 is wrong".to_owned()));
    let _running = world.serve_on(terms);
    match world.keeper().take(&world.lease_terms()) {
        Err(LeaseRefused::Unavailable { reason }) => assert!(reason.contains("line 1"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_that_is_to_stay_waits_for_the_one_that_runs_and_takes_over_at_its_end() {
    let world = World::new();
    let first = world.serve();
    let keeper = world.keeper();
    let mut terms = world.terms();
    terms.persistent = true;
    let (told, stages) = std::sync::mpsc::channel();
    std::thread::spawn(move || serve(terms, |stage| told.send(stage).unwrap()));
    assert_eq!(stages.recv_timeout(SOON).unwrap(), Readiness::Waits);
    assert!(!world.status().persistent);
    drop(keeper);
    first.ends().unwrap();
    assert_eq!(stages.recv_timeout(SOON).unwrap(), Readiness::Listens);
    assert!(world.status().persistent);
    std::thread::sleep(world.terms().idle * 3);
    assert!(world.status().persistent);
}
