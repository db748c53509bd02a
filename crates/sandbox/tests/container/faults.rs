//! An engine that answers late, wrongly, in part or not at all.

use sandbox::ContainerKind;
use sandbox::lease::MADE_MARK;
use tempfile::TempDir;
use testkit::engine_proxy::{EngineProxy, Fault};
use worker::{Ending, StartError, confirm_removal};

use crate::host::{Bench, Job, finish, image, socket, wait, wait_for};

struct Faulty {
    bench: Bench,
    proxy: EngineProxy,
    _folder: TempDir,
}

impl Faulty {
    fn new(kind: ContainerKind) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("proxy.sock");
        let proxy = EngineProxy::start(&at, &socket()).unwrap();
        Self {
            bench: Bench::at(kind, &image(), at).unwrap(),
            proxy,
            _folder: folder,
        }
    }

    /// Why a worker did not start.
    fn refusal(&mut self) -> StartError {
        match self.bench.start(&Job::new(&["true"])) {
            Ok(_) => panic!("it runs"),
            Err(error) => error,
        }
    }

    fn was_started(&self) -> bool {
        self.proxy.seen().iter().any(|it| it.ends_with("/start"))
    }
}

pub(crate) fn a_container_that_is_not_as_it_was_asked_for_never_starts(kind: ContainerKind) {
    let mut faulty = Faulty::new(kind);
    let other = "{\"Id\":\"0\",\"State\":{},\"Config\":{\"Image\":\"x\"},\"HostConfig\":{}}";
    let fault = Fault::Body(other.to_owned());
    faulty.proxy.on("GET", "/containers/", fault, 1);
    let refused = faulty.refusal();
    let said = refused.to_string();
    assert!(matches!(refused, StartError::Unavailable { .. }), "{said}");
    assert!(
        said.contains("made another container than was asked for"),
        "{said}"
    );
    assert!(!faulty.was_started());
    faulty.bench.assert_nothing_is_left();
    assert_eq!(faulty.bench.run(&Job::new(&["true"])).code(), 0);
}

pub(crate) fn an_engine_that_does_not_find_the_workers_files_starts_nothing(kind: ContainerKind) {
    let mut faulty = Faulty::new(kind);
    // Without what it found, and without a file at all: as an engine of another machine.
    for (fault, why) in [
        (Fault::Status(404), "does not see this machine's files"),
        (Fault::Status(200), "its answer cannot be read"),
        (Fault::Status(500), "look for a file of the worker's"),
    ] {
        faulty.proxy.on("HEAD", "/archive?path=", fault, 1);
        let said = faulty.refusal().to_string();
        assert!(said.contains(why), "{said}");
        assert!(!faulty.was_started());
        faulty.bench.assert_nothing_is_left();
    }
    for _ in 0..2 {
        assert_eq!(faulty.bench.run(&Job::new(&["true"])).code(), 0);
    }
    let looks = faulty.proxy.seen();
    let looks = looks.iter().filter(|it| it.starts_with("HEAD"));
    assert_eq!(
        looks.count(),
        4,
        "the first worker that can be looked at is enough"
    );
}

pub(crate) fn a_creation_that_was_refused_or_is_seen_removed_frees_its_lease(kind: ContainerKind) {
    let mut faulty = Faulty::new(kind);
    // Clearly refused; or done, with an answer that is a failure, half or lost.
    let known = [
        Fault::Status(409),
        Fault::StatusAfter(500),
        Fault::HalfAnswer(40),
        Fault::DropAnswer,
    ];
    for fault in known {
        faulty
            .proxy
            .on("POST", "/containers/create", fault.clone(), 1);
        let refused = faulty.refusal();
        assert!(
            matches!(refused, StartError::Failed { .. }),
            "{fault:?}: {refused}"
        );
        faulty.bench.assert_nothing_is_left();
    }
    assert!(!faulty.was_started());
    assert_eq!(faulty.bench.run(&Job::new(&["true"])).code(), 0);
}

pub(crate) fn a_creation_that_may_still_come_keeps_its_lease(kind: ContainerKind) {
    for fault in [Fault::Status(500), Fault::DropRequest] {
        let mut faulty = Faulty::new(kind);
        faulty
            .proxy
            .on("POST", "/containers/create", fault.clone(), 1);
        let refused = faulty.refusal();
        assert!(
            matches!(refused, StartError::Failed { .. }),
            "{fault:?}: {refused}"
        );
        let held = faulty.bench.keeper.held();
        assert_eq!(held.len(), 1, "{fault:?}");
        assert_eq!(faulty.bench.containers(), 0);
        // Without its folder the keeper would take the container for one that cannot come.
        let folder = faulty.bench.staging.path().join(held[0].to_string());
        assert!(
            folder.is_dir() && !folder.join(MADE_MARK).exists(),
            "{fault:?}"
        );
    }
}

pub(crate) fn a_start_whose_answer_is_lost_is_a_worker_that_was_stopped(kind: ContainerKind) {
    for fault in [Fault::DropAnswer, Fault::StatusAfter(500)] {
        let mut faulty = Faulty::new(kind);
        faulty.proxy.on("POST", "/start", fault.clone(), 1);
        // What may have run is never told to have not started.
        let mut running = faulty.bench.start(&Job::sh("sleep 60")).unwrap();
        let ended = wait(running.as_mut());
        assert_eq!(ended.ending, Ending::Stopped, "{fault:?}");
        assert_eq!(confirm_removal(running.as_mut()).unwrap().len(), 1);
        faulty.bench.assert_nothing_is_left();
    }
}

pub(crate) fn a_start_that_never_came_is_a_worker_that_did_not_start(kind: ContainerKind) {
    for fault in [Fault::Status(500), Fault::DropRequest] {
        let mut faulty = Faulty::new(kind);
        faulty.proxy.on("POST", "/start", fault.clone(), 1);
        let refused = faulty.refusal();
        assert!(
            matches!(refused, StartError::Failed { .. }),
            "{fault:?}: {refused}"
        );
        faulty.bench.assert_nothing_is_left();
    }
}

pub(crate) fn a_wait_whose_answer_is_lost_is_asked_again(kind: ContainerKind) {
    for fault in [
        Fault::DropRequest,
        Fault::DropAnswer,
        Fault::HalfAnswer(20),
        Fault::Status(500),
    ] {
        let mut faulty = Faulty::new(kind);
        faulty.proxy.on("POST", "/wait", fault.clone(), 1);
        let done = finish(faulty.bench.start(&Job::sh("echo out; exit 7")).unwrap());
        assert_eq!(
            (done.code(), done.out().as_str()),
            (7, "out\n"),
            "{fault:?}"
        );
        faulty.bench.assert_nothing_is_left();
    }
}

pub(crate) fn a_removal_that_fails_is_not_confirmed_and_is_tried_again(kind: ContainerKind) {
    for fault in [Fault::Status(500), Fault::DropRequest] {
        let mut faulty = Faulty::new(kind);
        faulty.proxy.on("DELETE", "/containers/", fault.clone(), 1);
        let mut running = faulty.bench.start(&Job::new(&["true"])).unwrap();
        assert_eq!(wait(running.as_mut()).ending, Ending::Exited { code: 0 });
        let error = confirm_removal(running.as_mut()).unwrap_err().to_string();
        assert!(error.contains("is not confirmed"), "{fault:?}: {error}");
        assert_eq!(faulty.bench.keeper.held().len(), 1, "{fault:?}");
        drop(running);
        faulty.bench.assert_nothing_is_left();
    }
}

pub(crate) fn a_container_that_somebody_removed_is_lost_and_leaves_nothing(kind: ContainerKind) {
    let mut faulty = Faulty::new(kind);
    let mut running = faulty.bench.start(&Job::sh("echo up; sleep 60")).unwrap();
    wait_for(running.as_mut(), "up");
    let name = format!("symbi-{}", faulty.bench.keeper.held()[0]);
    faulty.bench.engine.remove(&name).unwrap();
    let ended = wait(running.as_mut());
    assert_ne!(ended.ending, Ending::Exited { code: 0 });
    assert_eq!(confirm_removal(running.as_mut()).unwrap().len(), 1);
    faulty.bench.assert_nothing_is_left();
}
