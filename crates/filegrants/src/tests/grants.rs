//! What may be read, and what becomes of it.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use model::{CreateMode, Digest};
use rustix::fs::{CWD, FileType, Mode};
use worker::limits::{FILE_BYTES_MAX, INPUTS_BYTES_MAX, INPUTS_MAX};

use super::fixture::*;
use crate::{FileRefusal, FileRequest, InputFault, Obstacle, OpenError};

fn fault(project: &Project, name: &str) -> InputFault {
    match project.broker().plan(&reads(&[name])) {
        Err(FileRefusal::Input { path, fault }) => {
            assert_eq!(path.as_str(), name);
            fault
        }
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn only_the_declared_file_is_staged_and_the_descriptor_binds_its_hash_not_its_bytes() {
    let project = Project::new();
    let plan = project.broker().plan(&reads(&["data/a.csv"])).unwrap();
    assert_eq!(plan.inputs.len(), 1);
    assert_eq!(content(&plan.inputs[&path("data/a.csv")]), b"a,b\n1,2\n");
    let grant = &plan.filesystem.read["0"];
    assert_eq!((grant.bytes, grant.sha256), (8, Digest::of(b"a,b\n1,2\n")));
    assert_eq!(plan.filesystem.max_file_bytes, LIMIT);
    assert!(plan.target.is_none());
    let descriptor = model::Canonical::of(&plan.filesystem).unwrap();
    assert!(!descriptor.as_str().contains("1,2"), "{descriptor:?}");
}

#[test]
fn a_call_without_files_holds_nothing_even_where_volumes_are_configured() {
    let project = Project::new();
    let plan = project.broker().plan(&FileRequest::default()).unwrap();
    assert_eq!(plan.filesystem, worker::Filesystem::default());
    assert!(plan.inputs.is_empty() && plan.target.is_none());
    assert!(!project.exists("out/.symbi-candidates"));
}

#[test]
fn an_input_that_changes_after_preparation_leaves_the_snapshot_as_it_was() {
    let project = Project::new();
    let plan = project.broker().plan(&reads(&["data/a.csv"])).unwrap();
    project.write("data/a.csv", b"changed");
    fs::remove_file(project.file("data/a.csv")).unwrap();
    let snapshot = &plan.inputs[&path("data/a.csv")];
    assert_eq!(content(snapshot), b"a,b\n1,2\n");
    assert_eq!(
        Digest::of(&content(snapshot)),
        plan.filesystem.read["0"].sha256
    );
}

#[test]
fn a_snapshot_has_no_write_bits_no_name_and_no_writable_handle() {
    let project = Project::new();
    let plan = project.broker().plan(&reads(&["data/a.csv"])).unwrap();
    let mut snapshot = &plan.inputs[&path("data/a.csv")];
    let stat = snapshot.metadata().unwrap();
    assert_eq!((stat.mode() & 0o222, stat.nlink()), (0, 0));
    assert_eq!(snapshot.write(b"x").unwrap_err().raw_os_error(), Some(9));
    assert_eq!(project.staged(), 1, "nothing but the call's charge");
}

#[test]
fn dropping_a_plan_or_refusing_a_call_frees_every_staged_byte() {
    let project = Project::new();
    let broker = project.broker();
    // Other tests of this process have descriptors of their own.
    let held = || {
        let links = fs::read_dir("/proc/self/fd")
            .unwrap()
            .map(|it| it.unwrap().path());
        let names = links.filter_map(|link| fs::read_link(link).ok());
        names.filter(|name| name.starts_with(&project.path)).count()
    };
    let before = held();
    drop(
        broker
            .plan(&reads(&["data/a.csv", "data/neighbour"]))
            .unwrap(),
    );
    let mut request = reads(&["data/a.csv"]);
    request.creates = creates("out/missing/b.csv").creates;
    broker.plan(&request).unwrap_err();
    assert_eq!((held(), project.staged()), (before, 0));
}

#[test]
fn links_folders_fifos_sockets_and_devices_are_no_inputs_and_nothing_waits_for_them() {
    let project = Project::new();
    symlink("a.csv", project.file("data/link")).unwrap();
    symlink("nowhere", project.file("data/dangling")).unwrap();
    symlink("../data", project.file("data/parent")).unwrap();
    fs::create_dir(project.file("data/folder")).unwrap();
    let fifo = project.file("data/fifo");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(project.file("data/socket")).unwrap();
    for name in ["data/link", "data/dangling", "data/parent/a.csv"] {
        let fault = fault(&project, name);
        let link = match &fault {
            InputFault::Unreachable(Obstacle::Link { component }) => component.clone(),
            other => panic!("{name}: {other:?}"),
        };
        assert!(name.contains(&link), "{link}");
    }
    for name in ["data/folder", "data/fifo", "data/socket"] {
        assert!(
            matches!(fault(&project, name), InputFault::NotRegular { .. }),
            "{name}"
        );
    }
}

#[test]
fn a_link_on_the_way_is_named_by_the_component_that_it_stands_at() {
    let project = Project::new();
    fs::create_dir_all(project.file("data/one/two")).unwrap();
    symlink("two", project.file("data/one/three")).unwrap();
    project.write("data/one/two/x", b"x");
    let (_, text) = refusal(project.broker().plan(&reads(&["data/one/three/x"])));
    assert!(
        text.contains("`data/one/three` is a symbolic link"),
        "{text}"
    );
    let (_, text) = refusal(project.broker().plan(&reads(&["data/a.csv/x"])));
    assert!(
        text.contains("`data/a.csv` is a file, not a folder"),
        "{text}"
    );
    let (_, text) = refusal(project.broker().plan(&reads(&["data/none/x"])));
    assert!(text.contains("`data/none` does not exist"), "{text}");
}

#[test]
fn a_second_hard_link_is_refused_with_its_reason_and_remedy() {
    let project = Project::new();
    fs::hard_link(project.file("symbiont.toml"), project.file("data/innocent")).unwrap();
    let (refusal, text) = refusal(project.broker().plan(&reads(&["data/innocent"])));
    assert!(matches!(
        refusal,
        FileRefusal::Input {
            fault: InputFault::HardLinks { links: 2 },
            ..
        }
    ));
    assert!(
        text.contains("2 hard links") && text.contains("make a copy (`cp`)"),
        "{text}"
    );
}

#[test]
fn control_names_are_unavailable_at_any_depth_of_a_read_only_volume() {
    let project = Project::new();
    fs::create_dir_all(project.file("data/deep/.git")).unwrap();
    project.write("data/deep/.git/config", b"x");
    for name in [
        "all/symbiont.toml",
        "all/tools/x.clad.toml",
        "all/SYMBIONT.toml",
        "all/data/deep/.git/config",
        "data/deep/.git/config",
        "all/out/.symbi-candidates/x",
        "all/.symbiont/id",
        "all/policies/x",
        "all/scope/scope.toml",
        "all/toolclad.toml",
        "all/mcp-config.toml",
    ] {
        let (refusal, text) = refusal(project.broker().plan(&reads(&[name])));
        assert!(matches!(refusal, FileRefusal::Reserved { .. }), "{text}");
    }
    assert!(project.broker().plan(&reads(&["all/data/a.csv"])).is_ok());
}

#[test]
fn a_path_outside_every_volume_and_a_volume_itself_are_refused() {
    let project = Project::new();
    let broker = project.broker();
    let (refused, _) = refusal(broker.plan(&reads(&["elsewhere/a.csv"])));
    assert!(matches!(refused, FileRefusal::OutsideCeilings { .. }));
    let (refused, _) = refusal(broker.plan(&reads(&["database"])));
    assert!(matches!(refused, FileRefusal::OutsideCeilings { .. }));
    let (refused, _) = refusal(broker.plan(&reads(&["data"])));
    assert!(matches!(refused, FileRefusal::CeilingItself { .. }));
}

#[test]
fn a_volume_that_was_replaced_since_it_was_opened_grants_nothing() {
    let project = Project::new();
    let broker = project.broker();
    fs::rename(project.file("data"), project.file("moved")).unwrap();
    fs::create_dir(project.file("data")).unwrap();
    project.write("data/a.csv", b"another");
    let (refused, text) = refusal(broker.plan(&reads(&["data/a.csv"])));
    assert!(
        matches!(refused, FileRefusal::CeilingReplaced { .. }),
        "{text}"
    );
    let refused = broker.plan(&reads(&["all/data/a.csv"]));
    assert!(refused.is_ok(), "the other volume is in its place");
}

#[test]
fn the_deepest_matching_volume_decides() {
    let project = Project::new();
    fs::create_dir(project.file("other")).unwrap();
    project.write("other/a.csv", b"the deeper one");
    let volumes = [
        "./data:/workspace/x:ro",
        "./other:/workspace/x/y:ro",
        "./out:/workspace:rw",
    ];
    let broker = project.open(&volumes).unwrap();
    let plan = broker.plan(&reads(&["x/y/a.csv", "x/a.csv"])).unwrap();
    assert_eq!(content(&plan.inputs[&path("x/y/a.csv")]), b"the deeper one");
    assert_eq!(content(&plan.inputs[&path("x/a.csv")]), b"a,b\n1,2\n");
    let (refused, text) = refusal(broker.plan(&creates("x/new")));
    assert!(matches!(refused, FileRefusal::Output { .. }), "{text}");
    assert!(text.contains("read-only"), "{text}");
}

#[test]
fn limits_of_number_size_and_total_hold_at_the_bound_and_one_past() {
    let project = Project::new();
    let broker = project.broker();
    let names: Vec<String> = (0..=INPUTS_MAX).map(|n| format!("data/f{n:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for name in &names {
        File::create(project.file(name))
            .unwrap()
            .set_len(LIMIT)
            .unwrap();
    }
    assert_eq!(LIMIT * INPUTS_MAX as u64, INPUTS_BYTES_MAX);
    let plan = broker.plan(&reads(&names[..INPUTS_MAX])).unwrap();
    assert_eq!(plan.inputs.len(), INPUTS_MAX);
    let (refused, _) = refusal(broker.plan(&reads(&names)));
    assert!(matches!(
        refused,
        FileRefusal::TooManyInputs { count: 33, max: 32 }
    ));

    File::create(project.file(names[0]))
        .unwrap()
        .set_len(LIMIT + 1)
        .unwrap();
    assert!(matches!(
        fault(&project, names[0]),
        InputFault::TooLarge { .. }
    ));
    let mut request = reads(&names[..INPUTS_MAX]);
    request.max_file_bytes = LIMIT + 1;
    let (refused, _) = refusal(broker.plan(&request));
    assert!(matches!(refused, FileRefusal::TotalTooLarge { .. }));
}

#[test]
fn a_file_limit_is_from_one_byte_to_its_maximum() {
    let project = Project::new();
    project.write("data/one", b"1");
    let plan = |max_file_bytes| {
        project.broker().plan(&FileRequest {
            max_file_bytes,
            ..reads(&["data/one"])
        })
    };
    assert!(plan(1).is_ok() && plan(FILE_BYTES_MAX).is_ok());
    for bad in [0, FILE_BYTES_MAX + 1] {
        assert!(
            matches!(plan(bad), Err(FileRefusal::FileLimit { .. })),
            "{bad}"
        );
    }
}

#[test]
fn a_duplicate_grant_is_refused_also_across_input_and_output() {
    let project = Project::new();
    let broker = project.broker();
    let (refused, _) = refusal(broker.plan(&reads(&["data/a.csv", "data/a.csv"])));
    assert!(matches!(refused, FileRefusal::Duplicate { .. }));
    let mut request = reads(&["out/b.csv"]);
    request.creates = creates("out/b.csv").creates;
    let (refused, _) = refusal(broker.plan(&request));
    assert!(matches!(refused, FileRefusal::Duplicate { .. }));
    let mut request = creates("out/b.csv");
    request
        .creates
        .insert("second".into(), (path("out/c.csv"), CreateMode::File));
    let (refused, _) = refusal(broker.plan(&request));
    assert!(matches!(
        refused,
        FileRefusal::TooManyOutputs { count: 2, max: 1 }
    ));
}

#[test]
fn an_unreadable_input_is_refused_for_an_ordinary_user() {
    if rustix::process::geteuid().is_root() {
        return; // root may read all
    }
    let project = Project::new();
    fs::set_permissions(project.file("data/a.csv"), Permissions::from_mode(0o000)).unwrap();
    let fault = fault(&project, "data/a.csv");
    assert!(
        matches!(
            fault,
            InputFault::Unreachable(Obstacle::NotPermitted { .. })
        ),
        "{fault}"
    );
}

#[test]
fn volumes_whose_folder_is_missing_a_link_or_a_file_are_not_opened() {
    let project = Project::new();
    symlink("data", project.file("link")).unwrap();
    for (host, wanted) in [
        ("./none", "folder `./none` does not exist"),
        ("./link", "folder `./link` is a symbolic link"),
        ("./data/a.csv", "folder `./data/a.csv` is a file"),
        ("/none", "folder `/none` does not exist"),
    ] {
        let error = project
            .open(&[&format!("{host}:/workspace/x:ro")])
            .unwrap_err();
        assert!(error.to_string().contains(wanted), "{host}: {error}");
    }
    symlink("/proc", project.file("kernel")).unwrap();
    assert!(project.open(&["./kernel:/workspace/x:ro"]).is_err());
}

#[test]
fn a_writable_volume_never_contains_control_files_or_the_project() {
    let project = Project::new();
    let all = format!("{}:/workspace/x:rw", project.path.join("project").display());
    assert!(matches!(
        project.open(&[&all]),
        Err(OpenError::WritableProject { .. })
    ));
    let above = format!("{}:/workspace/x:rw", project.path.display());
    assert!(matches!(
        project.open(&[&above]),
        Err(OpenError::WritableProject { .. })
    ));
    fs::create_dir_all(project.file("sub/.git")).unwrap();
    let error = project.open(&["./sub:/workspace/x:rw"]).unwrap_err();
    assert!(error.to_string().contains("`.git`"), "{error}");
    assert!(project.open(&["./sub:/workspace/x:ro"]).is_ok());
}

#[test]
fn an_absolute_path_into_a_control_folder_of_the_project_is_no_volume() {
    let project = Project::new();
    let inside = |name: &str| {
        format!(
            "{}:/workspace/x:ro",
            project.path.join("project").join(name).display()
        )
    };
    assert!(matches!(
        project.open(&[&inside("tools")]),
        Err(OpenError::Control { .. })
    ));
    assert!(project.open(&[&inside("data")]).is_ok());
}

#[test]
fn a_staging_folder_is_made_private_and_refused_where_others_can_see_it() {
    let project = Project::new();
    let staging = project.path.join("staging");
    fs::set_permissions(&staging, Permissions::from_mode(0o750)).unwrap();
    let error = project.open(&VOLUMES).unwrap_err();
    assert!(error.to_string().contains("0750"), "{error}");
    fs::remove_dir(&staging).unwrap();
    project.open(&VOLUMES).unwrap();
    assert_eq!(fs::metadata(&staging).unwrap().mode() & 0o777, 0o700);
    fs::remove_dir(&staging).unwrap();
    symlink(project.file("data"), &staging).unwrap();
    assert!(matches!(
        project.open(&VOLUMES),
        Err(OpenError::Staging { .. })
    ));
}

#[test]
fn a_plan_and_a_broker_can_go_to_the_sessions_thread() {
    fn goes<T: Send>() {}
    goes::<crate::FileBroker>();
    goes::<crate::FileAccessPlan>();
    goes::<crate::PublishFailure>();
}

#[test]
fn names_are_kept_byte_for_byte_and_two_normal_forms_are_two_files() {
    let project = Project::new();
    let (composed, decomposed) = ("data/caf\u{e9}", "data/cafe\u{301}");
    project.write(composed, b"composed");
    project.write(decomposed, b"decomposed");
    let plan = project
        .broker()
        .plan(&reads(&[composed, decomposed]))
        .unwrap();
    assert_eq!(content(&plan.inputs[&path(composed)]), b"composed");
    assert_eq!(content(&plan.inputs[&path(decomposed)]), b"decomposed");
    project.write("out/caf\u{e9}", b"theirs");
    let target = project.target("out/cafe\u{301}");
    let (mut call, digest) = dispatched(Store::default(), model::RunId::new());
    target
        .publish(&mut output(b"new"), 3, digest, &mut call)
        .unwrap();
    assert_eq!(project.read("out/cafe\u{301}"), b"new");
    assert_eq!(project.read("out/caf\u{e9}"), b"theirs");
}
