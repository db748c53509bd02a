//! Copies of the journals that tests make, for the verifier that shares no code with ours.
//!
//! `./test` names a folder in `SYMBI_TEST_JOURNALS`; without it nothing is kept. Beside each copy
//! stands what our own verifier says of it: `scripts/verify-kept-journals.py` compares.

use std::fs;
use std::path::{Path, PathBuf};

use journal::{
    LedgerRun, ProjectKey, PublicKey, Report, VerifyOptions, ledger_path, read_ledger, runs_folder,
    verify_run,
};
use model::RunId;
use serde_json::json;

/// Folders below a home that are looked through.
const DEPTH_MAX: usize = 4;

fn collection() -> Option<PathBuf> {
    std::env::var_os("SYMBI_TEST_JOURNALS").map(PathBuf::from)
}

/// Keeps the journals of all projects below a user's home whose keys lie where `symbi` puts them.
/// For a fixture's `drop`: a test that fails anyway must not fail twice.
pub fn keep_home(home: &Path) {
    if collection().is_none() {
        return;
    }
    for state in states(home, DEPTH_MAX) {
        let id = fs::read_to_string(state.join("id")).unwrap_or_default();
        let name = format!("state/symbi/keys/{}.ed25519", id.trim());
        if let Ok(key) = ProjectKey::load(&home.join(name)) {
            keep_project(&state, key.public());
        }
    }
}

/// The private folders of projects.
fn states(folder: &Path, depth: usize) -> Vec<PathBuf> {
    if runs_folder(folder).is_dir() {
        return vec![folder.to_owned()];
    }
    let Some(deeper) = depth.checked_sub(1) else {
        return Vec::new();
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|it| it.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.flat_map(|it| states(&it.path(), deeper)).collect()
}

/// Keeps all journals of the project with this private folder.
pub fn keep_project(state: &Path, key: &PublicKey) {
    let Some(collection) = collection() else {
        return;
    };
    let ledger = fs::read(ledger_path(state)).ok();
    let known = ledger
        .as_deref()
        .and_then(|bytes| read_ledger(std::io::Cursor::new(bytes), Some(key)).ok())
        .filter(|report| report.fault.is_none());
    let entries = fs::read_dir(runs_folder(state)).into_iter().flatten();
    for path in entries.flatten().map(|it| it.path()) {
        let run = path.file_stem().and_then(|it| it.to_str()?.parse().ok());
        let (Some(run), Ok(bytes)) = (run, fs::read(&path)) else {
            continue;
        };
        let known = known
            .as_ref()
            .and_then(|it| it.runs.iter().find(|it| it.run == run));
        let case = Case {
            run: Some(run),
            key,
            ledger: known.zip(ledger.as_deref()),
        };
        case.keep(&collection, &bytes);
    }
}

/// Keeps one journal that is nowhere on disk.
pub fn keep_bytes(bytes: &[u8], key: &PublicKey) {
    if let Some(collection) = collection() {
        let case = Case {
            run: None,
            key,
            ledger: None,
        };
        case.keep(&collection, bytes);
    }
}

struct Case<'a> {
    run: Option<RunId>,
    key: &'a PublicKey,
    ledger: Option<(&'a LedgerRun, &'a [u8])>,
}

impl Case<'_> {
    fn keep(&self, collection: &Path, bytes: &[u8]) {
        let Ok(report) = self.verify(bytes) else {
            return;
        };
        let folder = collection.join(RunId::new().to_string());
        let written = fs::create_dir_all(&folder)
            .and_then(|()| fs::write(folder.join("journal.jsonl"), bytes))
            .and_then(|()| match self.ledger {
                Some((_, ledger)) => fs::write(folder.join("ledger.jsonl"), ledger),
                None => Ok(()),
            })
            .and_then(|()| fs::write(folder.join("case.json"), self.expected(&report)));
        // What is missing shows in the count of what was kept.
        let _ = written;
    }

    fn verify(&self, bytes: &[u8]) -> std::io::Result<Report> {
        let own = self.ledger.and_then(|(run, _)| run.public_key.clone());
        let options = VerifyOptions {
            public_key: Some(own.unwrap_or_else(|| self.key.clone())),
            run: self.run,
            ledger: self.ledger.map(|(run, _)| run.clone()),
            ..VerifyOptions::default()
        };
        verify_run(bytes, &options)
    }

    fn expected(&self, report: &Report) -> String {
        json!({
            "key": self.key.vkey(),
            "run": self.run,
            "verdict": report.verdict,
            "records": report.records,
            "checkpoint": report.checkpoint,
            "file_sha256": report.file_sha256,
        })
        .to_string()
    }
}
