//! What of the host no worker may reach, laid out for the probes to try.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read as _};
use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use worker::TierKind;

use crate::limits::PROBE_GONE_MAX;

const CHANNEL: &str = "channel";
const SOCKET: &str = "probe.sock";
/// The socket's place in the worker.
pub(super) const SOCKET_IN_WORKER: &str = "/channel/probe.sock";

/// The canaries. What listens stops when this is dropped.
#[derive(Debug)]
pub(super) struct Canaries {
    /// The folder that workers are shown, with a socket for what they leave behind.
    pub(super) channel: PathBuf,
    /// A file of the host.
    pub(super) file: String,
    /// A listener on the host's loopback.
    pub(super) listener: String,
    /// An abstract socket of the host.
    pub(super) name: String,
    /// What the host's pid namespace is called; empty where it is not told.
    pub(super) pid_namespace: String,
    /// What the host's kernel calls itself.
    kernel: String,
    socket: UnixListener,
    _tcp: TcpListener,
    _abstract: UnixListener,
}

impl Canaries {
    pub(super) fn lay(folder: &Path) -> io::Result<Self> {
        let channel = folder.join(CHANNEL);
        DirBuilder::new().mode(0o755).create(&channel)?;
        let held = File::open(&channel)?;
        // Through the held folder, so that the path may be as long as it likes.
        let address = format!("/proc/self/fd/{}/{SOCKET}", held.as_raw_fd());
        let socket = UnixListener::bind(address)?;
        socket.set_nonblocking(true)?;
        fs::set_permissions(channel.join(SOCKET), Permissions::from_mode(0o666))?;
        let file = folder.join("canary");
        fs::write(&file, "a file of the host\n")?;
        let tcp = TcpListener::bind(("127.0.0.1", 0))?;
        let mut tag = [0; 8];
        getrandom::fill(&mut tag).map_err(|error| io::Error::other(error.to_string()))?;
        let name = format!("symbi-probe-{:016x}", u64::from_ne_bytes(tag));
        let pid_namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        Ok(Self {
            channel,
            file: file.to_string_lossy().into_owned(),
            listener: tcp.local_addr()?.to_string(),
            _abstract: UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?,
            name,
            pid_namespace: pid_namespace.to_string_lossy().into_owned(),
            kernel: fs::read_to_string("/proc/version")?.trim().to_owned(),
            socket,
            _tcp: tcp,
        })
    }

    /// What the kernel of a worker must not call itself; empty where it is the host's.
    pub(super) fn kernel_of(&self, kind: TierKind) -> String {
        match kind {
            TierKind::Namespace | TierKind::Docker => String::new(),
            TierKind::Gvisor | TierKind::Firecracker => self.kernel.clone(),
        }
    }

    /// Copies a program of the host to `place`, a name in the worker's channel.
    pub(super) fn put_in_channel(&self, program: &Path, place: &str) -> io::Result<()> {
        let name = Path::new(place).file_name().unwrap_or_default();
        let copy = self.channel.join(name);
        fs::copy(program, &copy)?;
        fs::set_permissions(copy, Permissions::from_mode(0o755))
    }

    /// The connection of a process that a probe left behind, if it did.
    pub(super) fn left_behind(&self) -> Option<UnixStream> {
        self.socket.accept().ok().map(|(stream, _)| stream)
    }

    /// Whether the process at the other side is gone.
    pub(super) fn is_gone(mut connection: &UnixStream) -> bool {
        let bounded = connection
            .set_nonblocking(false)
            .and_then(|()| connection.set_read_timeout(Some(PROBE_GONE_MAX)));
        bounded.is_ok() && matches!(connection.read(&mut [0; 1]), Ok(0))
    }
}
