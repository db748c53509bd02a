//! A contained agent's worker: its channel, its program, its scratch folder, and nothing else.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use model::{AgentName, Digest};
use sandbox::{NamespaceTier, programs};
use tempfile::TempDir;
use worker::{
    CommandBoundary, Descriptor, Filesystem, LaunchDescriptor, Network, ProgramFile,
    ProgramIdentity, StartError, Tier, TierKind, WorkerHoldings, WorkerRoot, WorkerSpec, lower,
};

use crate::host::{Done, Job, finish, tier};

struct Agent {
    _private: TempDir,
    channel: PathBuf,
    program: PathBuf,
}

/// A private folder with a channel and an agent that is a script.
fn agent(script: &str) -> Agent {
    let private = tempfile::tempdir().unwrap();
    let channel = private.path().join("channel");
    fs::create_dir(&channel).unwrap();
    fs::set_permissions(&channel, fs::Permissions::from_mode(0o755)).unwrap();
    let program = private.path().join("agent-on-host");
    fs::write(&program, format!("#!/usr/bin/env python3\n{script}")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    Agent {
        _private: private,
        channel,
        program,
    }
}

const GUEST: &str = "/opt/agent/agent";

fn identity(host: &Path) -> ProgramFile {
    programs::identify_file(host, GUEST, &WorkerRoot::System { also: vec![] }).unwrap()
}

fn spec(tier: &NamespaceTier, agent: &Agent, program: ProgramFile) -> WorkerSpec {
    let job = Job::new(&[GUEST, "do it"]);
    let bound = ProgramIdentity::Content(program.clone());
    let limits = job.spec_of(tier, bound.clone()).limits().clone();
    let boundary = CommandBoundary {
        tier: TierKind::Namespace,
        root: WorkerRoot::System { also: vec![] },
        network: Network::None,
        working_dir: "/workspace".to_owned(),
        limits,
        filesystem: Filesystem::default(),
    };
    let launch = LaunchDescriptor {
        agent: AgentName::new("tester").unwrap(),
        executor: "command".to_owned(),
        task: "do it".to_owned(),
        argv: job.argv.clone(),
        environment: job.environment.clone(),
        program: bound,
        shown: Some(program),
        tools: vec![],
        tool_set_sha256: Digest::of(b""),
        policy_sha256: Digest::of(b""),
        max_calls: 1,
        lifetime_ms: 1000,
        human_approval: false,
        inference: None,
        boundary,
    };
    let holdings = WorkerHoldings {
        inputs: BTreeMap::new(),
        channel: Some(agent.channel.clone()),
        shown: Some(agent.program.clone()),
        ..WorkerHoldings::default()
    };
    lower(&Descriptor::Launch(Box::new(launch)), holdings)
        .unwrap()
        .first
}

fn run(agent: &Agent) -> Done {
    let mut tier = tier();
    let spec = spec(&tier, agent, identity(&agent.program));
    finish(tier.start(spec).unwrap())
}

#[test]
fn an_agent_talks_through_its_channel() {
    let agent = agent(
        "import socket\ns = socket.socket(socket.AF_UNIX); s.connect('/channel/broker.sock')\n\
         s.send(b'ask'); print(s.recv(16).decode())",
    );
    let path = agent.channel.join("broker.sock");
    let listener = UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let broker = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let mut asked = [0; 3];
        peer.read_exact(&mut asked).unwrap();
        peer.write_all(b"answer").unwrap();
        asked
    });
    assert_eq!(run(&agent).ok(), "answer\n");
    assert_eq!(&broker.join().unwrap(), b"ask");
}

#[test]
fn channel_and_program_are_read_only_and_the_only_host_files() {
    let agent = agent(
        "
import os
for path in ['/channel/file', '/opt/agent/agent']:
    for flags in [os.O_WRONLY, os.O_RDWR | os.O_TRUNC]:
        try: os.close(os.open(path, flags)); print('wrote', path)
        except OSError: pass
    for action in [os.unlink, lambda p: os.rename(p, '/tmp/x'), lambda p: os.chmod(p, 0o777), lambda p: os.link(p, '/tmp/l')]:
        try: action(path); print('changed', path)
        except OSError: pass
for folder in ['/channel', '/opt/agent', '/opt']:
    try: open(folder + '/new', 'w'); print('created in', folder)
    except OSError: pass
print(sorted(os.listdir('/channel')), open('/channel/file').read(), os.listdir('/opt'), os.listdir('/opt/agent'))
disk = [line.split()[4] for line in open('/proc/self/mountinfo') if line.split(' - ')[1].split()[0] not in ('tmpfs', 'proc', 'devtmpfs')]
print([place for place in disk if not place.startswith(('/usr', '/etc', '/bin', '/lib', '/sbin'))])
",
    );
    fs::write(agent.channel.join("file"), "bridge").unwrap();
    fs::write(agent.channel.parent().unwrap().join("neighbour"), "secret").unwrap();
    let text = run(&agent).ok();
    let disk = if text.contains("['/channel', '/opt/agent/agent']") {
        "['/channel', '/opt/agent/agent']"
    } else {
        // Where the host's temporary folder is a tmpfs itself.
        "[]"
    };
    assert_eq!(
        text,
        format!("['file'] bridge ['agent'] ['agent']\n{disk}\n")
    );
}

#[test]
fn an_agent_has_scratch_space_but_may_execute_nothing_there() {
    let agent = agent(
        "
import os, shutil, subprocess
print(os.getcwd(), os.environ['HOME'])
for folder in ['/workspace', '/tmp', '/dev/shm']:
    os.makedirs(folder + '/a/b'); open(folder + '/a/b/f', 'w').write('x')
    shutil.copy('/usr/bin/true', folder + '/true')
    try: subprocess.run([folder + '/true']); print('ran')
    except PermissionError: pass
shutil.move('/workspace/a', '/tmp/moved')
print(os.path.exists('/home'), os.path.exists('/work'))
",
    );
    assert_eq!(run(&agent).ok(), "/workspace /tmp\nFalse False\n");
}

#[test]
fn an_agent_that_was_replaced_after_it_was_bound_does_not_run() {
    let agent = agent("print('old')");
    let mut tier = tier();
    let bound = identity(&agent.program);
    let replaced = spec(&tier, &agent, bound.clone());
    fs::write(&agent.program, "#!/usr/bin/env python3\nprint('new')").unwrap();
    match tier.start(replaced) {
        Err(StartError::ProgramChanged { path }) => assert_eq!(path, GUEST),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it ran"),
    }
    let now = identity(&agent.program);
    assert_ne!(now.sha256, bound.sha256);
    assert_eq!(now.interpreter, bound.interpreter);
    let spec = spec(&tier, &agent, now);
    assert_eq!(finish(tier.start(spec).unwrap()).ok(), "new\n");
}

#[test]
fn an_agent_of_an_ordinary_size_of_memory_starts_without_a_group() {
    // RLIMIT_DATA alone must leave an agent at least one GiB.
    let agent = agent(
        "x = bytearray(700 << 20) if not __import__('os').path.exists('/nonexistent') else 0; print(len(x))",
    );
    let mut tier = tier();
    let spec = spec(&tier, &agent, identity(&agent.program));
    let whole = spec.limits().memory_mib.enforcement == worker::Enforcement::Enforced;
    let done = finish(tier.start(spec).unwrap());
    if whole {
        assert_eq!(done.ended.limit, Some(worker::LimitReached::Memory));
    } else {
        assert_eq!(done.ok(), format!("{}\n", 700 << 20));
    }
}
