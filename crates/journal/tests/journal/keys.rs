//! Keys and files: who may read them, and what they look like to others.

use crate::support::*;
use journal::*;
use model::RunId;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn the_key_file_is_0600_in_a_folder_0700_and_lasts() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("symbi/keys/p1.ed25519");
    let key = ProjectKey::load_or_create(&path).unwrap();
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    assert_eq!(
        ProjectKey::load_or_create(&path).unwrap().vkey(),
        key.vkey()
    );
    assert_eq!(ProjectKey::load(&path).unwrap().vkey(), key.vkey());
    assert_eq!(
        fs::read_dir(path.parent().unwrap()).unwrap().count(),
        1,
        "nothing left behind"
    );
    assert!(!format!("{key:?}").contains(&fs::read_to_string(&path).unwrap()[40..60]));
}

#[test]
fn eight_racing_creators_share_one_key_and_have_files_of_their_own() {
    for _ in 0..20 {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("keys/p.ed25519");
        let state = home.path().join("state");
        fs::create_dir(&state).unwrap();
        chmod(&state, 0o700);
        let barrier = std::sync::Barrier::new(8);
        let made: Vec<(String, std::path::PathBuf)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        let key = ProjectKey::load_or_create(&path).unwrap();
                        let run = RunId::new();
                        let mut files = RunFiles::create(&state, run, "operator", &key).unwrap();
                        let _ = files.journal().record(started()).unwrap();
                        files.started().unwrap();
                        let path = files.path().to_owned();
                        let _ = files.journal().record(ended(true)).unwrap();
                        files.ended().unwrap();
                        (key.vkey(), path)
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(made.iter().all(|(key, _)| *key == made[0].0));
        let mut paths: Vec<_> = made.iter().map(|(_, path)| path).collect();
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), 8);
        let key = ProjectKey::load(&path).unwrap();
        let ledger = Ledger::open(&ledger_path(&state), key.signer()).unwrap();
        let report = ledger.runs().unwrap();
        assert_eq!(
            (report.runs.len(), report.records, report.fault),
            (8, 16, None)
        );
        for known in report.runs {
            let path = journal_path(&state, known.run);
            let options = VerifyOptions {
                ledger: Some(known),
                ..options(&key)
            };
            assert_eq!(
                verify_file(&path, &options).unwrap().verdict,
                Verdict::Intact
            );
        }
    }
}

#[test]
fn a_key_file_with_another_mode_a_link_or_other_content_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("keys/p.ed25519");
    ProjectKey::load_or_create(&path).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let fails = |path: &Path, why: &str| {
        let error = ProjectKey::load_or_create(path).unwrap_err();
        let shown = std::error::Error::source(&error).map_or(error.to_string(), |e| e.to_string());
        assert!(shown.contains(why), "{shown}");
    };
    chmod(&path, 0o640);
    fails(&path, "has mode 0640");
    chmod(&path, 0o600);
    let other = path.with_file_name("other");
    symlink(&path, &other).unwrap();
    fails(&other, "is a link");
    fs::hard_link(&path, path.with_file_name("hard")).unwrap();
    fails(&path, "has 2 names");
    fs::remove_file(path.with_file_name("hard")).unwrap();
    fs::write(&path, "not a key\n").unwrap();
    fails(&path, "does not hold a signing key");
    fs::write(&path, text.trim_end()).unwrap();
    fails(&path, "does not hold a signing key");
    fs::write(&path, &text).unwrap();
    ProjectKey::load(&path).unwrap();
    fails(&home.path().join("keys/sub/../p.ed25519/x"), "");
    let fifo = path.with_file_name("fifo");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    chmod(&fifo, 0o600);
    fails(&fifo, "not a regular file");
    chmod(path.parent().unwrap(), 0o755);
    fails(&path, "has mode 0755");
    let linked = home.path().join("linked");
    chmod(path.parent().unwrap(), 0o700);
    symlink(path.parent().unwrap(), &linked).unwrap();
    fails(&linked.join("p.ed25519"), "not a folder");
}

#[test]
fn a_key_file_of_another_owner_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("keys/p.ed25519");
    ProjectKey::load_or_create(&path).unwrap();
    // Only root can give a file away; others have nothing to give.
    if std::os::unix::fs::chown(&path, Some(12_345), None).is_ok() {
        let error = ProjectKey::load(&path).unwrap_err();
        let error = std::error::Error::source(&error).unwrap().to_string();
        assert!(error.contains("belongs to user 12345"), "{error}");
    }
}

#[test]
fn a_public_key_is_read_as_verifier_key_hex_or_file_content() {
    let key = key(1);
    let public = key.public();
    for text in [
        key.vkey(),
        public.to_hex(),
        format!("{}\n", key.vkey()),
        public.to_hex().to_uppercase(),
    ] {
        assert_eq!(&PublicKey::parse(&text).unwrap(), public);
    }
    let other = super::support::key(2);
    let vkey = key.vkey();
    let swapped = vkey.replace(public.name(), other.public().name());
    assert!(matches!(
        PublicKey::parse(&swapped),
        Err(PublicKeyError::NameMismatch { .. })
    ));
    for bad in [
        "",
        "abc",
        "a+b",
        "a+b+c",
        &vkey[..vkey.len() - 1],
        &"0".repeat(63),
    ] {
        assert!(PublicKey::parse(bad).is_err(), "{bad}");
    }
    // The neutral element and another point of small order.
    for weak in [format!("01{}", "0".repeat(62)), "0".repeat(64)] {
        assert_eq!(PublicKey::parse(&weak), Err(PublicKeyError::Weak));
    }
}

#[test]
fn a_run_is_created_once_with_private_modes_and_never_replaced() {
    let home = tempfile::tempdir().unwrap();
    let (key, run, state) = (key(1), RunId::new(), home.path().join("p/.symbiont"));
    let files = RunFiles::create(&state, run, "operator", &key).unwrap();
    let _ = files.journal().record(started()).unwrap();
    let path = files.path().to_owned();
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    let before = fs::read(&path).unwrap();
    let error = RunFiles::create(&state, run, "operator", &key).unwrap_err();
    assert!(
        error.to_string().contains("a run id is used once"),
        "{error}"
    );
    drop(files);
    assert!(
        RunFiles::create(&state, run, "operator", &key).is_err(),
        "also after its end"
    );
    assert_eq!(fs::read(&path).unwrap(), before);
    chmod(&runs_folder(&state), 0o770);
    let error = RunFiles::create(&state, RunId::new(), "operator", &key).unwrap_err();
    assert!(error.to_string().contains("has mode 0770"), "{error}");
}

#[test]
fn a_journal_that_was_changed_from_outside_takes_no_more_records() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 6] = [
        ("appended to", |path| {
            use std::io::Write;
            fs::OpenOptions::new()
                .append(true)
                .open(path)
                .unwrap()
                .write_all(b"x")
                .unwrap();
        }),
        ("cut", |path| {
            fs::OpenOptions::new()
                .write(true)
                .open(path)
                .unwrap()
                .set_len(9)
                .unwrap()
        }),
        ("overwritten", |path| {
            use std::os::unix::fs::FileExt;
            let file = fs::OpenOptions::new().write(true).open(path).unwrap();
            file.write_at(b"X", 10).unwrap();
        }),
        ("deleted", |path| fs::remove_file(path).unwrap()),
        ("renamed", |path| {
            fs::rename(path, path.with_extension("old")).unwrap()
        }),
        ("opened to others", |path| chmod(path, 0o644)),
    ];
    for (what, change) in changes {
        let home = tempfile::tempdir().unwrap();
        let state = home.path().join(".symbiont");
        let files = RunFiles::create(&state, RunId::new(), "operator", &key(1)).unwrap();
        let journal = files.journal().clone();
        let _ = journal.record(started()).unwrap();
        // The kernel's clock for file times ticks every few milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(20));
        change(files.path());
        let error = journal.record(custom()).unwrap_err();
        assert!(matches!(error, JournalError::Store(_)), "{what}");
        assert!(
            matches!(journal.record(ended(false)), Err(JournalError::Failed)),
            "{what}"
        );
    }
}

#[test]
fn a_run_whose_lock_is_held_is_live_and_afterwards_it_is_not() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join(".symbiont");
    let key = key(1);
    let mut files = RunFiles::create(&state, RunId::new(), "operator", &key).unwrap();
    let path = files.path().to_owned();
    let look = || verify_file(&path, &options(&key)).unwrap();
    assert_eq!(look().verdict, Verdict::Live, "before its first record");
    let _ = files.journal().record(started()).unwrap();
    files.started().unwrap();
    let report = look();
    assert_eq!(
        (report.verdict, report.records, report.exit_code(false)),
        (Verdict::Live, 1, 5)
    );
    let _ = files.journal().record(ended(true)).unwrap();
    files.ended().unwrap();
    assert_eq!(look().verdict, Verdict::Intact);
    let blocks = fs::metadata(&path).unwrap().blocks() * 512;
    assert!(
        blocks <= 64 << 10,
        "blocks past the end were given back: {blocks}"
    );
}

#[test]
fn a_link_or_a_fifo_is_not_verified() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("j");
    fs::write(&path, small_run(&key(1), RunId::new())).unwrap();
    assert_eq!(
        verify_file(&path, &options(&key(1))).unwrap().verdict,
        Verdict::Intact
    );
    let link = home.path().join("l");
    symlink(&path, &link).unwrap();
    assert!(verify_file(&link, &options(&key(1))).is_err());
    let fifo = home.path().join("f");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    assert!(verify_file(&fifo, &options(&key(1))).is_err());
}
