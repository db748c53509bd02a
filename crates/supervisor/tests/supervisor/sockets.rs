//! Who may talk to a supervisor, and what becomes of those who talk nonsense.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use sandbox::lease::{LeaseKeeper as _, LeaseRefused};
use supervisor::limits::{
    CONNECTIONS_MAX, CROWD_TIME_MAX, GREETING_TIME_MAX, LOOK_PAUSE, MESSAGE_BYTES_MAX,
};
use supervisor::{CapacityLimits, ConnectError, Keeper};

use crate::fixture::{SOON, World};

fn connect(world: &World) -> UnixStream {
    let stream = UnixStream::connect(world.socket()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

fn line(stream: &UnixStream) -> String {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

#[test]
fn garbage_on_the_socket_ends_its_connection_and_nothing_else() {
    let world = World::new();
    let _running = world.serve();
    let mut keeper = world.keeper();
    let lease = keeper.take(&world.lease_terms()).unwrap();
    let long = vec![b'x'; MESSAGE_BYTES_MAX + 1];
    let hello = b"{\"supervisor_protocol\":1}\n".to_vec();
    let after = |more: &[u8]| [hello.as_slice(), more].concat();
    for garbage in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        b"\0\xff\xfe\n".to_vec(),
        b"{}\n".to_vec(),
        b"\n".to_vec(),
        long.clone(),
        after(b"{\"ask\":\"take\"}\n"),
        after(b"{\"ask\":\"status\",\"environment\":{}}\n"),
        after(b"[1]\n"),
        after(&long),
    ] {
        let mut stream = connect(&world);
        // The other side may close in the middle of it.
        let _ = stream.write_all(&garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(world.status().leases.len(), 1);
    keeper.release(lease).unwrap();
    world.until_nothing_is_left();
}

#[test]
fn half_a_message_costs_its_connection_its_leases_and_no_one_elses() {
    let world = World::new();
    let _running = world.serve();
    let mut stream = connect(&world);
    stream
        .write_all(b"{\"supervisor_protocol\":1}\n{\"ask\":\"sta")
        .unwrap();
    assert!(line(&stream).contains("supervisor_protocol"));
    drop(stream);
    world.until_nothing_is_left();
}

#[test]
fn a_client_of_another_version_is_told_so_and_refused() {
    let world = World::new();
    let _running = world.serve();
    let mut stream = connect(&world);
    stream
        .write_all(b"{\"supervisor_protocol\":2,\"more\":1}\n")
        .unwrap();
    let said = line(&stream);
    assert!(said.contains("speaks version 1 and not 2"), "{said}");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
}

/// A folder in which this process pretends to be a supervisor that says `welcome`.
fn pretend(world: &World, welcome: &'static str) -> std::thread::JoinHandle<()> {
    // A real one makes the folders; this one takes its place.
    world.serve().ends().unwrap();
    let lock = std::fs::File::options()
        .read(true)
        .write(true)
        .open(world.path("state/lock"));
    let listener = UnixListener::bind(world.socket()).unwrap();
    std::thread::spawn(move || {
        let lock = lock.unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let mut hello = String::new();
        BufReader::new(&stream).read_line(&mut hello).unwrap();
        stream.write_all(welcome.as_bytes()).unwrap();
    })
}

#[test]
fn a_supervisor_of_another_version_is_refused_with_both_versions() {
    let world = World::new();
    let welcome = "{\"supervisor_protocol\":9,\"version\":\"7.0\",\"pid\":1,\"store\":\"\"}\n";
    let pretended = pretend(&world, welcome);
    world.until("it pretends", |world| {
        !matches!(world.client().status(), Err(ConnectError::NotRunning))
    });
    pretended.join().unwrap();
    let pretended = {
        let _ = std::fs::remove_file(world.socket());
        pretend(&world, welcome)
    };
    let error = loop {
        match world.client().status() {
            Err(ConnectError::NotRunning) => std::thread::sleep(Duration::from_millis(10)),
            other => break other.unwrap_err(),
        }
    };
    assert!(
        matches!(error, ConnectError::Version { theirs: 9, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("symbi 7.0"), "{error}");
    pretended.join().unwrap();
}

#[test]
fn without_a_supervisor_a_look_starts_none_and_a_keeper_says_what_failed() {
    let world = World::new();
    assert!(matches!(
        world.client().status(),
        Err(ConnectError::NotRunning)
    ));
    assert!(!world.path("state").exists());
    let engine = world.proxy.socket().to_owned();
    let error = Keeper::open(world.client(), engine).unwrap_err();
    assert!(matches!(error, ConnectError::Start(_)), "{error}");
}

#[test]
fn a_stale_socket_and_a_stale_lock_are_no_obstacle() {
    let world = World::new();
    world.serve().ends().unwrap();
    drop(UnixListener::bind(world.socket()).unwrap());
    assert!(world.socket().exists());
    let text = std::fs::read_to_string(world.path("state/lock")).unwrap();
    assert!(text.contains("\"pid\""), "{text}");
    assert!(matches!(
        world.client().status(),
        Err(ConnectError::NotRunning)
    ));
    let _running = world.serve();
    assert!(world.status().leases.is_empty());
}

#[test]
fn a_supervisor_that_is_stopped_is_named_and_nobody_waits_at_its_door() {
    use rustix::fs::{FlockOperation, flock};
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
    let world = World::new();
    world.serve().ends().unwrap();
    let lock = std::fs::File::open(world.path("state/lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let _ = std::fs::remove_file(world.socket());
    let door = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    let path = world.socket();
    bind(&door, &SocketAddrUnix::new(path).unwrap()).unwrap();
    listen(&door, 0).unwrap();
    let _taken = connect(&world);
    let pid = std::process::id();
    let engine = world.proxy.socket().to_owned();
    for error in [
        world.client().status().unwrap_err(),
        Keeper::open(world.client(), engine).unwrap_err(),
    ] {
        assert!(matches!(error, ConnectError::Silent { pid: it } if it == pid));
        assert!(error.to_string().contains(&format!("kill -CONT {pid}")));
    }
}

const HELLO: &[u8] = b"{\"supervisor_protocol\":1}\n";

#[test]
fn connections_that_say_nothing_yield_at_once_to_whoever_comes() {
    let world = World::new();
    let _running = world.serve();
    let mut first = connect(&world);
    let held: Vec<UnixStream> = (1..CONNECTIONS_MAX).map(|_| connect(&world)).collect();
    let begun = Instant::now();
    let mut keeper = world.keeper();
    let lease = keeper.take(&world.lease_terms()).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert_eq!(first.read_to_end(&mut Vec::new()).unwrap(), 0);
    keeper.release(lease).unwrap();
    drop(held);
}

#[test]
fn a_connection_that_does_not_greet_is_closed_soon() {
    let world = World::new();
    let _running = world.serve();
    let mut stream = connect(&world);
    let begun = Instant::now();
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
    assert!(begun.elapsed() < GREETING_TIME_MAX + Duration::from_secs(1));
}

#[test]
fn connections_that_greet_and_ask_nothing_yield_within_a_calls_patience() {
    let world = World::new();
    let _running = world.serve();
    let held: Vec<UnixStream> = (0..CONNECTIONS_MAX)
        .map(|_| {
            let mut stream = connect(&world);
            stream.write_all(HELLO).unwrap();
            assert!(line(&stream).contains("supervisor_protocol"));
            stream
        })
        .collect();
    let begun = Instant::now();
    world.keeper().take(&world.lease_terms()).unwrap();
    assert!(begun.elapsed() < CROWD_TIME_MAX);
    drop(held);
}

#[test]
fn calls_go_through_a_flood_that_never_ends() {
    let world = World::new();
    let _running = world.serve();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for words in [&b""[..], b"{", HELLO] {
            let (world, is_over) = (&world, &is_over);
            scope.spawn(move || {
                let mut held = std::collections::VecDeque::new();
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    let mut stream = connect(world);
                    let _ = stream.write_all(words);
                    held.push_back(stream);
                    if held.len() > CONNECTIONS_MAX {
                        held.pop_front();
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
        std::thread::sleep(Duration::from_millis(500));
        let calls = (0..5).map(|_| {
            let begun = Instant::now();
            let mut keeper = Keeper::open(world.client(), world.proxy.socket().to_owned())?;
            let lease = keeper.take(&world.lease_terms());
            let taken = lease.map(|lease| keeper.release(lease).is_ok());
            Ok::<_, ConnectError>((taken, begun.elapsed()))
        });
        let calls: Vec<_> = calls.collect();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        for call in calls {
            let (taken, time) = call.unwrap();
            assert!(taken.unwrap() && time < CROWD_TIME_MAX, "{time:?}");
        }
    });
}

#[test]
fn where_all_connections_have_leases_the_next_is_told_so_and_none_is_lost() {
    let world = World::new();
    let mut terms = world.terms();
    let room = CapacityLimits {
        workers: 1000,
        cpu_milli: 1 << 20,
        memory_mib: 1 << 20,
    };
    terms.capacity = Box::new(move || Ok(room));
    let _running = world.serve_on(terms);
    let mut keepers: Vec<Keeper> = (0..CONNECTIONS_MAX).map(|_| world.keeper()).collect();
    let mut lease_terms = world.lease_terms();
    (lease_terms.memory_mib, lease_terms.cpu_milli) = (1, 1);
    let leases = keepers.iter_mut().map(|it| it.take(&lease_terms).unwrap());
    let mut leases: Vec<_> = leases.collect();
    let error = world.client().status().unwrap_err();
    assert!(matches!(error, ConnectError::Crowded { .. }), "{error}");
    assert!(error.to_string().contains("all at work"), "{error}");
    let (mut last, lease) = (keepers.pop().unwrap(), leases.pop().unwrap());
    last.release(lease).unwrap();
    drop(last);
    assert_eq!(world.status().leases.len(), CONNECTIONS_MAX - 1);
}

#[test]
fn a_lease_of_another_process_or_supervisor_cannot_be_taken_or_released() {
    let world = World::new();
    let _running = world.serve();
    let mut stream = connect(&world);
    let terms = format!(
        "{{\"tier\":\"docker\",\"socket\":\"{0}\",\"staging\":\"{0}\",\"memory_mib\":1,\
         \"cpu_milli\":1,\"lifetime_ms\":1}}",
        world.path("staging").display()
    );
    let foreign = "f".repeat(32);
    let take = format!("{{\"ask\":\"take\",\"lease\":\"{foreign}\",\"terms\":{terms}}}\n");
    stream.write_all(b"{\"supervisor_protocol\":1}\n").unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    let mut said = String::new();
    lines.read_line(&mut said).unwrap();
    for lease in [
        take.as_str(),
        &take.replace(&foreign, "../../x"),
        &take.replace(&foreign, ""),
    ] {
        stream.write_all(lease.as_bytes()).unwrap();
        said.clear();
        lines.read_line(&mut said).unwrap();
        assert!(said.contains("unavailable"), "{said}");
    }
    assert!(world.status().leases.is_empty());
}

/// A socket whose name is taken away in some way.
fn robbed(rob: impl FnOnce(&World)) {
    let world = World::new();
    let running = world.serve();
    let mut keeper = world.keeper();
    let lease = keeper.take(&world.lease_terms()).unwrap();
    rob(&world);
    // Whoever comes meanwhile waits for it, and starts no other.
    let other = world.keeper();
    world.until("it is found again", |world| {
        world.status().leases.len() == 1
    });
    keeper.release(lease).unwrap();
    drop((keeper, other));
    running.ends().unwrap();
    assert!(!world.socket().exists());
}

#[test]
fn a_supervisor_whose_socket_was_removed_makes_it_anew() {
    robbed(|world| fs::remove_file(world.socket()).unwrap());
}

#[test]
fn a_supervisor_whose_socket_was_replaced_makes_it_anew() {
    robbed(|world| {
        fs::remove_file(world.socket()).unwrap();
        fs::write(world.socket(), "no socket").unwrap();
    });
}

#[test]
fn a_supervisor_whose_folder_of_sockets_was_removed_makes_it_anew() {
    robbed(|world| fs::remove_dir_all(world.path("run")).unwrap());
}

#[test]
fn what_stands_in_the_place_of_the_socket_for_good_is_named_with_what_to_do() {
    let world = World::new();
    let mut terms = world.terms();
    terms.idle = CROWD_TIME_MAX * 4;
    let _running = world.serve_on(terms);
    fs::remove_file(world.socket()).unwrap();
    fs::create_dir(world.socket()).unwrap();
    let begun = Instant::now();
    let engine = world.proxy.socket().to_owned();
    let error = Keeper::open(world.client(), engine).unwrap_err();
    assert!(begun.elapsed() >= CROWD_TIME_MAX, "{error}");
    let pid = std::process::id();
    assert!(
        matches!(error, ConnectError::Lost { pid: it, .. } if it == pid),
        "{error}"
    );
    let said = error.to_string();
    let path = world.socket().display().to_string();
    assert!(
        said.contains(&path) && said.contains(&format!("kill {pid}")),
        "{said}"
    );
    fs::remove_dir(world.socket()).unwrap();
    world.keeper();
}

#[test]
fn a_supervisor_whose_state_was_removed_hands_over_and_tends_to_what_it_has() {
    let world = World::new();
    let old = world.serve();
    let mut keeper = world.keeper();
    let lease = keeper.take(&world.lease_terms()).unwrap();
    world.run(&lease);
    fs::remove_dir_all(world.path("state")).unwrap();
    std::thread::sleep(LOOK_PAUSE + Duration::from_millis(500));
    match keeper.take(&world.lease_terms()) {
        Err(LeaseRefused::Unavailable { reason }) => {
            assert!(reason.contains("begin it anew"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    let new = world.serve();
    let mut other = world.keeper();
    let kept = other.take(&world.lease_terms()).unwrap();
    world.run(&kept);
    drop(keeper);
    world.until("the old one's container is gone", |world| {
        world.engine.containers().len() == 1
    });
    old.ends().unwrap();
    // Its end is not the end of the new one's socket.
    assert_eq!(world.status().leases.len(), 1);
    other.release(kept).unwrap();
    drop(other);
    new.ends().unwrap();
}

#[test]
fn supervisors_of_two_states_share_a_folder_of_sockets_and_are_both_found() {
    let (one, other) = (World::new(), World::new());
    let mut terms = other.terms();
    terms.sockets = one.path("run");
    let running = (one.serve(), other.serve_on(terms));
    let mut keepers = (one.keeper(), other.keeper());
    let lease = keepers.0.take(&one.lease_terms()).unwrap();
    std::thread::sleep(LOOK_PAUSE + Duration::from_millis(500));
    assert_eq!(one.status().leases.len(), 1);
    assert_eq!(other.status().leases.len(), 0);
    keepers.0.release(lease).unwrap();
    drop(keepers);
    running.0.ends().unwrap();
    running.1.ends().unwrap();
}
