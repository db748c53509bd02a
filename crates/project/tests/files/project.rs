//! Finding, owning and reading a project.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::support::{Home, chmod, give_away, is_root};
use model::Digest;
use project::{CONFIG_FILE, Project, ProjectError, SearchEnd, Surface, UnsafeReason, limits};

fn unsafe_reasons(result: Result<Project, ProjectError>) -> Vec<(String, UnsafeReason)> {
    match result {
        Err(ProjectError::Unsafe(places)) => places
            .into_iter()
            .map(|place| {
                let name = place
                    .path
                    .file_name()
                    .unwrap()
                    .to_string_lossy()
                    .into_owned();
                (name, place.reason)
            })
            .collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_project_is_found_from_any_folder_below_it() {
    let home = Home::with_project();
    let below = home.project().join("data");
    let project = Project::find(&below).unwrap();
    assert_eq!(project.path(), home.project());
    let held = rustix::fs::fstat(project.dir()).unwrap();
    let seen = rustix::fs::stat(home.project()).unwrap();
    assert_eq!((held.st_dev, held.st_ino), (seen.st_dev, seen.st_ino));
}

#[test]
fn the_nearest_project_wins() {
    let home = Home::with_project();
    let inner = home.project().join("data");
    fs::write(inner.join(CONFIG_FILE), "").unwrap();
    chmod(&inner.join(CONFIG_FILE), 0o644);
    assert_eq!(Project::find(&inner).unwrap().path(), inner);
}

#[test]
fn a_link_to_a_project_is_resolved_before_anything_is_checked() {
    let home = Home::with_project();
    let link = home.root.join("link");
    symlink(home.project(), &link).unwrap();
    assert_eq!(Project::open(&link).unwrap().path(), home.project());
}

#[test]
fn the_search_stops_at_a_folder_that_everybody_can_write() {
    let home = Home::new();
    let shared = home.root.join("shared");
    fs::create_dir_all(shared.join("mine")).unwrap();
    chmod(&shared, 0o1777);
    fs::write(shared.join(CONFIG_FILE), "").unwrap();
    match Project::find(&shared.join("mine")) {
        Err(ProjectError::NotFound {
            stopped: Some(SearchEnd::Shared { folder }),
            ..
        }) => assert_eq!(folder, shared),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_search_stops_at_another_owners_folder() {
    let home = Home::with_project();
    let theirs = home.project().join("theirs");
    fs::create_dir_all(theirs.join("below")).unwrap();
    if !give_away(&theirs) {
        return;
    }
    match Project::find(&theirs.join("below")) {
        Err(ProjectError::NotFound {
            stopped: Some(SearchEnd::Owner { folder, uid: 1001 }),
            ..
        }) => assert_eq!(folder, theirs),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sticky_ancestor_is_fine_and_a_plainly_shared_one_is_not() {
    let home = Home::with_project();
    chmod(&home.root, 0o1777);
    assert!(Project::open(&home.project()).is_ok());
    chmod(&home.root, 0o777);
    let reasons = unsafe_reasons(Project::open(&home.project()));
    assert_eq!(reasons.len(), 1);
    assert_eq!(reasons[0].1, UnsafeReason::Writable { mode: 0o777 });
    chmod(&home.root, 0o700);
}

#[test]
fn a_sticky_project_folder_is_still_shared() {
    let home = Home::with_project();
    chmod(&home.project(), 0o1777);
    let reasons = unsafe_reasons(Project::open(&home.project()));
    assert_eq!(
        reasons,
        [("p".to_owned(), UnsafeReason::Writable { mode: 0o1777 })]
    );
}

#[test]
fn every_control_file_and_folder_that_others_can_write_is_named_at_once() {
    let home = Home::with_project();
    chmod(&home.project().join("symbiont.toml"), 0o664);
    chmod(&home.project().join("policies/call"), 0o775);
    chmod(&home.project().join("tools/copy_csv.clad.toml"), 0o646);
    let names: Vec<String> = unsafe_reasons(Project::open(&home.project()))
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["symbiont.toml", "copy_csv.clad.toml", "call"]);
}

#[test]
fn control_files_of_another_owner_are_refused() {
    let home = Home::with_project();
    for path in ["symbiont.toml", "tools", "policies/call/copy.cedar"] {
        let path = home.project().join(path);
        if !give_away(&path) {
            return;
        }
        let reasons = unsafe_reasons(Project::open(&home.project()));
        assert_eq!(reasons.len(), 1, "{path:?}");
        assert!(matches!(
            reasons[0].1,
            UnsafeReason::Owner { uid: 1001, .. }
        ));
        std::os::unix::fs::lchown(&path, Some(0), Some(0)).unwrap();
    }
    assert!(Project::open(&home.project()).is_ok());
}

#[test]
fn a_project_below_another_owners_folder_is_refused() {
    let home = Home::with_project();
    if !give_away(&home.root) {
        return;
    }
    let reasons = unsafe_reasons(Project::open(&home.project()));
    assert!(matches!(
        reasons[0].1,
        UnsafeReason::Owner { uid: 1001, .. }
    ));
}

#[test]
fn linked_control_files_and_folders_are_refused() {
    for path in [
        "symbiont.toml",
        "tools",
        "tools/copy_csv.clad.toml",
        "policies",
        "policies/call/copy.cedar",
    ] {
        let home = Home::with_project();
        let place = home.project().join(path);
        let real = home.root.join("real");
        fs::rename(&place, &real).unwrap();
        symlink(&real, &place).unwrap();
        let reasons = unsafe_reasons(Project::open(&home.project()));
        assert_eq!(reasons.len(), 1, "{path}");
        assert_eq!(reasons[0].1, UnsafeReason::Link, "{path}");
    }
}

#[test]
fn a_linked_folder_of_a_surface_is_not_silently_left_out() {
    let home = Home::with_project();
    let real = home.root.join("real");
    fs::rename(home.project().join("policies/call"), &real).unwrap();
    symlink(&real, home.project().join("policies/call")).unwrap();
    let reasons = unsafe_reasons(Project::open(&home.project()));
    assert_eq!(reasons, [("call".to_owned(), UnsafeReason::Link)]);
}

#[test]
fn special_files_are_refused_without_waiting_for_them() {
    let home = Home::with_project();
    let place = home.project().join("tools/pipe.clad.toml");
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, &place, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(home.project().join("mcp-config.toml"));
    let reasons: Vec<UnsafeReason> = unsafe_reasons(Project::open(&home.project()))
        .into_iter()
        .map(|(_, reason)| reason)
        .collect();
    assert_eq!(reasons, [UnsafeReason::NotFile, UnsafeReason::NotFile]);
}

#[test]
fn control_files_are_read_once_with_their_digests() {
    let home = Home::with_project();
    home.write("scope/scope.toml", "# scope\n");
    home.write("toolclad.toml", "");
    home.write("mcp-config.toml", "");
    home.write("policies/common.cedar", "// all\n");
    home.write("policies/mcp/one.cedar", "// mcp\n");
    home.write("policies/README.md", "not a policy");
    home.write("tools/.#copy.clad.toml", "an editor's lock");
    home.write("tools/notes.txt", "no manifest");
    let project = Project::open(&home.project()).unwrap();
    fs::write(home.project().join("symbiont.toml"), "changed").unwrap();
    let paths: Vec<&str> = project
        .control_files()
        .map(|file| file.path.as_str())
        .collect();
    assert_eq!(
        paths,
        [
            "symbiont.toml",
            "mcp-config.toml",
            "policies/call/copy.cedar",
            "policies/call/count.cedar",
            "policies/common.cedar",
            "policies/mcp/clients.cedar",
            "policies/mcp/one.cedar",
            "policies/run/agents.cedar",
            "scope/scope.toml",
            "toolclad.toml",
            "tools/copy_csv.clad.toml",
            "tools/word_count.clad.toml",
        ]
    );
    for file in project.control_files() {
        assert_eq!(file.sha256, Digest::of(file.text.as_bytes()));
    }
    assert!(project.config_text().contains("tier = \"namespace\""));
    assert_eq!(project.manifests().count(), 2);
    let of = |surface| -> Vec<&str> {
        project
            .policies(surface)
            .map(|file| file.path.as_str())
            .collect()
    };
    assert_eq!(
        of(Surface::Mcp),
        [
            "policies/common.cedar",
            "policies/mcp/clients.cedar",
            "policies/mcp/one.cedar"
        ]
    );
    assert_eq!(
        of(Surface::Run),
        ["policies/common.cedar", "policies/run/agents.cedar"]
    );
    assert_eq!(of(Surface::Call).len(), 3);
}

#[test]
fn a_policy_folder_that_no_surface_reads_is_refused() {
    let home = Home::with_project();
    home.write("policies/calls/x.cedar", "");
    let error = Project::open(&home.project()).unwrap_err().to_string();
    assert!(error.contains("`policies/calls`"), "{error}");
    assert!(error.contains("did you mean `policies/call`?"), "{error}");
    fs::remove_dir_all(home.project().join("policies/calls")).unwrap();
    home.write("policies/call/deeper/x.cedar", "");
    let error = Project::open(&home.project()).unwrap_err().to_string();
    assert!(error.contains("`policies/call/deeper`"), "{error}");
}

#[test]
fn a_file_that_would_silently_not_count_is_refused_by_name() {
    for path in [
        "tools/UPPER.CLAD.TOML",
        "tools/x.clad.Toml",
        "tools/notes.toml",
        "tools/x.TOML",
        "policies/X.CEDAR",
        "policies/call/x.Cedar",
        "tools/x.clad.tml",
        "tools/x.clad.toml.txt",
        "tools/.x.clad.toml",
        "policies/.x.cedar",
        "policies/run/x.ceder",
    ] {
        let home = Home::with_project();
        home.write(path, "");
        let error = Project::open(&home.project()).unwrap_err().to_string();
        assert!(
            error.contains(&format!("nothing reads `{path}`")),
            "{error}"
        );
        assert!(error.contains("help: rename it"), "{error}");
    }
    let home = Home::with_project();
    home.write("tools/README.md", "");
    for left in [
        "x.clad.toml~",
        "#x.clad.toml#",
        ".x.clad.toml.swp",
        ".x.clad.toml.un~",
        ".#x.clad.toml",
        "._x.clad.toml",
        ".toml",
        "x.clad.toml.bak",
        "x.clad.toml.orig",
        "x.clad.toml.tmp",
        "notes.txt",
    ] {
        home.write(&format!("tools/{left}"), "");
    }
    home.write("policies/.git/x.cedar", "");
    home.write("tools/.git/x.clad.toml", "");
    home.write("tools/lib/README.md", "");
    assert!(Project::open(&home.project()).is_ok());
}

#[test]
fn a_folder_with_the_name_of_a_control_file_is_refused() {
    for path in ["tools/x.clad.toml", "policies/call/x.cedar"] {
        let home = Home::with_project();
        home.write(&format!("{path}/README.md"), "");
        let error = Project::open(&home.project()).unwrap_err().to_string();
        assert!(error.contains(&format!("`{path}`")), "{error}");
        assert!(error.contains("\n  help: "), "{error}");
    }
}

#[test]
fn a_manifest_in_a_folder_of_tools_is_refused_since_nothing_would_read_it() {
    for path in [
        "tools/more/x.clad.toml",
        "tools/more/X.CLAD.TOML",
        "tools/more/x.toml",
    ] {
        let home = Home::with_project();
        home.write(path, "");
        let error = Project::open(&home.project()).unwrap_err().to_string();
        assert!(
            error.contains(&format!("nothing reads `{path}`")),
            "{error}"
        );
        assert!(error.contains("help: move it to tools/"), "{error}");
    }
}

#[test]
fn a_control_file_is_read_at_its_size_limit_and_refused_past_it() {
    let home = Home::with_project();
    let max = usize::try_from(limits::CONTROL_FILE_BYTES_MAX).unwrap();
    home.write("policies/big.cedar", "/".repeat(max));
    assert!(Project::open(&home.project()).is_ok());
    home.write("policies/big.cedar", "/".repeat(max + 1));
    let error = Project::open(&home.project()).unwrap_err().to_string();
    assert!(
        error.contains("has more than the 1048576 bytes allowed\n  help: shorten it"),
        "{error}"
    );
}

#[test]
fn the_number_and_the_sum_of_control_files_are_bounded() {
    let home = Home::new();
    home.write("symbiont.toml", "");
    for n in 1..limits::CONTROL_FILES_MAX {
        home.write(&format!("policies/{n}.cedar"), "");
    }
    assert!(Project::open(&home.project()).is_ok());
    home.write("policies/more.cedar", "");
    let result = Project::open(&home.project());
    assert!(matches!(
        result,
        Err(ProjectError::TooManyFiles { max: 512 })
    ));

    let home = Home::new();
    let max = usize::try_from(limits::CONTROL_FILE_BYTES_MAX).unwrap();
    home.write("symbiont.toml", "");
    for n in 0..limits::CONTROL_TOTAL_BYTES_MAX / limits::CONTROL_FILE_BYTES_MAX {
        home.write(&format!("policies/{n}.cedar"), "/".repeat(max));
    }
    assert!(Project::open(&home.project()).is_ok());
    home.write("policies/more.cedar", "/");
    let result = Project::open(&home.project());
    assert!(matches!(result, Err(ProjectError::TooManyBytes { .. })));
}

#[test]
fn a_listed_folder_is_bounded() {
    let home = Home::with_project();
    let tools = home.project().join("tools");
    for n in 2..limits::FOLDER_ENTRIES_MAX {
        fs::File::create(tools.join(n.to_string())).unwrap();
    }
    assert!(Project::open(&home.project()).is_ok());
    fs::File::create(tools.join("more")).unwrap();
    let error = Project::open(&home.project()).unwrap_err().to_string();
    assert!(
        error.contains("has more than the 8192 entries allowed\n  help: move"),
        "{error}"
    );
}

#[test]
fn text_that_is_not_utf8_is_refused_with_its_place() {
    let home = Home::with_project();
    home.write("tools/bad.clad.toml", b"[tool]\nname = \"caf\xe9\"\n");
    let error = Project::open(&home.project()).unwrap_err().to_string();
    assert!(
        error.starts_with("tools/bad.clad.toml:2:12: the byte 0xe9 is not UTF-8"),
        "{error}"
    );
}

#[test]
fn a_name_that_is_not_utf8_is_refused() {
    use std::os::unix::ffi::OsStrExt as _;
    let home = Home::with_project();
    let name = std::ffi::OsStr::from_bytes(b"x\xff.cedar");
    fs::write(home.project().join("policies").join(name), "").unwrap();
    let error = Project::open(&home.project()).unwrap_err().to_string();
    assert!(
        error.contains("holds the name `x\\xff.cedar`, which is not UTF-8"),
        "{error}"
    );
    assert!(
        error.contains("help: rename it, or move it away: mv "),
        "{error}"
    );
}

#[test]
fn a_missing_folder_and_a_file_as_project_are_errors() {
    let home = Home::with_project();
    let said = |path: &std::path::Path| Project::open(path).unwrap_err().to_string();
    let absent = said(&home.root.join("absent"));
    assert!(absent.starts_with("there is no folder `"), "{absent}");
    assert!(absent.contains("help: name a project's folder"), "{absent}");
    let file = said(&home.project().join("symbiont.toml"));
    assert!(
        file.contains("is a file, and a project is a folder"),
        "{file}"
    );
    assert!(file.contains("help: name the folder that holds"), "{file}");
    assert!(matches!(
        Project::open(&home.project().join("data")),
        Err(ProjectError::NoConfig { .. })
    ));
}

#[test]
fn messages_name_the_place_what_was_found_and_the_command() {
    let home = Home::with_project();
    let project = home.project();
    let mut shown = String::new();
    let mut add = |title: &str| {
        let error = Project::find(&project).unwrap_err();
        shown += &format!("## {title}\n{}\n\n", home.shown(error));
    };
    chmod(&project.join("symbiont.toml"), 0o664);
    chmod(&project.join("tools"), 0o777);
    add("files that others can write");
    chmod(&project.join("symbiont.toml"), 0o644);
    chmod(&project.join("tools"), 0o755);
    fs::rename(project.join("policies"), home.root.join("my policies")).unwrap();
    symlink("../my policies", project.join("policies")).unwrap();
    add("a linked folder");
    fs::remove_file(project.join("policies")).unwrap();
    fs::write(project.join("policies"), "").unwrap();
    add("a file in place of a folder");
    fs::remove_file(project.join("policies")).unwrap();
    fs::rename(project.join("symbiont.toml"), home.root.join("aside")).unwrap();
    let error = Project::open(&project).unwrap_err();
    shown += &format!("## no project\n{}\n", home.shown(error));
    insta::assert_snapshot!("ownership_messages", shown);
}

#[test]
fn the_owner_message_has_the_command_for_root() {
    if !is_root() {
        return;
    }
    let home = Home::with_project();
    assert!(give_away(&home.project().join("symbiont.toml")));
    let error = Project::open(&home.project()).unwrap_err();
    insta::assert_snapshot!("owner_message", home.shown(error));
}

#[test]
fn the_search_ends_at_the_root() {
    match Project::find(Path::new("/")) {
        Err(ProjectError::NotFound { stopped: None, .. }) => {}
        other => panic!("{other:?}"),
    }
}
