//! One new file: its receipt, its competitors, and a failure at every step.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use journal::MemoryWriter;
use model::{Digest, PublicationId, RunId};

use super::fixture::*;
use crate::publish::Step;
use crate::{
    CandidateName, CreatedFile, Doubt, Kept, NameChange, PublicationRefusal, PublishFailure, Swept,
};

const STEPS: [Step; 10] = [
    Step::MakeCandidate,
    Step::CopyBytes,
    Step::SyncCandidate,
    Step::SyncCandidateFolder,
    Step::CheckNames,
    Step::RecordIntent,
    Step::Rename,
    Step::SyncFolders,
    Step::CompareDestination,
    Step::RecordEnd,
];

/// Publishes `new` at `out/b.csv`, calling `hook` before each step.
fn publish(
    project: &Project,
    store: &Store,
    hook: impl FnMut(Step) -> io::Result<()>,
) -> Result<CreatedFile, PublishFailure> {
    let mut hook = hook;
    let (mut call, digest) = dispatched(store.clone(), RunId::new());
    let target = project.target("out/b.csv");
    target.publish_with(&mut output(b"new"), 3, digest, &mut call, &mut hook)
}

fn refused(result: Result<CreatedFile, PublishFailure>) -> PublicationRefusal {
    match result {
        Err(PublishFailure::NotPublished { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_publication_leaves_one_file_with_its_receipt_and_untouched_neighbours() {
    let project = Project::new();
    project.write("out/neighbour", b"kept");
    let store = Store::default();
    let created = publish(&project, &store, |_| Ok(())).unwrap();
    assert_eq!((created.path, created.bytes), (path("out/b.csv"), 3));
    assert_eq!(created.sha256, Digest::of(b"new"));
    assert_eq!(project.read("out/b.csv"), b"new");
    assert_eq!(project.read("out/neighbour"), b"kept");
    assert!(project.candidates().is_empty());
    let stat = fs::metadata(project.file("out/b.csv")).unwrap();
    let plain = fs::metadata(project.file("data/a.csv")).unwrap();
    assert_eq!(
        (stat.mode(), stat.uid(), stat.nlink()),
        (plain.mode(), plain.uid(), 1)
    );
}

#[test]
fn the_target_is_absent_until_a_signed_intent_stands_and_a_signed_end_follows() {
    let project = Project::new();
    let store = Store::default();
    let mut seen = Vec::new();
    publish(&project, &store, |step| {
        let text = store.text();
        let records = (
            text.contains("FilePublicationPrepared"),
            text.contains("Finished"),
        );
        seen.push((step, project.exists("out/b.csv"), records));
        Ok(())
    })
    .unwrap();
    let wanted = STEPS.map(|step| {
        (
            step,
            step > Step::Rename,
            (step > Step::RecordIntent, false),
        )
    });
    assert_eq!(seen, wanted);
    assert!(store.text().contains("\"confirmed\":true"));
}

#[test]
fn the_intent_names_everything_that_recovery_needs() {
    let project = Project::new();
    let store = Store::default();
    let mut inode = 0;
    publish(&project, &store, |step| {
        if step == Step::Rename {
            let name = project.candidates().remove(0);
            inode = fs::metadata(project.file("out/.symbi-candidates").join(name))?.ino();
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(
        fs::metadata(project.file("out/b.csv")).unwrap().ino(),
        inode
    );
    let parent = fs::metadata(project.file("out")).unwrap().ino();
    let text = store.text();
    for part in [
        format!("\"inode\":\"{inode}\""),
        format!("\"inode\":\"{parent}\""),
        "\"parent_path\":\"./out\"".to_owned(),
        "\"path\":\"out/b.csv\"".to_owned(),
        "\"target_name\":\"b.csv\"".to_owned(),
        format!("\"sha256\":\"{}\"", Digest::of(b"new")),
    ] {
        assert!(text.contains(&part), "{part}: {text}");
    }
}

#[test]
fn an_empty_output_is_published_as_an_empty_file() {
    let project = Project::new();
    let (mut call, digest) = dispatched(Store::default(), RunId::new());
    let created = project
        .target("out/b.csv")
        .publish(&mut output(b""), 0, digest, &mut call)
        .unwrap();
    assert_eq!((created.bytes, created.sha256), (0, Digest::of(b"")));
    assert_eq!(project.read("out/b.csv"), b"");
}

#[test]
fn the_workers_inode_is_never_the_published_one() {
    let project = Project::new();
    let worker = project.file("data/worker-output");
    fs::write(&worker, b"new").unwrap();
    rustix::fs::chmod(&worker, rustix::fs::Mode::from_raw_mode(0o6777)).unwrap();
    let mut file = fs::File::open(&worker).unwrap();
    let (mut call, digest) = dispatched(Store::default(), RunId::new());
    project
        .target("out/b.csv")
        .publish(&mut file, 3, digest, &mut call)
        .unwrap();
    let published = fs::metadata(project.file("out/b.csv")).unwrap();
    assert_ne!(published.ino(), fs::metadata(&worker).unwrap().ino());
    assert_eq!(published.mode() & 0o7111, 0);
}

#[test]
fn an_unsigned_or_volatile_journal_publishes_nothing() {
    let project = Project::new();
    let (mut call, digest) = dispatched(MemoryWriter::new(), RunId::new());
    let target = project.target("out/b.csv");
    let reason = refused(target.publish(&mut output(b"new"), 3, digest, &mut call));
    assert!(
        reason.to_string().contains("live audit authority"),
        "{reason}"
    );
    assert!(!project.exists("out/b.csv") && project.candidates().is_empty());
}

#[test]
fn another_calls_authority_publishes_nothing() {
    let project = Project::new();
    let (mut call, _) = dispatched(Store::default(), RunId::new());
    let other = Digest::of(b"another call");
    let target = project.target("out/b.csv");
    let reason = refused(target.publish(&mut output(b"new"), 3, other, &mut call));
    assert!(
        matches!(reason, PublicationRefusal::NotRecorded(_)),
        "{reason}"
    );
    assert!(!project.exists("out/b.csv") && project.candidates().is_empty());
}

#[test]
fn a_worker_output_that_is_no_plain_file_linked_or_over_its_limit_is_not_published() {
    let project = Project::new();
    fs::create_dir(project.file("data/folder")).unwrap();
    project.write("data/linked", b"new");
    fs::hard_link(project.file("data/linked"), project.file("data/second")).unwrap();
    let file = |name: &str| fs::File::open(project.file(name)).unwrap();
    let large = output(b"");
    large.set_len(LIMIT + 1).unwrap();
    for (mut file, bytes, wanted) in [
        (file("data/folder"), 0, "a folder"),
        (file("data/linked"), 3, "2 hard links"),
        (large, LIMIT + 1, "more than"),
        (output(b"new"), 4, "reported 4"),
        (output(b"new"), 2, "reported 2"),
    ] {
        let store = Store::default();
        let (mut call, digest) = dispatched(store.clone(), RunId::new());
        let target = project.target("out/b.csv");
        let reason = refused(target.publish(&mut file, bytes, digest, &mut call));
        assert!(reason.to_string().contains(wanted), "{reason}");
        assert!(!project.exists("out/b.csv") && project.candidates().is_empty());
        assert!(!store.text().contains("FilePublication"));
    }
    let whole = output(b"");
    whole.set_len(LIMIT).unwrap();
    let (mut call, digest) = dispatched(Store::default(), RunId::new());
    let mut whole = whole;
    assert!(
        project
            .target("out/b.csv")
            .publish(&mut whole, LIMIT, digest, &mut call)
            .is_ok()
    );
}

#[test]
fn of_two_operations_on_one_target_the_first_wins_and_the_second_fails() {
    let project = Project::new();
    let (first, second) = (project.target("out/b.csv"), project.target("out/b.csv"));
    let (mut call, digest) = dispatched(Store::default(), RunId::new());
    first
        .publish(&mut output(b"first"), 5, digest, &mut call)
        .unwrap();
    let (mut call, digest) = dispatched(Store::default(), RunId::new());
    let reason = refused(second.publish(&mut output(b"second"), 6, digest, &mut call));
    assert!(matches!(reason, PublicationRefusal::Exists));
    assert_eq!(project.read("out/b.csv"), b"first");
    assert!(project.candidates().is_empty());
}

/// What must hold after a failure at each step: target, candidate, intent, closing record.
fn state(project: &Project, store: &Store) -> (bool, bool, bool, bool) {
    let text = store.text();
    (
        project.exists("out/b.csv"),
        !project.candidates().is_empty(),
        text.contains("FilePublicationPrepared"),
        text.contains("\"confirmed\":false"),
    )
}

#[test]
fn a_failure_at_any_step_leaves_the_target_absent_or_complete_and_keeps_what_an_intent_names() {
    for step in STEPS {
        let project = Project::new();
        let store = Store::default();
        let result = publish(&project, &store, |at| match at == step {
            true => Err(io::Error::other("an injected fault")),
            false => Ok(()),
        });
        let found = (result.unwrap_err(), state(&project, &store));
        let is_right = match (step, &found) {
            (Step::RecordIntent, (PublishFailure::Journal { kept, .. }, state)) => {
                *kept == Kept::Candidate && *state == (false, true, false, false)
            }
            (Step::Rename, (PublishFailure::NotPublished { .. }, state)) => {
                *state == (false, false, true, true)
            }
            (
                Step::SyncFolders | Step::CompareDestination,
                (PublishFailure::Unconfirmed { kept, .. }, state),
            ) => *kept == Kept::Published && *state == (true, false, true, false),
            (Step::RecordEnd, (PublishFailure::Journal { kept, .. }, state)) => {
                *kept == Kept::Published && *state == (true, false, true, false)
            }
            (before, (PublishFailure::NotPublished { .. }, state)) => {
                before < Step::RecordIntent && *state == (false, false, false, false)
            }
            _ => false,
        };
        assert!(is_right, "{step:?}: {found:?}");
        if project.exists("out/b.csv") {
            assert_eq!(project.read("out/b.csv"), b"new");
        }
    }
}

#[test]
fn a_journal_that_fails_keeps_the_candidate_or_the_file() {
    let project = Project::new();
    let store = Store::failing(APPEND_PREPARED);
    let failure = publish(&project, &store, |_| Ok(())).unwrap_err();
    assert!(
        matches!(
            failure,
            PublishFailure::Journal {
                kept: Kept::Candidate,
                ..
            }
        ),
        "{failure}"
    );
    assert!(!project.exists("out/b.csv"));
    assert_eq!(project.candidates().len(), 1);

    let project = Project::new();
    let store = Store::failing(APPEND_FINISHED);
    let failure = publish(&project, &store, |_| Ok(())).unwrap_err();
    assert!(
        matches!(
            failure,
            PublishFailure::Journal {
                kept: Kept::Published,
                ..
            }
        ),
        "{failure}"
    );
    assert_eq!(project.read("out/b.csv"), b"new");
}

#[test]
fn a_refused_rename_whose_end_cannot_be_recorded_keeps_the_candidate() {
    let project = Project::new();
    let store = Store::failing(APPEND_FINISHED);
    let result = publish(&project, &store, |step| match step {
        Step::Rename => fs::write(project.file("out/b.csv"), b"competitor"),
        _ => Ok(()),
    });
    let failure = result.unwrap_err();
    assert!(
        matches!(
            failure,
            PublishFailure::Journal {
                kept: Kept::Candidate,
                ..
            }
        ),
        "{failure}"
    );
    assert_eq!(project.read("out/b.csv"), b"competitor");
    assert_eq!(project.candidates().len(), 1);
}

#[test]
fn a_competitor_at_any_step_before_the_rename_stays_and_the_call_fails_with_nothing_open() {
    type Competitor = fn(&std::path::Path) -> io::Result<()>;
    let competitors: [Competitor; 3] = [
        |target| fs::write(target, b"competitor"),
        |target| symlink("nowhere", target),
        |target| fs::create_dir(target),
    ];
    for step in STEPS.into_iter().filter(|step| *step <= Step::Rename) {
        for make in competitors {
            let project = Project::new();
            let store = Store::default();
            let target = project.file("out/b.csv");
            let mut inode = 0;
            let result = publish(&project, &store, |at| {
                if at == step {
                    make(&target)?;
                    inode = fs::symlink_metadata(&target)?.ino();
                }
                Ok(())
            });
            assert!(
                matches!(refused(result), PublicationRefusal::Exists),
                "{step:?}"
            );
            assert_eq!(
                fs::symlink_metadata(&target).unwrap().ino(),
                inode,
                "{step:?}"
            );
            assert!(project.candidates().is_empty(), "{step:?}");
            let intended = step > Step::CheckNames;
            assert_eq!(state(&project, &store).2, intended, "{step:?}");
            assert_eq!(state(&project, &store).3, intended, "{step:?}");
        }
    }
}

#[test]
fn a_replaced_parent_or_volume_is_never_published_into() {
    type Change = fn(&Project) -> io::Result<()>;
    let parent: Change = |project| {
        fs::rename(project.file("out/sub"), project.file("out/old"))?;
        fs::create_dir(project.file("out/sub"))
    };
    let linked: Change = |project| {
        fs::rename(project.file("out/sub"), project.file("out/old"))?;
        symlink("old", project.file("out/sub"))
    };
    let volume: Change = |project| {
        fs::rename(project.file("out"), project.file("out-old"))?;
        fs::create_dir_all(project.file("out/sub"))
    };
    let candidates: Change = |project| {
        fs::rename(
            project.file("out/.symbi-candidates"),
            project.file("out/old"),
        )?;
        fs::create_dir(project.file("out/.symbi-candidates"))
    };
    for (change, wanted) in [
        (parent, NameChange::Parent),
        (linked, NameChange::Parent),
        (volume, NameChange::Volume),
        (candidates, NameChange::Candidates),
    ] {
        for (step, records) in [(Step::CheckNames, 0), (Step::Rename, 2)] {
            let project = Project::new();
            fs::create_dir(project.file("out/sub")).unwrap();
            let store = Store::default();
            let (mut call, digest) = dispatched(store.clone(), RunId::new());
            let target = project.target("out/sub/b.csv");
            let result =
                target.publish_with(&mut output(b"new"), 3, digest, &mut call, &mut |at| {
                    if at == step { change(&project) } else { Ok(()) }
                });
            match refused(result) {
                PublicationRefusal::NameChanged { what } => assert_eq!(what, wanted),
                other => panic!("{step:?} {wanted:?}: {other}"),
            }
            let count = |word: &str| store.text().matches(word).count();
            assert_eq!(
                count("\"kind\":\"FilePublication"),
                records,
                "{step:?} {wanted:?}"
            );
            for name in ["out/sub/b.csv", "out/old/b.csv", "out-old/sub/b.csv"] {
                assert!(!project.exists(name), "{name}");
            }
        }
    }
}

#[test]
fn a_parent_that_moves_after_the_rename_leaves_the_publication_unconfirmed() {
    let project = Project::new();
    fs::create_dir(project.file("out/sub")).unwrap();
    let store = Store::default();
    let (mut call, digest) = dispatched(store.clone(), RunId::new());
    let target = project.target("out/sub/b.csv");
    let result = target.publish_with(
        &mut output(b"new"),
        3,
        digest,
        &mut call,
        &mut |at| match at == Step::CompareDestination {
            true => fs::rename(project.file("out/sub"), project.file("out/moved")),
            false => Ok(()),
        },
    );
    let failure = result.unwrap_err();
    assert!(
        matches!(
            failure,
            PublishFailure::Unconfirmed {
                doubt: Doubt::OtherFile,
                ..
            }
        ),
        "{failure}"
    );
    assert_eq!(project.read("out/moved/b.csv"), b"new");
    assert!(!store.text().contains("Finished"));
}

#[test]
fn a_candidate_that_is_changed_linked_or_replaced_after_its_intent_is_not_renamed() {
    type Change = fn(&std::path::Path) -> io::Result<()>;
    let changes: [Change; 4] = [
        |candidate| fs::write(candidate, b"longer content"),
        |candidate| fs::hard_link(candidate, candidate.with_extension("second")),
        |candidate| {
            fs::remove_file(candidate)?;
            fs::write(candidate, b"new")
        },
        |candidate| fs::remove_file(candidate),
    ];
    for change in changes {
        let project = Project::new();
        let store = Store::default();
        let result = publish(&project, &store, |step| match step {
            Step::Rename => {
                let name = project.candidates().remove(0);
                change(&project.file("out/.symbi-candidates").join(name))
            }
            _ => Ok(()),
        });
        let failure = result.unwrap_err();
        assert!(
            matches!(
                failure,
                PublishFailure::Unconfirmed {
                    kept: Kept::Candidate,
                    ..
                }
            ),
            "{failure}"
        );
        assert!(!project.exists("out/b.csv") && !store.text().contains("Finished"));
    }
}

#[test]
fn content_that_changes_under_the_same_inode_is_not_confirmed() {
    let project = Project::new();
    let store = Store::default();
    let result = publish(&project, &store, |step| match step {
        Step::CompareDestination => fs::write(project.file("out/b.csv"), b"bad"),
        _ => Ok(()),
    });
    let failure = result.unwrap_err();
    assert!(
        matches!(
            failure,
            PublishFailure::Unconfirmed {
                doubt: Doubt::OtherFile,
                ..
            }
        ),
        "{failure}"
    );
    assert!(!store.text().contains("Finished"));
}

#[test]
fn a_rename_that_the_kernel_refuses_closes_its_intent_and_removes_the_candidate() {
    use std::os::unix::fs::PermissionsExt;
    if rustix::process::geteuid().is_root() {
        return; // no folder's mode stops root
    }
    let project = Project::new();
    fs::create_dir(project.file("out/sub")).unwrap();
    let store = Store::default();
    let (mut call, digest) = dispatched(store.clone(), RunId::new());
    let target = project.target("out/sub/b.csv");
    let result = target.publish_with(
        &mut output(b"new"),
        3,
        digest,
        &mut call,
        &mut |at| match at == Step::Rename {
            true => fs::set_permissions(project.file("out/sub"), fs::Permissions::from_mode(0o555)),
            false => Ok(()),
        },
    );
    let reason = refused(result);
    assert!(
        matches!(&reason, PublicationRefusal::Rename(error)
        if error.kind() == io::ErrorKind::PermissionDenied),
        "{reason}"
    );
    assert!(store.text().contains("\"confirmed\":false"));
    assert!(project.candidates().is_empty() && !project.exists("out/sub/b.csv"));
}

#[test]
fn a_sweep_removes_dead_unnamed_candidates_and_nothing_else() {
    let project = Project::new();
    drop(project.target("out/b.csv"));
    let folder = project.file("out/.symbi-candidates");
    let name = || CandidateName {
        run: RunId::new(),
        publication: PublicationId::new(),
    };
    let (dead, kept) = (name(), name());
    let old_probe = "probe-00000000000000000000000000000000-from";
    for file in [
        dead.to_string(),
        kept.to_string(),
        old_probe.into(),
        "notes".into(),
    ] {
        fs::write(folder.join(file), b"x").unwrap();
    }
    fs::write(
        folder.join("probe-11111111111111111111111111111111-from"),
        b"",
    )
    .unwrap();
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(600);
    fs::File::options()
        .write(true)
        .open(folder.join(old_probe))
        .unwrap()
        .set_modified(long_ago)
        .unwrap();
    let swept = project
        .broker()
        .sweep(|candidate| candidate == kept)
        .unwrap();
    assert_eq!(
        swept,
        Swept {
            removed: 2,
            kept: 2,
            unknown: 1
        }
    );
    let mut left = project.candidates();
    left.sort();
    let mut wanted = vec![
        kept.to_string(),
        "notes".to_owned(),
        "probe-11111111111111111111111111111111-from".to_owned(),
    ];
    wanted.sort();
    assert_eq!(left, wanted);
}

#[test]
fn what_a_killed_probe_left_is_swept_by_its_age_alone() {
    let project = Project::new();
    drop(project.target("out/b.csv"));
    let folder = project.file("out/.symbi-candidates");
    let ten_minutes = std::time::Duration::from_secs(600);
    let now = std::time::SystemTime::now();
    let ages = [
        ("a", now - ten_minutes),
        ("b", now + ten_minutes),
        ("c", now),
    ];
    for (letter, modified) in ages {
        for role in ["from", "taken", "free"] {
            let file = folder.join(format!("probe-{}-{role}", letter.repeat(32)));
            let file = fs::File::create(file).unwrap();
            file.set_permissions(fs::Permissions::from_mode(0o400))
                .unwrap();
            file.set_modified(modified).unwrap();
        }
    }
    let swept = project.broker().sweep(|_| true).unwrap();
    assert_eq!((swept.removed, swept.kept), (6, 3));
    assert!(
        project
            .candidates()
            .iter()
            .all(|it| it.starts_with("probe-c"))
    );
}

#[test]
fn a_candidates_name_has_one_spelling() {
    let name = CandidateName {
        run: RunId::new(),
        publication: PublicationId::new(),
    };
    assert_eq!(name.to_string().parse(), Ok(name));
    for bad in [
        name.to_string().to_uppercase(),
        format!("{name}.x"),
        name.run.to_string(),
    ] {
        assert_eq!(bad.parse::<CandidateName>(), Err(()), "{bad}");
    }
}
