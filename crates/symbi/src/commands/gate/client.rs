//! The operator's side of the gates: one socket for each run, in the user's private folder.

use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::ops::ControlFlow;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use approval::limits::RESPONSE_BYTES_MAX;
use approval::wire::{Request, Response, WireError};
use model::RunId;
use project::{Folder, UserDirs};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, unlinkat};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::approvals::chat;
use crate::approvals::gate::SOCKET_SUFFIX;
use crate::exit::{Exit, Failure};

/// For one request and its response; of all runs together, where all are asked.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a run that takes no connection is asked again: others may be at its door.
const DOOR_TIME_MAX: Duration = Duration::from_millis(500);
/// Pause between two attempts.
const DOOR_PAUSE: Duration = Duration::from_millis(10);
/// Most entries of the folder that are looked at.
const ENTRIES_MAX: usize = 4096;

/// The folder of the sockets.
#[derive(Debug)]
pub(super) struct Gates {
    folder: Folder,
    /// Runs that were killed while their gate was open, as far as they were met.
    gone: Mutex<Vec<RunId>>,
}

/// The gate of one run.
#[derive(Debug)]
pub(super) struct RunGate<'a> {
    gates: &'a Gates,
    run: RunId,
}

/// Why a run did not answer.
#[derive(Debug)]
pub(super) enum AskError {
    Io(io::Error),
    /// The socket is another user's.
    Owner {
        uid: u32,
    },
    Wire(WireError),
    /// It closed without an answer.
    Silent,
    /// It is there and does nothing.
    Late,
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "it does not answer: {error}"),
            Self::Owner { uid } => write!(f, "its socket belongs to uid {uid}"),
            Self::Wire(error) => error.fmt(f),
            Self::Silent => f.write_str("it ended without an answer"),
            Self::Late => f.write_str(
                "it does not answer; if it is stopped, continue it (`fg` in its terminal, or \
                 `kill -CONT` and its process) or end it",
            ),
        }
    }
}

impl std::error::Error for AskError {}

impl From<io::Error> for AskError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Late,
            _ => Self::Io(error),
        }
    }
}

impl Gates {
    pub(super) fn open(dirs: &UserDirs) -> Result<Self, Failure> {
        let folder = dirs
            .sockets()
            .map_err(|error| Failure::of(Exit::Storage, &error))?;
        Ok(Self {
            folder,
            gone: Mutex::default(),
        })
    }

    /// The killed runs that were met, oldest first.
    pub(super) fn gone(&self) -> Vec<RunId> {
        let gone = self.gone.lock();
        gone.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) const fn folder(&self) -> &Folder {
        &self.folder
    }

    /// The gate of the run that a file of the folder belongs to.
    pub(super) fn of_name(&self, name: &str) -> Option<RunGate<'_>> {
        let run = name.strip_suffix(SOCKET_SUFFIX)?.parse().ok()?;
        Some(RunGate { gates: self, run })
    }

    /// All runs that have a gate, oldest first.
    pub(super) fn running(&self) -> Result<Vec<RunGate<'_>>, Failure> {
        let failed = |error: io::Error| {
            Failure::new(Exit::Storage, format!("the folder of the gates: {error}"))
        };
        let entries =
            rustix::fs::Dir::read_from(self.folder.fd()).map_err(|error| failed(error.into()))?;
        let mut gates = Vec::new();
        for entry in entries.take(ENTRIES_MAX) {
            let entry = entry.map_err(|error| failed(error.into()))?;
            let gate = entry.file_name().to_str().ok();
            gates.extend(gate.and_then(|name| self.of_name(name)));
        }
        gates.sort_by_key(|gate| gate.run);
        Ok(gates.into_iter().filter(RunGate::lives).collect())
    }

    /// Asks all runs at once, and tells each answer as it comes, until `told` breaks: a run that
    /// is stopped holds up no other.
    pub(super) fn ask_all<'a, T>(
        &'a self,
        request: &Request,
        mut told: impl FnMut(RunGate<'a>, Result<Response, AskError>) -> ControlFlow<T>,
    ) -> Result<Option<T>, Failure> {
        let deadline = Instant::now() + ANSWER_TIME_MAX;
        let mut waiting = Vec::new();
        for gate in self.running()? {
            match gate.send(request) {
                Ok(stream) => waiting.push((gate, stream)),
                Err(error) => {
                    if let ControlFlow::Break(found) = told(gate, Err(error)) {
                        return Ok(Some(found));
                    }
                }
            }
        }
        while !waiting.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let ready = readable(&waiting, left)
                .map_err(|error| Failure::new(Exit::Storage, format!("waiting: {error}")))?;
            let late = !ready.contains(&true);
            let mut ready = ready.into_iter();
            let (now, later): (Vec<_>, Vec<_>) = waiting
                .into_iter()
                .partition(|_| late || ready.next().unwrap_or(false));
            waiting = later;
            for (gate, stream) in now {
                let answer = if late {
                    Err(AskError::Late)
                } else {
                    response(stream)
                };
                if let ControlFlow::Break(found) = told(gate, answer) {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }
}

/// Which of the streams can be read; none if the time is over.
fn readable(waiting: &[(RunGate<'_>, UnixStream)], left: Duration) -> io::Result<Vec<bool>> {
    let mut streams: Vec<PollFd<'_>> = waiting
        .iter()
        .map(|(_, stream)| PollFd::new(stream, PollFlags::IN))
        .collect();
    let left = Timespec {
        tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    };
    poll(&mut streams, Some(&left))?;
    Ok(streams.iter().map(|it| !it.revents().is_empty()).collect())
}

fn response(stream: UnixStream) -> Result<Response, AskError> {
    read(&mut BufReader::new(stream))?.ok_or(AskError::Silent)
}

impl RunGate<'_> {
    pub(super) const fn run(&self) -> RunId {
        self.run
    }

    fn name(&self) -> String {
        format!("{}{SOCKET_SUFFIX}", self.run)
    }

    /// Whether anybody listens. The sockets of a run that died are removed: a socket listens
    /// before it has its name, and no run has another's id.
    fn lives(&self) -> bool {
        match self.connect() {
            Err(AskError::Io(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                let callbacks = format!("{}{}", self.run, chat::SOCKET_SUFFIX);
                for name in [self.name(), callbacks] {
                    let _ = unlinkat(self.gates.folder.fd(), name, AtFlags::empty());
                }
                let gone = self.gates.gone.lock();
                gone.unwrap_or_else(PoisonError::into_inner).push(self.run);
                false
            }
            _ => true,
        }
    }

    /// Never waits: who is stopped takes connections until they are too many, and then none.
    fn connect(&self) -> Result<UnixStream, AskError> {
        let folder = self.gates.folder.fd().as_raw_fd();
        let path = format!("/proc/self/fd/{folder}/{}", self.name());
        let address = SocketAddrUnix::new(path).map_err(io::Error::from)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(io::Error::from)?;
        connect(&socket, &address).map_err(io::Error::from)?;
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false)?;
        let owner = socket_peercred(&stream).map_err(io::Error::from)?.uid;
        if owner != rustix::process::geteuid() {
            let uid = owner.as_raw();
            return Err(AskError::Owner { uid });
        }
        stream.set_write_timeout(Some(ANSWER_TIME_MAX))?;
        Ok(stream)
    }

    /// Asks one thing.
    pub(super) fn ask(&self, request: &Request) -> Result<Response, AskError> {
        response(self.send(request)?)
    }

    fn send(&self, request: &Request) -> Result<UnixStream, AskError> {
        let until = Instant::now() + DOOR_TIME_MAX;
        let stream = loop {
            match self.connect() {
                Err(AskError::Late) if Instant::now() < until => std::thread::sleep(DOOR_PAUSE),
                other => break other?,
            }
        };
        stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        // Who is refused at the door is told why before anything is read: that is the answer.
        let _ = (&stream).write_all(request.to_line().as_bytes());
        Ok(stream)
    }

    /// Asks for all held calls, now and after every change.
    pub(super) fn watch(
        &self,
    ) -> Result<impl Iterator<Item = Result<Response, AskError>>, AskError> {
        let stream = self.connect()?;
        let _ = (&stream).write_all(Request::Watch.to_line().as_bytes());
        let mut stream = BufReader::new(stream);
        Ok(std::iter::from_fn(move || read(&mut stream).transpose()))
    }
}

/// One response; `None` at the end.
fn read(stream: &mut BufReader<UnixStream>) -> Result<Option<Response>, AskError> {
    let mut line = Vec::new();
    let most = RESPONSE_BYTES_MAX as u64 + 1;
    stream.take(most).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    Response::read(&line).map(Some).map_err(AskError::Wire)
}
