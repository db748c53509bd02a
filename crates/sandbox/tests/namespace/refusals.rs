//! Hosts that cannot run the tier: each says why and what to do.

use std::process::Command;

use sandbox::NamespaceTier;

use crate::host::{config, init_path, is_root};

/// Not a test of its own: says what the tier says where it runs.
#[test]
#[ignore = "the child of the test below, which runs it"]
fn probe_here() {
    let outcome = NamespaceTier::new(config()).and_then(|mut tier| tier.probe());
    match outcome {
        Ok(()) => println!("VERDICT works"),
        Err(error) => println!("VERDICT {error}"),
    }
}

/// What `probe_here` says after the shell commands `before`, in what `unshare` makes.
fn verdict(unshare: &[&str], before: &str) -> String {
    let me = std::env::current_exe().unwrap();
    let script = format!(
        "{before}\nexec {} --exact refusals::probe_here --ignored --nocapture",
        me.display()
    );
    let mut command = Command::new("unshare");
    command.args(unshare).args(["sh", "-ec", &script]);
    let done = command
        .env("SYMBI_TEST_INIT", init_path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let line = text.lines().find_map(|line| line.split_once("VERDICT "));
    let error = String::from_utf8_lossy(&done.stderr).into_owned();
    line.map_or_else(
        || panic!("{text}{error}"),
        |(_, verdict)| verdict.to_owned(),
    )
}

fn check(verdict: &str, parts: &[&str]) {
    assert!(
        verdict.starts_with("isolation is not available"),
        "{verdict}"
    );
    for part in parts {
        assert!(verdict.contains(part), "{verdict}");
    }
}

#[test]
fn this_host_works() {
    assert_eq!(verdict(&["--fork"], ""), "works");
}

#[test]
fn root_of_a_namespace_without_the_range_is_told_which_ids_are_missing() {
    let verdict = verdict(&["--user", "--map-root-user"], "");
    check(&verdict, &["2000000000", "ordinary user"]);
}

#[test]
fn forbidden_user_namespaces_name_the_setting() {
    // The setting is the new namespace's own; the host's is untouched.
    let forbid = "echo 0 > /proc/sys/user/max_user_namespaces";
    check(
        &verdict(&["--user", "--map-root-user"], forbid),
        &["user.max_user_namespaces", "sysctl"],
    );
}

#[test]
fn a_covered_proc_is_named() {
    if !is_root() {
        return;
    }
    let cover = "mount -t tmpfs none /proc/fs";
    check(
        &verdict(&["--mount"], cover),
        &["/proc has mounts over it", "another tier"],
    );
}

#[test]
fn a_read_only_proc_is_named() {
    if !is_root() {
        return;
    }
    let freeze = "mount -o remount,bind,ro /proc";
    check(&verdict(&["--mount"], freeze), &["/proc is read-only"]);
}

#[test]
fn a_chroot_is_named() {
    if !is_root() {
        return;
    }
    // Bound, so that the new root is another one than the old.
    let me = std::env::current_exe().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().display();
    let script = format!(
        "mount --rbind / {root}\nexec chroot {root} {} --exact refusals::probe_here --ignored \\
         --nocapture",
        me.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-ec", &script]);
    let done = command
        .env("SYMBI_TEST_INIT", init_path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let (_, verdict) = text
        .split_once("VERDICT ")
        .unwrap_or_else(|| panic!("{done:?}"));
    check(verdict, &["chroot"]);
}
