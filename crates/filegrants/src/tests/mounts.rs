//! File systems that refuse: other ones, read-only ones, full ones. Each test runs its child in a
//! mount namespace of its own.

use std::fs;
use std::process::Command;

use super::fixture::*;
use crate::{FileRefusal, InputFault, Obstacle, OutputFault};

/// Runs the ignored test `child` in the project's folder after `mounts` there.
fn in_mount_namespace(project: &Project, mounts: &str, child: &str) {
    let script = format!("{mounts} && exec \"$0\" --exact tests::mounts::{child} --ignored");
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-ec", &script])
        .arg(std::env::current_exe().unwrap())
        .current_dir(&project.path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
    assert_eq!(project.staged(), 0);
}

/// The project that a child was started in; `None` where it was started by hand.
fn here() -> Option<Project> {
    let here = std::env::current_dir().unwrap();
    here.join("staging").is_dir().then(|| Project::at(&here))
}

#[test]
fn an_input_on_another_file_system_is_refused_unless_it_is_a_volume_itself() {
    let project = Project::new();
    fs::create_dir(project.file("data/other")).unwrap();
    in_mount_namespace(
        &project,
        "mount -t tmpfs none project/data/other && echo x > project/data/other/x",
        "other_file_system_child",
    );
}

#[test]
#[ignore = "the child of the test above, which runs it"]
fn other_file_system_child() {
    let Some(project) = here() else { return };
    match project.broker().plan(&reads(&["data/other/x"])) {
        Err(FileRefusal::Input {
            fault: InputFault::Unreachable(Obstacle::OtherFileSystem { component }),
            ..
        }) => assert_eq!(component, "data/other"),
        other => panic!("{other:?}"),
    }
    let volume = format!("{}:/workspace/o:ro", project.file("data/other").display());
    let broker = project.open(&[&volume]).unwrap();
    assert!(broker.plan(&reads(&["o/x"])).is_ok());
    let error = project.open(&["./data/other:/workspace/o:ro"]).unwrap_err();
    assert!(error.to_string().contains("another file system"), "{error}");
}

#[test]
fn an_output_on_a_read_only_or_other_file_system_is_refused() {
    let project = Project::new();
    fs::create_dir(project.file("out/other")).unwrap();
    in_mount_namespace(
        &project,
        "mount -t tmpfs none project/out/other && mkdir project/ro && \
         mount -t tmpfs -o ro none project/ro",
        "read_only_child",
    );
}

#[test]
#[ignore = "the child of the test above, which runs it"]
fn read_only_child() {
    let Some(project) = here() else { return };
    let volume = format!("{}:/workspace/ro:rw", project.file("ro").display());
    let broker = project.open(&["./out:/workspace/out:rw", &volume]).unwrap();
    match broker.plan(&creates("ro/b.csv")) {
        Err(FileRefusal::Output {
            fault: OutputFault::ParentNotWritable(error),
            ..
        }) => {
            assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        }
        other => panic!("{other:?}"),
    }
    match broker.plan(&creates("out/other/b.csv")) {
        Err(FileRefusal::Output { fault, .. }) => assert!(
            matches!(fault, OutputFault::Parent(Obstacle::OtherFileSystem { .. })),
            "{fault}"
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_output_is_published_on_another_device_that_is_a_volume_and_refused_on_a_full_one() {
    let project = Project::new();
    in_mount_namespace(
        &project,
        "mkdir project/other project/full && mount -t tmpfs -o size=8m none project/other && \
         mount -t tmpfs -o size=512k none project/full",
        "other_device_child",
    );
}

#[test]
#[ignore = "the child of the test above, which runs it"]
fn other_device_child() {
    let Some(project) = here() else { return };
    let volume = |name| format!("{}:/workspace/{name}:rw", project.file(name).display());
    let broker = project.open(&[&volume("other"), &volume("full")]).unwrap();
    let target = broker
        .plan(&creates("other/b.csv"))
        .unwrap()
        .target
        .unwrap();
    let (mut call, digest) = dispatched(Store::default(), model::RunId::new());
    let created = target.publish(&mut output(b"new"), 3, digest, &mut call);
    assert_eq!(created.unwrap().bytes, 3);
    assert_eq!(project.read("other/b.csv"), b"new");
    let refusal = broker.plan(&creates("full/b.csv")).unwrap_err();
    assert!(refusal.is_capacity(), "{refusal}");
    assert!(
        refusal
            .to_string()
            .contains("no room for the 1048576 bytes"),
        "{refusal}"
    );
    let left = fs::read_dir(project.file("full/.symbi-candidates")).unwrap();
    assert_eq!(left.count(), 0);
}

#[test]
fn a_full_staging_folder_refuses_the_call_and_keeps_nothing() {
    let project = Project::new();
    project.write("data/large", &[7; 256 << 10]);
    in_mount_namespace(
        &project,
        "mount -t tmpfs -o size=64k,mode=0700 none staging",
        "full_staging_child",
    );
}

#[test]
#[ignore = "the child of the test above, which runs it"]
fn full_staging_child() {
    let Some(project) = here() else { return };
    let broker = project.broker();
    match broker.plan(&reads(&["data/a.csv", "data/large"])) {
        Err(FileRefusal::Input {
            fault: InputFault::StagingFull,
            path,
        }) => {
            assert_eq!(path.as_str(), "data/large");
        }
        other => panic!("{other:?}"),
    }
    let stat = rustix::fs::statvfs(project.path.join("staging")).unwrap();
    assert_eq!(stat.f_bfree, stat.f_blocks);
    assert!(broker.plan(&reads(&["data/a.csv"])).is_ok());
}

#[test]
fn a_kernel_file_system_is_no_volume_wherever_it_is_mounted() {
    let project = Project::new();
    fs::create_dir(project.file("kernel")).unwrap();
    in_mount_namespace(
        &project,
        "mount --rbind /proc project/kernel",
        "kernel_file_system_child",
    );
}

#[test]
#[ignore = "the child of the test above, which runs it"]
fn kernel_file_system_child() {
    let Some(project) = here() else { return };
    let volume = format!("{}:/workspace/k:ro", project.file("kernel").display());
    let error = project.open(&[&volume]).unwrap_err();
    assert!(
        matches!(error, crate::OpenError::KernelFileSystem { .. }),
        "{error}"
    );
}
