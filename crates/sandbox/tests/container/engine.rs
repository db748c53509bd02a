//! Engines that are not what a tier needs.

use sandbox::{ContainerKind, ContainerSpec, ContainerTier};
use testkit::lease::MemoryKeeper;
use worker::StartError;

fn at(socket: std::path::PathBuf) -> String {
    let staging = tempfile::tempdir().unwrap();
    let spec = ContainerSpec {
        kind: ContainerKind::Docker,
        socket,
        image: "x".to_owned(),
        user: (65534, 65534),
        staging: staging.path().to_owned(),
    };
    match ContainerTier::new(spec, |_| Ok(Box::new(MemoryKeeper::new(1)))) {
        Err(StartError::Unavailable { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_engine_that_is_not_there_is_isolation_that_is_not_available() {
    let folder = tempfile::tempdir().unwrap();
    let reason = at(folder.path().join("none.sock"));
    assert!(
        reason.contains("no container engine answers at"),
        "{reason}"
    );
    assert!(reason.contains("none.sock"), "{reason}");
}
