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
        &project.join("tools"),
        &project.join(".git"),
        &project.join("policies/run"),
        &link,
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
fn no_ceiling_reaches_the_hosts_own_places_the_users_folders_or_what_is_above_them() {
    let home = Home::with_project();
    fs::create_dir_all(home.dirs().state.join("trust")).unwrap();
    let alias = home.root.join("alias");
    symlink("/proc/self", &alias).unwrap();
    for bad in [
        Path::new("/proc"),
        Path::new("/sys/kernel"),
        Path::new("/dev/shm"),
        Path::new("/run/docker.sock"),
        Path::new("/var/run"),
        Path::new("/var/lib"),
        &alias,
        &home.root,
        &home.dirs().state,
        &home.dirs().state.join("trust"),
        &home.root.join("config"),
    ] {
        for access in ["ro", "rw"] {
            let error = check(&home, bad, access).unwrap_err();
            assert!(error.is_private, "{bad:?}: {error}");
        }
    }
}

#[test]
fn a_ceiling_that_reaches_too_far_is_named_with_its_place() {
    let home = Home::with_project();
    let config = home.project().join("symbiont.toml");
    let text = "[sandbox.namespace]\nvolumes = [\"/proc:/workspace/x:ro\"]\n";
    fs::write(&config, text).unwrap();
    let parsed = Config::parse("symbiont.toml", text).unwrap();
    let project = Project::open(&home.project()).unwrap();
    let error = project.check_ceilings(&parsed.sandbox, &home.dirs());
    let said = error.unwrap_err().to_string();
    for part in [
        "symbiont.toml:2:12",
        "`/proc`",
        "help: name a folder of data",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn no_ceiling_reaches_a_configured_engines_socket() {
    let home = Home::with_project();
    let socket = home.root.join("engine/docker.sock");
    let text = format!(
        "[sandbox]\ntier = \"docker\"\n[sandbox.docker]\nimage = \"x\"\nsocket = \"{}\"\n\
         volumes = [\"{}:/workspace/x:ro\"]\n",
        socket.display(),
        home.root.join("engine").display(),
    );
    let config = Config::parse("symbiont.toml", &text).unwrap();
    let project = Project::open(&home.project()).unwrap();
    let error = project.check_ceilings(&config.sandbox, &home.dirs());
    assert_eq!(error.unwrap_err().place, socket);
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
