//! Another key for the same project.

use crate::support::*;
use journal::*;
use model::RunId;
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

pub(crate) struct Project {
    _home: tempfile::TempDir,
    pub(crate) state: PathBuf,
    pub(crate) key: PathBuf,
}

impl Project {
    pub(crate) fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let (state, key) = (
            home.path().join(".symbiont"),
            home.path().join("keys/p.ed25519"),
        );
        ProjectKey::load_or_create(&key).unwrap();
        Self {
            _home: home,
            state,
            key,
        }
    }

    pub(crate) fn key(&self) -> ProjectKey {
        ProjectKey::load(&self.key).unwrap()
    }

    /// A whole run, with the key of the moment.
    pub(crate) fn run(&self) -> RunId {
        let run = RunId::new();
        let mut files = RunFiles::create(&self.state, run, "operator", &self.key()).unwrap();
        let _ = files.journal().record(started()).unwrap();
        files.started().unwrap();
        let _ = files.journal().record(ended(true)).unwrap();
        files.ended().unwrap();
        run
    }

    pub(crate) fn ledger(&self) -> Vec<u8> {
        fs::read(ledger_path(&self.state)).unwrap()
    }

    pub(crate) fn read(&self, key: &PublicKey) -> LedgerReport {
        read_ledger(Cursor::new(self.ledger()), Some(key)).unwrap()
    }

    pub(crate) fn journal(&self, run: RunId) -> PathBuf {
        journal_path(&self.state, run)
    }

    fn rotate(&self) -> Rotation {
        rotate_key(&self.state, &self.key).unwrap()
    }
}

pub(crate) fn verdict_of(path: &Path, known: &LedgerRun) -> Verdict {
    let options = VerifyOptions {
        public_key: known.public_key.clone(),
        run: Some(known.run),
        ledger: Some(known.clone()),
        ..VerifyOptions::default()
    };
    verify_file(path, &options).unwrap().verdict
}

#[test]
fn later_runs_use_the_new_key_and_old_ones_verify_through_the_chain() {
    let project = Project::new();
    let keys = [project.key()];
    let runs = [project.run(), project.run()];
    let first = project.rotate();
    assert_eq!(&first.from, keys[0].public());
    assert_eq!(&first.to, project.key().public());
    let middle = project.run();
    let second = project.rotate();
    let last = project.run();
    // Whichever of the three keys an auditor has, the whole ledger stands.
    for trusted in [&first.from, &first.to, &second.to] {
        let report = project.read(trusted);
        assert_eq!((report.fault, report.runs.len()), (None, 4));
        let by: Vec<_> = report
            .runs
            .iter()
            .map(|run| run.public_key.clone().unwrap())
            .collect();
        let expected = [&first.from, &first.from, &first.to, &second.to];
        assert_eq!(by.iter().collect::<Vec<_>>(), expected);
        for (known, run) in report.runs.iter().zip([runs[0], runs[1], middle, last]) {
            assert_eq!(known.run, run);
            assert_eq!(verdict_of(&project.journal(run), known), Verdict::Intact);
        }
    }
    let stranger = project.read(key(9).public());
    assert!(stranger.runs.is_empty() && stranger.fault.is_some());
    assert!(!project.key.with_file_name("p.ed25519.next").exists());
    // An old run does not verify with the new key alone.
    let options = options(&project.key());
    let report = verify_file(&project.journal(runs[0]), &options).unwrap();
    assert_eq!(report.verdict, Verdict::Corrupt);
}

#[test]
fn a_key_is_not_changed_while_a_run_lives_and_dead_runs_are_sealed_first() {
    let project = Project::new();
    let mut files =
        RunFiles::create(&project.state, RunId::new(), "operator", &project.key()).unwrap();
    let _ = files.journal().record(started()).unwrap();
    files.started().unwrap();
    let before = project.key().vkey();
    let error = rotate_key(&project.state, &project.key).unwrap_err();
    assert!(matches!(
        error,
        RotationError::Ledger(LedgerError::RunsOpen { runs: 1 })
    ));
    assert_eq!(project.key().vkey(), before);
    drop(files);
    project.rotate();
    let report = project.read(project.key().public());
    assert_eq!(report.fault, None);
    assert_eq!(report.runs[0].sealed.unwrap().size, 1);
    project.run();
}

#[test]
fn an_interrupted_change_is_finished_by_doing_it_again() {
    // After the new key was made.
    let project = Project::new();
    let next = project.key.with_file_name("p.ed25519.next");
    let made = ProjectKey::load_or_create(&next).unwrap();
    assert_eq!(&project.rotate().to, made.public());
    // After the ledger has it: until then no run starts.
    let project = Project::new();
    project.run();
    let old = project.key();
    let next = ProjectKey::load_or_create(&project.key.with_file_name("p.ed25519.next")).unwrap();
    let mut ledger = Ledger::open(&ledger_path(&project.state), old.signer()).unwrap();
    ledger.rotate(&next).unwrap();
    let error = RunFiles::create(&project.state, RunId::new(), "operator", &old).unwrap_err();
    assert!(
        error.to_string().contains("symbi audit key rotate"),
        "{error}"
    );
    assert_eq!(&project.rotate().to, next.public());
    project.run();
    let report = project.read(old.public());
    assert_eq!(
        (report.fault, report.runs.len(), report.records),
        (None, 2, 5)
    );
}

#[test]
fn a_change_that_only_one_of_the_two_keys_signed_is_found() {
    let project = Project::new();
    project.run();
    project.rotate();
    project.run();
    let text = String::from_utf8(project.ledger()).unwrap();
    let both = text.lines().nth(5).unwrap();
    let parts: Vec<&str> = both.split("\\n").collect();
    assert_eq!(parts.len(), 7, "{both}");
    let key = project.key();
    for gone in [4, 5] {
        let mut less = parts.clone();
        less.remove(gone);
        let forged = text.replace(both, &less.join("\\n"));
        let report = read_ledger(Cursor::new(&forged), Some(key.public())).unwrap();
        assert_eq!(report.fault.unwrap().line, 5);
        assert!(
            report.runs.is_empty(),
            "nothing is believed before the key's own lines"
        );
    }
    let mut twice = parts.clone();
    twice[5] = twice[4];
    let forged = text.replace(both, &twice.join("\\n"));
    let report = read_ledger(Cursor::new(&forged), Some(key.public())).unwrap();
    assert!(report.fault.is_some());
}

#[test]
fn a_ledger_names_the_key_that_signs_it_by_now_also_right_after_a_change() {
    let project = Project::new();
    let signer = || ledger_signer(&ledger_path(&project.state)).unwrap();
    let named = |key: &PublicKey| {
        let vkey = key.vkey();
        let parts: Vec<&str> = vkey.splitn(3, '+').take(2).collect();
        Some(parts.join("+"))
    };
    project.run();
    assert_eq!(signer(), named(project.key().public()));
    let rotation = project.rotate();
    assert_eq!(signer(), named(&rotation.to));
    // A line that is being written is nobody's yet.
    let whole = project.ledger();
    fs::write(
        ledger_path(&project.state),
        [&whole[..], b"{\"event\""].concat(),
    )
    .unwrap();
    assert_eq!(signer(), named(&rotation.to));
    fs::write(ledger_path(&project.state), b"").unwrap();
    assert_eq!(signer(), None);
    fs::remove_file(ledger_path(&project.state)).unwrap();
    assert_eq!(signer(), None);
}
