//! Time of snapshots and of a publication: medians of whole operations, each beside a floor that
//! does the same work without us, in one loop.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a program for developers"
)]

use std::fs::{self, DirBuilder, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use filegrants::{Ceilings, FileBroker, FileRequest};
use journal::{
    CallDispatching, CallJournal, Client, Journal, ProjectKey, ProtectedJournal, RunStarted,
};
use model::{CallId, Canonical, CreateMode, Digest, RelativePath, RunId, ToolName};

const ROUNDS: usize = 15;
const INPUTS: usize = 32;
const INPUT_BYTES: usize = 1 << 20;
const OUTPUT_BYTES: usize = 8 << 20;

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let project = folder.path();
    for name in ["data", "out", "copies"] {
        fs::create_dir(project.join(name)).unwrap();
    }
    let staging = project.join("staging");
    DirBuilder::new().mode(0o700).create(&staging).unwrap();
    let volumes = [
        "./data:/workspace/data:ro".to_owned(),
        "./out:/workspace/out:rw".to_owned(),
    ];
    let ceilings = Ceilings::parse(&volumes, "/workspace").unwrap();
    let handle = OwnedFd::from(File::open(project).unwrap());
    let broker = FileBroker::open(handle, &staging, ceilings).unwrap();
    snapshots(project, &broker);
    publications(project, &broker);
}

fn snapshots(project: &Path, broker: &FileBroker) {
    let mut request = FileRequest {
        max_file_bytes: INPUT_BYTES as u64,
        ..FileRequest::default()
    };
    for n in 0..INPUTS {
        let bytes: Vec<u8> = (0..INPUT_BYTES).map(|at| (at * 31 + n) as u8).collect();
        fs::write(project.join(format!("data/{n:02}")), bytes).unwrap();
        request.reads.insert(
            n.to_string(),
            RelativePath::new(format!("data/{n:02}")).unwrap(),
        );
    }
    let (mut ours, mut floor, mut one) = (Vec::new(), Vec::new(), Vec::new());
    let mut single = request.clone();
    single.reads.retain(|key, _| key == "0");
    for _ in 0..ROUNDS {
        ours.push(timed(|| drop(broker.plan(&request).expect("a plan"))));
        one.push(timed(|| drop(broker.plan(&single).expect("a plan"))));
        floor.push(timed(|| {
            let script = "cp data/* copies && sha256sum copies/* && rm copies/*";
            let status = Command::new("sh")
                .args(["-ec", script])
                .current_dir(project)
                .stdout(Stdio::null())
                .status();
            assert!(status.unwrap().success());
        }));
    }
    println!("snapshot of 32 files of 1 MiB   {:>8.2} ms", median(ours));
    println!("cp, sha256sum and rm of them    {:>8.2} ms", median(floor));
    println!("snapshot of 1 file of 1 MiB     {:>8.2} ms", median(one));
}

fn publications(project: &Path, broker: &FileBroker) {
    let bytes = vec![7; OUTPUT_BYTES];
    let mut output = tempfile::tempfile().unwrap();
    output.write_all(&bytes).unwrap();
    let (mut place, mut ours, mut floor) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..ROUNDS {
        let path = RelativePath::new(format!("out/{n}")).unwrap();
        let creates = [("output".to_owned(), (path, CreateMode::File))].into();
        let request = FileRequest {
            creates,
            max_file_bytes: OUTPUT_BYTES as u64,
            ..FileRequest::default()
        };
        let mut plan = None;
        place.push(timed(|| {
            plan = Some(broker.plan(&request).expect("a plan"))
        }));
        let target = plan.and_then(|plan| plan.target).unwrap();
        let (mut call, digest) = dispatched(project);
        ours.push(timed(|| {
            target
                .publish(&mut output, OUTPUT_BYTES as u64, digest, &mut call)
                .map(drop)
                .expect("a publication");
        }));
        let copy = project.join(format!("copies/{n}"));
        floor.push(timed(|| {
            let mut file = File::create(&copy).unwrap();
            file.write_all(&bytes).unwrap();
            file.sync_all().unwrap();
            fs::rename(&copy, copy.with_extension("done")).unwrap();
            File::open(project.join("copies"))
                .unwrap()
                .sync_all()
                .unwrap();
        }));
    }
    println!("preparing an output's place     {:>8.2} ms", median(place));
    println!("publication of 8 MiB            {:>8.2} ms", median(ours));
    println!("write, fsync, rename, fsync     {:>8.2} ms", median(floor));
}

/// A journal on disk whose one call has just been dispatched.
fn dispatched(project: &Path) -> (CallJournal, Digest) {
    let run = RunId::new();
    let store = ProtectedJournal::create(&project.join("journal"), run).unwrap();
    let signer = ProjectKey::from_seed(&[7; 32]).signer();
    let journal = Journal::new(
        Box::new(store),
        Some(signer),
        run,
        "Agent::\"b\"".to_owned(),
    );
    let started = RunStarted {
        version: "0".to_owned(),
        project: "b".to_owned(),
        client: Client::Operator,
        tools: Vec::new(),
        tool_set_sha256: Digest::of(b""),
        policy_sha256: Digest::of(b""),
        init_sha256: None,
        max_calls: 1,
        lifetime_ms: 1,
        tool_time_ms: 1,
    };
    let _ = journal.record(started).unwrap();
    let descriptor = Canonical::of(&run.to_string()).unwrap();
    let call_sha256 = descriptor.digest();
    let call = journal.lend(call_sha256).unwrap();
    let dispatching = CallDispatching {
        call_id: CallId::new("1").unwrap(),
        tool: ToolName::new("copy").unwrap(),
        call_sha256,
        descriptor,
        policies: Vec::new(),
        approval: None,
    };
    let _ = journal.record(dispatching).unwrap();
    (call, call_sha256)
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times
        .get(times.len() / 2)
        .map_or(0.0, |it| it.as_secs_f64() * 1000.0)
}
