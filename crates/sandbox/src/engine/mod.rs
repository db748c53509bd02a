//! A client of the Docker Engine API over a unix socket: what the container tiers need, typed,
//! with a time limit for every operation.
//!
//! It is synchronous and owns one connection for each request: the session's one `poll` watches
//! the sockets themselves, and a lost connection is never retried behind the caller's back.
//! Errors say whether the engine *refused* (nothing was done) or whether that is *unknown*.

mod answer;
mod attach;
mod error;
mod list;
mod socket;
mod types;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use answer::Answer;
use socket::Connection;

pub use attach::{Attachment, StreamKind};
pub use error::{EngineError, Trouble};
pub use list::ContainerFilter;
pub use types::{
    BindOptions, ContainerConfig, ContainerCreate, ContainerInspect, ContainerState,
    ContainerSummary, EngineInfo, EngineVersion, Healthcheck, HostConfig, ImageConfig,
    ImageInspect, LogConfig, MountPoint, MountRequest, NetworkSettings, PathStat, RestartPolicy,
    Runtime, Ulimit, WaitEnd,
};

use crate::limits::{
    ENGINE_ASK_MAX, ENGINE_CREATE_MAX, ENGINE_IMPORT_MAX, ENGINE_KILL_MAX, ENGINE_REMOVE_MAX,
    ENGINE_START_MAX,
};

/// The engine that listens at one unix socket.
#[derive(Debug, Clone)]
pub struct Engine {
    socket: PathBuf,
}

/// The id that the engine gave to a container: lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContainerId(String);

impl ContainerId {
    /// `None` for a text that is no id.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let long = (12..=64).contains(&text.len());
        (long && text.bytes().all(is_hex)).then(|| Self(text.to_owned()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for ContainerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What became of a removal that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// The engine removed it, or somebody else's removal has ended.
    Removed,
    /// The engine knows no such container.
    NotThere,
}

impl Engine {
    /// The engine at `socket`. Nothing is asked yet.
    #[must_use]
    pub fn at(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
        }
    }

    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// # Errors
    /// [`EngineError`]
    pub fn version(&self) -> Result<EngineVersion, EngineError> {
        self.fetch("tell its version", "/version", ENGINE_ASK_MAX)
    }

    /// What the engine is and which runtimes it knows.
    ///
    /// # Errors
    /// [`EngineError`]
    pub fn info(&self) -> Result<EngineInfo, EngineError> {
        const WHAT: &str = "tell what it is";
        let answer = self.send(WHAT, "GET", "/info", None::<&()>, ENGINE_ASK_MAX)?;
        let answer = checked(WHAT, answer)?;
        let mut info: EngineInfo = parsed(WHAT, &answer)?;
        info.podman = answer.podman;
        Ok(info)
    }

    /// An image that is already there; `None` where it is not.
    ///
    /// # Errors
    /// [`EngineError`]
    pub fn image(&self, name: &str) -> Result<Option<ImageInspect>, EngineError> {
        let path = format!("/images/{}/json", escaped(name));
        absent_is_none(self.fetch("inspect the image", &path, ENGINE_ASK_MAX))
    }

    /// Makes an image `name` of a root file system, a tar stream of `bytes` bytes, and says its id.
    ///
    /// # Errors
    /// [`EngineError`]
    pub fn import_image(
        &self,
        name: &str,
        tar: &mut dyn std::io::Read,
        bytes: u64,
    ) -> Result<ImageInspect, EngineError> {
        const WHAT: &str = "import the image";
        #[derive(serde::Deserialize)]
        struct Message {
            status: String,
        }
        let path = format!("/images/create?fromSrc=-&repo={}", escaped(name));
        let until = Instant::now() + ENGINE_IMPORT_MAX;
        let mut connection = self.connect(WHAT, until)?;
        connection.send_stream(&path, tar, bytes)?;
        let answer = checked(WHAT, connection.answer()?)?;
        // A list of messages, of which the last says the id, or what went wrong.
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let last = text.lines().last().unwrap_or_default();
        let id = match serde_json::from_str::<Message>(last) {
            Ok(Message { status }) if status.starts_with("sha256:") => status,
            _ => return Err(unreadable(WHAT, last)),
        };
        match self.image(&id)? {
            Some(image) => Ok(image),
            None => Err(unreadable(WHAT, "the image is not there afterwards")),
        }
    }

    /// Forgets an image; one that is not there is no failure.
    ///
    /// # Errors
    /// [`EngineError`]
    pub fn remove_image(&self, name: &str) -> Result<(), EngineError> {
        const WHAT: &str = "remove the image";
        let path = format!("/images/{}", escaped(name));
        let answer = self.send(WHAT, "DELETE", &path, None::<&()>, ENGINE_REMOVE_MAX)?;
        match checked(WHAT, answer) {
            Err(error) if error.status() == Some(404) => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Makes a container that does not run yet.
    ///
    /// # Errors
    /// [`EngineError`]: [`EngineError::did_nothing`] says whether it may exist all the same.
    pub fn create(&self, name: &str, wanted: &ContainerCreate) -> Result<ContainerId, EngineError> {
        const WHAT: &str = "create the container";
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Created {
            id: String,
        }
        let path = format!("/containers/create?name={}", escaped(name));
        let answer = self.send(WHAT, "POST", &path, Some(wanted), ENGINE_CREATE_MAX)?;
        let created: Created = parsed(WHAT, &checked(WHAT, answer)?)?;
        ContainerId::new(&created.id).ok_or_else(|| unreadable(WHAT, "the id is no id"))
    }

    /// A container by id or name; `None` where there is none.
    ///
    /// # Errors
    /// [`EngineError`]
    pub fn inspect(&self, container: &str) -> Result<Option<ContainerInspect>, EngineError> {
        let path = format!("/containers/{}/json", escaped(container));
        absent_is_none(self.fetch("inspect the container", &path, ENGINE_ASK_MAX))
    }

    /// What stands at `path` in a container, with what is bound there; `None` where nothing does.
    ///
    /// # Errors
    /// [`EngineError`]
    pub fn look_at(&self, id: &ContainerId, path: &str) -> Result<Option<PathStat>, EngineError> {
        const WHAT: &str = "look at a file of the container";
        let path = format!("/containers/{id}/archive?path={}", escaped(path));
        let answer = self.send(WHAT, "HEAD", &path, None::<&()>, ENGINE_ASK_MAX)?;
        let found = checked(WHAT, answer).and_then(|answer| {
            let text = answer.path_stat.unwrap_or_default();
            PathStat::read(&text).map_err(|why| unreadable(WHAT, &why))
        });
        absent_is_none(found)
    }

    /// Connects to the standard streams of a container, before it starts.
    ///
    /// # Errors
    /// [`EngineError`]
    pub fn attach(&self, id: &ContainerId, with_stdin: bool) -> Result<Attachment, EngineError> {
        const WHAT: &str = "attach to the container";
        let stdin = if with_stdin { "&stdin=1" } else { "" };
        let path = format!("/containers/{id}/attach?stream=1&stdout=1&stderr=1{stdin}");
        let mut connection = self.connect(WHAT, Instant::now() + ENGINE_ASK_MAX)?;
        connection.send_upgrade(&path)?;
        let (socket, early) = connection.upgraded()?;
        Ok(Attachment::new(socket, early))
    }

    /// Starts a created container.
    ///
    /// # Errors
    /// [`EngineError`]: also one that was refused may have left processes of a runtime behind.
    pub fn start(&self, id: &ContainerId) -> Result<(), EngineError> {
        const WHAT: &str = "start the container";
        let path = format!("/containers/{id}/start");
        let answer = self.send(WHAT, "POST", &path, None::<&()>, ENGINE_START_MAX)?;
        checked(WHAT, answer).map(|_| ())
    }

    /// Asks to be told when the container does not run any more.
    ///
    /// # Errors
    /// [`EngineError`] where the question could not be asked.
    pub fn wait(&self, id: &ContainerId) -> Result<Pending<WaitEnd>, EngineError> {
        let path = format!("/containers/{id}/wait");
        self.pending("wait for the container", &path)
    }

    /// Asks for SIGKILL to every process of the container, without waiting for the answer.
    ///
    /// # Errors
    /// [`EngineError`] where it could not even be asked.
    pub fn kill_soon(&self, id: &ContainerId) -> Result<Pending<()>, EngineError> {
        let path = format!("/containers/{id}/kill?signal=SIGKILL");
        self.pending("kill the container", &path)
    }

    /// Sends SIGKILL to every process of the container. One that does not run is no failure.
    ///
    /// # Errors
    /// [`EngineError`]
    pub fn kill(&self, id: &ContainerId) -> Result<(), EngineError> {
        const WHAT: &str = "kill the container";
        let path = format!("/containers/{id}/kill?signal=SIGKILL");
        let answer = self.send(WHAT, "POST", &path, None::<&()>, ENGINE_KILL_MAX)?;
        match checked(WHAT, answer) {
            // Not running, or not there.
            Err(error) if matches!(error.status(), Some(404 | 409)) => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Ends and removes a container with its anonymous volumes, and waits until it is gone.
    ///
    /// # Errors
    /// [`EngineError`]: it may be there still.
    pub fn remove(&self, container: &str) -> Result<Removal, EngineError> {
        const WHAT: &str = "remove the container";
        let until = Instant::now() + ENGINE_REMOVE_MAX;
        let path = format!("/containers/{}?force=true&v=true", escaped(container));
        let mut connection = self.connect(WHAT, until)?;
        connection.send("DELETE", &path, None)?;
        let refused = match checked(WHAT, connection.answer()?) {
            Ok(_) => return Ok(Removal::Removed),
            Err(error) => error,
        };
        match refused.status() {
            Some(404) => Ok(Removal::NotThere),
            // Somebody's removal is under way: its end is what was asked for.
            Some(409) => self.await_removal(container, until, refused),
            _ => Err(refused),
        }
    }

    /// Containers, running or not, that match `filter`.
    ///
    /// # Errors
    /// [`EngineError`]
    pub fn list(&self, filter: &ContainerFilter) -> Result<Vec<ContainerSummary>, EngineError> {
        let path = format!(
            "/containers/json?all=true&filters={}",
            escaped(&filter.text())
        );
        self.fetch("list containers", &path, ENGINE_ASK_MAX)
    }

    fn await_removal(
        &self,
        container: &str,
        until: Instant,
        refused: EngineError,
    ) -> Result<Removal, EngineError> {
        const WHAT: &str = "wait for the container's removal";
        let path = format!("/containers/{}/wait?condition=removed", escaped(container));
        let mut connection = self.connect(WHAT, until)?;
        connection.send("POST", &path, None)?;
        // Whatever it says: the container is there or not.
        let _waited = connection.answer()?;
        match self.inspect(container)? {
            None => Ok(Removal::Removed),
            Some(_) => Err(refused),
        }
    }

    fn fetch<T: DeserializeOwned>(
        &self,
        what: &'static str,
        path: &str,
        at_most: Duration,
    ) -> Result<T, EngineError> {
        let answer = self.send(what, "GET", path, None::<&()>, at_most)?;
        parsed(what, &checked(what, answer)?)
    }

    fn send<T: Serialize>(
        &self,
        what: &'static str,
        method: &str,
        path: &str,
        body: Option<&T>,
        at_most: Duration,
    ) -> Result<Answer, EngineError> {
        let body = body.map(serde_json::to_vec).transpose();
        let body = body.map_err(|error| {
            let why = error.to_string();
            EngineError::new(what, Trouble::NotSent { why })
        })?;
        let mut connection = self.connect(what, Instant::now() + at_most)?;
        connection.send(method, path, body.as_deref())?;
        connection.answer()
    }

    fn pending<T>(&self, what: &'static str, path: &str) -> Result<Pending<T>, EngineError> {
        let mut connection = self.connect(what, Instant::now() + ENGINE_ASK_MAX)?;
        connection.send("POST", path, None)?;
        Pending::new(what, connection)
    }

    fn connect(&self, what: &'static str, until: Instant) -> Result<Connection, EngineError> {
        Connection::open(what, &self.socket, until)
    }
}

/// An answer that has not come yet. Its socket becomes readable when there is news.
#[derive(Debug)]
pub struct Pending<T> {
    what: &'static str,
    connection: Connection,
    answered: std::marker::PhantomData<fn() -> T>,
}

impl<T> Pending<T> {
    fn new(what: &'static str, mut connection: Connection) -> Result<Self, EngineError> {
        connection.do_not_block()?;
        Ok(Self {
            what,
            connection,
            answered: std::marker::PhantomData,
        })
    }

    fn advance_raw(&mut self) -> Option<Result<Answer, EngineError>> {
        let what = self.what;
        let answer = self.connection.advance()?;
        Some(answer.and_then(|answer| checked(what, answer)))
    }
}

impl Pending<WaitEnd> {
    /// Takes what is there, without blocking. `Some` once, when the answer is complete.
    pub fn advance(&mut self) -> Option<Result<WaitEnd, EngineError>> {
        let what = self.what;
        Some(self.advance_raw()?.and_then(|answer| parsed(what, &answer)))
    }
}

impl Pending<()> {
    /// Takes what is there, without blocking. `Some` once, when the answer is complete.
    pub fn advance(&mut self) -> Option<Result<(), EngineError>> {
        Some(self.advance_raw()?.map(|_| ()))
    }
}

impl<T> std::os::fd::AsFd for Pending<T> {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

/// An answer of success; anything else is the engine's refusal or failure.
fn checked(what: &'static str, answer: Answer) -> Result<Answer, EngineError> {
    match answer.status {
        200..=299 | 304 => Ok(answer),
        _ => Err(EngineError::answered(what, &answer)),
    }
}

fn parsed<T: DeserializeOwned>(what: &'static str, answer: &Answer) -> Result<T, EngineError> {
    serde_json::from_slice(&answer.body).map_err(|error| unreadable(what, &error.to_string()))
}

fn unreadable(what: &'static str, why: &str) -> EngineError {
    let why = format!("its answer cannot be read: {why}");
    EngineError::new(what, Trouble::Unknown { why })
}

fn absent_is_none<T>(found: Result<T, EngineError>) -> Result<Option<T>, EngineError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.status() == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `text` as one component or value of a request's path.
fn escaped(text: &str) -> String {
    use std::fmt::Write as _;
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            _ => {
                // Writing to a text cannot fail.
                let _written = write!(escaped, "%{byte:02X}");
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
