//! What an operator can still do for a publication whose run died.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use journal::{Event, ProjectKey, ProtectedJournal, Verdict, VerifyOptions, read_run, verify_file};
use model::{Digest, PublicationId, RunId};
use rustix::process::{Signal, getpid, kill_process};

use super::fixture::*;
use crate::publish::Step;
use crate::recovery::{RecoveryRequest, RecoveryStep};
use crate::{
    DeadRun, DeadRunError, InspectError, Inspection, InvocationError, InvocationFolder,
    OperatorKeys, PublicationState, Receipt, RecoverError, ResolutionFact, ResolveError, receipt,
    resolve,
};

fn key() -> ProjectKey {
    ProjectKey::from_seed(&[7; 32])
}

fn keys() -> OperatorKeys {
    OperatorKeys {
        trusted: vec![key().public().clone()],
        signer: key().signer(),
    }
}

/// A project with a run that died while it published `out/b.csv`.
struct Scene {
    project: Project,
    run: RunId,
    publication: PublicationId,
}

impl Scene {
    /// The run dies before `step`, which is after its intent.
    fn died_before(step: Step) -> Self {
        let project = Project::new();
        let run = RunId::new();
        let store = ProtectedJournal::create(&project.path.join("journal"), run).unwrap();
        let (mut call, digest) = dispatched(store, run);
        let target = project.target("out/b.csv");
        let death = catch_unwind(AssertUnwindSafe(|| {
            let mut hook = |at| match at == step {
                true => resume_unwind(Box::new(())),
                false => Ok(()),
            };
            target.publish_with(&mut output(b"new"), 3, digest, &mut call, &mut hook)
        }));
        assert!(death.is_err());
        drop(call);
        Self::of(project, run)
    }

    fn of(project: Project, run: RunId) -> Self {
        let invocations = project.path.join("invocations");
        let _ = fs::DirBuilder::new().mode(0o700).create(invocations);
        let mut scene = Self {
            project,
            run,
            publication: PublicationId::new(),
        };
        scene.publication = scene.dead().publications[0].intent.publication_id;
        scene
    }

    fn journal(&self) -> PathBuf {
        let name = format!("{}.jsonl", self.run);
        self.project.path.join("journal").join(name)
    }

    fn read(&self) -> Result<DeadRun, DeadRunError> {
        let options = VerifyOptions {
            public_key: Some(key().public().clone()),
            ..VerifyOptions::default()
        };
        DeadRun::read(&self.journal(), self.run, &options)
    }

    fn dead(&self) -> DeadRun {
        self.read().unwrap()
    }

    fn folder(&self) -> InvocationFolder {
        let invocations = File::open(self.project.path.join("invocations")).unwrap();
        InvocationFolder::open_or_make(invocations.as_fd(), self.run).unwrap()
    }

    fn inspect(&self) -> Inspection {
        self.project
            .broker()
            .inspect(&self.dead(), self.publication)
            .unwrap()
    }

    fn recover(&self, reviewed: Digest) -> Result<Receipt, RecoverError> {
        self.recover_with(reviewed, &mut |_| Ok(()))
    }

    fn recover_with(
        &self,
        reviewed: Digest,
        hook: &mut dyn FnMut(RecoveryStep) -> io::Result<()>,
    ) -> Result<Receipt, RecoverError> {
        let request = RecoveryRequest {
            run: &self.dead(),
            folder: &self.folder(),
            publication: self.publication,
            reviewed,
            keys: &keys(),
        };
        self.project.broker().recover_with(&request, hook)
    }

    fn receipt_path(&self) -> PathBuf {
        let folder = self.project.path.join("invocations");
        folder
            .join(self.run.to_string())
            .join(format!("recovered-{}.jsonl", self.publication))
    }

    fn candidate_path(&self) -> PathBuf {
        let folder = self.project.file("out/.symbi-candidates");
        folder.join(format!("{}.{}", self.run, self.publication))
    }
}

#[test]
fn a_run_with_a_live_owner_is_not_looked_at() {
    let project = Project::new();
    let run = RunId::new();
    let store = ProtectedJournal::create(&project.path.join("journal"), run).unwrap();
    let (call, _) = dispatched(store, run);
    let path = project.path.join("journal").join(format!("{run}.jsonl"));
    let options = VerifyOptions {
        public_key: Some(key().public().clone()),
        ..VerifyOptions::default()
    };
    let error = DeadRun::read(&path, run, &options).unwrap_err();
    assert!(matches!(error, DeadRunError::Live { .. }));
    assert!(error.to_string().contains("still owned"));
    drop(call);
    assert_eq!(DeadRun::read(&path, run, &options).unwrap().open_calls, 1);
    assert!(matches!(
        DeadRun::read(&path, run, &VerifyOptions::default()),
        Err(DeadRunError::NoKey)
    ));
}

#[test]
fn a_journal_without_a_whole_record_tells_that_nothing_happened() {
    let project = Project::new();
    let run = RunId::new();
    drop(ProtectedJournal::create(&project.path.join("journal"), run).unwrap());
    let path = project.path.join("journal").join(format!("{run}.jsonl"));
    let options = VerifyOptions {
        public_key: Some(key().public().clone()),
        ..VerifyOptions::default()
    };
    for bytes in [b"".as_slice(), b"{\"event\":", b"{}\n"] {
        fs::write(&path, bytes).unwrap();
        let found = DeadRun::read(&path, run, &options);
        assert!(matches!(found, Err(DeadRunError::Empty { .. })));
    }
    fs::write(&path, b"{}\n{}\n").unwrap();
    let found = DeadRun::read(&path, run, &options);
    assert!(matches!(found, Err(DeadRunError::NotWhole { .. })));
}

#[test]
fn an_intact_candidate_is_published_once_and_its_receipt_stays_the_same() {
    let scene = Scene::died_before(Step::Rename);
    let journal = fs::read(scene.journal()).unwrap();
    let seen = scene.inspect();
    assert_eq!(seen.state, PublicationState::ReadyToPublish);
    assert_eq!(seen.reasons, Vec::<String>::new());
    assert!(!scene.project.exists("out/b.csv"));

    let first = scene.recover(seen.snapshot_sha256).unwrap();
    assert_eq!(scene.project.read("out/b.csv"), b"new");
    assert!(scene.project.candidates().is_empty());
    assert_eq!(first.fact.sha256, Digest::of(b"new"));
    assert_eq!(first.fact.found, PublicationState::ReadyToPublish);
    let inode = fs::metadata(scene.project.file("out/b.csv")).unwrap().ino();
    assert_eq!(first.fact.inode, inode.to_string());

    let bytes = fs::read(scene.receipt_path()).unwrap();
    // The hash of the first review and that of a later one mean the same publication.
    for reviewed in [seen.snapshot_sha256, scene.inspect().snapshot_sha256] {
        assert_eq!(scene.recover(reviewed).unwrap(), first);
    }
    assert_eq!(fs::read(scene.receipt_path()).unwrap(), bytes);
    assert_eq!(fs::read(scene.journal()).unwrap(), journal);
    let stat = fs::metadata(scene.receipt_path()).unwrap();
    assert_eq!(stat.mode() & 0o7777, 0o600);
}

#[test]
fn a_receipt_verifies_like_any_run() {
    let scene = Scene::died_before(Step::Rename);
    let receipt = scene.recover(scene.inspect().snapshot_sha256).unwrap();
    let options = VerifyOptions {
        public_key: Some(key().public().clone()),
        ..VerifyOptions::default()
    };
    let report = verify_file(&scene.receipt_path(), &options).unwrap();
    assert_eq!((report.verdict, report.records), (Verdict::Intact, 3));
    let file = File::open(scene.receipt_path()).unwrap();
    let records: Vec<_> = read_run(file, None, Some(key().public()))
        .map(|it| it.unwrap())
        .collect();
    assert_eq!(records[1].time, receipt.time);
    let Event::Custom(custom) = &records[1].event else {
        panic!("{records:?}");
    };
    assert_eq!(custom.digest, Digest::of(custom.value.as_bytes()));
}

#[test]
fn a_file_that_was_renamed_before_the_death_is_only_acknowledged() {
    for step in [Step::SyncFolders, Step::CompareDestination, Step::RecordEnd] {
        let scene = Scene::died_before(step);
        let before = fs::metadata(scene.project.file("out/b.csv")).unwrap();
        let seen = scene.inspect();
        assert_eq!(seen.state, PublicationState::Published, "{step:?}");
        let receipt = scene.recover(seen.snapshot_sha256).unwrap();
        assert_eq!(receipt.fact.found, PublicationState::Published);
        let after = fs::metadata(scene.project.file("out/b.csv")).unwrap();
        assert_eq!(
            (before.ino(), before.ctime_nsec()),
            (after.ino(), after.ctime_nsec())
        );
    }
}

type Interference = fn(&Scene);
const INTERFERENCES: [(&str, PublicationState, Interference); 9] = [
    ("other content", PublicationState::Conflict, |scene| {
        fs::write(scene.candidate_path(), b"bad").unwrap();
    }),
    (
        "equal content in another file",
        PublicationState::Conflict,
        |scene| {
            let path = scene.candidate_path();
            let aside = scene.project.file("out/aside");
            fs::rename(&path, aside).unwrap();
            fs::write(&path, b"new").unwrap();
        },
    ),
    ("a second name", PublicationState::Conflict, |scene| {
        fs::hard_link(scene.candidate_path(), scene.project.file("out/second")).unwrap();
    }),
    ("a competitor", PublicationState::Conflict, |scene| {
        scene.project.write("out/b.csv", b"theirs");
    }),
    (
        "a competitor with equal bytes",
        PublicationState::Conflict,
        |scene| {
            scene.project.write("out/b.csv", b"new");
        },
    ),
    (
        "a link at the target",
        PublicationState::Conflict,
        |scene| {
            symlink("../data/a.csv", scene.project.file("out/b.csv")).unwrap();
        },
    ),
    ("a link as candidate", PublicationState::Conflict, |scene| {
        fs::remove_file(scene.candidate_path()).unwrap();
        symlink("../../data/a.csv", scene.candidate_path()).unwrap();
    }),
    ("no candidate", PublicationState::Missing, |scene| {
        fs::remove_file(scene.candidate_path()).unwrap();
    }),
    (
        "a folder at the target",
        PublicationState::Conflict,
        |scene| {
            fs::create_dir(scene.project.file("out/b.csv")).unwrap();
        },
    ),
];

#[test]
fn what_is_not_as_intended_is_refused_and_stays_as_it_is() {
    for (name, state, interfere) in INTERFERENCES {
        let scene = Scene::died_before(Step::Rename);
        let reviewed = scene.inspect().snapshot_sha256;
        interfere(&scene);
        let before = listing(&scene);
        let error = scene.recover(reviewed).unwrap_err();
        assert!(
            matches!(error, RecoverError::Changed { .. }),
            "{name}: {error}"
        );
        let seen = scene.inspect();
        assert_eq!(seen.state, state, "{name}");
        assert_eq!(
            seen.reasons.is_empty(),
            state == PublicationState::Missing,
            "{name}"
        );
        let error = scene.recover(seen.snapshot_sha256).unwrap_err();
        assert!(
            matches!(error, RecoverError::NotRecoverable { .. }),
            "{name}: {error}"
        );
        assert_eq!(listing(&scene), before, "{name}");
        assert!(!scene.receipt_path().exists(), "{name}");
    }
}

/// Everything below `out`, by name, kind, inode and content.
fn listing(scene: &Scene) -> Vec<String> {
    let mut names = Vec::new();
    for folder in ["out", "out/.symbi-candidates"] {
        for entry in fs::read_dir(scene.project.file(folder)).unwrap() {
            let entry = entry.unwrap();
            let stat = entry.metadata().unwrap();
            let content = stat.is_file().then(|| fs::read(entry.path()).unwrap());
            names.push(format!(
                "{:?} {} {content:?}",
                entry.file_name(),
                stat.ino()
            ));
        }
    }
    names.sort();
    names
}

#[test]
fn a_replaced_parent_folder_is_a_conflict() {
    let scene = Scene::died_before(Step::Rename);
    let reviewed = scene.inspect().snapshot_sha256;
    let out = scene.project.file("out");
    fs::rename(&out, scene.project.file("moved")).unwrap();
    fs::create_dir(&out).unwrap();
    fs::rename(
        scene.project.file("moved/.symbi-candidates"),
        out.join(".symbi-candidates"),
    )
    .unwrap();
    let seen = scene.inspect();
    assert_eq!(seen.state, PublicationState::Conflict);
    assert!(seen.reasons[0].contains("parent folder"));
    for reviewed in [reviewed, seen.snapshot_sha256] {
        assert!(scene.recover(reviewed).is_err());
    }
    assert!(!scene.project.exists("out/b.csv") && !scene.project.exists("moved/b.csv"));
}

#[test]
fn volumes_that_lead_elsewhere_by_now_recover_nothing() {
    let scene = Scene::died_before(Step::Rename);
    fs::create_dir(scene.project.file("other")).unwrap();
    for volumes in [
        "./other:/workspace/out:rw",
        "./out:/workspace/out:ro",
        "./other:/workspace/other:rw",
    ] {
        let broker = scene.project.open(&[volumes]).unwrap();
        let error = broker
            .inspect(&scene.dead(), scene.publication)
            .unwrap_err();
        assert!(
            matches!(
                error,
                InspectError::Volumes { .. } | InspectError::Refused(_)
            ),
            "{volumes}: {error}"
        );
    }
}

#[test]
fn a_publication_that_the_run_did_not_intend_or_did_finish_is_not_recovered() {
    let scene = Scene::died_before(Step::Rename);
    let other = PublicationId::new();
    let broker = scene.project.broker();
    let error = broker.inspect(&scene.dead(), other).unwrap_err();
    assert!(error.to_string().contains(&scene.publication.to_string()));
    let reviewed = scene.inspect().snapshot_sha256;
    let refused = broker.recover(&scene.dead(), &scene.folder(), other, reviewed, &keys());
    assert!(matches!(
        refused,
        Err(RecoverError::Inspect(InspectError::Unknown { .. }))
    ));

    let project = Project::new();
    let run = RunId::new();
    let store = ProtectedJournal::create(&project.path.join("journal"), run).unwrap();
    let (mut call, digest) = dispatched(store, run);
    let target = project.target("out/b.csv");
    target
        .publish(&mut output(b"new"), 3, digest, &mut call)
        .unwrap();
    drop(call);
    let scene = Scene::of(project, run);
    let finished = scene
        .project
        .broker()
        .inspect(&scene.dead(), scene.publication);
    assert!(matches!(
        finished,
        Err(InspectError::Finished {
            confirmed: true,
            ..
        })
    ));
}

#[test]
fn a_journal_that_grew_since_the_review_authorises_nothing() {
    let scene = Scene::died_before(Step::Rename);
    let reviewed = scene.inspect().snapshot_sha256;
    let mut journal = OpenOptions::new()
        .append(true)
        .open(scene.journal())
        .unwrap();
    journal.write_all(b"{\"torn\":").unwrap();
    drop(journal);
    let error = scene.recover(reviewed).unwrap_err();
    assert!(
        error.to_string().contains("changed since the review"),
        "{error}"
    );
    assert!(!scene.project.exists("out/b.csv"));
    // Seen as it is now, with its torn tail, it may be recovered.
    assert_eq!(scene.dead().tail.map(|it| it.bytes), Some(8));
    scene.recover(scene.inspect().snapshot_sha256).unwrap();
}

#[test]
fn a_forged_receipt_stops_a_recovery() {
    let other = Scene::died_before(Step::Rename);
    other.recover(other.inspect().snapshot_sha256).unwrap();
    let stolen = fs::read(other.receipt_path()).unwrap();
    let own = {
        let scene = Scene::died_before(Step::Rename);
        let stranger = ProjectKey::from_seed(&[8; 32]);
        let keys = OperatorKeys {
            trusted: vec![stranger.public().clone()],
            signer: stranger.signer(),
        };
        let reviewed = scene.inspect().snapshot_sha256;
        let broker = scene.project.broker();
        broker
            .recover(
                &scene.dead(),
                &scene.folder(),
                scene.publication,
                reviewed,
                &keys,
            )
            .unwrap();
        fs::read(scene.receipt_path()).unwrap()
    };
    let mut changed = stolen.clone();
    let at = changed.len() / 2;
    changed[at] ^= 1;
    for bytes in [stolen, own, changed, b"{}\n".to_vec(), Vec::new()] {
        let scene = Scene::died_before(Step::Rename);
        let reviewed = scene.inspect().snapshot_sha256;
        drop(scene.folder());
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(scene.receipt_path())
            .unwrap()
            .write_all(&bytes)
            .unwrap();
        let error = scene.recover(reviewed).unwrap_err();
        assert!(matches!(error, RecoverError::Forged { .. }), "{error}");
        assert!(!scene.project.exists("out/b.csv"));
    }
}

#[test]
fn a_resolved_invocation_is_not_recovered_and_not_resolved_again() {
    let scene = Scene::died_before(Step::Rename);
    let reviewed = scene.inspect().snapshot_sha256;
    let fact = |rationale: &str| ResolutionFact {
        run: scene.run,
        journal_sha256: Some(scene.dead().journal_sha256),
        rationale: rationale.to_owned(),
        evidence: None,
    };
    let max = crate::limits::RATIONALE_BYTES_MAX;
    for bad in ["", "  ", "a\u{1b}b", &"\"".repeat(max + 1)] {
        let refused = resolve(&scene.folder(), fact(bad), &keys());
        assert!(matches!(refused, Err(ResolveError::Rationale { .. })));
    }
    let rationale = "\"".repeat(max);
    let resolved = resolve(&scene.folder(), fact(&rationale), &keys()).unwrap();
    assert_eq!(resolved.fact.rationale, rationale);
    let again = resolve(&scene.folder(), fact("again"), &keys()).unwrap_err();
    assert!(again.to_string().contains(&resolved.time));
    let error = scene.recover(reviewed).unwrap_err();
    assert!(matches!(error, RecoverError::Resolved { .. }), "{error}");
    assert!(!scene.project.exists("out/b.csv"));
    assert!(scene.candidate_path().exists());
}

#[test]
fn two_recoveries_do_not_meet() {
    let scene = Scene::died_before(Step::Rename);
    let reviewed = scene.inspect().snapshot_sha256;
    let mut met = 0;
    scene
        .recover_with(reviewed, &mut |_| {
            let error = scene.recover(reviewed).unwrap_err();
            assert!(matches!(
                error,
                RecoverError::Folder(InvocationError::Owned { .. })
            ));
            met += 1;
            Ok(())
        })
        .unwrap();
    assert_eq!(met, RECOVERY_STEPS);
}

#[test]
fn a_competitor_at_the_last_moment_wins_and_is_not_touched() {
    let scene = Scene::died_before(Step::Rename);
    let error = scene
        .recover_with(scene.inspect().snapshot_sha256, &mut |step| {
            if step == RecoveryStep::Rename {
                scene.project.write("out/b.csv", b"theirs");
            }
            Ok(())
        })
        .unwrap_err();
    assert!(matches!(error, RecoverError::Taken));
    assert_eq!(scene.project.read("out/b.csv"), b"theirs");
    assert!(scene.candidate_path().exists() && !scene.receipt_path().exists());
}

const RECOVERY_STEPS: u32 = 6;
/// The first step after the rename.
const RENAMED: u32 = 1;

#[test]
fn a_failure_at_any_step_leaves_a_state_that_a_second_recovery_finishes() {
    for errno in [
        rustix::io::Errno::NOSPC,
        rustix::io::Errno::IO,
        rustix::io::Errno::INTR,
    ] {
        for failing in 0..RECOVERY_STEPS {
            let scene = Scene::died_before(Step::Rename);
            let mut at = 0;
            let failed = scene.recover_with(scene.inspect().snapshot_sha256, &mut |_| {
                at += 1;
                match at == failing + 1 {
                    true => Err(errno.into()),
                    false => Ok(()),
                }
            });
            assert!(failed.is_err(), "step {failing}");
            finish(&scene, failing);
        }
    }
}

/// Recovers what is left after `steps` steps of a first recovery, and checks the whole.
fn finish(scene: &Scene, steps: u32) {
    let seen = scene.inspect();
    let expected = match steps >= RENAMED {
        true => PublicationState::Published,
        false => PublicationState::ReadyToPublish,
    };
    assert_eq!(seen.state, expected, "step {steps}");
    let trusted = keys().trusted;
    let earlier = receipt(&scene.dead(), &scene.folder(), scene.publication, &trusted).unwrap();
    assert_eq!(earlier.is_some(), steps + 1 >= RECOVERY_STEPS);
    let first = scene.recover(seen.snapshot_sha256).unwrap();
    assert!(earlier.is_none_or(|earlier| earlier == first));
    let all = listing(scene);
    assert_eq!(
        scene.recover(scene.inspect().snapshot_sha256).unwrap(),
        first
    );
    assert_eq!(listing(scene), all, "step {steps}");
    assert_eq!(scene.project.read("out/b.csv"), b"new");
    assert!(scene.project.candidates().is_empty());
    assert_eq!(scene.dead().verdict, Verdict::Unterminated);
}

#[test]
#[ignore = "the child of the test below, which runs it"]
fn recovery_child() {
    let here = std::env::current_dir().unwrap();
    let Ok(words) = fs::read_to_string("recover") else {
        return;
    };
    let mut words = words.split(' ');
    let (step, run): (u32, RunId) = (
        words.next().unwrap().parse().unwrap(),
        words.next().unwrap().parse().unwrap(),
    );
    let scene = Scene::of(Project::at(&here), run);
    let mut at = 0;
    let _ = scene.recover_with(scene.inspect().snapshot_sha256, &mut |_| {
        if at == step {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
        at += 1;
        Ok(())
    });
}

#[test]
fn killed_before_any_step_a_recovery_is_finished_by_the_next_one() {
    for step in 0..=RECOVERY_STEPS {
        let scene = Scene::died_before(Step::Rename);
        let words = format!("{step} {}", scene.run);
        fs::write(scene.project.path.join("recover"), words).unwrap();
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::recovery::recovery_child", "--ignored"])
            .current_dir(&scene.project.path)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        let was_killed = status.signal() == Some(9);
        assert_eq!(
            (was_killed, status.success()),
            (step < RECOVERY_STEPS, step == RECOVERY_STEPS),
            "step {step}"
        );
        finish(&scene, step);
    }
}
