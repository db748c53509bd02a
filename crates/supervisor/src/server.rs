//! The supervisor itself: a listener, a thread for each connection and for each removal, and one
//! loop that waits for whatever is next.

use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use filegrants::StagingPool;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::book::{Book, said};
use crate::clock;
use crate::crowd::{Crowd, Stage};
use crate::door::{self, Door};
use crate::folder::{FolderFault, Lock, PrivateFolder, Running, io_fault};
use crate::leases::LeaseFile;
use crate::limits::{
    CONNECTIONS_MAX, ENGINES_MAX, FORSAKEN_TIME_MAX, IDLE_TIME_MAX, LOG_BYTES_MAX, LOOK_PAUSE,
    RETRY_PAUSE, UNSEEN_TIME_MAX,
};
use crate::peer::Namespaces;
use crate::wire::CapacityLimits;
use crate::{conversation, tending};

pub(crate) const ENGINES: &str = "engines";
const ENGINES_BYTES_MAX: u64 = 128 << 10;
const LOG: &str = "log";

/// How a supervisor is to be.
pub struct Terms {
    /// Its private folder, in the user's state.
    pub state: PathBuf,
    /// The folder of sockets.
    pub sockets: PathBuf,
    /// The user's staging pool.
    pub staging: PathBuf,
    /// What all leases may have together, as the user's configuration says it now.
    pub capacity: Box<dyn Fn() -> Result<CapacityLimits, String> + Send + Sync>,
    /// Of the program.
    pub version: String,
    /// It does not end when nothing is left to do.
    pub persistent: bool,
    /// It runs in a unit of its own.
    pub independent: bool,
    /// How long it stays without leases and clients.
    pub idle: Duration,
    /// How long a container is looked for that nobody has seen.
    pub unseen: Duration,
    /// How long it stays for leases that it cannot end.
    pub forsaken: Duration,
}

impl std::fmt::Debug for Terms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Terms")
            .field("state", &self.state)
            .field("sockets", &self.sockets)
            .finish_non_exhaustive()
    }
}

impl Terms {
    /// One that ends when there is nothing to do.
    #[must_use]
    pub fn new(
        state: PathBuf,
        sockets: PathBuf,
        staging: PathBuf,
        capacity: Box<dyn Fn() -> Result<CapacityLimits, String> + Send + Sync>,
    ) -> Self {
        Self {
            state,
            sockets,
            staging,
            capacity,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            persistent: false,
            independent: false,
            idle: IDLE_TIME_MAX,
            unseen: UNSEEN_TIME_MAX,
            forsaken: FORSAKEN_TIME_MAX,
        }
    }
}

/// What all threads of a supervisor share.
pub(crate) struct House {
    pub(crate) terms: Terms,
    pub(crate) store: String,
    pub(crate) ours: Namespaces,
    book: Mutex<Book>,
    /// Told when a lease has ended.
    pub(crate) ended: Condvar,
    engines: Mutex<Vec<PathBuf>>,
    folder: PrivateFolder,
    log: Mutex<Option<std::fs::File>>,
    wake: OwnedFd,
    /// Another may be the supervisor of its folder.
    is_replaced: AtomicBool,
    /// Nothing is begun or written any more: the lock goes.
    is_over: AtomicBool,
    crowd: Crowd,
    next_connection: AtomicU64,
}

impl House {
    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::Acquire)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// The loop looks at everything again.
    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    pub(crate) fn engines(&self) -> Vec<PathBuf> {
        let engines = self.engines.lock();
        engines.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers an engine, so that the next supervisor looks there too.
    pub(crate) fn remember(&self, socket: &Path) -> Result<(), String> {
        let engines = self.engines.lock();
        let mut engines = engines.unwrap_or_else(PoisonError::into_inner);
        if engines.iter().any(|it| it == socket) {
            return Ok(());
        }
        let mut more = engines.clone();
        more.push(socket.to_owned());
        if more.len() > ENGINES_MAX {
            more.remove(0);
        }
        let text = serde_json::to_vec(&more).map_err(|error| error.to_string())?;
        self.folder
            .replace(ENGINES, &text)
            .map_err(|fault| said(&fault))?;
        *engines = more;
        Ok(())
    }

    /// A line for whoever looks into the log.
    pub(crate) fn say(&self, text: &str) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = log.as_mut() {
            let _ = writeln!(log, "{} {text}", clock::unix_seconds());
        }
    }
}

/// The engines that are remembered in a supervisor's folder.
pub(crate) fn remembered(folder: &PrivateFolder) -> Result<Vec<PathBuf>, FolderFault> {
    match folder.read(ENGINES, ENGINES_BYTES_MAX)? {
        Some(bytes) => serde_json::from_slice(&bytes).map_err(|_| folder.damaged(ENGINES)),
        None => Ok(Vec::new()),
    }
}

/// How far a supervisor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// Another one runs, and this one takes over at its end.
    Waits,
    Listens,
}

/// Runs a supervisor until there is nothing left to do, and tells how far it is.
///
/// # Errors
/// [`FolderFault`]: it could not begin; [`FolderFault::Taken`] where another one runs, and this one
/// is not to stay.
pub fn serve(terms: Terms, mut tell: impl FnMut(Readiness)) -> Result<(), FolderFault> {
    let folder = PrivateFolder::open_or_make(&terms.state)?;
    let lock = match folder.lock() {
        Err(FolderFault::Taken) if terms.persistent => {
            tell(Readiness::Waits);
            folder.lock_when_free()?
        }
        other => other?,
    };
    let store = folder.store()?;
    let name = door::name(&store);
    let mut door = Door::open(&terms.sockets, &name)?;
    let (file, found) = LeaseFile::open(PrivateFolder::open(&terms.state)?)?;
    // For its references only: no space of it is taken here.
    let pool = StagingPool::open_ambient(&terms.staging, 0).map_err(|error| {
        let error = io::Error::other(error.to_string());
        io_fault("use", &terms.staging)(error)
    })?;
    let book = Book::new(file, found, pool);
    let fail = |step| io_fault(step, &terms.state);
    let house = Arc::new(House {
        book: Mutex::new(book),
        engines: Mutex::new(remembered(&folder)?),
        ours: Namespaces::ours().map_err(fail("read the namespaces for"))?,
        wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(io_fault("make an event for", &folder.path("")))?,
        log: Mutex::new(open_log(&folder).ok()),
        store,
        folder,
        ended: Condvar::new(),
        is_replaced: AtomicBool::new(false),
        is_over: AtomicBool::new(false),
        crowd: Crowd::default(),
        next_connection: AtomicU64::new(1),
        terms,
    });
    let running = Running {
        pid: std::process::id(),
        sockets: house.terms.sockets.clone(),
        name,
    };
    lock.say(&running)
        .map_err(io_fault("write", &house.folder.path("lock")))?;
    house.say("started");
    for engine in house.engines() {
        tending::sweep_in_background(&house, engine);
    }
    tell(Readiness::Listens);
    attend(&house, &lock, &mut door);
    {
        let _nobody_writes = house.book();
        house.is_over.store(true, Ordering::Release);
    }
    // The name goes while the lock is ours: whoever connects later starts another one.
    if lock.is_in_place(&house.terms.state) {
        door.remove(&house.terms.sockets);
    }
    house.say(&match house.book().len() {
        0 => "ended: nothing is left to do".to_owned(),
        left => format!(
            "ended: {left} leases are kept for the next start, because their engines did not \
             answer for too long"
        ),
    });
    drop(lock);
    Ok(())
}

fn open_log(folder: &PrivateFolder) -> Result<std::fs::File, FolderFault> {
    let log = folder.file(LOG, OFlags::CREATE | OFlags::WRONLY | OFlags::APPEND)?;
    if log.metadata().is_ok_and(|it| it.len() > LOG_BYTES_MAX) {
        log.set_len(0).map_err(io_fault("cut", &folder.path(LOG)))?;
    }
    Ok(log)
}

/// The loop. Returns when nothing has been there for the idle time.
fn attend(house: &Arc<House>, lock: &Lock, door: &mut Door) {
    let mut idle_since = Some(Instant::now());
    loop {
        look(house, lock, door);
        let unattended = {
            let mut book = house.book();
            book.expire(clock::boot_ms());
            book.dismiss_strays();
            book.unattended()
        };
        for record in unattended {
            tending::remove_in_background(house, record);
        }
        let (watched, until_end) = {
            let book = house.book();
            let next = book.next_end_ms();
            let now = clock::boot_ms();
            let until_end = next.map(|end| Duration::from_millis(end.saturating_sub(now) + 1));
            (book.watched(), until_end)
        };
        let is_busy = {
            let has_work = house
                .book()
                .has_work(clock::boot_ms(), house.terms.forsaken);
            !house.crowd.is_empty() || has_work || house.terms.persistent
        };
        idle_since = match is_busy {
            true => None,
            false => idle_since.or_else(|| Some(Instant::now())),
        };
        let until_idle = idle_since.map(|since| house.terms.idle.saturating_sub(since.elapsed()));
        if until_idle == Some(Duration::ZERO) {
            return;
        }
        let wait = [until_end, until_idle, Some(LOOK_PAUSE)];
        let wait = wait.into_iter().flatten().min();
        if !wait_for(house, &door.listener, &watched, wait) {
            std::thread::sleep(RETRY_PAUSE);
        }
        accept_all(house, &door.listener);
    }
}

/// Whether clients still find this supervisor. A socket that was removed or replaced is made anew;
/// whose lock was, has nothing to say any more to whoever comes, and only tends to what it has.
fn look(house: &House, lock: &Lock, door: &mut Door) {
    let Terms { state, sockets, .. } = &house.terms;
    let is_replaced = !lock.is_in_place(state);
    if is_replaced != house.is_replaced.swap(is_replaced, Ordering::AcqRel) {
        house.say(match is_replaced {
            true => "the lock was removed or replaced: no more leases are given",
            false => "the lock is back",
        });
    }
    if is_replaced || door.is_in_place(sockets) {
        return;
    }
    match Door::open(sockets, &door::name(&house.store)) {
        Ok(new) => {
            *door = new;
            house.say("the socket was removed or replaced, and is made anew");
        }
        // Once: it is tried again with every look.
        Err(_) if door.is_stuck => {}
        Err(fault) => {
            door.is_stuck = true;
            house.say(&format!(
                "the socket was removed or replaced, and cannot be made anew: {}",
                said(&fault)
            ));
        }
    }
}

/// Waits for a client, a wake, the end of a watched process, or the time. False where that failed.
fn wait_for(
    house: &House,
    listener: &UnixListener,
    watched: &[u32],
    wait: Option<Duration>,
) -> bool {
    let open = |pid: &u32| {
        let pid = Pid::from_raw(i32::try_from(*pid).ok()?)?;
        pidfd_open(pid, PidfdFlags::empty()).ok()
    };
    let processes: Vec<OwnedFd> = watched.iter().filter_map(open).collect();
    if processes.len() < watched.len() {
        // One has just ended: the loop sees it at once.
        return true;
    }
    let mut polled = vec![
        PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
        PollFd::new(&house.wake, PollFlags::IN),
    ];
    polled.extend(processes.iter().map(|it| PollFd::new(it, PollFlags::IN)));
    let timeout = wait.map(|wait| Timespec {
        tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(wait.subsec_nanos()),
    });
    let polled = poll(&mut polled, timeout.as_ref());
    let mut counted = [0; 8];
    let _ = rustix::io::read(&house.wake, &mut counted);
    matches!(polled, Ok(_) | Err(rustix::io::Errno::INTR))
}

fn accept_all(house: &Arc<House>, listener: &UnixListener) {
    // The rest is for the next round: a flood of clients keeps nothing else from being done.
    for _ in 0..CONNECTIONS_MAX {
        match listener.accept() {
            Ok((stream, _)) => begin(house, stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => return house.say(&format!("a client was not accepted: {error}")),
        }
    }
}

/// A connection's place among the others.
pub(crate) struct Place {
    house: Arc<House>,
    pub(crate) id: u64,
}

impl Place {
    /// Whether it still has its place.
    #[must_use]
    pub(crate) fn reaches(&self, stage: Stage) -> bool {
        self.house.crowd.reaches(self.id, stage)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.house.crowd.leaves(self.id);
        self.house.wake();
    }
}

fn begin(house: &Arc<House>, stream: UnixStream) {
    let owners = house.book().owners();
    if !house.crowd.has_room(&owners, Instant::now()) {
        return conversation::turn_away(house, stream);
    }
    let other = match stream
        .set_nonblocking(false)
        .and_then(|()| stream.try_clone())
    {
        Ok(other) => other,
        Err(error) => return house.say(&format!("a client was not accepted: {error}")),
    };
    let place = Place {
        id: house.next_connection.fetch_add(1, Ordering::Relaxed),
        house: Arc::clone(house),
    };
    house.crowd.admit(place.id, other);
    let begun = std::thread::Builder::new().spawn(move || {
        if let Err(error) = conversation::hold(&place.house, stream, &place) {
            place.house.say(&format!("a client was left: {error}"));
        }
        if place.house.book().abandon(place.id) {
            place.house.say("an owner is gone, and left leases");
        }
    });
    if let Err(error) = begun {
        house.say(&format!("a client was refused: {error}"));
    }
}
