//! `symbi audit` as an auditor uses it. The journals are made by the library that every run uses,
//! so that no isolation is needed here. Each one is verified by `verify-journal.py` too.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "what the tests share is test code too"
)]

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use journal::{
    CallDispatching, CallSettled, Client, Custom, OutcomeFact, OutcomeStatus, ProjectKey, RunEnded,
    RunFiles, RunStarted, StreamFact, journal_path, ledger_path,
};
use model::{CallId, Canonical, Digest, RunId, ToolName};
use project::{Project, ProjectState, UserDirs};
use serde_json::Value;
use tempfile::TempDir;

struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ended {
    #[track_caller]
    fn expect(self, code: i32) -> Self {
        let Self { stdout, stderr, .. } = &self;
        assert_eq!(
            self.code,
            Some(code),
            "stdout:\n{stdout}\nstderr:\n{stderr}"
        );
        self
    }

    #[track_caller]
    fn says(self, words: &str) -> Self {
        let both = format!("{}\n{}", self.stdout, self.stderr);
        assert!(both.contains(words), "`{words}` is not in\n{both}");
        self
    }

    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("{}", self.stdout))
    }
}

/// A user with a project, at work.
struct Auditor {
    home: TempDir,
}

impl Drop for Auditor {
    fn drop(&mut self) {
        testkit::journals::keep_home(self.home.path());
    }
}

impl Auditor {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        for folder in ["config", "config/symbi", "state", "run"] {
            let mut builder = fs::DirBuilder::new();
            builder
                .mode(0o700)
                .create(home.path().join(folder))
                .unwrap();
        }
        let auditor = Self { home };
        auditor.symbi(&["init", "project"]).expect(0);
        auditor
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn symbi(&self, arguments: &[&str]) -> Ended {
        let output = Command::new(env!("CARGO_BIN_EXE_symbi"))
            .args(arguments)
            .current_dir(self.home.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.home.path())
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .output()
            .unwrap();
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    fn audit(&self, arguments: &[&str]) -> Ended {
        self.symbi(&[&["--project", "project", "audit"], arguments].concat())
    }

    fn state(&self) -> ProjectState {
        Project::open(&self.path("project"))
            .unwrap()
            .state()
            .unwrap()
    }

    fn key(&self) -> ProjectKey {
        let dirs = UserDirs {
            config: self.path("config/symbi"),
            state: self.path("state/symbi"),
            runtime: self.path("run/symbi"),
        };
        dirs.keys().unwrap();
        ProjectKey::load_or_create(&dirs.key_path(&self.state().project_id())).unwrap()
    }

    fn create(&self) -> RunFiles {
        let state = self.state();
        RunFiles::create(state.path(), RunId::new(), "operator", &self.key()).unwrap()
    }

    /// A run of two calls, to its end.
    fn whole_run(&self) -> RunId {
        let mut files = self.create();
        let run = files.journal().run();
        let _ = files.journal().record(started()).unwrap();
        files.started().unwrap();
        for call in ["first", "second"] {
            one_call(&files, call);
        }
        let end = RunEnded {
            completed: true,
            cause: None,
            calls: 2,
        };
        let _ = files.journal().record(end).unwrap();
        files.ended().unwrap();
        run
    }

    /// A run that was killed after two records.
    fn dead_run(&self) -> RunId {
        let mut files = self.create();
        let _ = files.journal().record(started()).unwrap();
        files.started().unwrap();
        let note = Custom {
            custom_kind: "note".into(),
            digest: Digest::of(b"v"),
            value: "v".into(),
        };
        let _ = files.journal().record(note).unwrap();
        files.journal().run()
    }

    fn journal(&self, run: RunId) -> PathBuf {
        journal_path(self.state().path(), run)
    }

    fn configure(&self, text: &str) {
        let path = self.path("config/symbi/config.toml");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// What the second verifier says of a run's journal, with the ledger.
    fn python(&self, run: RunId, more: &[&str]) -> (Option<i32>, Value) {
        let path = self.journal(run);
        let ledger = ledger_path(self.state().path());
        let (id, key) = (run.to_string(), self.key().vkey());
        let with = [
            path.to_str().unwrap(),
            "--ledger",
            ledger.to_str().unwrap(),
            "--run-id",
            &id,
            "--public-key",
            &key,
        ];
        python(&[&with, more].concat())
    }

    /// Both verifiers say this of a run of the ledger.
    #[track_caller]
    fn both_say(&self, run: RunId, code: i32, verdict: &str) {
        let ended = self
            .audit(&["verify", &run.to_string(), "--json"])
            .expect(code);
        assert_eq!(ended.json()["verdict"], verdict);
        let (theirs, report) = self.python(run, &[]);
        assert_eq!(theirs, Some(code), "{report}");
        assert_eq!(report["verdict"], verdict);
        assert_eq!(report["checkpoint"], ended.json()["checkpoint"]);
    }
}

fn python(arguments: &[&str]) -> (Option<i32>, Value) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/verify-journal.py");
    let output = Command::new("python3")
        .arg(script)
        .args(arguments)
        .arg("--json")
        .output()
        .unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code(), report)
}

fn started() -> RunStarted {
    RunStarted {
        version: "0".into(),
        project: "p".into(),
        client: Client::Operator,
        tools: Vec::new(),
        tool_set_sha256: Digest::of(b"t"),
        policy_sha256: Digest::of(b"p"),
        init_sha256: None,
        max_calls: 2,
        lifetime_ms: 1,
        tool_time_ms: 1,
    }
}

fn one_call(files: &RunFiles, call: &str) {
    let journal = files.journal();
    let call_sha256 = Digest::of(call.as_bytes());
    let call_id = CallId::new(call).unwrap();
    let lent = journal.lend(call_sha256).unwrap();
    let dispatching = CallDispatching {
        call_id: call_id.clone(),
        tool: ToolName::new("copy_file").unwrap(),
        call_sha256,
        descriptor: Canonical::of(&serde_json::json!({ "secret_of": call })).unwrap(),
        policies: Vec::new(),
        approval: None,
    };
    let dispatched = journal.record(dispatching).unwrap();
    let stream = StreamFact {
        bytes: 0,
        sha256: Digest::of(b""),
    };
    let settled = CallSettled {
        call_id,
        call_sha256,
        dispatched_seq: dispatched.seq(),
        outcome: OutcomeFact {
            status: OutcomeStatus::Succeeded,
            reason: None,
            exit_code: Some(0),
            signal: None,
            limit: None,
        },
        duration_us: 1,
        stdout: stream.clone(),
        stderr: stream,
        created_files: Vec::new(),
        worker: None,
        parser: None,
        evidence_sha256: None,
        effect_happened: true,
    };
    let _ = lent.settle(settled).unwrap();
}

fn cut_to_lines(path: &Path, lines: usize) {
    let text = fs::read_to_string(path).unwrap();
    let kept: String = text.split_inclusive('\n').take(lines).collect();
    fs::write(path, kept).unwrap();
}

#[test]
fn a_strict_list_finds_runs_that_are_gone_cut_at_any_record_swapped_or_unknown() {
    let auditor = Auditor::new();
    auditor
        .audit(&["list", "--strict"])
        .expect(0)
        .says("no run yet");
    let (a, b) = (auditor.whole_run(), auditor.whole_run());
    let dead = auditor.dead_run();
    let _sealed_by = auditor.whole_run();
    auditor
        .audit(&["list", "--strict"])
        .expect(5)
        .says("unterminated");
    auditor.both_say(a, 0, "intact");
    auditor.both_say(dead, 5, "unterminated");
    let verdict_of = |run: RunId, code: i32| {
        let list = auditor
            .audit(&["list", "--strict", "--json"])
            .expect(code)
            .json();
        let rows = list["runs"].as_array().unwrap().clone();
        let row = rows
            .iter()
            .find(|row| row["run"] == run.to_string())
            .unwrap();
        row["verdict"].as_str().unwrap().to_owned()
    };
    let (of_a, of_b) = (auditor.journal(a), auditor.journal(b));
    let whole = fs::read(&of_a).unwrap();
    // Six records: at any of them, and between.
    for lines in 0..12 {
        cut_to_lines(&of_a, lines);
        let verdict = verdict_of(a, 6);
        assert_eq!(verdict, "truncated", "{lines} lines");
        fs::write(&of_a, &whole).unwrap();
    }
    cut_to_lines(&of_a, 6);
    auditor.both_say(a, 6, "truncated");
    fs::remove_file(&of_a).unwrap();
    assert_eq!(verdict_of(a, 6), "truncated");
    auditor
        .audit(&["verify", &a.to_string()])
        .expect(6)
        .says("the file is not there");
    fs::copy(&of_b, &of_a).unwrap();
    assert_eq!(verdict_of(a, 6), "corrupt");
    auditor.both_say(a, 6, "corrupt");
    fs::write(&of_a, &whole).unwrap();

    // The sealed run, and one that the ledger has never seen.
    let of_dead = auditor.journal(dead);
    let whole = fs::read(&of_dead).unwrap();
    cut_to_lines(&of_dead, 2);
    assert_eq!(verdict_of(dead, 6), "truncated");
    auditor.both_say(dead, 6, "truncated");
    fs::write(&of_dead, &whole).unwrap();
    let stray = of_a.with_file_name("stray.jsonl");
    fs::write(&stray, "x").unwrap();
    auditor
        .audit(&["list", "--strict"])
        .expect(5)
        .says("nothing of stray.jsonl");
    fs::remove_file(&stray).unwrap();
}

#[test]
fn a_cut_ledger_does_not_hide_a_run_from_a_strict_list() {
    let auditor = Auditor::new();
    auditor.whole_run();
    let ledger = ledger_path(auditor.state().path());
    let before = fs::read(&ledger).unwrap();
    let hidden = auditor.whole_run();
    fs::write(&ledger, before).unwrap();
    auditor.audit(&["list"]).expect(0);
    auditor
        .audit(&["list", "--strict"])
        .expect(5)
        .says(&hidden.to_string());
    let mut bytes = fs::read(&ledger).unwrap();
    bytes[100] ^= 1;
    fs::write(&ledger, bytes).unwrap();
    auditor
        .audit(&["list"])
        .expect(6)
        .says("the ledger is not what was signed");
}

#[test]
fn neither_a_missing_ledger_nor_one_that_forked_hides_a_run_from_a_strict_list() {
    let auditor = Auditor::new();
    let first = auditor.whole_run();
    let ledger = ledger_path(auditor.state().path());
    let early = fs::read(&ledger).unwrap();
    let hidden = auditor.whole_run();
    // The same key goes on from an earlier end: another history, good by itself.
    fs::write(&ledger, early).unwrap();
    let other = auditor.whole_run();
    let listed = auditor
        .audit(&["list", "--strict", "--json"])
        .expect(5)
        .json();
    let known: Vec<_> = listed["runs"].as_array().unwrap().iter().collect();
    let name = |run: RunId| format!("{run}.jsonl");
    assert_eq!(
        known.iter().map(|it| it["run"].clone()).collect::<Vec<_>>(),
        [
            Value::from(first.to_string()),
            Value::from(other.to_string()),
        ]
    );
    assert_eq!(
        listed["unknown_to_ledger"],
        serde_json::json!([name(hidden)])
    );
    fs::remove_file(&ledger).unwrap();
    let listed = auditor
        .audit(&["list", "--strict", "--json"])
        .expect(5)
        .json();
    let mut all = [name(first), name(hidden), name(other)];
    all.sort();
    assert_eq!(listed["unknown_to_ledger"], serde_json::json!(all));
}

#[test]
fn a_torn_tail_is_shown_with_its_prefix_its_size_and_the_hash_of_the_whole_file() {
    let auditor = Auditor::new();
    let run = auditor.dead_run();
    let path = auditor.journal(run);
    let whole = fs::read(&path).unwrap();
    let mut bytes = whole.clone();
    bytes.extend_from_slice(b"{\"torn");
    fs::write(&path, &bytes).unwrap();
    let id = run.to_string();
    let report = auditor.audit(&["verify", &id, "--json"]).expect(5).json();
    assert_eq!(report["verdict"], "unterminated");
    assert_eq!(report["records"], 2);
    assert_eq!(report["whole_bytes"], whole.len());
    assert_eq!(report["tail"]["bytes"], 6);
    assert_eq!(report["file_bytes"], bytes.len());
    assert_eq!(report["file_sha256"], Digest::of(&bytes).to_hex());
    let torn = format!(
        "{} bytes are whole records; a torn tail of 6 bytes",
        whole.len()
    );
    auditor
        .audit(&["verify", &id])
        .expect(5)
        .says(&torn)
        .says(&Digest::of(&bytes).to_hex());
    assert_eq!(fs::read(&path).unwrap(), bytes, "nothing is repaired");
    auditor.both_say(run, 5, "unterminated");
    // The quick way says the same.
    let quick = auditor
        .audit(&["verify", &id, "--last-only", "--json"])
        .expect(5)
        .json();
    assert_eq!(quick["whole_bytes"], report["whole_bytes"]);
    assert_eq!(
        (&quick["depth"], &report["depth"]),
        (&"last".into(), &"every".into())
    );
}

#[test]
fn one_call_is_proved_and_checked_without_the_journal_by_both_programs() {
    let auditor = Auditor::new();
    let run = auditor.whole_run().to_string();
    let key = auditor.audit(&["key"]).expect(0).stdout;
    let key = key.trim();
    let file = auditor.path("proof.json");
    let proof = file.to_str().unwrap();
    let prove = ["prove", &run, "second", "--output", proof];
    auditor
        .audit(&prove)
        .expect(0)
        .says("2 records of the call");
    auditor.audit(&prove).expect(6).says("cannot write");
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("secret_of") && !text.contains("first"),
        "{text}"
    );
    // Elsewhere: without project or journal.
    let check = |file: &str| auditor.symbi(&["audit", "check-proof", file, "--public-key", key]);
    check(proof)
        .expect(0)
        .says("proved")
        .says("copy_file (second) permitted");
    auditor
        .symbi(&["audit", "check-proof", proof])
        .expect(5)
        .says("self-consistent only");
    let (code, report) = python(&["--proof", proof, "--public-key", key]);
    assert_eq!(
        (code, &report["complete"]),
        (Some(0), &true.into()),
        "{report}"
    );
    let changed = auditor.path("changed.json");
    fs::write(&changed, text.replace("secret_of", "secrets_of")).unwrap();
    let changed = changed.to_str().unwrap();
    check(changed).expect(6).says("proves nothing");
    assert_eq!(
        python(&["--proof", changed, "--public-key", key]).0,
        Some(6)
    );
    auditor
        .audit(&["prove", &run, "third"])
        .expect(2)
        .says("no call `third`");
    let to_stdout = auditor.audit(&["prove", &run, "first"]).expect(0).json();
    assert_eq!(to_stdout["kind"], "symbi-call-proof");
}

#[test]
fn evidence_that_a_record_names_is_hashed_and_missing_or_changed_is_told_by_both_programs() {
    let auditor = Auditor::new();
    let mut files = auditor.create();
    let journal = files.journal().clone();
    let _ = journal.record(started()).unwrap();
    files.started().unwrap();
    let large = serde_json::json!({ "argument": "x".repeat(20_000) });
    let descriptor = Canonical::of(&large).unwrap();
    let call_sha256 = descriptor.digest();
    let lent = journal.lend(call_sha256).unwrap();
    let dispatching = CallDispatching {
        call_id: CallId::new("large").unwrap(),
        tool: ToolName::new("copy").unwrap(),
        call_sha256,
        descriptor,
        policies: Vec::new(),
        approval: None,
    };
    let _ = journal.record(dispatching).unwrap();
    let run = journal.run();
    drop((lent, journal, files));
    let run_id = run.to_string();
    let folder = auditor.state().path().join("evidence");
    let file = folder.join(call_sha256.to_hex());
    let kept = fs::read(&file).unwrap();
    let both = |code: i32, field: &str, expected: Value| {
        let ours = auditor
            .audit(&["verify", &run_id, "--json"])
            .expect(code)
            .json();
        let (theirs, report) = auditor.python(run, &["--evidence", folder.to_str().unwrap()]);
        assert_eq!(theirs, Some(code), "{report}");
        assert_eq!(ours["evidence"][field], expected, "{ours}");
        assert_eq!(ours["evidence"], report["evidence"]);
    };
    both(5, "whole", 1.into());
    fs::write(&file, [b"y", &kept[1..]].concat()).unwrap();
    both(6, "changed", serde_json::json!([call_sha256]));
    fs::write(&file, [&kept[..], b"y"].concat()).unwrap();
    both(6, "changed", serde_json::json!([call_sha256]));
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
    both(6, "changed", serde_json::json!([call_sha256]));
    fs::remove_file(&file).unwrap();
    both(6, "missing", serde_json::json!([call_sha256]));
    auditor.audit(&["list"]).expect(5);
    auditor
        .audit(&["list", "--strict"])
        .expect(6)
        .says("evidence is missing or changed");
    let path = auditor.journal(run);
    let unasked = auditor
        .audit(&["verify", path.to_str().unwrap(), "--json"])
        .expect(5);
    assert_eq!(unasked.json()["evidence"]["not_looked_for"], 1);
}

#[test]
fn a_run_that_goes_on_is_live_for_both_programs_and_nothing_for_a_list_to_report() {
    let auditor = Auditor::new();
    let mut files = auditor.create();
    let _ = files.journal().record(started()).unwrap();
    files.started().unwrap();
    auditor.both_say(files.journal().run(), 5, "live");
    let listed = auditor
        .audit(&["list", "--strict", "--json"])
        .expect(0)
        .json();
    assert_eq!(listed["runs"][0]["verdict"], "live");
}

#[test]
fn show_tells_a_run_or_one_call_of_it() {
    let auditor = Auditor::new();
    let run = auditor.whole_run().to_string();
    auditor
        .audit(&["show", &run])
        .expect(0)
        .says("(first)")
        .says("run completed");
    let one = auditor.audit(&["show", &run, "--call", "second"]).expect(0);
    assert!(one.stdout.contains("(second)") && !one.stdout.contains("(first)"));
    let json = auditor
        .audit(&["show", &run, "--call", "second", "--json"])
        .expect(0)
        .json();
    assert_eq!(json["records"].as_array().unwrap().len(), 2);
    assert_eq!(json["report"]["verdict"], "intact");
    auditor
        .audit(&["show", &run, "--call", "x"])
        .expect(2)
        .says("no call `x`");
}

#[test]
fn an_id_that_no_witness_knows_is_a_wrong_id_and_a_run_that_is_gone_is_none() {
    let auditor = Auditor::new();
    let run = auditor.whole_run();
    let unknown = RunId::new().to_string();
    for word in ["show", "verify"] {
        auditor
            .audit(&[word, &unknown])
            .expect(2)
            .says(&format!("the project has no run {unknown}"))
            .says("symbi audit list");
    }
    fs::remove_file(journal_path(auditor.state().path(), run)).unwrap();
    auditor.audit(&["verify", &run.to_string()]).expect(6);
}

#[test]
fn the_key_is_shown_as_text_and_hex_and_changed_between_runs() {
    let auditor = Auditor::new();
    let old = auditor.whole_run();
    let vkey = auditor.audit(&["key"]).expect(0).stdout;
    let hex = auditor.audit(&["key", "--hex"]).expect(0).stdout;
    assert_eq!(
        (vkey.trim(), hex.trim()),
        (
            auditor.key().vkey().as_str(),
            auditor.key().public().to_hex().as_str()
        )
    );
    let json = auditor.audit(&["key", "--json"]).expect(0).json();
    assert_eq!(
        (&json["vkey"], &json["hex"]),
        (&vkey.trim().into(), &hex.trim().into())
    );

    let alive = {
        let mut files = auditor.create();
        let _ = files.journal().record(started()).unwrap();
        files.started().unwrap();
        auditor
            .audit(&["key", "rotate"])
            .expect(3)
            .says("runs have no end yet");
        files.journal().run()
    };
    let changed = auditor.audit(&["key", "rotate", "--json"]).expect(0).json();
    assert_eq!(changed["from"], vkey.trim());
    assert_eq!(changed["to"], auditor.key().vkey());
    let new = auditor.whole_run();
    auditor.both_say(old, 0, "intact");
    auditor.both_say(new, 0, "intact");
    auditor.both_say(alive, 5, "unterminated");
    // Somebody who has the first key only.
    for run in [old, new] {
        let id = run.to_string();
        auditor
            .audit(&["verify", &id, "--public-key", vkey.trim()])
            .expect(0);
    }
    let journal = auditor.journal(new);
    let alone = [
        "audit",
        "verify",
        journal.to_str().unwrap(),
        "--public-key",
        vkey.trim(),
    ];
    auditor.symbi(&alone).expect(6).says("signed by");
    auditor
        .audit(&["show", &old.to_string()])
        .expect(0)
        .says("run completed");
    auditor
        .audit(&["prove", &old.to_string(), "first"])
        .expect(0);
    auditor.audit(&["list", "--strict"]).expect(5);
}

#[test]
fn an_archived_run_is_known_and_verifies_where_it_went() {
    let auditor = Auditor::new();
    let (gone, stays) = (auditor.whole_run(), auditor.whole_run());
    let id = gone.to_string();
    auditor
        .audit(&["archive", "--to", "old", &id])
        .expect(0)
        .says("moved to old");
    auditor
        .audit(&["list", "--strict"])
        .expect(0)
        .says("archived")
        .says("intact");
    auditor
        .audit(&["verify", &id])
        .expect(2)
        .says("was archived");
    let copy = format!("old/{id}.jsonl");
    auditor
        .audit(&["verify", &copy, "--run-id", &id])
        .expect(0)
        .says("intact");
    cut_to_lines(&auditor.path(&copy), 4);
    auditor
        .audit(&["verify", &copy, "--run-id", &id])
        .expect(6)
        .says("truncated");
    auditor
        .audit(&["archive", "--to", "old", &RunId::new().to_string()])
        .expect(2);
    auditor
        .audit(&["archive", "--to", "old", "--before", "yesterday"])
        .expect(2);
    auditor
        .audit(&["archive", "--to", "old", "--before", "2001-01-01"])
        .expect(0);
    assert!(auditor.journal(stays).exists());
    let moved = auditor.audit(&["archive", "--to", "old", "--before", "9999-01-01", "--json"]);
    assert_eq!(
        moved.expect(0).json()["archived"][0]["run"],
        stays.to_string()
    );
    // A run that lives, or whose end nobody entered yet, stays.
    let dead = auditor.dead_run().to_string();
    auditor
        .audit(&["archive", "--to", "old", &dead])
        .expect(3)
        .says("no end");
}

#[test]
fn anchors_make_the_second_half_of_the_verdict() {
    let auditor = Auditor::new();
    let vault = auditor.path("vault");
    let run = auditor.whole_run();
    let id = run.to_string();
    let demand = ["verify", &id, "--require-anchor"];
    auditor
        .audit(&demand)
        .expect(5)
        .says("intact, not anchored");
    // Somebody keeps the last checkpoint line.
    let text = fs::read_to_string(auditor.journal(run)).unwrap();
    let last = text.lines().last().unwrap();
    fs::write(&vault, format!("{last}\n")).unwrap();
    let vault_path = vault.to_str().unwrap();
    let with_file = [&demand[..], &["--anchor", vault_path]].concat();
    auditor.audit(&with_file).expect(0).says("intact, anchored");
    let anchor = ["--anchor", vault_path, "--require-anchor"];
    assert_eq!(auditor.python(run, &anchor).0, Some(0));
    auditor.configure(&format!("[anchors.vault]\nfile = \"{vault_path}\"\n"));
    auditor.audit(&demand).expect(0);
    auditor
        .audit(&["list", "--strict"])
        .expect(0)
        .says("intact, anchored");
    // Journal and ledger together cut back: the anchor still knows.
    cut_to_lines(&auditor.journal(run), 4);
    let ledger = ledger_path(auditor.state().path());
    cut_to_lines(&ledger, 2);
    auditor.audit(&["verify", &id]).expect(6).says("truncated");
    assert_eq!(auditor.python(run, &anchor).1["verdict"], "truncated");
    auditor.configure("");
    auditor.audit(&["verify", &id]).expect(5);
    let path = auditor.journal(run);
    let by_path = ["verify", path.to_str().unwrap(), "--anchor", vault_path];
    auditor.audit(&by_path).expect(2).says("--run-id");
    auditor
        .audit(&["verify", &id, "--anchor", "/nonexistent"])
        .expect(2);
}

#[test]
fn a_ledger_that_no_run_would_write_to_is_refused_by_all_and_holds_nobody() {
    let auditor = Auditor::new();
    let run = auditor.whole_run().to_string();
    let ledger = ledger_path(auditor.state().path());
    let aside = auditor.path("aside.jsonl");
    fs::rename(&ledger, &aside).unwrap();
    let refused_by_all = || {
        for command in [
            &["audit", "list"][..],
            &["audit", "verify", &run],
            &["audit", "show", &run],
            &["invocation", "inspect", "--id", &run],
            &["doctor"],
        ] {
            auditor
                .symbi(&[&["--project", "project"], command].concat())
                .expect(6)
                .says("is not a regular file (or it is a link)");
        }
    };
    fifo(&ledger);
    refused_by_all();
    fs::remove_file(&ledger).unwrap();
    std::os::unix::fs::symlink(&aside, &ledger).unwrap();
    refused_by_all();
    fs::remove_file(&ledger).unwrap();
    std::os::unix::fs::symlink("nowhere", &ledger).unwrap();
    refused_by_all();
}

fn fifo(path: &Path) {
    let made = Command::new("mkfifo")
        .args(["-m", "600"])
        .arg(path)
        .status()
        .unwrap();
    assert!(made.success());
}

#[test]
fn a_file_that_is_named_and_is_a_pipe_is_refused_and_holds_nobody() {
    let auditor = Auditor::new();
    fifo(&auditor.path("pipe"));
    let whole = auditor.whole_run().to_string();
    for (command, code) in [
        (&["audit", "check-proof", "pipe"][..], 2),
        (&["audit", "verify", "pipe"], 6),
        (&["audit", "prove", "pipe", "c"], 6),
        (&["audit", "verify", &whole, "--anchor", "pipe"], 2),
        (&["policy", "test", "pipe"], 2),
        (&["tools", "validate", "pipe"], 2),
    ] {
        auditor
            .symbi(&[&["--project", "project"], command].concat())
            .expect(code)
            .says("not a regular file");
    }
}

#[test]
fn what_is_wrong_with_the_ledger_is_told_by_list_verify_and_show() {
    let auditor = Auditor::new();
    let run = auditor.whole_run().to_string();
    let ledger = ledger_path(auditor.state().path());
    let good = fs::read(&ledger).unwrap();
    let targets = [&["list"][..], &["verify", &run], &["show", &run]];
    for (garbage, code, field, words) in [
        (
            "x\n",
            6,
            "ledger_fault",
            "the ledger is not what was signed",
        ),
        ("x", 5, "ledger_tail", "a torn tail of 1 bytes"),
    ] {
        fs::write(&ledger, [&good, garbage.as_bytes()].concat()).unwrap();
        for target in targets {
            auditor.audit(target).expect(code).says(words);
            let json = auditor.audit(&[target, &["--json"]].concat()).expect(code);
            assert!(!json.json()[field].is_null(), "{}", json.stdout);
        }
        fs::write(&ledger, garbage).unwrap();
        let ended = auditor.audit(&["list"]).expect(code).says(words);
        assert!(!ended.stdout.contains("no run yet"));
    }
    fs::write(&ledger, &good).unwrap();
    for target in targets {
        auditor.audit(target).expect(0);
    }
}

#[test]
fn a_run_that_the_ledger_never_saw_is_listed_after_the_next_start() {
    let auditor = Auditor::new();
    let files = auditor.create();
    let run = files.journal().run().to_string();
    let _ = files.journal().record(started()).unwrap();
    drop(files);
    auditor.audit(&["list", "--strict"]).expect(5).says(&run);
    auditor.whole_run();
    let listed = auditor.audit(&["list", "--strict"]).expect(5);
    let listed = listed.says("unterminated");
    assert!(
        !listed.stderr.contains("knows nothing"),
        "{}",
        listed.stderr
    );
    assert!(listed.stdout.contains(&run));
}

#[test]
fn an_empty_journal_is_said_to_have_no_record() {
    let auditor = Auditor::new();
    let files = auditor.create();
    let run = files.journal().run().to_string();
    drop(files);
    let ended = auditor
        .audit(&["verify", &run])
        .expect(6)
        .says("no record was ever written");
    assert!(!ended.stdout.contains("is signed by"));
    auditor.whole_run();
    auditor.audit(&["list", "--strict"]).expect(0);
}
