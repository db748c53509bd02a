//! Every limit acts, and says so.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use model::CreateMode::{File, Fresh};
use sandbox::{NamespaceConfig, NamespaceTier};
use worker::{Ending, Enforcement, LimitReached, Tier};

use crate::host::{Job, config, is_root, run, run_in, start, tier, wait};

/// Whether this machine lets this user bound memory by a group.
fn memory_is_whole(tier: &NamespaceTier) -> bool {
    let spec = Job::new(&["true"]).spec(tier);
    spec.limits().memory_mib.enforcement == Enforcement::Enforced
}

const FORKS: &str = "
import os, sys, time
made = 0
try:
    while made < 500:
        if os.fork() == 0: time.sleep(100)
        made += 1
except OSError: pass
print(made)
";

#[test]
fn the_number_of_processes_is_exact() {
    let mut tier = tier();
    for pids in [4, 64] {
        let mut job = Job::python(FORKS);
        job.pids = pids;
        assert_eq!(run_in(&mut tier, &job).ok().trim(), (pids - 1).to_string());
    }
}

#[test]
fn two_workers_do_not_share_their_process_limit() {
    let mut tier = tier();
    let mut held = Job::sh("for i in 1 2 3 4 5; do sleep 100 & done; wait");
    held.pids = 8;
    let mut other = start(&mut tier, &held).unwrap();
    let mut job = Job::python(FORKS);
    job.pids = 8;
    assert_eq!(run_in(&mut tier, &job).ok().trim(), "7");
    other.stop();
    other.remove().unwrap();
}

#[test]
fn reaped_orphans_do_not_count_against_the_limit() {
    let mut job = Job::sh("i=0; while [ $i -lt 300 ]; do (true &) ; i=$((i+1)); done; echo done");
    job.pids = 16;
    assert_eq!(run(&job).ok(), "done\n");
}

#[test]
fn a_fork_bomb_is_stopped_and_gone() {
    let mut tier = tier();
    let mut running = start(&mut tier, &Job::sh("f() { f | f & f; }; f")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let began = Instant::now();
    running.stop();
    assert_eq!(wait(running.as_mut()).ending, Ending::Stopped);
    running.remove().unwrap();
    assert!(began.elapsed().as_millis() < 1000);
}

const EAT: &str = "x = []\nfor i in range(700): x.append(bytes(b'x') * (1 << 20))\nprint(len(x))";

#[test]
fn memory_is_bounded() {
    let mut tier = tier();
    let done = run_in(&mut tier, &Job::python(EAT));
    if memory_is_whole(&tier) {
        assert_eq!(
            done.ended.ending,
            Ending::Signaled {
                signal: libc::SIGKILL
            }
        );
        assert_eq!(done.ended.limit, Some(LimitReached::Memory));
    } else {
        assert_eq!(done.code(), 1);
        assert!(done.err().contains("MemoryError"), "{}", done.err());
    }
}

#[test]
fn a_killed_child_is_told_though_the_workload_ends_well() {
    let mut tier = tier();
    if !memory_is_whole(&tier) {
        return;
    }
    let job = Job::sh(&format!(
        "python3 -c '{}' ; exit 0",
        EAT.replace('\'', "\"")
    ));
    let done = run_in(&mut tier, &job);
    assert_eq!(done.code(), 0);
    assert_eq!(done.ended.limit, Some(LimitReached::Memory));
}

#[test]
fn scratch_space_counts_as_memory() {
    let mut tier = tier();
    if !memory_is_whole(&tier) {
        return;
    }
    let mut job = Job::sh("head -c 50000000 /dev/zero > /tmp/x");
    job.memory_mib = 32;
    assert_eq!(
        run_in(&mut tier, &job).ended.limit,
        Some(LimitReached::Memory)
    );
}

#[test]
fn inputs_count_as_memory_and_a_start_without_room_fails_cleanly() {
    let mut tier = tier();
    if !memory_is_whole(&tier) {
        return;
    }
    let mut job = Job::new(&["true"]).input("large", &vec![1; 12 << 20]);
    job.memory_mib = 8;
    let error = start(&mut tier, &job).err().unwrap().to_string();
    assert!(error.contains("8 MiB"), "{error}");
    job.memory_mib = 64;
    assert_eq!(run_in(&mut tier, &job).code(), 0);
}

#[test]
fn a_file_at_its_limit_is_whole_and_one_past_ends_the_writer() {
    let mut tier = tier();
    for mode in [File, Fresh] {
        let mut job = Job::new(&[
            "dd",
            "if=/dev/zero",
            "of=d/o",
            "bs=1000",
            "count=50",
            "status=none",
        ]);
        job.output = Some(("d/o".to_owned(), mode));
        job.file_bytes = 50_000;
        let done = run_in(&mut tier, &job);
        assert_eq!(done.output.as_ref().unwrap().len(), 50_000);
        assert_eq!(done.code(), 0);
        job.file_bytes = 49_999;
        let done = run_in(&mut tier, &job);
        assert_eq!(done.ended.limit, Some(LimitReached::FileBytes), "{done:?}");
        assert_eq!(
            done.ended.ending,
            Ending::Signaled {
                signal: libc::SIGXFSZ
            }
        );
        assert!(done.output.unwrap().len() <= 49_999);
    }
}

#[test]
fn truncation_cannot_pass_the_file_limit() {
    let mut job = Job::sh("truncate -s 1001 o; echo $?").output("o", File);
    job.file_bytes = 1000;
    let done = run(&job);
    assert_ne!(done.out(), "0\n");
    assert_eq!(done.output.unwrap().len(), 0);
}

#[test]
fn scratch_space_is_one_bounded_pool() {
    let mut tier = tier();
    let mut job = Job::sh(
        "head -c 3000000 /dev/zero > /tmp/a && head -c 3000000 /dev/zero > /dev/shm/b && echo both; \
         rm /tmp/a; head -c 3000000 /dev/zero > /dev/shm/c && echo again",
    );
    job.scratch_bytes = 8 << 20;
    assert_eq!(run_in(&mut tier, &job).ok(), "both\nagain\n");
    job.scratch_bytes = 5 << 20;
    let done = run_in(&mut tier, &job);
    assert!(done.err().contains("No space left"), "{}", done.err());
    assert!(!done.out().contains("both"));
}

#[test]
fn files_in_scratch_space_are_counted() {
    let done = run(&Job::python(
        "import os\nfor i in range(100000):\n  os.close(os.open('/tmp/%d' % i, os.O_CREAT))",
    ));
    assert!(done.err().contains("No space left"), "{}", done.err());
}

#[test]
fn the_processor_is_bounded() {
    let mut tier = tier();
    let mut job = Job::python(
        "import time\nend = time.monotonic() + 1.5\nwhile time.monotonic() < end: pass\n\
         print(time.process_time())",
    );
    let spec = job.spec(&tier);
    if spec.limits().cpu_milli.enforcement == Enforcement::Enforced {
        job.cpu_milli = 200;
        let used: f64 = run_in(&mut tier, &job).ok().trim().parse().unwrap();
        assert!(used < 0.6, "{used}");
    } else {
        let mut job = Job::python("while True: pass");
        job.time_ms = 1000;
        let done = run_in(&mut tier, &job);
        assert_eq!(done.ended.limit, Some(LimitReached::Cpu), "{done:?}");
        assert_eq!(
            done.ended.ending,
            Ending::Signaled {
                signal: libc::SIGXCPU
            }
        );
    }
}

#[test]
fn what_this_host_cannot_enforce_is_reported_partly() {
    let tier = tier();
    let limits = Job::new(&["true"]).spec(&tier).limits().clone();
    assert_eq!(limits.pids.enforcement, Enforcement::Enforced);
    assert_eq!(limits.file_bytes.enforcement, Enforcement::Enforced);
    assert!(
        limits
            .named()
            .iter()
            .all(|(_, it)| it.enforcement != Enforcement::NotEnforced)
    );
    if !is_root() {
        assert_eq!(limits.memory_mib.enforcement, Enforcement::Partly);
        assert_eq!(limits.cpu_milli.enforcement, Enforcement::Partly);
        let config = NamespaceConfig {
            require_cgroup: true,
            ..config()
        };
        let error = NamespaceTier::new(config).unwrap_err().to_string();
        assert!(error.contains("cgroup"), "{error}");
    }
}

#[test]
fn a_promise_that_this_host_cannot_keep_is_no_start() {
    let mut tier = tier();
    let job = Job::new(&["true"]);
    let mut promised = job.spec(&tier).limits().clone();
    assert!(
        tier.start(job.spec_with(job.program(), promised.clone()))
            .is_ok()
    );
    promised.memory_mib.enforcement = match promised.memory_mib.enforcement {
        Enforcement::Enforced => Enforcement::Partly,
        _ => Enforcement::Enforced,
    };
    let error = tier
        .start(job.spec_with(job.program(), promised))
        .err()
        .unwrap();
    assert!(error.to_string().contains("enforcement"), "{error}");
}

#[test]
fn groups_and_id_locks_are_free_after_removal() {
    if !is_root() {
        return;
    }
    let locks = tempfile::tempdir().unwrap();
    let config = NamespaceConfig {
        locks: Some(locks.path().to_path_buf()),
        first_id: 2_000_400_000,
        ..config()
    };
    let mut tier = NamespaceTier::new(config).unwrap();
    let tag = owner_tag(locks.path());
    let running = start(&mut tier, &Job::new(&["sleep", "100"])).unwrap();
    assert!(!groups_of(&tag).is_empty());
    drop(running);
    assert_eq!(groups_of(&tag), Vec::<PathBuf>::new());
    let lock = fs::File::open(locks.path().join("ids-0.lock")).unwrap();
    lock.try_lock().unwrap();
    drop(tier);
    assert!(!locks.path().join(format!("owner-{tag}.lock")).exists());
}

pub(crate) fn owner_tag(locks: &std::path::Path) -> String {
    let names = fs::read_dir(locks)
        .unwrap()
        .map(|it| it.unwrap().file_name());
    let tag = |name: std::ffi::OsString| {
        let name = name.into_string().unwrap();
        Some(
            name.strip_prefix("owner-")?
                .strip_suffix(".lock")?
                .to_owned(),
        )
    };
    names.filter_map(tag).next().unwrap()
}

/// The groups that an owner's workers have now.
pub(crate) fn groups_of(tag: &str) -> Vec<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let mut found = vec![];
    for line in own.lines() {
        let parts: Vec<&str> = line.splitn(3, ':').collect();
        let folder = format!("/sys/fs/cgroup/{}{}", parts[1], parts[2]);
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        found.extend(entries.map(|it| it.path()).filter(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with(&format!("symbi-{tag}-"))
        }));
    }
    found
}
