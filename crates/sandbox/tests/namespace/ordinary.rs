//! The same suite as an ordinary user.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::host::{init_path, is_root};

#[test]
fn the_whole_suite_passes_as_an_ordinary_user() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = |from: &std::path::Path, name: &str| {
        let to = folder.path().join(name);
        fs::copy(from, &to).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
        to
    };
    let suite = copy(&std::env::current_exe().unwrap(), "suite");
    let init = copy(&init_path(), "symbi-init");
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "1001", "--regid", "1001", "--clear-groups", "--"]);
    command
        .arg(suite)
        .args(["--test-threads=2", "--skip", "ordinary::"]);
    command
        .env("SYMBI_TEST_INIT", init)
        .env_remove("TMPDIR")
        .current_dir("/");
    let done = command.output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert!(text.contains("test result: ok"), "{text}");
}
