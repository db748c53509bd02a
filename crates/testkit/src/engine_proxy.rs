//! A proxy before an engine's socket that does to chosen requests what networks and daemons do:
//! it delays, drops, refuses, answers half, or holds them while a test kills somebody.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::engine::Request;

/// What happens to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It goes on after this time.
    Delay(Duration),
    /// The connection is closed before the engine hears of it.
    DropRequest,
    /// The engine does it; the connection is closed instead of its answer.
    DropAnswer,
    /// The engine does it; the answer is cut after so many bytes.
    HalfAnswer(usize),
    /// The engine does not hear of it; this status is the answer.
    Status(u16),
    /// The engine does it; this status is the answer.
    StatusAfter(u16),
    /// The engine does not hear of it; this body is the answer, with status 200.
    Body(String),
    /// It stays until [`EngineProxy::release`]; then the engine hears of it.
    HoldRequest,
    /// The engine does it; the answer stays until [`EngineProxy::release`].
    HoldAnswer,
}

/// Which requests a fault is for: `METHOD` and a part of the path.
#[derive(Debug, Clone)]
struct Rule {
    method: String,
    path: String,
    fault: Fault,
    left: usize,
}

/// The proxy. It ends with its listener, when it is dropped.
#[derive(Debug)]
pub struct EngineProxy {
    socket: PathBuf,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    upstream: PathBuf,
    rules: Vec<Rule>,
    /// The request with this number, from 1, gets this.
    numbered: Option<(usize, Fault)>,
    seen: Vec<String>,
    held: usize,
    is_released: bool,
    stopped: bool,
}

impl EngineProxy {
    /// Listens at `socket` before the engine at `upstream`.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn start(socket: &Path, upstream: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(socket)?;
        let shared = Arc::new(Shared::default());
        shared.state().upstream = upstream.to_owned();
        let proxy = Self {
            socket: socket.to_owned(),
            shared: Arc::clone(&shared),
        };
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if shared.state().stopped {
                    return;
                }
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    // A peer that leaves is what many tests are about.
                    let _ = shared.pass(client);
                });
            }
        });
        Ok(proxy)
    }

    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The next `times` requests with `method` and `path` in theirs get `fault`.
    pub fn on(&self, method: &str, path: &str, fault: Fault, times: usize) {
        self.shared.state().rules.push(Rule {
            method: method.to_owned(),
            path: path.to_owned(),
            fault,
            left: times,
        });
    }

    /// The request with `number`, from 1, gets `fault`. Lists of containers do not count: they are
    /// a supervisor's, and come at any time.
    pub fn at(&self, number: usize, fault: Fault) {
        self.shared.state().numbered = Some((number, fault));
    }

    /// `METHOD PATH` of every request so far.
    #[must_use]
    pub fn seen(&self) -> Vec<String> {
        self.shared.state().seen.clone()
    }

    /// Requests so far, as [`Self::at`] counts them.
    #[must_use]
    pub fn counted(&self) -> usize {
        let state = self.shared.state();
        state.seen.iter().filter(|it| !is_list(it)).count()
    }

    /// Waits until a request or an answer is held; false where none was in `at_most`.
    #[must_use]
    pub fn await_held(&self, at_most: Duration) -> bool {
        let state = self.shared.state();
        let waited = self
            .shared
            .changed
            .wait_timeout_while(state, at_most, |state| state.held == 0);
        waited.is_ok_and(|(state, _)| state.held > 0)
    }

    /// Lets go of all that is held, and forgets all faults.
    pub fn release(&self) {
        let mut state = self.shared.state();
        state.is_released = true;
        state.rules.clear();
        state.numbered = None;
        self.shared.changed.notify_all();
    }
}

fn is_list(request: &str) -> bool {
    request.contains("/containers/json")
}

impl Drop for EngineProxy {
    fn drop(&mut self) {
        self.release();
        self.shared.state().stopped = true;
        let _ = UnixStream::connect(&self.socket);
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault_for(&self, request: &Request) -> Option<Fault> {
        let mut state = self.state();
        state
            .seen
            .push(format!("{} {}", request.method, request.path));
        let number = state.seen.iter().filter(|it| !is_list(it)).count();
        if !is_list(&request.path)
            && let Some((_, fault)) = state.numbered.take_if(|(at, _)| *at == number)
        {
            return Some(fault);
        }
        let fits = |rule: &&mut Rule| {
            let named = rule.method == request.method && request.path.contains(&rule.path);
            rule.left > 0 && named
        };
        let rule = state.rules.iter_mut().find(fits)?;
        rule.left -= 1;
        Some(rule.fault.clone())
    }

    fn pass(&self, mut client: UnixStream) -> io::Result<()> {
        let request = Request::read(&mut client)?;
        let fault = self.fault_for(&request);
        match &fault {
            Some(Fault::Delay(time)) => std::thread::sleep(*time),
            Some(Fault::DropRequest) => return Ok(()),
            Some(Fault::Status(status)) => return say(&mut client, *status, MESSAGE),
            Some(Fault::Body(body)) => return say(&mut client, 200, body),
            Some(Fault::HoldRequest) => self.hold(),
            _ => {}
        }
        let upstream = self.state().upstream.clone();
        let mut engine = UnixStream::connect(upstream)?;
        engine.write_all(&request.raw)?;
        match fault {
            Some(Fault::DropAnswer) => read_some(&mut engine).map(drop),
            Some(Fault::StatusAfter(status)) => {
                read_some(&mut engine)?;
                say(&mut client, status, MESSAGE)
            }
            Some(Fault::HalfAnswer(bytes)) => {
                let answer = read_some(&mut engine)?;
                client.write_all(answer.get(..bytes).unwrap_or(&answer))
            }
            Some(Fault::HoldAnswer) => {
                let answer = read_some(&mut engine)?;
                self.hold();
                client.write_all(&answer)?;
                relay(client, engine)
            }
            _ => relay(client, engine),
        }
    }

    fn hold(&self) {
        let mut state = self.state();
        state.held += 1;
        state.is_released = false;
        self.changed.notify_all();
        let released = self.changed.wait_while(state, |state| !state.is_released);
        if let Ok(mut state) = released {
            state.held -= 1;
        }
    }
}

const MESSAGE: &str = "{\"message\":\"a fault\"}";

fn say(client: &mut UnixStream, status: u16, body: &str) -> io::Result<()> {
    let length = body.len();
    write!(
        client,
        "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

fn read_some(engine: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut part = vec![0; 64 << 10];
    let count = engine.read(&mut part)?;
    part.truncate(count);
    Ok(part)
}

/// Both ways, until the engine has said all. A client that leaves does not stop the engine.
fn relay(mut client: UnixStream, mut engine: UnixStream) -> io::Result<()> {
    let (mut from_client, mut to_engine) = (client.try_clone()?, engine.try_clone()?);
    let up = std::thread::spawn(move || {
        let _ = io::copy(&mut from_client, &mut to_engine);
        let _ = to_engine.shutdown(Shutdown::Write);
    });
    let copied = io::copy(&mut engine, &mut client);
    let _ = client.shutdown(Shutdown::Both);
    let _ = up.join();
    copied.map(drop)
}
