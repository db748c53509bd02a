//! Attacks by a workload, as root's worker and as an ordinary user's.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::CreateMode::File;

use crate::host::{Job, finish, is_root, processes_with, run, run_in, start, tier};

const ATTACK: &str = include_str!("attack.py");
/// Fewer would mean that the script did not run to its end.
const ATTEMPTS_MIN: usize = 250;

#[test]
#[cfg(target_arch = "x86_64")]
fn no_attack_of_the_script_goes_through() {
    let folder = tempfile::Builder::new()
        .prefix("host-only")
        .tempdir()
        .unwrap();
    let canary = folder.path().join("canary");
    fs::write(&canary, "untouched").unwrap();
    // Everybody on the host may read it; the worker must not see it at all.
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(&canary, fs::Permissions::from_mode(0o666)).unwrap();
    // A descriptor that the owner forgot to protect.
    let leaked = fs::File::open(&canary).unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let name = format!("host-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _stream = UnixListener::bind_addr(&address).unwrap();
    let datagram_address = SocketAddr::from_abstract_name(format!("{name}d")).unwrap();
    let _datagram = UnixDatagram::bind_addr(&datagram_address).unwrap();

    let port = listener.local_addr().unwrap().port().to_string();
    let udp_port = datagrams.local_addr().unwrap().port().to_string();
    let path = canary.to_str().unwrap();
    let job = Job::new(&["python3", "attack.py", &port, &udp_port, &name, path])
        .input("attack.py", ATTACK.as_bytes())
        .output("out", File);
    let done = run(&job);
    let text = done.out();
    assert_eq!(done.code(), 0, "{text}{}", done.err());
    let opened: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("OPEN"))
        .collect();
    assert!(opened.is_empty(), "{}\n{}", opened.join("\n"), done.err());
    let made: usize = text
        .lines()
        .last()
        .unwrap()
        .strip_prefix("MADE ")
        .unwrap()
        .parse()
        .unwrap();
    assert!(made >= ATTEMPTS_MIN, "{made}");

    datagrams.set_nonblocking(true).unwrap();
    assert!(datagrams.recv(&mut [0; 16]).is_err());
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err());
    assert_eq!(fs::read_to_string(&canary).unwrap(), "untouched");
}

#[test]
fn only_landlock_stops_a_signal_to_init_of_the_same_id() {
    // As an ordinary user's worker init has the workload's own id.
    let text = run(&Job::python(
        "import os\ntry: os.kill(1, 9); print('sent')\nexcept PermissionError: print('refused')",
    ))
    .ok();
    assert_eq!(text, "refused\n");
}

#[test]
fn landlock_refuses_writing_where_no_rule_allows_it() {
    // The kernel's own file system is mounted writable: nothing but Landlock says no.
    let text = run(&Job::python(
        "for path in ['/proc/self/comm', '/proc/self/oom_score_adj']:\n\
         \x20 try: open(path, 'w').write('5'); print('wrote')\n\
         \x20 except PermissionError: print('refused')",
    ))
    .ok();
    assert_eq!(text, "refused\nrefused\n");
}

#[test]
fn two_live_workers_of_root_share_no_host_id() {
    let mut tier = tier();
    let marker = |n: u32| format!("8{n}31.{}", std::process::id());
    let first = start(&mut tier, &Job::new(&["sleep", &marker(1)])).unwrap();
    let second = start(&mut tier, &Job::new(&["sleep", &marker(2)])).unwrap();
    let uids = |marker: &str| {
        let found = processes_with(marker);
        assert_eq!(found.len(), 1, "{found:?}");
        let path = found[0].split(' ').next().unwrap();
        let status = fs::read_to_string(format!("{path}/status")).unwrap();
        let line = |name: &str| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap();
            let ids: Vec<u32> = line
                .split_whitespace()
                .map(|it| it.parse().unwrap())
                .collect();
            assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
            ids[0]
        };
        (line("Uid:"), line("Gid:"))
    };
    let (one, two) = (uids(&marker(1)), uids(&marker(2)));
    if is_root() {
        assert_ne!(one.0, two.0);
        assert_ne!(one.1, two.1);
        assert!(one.0 >= 2_000_000_000 && two.0 >= 2_000_000_000);
    } else {
        let own = rustix::process::geteuid().as_raw();
        assert_eq!((one.0, two.0), (own, own));
    }
    // Neither sees, and so neither can name, the other.
    let seen = run_in(
        &mut tier,
        &Job::sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '"),
    )
    .ok();
    assert!(seen.starts_with("symbi-init "), "{seen}");
    assert!(
        !seen.contains(&marker(1)) && !seen.contains(&marker(2)),
        "{seen}"
    );
    drop((first, second));
}

#[test]
fn workers_do_not_meet_on_loopback_or_abstract_sockets() {
    let mut tier = tier();
    let server = Job::python(
        "import socket, time\ns = socket.socket(); s.bind(('127.0.0.1', 4242)); s.listen()\n\
         u = socket.socket(socket.AF_UNIX); u.bind('\\0meet'); u.listen()\nprint('up', flush=True); time.sleep(100)",
    );
    let server = start(&mut tier, &server).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let client = Job::python(
        "import socket\nfor kind, address in [(socket.AF_INET, ('127.0.0.1', 4242)), (socket.AF_UNIX, '\\0meet')]:\n\
         \x20 try: socket.socket(kind).connect(address); print('met')\n\
         \x20 except OSError: print('apart')",
    );
    assert_eq!(run_in(&mut tier, &client).ok(), "apart\napart\n");
    drop(server);
}

#[test]
fn a_worker_can_use_its_own_loopback() {
    let text = run(&Job::python(
        "import socket, threading\ns = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n\
         c = socket.create_connection(s.getsockname()); a, _ = s.accept(); c.send(b'x'); print(a.recv(1))",
    ))
    .ok();
    assert_eq!(text, "b'x'\n");
}

#[test]
fn a_workload_that_attacks_its_own_init_while_it_ends_gains_nothing() {
    let done = run(&Job::sh(
        "for i in 1 2 3 4 5 6 7 8; do (while :; do kill -9 1; kill -STOP 1; done 2>/dev/null) & done; sleep 0.1; exit 5",
    ));
    assert_eq!(done.code(), 5);
}

#[test]
fn a_program_swapped_between_check_and_start_does_not_run() {
    // The program lies in a listed folder that a second thread keeps replacing.
    let folder = tempfile::Builder::new().prefix("tools").tempdir_in("/opt");
    let Ok(folder) = folder else { return };
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let program = write("tool", "#!/bin/sh\necho bound\n");
    let mut job = Job::new(&[program.to_str().unwrap()]);
    job.also = vec![folder.path().to_str().unwrap().to_owned()];
    let mut tier = tier();
    assert_eq!(run_in(&mut tier, &job).ok(), "bound\n");

    let bound = job.program();
    let good = write("good", "#!/bin/sh\necho bound\n");
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = {
        let (stop, good, folder) = (stop.clone(), good.clone(), folder.path().to_path_buf());
        std::thread::spawn(move || {
            let mut turn = 0u32;
            while !stop.load(Ordering::Relaxed) {
                let next = folder.join("next");
                if turn.is_multiple_of(2) {
                    fs::write(&next, "#!/bin/sh\necho other\n").unwrap();
                } else {
                    fs::copy(&good, &next).unwrap();
                }
                fs::set_permissions(&next, fs::Permissions::from_mode(0o755)).unwrap();
                fs::rename(&next, folder.join("tool")).unwrap();
                turn += 1;
                std::thread::sleep(Duration::from_micros(700));
            }
        })
    };
    let (mut ran, mut refused) = (0, 0);
    for _ in 0..60 {
        let spec = job.spec_of(&tier, bound.clone());
        match worker::Tier::start(&mut tier, spec) {
            Ok(running) => {
                let text = finish(running).out();
                // Between init's last look and the kernel's own open lie microseconds.
                assert!(text == "bound\n" || text == "other\n", "{text}");
                ran += u32::from(text == "other\n");
            }
            Err(_) => refused += 1,
        }
    }
    stop.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    assert!(refused > 0);
    eprintln!("swapped program: {refused} of 60 refused, {ran} slipped through");
}
