//! What does not start leaves nothing, and charges nothing.

use sandbox::lease::MADE_MARK;
use sandbox::{ContainerKind, ContainerTier};
use testkit::lease::MemoryKeeper;
use worker::{StartError, Tier};

use crate::host::{Bench, Job, PLACES, image, spec, wait_for};

pub(crate) fn a_program_that_is_not_in_the_image_is_a_failed_start(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    for argv in [["no-such-program"], ["/opt/none"], ["/etc/passwd"]] {
        match bench.start(&Job::new(&argv)) {
            Err(StartError::Failed { step, reason }) => {
                assert!(step == "run the program", "{step}: {reason}");
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("{argv:?} runs"),
        }
        bench.assert_nothing_is_left();
    }
}

pub(crate) fn ten_wrong_images_charge_nothing_and_the_right_call_works(kind: ContainerKind) {
    let keeper = MemoryKeeper::new(PLACES);
    let staging = tempfile::tempdir().unwrap();
    for number in 0..10 {
        let name = format!("no-such-image:{number}");
        let spec = spec(kind, &name, staging.path());
        match ContainerTier::new(spec, |_| Ok(Box::new(keeper.clone()))) {
            Err(StartError::Unavailable { reason }) => {
                assert!(reason.contains("has no image `no-such-image"), "{reason}");
                assert!(reason.contains("nothing is pulled"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(keeper.held(), []);
    let spec = spec(kind, &image(), staging.path());
    let mut tier = ContainerTier::new(spec, |_| Ok(Box::new(keeper.clone()))).unwrap();
    let job = Job::new(&["true"]).spec(&tier);
    assert_eq!(crate::host::finish(tier.start(job).unwrap()).code(), 0);
    assert_eq!(keeper.held(), []);
}

pub(crate) fn an_image_that_went_away_is_refused_and_charges_nothing(kind: ContainerKind) {
    let engine = sandbox::engine::Engine::at(crate::host::socket());
    let name = format!("symbi-test-gone-{}-{}", kind.tier(), std::process::id());
    // An image of one empty folder.
    let tar = vec![0; 10240];
    let made = engine
        .import_image(&name, &mut tar.as_slice(), tar.len() as u64)
        .unwrap();
    let mut bench = Bench::with_image(kind, &name).unwrap();
    engine.remove_image(&name).unwrap();
    assert!(engine.image(&made.id).unwrap().is_none());
    for _ in 0..PLACES * 2 {
        match bench.start(&Job::new(&["true"])) {
            Err(StartError::Unavailable { reason }) => {
                assert!(reason.contains("No such image"), "{reason}");
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it runs"),
        }
        bench.assert_nothing_is_left();
    }
}

pub(crate) fn no_room_for_another_worker_starts_nothing(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    let job = Job::sh("echo up; exec sleep 60");
    let mut all: Vec<_> = (0..PLACES).map(|_| bench.start(&job).unwrap()).collect();
    match bench.start(&job) {
        Err(StartError::NoRoom { reason }) => assert!(reason.contains("4 of 4"), "{reason}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it runs"),
    }
    for running in &mut all {
        wait_for(running.as_mut(), "up");
        running.stop();
    }
    for running in all {
        crate::host::finish(running);
    }
    bench.assert_nothing_is_left();
    assert_eq!(bench.run(&Job::new(&["true"])).code(), 0);
}

pub(crate) fn a_worker_that_is_dropped_is_removed(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    let mut running = bench.start(&Job::sh("echo up; exec sleep 4713")).unwrap();
    wait_for(running.as_mut(), "up");
    drop(running);
    bench.assert_nothing_is_left();
}

pub(crate) fn a_workers_folder_names_its_container_to_whoever_cleans_up(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    let mut running = bench.start(&Job::sh("echo up; exec sleep 4713")).unwrap();
    wait_for(running.as_mut(), "up");
    let lease = bench.keeper.held()[0].to_string();
    let name = format!("symbi-{lease}");
    let found = bench.engine.inspect(&name).unwrap().unwrap();
    let mark = bench.staging.path().join(lease).join(MADE_MARK);
    assert_eq!(std::fs::read_to_string(mark).unwrap(), found.id);
    drop(running);
    bench.assert_nothing_is_left();
}
