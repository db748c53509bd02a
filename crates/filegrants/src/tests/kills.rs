//! The process killed before every step of a publication, with a real journal on disk.
//!
//! The child is this test binary, told by its working directory what to do.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use journal::ProtectedJournal;
use model::RunId;
use rustix::process::{Signal, getpid, kill_process};

use super::fixture::*;
use crate::CandidateName;

const STEPS: u32 = 10;
/// The first step at which an intent is on disk, and the first at which the rename has happened.
const INTENDED: u32 = 6;
const RENAMED: u32 = 7;

#[test]
#[ignore = "the child of the test below, which runs it"]
fn killed_child() {
    let here = std::env::current_dir().unwrap();
    let Ok(step) = fs::read_to_string("step") else {
        return;
    };
    let step: u32 = step.parse().unwrap();
    let project = Project::at(&here);
    let run = RunId::new();
    fs::write("run", run.to_string()).unwrap();
    let store = ProtectedJournal::create(&here.join("journal"), run).unwrap();
    let (mut call, digest) = dispatched(store, run);
    let mut at = 0;
    let result = project.target("out/b.csv").publish_with(
        &mut output(b"new"),
        3,
        digest,
        &mut call,
        &mut |_| {
            if at == step {
                kill_process(getpid(), Signal::KILL).unwrap();
            }
            at += 1;
            Ok(())
        },
    );
    result.unwrap();
}

#[test]
fn killed_before_any_step_the_target_is_absent_or_complete_and_an_intent_keeps_its_candidate() {
    for step in 0..=STEPS {
        let project = Project::new();
        fs::write(project.path.join("step"), step.to_string()).unwrap();
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::kills::killed_child", "--ignored"])
            .current_dir(&project.path)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        let was_killed = status.signal() == Some(9);
        assert_eq!(
            (was_killed, status.success()),
            (step < STEPS, step == STEPS),
            "step {step}"
        );

        let run: RunId = fs::read_to_string(project.path.join("run"))
            .unwrap()
            .parse()
            .unwrap();
        let journal = project.path.join("journal").join(format!("{run}.jsonl"));
        let journal = fs::read_to_string(journal).unwrap();
        let candidates = project.candidates();
        assert_eq!(
            journal.contains("FilePublicationPrepared"),
            step >= INTENDED,
            "step {step}"
        );
        assert_eq!(
            journal.contains("\"confirmed\":true"),
            step == STEPS,
            "step {step}"
        );
        assert_eq!(project.exists("out/b.csv"), step >= RENAMED, "step {step}");
        assert_eq!(
            candidates.len(),
            usize::from((1..RENAMED).contains(&step)),
            "step {step}"
        );
        if step >= RENAMED {
            assert_eq!(project.read("out/b.csv"), b"new");
        }
        if step == INTENDED {
            let candidate = project.file("out/.symbi-candidates").join(&candidates[0]);
            assert_eq!(fs::read(candidate).unwrap(), b"new");
            assert!(journal.contains(&candidates[0]));
        }
        if let Some(name) = candidates.first() {
            assert_eq!(name.parse::<CandidateName>().unwrap().run, run);
        }
        let intended = |name: CandidateName| journal.contains(&name.to_string());
        project.broker().sweep(intended).unwrap();
        assert_eq!(
            project.candidates().len(),
            usize::from(step == INTENDED),
            "step {step}"
        );
        assert_eq!(project.staged(), 0);
    }
}
