//! Snapshots and publications stream: what they hold does not grow with the files.
//!
//! The child is this test binary: its peak is its own.

use std::fs::{self, File};
use std::io::Write;
use std::process::{Command, Stdio};

use journal::ProtectedJournal;
use model::{CreateMode, RunId};

use super::fixture::*;
use crate::FileRequest;

const PEAK_BYTES_MAX: u64 = 8 << 20;
const INPUTS: usize = 32;
const INPUT_BYTES: usize = 1 << 20;
const OUTPUT_BYTES: usize = 8 << 20;

fn fill(mut file: &File, bytes: usize) {
    let chunk = [7; 64 << 10];
    for _ in 0..bytes / chunk.len() {
        file.write_all(&chunk).unwrap();
    }
}

/// The resident memory of this process, now or at its peak since it was last set back.
fn resident(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|it| it.starts_with(name)).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

/// How far the peak of `work` is above what was there before it.
fn peak_of<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = resident("VmRSS:");
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let done = work();
    (resident("VmHWM:").saturating_sub(before), done)
}

#[test]
#[ignore = "the child of the test below, which runs it"]
fn streaming_child() {
    let project = Project::new();
    let broker = project.broker();
    let mut request = FileRequest {
        max_file_bytes: OUTPUT_BYTES as u64,
        creates: [("output".to_owned(), (path("out/b"), CreateMode::File))].into(),
        ..FileRequest::default()
    };
    for n in 0..INPUTS {
        let name = format!("data/{n}");
        fill(&File::create(project.file(&name)).unwrap(), INPUT_BYTES);
        request.reads.insert(n.to_string(), path(&name));
    }
    let mut written = tempfile::tempfile().unwrap();
    fill(&written, OUTPUT_BYTES);
    let store = ProtectedJournal::create(&project.path.join("journal"), RunId::new()).unwrap();
    let (mut call, digest) = dispatched(store, RunId::new());

    let (peak, plan) = peak_of(|| broker.plan(&request).unwrap());
    assert!(peak < PEAK_BYTES_MAX, "snapshots: {peak}");
    assert_eq!(plan.inputs.len(), INPUTS);
    let target = plan.target.unwrap();
    let bytes = OUTPUT_BYTES as u64;
    let (peak, created) = peak_of(|| target.publish(&mut written, bytes, digest, &mut call));
    assert!(peak < PEAK_BYTES_MAX, "publication: {peak}");
    assert_eq!(created.unwrap().bytes, bytes);
}

#[test]
fn thirty_two_mib_of_inputs_and_an_output_of_eight_take_less_than_eight_mib_of_memory() {
    let ended = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::memory::streaming_child", "--ignored"])
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(
        ended.status.success() && said.contains("1 passed"),
        "{said}"
    );
}
