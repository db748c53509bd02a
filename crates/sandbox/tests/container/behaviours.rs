//! What a worker is and where it ends.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use sandbox::ContainerKind;
use worker::{Ending, LimitReached};

use crate::host::{Bench, Job, finish, wait, wait_for};

pub(crate) fn a_worker_is_nobody_without_rights_or_network(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    let text = bench
        .run(&Job::sh(
            "id -u; id -g; id -G; grep -E 'Cap(Eff|Bnd|Prm)|NoNewPrivs' /proc/self/status; \
             cat /etc/hostname; ls /sys/class/net 2>/dev/null; pwd; \
             touch /workspace/x 2>/dev/null || echo no",
        ))
        .ok();
    assert!(text.starts_with("65534\n65534\n65534\n"), "{text}");
    let capabilities = text.lines().filter(|line| line.starts_with("Cap"));
    for line in capabilities {
        assert!(line.ends_with("0000000000000000"), "{line}");
    }
    assert!(text.ends_with("/workspace\nno\n"), "{text}");
    if kind == ContainerKind::Docker {
        assert!(text.contains("NoNewPrivs:\t1"), "{text}");
        assert!(text.contains("\nlo\n") && !text.contains("eth"), "{text}");
    }
}

pub(crate) fn its_environment_is_the_descriptors_alone(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    let mut job = Job::new(&["env"]);
    job.environment
        .insert("MORE".to_owned(), "a b=c".to_owned());
    let text = bench.run(&job).ok();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let wanted = [
        "HOME=/tmp",
        "LANG=C.UTF-8",
        "MORE=a b=c",
        "PATH=/usr/bin:/bin",
    ];
    assert_eq!(lines, wanted);
}

pub(crate) fn exit_codes_and_streams_are_told_apart(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    let done = bench.run(&Job::sh(
        "echo out; echo err >&2; printf 'a\\000b'; exit 42",
    ));
    assert_eq!(done.code(), 42);
    assert_eq!(
        (done.out().as_str(), done.err().as_str()),
        ("out\na\0b", "err\n")
    );
    assert_eq!(done.ended.limit, None);
    let done = bench.run(&Job::new(&["true"]));
    assert!(done.code() == 0 && done.out().is_empty());
}

pub(crate) fn a_stream_at_its_limit_is_whole_and_one_byte_more_stops_the_worker(
    kind: ContainerKind,
) {
    let mut bench = Bench::new(kind);
    let printing = |bytes: u64| {
        let mut job = Job::python(&format!(
            "import sys, time; sys.stderr.write('x' * {bytes}); sys.stderr.flush(); time.sleep({})",
            if bytes > 100_000 { 60 } else { 0 }
        ));
        job.stream_bytes = 100_000;
        job
    };
    let at = bench.run(&printing(100_000));
    assert!(at.code() == 0 && at.err().len() == 100_000);
    let past = bench.run(&printing(100_001));
    assert_eq!(past.ended.ending, Ending::Stopped);
    assert_eq!(past.ended.limit, Some(LimitReached::StreamBytes));
    assert!(past.ended.stderr.over_limit && past.err().len() == 100_000);
}

pub(crate) fn a_stopped_worker_leaves_no_descendant(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    let mut running = bench
        .start(&Job::sh(
            "trap '' TERM INT HUP; setsid sleep 4711 & setsid setsid sleep 4711 & echo up; wait",
        ))
        .unwrap();
    wait_for(running.as_mut(), "up");
    running.stop();
    let ended = wait(running.as_mut());
    assert_eq!((ended.ending, ended.limit), (Ending::Stopped, None));
    worker::confirm_removal(running.as_mut()).unwrap();
    bench.assert_nothing_is_left();
    let left = std::process::Command::new("pgrep")
        .args(["-f", "^sleep 4711"])
        .status();
    assert_eq!(left.unwrap().code(), Some(1), "a descendant is left");
}

pub(crate) fn memory_ends_at_its_limit(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    let mut job = Job::python("x = bytearray(64 << 20); print(len(x))");
    assert_eq!(bench.run(&job).ok(), "67108864\n");
    job = Job::python("x = bytearray(1 << 30); print(len(x))");
    let done = bench.run(&job);
    assert_ne!(done.ended.ending, Ending::Exited { code: 0 });
    assert!(done.out().is_empty());
    if kind == ContainerKind::Docker {
        assert_eq!(done.ended.limit, Some(LimitReached::Memory));
    }
}

pub(crate) fn processes_end_at_their_limit(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    let mut job = Job::python(
        "import os, time\nn = 0\ntry:\n  while n < 200:\n    p = os.fork()\n    if p == 0:\n      \
         time.sleep(30); os._exit(0)\n    n += 1\nexcept OSError as e:\n  print(e.errno)\n\
         print(n)",
    );
    job.pids = 24;
    let text = bench.run(&job).ok();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("11"), "{text}");
    let made: u64 = lines.next().unwrap().parse().unwrap();
    assert!(
        (20..=24).contains(&made),
        "{made} processes besides the first"
    );
}

pub(crate) fn a_file_ends_at_its_limit(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    let mut job = Job::sh("head -c 5000 /dev/zero > out.bin; echo $?")
        .output("out.bin", model::CreateMode::File);
    job.file_bytes = 5000;
    let done = bench.run(&job);
    assert_eq!(done.output.as_deref(), Some(&[0; 5000][..]));
    job.argv[2] = "exec head -c 5001 /dev/zero > out.bin".to_owned();
    let done = bench.run(&job);
    assert_eq!(done.ended.limit, Some(LimitReached::FileBytes));
    assert_eq!(done.output.map(|bytes| bytes.len()), Some(5000));
}

pub(crate) fn scratch_space_ends_at_its_limit_and_nothing_else_is_writable(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    let mut job = Job::sh(
        "head -c 900K /dev/zero > /tmp/a && echo fits; head -c 2M /dev/zero > /tmp/b || echo full; \
         echo x > /dev/shm/a && echo shm; \
         for d in / /usr /etc /var /var/tmp /workspace /root /proc /sys /run /home; do \
         (echo x > $d/symbi-probe) 2>/dev/null && echo wrote $d; done; true",
    );
    job.scratch_bytes = 2 << 20;
    assert_eq!(bench.run(&job).ok(), "fits\nfull\nshm\n");
}

pub(crate) fn standard_input_is_read_whole_also_a_large_one(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    let mut large = vec![b'x'; 3 << 20];
    large.push(b'\n');
    let done = bench.run(&Job::new(&["sha256sum"]).reading(&large));
    let digest = model::Digest::of(&large).to_hex();
    assert_eq!(done.ok(), format!("{digest}  -\n"));
    // A program that reads nothing is not waited for.
    assert_eq!(bench.run(&Job::new(&["true"]).reading(&large)).code(), 0);
    // And one without input reads an end.
    assert_eq!(bench.run(&Job::new(&["cat"])).ok(), "");
}

pub(crate) fn a_host_canary_and_the_hosts_listeners_are_out_of_reach(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    let canary = tempfile::NamedTempFile::new().unwrap();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    let name = format!("symbi-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _abstract = UnixListener::bind_addr(&address).unwrap();
    let script = format!(
        "import socket, os\n\
         def t(n, f):\n  try:\n    f(); print('OPEN', n)\n  except OSError as e: pass\n\
         t('canary', lambda: os.stat({canary:?}))\n\
         t('tcp', lambda: socket.create_connection(('127.0.0.1', {port}), 2))\n\
         t('out', lambda: socket.create_connection(('192.0.2.1', 80), 2))\n\
         t('abstract', lambda: socket.socket(socket.AF_UNIX).connect('\\0{name}'))\n\
         t('vsock', lambda: socket.socket(40, socket.SOCK_STREAM))\n\
         t('engine', lambda: os.stat('/var/run/docker.sock'))\n\
         print('done')",
        canary = canary.path().to_str().unwrap(),
    );
    let text = bench.run(&Job::python(&script)).ok();
    assert_eq!(text, "done\n");
}

pub(crate) fn two_workers_at_once_do_not_see_each_other(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    let mut first = bench
        .start(&Job::sh("echo mine > /tmp/x; echo up; exec sleep 4712"))
        .unwrap();
    wait_for(first.as_mut(), "up");
    let second = bench
        .start(&Job::sh(
            "ls /tmp; grep -l 'sleep' /proc/[0-9]*/comm 2>/dev/null; echo done",
        ))
        .unwrap();
    assert_eq!(finish(second).ok(), "done\n");
    first.stop();
    finish(first);
    bench.assert_nothing_is_left();
}
