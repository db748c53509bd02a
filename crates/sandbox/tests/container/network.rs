//! The network of a worker: a loopback that nobody else has, and had.

use sandbox::ContainerKind;

use crate::host::{Bench, Job, finish, wait_for};

/// Says each device, each socket and each connection that is there.
const LOOK: &str = "import os\n\
    devices = [l.split(':')[0].strip() for l in open('/proc/net/dev') if ':' in l]\n\
    print('devices', devices)\n\
    for name in ('tcp', 'tcp6', 'udp', 'udp6', 'unix'):\n\
    \x20   path = '/proc/net/' + name\n\
    \x20   lines = open(path).read().splitlines()[1:] if os.path.exists(path) else []\n\
    \x20   for line in lines: print('LEFT', name, line)\n";

/// Tries what the worker of [`LISTENER`] listens at.
const CONNECT: &str = "import socket\n\
    def reach(family, address):\n\
    \x20   s = socket.socket(family)\n\
    \x20   s.settimeout(2)\n\
    \x20   try: s.connect(address); print('OPEN', address)\n\
    \x20   except OSError: pass\n\
    reach(socket.AF_INET, ('127.0.0.1', 4714))\n\
    reach(socket.AF_INET6, ('::1', 4714))\n\
    reach(socket.AF_UNIX, '\\0symbi-test-left')\n\
    print('tried')\n";

/// Listens, and leaves connections behind: one that is open, and one that is closed.
const LISTENER: &str = "import os, socket, sys, time\n\
    tcp = socket.socket(); tcp.bind(('127.0.0.1', 4714)); tcp.listen()\n\
    named = socket.socket(socket.AF_UNIX); named.bind('\\0symbi-test-left'); named.listen()\n\
    kept = socket.create_connection(('127.0.0.1', 4714)); mine = tcp.accept()[0]\n\
    closed = socket.create_connection(('127.0.0.1', 4714)); other = tcp.accept()[0]\n\
    closed.close(); other.close()\n\
    if os.fork() == 0: os.setsid(); time.sleep(60)\n\
    print('up', flush=True)\n\
    time.sleep(float(sys.argv[1]))\n";

fn listener(seconds: &str) -> Job {
    Job::new(&["python3", "-c", LISTENER, seconds])
}

pub(crate) fn nothing_of_a_workers_network_is_there_for_the_next(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    for seconds in ["0", "60"] {
        let mut first = bench.start(&listener(seconds)).unwrap();
        if seconds == "60" {
            wait_for(first.as_mut(), "up");
            first.stop();
        }
        finish(first);
        bench.assert_nothing_is_left();
        let said = bench.run(&Job::python(&format!("{LOOK}{CONNECT}"))).ok();
        assert_eq!(said, "devices ['lo']\ntried\n");
        // The same address is free at once.
        let again = bench.run(&listener("0")).ok();
        assert_eq!(again, "up\n");
    }
}

pub(crate) fn two_workers_at_once_share_no_loopback(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    let mut first = bench.start(&listener("60")).unwrap();
    wait_for(first.as_mut(), "up");
    let second = bench.start(&Job::python(&format!("{LOOK}{CONNECT}")));
    assert_eq!(finish(second.unwrap()).ok(), "devices ['lo']\ntried\n");
    first.stop();
    finish(first);
    bench.assert_nothing_is_left();
}

pub(crate) fn its_names_are_its_own_and_it_is_told_no_name_server(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    let script = "import socket\n\
        print(socket.gethostbyname('localhost'))\n\
        print(open('/etc/hosts').read().split(), repr(open('/etc/resolv.conf').read()))\n\
        s = socket.socket(); s.bind(('localhost', 0)); s.listen()\n\
        socket.create_connection(s.getsockname()); print('own')\n\
        try: open('/etc/hosts', 'a'); print('WROTE')\n\
        except OSError: pass\n";
    let said = bench.run(&Job::python(script)).ok();
    let wanted = "127.0.0.1\n\
                  ['127.0.0.1', 'localhost', '::1', 'localhost'] ''\nown\n";
    assert_eq!(said, wanted);
}
