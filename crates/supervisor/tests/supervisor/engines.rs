//! Removal through an engine that delays, drops, refuses and dies.

use std::time::Duration;

use sandbox::lease::LeaseKeeper as _;
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
        Fault::StatusAfter(409),
        Fault::StatusAfter(500),
    ];
    for fault in &faults {
        removed_in_spite_of("DELETE", "/containers/", fault);
    }
    for fault in &faults[..5] {
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
