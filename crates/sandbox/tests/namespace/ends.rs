//! How workloads end, and what is heard of them.

use std::time::Instant;

use worker::{Ending, LimitReached, ProgramIdentity, StartError, Tier};

use crate::host::{Job, finish, run, run_in, start, tier, wait};

#[test]
fn the_probe_makes_and_removes_a_whole_worker() {
    tier().probe().unwrap();
}

#[test]
fn exit_codes_and_signals_come_back_as_they_were() {
    let mut tier = tier();
    assert_eq!(run_in(&mut tier, &Job::new(&["true"])).code(), 0);
    assert_eq!(run_in(&mut tier, &Job::new(&["/bin/false"])).code(), 1);
    for code in [2, 77, 126, 255] {
        assert_eq!(
            run_in(&mut tier, &Job::sh(&format!("exit {code}"))).code(),
            code
        );
    }
    for signal in [
        libc::SIGKILL,
        libc::SIGTERM,
        libc::SIGSEGV,
        libc::SIGPIPE,
        34,
    ] {
        let done = run_in(&mut tier, &Job::sh(&format!("kill -{signal} $$")));
        assert_eq!(done.ended.ending, Ending::Signaled { signal });
    }
}

#[test]
fn both_streams_are_captured_whole_and_apart() {
    let done = run(&Job::sh(
        "printf out; printf err >&2; printf more > /dev/stdout; echo e > /dev/stderr",
    ));
    assert_eq!(
        (done.out().as_str(), done.err().as_str()),
        ("outmore", "erre\n")
    );
}

#[test]
fn a_stream_at_its_limit_is_whole_and_one_past_stops_the_worker() {
    let mut tier = tier();
    let mut job = Job::sh("head -c 100000 /dev/zero");
    job.stream_bytes = 100_000;
    let done = run_in(&mut tier, &job);
    assert_eq!(done.code(), 0);
    assert_eq!(done.ended.stdout.bytes.len(), 100_000);
    job.stream_bytes = 99_999;
    let done = run_in(&mut tier, &job);
    assert_eq!(done.ended.ending, Ending::Stopped);
    assert_eq!(done.ended.limit, Some(LimitReached::StreamBytes));
    assert!(done.ended.stdout.over_limit && !done.ended.stderr.over_limit);
    assert_eq!(done.ended.stdout.bytes.len(), 99_999);
}

#[test]
fn an_endless_writer_is_stopped() {
    let done = run(&Job::sh("yes >&2"));
    assert_eq!(done.ended.limit, Some(LimitReached::StreamBytes));
    assert!(done.ended.stderr.over_limit);
}

#[test]
fn stop_ends_a_sleeping_workload_at_once() {
    let mut tier = tier();
    let mut running = start(&mut tier, &Job::sh("trap '' TERM INT HUP; sleep 1000")).unwrap();
    let began = Instant::now();
    running.stop();
    let ended = wait(running.as_mut());
    assert_eq!(ended.ending, Ending::Stopped);
    assert!(running.advance().is_none());
    running.remove().unwrap();
    running.remove().unwrap();
    assert!(began.elapsed().as_secs() < 1);
}

#[test]
fn the_argument_vector_and_environment_arrive_unchanged() {
    let mut job = Job::new(&[
        "python3",
        "-c",
        "import os,sys,json; print(json.dumps([sys.argv[1:], dict(os.environ)]))",
        "",
        "a b",
        "$HOME;`x`",
        "\u{e9}\n",
    ]);
    job.environment
        .insert("LC_ALL".to_owned(), "C.UTF-8".to_owned());
    let text = run(&job).ok();
    assert_eq!(
        text.trim(),
        "[[\"\", \"a b\", \"$HOME;`x`\", \"\\u00e9\\n\"], {\"HOME\": \"/tmp\", \"LANG\": \"C.UTF-8\", \"LC_ALL\": \"C.UTF-8\", \"PATH\": \"/usr/bin:/bin\"}]"
    );
}

#[test]
fn an_argument_of_a_hundred_kilobytes_arrives() {
    let long = "x".repeat(100_000);
    assert_eq!(run(&Job::new(&["printf", "%s", &long])).ok(), long);
}

#[test]
fn children_that_leave_their_session_are_killed_before_the_end_is_told() {
    let done = run(&Job::sh(
        "setsid sh -c 'trap \"\" TERM HUP; while :; do echo alive; sleep 0.01; done' & \
         setsid setsid sleep 100 & sleep 0.05; exit 3",
    ));
    assert_eq!(done.code(), 3);
    assert!(done.out().contains("alive"));
}

#[test]
fn a_program_that_was_replaced_after_it_was_bound_does_not_run() {
    let mut tier = tier();
    let job = Job::new(&["true"]);
    let mut program = job.program().file().unwrap().clone();
    program.sha256 = model::Digest::of(b"another");
    let spec = job.spec_of(&tier, ProgramIdentity::Content(program));
    match tier.start(spec) {
        Err(StartError::ProgramChanged { path }) => assert_eq!(path, "/usr/bin/true"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it ran"),
    }
}

#[test]
fn a_program_that_cannot_be_run_is_a_failed_start() {
    let mut tier = tier();
    let mut job = Job::new(&["true"]);
    job.working_dir = "/tmp/x".to_owned();
    let error = start(&mut tier, &job).err().unwrap().to_string();
    assert!(error.contains("/tmp/x"), "{error}");
}

#[test]
fn a_dropped_worker_is_killed_and_reaped() {
    let mut tier = tier();
    let marker = format!("7331.{}", std::process::id());
    let running = start(&mut tier, &Job::new(&["sleep", &marker])).unwrap();
    assert_eq!(crate::host::processes_with(&marker).len(), 1);
    drop(running);
    assert!(crate::host::processes_with(&marker).is_empty());
}

#[test]
fn two_workers_live_side_by_side() {
    let mut tier = tier();
    let first = start(&mut tier, &Job::sh("sleep 0.2; id -u; hostname")).unwrap();
    let second = start(&mut tier, &Job::sh("id -u")).unwrap();
    assert_eq!(finish(second).ok(), "65534\n");
    assert_eq!(finish(first).ok(), "65534\nworker\n");
}

#[test]
fn a_program_behind_a_link_runs_under_its_own_name() {
    // Debian's awk is a link through /etc/alternatives.
    let job = Job::new(&["awk", "BEGIN { print 6 * 7 }"]);
    assert_eq!(job.program().path(), "/usr/bin/awk");
    assert_eq!(run(&job).ok(), "42\n");
}

#[test]
fn a_listed_system_folder_is_shown() {
    let mut tier = tier();
    let mut job = Job::sh("ls -d /usr/local/* | wc -l; touch /usr/local/x 2>/dev/null || echo no");
    assert_eq!(run_in(&mut tier, &job).ok(), "0\nno\n");
    job.also = vec!["/usr/local".to_owned()];
    let shown = run_in(&mut tier, &job).ok();
    assert!(
        !shown.starts_with("0\n") && shown.ends_with("no\n"),
        "{shown}"
    );
    for refused in [
        "/tmp",
        "/etc",
        "/proc/1",
        "relative",
        "/opt/../etc",
        "/var/lib",
    ] {
        job.also = vec![refused.to_owned()];
        let error = start(&mut tier, &job).err().unwrap().to_string();
        assert!(error.contains(refused), "{error}");
    }
}

#[test]
fn a_core_handler_that_is_a_program_does_not_run() {
    // 1, not 0: see the helper's limits. Where the caller's own hard limit is 0, it stays 0.
    let text = run(&Job::sh(
        "ulimit -Hc; grep 'core file' /proc/self/limits | awk '{print $6}'",
    ))
    .ok();
    assert!(text.ends_with("\n1\n") || text.ends_with("\n0\n"), "{text}");
}
