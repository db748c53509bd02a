//! The files of a call.

use model::CreateMode;
use sandbox::ContainerKind;
use worker::{Ending, LimitReached};

use crate::host::{Bench, Job, wait_for};

pub(crate) fn an_input_is_the_snapshot_read_only_without_its_neighbour(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    let job = Job::sh(
        "cat data/a.csv; busybox ls data; busybox stat -c %a data/a.csv; \
         (echo x >> data/a.csv) 2>/dev/null || echo no; chmod 600 data/a.csv 2>/dev/null || echo no; \
         rm -f data/a.csv 2>/dev/null || echo no; mv data/a.csv data/b 2>/dev/null || echo no",
    )
    .input("data/a.csv", b"1,2\n");
    assert_eq!(bench.run(&job).ok(), "1,2\na.csv\n444\nno\nno\nno\nno\n");
}

pub(crate) fn the_only_mounts_are_the_granted_files(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    let job = Job::sh("echo up; exec sleep 60")
        .input("data/a.csv", b"1")
        .output("out/b.csv", CreateMode::File);
    let mut running = bench.start(&job).unwrap();
    wait_for(running.as_mut(), "up");
    let lease = bench.keeper.held()[0].clone();
    let name = format!("symbi-{lease}");
    let found = bench.engine.inspect(&name).unwrap().unwrap();
    let mut mounts: Vec<_> = found
        .mounts
        .iter()
        .map(|it| (it.destination.as_str(), it.is_writable))
        .collect();
    mounts.sort_unstable();
    let wanted = [
        // Its own names: the engine writes none where it makes no network.
        ("/etc/hosts", false),
        ("/workspace/data/a.csv", false),
        ("/workspace/out/b.csv", true),
    ];
    assert_eq!(mounts, wanted);
    running.stop();
    crate::host::finish(running);
    bench.assert_nothing_is_left();
    // Without grants there is none.
    let text = bench.run(&Job::sh("ls -A /workspace; echo end")).ok();
    assert_eq!(text, "end\n");
}

pub(crate) fn an_output_file_comes_back_by_its_held_descriptor(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    let job = Job::sh("cat data/a > out/b; cat data/a >> out/b; busybox ls out")
        .input("data/a", b"line\n")
        .output("out/b", CreateMode::File);
    let done = bench.run(&job);
    assert_eq!(done.output.as_deref(), Some(&b"line\nline\n"[..]));
    assert_eq!(done.ok(), "b\n");
    // It cannot be replaced, only written.
    let job = Job::sh(
        "echo other > /tmp/x; mv /tmp/x out/b 2>/dev/null; ln -sf /etc/passwd out/b; \
                       rm -f out/b; true",
    )
    .output("out/b", CreateMode::File);
    let done = bench.run(&job);
    let bytes = done.output.unwrap();
    assert!(bytes.is_empty() || bytes == b"other\n", "{bytes:?}");
}

pub(crate) fn a_fresh_output_is_exactly_one_regular_file(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    let mut fresh = |script: &str| {
        let job = Job::sh(script).output("out/b", CreateMode::Fresh);
        bench.run(&job)
    };
    let done = fresh("ls -A out; echo new > out/.b.tmp; mv out/.b.tmp out/b");
    assert_eq!(done.output.as_deref(), Some(&b"new\n"[..]));
    assert_eq!(done.ok(), "");
    assert!(fresh("true").unusable().contains("left no file `b`"));
    assert!(
        fresh("ln -s /etc/passwd out/b")
            .unusable()
            .contains("symbolic link")
    );
    assert!(
        fresh("echo x > out/a; ln out/a out/b")
            .unusable()
            .contains("2 links")
    );
    let pipe = fresh("mkfifo out/b 2>/dev/null");
    let why = pipe.unusable();
    // gVisor makes none.
    assert!(
        why.contains("not a regular file") || why.contains("left no file"),
        "{why}"
    );
}

pub(crate) fn a_fresh_output_may_stand_beside_inputs(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    let job = Job::sh("cat work/a > work/t; mv work/t work/b; (echo x > work/a) 2>/dev/null; true")
        .input("work/a", b"in\n")
        .output("work/b", CreateMode::Fresh);
    let done = bench.run(&job);
    assert_eq!(done.output.as_deref(), Some(&b"in\n"[..]));
}

pub(crate) fn too_much_beside_a_fresh_output_stops_the_worker(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    let mut stopped = |script: &str, why: &str| {
        let mut job = Job::sh(&format!("{script}; sleep 60")).output("out/b", CreateMode::Fresh);
        job.file_bytes = 1 << 20;
        let done = bench.run(&job);
        assert_eq!(done.ended.ending, Ending::Stopped, "{script}");
        assert_eq!(done.ended.limit, Some(LimitReached::FileBytes));
        assert!(done.unusable().contains(why), "{}", done.unusable());
    };
    stopped(
        "for i in 1 2 3 4 5; do head -c 1M /dev/zero > out/$i; done",
        "too much",
    );
    stopped("for i in $(seq 300); do : > out/$i; done", "too many files");
    stopped("mkdir out/d", "made a folder");
}

pub(crate) fn a_stopped_worker_hands_nothing_back(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    let job = Job::sh("echo x > out/b; echo up; exec sleep 60").output("out/b", CreateMode::File);
    let mut running = bench.start(&job).unwrap();
    wait_for(running.as_mut(), "up");
    running.stop();
    let done = crate::host::finish(running);
    assert!(done.output.is_none() && done.unusable().contains("stopped"));
    bench.assert_nothing_is_left();
}
