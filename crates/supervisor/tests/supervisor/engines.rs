//! Removal through an engine that delays, drops, refuses and dies.

use std::time::{Duration, Instant};

use sandbox::lease::LeaseKeeper as _;
use supervisor::limits::LOOK_PAUSE;
use testkit::engine_proxy::Fault;

use crate::fixture::World;

fn removed_in_spite_of(method: &str, path: &str, fault: &Fault) {
    let world = World::new();
    let _running = world.serve();
    let mut keeper = world.keeper();
    let lease = keeper.take(&world.lease_terms()).unwrap();
    world.run(&lease);
    let foreign = world.engine.add("foreign", &[]);
    world.proxy.on(method, path, fault.clone(), 2);
    drop(keeper);
    world.until(&format!("{method} {path} {fault:?}"), |world| {
        world.engine.containers().len() == 1 && world.status().leases.is_empty()
    });
    assert!(world.engine.containers().contains_key(&foreign));
}

#[test]
fn a_removal_goes_on_in_spite_of_every_fault_of_the_engine() {
    let faults = [
        Fault::Delay(Duration::from_millis(300)),
        Fault::DropRequest,
        Fault::DropAnswer,
        Fault::HalfAnswer(20),
        Fault::Status(500),
        // It lists a container for a moment before it knows it.
        Fault::Status(404),
        Fault::StatusAfter(409),
        Fault::StatusAfter(500),
    ];
    for fault in &faults {
        removed_in_spite_of("DELETE", "/containers/", fault);
    }
    for fault in &faults[..6] {
        removed_in_spite_of("GET", "/containers/json", fault);
    }
}

#[test]
fn an_engine_that_is_down_is_asked_until_it_is_back_and_status_says_so() {
    let world = World::new();
    let _running = world.serve();
    let mut keeper = world.keeper();
    let lease = keeper.take(&world.lease_terms()).unwrap();
    world.run(&lease);
    world.engine.stop();
    drop(keeper);
    world.until("it waits", |world| {
        let leases = world.status().leases;
        leases.len() == 1 && leases[0].waits_for.is_some()
    });
    let why = world.status().leases[0].waits_for.clone().unwrap();
    assert!(why.contains("engine"), "{why}");
    world.engine.restart().unwrap();
    world.until_nothing_is_left();
}

#[test]
fn an_engine_that_lists_a_container_of_somebody_else_does_not_make_us_touch_it() {
    let world = World::new();
    let _running = world.serve();
    let mut keeper = world.keeper();
    let lease = keeper.take(&world.lease_terms()).unwrap();
    let foreign = world
        .engine
        .add("x", &[("symbi.lease", "x"), ("symbi.owner", "0")]);
    let body = format!(
        "[{{\"Id\":\"{foreign}\",\"Labels\":{{\"symbi.lease\":\"{}\",\"symbi.owner\":\"12345\"}}}}]",
        lease.id()
    );
    world
        .proxy
        .on("GET", "/containers/json", Fault::Body(body), usize::MAX);
    drop(keeper);
    world.until("it is refused", |world| {
        let leases = world.status().leases;
        let why = leases.first().and_then(|it| it.waits_for.clone());
        why.is_some_and(|why| why.contains("not of this lease"))
    });
    assert!(world.engine.containers().contains_key(&foreign));
    world.proxy.release();
    world.until("its lease ends", |world| world.status().leases.is_empty());
    assert!(world.engine.containers().contains_key(&foreign));
}

#[test]
fn a_supervisor_whose_engine_is_gone_for_good_ends_and_keeps_its_leases_for_the_next_start() {
    let world = World::new();
    let mut terms = world.terms();
    terms.forsaken = Duration::from_secs(1);
    let running = world.serve_on(terms);
    let mut keeper = world.keeper();
    let lease = keeper.take(&world.lease_terms()).unwrap();
    world.run(&lease);
    let files = world.make_folder_of(&lease);
    world.engine.stop();
    let begun = Instant::now();
    drop(keeper);
    running.ends().unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(1));
    let kept = supervisor::survey(&world.path("state"), &[]).unwrap();
    assert_eq!(kept.leases.len(), 1);
    assert!(kept.engines[0].containers.is_err() && files.is_dir());
    assert_eq!(world.pool().references().unwrap(), [lease.id().as_str()]);
    world.engine.restart().unwrap();
    // Its owner was this process: it is one that has died, now.
    let text = std::fs::read_to_string(world.path("state/leases")).unwrap();
    let pid = format!("\"pid\":{}", std::process::id());
    let dead = text.replace(&pid, "\"pid\":4194303");
    std::fs::write(world.path("state/leases"), dead).unwrap();
    let _running = world.serve();
    world.until_nothing_is_left();
    assert!(!files.exists());
}

#[test]
fn a_supervisor_stays_for_a_living_owner_though_the_engine_is_gone() {
    let world = World::new();
    let mut terms = world.terms();
    terms.forsaken = Duration::ZERO;
    let running = world.serve_on(terms);
    let (mut living, mut dead) = (world.keeper(), world.keeper());
    let lease = living.take(&world.lease_terms()).unwrap();
    let other = dead.take(&world.lease_terms()).unwrap();
    world.run(&other);
    world.engine.stop();
    drop(dead);
    std::thread::sleep(LOOK_PAUSE + Duration::from_secs(1));
    assert_eq!(world.status().leases.len(), 2);
    living.release(lease).unwrap();
    drop(living);
    running.ends().unwrap();
    let kept = supervisor::survey(&world.path("state"), &[]).unwrap();
    assert_eq!(kept.leases.len(), 1);
}
