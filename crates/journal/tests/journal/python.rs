//! The second verifier agrees on every journal that these tests make.

use crate::proofs::three_calls;
use crate::rotation::Project;
use crate::support::*;
use journal::*;
use model::RunId;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/verify-journal.py")
}

fn python(arguments: &[&str]) -> (i32, Value, String) {
    let output = Command::new("python3")
        .arg(script())
        .args(arguments)
        .arg("--json")
        .output()
        .expect("python3 runs");
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap(), report, errors)
}

/// Both verifiers must say the same of the file.
pub(crate) fn agree(path: &Path, options: &VerifyOptions, extra: &[&str]) -> Report {
    let ours = verify_file(path, options).unwrap();
    let key = options.public_key.as_ref().map(PublicKey::vkey);
    let run = options.run.map(|run| run.to_string());
    let mut arguments = vec![path.to_str().unwrap()];
    if let Some(key) = &key {
        arguments.extend(["--public-key", key]);
    }
    if let Some(run) = &run {
        arguments.extend(["--run-id", run]);
    }
    arguments.extend(extra);
    let (code, theirs, errors) = python(&arguments);
    assert_eq!(
        code,
        i32::from(ours.exit_code(false)),
        "{ours:?}\n{theirs}\n{errors}"
    );
    let mine = serde_json::to_value(&ours).unwrap();
    for field in [
        "verdict",
        "anchored",
        "self_consistent_only",
        "run",
        "principal",
        "records",
        "checkpoint",
        "completed",
        "tail",
        "live",
        "file_bytes",
        "file_sha256",
    ] {
        assert_eq!(mine[field], theirs[field], "{field}: {mine}\n{theirs}");
    }
    assert_eq!(
        mine["fault"]["line"], theirs["fault"]["line"],
        "{mine}\n{theirs}"
    );
    ours
}

#[test]
fn both_verifiers_agree_on_good_cut_and_changed_journals() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("j.jsonl");
    let (key, run) = (key(1), RunId::new());
    let good = small_run(&key, run);
    let lines: Vec<_> = good.split_inclusive(|b| *b == b'\n').collect();
    let mut cases: Vec<Vec<u8>> = vec![
        good.clone(),
        Vec::new(),
        lines[..4].concat(),
        lines[..5].concat(),
        [&lines[..2], &lines[4..]].concat().concat(),
        small_run(&self::key(2), run),
        small_run(&key, RunId::new()),
        [good.as_slice(), b"x"].concat(),
        [lines[0], b"{\"checkpoint\":\"\\ud800\"}\n"].concat(),
        [lines[0], b"{\"checkpoint\":7}\n"].concat(),
        b"{\"v\":1}\n[]\n".to_vec(),
        [b"[".repeat(100_000).as_slice(), b"\n{}\n"].concat(),
        [b"9".repeat(100_000).as_slice(), b"\n{}\n"].concat(),
        vec![b'a'; (1 << 20) + 2],
    ];
    cases.extend((0..10).map(|n| good[..n * good.len() / 10].to_vec()));
    cases.extend((0..10).map(|n| {
        let mut changed = good.clone();
        changed[n * good.len() / 10 + 3] ^= 1 << (n % 8);
        changed
    }));
    for case in cases {
        fs::write(&path, &case).unwrap();
        let with_run = VerifyOptions {
            run: Some(run),
            ..options(&key)
        };
        agree(&path, &with_run, &[]);
    }
    for case in [good.as_slice(), &lines[..4].concat()] {
        fs::write(&path, case).unwrap();
        agree(&path, &VerifyOptions::default(), &[]);
    }
}

#[test]
fn the_script_needs_nothing_but_the_standard_library() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("j.jsonl");
    let key = key(1);
    let good = small_run(&key, RunId::new());
    fs::write(&path, &good).unwrap();
    assert_eq!(
        agree(&path, &options(&key), &["--plain"]).verdict,
        Verdict::Intact
    );
    // A signature of zeros, and one with its scalar's group order added.
    let text = String::from_utf8(good).unwrap();
    let note = text.lines().nth(1).unwrap();
    let signature = note.rsplit_once(' ').unwrap().1.trim_end_matches("\\n\"}");
    let zeros = format!("{}{}=", &signature[..6], "A".repeat(85));
    fs::write(&path, text.replace(signature, &zeros)).unwrap();
    assert_eq!(
        agree(&path, &options(&key), &["--plain"]).verdict,
        Verdict::Corrupt
    );
}

#[test]
fn both_verifiers_agree_on_live_ended_sealed_and_cut_runs_with_the_ledger() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join(".symbiont");
    let (key, run) = (key(1), RunId::new());
    let mut files = RunFiles::create(&state, run, "operator", &key).unwrap();
    let path = files.path().to_owned();
    let _ = files.journal().record(started()).unwrap();
    files.started().unwrap();
    let ledger_file = ledger_path(&state);
    let ledger = Ledger::open(&ledger_file, key.signer()).unwrap();
    let extra = ["--ledger", ledger_file.to_str().unwrap()];
    let check = || {
        let known = ledger.runs().unwrap().runs.remove(0);
        let options = VerifyOptions {
            ledger: Some(known),
            run: Some(run),
            ..options(&key)
        };
        agree(&path, &options, &extra).verdict
    };
    assert_eq!(check(), Verdict::Live);
    let _ = files.journal().record(ended(true)).unwrap();
    files.ended().unwrap();
    assert_eq!(check(), Verdict::Intact);
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(
        &path,
        whole.split_inclusive('\n').take(2).collect::<String>(),
    )
    .unwrap();
    assert_eq!(check(), Verdict::Truncated);
    fs::write(&path, small_run(&key, run)).unwrap();
    assert_eq!(check(), Verdict::Forked);
}

#[test]
fn wrong_usage_of_the_script_is_exit_2_with_a_reason() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("j.jsonl");
    fs::write(&path, small_run(&key(1), RunId::new())).unwrap();
    let file = path.to_str().unwrap();
    for arguments in [
        vec!["/nonexistent"],
        vec![file, "--public-key", "nonsense"],
        vec![file, "--run-id", "nonsense"],
        vec![file, "--ledger", file],
        vec![
            file,
            "--public-key",
            "0100000000000000000000000000000000000000000000000000000000000000",
        ],
    ] {
        let (code, _, errors) = python(&arguments);
        assert_eq!(code, 2, "{arguments:?}");
        assert!(!errors.contains("Traceback"), "{errors}");
    }
}

#[test]
fn both_verifiers_follow_a_change_of_the_key_and_know_archived_runs() {
    let project = Project::new();
    let old = project.run();
    let first = project.key();
    rotate_key(&project.state, &project.key).unwrap();
    let new = project.run();
    let mut ledger = Ledger::open(&ledger_path(&project.state), project.key().signer()).unwrap();
    let to = project.state.with_file_name("old");
    let known = project.read(first.public()).runs.remove(0);
    archive_run(&project.state, &known, &to, &mut ledger).unwrap();
    let ledger_file = ledger_path(&project.state);
    let extra = |key: &ProjectKey| {
        let ledger = ledger_file.to_str().unwrap().to_owned();
        [
            "--ledger".to_owned(),
            ledger,
            "--public-key".to_owned(),
            key.vkey(),
        ]
    };
    for trusted in [&first, &project.key()] {
        let runs = project.read(trusted.public()).runs;
        for (run, path) in [
            (old, to.join(format!("{old}.jsonl"))),
            (new, project.journal(new)),
        ] {
            let known = runs.iter().find(|known| known.run == run).unwrap();
            let options = VerifyOptions {
                public_key: known.public_key.clone(),
                run: Some(run),
                ledger: Some(known.clone()),
                ..VerifyOptions::default()
            };
            // The last `--public-key` counts: the auditor has one key, not each run's.
            let extra = extra(trusted);
            let extra: Vec<&str> = extra.iter().map(String::as_str).collect();
            assert_eq!(agree(&path, &options, &extra).verdict, Verdict::Intact);
        }
    }
    let text = String::from_utf8(project.ledger()).unwrap();
    let cosigned = text.lines().nth(5).unwrap();
    let mut parts: Vec<&str> = cosigned.split("\\n").collect();
    parts.remove(5);
    std::fs::write(&ledger_file, text.replace(cosigned, &parts.join("\\n"))).unwrap();
    let (journal, run) = (project.journal(new), new.to_string());
    let mut arguments = vec![journal.to_str().unwrap(), "--run-id", &run];
    let extra = extra(&first);
    arguments.extend(extra.iter().map(String::as_str));
    let (code, _, errors) = python(&arguments);
    assert_eq!(code, 6, "{errors}");
}

#[test]
fn both_verifiers_agree_on_anchors() {
    let home = tempfile::tempdir().unwrap();
    let (path, vault) = (home.path().join("j.jsonl"), home.path().join("vault"));
    let (key, run) = (key(1), RunId::new());
    let whole = small_run(&key, run);
    let head = verify_run(whole.as_slice(), &options(&key))
        .unwrap()
        .checkpoint;
    let anchor = Anchor {
        name: "vault".into(),
        target: AnchorTarget::File(vault.clone()),
        required: true,
    };
    let anchors = Anchors::start(vec![anchor], key.signer(), |error| panic!("{error}"));
    anchors.confirm(run, head).unwrap();
    let heads = read_anchors(fs::File::open(&vault).unwrap(), run, key.public()).unwrap();
    let with = VerifyOptions {
        run: Some(run),
        anchors: heads,
        ..options(&key)
    };
    let extra = ["--anchor", vault.to_str().unwrap()];
    fs::write(&path, &whole).unwrap();
    assert!(agree(&path, &with, &extra).anchored);
    let half: Vec<_> = whole.split_inclusive(|b| *b == b'\n').take(4).collect();
    fs::write(&path, half.concat()).unwrap();
    assert_eq!(agree(&path, &with, &extra).verdict, Verdict::Truncated);
    fs::write(&path, small_run(&key, run)).unwrap();
    assert_eq!(agree(&path, &with, &extra).verdict, Verdict::Forked);
    fs::write(&path, &whole).unwrap();
    let (vkey, run) = (key.vkey(), run.to_string());
    let asked = [
        path.to_str().unwrap(),
        "--public-key",
        &vkey,
        "--run-id",
        &run,
    ];
    assert_eq!(python(&[&asked[..], &["--require-anchor"]].concat()).0, 5);
    assert_eq!(
        python(&[&asked[..], &["--require-anchor"], &extra].concat()).0,
        0
    );
}

#[test]
fn both_verifiers_agree_on_proofs() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("proof.json");
    let key = key(1);
    let journal = three_calls(&key, RunId::new());
    let vkey = key.vkey();
    let check = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let ours = CallProof::parse(bytes).and_then(|it| it.check(Some(key.public())));
        let asked = ["--proof", path.to_str().unwrap(), "--public-key", &vkey];
        let (code, theirs, errors) = python(&asked);
        match ours {
            Err(error) => assert_eq!(code, 6, "{error}: {theirs} {errors}"),
            Ok(ours) => {
                assert_eq!(code, 0, "{theirs} {errors}");
                let kinds: Vec<_> = ours.records.iter().map(|it| it.event.kind()).collect();
                assert_eq!(theirs["records"], serde_json::json!(kinds));
                assert_eq!(theirs["complete"], ours.complete);
                assert_eq!(theirs["checkpoint"]["root"], ours.checkpoint.root.to_hex());
            }
        }
    };
    for call in ["c1", "c2", "r", &digest("c1").to_hex()] {
        let proof = prove_call(journal.as_slice(), None, Some(key.public()), call).unwrap();
        let good = serde_json::to_vec(&proof).unwrap();
        check(&good);
        for at in (0..3).map(|n| n * good.len() / 3 + 5) {
            let mut changed = good.clone();
            changed[at] ^= 1;
            check(&changed);
        }
    }
}
