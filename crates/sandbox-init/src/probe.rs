//! What `symbi doctor` runs as a workload: it tries what no worker may, and tells what came of it.
//!
//! One line a fact, on standard output: `! ` before what must not be, `= ` before what is well. The
//! last line is `done`; where it is missing, the probe was ended.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::limits::{PROBE_CONNECT_MAX, PROBE_LIFE_MAX, PROBE_PROCESSES_SEEN_MAX};
use crate::sys::{self, Forked};

/// The first line of every probe.
pub const GREETING: &str = "symbi-probe";
/// The last line of a probe that came to its end.
pub const DONE: &str = "done";

const MIB: usize = 1 << 20;
/// Reserved, and never touched: more than any limit of one process's data.
const RESERVED_MIB: usize = 8 << 10;
/// One file of the probe of scratch space: within the limit of a file.
const SCRATCH_PIECE_BYTES: usize = 32 << 10;
/// A probe counts as over a bound only so far past it.
const MARGIN: usize = 16;
const ROUTED: [&str; 2] = ["192.0.2.1:9", "[2001:db8::1]:9"];
const METADATA: [&str; 2] = ["169.254.169.254:80", "[fd00:ec2::254]:80"];

/// Runs the probe that `words` name: `NAME ARGUMENT…`.
pub fn run(words: &[String]) -> ! {
    say(GREETING);
    let mut words = words.iter().map(String::as_str);
    let name = words.next().unwrap_or_default();
    let arguments: Vec<&str> = words.collect();
    let argument = |at: usize| arguments.get(at).copied().unwrap_or_default();
    let number = |at: usize| argument(at).parse::<usize>().unwrap_or(0);
    match name {
        "egress" => egress(argument(0), argument(1)),
        "metadata" => routes(&METADATA),
        "proc" => own_proc(argument(0)),
        "init" => first_process(),
        "mounts" => mounts(argument(0)),
        "identity" => identity(argument(0)),
        "memory" => memory(number(0)),
        "pids" => processes(number(0)),
        "file" => file_size(number(0)),
        "scratch" => scratch(number(0), argument(1)),
        "output" => output(number(0)),
        "descendants" => descendants(argument(0)),
        "stop" => std::thread::sleep(PROBE_LIFE_MAX),
        other => breach(&format!("there is no probe `{other}`")),
    }
    say(DONE);
    sys::exit(0)
}

fn say(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

fn breach(what: &str) {
    say(&format!("! {what}"));
}

fn well(what: &str) {
    say(&format!("= {what}"));
}

fn egress(listener: &str, name: &str) {
    let devices = fs::read_to_string("/proc/net/dev").unwrap_or_default();
    for line in devices.lines().skip(2) {
        let device = line.split(':').next().unwrap_or_default().trim();
        if device != "lo" && !is_idle(line) {
            breach(&format!("it has the network device `{device}`"));
        }
    }
    if let Ok(address) = listener.parse::<SocketAddr>()
        && TcpStream::connect_timeout(&address, PROBE_CONNECT_MAX).is_ok()
    {
        breach(&format!("a listener of the host answers at {address}"));
    }
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name);
    if address.is_ok_and(|address| UnixStream::connect_addr(&address).is_ok()) {
        breach("an abstract socket of the host answers");
    }
    routes(&ROUTED);
}

/// Tunnel devices of a fresh namespace exist, and are down: they have never carried a byte.
fn is_idle(line: &str) -> bool {
    let counters = line.split(':').nth(1).unwrap_or_default();
    counters.split_whitespace().all(|count| count == "0")
}

/// A datagram socket that can be connected has a route; nothing is sent.
fn routes(addresses: &[&str]) {
    for address in addresses {
        let any = match address.starts_with('[') {
            true => "[::]:0",
            false => "0.0.0.0:0",
        };
        match UdpSocket::bind(any).and_then(|socket| socket.connect(address)) {
            Ok(()) => breach(&format!("there is a route to {address}")),
            Err(_) => well(&format!("no route to {address}")),
        }
    }
}

fn own_proc(host_namespace: &str) {
    let own = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    if !host_namespace.is_empty() && own == Path::new(host_namespace) {
        breach("it is in the pid namespace of the host");
    }
    let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let seen = fs::read_dir("/proc").into_iter().flatten().flatten();
    let seen = seen.filter(|entry| entry.file_name().to_str().is_some_and(is_process));
    let seen = seen.count();
    match seen > PROBE_PROCESSES_SEEN_MAX {
        true => breach(&format!("it sees {seen} processes")),
        false => well(&format!("it sees {seen} processes, all of its own")),
    }
    for path in ["/proc/kcore", "/proc/kmsg", "/proc/kallsyms"] {
        if File::open(path).is_ok_and(|mut file| has_secrets(&mut file)) {
            breach(&format!("it can read {path}"));
        }
    }
    for path in ["/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern"] {
        if OpenOptions::new().write(true).open(path).is_ok() {
            breach(&format!("it can write {path}"));
        }
    }
}

/// Kernel addresses that are all zero tell nothing.
fn has_secrets(file: &mut File) -> bool {
    let mut bytes = [0; 64];
    let read = file.read(&mut bytes).unwrap_or(0);
    let bytes = bytes.get(..read).unwrap_or_default();
    read > 0 && !bytes.starts_with(b"0000000000000000")
}

fn first_process() {
    if std::process::id() == 1 {
        return well("it is the first process itself");
    }
    for name in ["environ", "mem", "maps"] {
        let mut byte = [0; 1];
        let read = File::open(format!("/proc/1/{name}"));
        if read.is_ok_and(|mut file| name == "mem" || file.read(&mut byte).is_ok_and(|it| it > 0)) {
            breach(&format!("it can read /proc/1/{name}"));
        }
    }
    for name in ["exe", "root", "cwd"] {
        if fs::read_link(format!("/proc/1/{name}")).is_ok() {
            breach(&format!("it can follow /proc/1/{name}"));
        }
    }
    if fs::read_dir("/proc/1/fd").is_ok() {
        breach("it can list /proc/1/fd");
    }
    well("the first process is closed to it");
}

fn mounts(canary: &str) {
    match fs::symlink_metadata(canary) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            well("no file of the host is seen")
        }
        Err(_) => breach("a folder of the host is seen, though not what is in it"),
        Ok(_) => breach("a file of the host is seen"),
    }
    for folder in [
        "/", "/usr", "/etc", "/bin", "/channel", "/agent", "/proc", "/sys",
    ] {
        let path = Path::new(folder).join("symbi-probe-file");
        if OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .is_ok()
        {
            let _ = fs::remove_file(&path);
            breach(&format!("it can create files in {folder}"));
        }
    }
}

/// `host_kernel` is what the kernel must not be; empty where it may be the host's, behind a filter
/// of its own.
fn identity(host_kernel: &str) {
    let user = rustix::process::getuid();
    match user.is_root() {
        true => breach("it runs as uid 0"),
        false => well(&format!("it runs as uid {}", user.as_raw())),
    }
    if rustix::thread::set_thread_uid(rustix::process::Uid::ROOT).is_ok() {
        breach("it can become uid 0");
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim_start_matches(':').trim().to_owned())
    };
    for (name, wanted) in [
        ("CapEff", "0000000000000000"),
        ("CapPrm", "0000000000000000"),
        ("CapBnd", "0000000000000000"),
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
    ] {
        if name == "Seccomp" && !host_kernel.is_empty() {
            continue;
        }
        match field(name) {
            Some(found) if found != wanted => breach(&format!("its {name} is {found}")),
            Some(_) => {}
            None => well(&format!("{name} is not told here")),
        }
    }
    if !host_kernel.is_empty() {
        let own = fs::read_to_string("/proc/version").unwrap_or_default();
        match own.trim() == host_kernel.trim() {
            true => breach("it runs on the kernel of the host"),
            false => well("its kernel is not the host's"),
        }
    }
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let map: Vec<&str> = map.split_whitespace().collect();
    well(&format!("its ids are mapped as {}", map.join(" ")));
}

fn memory(limit_mib: usize) {
    let mut reserved: Vec<u8> = Vec::new();
    match reserved.try_reserve_exact(RESERVED_MIB * MIB) {
        Ok(()) => well(&format!("it could reserve {RESERVED_MIB} MiB, untouched")),
        Err(_) => well("a reservation past all bounds is refused"),
    }
    drop(reserved);
    let mut taken: Vec<Vec<u8>> = Vec::new();
    while taken.len() < limit_mib + MARGIN {
        let mut piece = Vec::new();
        if piece.try_reserve_exact(MIB).is_err() {
            return well(&format!("{} MiB and no more are given", taken.len()));
        }
        piece.resize(MIB, 1);
        taken.push(piece);
    }
    breach(&format!(
        "it took {} MiB",
        std::hint::black_box(taken).len()
    ));
}

fn processes(limit: usize) {
    let mut children = Vec::new();
    while children.len() < limit + MARGIN {
        match sys::fork() {
            Ok(Forked::Child) => {
                std::thread::sleep(PROBE_LIFE_MAX);
                sys::exit(0)
            }
            Ok(Forked::Parent { pid }) => children.push(pid),
            Err(_) => break,
        }
    }
    // With this process.
    let made = children.len() + 1;
    match made > limit {
        true => breach(&format!("it has {made} processes")),
        false => well(&format!("{made} processes and no more are given")),
    }
    for pid in children.into_iter().filter_map(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}

fn file_size(limit: usize) {
    let path = Path::new("/tmp/symbi-probe-size");
    let written = File::create(path).and_then(|mut file| file.write_all(&vec![1; limit + 1]));
    match written {
        Ok(()) => breach(&format!("it wrote a file of {} bytes", limit + 1)),
        Err(error) => well(&format!("one byte more is refused: {error}")),
    }
    let _ = fs::remove_file(path);
}

/// Fills every place of scratch in turn, with files that are each within their own limit.
fn scratch(limit: usize, working_dir: &str) {
    let mut kept = Vec::new();
    let mut written = 0;
    for place in ["/tmp", "/dev/shm", working_dir] {
        while written <= limit {
            let name = format!("symbi-probe-{}-{}", std::process::id(), kept.len());
            let path = Path::new(place).join(name);
            let piece = File::create_new(&path);
            let Ok(mut piece) = piece.inspect(|_| kept.push(path)) else {
                break;
            };
            match piece.write(&[1; SCRATCH_PIECE_BYTES]) {
                Ok(count @ 1..) => written += count,
                Ok(0) | Err(_) => break,
            }
        }
    }
    for path in &kept {
        let _ = fs::remove_file(path);
    }
    match written > limit {
        true => breach(&format!("it filled {written} bytes, and could go on")),
        false => well(&format!("{written} bytes and no more are given")),
    }
}

fn output(limit: usize) {
    let mut stdout = io::stdout().lock();
    let piece = [b'.'; 4096];
    for _ in 0..=limit.div_ceil(piece.len()) + MARGIN {
        if stdout.write_all(&piece).is_err() {
            return;
        }
    }
    let _ = stdout.write_all(b"\n");
}

/// Leaves a process behind, in a session of its own, that holds a connection as long as it lives.
fn descendants(socket: &str) {
    let Ok((mut told, tell)) = io::pipe() else {
        return breach("it has no pipe");
    };
    match sys::fork() {
        Ok(Forked::Parent { .. }) => {
            drop(tell);
            let mut byte = [0; 1];
            match told.read(&mut byte) {
                Ok(1) => well("a process of its own session is left behind"),
                _ => breach("its descendant did not reach its socket"),
            }
        }
        Ok(Forked::Child) => {
            drop(told);
            leave_one_behind(socket, tell);
            sys::exit(0)
        }
        Err(error) => breach(&format!("it cannot fork: {error}")),
    }
}

fn leave_one_behind(socket: &str, mut tell: io::PipeWriter) {
    if sys::new_session().is_err() {
        return;
    }
    if !matches!(sys::fork(), Ok(Forked::Child)) {
        return;
    }
    let Ok(mut held) = UnixStream::connect(socket) else {
        return;
    };
    let _ = tell.write_all(b"1");
    drop(tell);
    // Its streams must not keep whoever reads them waiting.
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    let _ = held.set_read_timeout(Some(Duration::from_secs(60)));
    // Ends where the other side goes, so that it is not left where nothing removes it.
    let _ = held.read(&mut [0; 1]);
}
