//! Live listeners of the host that a contained agent must not reach. Each was reached once by
//! ourselves, so that its silence means something.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};

/// Three listeners on the host's loopback and in its abstract socket names.
#[derive(Debug)]
pub(crate) struct Witness {
    tcp: TcpListener,
    udp: UdpSocket,
    local: UnixListener,
    /// Name of the abstract unix socket.
    pub(crate) name: String,
}

impl Witness {
    /// Starts listening, and proves that what comes is seen.
    pub(crate) fn start(name: String) -> io::Result<Self> {
        let witness = Self {
            tcp: TcpListener::bind(("127.0.0.1", 0))?,
            udp: UdpSocket::bind(("127.0.0.1", 0))?,
            local: UnixListener::bind_addr(&UnixAddr::from_abstract_name(&name)?)?,
            name,
        };
        witness.tcp.set_nonblocking(true)?;
        witness.udp.set_nonblocking(true)?;
        witness.local.set_nonblocking(true)?;
        witness.prove()?;
        Ok(witness)
    }

    fn prove(&self) -> io::Result<()> {
        drop(TcpStream::connect(self.tcp.local_addr()?)?);
        let sender = UdpSocket::bind(("127.0.0.1", 0))?;
        sender.send_to(b"proof", self.udp.local_addr()?)?;
        drop(UnixStream::connect_addr(&UnixAddr::from_abstract_name(
            &self.name,
        )?)?);
        match self.seen() {
            3 => Ok(()),
            seen => Err(io::Error::other(format!(
                "of 3 messages over loopback {seen} arrived"
            ))),
        }
    }

    pub(crate) fn tcp_port(&self) -> io::Result<u16> {
        self.tcp
            .local_addr()
            .map(|address: SocketAddr| address.port())
    }

    pub(crate) fn udp_port(&self) -> io::Result<u16> {
        self.udp.local_addr().map(|address| address.port())
    }

    /// How many connections and packets came since it was last asked, at most one a packet.
    pub(crate) fn seen(&self) -> usize {
        let tcp = std::iter::from_fn(|| self.tcp.accept().ok()).count();
        let udp = std::iter::from_fn(|| self.udp.recv_from(&mut [0; 16]).ok()).count();
        let local = std::iter::from_fn(|| self.local.accept().ok()).count();
        tcp + udp + local
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_reaches_a_listener_is_counted() {
        let name = format!("symbi-witness-test-{}", std::process::id());
        let witness = Witness::start(name).unwrap();
        assert_eq!(witness.seen(), 0);
        drop(TcpStream::connect(("127.0.0.1", witness.tcp_port().unwrap())).unwrap());
        let udp = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        udp.send_to(b"x", ("127.0.0.1", witness.udp_port().unwrap()))
            .unwrap();
        assert_eq!(witness.seen(), 2);
        assert_eq!(witness.seen(), 0);
    }
}
