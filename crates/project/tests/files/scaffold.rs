//! What `symbi init` writes.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{Home, chmod};
use project::{
    Config, Project, ScaffoldError, Surface, Trust, TrustStatus, VolumeAccess, scaffold,
};

#[test]
fn a_new_project_opens_parses_and_can_be_trusted() {
    let home = Home::new();
    let dir = home.root.join("new");
    let files = scaffold(&dir).unwrap();
    assert!(files.iter().all(|file| dir.join(file).is_file()));
    assert!(dir.join("out").is_dir());
    let project = Project::open(&dir).unwrap();
    let config = Config::parse("symbiont.toml", project.config_text()).unwrap();
    let volumes = config.sandbox.volumes();
    assert_eq!(volumes[0].access, VolumeAccess::ReadOnly);
    assert_eq!(volumes[0].host.resolve(project.path()), dir.join("data"));
    assert_eq!(volumes[1].access, VolumeAccess::ReadWrite);
    assert_eq!(volumes[1].host.resolve(project.path()), dir.join("out"));
    assert_eq!(project.manifests().count(), 2);
    assert_eq!(project.policies(Surface::Call).count(), 2);
    assert_eq!(project.policies(Surface::Run).count(), 1);
    Trust::grant(&project, &home.dirs(), None).unwrap();
    let status = Trust::status(&project, &home.dirs()).unwrap();
    assert!(matches!(status, TrustStatus::Trusted { .. }));
}

#[test]
fn the_commented_agent_parses_when_its_marks_are_removed() {
    let home = Home::with_project();
    let text = fs::read_to_string(home.project().join("symbiont.toml")).unwrap();
    let at = text.find("# [agents.helper]").unwrap();
    let (before, agent) = text.split_at(at);
    let agent: Vec<&str> = agent
        .lines()
        .map(|line| line.trim_start_matches("# "))
        .collect();
    let config = Config::parse("symbiont.toml", &format!("{before}{}", agent.join("\n"))).unwrap();
    assert_eq!(config.agents.len(), 1);
}

#[test]
fn nothing_is_overwritten_and_nothing_is_left_behind() {
    let home = Home::new();
    home.write("tools/copy_csv.clad.toml", "mine");
    symlink("nowhere", home.project().join("symbiont.toml")).unwrap();
    match scaffold(&home.project()) {
        Err(ScaffoldError::Exists { names, .. }) => {
            assert_eq!(names, ["tools/copy_csv.clad.toml", "symbiont.toml"]);
        }
        other => panic!("{other:?}"),
    }
    let text = fs::read_to_string(home.project().join("tools/copy_csv.clad.toml")).unwrap();
    assert_eq!(text, "mine");
    let left: Vec<_> = fs::read_dir(home.project()).unwrap().collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn an_existing_folder_with_other_files_becomes_a_project() {
    let home = Home::new();
    home.write("data/own.csv", "x\n");
    home.write("README.md", "mine");
    scaffold(&home.project()).unwrap();
    assert!(Project::open(&home.project()).is_ok());
    assert!(home.project().join("data/own.csv").exists());
}

#[test]
fn a_failure_in_the_middle_removes_what_was_written() {
    let home = Home::new();
    // A file where the last folder should be: making `out` finds it, opening it fails.
    home.write("policies", "a file");
    assert!(scaffold(&home.project()).is_err());
    let left: Vec<_> = fs::read_dir(home.project())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["policies"]);
}

#[test]
fn a_folder_that_others_can_write_gets_no_project() {
    let home = Home::new();
    chmod(&home.project(), 0o777);
    let error = scaffold(&home.project()).unwrap_err().to_string();
    assert!(error.contains("chmod go-w"), "{error}");
    assert_eq!(fs::read_dir(home.project()).unwrap().count(), 0);
}

#[test]
fn a_missing_parent_is_an_error() {
    let home = Home::new();
    let error = scaffold(&home.root.join("a/b")).unwrap_err();
    assert!(
        error.to_string().starts_with("cannot make the folder"),
        "{error}"
    );
}
