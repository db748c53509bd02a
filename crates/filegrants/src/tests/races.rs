//! Others at work on the same names at the same time.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use model::RunId;

use super::fixture::*;
use crate::{PublicationRefusal, PublishFailure};

const WRITERS: usize = 64;
const READS: usize = 400;

#[test]
fn of_sixty_four_writers_to_one_name_one_wins_and_its_content_stays() {
    let project = Project::new();
    let barrier = Barrier::new(WRITERS);
    let targets: Vec<_> = (0..WRITERS).map(|_| project.target("out/b.csv")).collect();
    let results: Vec<_> = std::thread::scope(|scope| {
        let write = |(n, target): (usize, crate::OutputTarget)| {
            let barrier = &barrier;
            scope.spawn(move || {
                let bytes = format!("writer {n:02}").into_bytes();
                let (mut call, digest) = dispatched(Store::default(), RunId::new());
                let mut file = output(&bytes);
                target
                    .publish_with(
                        &mut file,
                        bytes.len() as u64,
                        digest,
                        &mut call,
                        &mut |step| {
                            if step == crate::publish::Step::Rename {
                                barrier.wait();
                            }
                            Ok(())
                        },
                    )
                    .map(|_| bytes)
            })
        };
        let writers: Vec<_> = targets.into_iter().enumerate().map(write).collect();
        writers.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let winners: Vec<_> = results.iter().filter_map(|it| it.as_ref().ok()).collect();
    assert_eq!(winners.len(), 1);
    assert_eq!(&project.read("out/b.csv"), winners[0]);
    for failure in results.iter().filter_map(|it| it.as_ref().err()) {
        assert!(
            matches!(
                failure,
                PublishFailure::NotPublished {
                    reason: PublicationRefusal::Exists,
                    ..
                }
            ),
            "{failure}"
        );
    }
    assert!(project.candidates().is_empty());
}

/// Swaps what stands at `data/sub` while it is read, and returns how often a read succeeded.
fn read_while(project: &Project, swap: impl Fn(&Project) + Sync) -> usize {
    let broker = project.broker();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                swap(project);
            }
        });
        let mut granted = 0;
        for _ in 0..READS {
            if let Ok(plan) = broker.plan(&reads(&["data/sub/x"])) {
                assert_eq!(content(&plan.inputs[&path("data/sub/x")]), b"public");
                granted += 1;
            }
        }
        is_done.store(true, Ordering::Relaxed);
        granted
    })
}

#[test]
fn a_folder_swapped_for_a_link_while_it_is_read_never_leads_to_the_links_target() {
    let project = Project::new();
    for folder in ["data/real", "secret"] {
        fs::create_dir(project.file(folder)).unwrap();
    }
    project.write("data/real/x", b"public");
    project.write("secret/x", b"secret");
    symlink("../secret", project.file("data/link")).unwrap();
    fs::rename(project.file("data/real"), project.file("data/sub")).unwrap();
    let exchange = rustix::fs::RenameFlags::EXCHANGE;
    read_while(&project, |project| {
        let (sub, link) = (project.file("data/sub"), project.file("data/link"));
        rustix::fs::renameat_with(rustix::fs::CWD, sub, rustix::fs::CWD, link, exchange).unwrap();
    });
}

#[test]
fn a_file_that_is_rewritten_while_it_is_read_is_refused_or_whole() {
    let project = Project::new();
    fs::create_dir(project.file("data/sub")).unwrap();
    project.write("data/sub/x", b"public");
    read_while(&project, |project| {
        let aside = project.file("data/aside");
        fs::write(&aside, b"public").unwrap();
        fs::rename(&aside, project.file("data/sub/x")).unwrap();
    });
}
