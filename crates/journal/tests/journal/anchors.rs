//! Heads that somebody else keeps.

use crate::support::*;
use journal::*;
use model::RunId;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

fn file_anchor(path: &Path) -> Anchor {
    Anchor {
        name: "vault".into(),
        target: AnchorTarget::File(path.to_owned()),
        required: false,
    }
}

fn shell(script: &str, required: bool) -> Anchor {
    Anchor {
        name: "shell".into(),
        target: AnchorTarget::Command {
            argv: vec!["/bin/sh".into(), "-c".into(), script.into()],
            environment: vec![("KEPT".into(), "yes".into())],
        },
        required,
    }
}

type Reports = Arc<Mutex<Vec<String>>>;

fn start(anchors: Vec<Anchor>, key: &ProjectKey) -> (Anchors, Reports) {
    let reports = Reports::default();
    let seen = Arc::clone(&reports);
    let report = move |error: &AnchorError| seen.lock().unwrap().push(error.to_string());
    (Anchors::start(anchors, key.signer(), report), reports)
}

struct World {
    home: tempfile::TempDir,
    key: ProjectKey,
}

impl World {
    fn new() -> Self {
        Self {
            home: tempfile::tempdir().unwrap(),
            key: key(1),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn create(&self, anchors: Anchors) -> Result<RunFiles, RunFilesError> {
        let state = self.path(".symbiont");
        RunFiles::create_anchored(&state, RunId::new(), "operator", &self.key, Some(anchors))
    }

    fn heads(&self, path: &Path, run: RunId) -> Vec<u64> {
        let file = fs::File::open(path).unwrap();
        let heads = read_anchors(file, run, self.key.public()).unwrap();
        heads.iter().map(|head| head.size).collect()
    }
}

#[test]
fn publications_and_the_end_of_a_run_are_anchored_and_verify() {
    let world = World::new();
    let vault = world.path("vault");
    let (anchors, reports) = start(vec![file_anchor(&vault)], &world.key);
    let mut files = world.create(anchors).unwrap();
    let (journal, path) = (files.journal().clone(), files.path().to_owned());
    let _ = journal.record(started()).unwrap();
    files.started().unwrap();
    let mut lent = journal.lend(digest("c1")).unwrap();
    let dispatch = journal.record(dispatching("c1")).unwrap();
    let intent = lent.publication_prepared(prepared("c1")).unwrap();
    // The thread has the intent's head before the file of the anchor has the next one's.
    while !vault.exists() || world.heads(&vault, journal.run()).is_empty() {
        std::thread::yield_now();
    }
    let _ = lent
        .publication_finished(&intent, finished(&intent))
        .unwrap();
    let settled = CallSettled {
        created_files: vec![receipt()],
        ..settled("c1", dispatch.seq())
    };
    let _ = lent.settle_and_end(settled, ended(true)).unwrap();
    files.ended().unwrap();
    let heads = world.heads(&vault, journal.run());
    assert_eq!(heads.first(), Some(&3));
    assert_eq!(heads.last(), Some(&6));
    assert!(reports.lock().unwrap().is_empty());

    let known = read_anchors(
        fs::File::open(&vault).unwrap(),
        journal.run(),
        world.key.public(),
    );
    let with = VerifyOptions {
        anchors: known.unwrap(),
        ..options(&world.key)
    };
    let report = verify_file(&path, &with).unwrap();
    assert!(report.anchored);
    assert_eq!(
        (report.verdict, report.exit_code(true)),
        (Verdict::Intact, 0)
    );
    let whole = fs::read_to_string(&path).unwrap();
    let cut: String = whole.split_inclusive('\n').take(6).collect();
    assert_eq!(verdict(cut.as_bytes(), &with), Verdict::Truncated);
    let other = small_run(&world.key, journal.run());
    assert_eq!(verdict(&other, &with), Verdict::Forked);
}

#[test]
fn a_seal_of_a_dead_run_is_anchored_by_the_next_start() {
    let world = World::new();
    let vault = world.path("vault");
    let dead = {
        let (anchors, _) = start(vec![file_anchor(&vault)], &world.key);
        let mut files = world.create(anchors).unwrap();
        let _ = files.journal().record(started()).unwrap();
        files.started().unwrap();
        let _ = files.journal().record(custom()).unwrap();
        files.journal().run()
    };
    assert!(!vault.exists());
    let (anchors, _) = start(vec![file_anchor(&vault)], &world.key);
    let _next = world.create(anchors).unwrap();
    assert_eq!(world.heads(&vault, dead), [2]);
}

#[test]
fn a_command_gets_the_signed_note_and_only_its_environment() {
    let world = World::new();
    let out = world.path("out");
    let script = format!(
        "cat > {0}; env | grep -v PWD | grep -v ^_ > {0}.env",
        out.display()
    );
    let (anchors, reports) = start(vec![shell(&script, true)], &world.key);
    let run = RunId::new();
    let head = Checkpoint {
        size: 7,
        root: digest("r"),
    };
    anchors.confirm(run, head).unwrap();
    assert!(reports.lock().unwrap().is_empty());
    let note = fs::read_to_string(&out).unwrap();
    let line = serde_json::json!({ "checkpoint": note }).to_string() + "\n";
    let read = read_anchors(line.as_bytes(), run, world.key.public()).unwrap();
    assert_eq!(read, [head]);
    let env = fs::read_to_string(world.path("out.env")).unwrap();
    let names: Vec<_> = env
        .lines()
        .filter(|line| !line.starts_with("SHLVL="))
        .collect();
    assert_eq!(names, ["KEPT=yes"]);
}

#[test]
fn a_failing_anchor_is_reported_and_the_run_goes_on_unless_it_is_required() {
    let world = World::new();
    let missing = file_anchor(Path::new("/nonexistent/vault"));
    let folder = file_anchor(world.home.path());
    let (anchors, reports) = start(vec![missing, folder, shell("exit 3", false)], &world.key);
    let mut files = world.create(anchors).unwrap();
    let _ = files.journal().record(started()).unwrap();
    files.started().unwrap();
    let _ = files.journal().record(ended(true)).unwrap();
    files.ended().unwrap();
    let said = reports.lock().unwrap().join("\n");
    assert_eq!(said.lines().count(), 3, "{said}");
    assert!(said.contains("exit status: 3"), "{said}");

    let (anchors, _) = start(vec![shell("exit 3", true)], &world.key);
    let mut files = world.create(anchors).unwrap();
    let _ = files.journal().record(started()).unwrap();
    let error = files.started().unwrap_err();
    assert!(matches!(error, RunFilesError::Anchor(_)));
    assert!(error.to_string().contains("anchor `shell`"), "{error}");
}

#[test]
fn a_link_at_an_anchor_files_place_is_refused() {
    let world = World::new();
    let (vault, real) = (world.path("vault"), world.path("real"));
    fs::write(&real, "").unwrap();
    std::os::unix::fs::symlink(&real, &vault).unwrap();
    let (anchors, reports) = start(vec![file_anchor(&vault)], &world.key);
    let head = Checkpoint {
        size: 1,
        root: digest("r"),
    };
    anchors.confirm(RunId::new(), head).unwrap();
    assert!(reports.lock().unwrap()[0].contains("not a regular file"));
    assert_eq!(fs::read(&real).unwrap(), b"");
}

#[test]
fn what_is_not_a_head_of_the_run_by_the_key_is_passed_over_in_an_anchor_file() {
    let world = World::new();
    let vault = world.path("vault");
    let run = RunId::new();
    let head = |n: u64| Checkpoint {
        size: n,
        root: digest(&n.to_string()),
    };
    let (ours, _) = start(vec![file_anchor(&vault)], &world.key);
    let (theirs, _) = start(vec![file_anchor(&vault)], &key(2));
    ours.confirm(run, head(1)).unwrap();
    theirs.confirm(run, head(2)).unwrap();
    ours.confirm(RunId::new(), head(3)).unwrap();
    let mut text = fs::read_to_string(&vault).unwrap();
    let forged = text.lines().next().unwrap().replace("\\n1\\n", "\\n9\\n");
    text.push_str(&format!("{forged}\n\n{}\n", "x".repeat(100_000)));
    text.push_str("{\"checkpoint\":\"symbi.lo");
    fs::write(&vault, &text).unwrap();
    ours.confirm(run, head(4)).unwrap();
    ours.confirm(run, head(4)).unwrap();
    assert_eq!(world.heads(&vault, run), [1, 4]);
}
