//! One connection to the engine, for one request.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::answer::{Answer, AnswerReader, Progress};
use super::error::{EngineError, Trouble};
use crate::limits::READ_BYTES;

/// Statuses that hand the connection over to the container's streams.
const UPGRADED: [u16; 2] = [101, 200];

#[derive(Debug)]
pub(super) struct Connection {
    what: &'static str,
    stream: UnixStream,
    until: Instant,
    reader: AnswerReader,
}

impl Connection {
    /// # Errors
    /// [`Trouble::NotSent`]
    pub(super) fn open(
        what: &'static str,
        path: &Path,
        until: Instant,
    ) -> Result<Self, EngineError> {
        let not_sent = |error: io::Error| {
            let why = format!("connect to `{}`: {error}", path.display());
            EngineError::new(what, Trouble::NotSent { why })
        };
        let left = left(until).map_err(not_sent)?;
        let stream = open_socket(path, left).map_err(not_sent)?;
        Ok(Self {
            what,
            stream,
            until,
            reader: AnswerReader::default(),
        })
    }

    /// Sends a request. From its first byte on, what the engine does is unknown.
    pub(super) fn send(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
    ) -> Result<(), EngineError> {
        if method == "HEAD" {
            self.reader = AnswerReader::of_head();
        }
        let mut head = head(method, path, "Connection: close\r\n");
        if let Some(body) = body {
            // Writing to a text cannot fail.
            let _written = write!(head, "Content-Type: application/json\r\n");
            let _written = write!(head, "Content-Length: {}\r\n", body.len());
        } else if method != "GET" {
            head.push_str("Content-Length: 0\r\n");
        }
        head.push_str("\r\n");
        let mut request = head.into_bytes();
        request.extend_from_slice(body.unwrap_or_default());
        self.write(&request)
    }

    pub(super) fn send_upgrade(&mut self, path: &str) -> Result<(), EngineError> {
        let fields = "Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n";
        let request = head("POST", path, fields);
        self.write(request.as_bytes())
    }

    pub(super) fn send_stream(
        &mut self,
        path: &str,
        content: &mut dyn Read,
        bytes: u64,
    ) -> Result<(), EngineError> {
        let fields = format!(
            "Connection: close\r\nContent-Type: application/x-tar\r\nContent-Length: {bytes}\r\n\r\n"
        );
        self.write(head("POST", path, &fields).as_bytes())?;
        let mut buffer = vec![0; READ_BYTES];
        let mut rest = content.take(bytes);
        loop {
            let count = rest.read(&mut buffer).map_err(|error| self.lost(&error))?;
            let part = buffer.get(..count).unwrap_or_default();
            if part.is_empty() {
                return Ok(());
            }
            self.write(part)?;
        }
    }

    /// Waits for the whole answer.
    pub(super) fn answer(&mut self) -> Result<Answer, EngineError> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let count = self.read(&mut buffer)?;
            let part = buffer.get(..count).unwrap_or_default();
            if let Some(answer) = self.take(part)? {
                return Ok(answer);
            }
        }
    }

    /// Waits for the head of an answer that hands the connection over; says what came after it.
    pub(super) fn upgraded(mut self) -> Result<(UnixStream, Vec<u8>), EngineError> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let count = self.read(&mut buffer)?;
            let part = buffer.get(..count).unwrap_or_default();
            let answer = self.take(part)?;
            let head = self.reader.head().map_err(|why| self.unknown(why))?;
            match (head, answer) {
                (Some((status, early)), _) if UPGRADED.contains(&status) => {
                    let early = early.to_vec();
                    return Ok((self.stream, early));
                }
                (_, Some(answer)) => return Err(EngineError::answered(self.what, &answer)),
                (_, None) => {}
            }
        }
    }

    pub(super) fn do_not_block(&mut self) -> Result<(), EngineError> {
        let changed = self.stream.set_nonblocking(true);
        changed.map_err(|error| self.lost(&error))
    }

    /// Takes what is there, without blocking.
    pub(super) fn advance(&mut self) -> Option<Result<Answer, EngineError>> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let count = match self.stream.read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Some(Err(self.lost(&error))),
            };
            let part = buffer.get(..count).unwrap_or_default();
            match self.take(part) {
                Ok(None) => {}
                Ok(Some(answer)) => return Some(Ok(answer)),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Feeds the next bytes; none is the end of the connection.
    fn take(&mut self, part: &[u8]) -> Result<Option<Answer>, EngineError> {
        let fed = match part.is_empty() {
            true => self.reader.end().map(Progress::Whole),
            false => self.reader.feed(part),
        };
        match fed {
            Ok(Progress::Whole(answer)) => Ok(Some(answer)),
            Ok(Progress::More) => Ok(None),
            Err(why) => Err(self.unknown(why)),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, EngineError> {
        loop {
            let left = left(self.until).map_err(|error| self.lost(&error))?;
            let bounded = self.stream.set_read_timeout(Some(left));
            bounded.map_err(|error| self.lost(&error))?;
            match self.stream.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The next look at the time ends it.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other.map_err(|error| self.lost(&error)),
            }
        }
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), EngineError> {
        while !bytes.is_empty() {
            let left = left(self.until).map_err(|error| self.lost(&error))?;
            let bounded = self.stream.set_write_timeout(Some(left));
            bounded.map_err(|error| self.lost(&error))?;
            match self.stream.write(bytes) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The engine may have answered before it has read all: the answer says why.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                Err(error) => return Err(self.lost(&error)),
            }
        }
        Ok(())
    }

    fn lost(&self, error: &io::Error) -> EngineError {
        self.unknown(match error.kind() {
            io::ErrorKind::TimedOut => "it did not answer in time".to_owned(),
            _ => format!("the connection was lost: {error}"),
        })
    }

    fn unknown(&self, why: String) -> EngineError {
        EngineError::new(self.what, Trouble::Unknown { why })
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn head(method: &str, path: &str, fields: &str) -> String {
    // A fixed host: the socket says who is asked.
    format!("{method} {path} HTTP/1.1\r\nHost: engine\r\nUser-Agent: symbi\r\n{fields}")
}

fn left(until: Instant) -> io::Result<Duration> {
    match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::Error::from(io::ErrorKind::TimedOut)),
        left => Ok(left),
    }
}

/// The standard library's connect waits without end for a listener that accepts nobody.
fn open_socket(path: &Path, at_most: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(at_most))?;
    loop {
        match connect(&socket, &address) {
            Ok(()) => return Ok(UnixStream::from(socket)),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return Err(io::Error::from(io::ErrorKind::TimedOut)),
            Err(error) => return Err(error.into()),
        }
    }
}
