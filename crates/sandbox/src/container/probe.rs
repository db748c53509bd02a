//! What an agent's container must have, tried from inside before a word is sent to a provider.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{self, Read};
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::{AgentName, Digest};
use rustix::event::poll;
use worker::{
    CommandBoundary, Descriptor, Ended, Ending, Filesystem, LaunchDescriptor, Limits, Network,
    Running, StartError, Tier, WorkerHoldings, lower,
};

use super::{ContainerKind, ContainerTier, RUN_PROGRAM, failed, unavailable};
use crate::lease::LeaseId;
use crate::limits::{AGENT_PROBE_MS, PROBE_WORD_BYTES_MAX};
use crate::programs::ProgramCache;

const PYTHON: &str = "python3";
/// What lets a worker of gVisor's connect to a socket that it is shown.
pub(crate) const SOCKETS_NEED: &str = "gVisor needs `--host-uds=open` (before 2023: \
                                       `--fsgofer-host-uds`) in the runtimeArgs of the engine's \
                                       daemon.json";
const WORD: &str = "word";
const SOCKET: &str = "probe.sock";
/// Says each program that cannot be run and each way to a network, and passes the word on through
/// the socket.
const SCRIPT: &str = "import os, socket, sys\n\
    for path in sys.argv[1:]:\n\
    \x20   if not os.access(path, os.X_OK): print('program', path)\n\
    with open('/proc/net/dev') as file: lines = file.read().splitlines()[2:]\n\
    for name in (line.split(':')[0].strip() for line in lines):\n\
    \x20   if name != 'lo': print('device', name)\n\
    with open('/channel/word', 'rb') as file: word = file.read()\n\
    try:\n\
    \x20   socket.socket(socket.AF_UNIX).connect(b'\\0symbi-' + word)\n\
    \x20   print('host')\n\
    except OSError: pass\n\
    s = socket.socket(socket.AF_UNIX)\n\
    try:\n\
    \x20   s.connect('/channel/probe.sock')\n\
    \x20   s.sendall(word)\n\
    except OSError as error: print(error, file=sys.stderr)\n";

impl ContainerTier {
    /// Whether an agent could work in a container: Python 3 and its `programs` are in the image,
    /// the engine sees this machine's files, a socket in a read-only bind takes connections, and
    /// there is no network: neither a device, nor the host's namespace with its listeners.
    /// `folder` is a private folder for a channel.
    ///
    /// # Errors
    /// [`StartError::Unavailable`] with all that is missing.
    pub fn probe_agent(&mut self, programs: &[&str], folder: &Path) -> Result<(), StartError> {
        let io_failed = |error: io::Error| failed("probe the agent's channel", error);
        let channel = ProbeChannel::open(folder).map_err(io_failed)?;
        let mut argv = vec![PYTHON, "-I", "-c", SCRIPT];
        argv.extend(programs);
        let mut running = match self.start_probe(&argv, &channel.path) {
            Err(StartError::Failed { step, reason }) if step == RUN_PROGRAM => {
                return Err(unavailable(format!(
                    "the image has no Python 3, which carries an agent's tools and its model: \
                     {reason}"
                )));
            }
            other => other?,
        };
        let ended = wait(running.as_mut()).map_err(io_failed)?;
        running
            .remove()
            .map_err(|error| failed("remove the probe", error))?;
        self.judge(&ended, channel.heard().map_err(io_failed)?)
    }

    fn judge(&self, ended: &Ended, heard: bool) -> Result<(), StartError> {
        let said = String::from_utf8_lossy(&ended.stderr.bytes);
        let said = said.trim().escape_debug();
        if ended.ending != (Ending::Exited { code: 0 }) {
            return Err(unavailable(format!(
                "Python 3 of the image does not run: {said}"
            )));
        }
        let told = String::from_utf8_lossy(&ended.stdout.bytes);
        let mut faults: Vec<String> = told.lines().map(fault).collect();
        if !heard {
            let flag = match self.kind {
                ContainerKind::Gvisor => format!("; {SOCKETS_NEED}"),
                ContainerKind::Docker => String::new(),
            };
            faults.push(format!(
                "a socket in a read-only bind takes no connection ({said}){flag}"
            ));
        }
        match faults.is_empty() {
            true => Ok(()),
            false => Err(unavailable(faults.join("; "))),
        }
    }

    fn start_probe(
        &mut self,
        argv: &[&str],
        channel: &Path,
    ) -> Result<Box<dyn Running>, StartError> {
        let root = self.root();
        let program = ProgramCache::default()
            .resolve(PYTHON, &root)
            .map_err(|error| failed("probe", error))?;
        let agent = AgentName::new("probe").map_err(|error| failed("probe", error))?;
        let nothing = Digest::of(b"");
        let launch = LaunchDescriptor {
            agent,
            executor: "probe".to_owned(),
            task: String::new(),
            argv: argv.iter().map(|&word| word.to_owned()).collect(),
            environment: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
            program,
            shown: None,
            tools: Vec::new(),
            tool_set_sha256: nothing,
            policy_sha256: nothing,
            max_calls: 0,
            lifetime_ms: AGENT_PROBE_MS,
            human_approval: false,
            inference: None,
            boundary: CommandBoundary {
                tier: self.kind.tier(),
                root,
                network: Network::None,
                working_dir: "/workspace".to_owned(),
                limits: self.enforceable(limits()),
                filesystem: Filesystem::default(),
            },
        };
        let holdings = WorkerHoldings {
            channel: Some(channel.to_owned()),
            ..WorkerHoldings::default()
        };
        let workers = lower(&Descriptor::Launch(Box::new(launch)), holdings)
            .map_err(|error| failed("probe", error))?;
        self.start(workers.first)
    }
}

/// What one line of the script says.
fn fault(line: &str) -> String {
    match line.split_once(' ') {
        Some(("program", path)) => {
            format!("the image has no program `{}`", path.escape_debug())
        }
        Some(("device", name)) => format!(
            "a worker without a network has the device `{}`: the container engine did not keep it \
             out; do not use this engine",
            name.escape_debug()
        ),
        _ if line == "host" => {
            "a worker reaches a listener of the host: the container engine put it into the host's \
             network namespace; do not use this engine"
                .to_owned()
        }
        _ => format!("the probe says `{}`", line.escape_debug()),
    }
}

/// A channel folder with a listener and a word that nobody can guess. Gone with its owner.
struct ProbeChannel {
    path: PathBuf,
    listener: UnixListener,
    /// Of the host's network namespace, by an abstract name with the word in it.
    _of_host: UnixListener,
    word: String,
}

impl ProbeChannel {
    fn open(folder: &Path) -> io::Result<Self> {
        let word = LeaseId::random().map_err(|error| io::Error::other(error.to_string()))?;
        let path = folder.join(format!("probe-{word}"));
        fs::create_dir(&path)?;
        // By the held folder: a socket's path must be short, and a run's folder need not be.
        let held = fs::File::open(&path)?;
        let short = format!("/proc/self/fd/{}/{SOCKET}", held.as_raw_fd());
        let made = Self {
            listener: UnixListener::bind(short)?,
            _of_host: UnixListener::bind_addr(&SocketAddr::from_abstract_name(format!(
                "symbi-{word}"
            ))?)?,
            word: word.to_string(),
            path,
        };
        fs::write(made.path.join(WORD), &made.word)?;
        // The workload is another user; the folder above keeps others out.
        for (name, mode) in [("", 0o755), (SOCKET, 0o666), (WORD, 0o444)] {
            fs::set_permissions(made.path.join(name), Permissions::from_mode(mode))?;
        }
        made.listener.set_nonblocking(true)?;
        Ok(made)
    }

    /// Whether the word came through the socket.
    fn heard(&self) -> io::Result<bool> {
        let (stream, _) = match self.listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        let mut heard = Vec::new();
        let _read = stream.take(PROBE_WORD_BYTES_MAX).read_to_end(&mut heard);
        Ok(heard == self.word.as_bytes())
    }
}

impl Drop for ProbeChannel {
    fn drop(&mut self) {
        // It lies in a folder that its owner removes as a whole.
        let _removed = fs::remove_dir_all(&self.path);
    }
}

fn wait(running: &mut dyn Running) -> io::Result<Ended> {
    loop {
        let mut polled = Vec::new();
        running.poll_descriptors(&mut polled);
        poll(&mut polled, None)?;
        drop(polled);
        if let Some(ended) = running.advance() {
            return Ok(ended);
        }
    }
}

fn limits() -> Limits {
    let mut wanted = Limits::wanted(Limits::DEFAULTS);
    wanted.stream_bytes.value = 1 << 16;
    wanted.time_ms.value = AGENT_PROBE_MS;
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_probe_says_is_a_fault_with_its_reason() {
        for (line, said) in [
            ("program /opt/agent", "no program `/opt/agent`"),
            ("device eth0", "has the device `eth0`"),
            ("host", "reaches a listener of the host"),
            ("else", "the probe says `else`"),
        ] {
            assert!(fault(line).contains(said), "{line}: {}", fault(line));
        }
    }
}
