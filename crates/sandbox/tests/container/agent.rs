//! A worker with a channel.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use model::{AgentName, Digest};
use sandbox::{ContainerKind, programs};
use worker::{Descriptor, Filesystem, LaunchDescriptor, Tier, WorkerHoldings, lower};

use crate::host::{Bench, Job, finish};

const SCRIPT: &str = "import socket, os\n\
    s = socket.socket(socket.AF_UNIX); s.connect('/channel/broker.sock')\n\
    s.send(b'ask'); print(s.recv(16).decode())\n\
    open('/workspace/mine', 'w').write('x'); open('/tmp/mine', 'w').write('x')\n\
    try: open('/channel/x', 'w'); print('WROTE')\n\
    except OSError: print('read-only')\n\
    print(sorted(os.listdir('/channel')), os.getuid())";

pub(crate) fn an_agent_talks_through_its_channel_and_has_nothing_else(kind: ContainerKind) {
    let mut bench = Bench::new(kind);
    let channel = tempfile::tempdir().unwrap();
    std::fs::set_permissions(channel.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = channel.path().join("broker.sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let broker = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = [0; 3];
        stream.read_exact(&mut asked).unwrap();
        stream.write_all(b"answer").unwrap();
        asked
    });
    let job = Job::python(SCRIPT);
    let launch = LaunchDescriptor {
        agent: AgentName::new("tester").unwrap(),
        executor: "command".to_owned(),
        task: "ask".to_owned(),
        argv: job.argv.clone(),
        environment: job.environment.clone(),
        program: programs::resolve("python3", &bench.tier.root()).unwrap(),
        shown: None,
        tools: vec![],
        tool_set_sha256: Digest::of(b""),
        policy_sha256: Digest::of(b""),
        max_calls: 1,
        lifetime_ms: 30_000,
        human_approval: false,
        inference: None,
        boundary: worker::CommandBoundary {
            filesystem: Filesystem::default(),
            ..job.boundary(&bench.tier)
        },
    };
    let holdings = WorkerHoldings {
        channel: Some(channel.path().to_owned()),
        ..WorkerHoldings::default()
    };
    let spec = lower(&Descriptor::Launch(Box::new(launch)), holdings)
        .unwrap()
        .first;
    let done = finish(bench.tier.start(spec).unwrap());
    assert_eq!(done.ok(), "answer\nread-only\n['broker.sock'] 65534\n");
    assert_eq!(&broker.join().unwrap(), b"ask");
    bench.assert_nothing_is_left();
}
