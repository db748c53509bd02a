//! Where a new file may come to be, refused before anything runs.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::fixture::*;
use crate::{FileRefusal, FolderFault, Obstacle, OutputFault};

fn fault(project: &Project, name: &str) -> (OutputFault, String) {
    match project.broker().plan(&creates(name)) {
        Err(refusal @ FileRefusal::Output { .. }) => {
            let text = refusal.to_string();
            assert!(text.contains(&format!("output `{name}`")), "{text}");
            let FileRefusal::Output { fault, .. } = refusal else {
                unreachable!()
            };
            (fault, text)
        }
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn an_output_binds_its_parents_identity_and_creates_nothing_but_the_candidate_folder() {
    let project = Project::new();
    fs::create_dir(project.file("out/sub")).unwrap();
    let plan = project.broker().plan(&creates("out/sub/b.csv")).unwrap();
    let grant = &plan.filesystem.create["output"];
    let parent = fs::metadata(project.file("out/sub")).unwrap();
    assert_eq!(grant.path, path("out/sub/b.csv"));
    assert_eq!(grant.parent.device, parent.dev().to_string());
    assert_eq!(grant.parent.inode, parent.ino().to_string());
    assert!(!project.exists("out/sub/b.csv"));
    assert_eq!(fs::read_dir(project.file("out/sub")).unwrap().count(), 0);
    let candidates = fs::metadata(project.file("out/.symbi-candidates")).unwrap();
    assert_eq!(candidates.mode() & 0o777, 0o700);
    assert!(project.candidates().is_empty());
}

#[test]
fn a_missing_parent_is_refused_by_name_and_not_created() {
    let project = Project::new();
    let (found, text) = fault(&project, "out/none/b.csv");
    assert!(
        matches!(found, OutputFault::Parent(Obstacle::Missing { .. })),
        "{text}"
    );
    assert!(!project.exists("out/none") && !project.exists("out/.symbi-candidates"));
    symlink("../data", project.file("out/link")).unwrap();
    let (found, text) = fault(&project, "out/link/b.csv");
    assert!(
        matches!(found, OutputFault::Parent(Obstacle::Link { .. })),
        "{text}"
    );
    project.write("out/file", b"");
    let (found, text) = fault(&project, "out/file/b.csv");
    assert!(
        matches!(found, OutputFault::Parent(Obstacle::NotFolder { .. })),
        "{text}"
    );
}

#[test]
fn an_output_that_exists_as_file_link_or_folder_is_refused_and_untouched() {
    let project = Project::new();
    project.write("out/file", b"first");
    symlink("nowhere", project.file("out/link")).unwrap();
    fs::create_dir(project.file("out/folder")).unwrap();
    for (name, kind) in [
        ("out/file", "a file"),
        ("out/link", "a symbolic link"),
        ("out/folder", "a folder"),
    ] {
        let (found, text) = fault(&project, name);
        assert!(
            matches!(found, OutputFault::Exists { .. }) && text.contains(kind),
            "{text}"
        );
    }
    assert_eq!(project.read("out/file"), b"first");
    assert!(!project.exists("out/.symbi-candidates"));
}

#[test]
fn a_read_only_volume_cannot_authorize_an_output() {
    let project = Project::new();
    let (found, text) = fault(&project, "data/b.csv");
    assert!(matches!(found, OutputFault::ReadOnly { .. }));
    assert!(text.contains("./data:/workspace/data:ro"), "{text}");
    assert!(!project.exists("data/.symbi-candidates"));
}

#[test]
fn reserved_names_are_no_outputs() {
    let project = Project::new();
    for name in [
        "out/tools",
        "out/.symbi-candidates/x",
        "out/.git",
        "out/symbiont.toml",
    ] {
        let (refused, text) = refusal(project.broker().plan(&creates(name)));
        assert!(matches!(refused, FileRefusal::Reserved { .. }), "{text}");
    }
}

#[test]
fn a_candidate_folder_that_is_open_to_others_or_a_link_is_refused() {
    let project = Project::new();
    let folder = project.file("out/.symbi-candidates");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    let (found, text) = fault(&project, "out/b");
    assert!(
        matches!(
            found,
            OutputFault::CandidateFolder(FolderFault::NotPrivate { .. })
        ),
        "{text}"
    );
    fs::remove_dir(&folder).unwrap();
    symlink("../data", &folder).unwrap();
    let (found, text) = fault(&project, "out/b");
    assert!(
        matches!(
            found,
            OutputFault::CandidateFolder(FolderFault::NotFolder(_))
        ),
        "{text}"
    );
}

#[test]
fn a_parent_that_the_operator_cannot_write_is_refused_for_an_ordinary_user() {
    if rustix::process::geteuid().is_root() {
        return; // root may write all
    }
    let project = Project::new();
    fs::create_dir(project.file("out/sub")).unwrap();
    fs::set_permissions(project.file("out/sub"), Permissions::from_mode(0o555)).unwrap();
    let (found, text) = fault(&project, "out/sub/b");
    assert!(matches!(found, OutputFault::ParentNotWritable(_)), "{text}");
    fs::set_permissions(project.file("out"), Permissions::from_mode(0o555)).unwrap();
    let (_, text) = fault(&project, "out/b");
    assert!(text.contains("not writable"), "{text}");
    fs::set_permissions(project.file("out"), Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn an_output_without_live_audit_authority_is_refused_before_a_worker_starts() {
    let project = Project::new();
    let plan = project.broker().plan(&creates("out/b.csv")).unwrap();
    let refused = plan.check_live_audit(false).unwrap_err();
    assert!(
        refused.to_string().contains("live audit authority"),
        "{refused}"
    );
    plan.check_live_audit(true).unwrap();
    let inputs_only = project.broker().plan(&reads(&["data/a.csv"])).unwrap();
    inputs_only.check_live_audit(false).unwrap();
}
