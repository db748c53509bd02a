//! The folders of runs' sockets: a live one stays, a dead one goes.

use std::fs;
use std::os::unix::fs::symlink;

use model::RunId;

use crate::support::Home;

#[test]
fn a_sweep_removes_the_folders_of_dead_runs_and_nothing_else() {
    let home = Home::new();
    let dirs = home.dirs();
    let (live, dead, linked) = (RunId::new(), RunId::new(), RunId::new());
    assert_eq!(dirs.sweep_run_sockets().unwrap(), 0);
    assert!(!dirs.runtime.exists());
    let held = dirs.run_sockets(live).unwrap();
    fs::create_dir(held.path().join("channel")).unwrap();
    leave(&home, dead);
    let elsewhere = home.root.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("file"), "").unwrap();
    let channel = dirs.runtime.join(dead.to_string()).join("channel");
    fs::write(channel.join("bridge.py"), "").unwrap();
    symlink(&elsewhere, channel.join("link")).unwrap();
    symlink(&elsewhere, dirs.runtime.join(linked.to_string())).unwrap();
    fs::create_dir(dirs.runtime.join("notes")).unwrap();
    fs::write(dirs.runtime.join(format!("{live}.gate")), "").unwrap();
    // The link is a fault that does not keep the dead run's folder from being removed.
    dirs.sweep_run_sockets().unwrap_err();
    assert!(!dirs.runtime.join(dead.to_string()).exists());
    assert!(held.path().join("channel").is_dir() && elsewhere.join("file").exists());
    for name in [
        "notes".to_owned(),
        format!("{live}.gate"),
        linked.to_string(),
    ] {
        assert!(dirs.runtime.join(&name).exists(), "{name}");
    }
    let path = held.path().to_owned();
    drop(held);
    assert!(!path.exists());
}

/// What a killed run leaves: a folder without a lock.
fn leave(home: &Home, run: RunId) {
    use std::os::unix::fs::DirBuilderExt as _;
    let path = home.dirs().runtime.join(run.to_string()).join("channel");
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .unwrap();
}

#[test]
fn a_run_s_folder_belongs_to_one_process_at_a_time() {
    let home = Home::new();
    let run = RunId::new();
    let held = home.dirs().run_sockets(run).unwrap();
    home.dirs().run_sockets(run).unwrap_err();
    assert_eq!(home.dirs().sweep_run_sockets().unwrap(), 0);
    drop(held);
    home.dirs().run_sockets(run).unwrap();
}

#[test]
fn runs_that_start_while_others_sweep_keep_their_folders() {
    let home = Home::new();
    let dirs = home.dirs();
    dirs.sockets().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..200 {
                    dirs.sweep_run_sockets().unwrap();
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..100 {
                let held = dirs.run_sockets(RunId::new()).unwrap();
                fs::write(held.path().join("socket"), "").unwrap();
                assert!(held.path().join("socket").exists());
            }
        });
    });
}
