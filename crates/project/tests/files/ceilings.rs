//! Writable ceilings and what they must not reach.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use project::{CeilingError, Config, Project};

use crate::support::Home;

fn check(home: &Home, host: &Path, access: &str) -> Result<(), CeilingError> {
    let volume = format!("{}:/workspace/x:{access}", host.display());
    let text = format!("[sandbox.namespace]\nvolumes = [\"{volume}\"]\n");
    let config = Config::parse("symbiont.toml", &text).unwrap();
    let project = Project::open(&home.project()).unwrap();
    project.check_ceilings(&config.sandbox, &home.dirs())
}

#[test]
fn a_writable_ceiling_never_reaches_control_files_or_the_users_folders() {
    let home = Home::with_project();
    let project = home.project();
    fs::create_dir_all(home.dirs().state.join("trust")).unwrap();
    let link = home.root.join("link");
    symlink(project.join("policies/run"), &link).unwrap();
    for bad in [
        &project,
        &home.root,
        &project.join("tools"),
        &project.join(".git"),
        &project.join("policies/run"),
        &link,
        &home.dirs().state,
        &home.dirs().state.join("trust"),
        &home.root.join("config"),
    ] {
        assert!(check(&home, bad, "rw").is_err(), "{bad:?}");
        assert_eq!(check(&home, bad, "ro"), Ok(()), "{bad:?}");
    }
    for good in [
        &project.join("out"),
        &project.join("toolsmith"),
        &home.root.join("elsewhere"),
    ] {
        assert_eq!(check(&home, good, "rw"), Ok(()), "{good:?}");
    }
}

#[test]
fn the_scaffold_passes_its_own_check() {
    let home = Home::with_project();
    let project = Project::open(&home.project()).unwrap();
    let config = Config::parse("symbiont.toml", project.config_text()).unwrap();
    assert_eq!(
        project.check_ceilings(&config.sandbox, &home.dirs()),
        Ok(())
    );
}
