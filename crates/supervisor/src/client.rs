//! The other side: a process that takes leases, and finds or starts the supervisor that keeps
//! them.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use sandbox::lease::{Lease, LeaseFailed, LeaseId, LeaseKeeper, LeaseRefused, LeaseTerms};

use crate::folder::{FolderFault, Holding, PrivateFolder, Running, random_digits};
use crate::leases;
use crate::limits::{
    ANSWER_TIME_MAX, CROWD_PAUSE_MAX, CROWD_TIME_MAX, KNOCK_TIME_MAX, LIFETIME_GRACE, LIFETIME_MAX,
    PROTOCOL_VERSION, PRUNE_TIME_MAX, READ_TIME_MAX, START_ATTEMPTS_MAX, START_PAUSE,
    START_TIME_MAX, STORE_DIGITS,
};
use crate::line::Lines;
use crate::peer::{self, Namespaces, PeerRefused};
use crate::start::{self, Launch, StartFault};
use crate::sys;
use crate::wire::{Hello, Request, Response, Status, Terms, Welcome};

/// Digits of a lease's id.
const LEASE_DIGITS: usize = 32;

/// Where the supervisor of a user is, and how one is started.
#[derive(Debug, Clone)]
pub struct Client {
    /// Its private folder, in the user's state.
    pub state: PathBuf,
    /// The folder of sockets.
    pub sockets: PathBuf,
    pub launch: Launch,
}

/// Why there is no conversation with a supervisor.
#[derive(Debug)]
pub enum ConnectError {
    /// None runs.
    NotRunning,
    /// One runs, and does not listen yet.
    Begins,
    /// One runs, and its socket is not there, or is not its own.
    Lost {
        pid: u32,
        path: PathBuf,
    },
    Folder(FolderFault),
    Io {
        step: &'static str,
        source: io::Error,
    },
    /// What listens there is none of ours.
    Foreign(PeerRefused),
    /// It refuses us, and says why.
    Refused {
        reason: String,
    },
    /// It has no place for another connection.
    Crowded {
        reason: String,
    },
    Version {
        theirs: u32,
        program: String,
    },
    Start(StartFault),
    /// Several in a row ended before they answered.
    Unsteady,
    /// One runs and does nothing.
    Silent {
        pid: u32,
    },
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRunning => f.write_str("no supervisor runs"),
            Self::Begins => f.write_str("the supervisor has begun, and does not listen yet"),
            Self::Lost { pid, path } => write!(
                f,
                "the supervisor, process {pid}, is not what is at `{}`: its socket was removed or \
                 replaced; it makes it anew within {} seconds, unless something there stops it: \
                 remove what is there, or end it, and the next call starts another: kill {pid}",
                path.display(),
                CROWD_TIME_MAX.as_secs()
            ),
            Self::Folder(fault) => fault.fmt(f),
            Self::Io { step, .. } => write!(f, "the supervisor: cannot {step}"),
            Self::Foreign(refused) => {
                write!(
                    f,
                    "what listens at the supervisor's socket is not ours: {refused}"
                )
            }
            Self::Refused { reason } => write!(f, "the supervisor refuses this process: {reason}"),
            Self::Crowded { reason } => {
                write!(f, "the supervisor takes no more connections: {reason}")
            }
            Self::Version { theirs, program } => write!(
                f,
                "the supervisor that runs is of symbi {program} and speaks version {theirs}, not \
                 {PROTOCOL_VERSION}; it ends by itself a minute after its last lease"
            ),
            Self::Start(fault) => fault.fmt(f),
            Self::Unsteady => f.write_str(
                "no supervisor answers at its socket, though some were started; look into \
                 `supervisor/log` of the state folder, and end the process that \
                 `supervisor/lock` names, if it still runs",
            ),
            Self::Silent { pid } => write!(
                f,
                "the supervisor, process {pid}, does not answer; if it is stopped, continue it: \
                 kill -CONT {pid}; or end it, and the next call starts another: kill -9 {pid}"
            ),
        }
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Folder(fault) => std::error::Error::source(fault),
            Self::Io { source, .. } => Some(source),
            Self::Start(fault) => std::error::Error::source(fault),
            _ => None,
        }
    }
}

impl ConnectError {
    /// Whether another attempt soon may end otherwise, and starts none beside one that runs.
    fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Begins | Self::Lost { .. } | Self::Crowded { .. } | Self::Io { step: GREET, .. }
        )
    }
}

fn io_step(step: &'static str) -> impl FnOnce(io::Error) -> ConnectError {
    move |source| ConnectError::Io { step, source }
}

/// A conversation with one supervisor.
#[derive(Debug)]
pub(crate) struct Link {
    lines: Lines,
    store: String,
}

impl Link {
    /// Asks, and waits for the answer.
    pub(crate) fn ask(&mut self, request: &Request, patience: Duration) -> io::Result<Response> {
        self.lines.send(request)?;
        let answer = self.lines.next(Some(patience))?;
        answer.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl Client {
    /// A conversation with the supervisor that runs, which is never started for it.
    ///
    /// # Errors
    /// [`ConnectError::NotRunning`] among others.
    pub(crate) fn connect(&self) -> Result<Link, ConnectError> {
        // It says where its socket is: another process may have another folder for sockets.
        let holding = match PrivateFolder::open(&self.state) {
            Ok(folder) => folder.holding().map_err(ConnectError::Folder)?,
            Err(FolderFault::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Holding::Nobody
            }
            Err(fault) => return Err(ConnectError::Folder(fault)),
        };
        match holding {
            Holding::Nobody => Err(ConnectError::NotRunning),
            Holding::Beginner => Err(ConnectError::Begins),
            Holding::Supervisor(running) => knock(&running),
        }
    }

    /// A conversation with the supervisor, which is started where none runs.
    pub(crate) fn connect_or_start(&self) -> Result<Link, ConnectError> {
        let mut fault = ConnectError::Unsteady;
        let mut in_unit = true;
        for _ in 0..START_ATTEMPTS_MAX {
            match self.await_welcome() {
                Err(ConnectError::NotRunning) => {}
                // It has the lock: another one would end at once.
                Err(silent @ ConnectError::Silent { .. }) => {
                    fault = silent;
                    continue;
                }
                other => return other,
            }
            let listens = start::start(&self.launch, in_unit).map_err(ConnectError::Start)?;
            let looks = match listens {
                true => 1,
                false => START_TIME_MAX.as_millis() / START_PAUSE.as_millis(),
            };
            for _ in 0..looks {
                match self.connect() {
                    Err(ConnectError::NotRunning) => std::thread::sleep(START_PAUSE),
                    Err(error) if error.may_pass() => break,
                    other => return other,
                }
            }
            // A service manager that takes the order and does nothing is not asked again.
            in_unit = in_unit && listens;
        }
        Err(fault)
    }

    /// A conversation with the supervisor that runs, as soon as it has a place for one: it may be
    /// about to listen, to make its socket anew or to end, or have too many connections.
    fn await_welcome(&self) -> Result<Link, ConnectError> {
        let until = Instant::now() + CROWD_TIME_MAX;
        let mut pause = START_PAUSE;
        loop {
            match self.connect() {
                Err(error) if error.may_pass() && Instant::now() < until => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(CROWD_PAUSE_MAX);
                }
                other => return other,
            }
        }
    }

    /// Starts a supervisor where leases of before are left that none tends to: one of before has
    /// died with their owners, or has given their engine up. Says whether one was started.
    ///
    /// # Errors
    /// [`ConnectError`]
    pub fn tend_what_is_left(&self) -> Result<bool, ConnectError> {
        let folder = match PrivateFolder::open(&self.state) {
            Ok(folder) => folder,
            Err(FolderFault::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(false);
            }
            Err(fault) => return Err(ConnectError::Folder(fault)),
        };
        let holding = folder.holding().map_err(ConnectError::Folder)?;
        let is_attended = holding != Holding::Nobody;
        if is_attended
            || leases::read(&folder)
                .map_err(ConnectError::Folder)?
                .is_empty()
        {
            return Ok(false);
        }
        self.connect_or_start().map(|_| true)
    }

    /// What the supervisor that runs knows.
    ///
    /// # Errors
    /// [`ConnectError::NotRunning`] where none runs; none is started.
    pub fn status(&self) -> Result<Status, ConnectError> {
        let asked = self
            .await_welcome()?
            .ask(&Request::Status {}, ANSWER_TIME_MAX);
        match asked.map_err(io_step("ask it"))? {
            Response::Status(status) => Ok(status),
            other => Err(unexpected(other)),
        }
    }

    /// Lets the supervisor finish what is dead, and says what that was.
    ///
    /// # Errors
    /// [`ConnectError`]
    pub fn prune(&self) -> Result<Vec<String>, ConnectError> {
        let asked = self
            .connect_or_start()?
            .ask(&Request::Prune {}, PRUNE_TIME_MAX);
        match asked.map_err(io_step("ask it"))? {
            Response::Pruned { removed } => Ok(removed),
            other => Err(unexpected(other)),
        }
    }
}

/// A conversation with a supervisor that runs.
fn knock(running: &Running) -> Result<Link, ConnectError> {
    let lost = || ConnectError::Lost {
        pid: running.pid,
        path: running.sockets.join(&running.name),
    };
    let sockets = PrivateFolder::open(&running.sockets).map_err(|fault| match fault {
        FolderFault::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => lost(),
        fault => ConnectError::Folder(fault),
    })?;
    let at = format!(
        "/proc/self/fd/{}/{}",
        sockets.fd().as_raw_fd(),
        running.name
    );
    let link = connect_soon(&at).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => lost(),
        _ => io_step("connect to it")(error),
    });
    let link = link.and_then(|stream| match peer_pid(&stream) {
        Some(pid) if pid != running.pid => Err(lost()),
        _ => greet(stream),
    });
    link.map_err(|error| match error {
        ConnectError::Io { source, .. } if is_late(&source) => {
            ConnectError::Silent { pid: running.pid }
        }
        other => other,
    })
}

/// The process that listens at the other end.
fn peer_pid(stream: &UnixStream) -> Option<u32> {
    let (_, pid) = sys::peer_credentials(stream).ok()?;
    u32::try_from(pid).ok()
}

/// Who is stopped takes connections until they are too many, and then none; who is busy does so
/// for a moment.
fn connect_soon(path: &str) -> io::Result<UnixStream> {
    let until = Instant::now() + KNOCK_TIME_MAX;
    loop {
        match connect_at_once(path) {
            Err(error) if is_late(&error) && Instant::now() < until => {
                std::thread::sleep(START_PAUSE);
            }
            other => return other,
        }
    }
}

/// Never waits.
pub(crate) fn connect_at_once(path: impl rustix::path::Arg) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn is_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
    )
}

const GREET: &str = "be greeted by it";

fn greet(stream: UnixStream) -> Result<Link, ConnectError> {
    let ours = Namespaces::ours().map_err(io_step("read this process's namespaces for it"))?;
    peer::check_guarded(&stream, ours).map_err(|refused| match refused {
        PeerRefused::Unseen => ConnectError::NotRunning,
        refused => ConnectError::Foreign(refused),
    })?;
    let mut lines = Lines::new(stream);
    // Who is turned away at the door is told why before anything is read: that is the answer.
    let _ = lines.send(&Hello::ours());
    let welcome: Option<Welcome> = lines.next(Some(READ_TIME_MAX)).map_err(io_step(GREET))?;
    let closed = || io_step(GREET)(io::ErrorKind::UnexpectedEof.into());
    let welcome = welcome.ok_or_else(closed)?;
    if welcome.supervisor_protocol != PROTOCOL_VERSION {
        return Err(ConnectError::Version {
            theirs: welcome.supervisor_protocol,
            program: welcome.version.escape_debug().to_string(),
        });
    }
    match welcome.refused {
        Some(reason) if welcome.is_crowded => Err(ConnectError::Crowded {
            reason: reason.escape_debug().to_string(),
        }),
        Some(reason) => Err(ConnectError::Refused {
            reason: reason.escape_debug().to_string(),
        }),
        None => Ok(Link {
            lines,
            store: welcome.store,
        }),
    }
}

fn unexpected(response: Response) -> ConnectError {
    let reason = match response {
        Response::Unavailable { reason } | Response::Exhausted { reason } => reason,
        Response::Done {} | Response::Status(_) | Response::Pruned { .. } => {
            "it answered another question".to_owned()
        }
    };
    ConnectError::Refused { reason }
}

/// Keeps leases at the supervisor, for as long as it lives.
#[derive(Debug)]
pub struct Keeper(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    client: Client,
    state: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    link: Option<Link>,
    leases: BTreeSet<String>,
    /// The keeper is gone: nobody connects again.
    is_closed: bool,
}

impl Keeper {
    /// Connects to the supervisor, starts it where none runs, and lets it look at `engine` for
    /// what is left of dead runs.
    ///
    /// # Errors
    /// [`ConnectError`]
    pub fn open(client: Client, engine: PathBuf) -> Result<Self, ConnectError> {
        let link = client.connect_or_start()?;
        let watched = watched(&link)?;
        let shared = Arc::new(Shared {
            client,
            state: Mutex::new(Kept {
                link: Some(link),
                leases: BTreeSet::new(),
                is_closed: false,
            }),
        });
        let weak = Arc::downgrade(&shared);
        std::thread::Builder::new()
            .spawn(move || follow(&weak, watched))
            .map_err(io_step("follow it"))?;
        let keeper = Self(shared);
        let asked = keeper.0.ask(&Request::Sweep { socket: engine });
        match asked.map_err(|reason| ConnectError::Refused { reason })? {
            Response::Done {} => Ok(keeper),
            other => Err(unexpected(other)),
        }
    }

    fn take_at(&self, terms: &LeaseTerms) -> Result<Lease, LeaseRefused> {
        let unavailable = |reason| LeaseRefused::Unavailable { reason };
        let mut kept = self.0.kept();
        let store = self.0.link(&mut kept).map_err(unavailable)?.store.clone();
        let digits = random_digits(LEASE_DIGITS - STORE_DIGITS)
            .map_err(|error| unavailable(error.to_string()))?;
        let id = LeaseId::parse(&format!("{store}{digits}"))
            .ok_or_else(|| unavailable("the supervisor's name is no name".to_owned()))?;
        let request = Request::Take {
            lease: id.to_string(),
            terms: wire_terms(terms),
        };
        match self.0.ask_on(&mut kept, &request).map_err(unavailable)? {
            Response::Done {} => {
                kept.leases.insert(id.to_string());
                Ok(Lease::recorded(id))
            }
            Response::Exhausted { reason } => Err(LeaseRefused::Exhausted { reason }),
            Response::Unavailable { reason } => {
                let reason = format!("the supervisor gives no lease: {reason}");
                Err(unavailable(reason))
            }
            other => Err(unavailable(unexpected(other).to_string())),
        }
    }
}

impl LeaseKeeper for Keeper {
    fn take(&mut self, terms: &LeaseTerms) -> Result<Lease, LeaseRefused> {
        self.take_at(terms)
    }

    fn release(&mut self, lease: Lease) -> Result<(), LeaseFailed> {
        let id = lease.id().to_string();
        let mut kept = self.0.kept();
        let asked = self
            .0
            .ask_on(&mut kept, &Request::Release { lease: id.clone() });
        kept.leases.remove(&id);
        match asked {
            Ok(Response::Done {}) => Ok(()),
            Ok(other) => Err(LeaseFailed {
                reason: unexpected(other).to_string(),
            }),
            Err(reason) => Err(LeaseFailed { reason }),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Ends the thread that follows; leases that are still held end with the connection.
        let mut kept = self.0.kept();
        kept.is_closed = true;
        if let Some(link) = kept.link.take() {
            let _ = link.lines.stream().shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Shared {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, request: &Request) -> Result<Response, String> {
        self.ask_on(&mut self.kept(), request)
    }

    /// Asks; once more where the supervisor has gone meanwhile. Every request may be repeated.
    fn ask_on(&self, kept: &mut Kept, request: &Request) -> Result<Response, String> {
        let first = self.link(kept)?.ask(request, ANSWER_TIME_MAX);
        let asked = match first {
            Ok(response) => return Ok(response),
            Err(_) => {
                kept.link = None;
                self.link(kept)?.ask(request, ANSWER_TIME_MAX)
            }
        };
        asked.map_err(|error| {
            kept.link = None;
            format!("the supervisor does not answer: {error}")
        })
    }

    /// The link; a new one, to which all leases are attached, where the old one is gone.
    fn link<'a>(&self, kept: &'a mut Kept) -> Result<&'a mut Link, String> {
        let link = match kept.link.take() {
            Some(link) => link,
            None => {
                let fail = |error: &dyn std::error::Error| match error.source() {
                    Some(source) => format!("{error}: {source}"),
                    None => error.to_string(),
                };
                let mut link = self
                    .client
                    .connect_or_start()
                    .map_err(|error| fail(&error))?;
                let leases = kept.leases.iter().cloned().collect();
                link.ask(&Request::Attach { leases }, ANSWER_TIME_MAX)
                    .map_err(|error| format!("the supervisor does not answer: {error}"))?;
                link
            }
        };
        Ok(kept.link.insert(link))
    }
}

fn wire_terms(terms: &LeaseTerms) -> Terms {
    let lifetime = terms
        .lifetime
        .saturating_add(LIFETIME_GRACE)
        .min(LIFETIME_MAX);
    Terms {
        tier: terms.tier,
        socket: terms.socket.clone(),
        staging: terms.staging.clone(),
        memory_mib: terms.memory_mib,
        cpu_milli: terms.cpu_milli,
        lifetime_ms: u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX),
    }
}

fn watched(link: &Link) -> Result<OwnedFd, ConnectError> {
    let stream = link.lines.stream().as_fd().try_clone_to_owned();
    stream.map_err(io_step("follow it"))
}

/// Waits for the end of the supervisor, and gets another one at once: the leases of this process
/// are then guarded again. Ends with the keeper, or where there is no other supervisor.
fn follow(shared: &Weak<Shared>, mut watched: OwnedFd) {
    loop {
        let mut polled = [PollFd::new(&watched, PollFlags::RDHUP)];
        match poll(&mut polled, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
        }
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let mut kept = shared.kept();
        if kept.is_closed {
            return;
        }
        if kept.link.as_ref().is_some_and(is_hung_up) {
            kept.link = None;
        }
        let Ok(link) = shared.link(&mut kept) else {
            return;
        };
        match self::watched(link) {
            Ok(next) => watched = next,
            Err(_) => return,
        }
    }
}

fn is_hung_up(link: &Link) -> bool {
    let mut polled = [PollFd::new(link.lines.stream(), PollFlags::RDHUP)];
    let now = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    !matches!(poll(&mut polled, Some(&now)), Ok(0))
}
