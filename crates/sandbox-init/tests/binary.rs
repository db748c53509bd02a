//! The helper as a program: it does nothing without an owner that speaks its language.
//!
//! Because of this file a test run of the workspace builds `symbi-init`.

#![cfg(test)]

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sandbox_init::socket;
use sandbox_init::wire::{Failure, GREETING, Reply, Speaker};

fn spawn() -> (OwnedFd, Child) {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_symbi-init"));
    command.env_clear().stdin(Stdio::from(theirs));
    let child = command.spawn().unwrap();
    (ours, child)
}

#[test]
fn without_an_owner_it_ends_at_once() {
    let (ours, mut child) = spawn();
    drop(ours);
    assert_eq!(child.wait().unwrap().code(), Some(72));
    let mut bare = Command::new(env!("CARGO_BIN_EXE_symbi-init"));
    bare.stdin(Stdio::null());
    assert!(!bare.status().unwrap().success());
}

#[test]
fn another_version_is_told_so() {
    let (ours, mut child) = spawn();
    socket::send(ours.as_fd(), b"symbi-init 2", &[]).unwrap();
    let packet = socket::receive(ours.as_fd(), 4096).unwrap().unwrap();
    match Reply::decode(&packet.bytes).unwrap() {
        Reply::Failed(Failure { speaker, step, .. }) => {
            assert_eq!(speaker, Speaker::Helper);
            assert!(step.contains("different versions"), "{step}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(child.wait().unwrap().code(), Some(71));
}

#[test]
fn a_plan_without_its_descriptors_is_refused() {
    let (ours, mut child) = spawn();
    socket::send(ours.as_fd(), GREETING, &[]).unwrap();
    let packet = socket::receive(ours.as_fd(), 4096).unwrap().unwrap();
    assert!(matches!(Reply::decode(&packet.bytes), Ok(Reply::Failed(_))));
    assert_eq!(child.wait().unwrap().code(), Some(71));
}
