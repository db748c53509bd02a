//! Old runs elsewhere.

use crate::rotation::{Project, verdict_of};
use crate::support::*;
use journal::*;
use model::RunId;
use std::fs;
use std::os::unix::fs::MetadataExt;

fn ledger(project: &Project) -> Ledger {
    Ledger::open(&ledger_path(&project.state), project.key().signer()).unwrap()
}

fn known(project: &Project, run: RunId) -> LedgerRun {
    let report = project.read(project.key().public());
    assert_eq!(report.fault, None);
    report
        .runs
        .into_iter()
        .find(|known| known.run == run)
        .unwrap()
}

#[test]
fn an_archived_run_is_elsewhere_whole_and_the_ledger_has_its_tombstone() {
    let project = Project::new();
    let (run, stays) = (project.run(), project.run());
    let to = project.state.with_file_name("old");
    let before = fs::read(project.journal(run)).unwrap();
    let mut ledger = ledger(&project);
    let archived = archive_run(&project.state, &known(&project, run), &to, &mut ledger).unwrap();
    let copy = to.join(format!("{run}.jsonl"));
    assert_eq!(fs::read(&copy).unwrap(), before);
    assert_eq!(fs::metadata(&copy).unwrap().mode() & 0o7777, 0o600);
    assert!(!project.journal(run).exists() && project.journal(stays).exists());
    let after = known(&project, run);
    assert_eq!(after.archived.as_ref(), Some(&archived));
    assert_eq!(archived.file_sha256, model::Digest::of(&before));
    assert_eq!(verdict_of(&copy, &after), Verdict::Intact);
    fs::write(&copy, &before[..before.len() / 2]).unwrap();
    assert_eq!(verdict_of(&copy, &after), Verdict::Truncated);
}

#[test]
fn archiving_stops_before_it_removes_what_is_not_safe_elsewhere() {
    let project = Project::new();
    let run = project.run();
    let to = project.state.with_file_name("old");
    let mut ledger = ledger(&project);
    let whole = fs::read(project.journal(run)).unwrap();
    let copy = to.join(format!("{run}.jsonl"));

    // Another file has its place.
    fs::create_dir(&to).unwrap();
    fs::set_permissions(&to, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    fs::write(&copy, "x").unwrap();
    fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let mut attempt = || archive_run(&project.state, &known(&project, run), &to, &mut ledger);
    assert!(matches!(attempt(), Err(ArchiveError::Occupied { .. })));
    assert_eq!(fs::read(&copy).unwrap(), b"x");
    fs::remove_file(&copy).unwrap();

    // It is cut.
    fs::write(project.journal(run), &whole[..whole.len() / 2]).unwrap();
    assert!(matches!(attempt(), Err(ArchiveError::Unfit { .. })));
    fs::write(project.journal(run), &whole).unwrap();
    assert!(!copy.exists());

    // An attempt that ended after the ledger's line is finished by the next.
    attempt().unwrap();
    fs::copy(&copy, project.journal(run)).unwrap();
    attempt().unwrap();
    assert!(!project.journal(run).exists());
    assert_eq!(project.read(project.key().public()).records, 3);
}

#[test]
fn a_run_without_an_end_is_not_archived() {
    let project = Project::new();
    let run = RunId::new();
    let mut files = RunFiles::create(&project.state, run, "operator", &project.key()).unwrap();
    let _ = files.journal().record(started()).unwrap();
    files.started().unwrap();
    let to = project.state.with_file_name("old");
    let mut ledger = ledger(&project);
    let mut attempt = || archive_run(&project.state, &known(&project, run), &to, &mut ledger);
    assert!(matches!(attempt(), Err(ArchiveError::NoEnd { .. })));
    drop(files);
    project.run();
    let archived = attempt().unwrap();
    assert_eq!(archived.verdict, Verdict::Unterminated);
    assert!(
        matches!(attempt(), Err(ArchiveError::Storage(_))),
        "its file is gone"
    );
}
