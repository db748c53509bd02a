//! A container engine that runs nothing: it answers what the tiers and the supervisor ask, and
//! remembers it.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

/// The image that a new engine has.
pub const IMAGE: &str = "there";

/// An engine of containers that are entries in a map.
#[derive(Debug)]
pub struct FakeEngine {
    socket: PathBuf,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    stopped: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    containers: BTreeMap<String, FakeContainer>,
    requests: Vec<String>,
    made: u64,
    most_running: usize,
}

/// One container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeContainer {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub is_running: bool,
    config: Value,
}

impl FakeEngine {
    /// Listens at `socket`.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn start(socket: &Path) -> io::Result<Self> {
        let engine = Self {
            socket: socket.to_owned(),
            shared: Arc::default(),
        };
        engine.listen()?;
        Ok(engine)
    }

    fn listen(&self) -> io::Result<()> {
        let listener = UnixListener::bind(&self.socket)?;
        let shared = Arc::clone(&self.shared);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if shared.stopped.load(Ordering::Acquire) {
                    return;
                }
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || shared.serve(stream));
            }
        });
        Ok(())
    }

    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Stops listening, as a daemon that was killed; its containers stay.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Release);
        // The accept returns, and sees it.
        let _ = UnixStream::connect(&self.socket);
        let _ = std::fs::remove_file(&self.socket);
    }

    /// Listens again.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn restart(&self) -> io::Result<()> {
        self.shared.stopped.store(false, Ordering::Release);
        self.listen()
    }

    /// The containers, by id.
    #[must_use]
    pub fn containers(&self) -> BTreeMap<String, FakeContainer> {
        self.shared.state().containers.clone()
    }

    /// Most containers that ran at one time.
    #[must_use]
    pub fn most_running(&self) -> usize {
        self.shared.state().most_running
    }

    /// `METHOD PATH` of every request so far.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.shared.state().requests.clone()
    }

    /// Puts a running container there, as somebody else's or as a late creation. Its id.
    pub fn add(&self, name: &str, labels: &[(&str, &str)]) -> String {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let labels: BTreeMap<String, String> = labels.iter().map(own).collect();
        let config = json!({ "Labels": labels });
        let mut state = self.shared.state();
        let id = state.create(name, labels, config);
        state.run(&id);
        id
    }
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        self.stop();
    }
}

impl State {
    fn create(&mut self, name: &str, labels: BTreeMap<String, String>, config: Value) -> String {
        self.made += 1;
        let id = format!("{:064x}", self.made);
        let container = FakeContainer {
            name: name.to_owned(),
            labels,
            is_running: false,
            config,
        };
        self.containers.insert(id.clone(), container);
        id
    }

    fn run(&mut self, id: &str) -> bool {
        let Some(container) = self.containers.get_mut(id) else {
            return false;
        };
        container.is_running = true;
        let running = self.containers.values().filter(|it| it.is_running).count();
        self.most_running = self.most_running.max(running);
        true
    }

    /// The id of what is named by id or name.
    fn find(&self, named: &str) -> Option<String> {
        let mut all = self.containers.iter();
        all.find(|(id, it)| *id == named || it.name == named)
            .map(|(id, _)| id.clone())
    }

    fn list(&self, filters: &str) -> Value {
        let filters: Value = serde_json::from_str(filters).unwrap_or_default();
        let wanted: Vec<&str> = filters
            .get("label")
            .and_then(Value::as_array)
            .map(|labels| labels.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let has = |container: &FakeContainer, label: &str| match label.split_once('=') {
            Some((name, value)) => container.labels.get(name).is_some_and(|it| it == value),
            None => container.labels.contains_key(label),
        };
        let matching = self
            .containers
            .iter()
            .filter(|(_, it)| wanted.iter().all(|label| has(it, label)));
        matching
            .map(|(id, it)| {
                json!({
                    "Id": id, "Names": [format!("/{}", it.name)], "Labels": it.labels,
                    "State": status_of(it), "Created": 0
                })
            })
            .collect()
    }
}

fn status_of(container: &FakeContainer) -> &'static str {
    if container.is_running {
        "running"
    } else {
        "created"
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, mut stream: UnixStream) {
        // A client that leaves early is what many tests are about.
        let _ = self.try_serve(&mut stream);
    }

    fn try_serve(&self, stream: &mut UnixStream) -> io::Result<()> {
        let request = Request::read(stream)?;
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        self.state()
            .requests
            .push(format!("{} {path}", request.method));
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (status, body) = self.answer(&request, &parts, query);
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
    }

    fn answer(&self, request: &Request, parts: &[&str], query: &str) -> (u16, Value) {
        let missing = || (404, json!({ "message": "No such container" }));
        match (request.method.as_str(), parts) {
            ("GET", ["version"]) => (200, json!({ "Version": "0", "ApiVersion": "1.41" })),
            ("GET", ["info"]) => (200, json!({ "ID": "fake" })),
            ("GET", ["images", IMAGE, "json"]) => (
                200,
                json!({ "Id": format!("sha256:{:064x}", 1), "Config": {} }),
            ),
            ("GET", ["images", ..]) => (404, json!({ "message": "No such image" })),
            ("POST", ["containers", "create"]) => self.create(request, query),
            ("GET", ["containers", "json"]) => {
                let filters = query.split('&').find_map(|it| it.strip_prefix("filters="));
                let filters = unescaped(filters.unwrap_or_default());
                (200, self.state().list(&filters))
            }
            ("GET", ["containers", named, "json"]) => {
                let state = self.state();
                let found = state.find(named).and_then(|id| {
                    let container = state.containers.get(&id)?;
                    Some(json!({
                        "Id": id, "Name": format!("/{}", container.name),
                        "Image": format!("sha256:{:064x}", 1),
                        "State": { "Status": status_of(container),
                                   "Running": container.is_running },
                        "Config": container.config,
                        "HostConfig": container.config.get("HostConfig").cloned()
                            .unwrap_or_else(|| json!({}))
                    }))
                });
                found.map_or_else(missing, |found| (200, found))
            }
            ("POST", ["containers", named, "start"]) => {
                let mut state = self.state();
                match state
                    .find(named)
                    .filter(|id| state.containers.contains_key(id))
                {
                    Some(id) if state.run(&id) => (204, Value::Null),
                    _ => missing(),
                }
            }
            ("POST", ["containers", named, "kill"]) => {
                let mut state = self.state();
                let found = state.find(named);
                match found.and_then(|id| state.containers.get_mut(&id)) {
                    Some(container) if container.is_running => {
                        container.is_running = false;
                        self.changed.notify_all();
                        (204, Value::Null)
                    }
                    Some(_) => (409, json!({ "message": "it is not running" })),
                    None => missing(),
                }
            }
            ("POST", ["containers", named, "wait"]) => self.wait(named, query),
            ("DELETE", ["containers", named]) => {
                let mut state = self.state();
                let found = state.find(named);
                match found.and_then(|id| state.containers.remove(&id)) {
                    Some(_) => {
                        self.changed.notify_all();
                        (204, Value::Null)
                    }
                    None => missing(),
                }
            }
            _ => (400, json!({ "message": "unknown" })),
        }
    }

    fn create(&self, request: &Request, query: &str) -> (u16, Value) {
        let config: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if config.get("Image").and_then(Value::as_str) != Some(IMAGE) {
            return (404, json!({ "message": "No such image" }));
        }
        let name = query.split('&').find_map(|it| it.strip_prefix("name="));
        let name = unescaped(name.unwrap_or_default());
        let mut state = self.state();
        if state.find(&name).is_some() {
            return (409, json!({ "message": "the name is in use" }));
        }
        let labels = config.get("Labels").cloned().unwrap_or_default();
        let labels = serde_json::from_value(labels).unwrap_or_default();
        let id = state.create(&name, labels, config);
        (201, json!({ "Id": id }))
    }

    fn wait(&self, named: &str, query: &str) -> (u16, Value) {
        let until_removed = query.contains("condition=removed");
        let mut state = self.state();
        if state.find(named).is_none() {
            return (404, json!({ "message": "No such container" }));
        }
        loop {
            let found = state.find(named);
            let running = found.as_ref().and_then(|id| state.containers.get(id));
            let goes_on = match running {
                Some(container) => until_removed || container.is_running,
                None => false,
            };
            if !goes_on {
                return (200, json!({ "StatusCode": 137 }));
            }
            state = match self.changed.wait(state) {
                Ok(state) => state,
                Err(poisoned) => poisoned.into_inner(),
            };
        }
    }
}

/// One request, whole.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) body: Vec<u8>,
    /// All its bytes, as they came.
    pub(crate) raw: Vec<u8>,
}

impl Request {
    pub(crate) fn read(stream: &mut impl Read) -> io::Result<Self> {
        let mut raw = Vec::new();
        let mut part = [0_u8; 4096];
        let head = loop {
            if let Some(at) = raw.windows(4).position(|it| it == b"\r\n\r\n") {
                break at + 4;
            }
            match stream.read(&mut part)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => raw.extend(part.get(..count).unwrap_or_default()),
            }
        };
        let text = String::from_utf8_lossy(raw.get(..head).unwrap_or_default()).into_owned();
        let mut words = text.split_whitespace();
        let method = words.next().unwrap_or_default().to_owned();
        let path = words.next().unwrap_or_default().to_owned();
        let length = text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_length = name.eq_ignore_ascii_case("content-length");
            value.trim().parse::<usize>().ok().filter(|_| is_length)
        });
        let whole = head + length.unwrap_or(0);
        while raw.len() < whole {
            match stream.read(&mut part)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => raw.extend(part.get(..count).unwrap_or_default()),
            }
        }
        let body = raw.get(head..whole).unwrap_or_default().to_vec();
        Ok(Self {
            method,
            path,
            body,
            raw,
        })
    }
}

/// A value of a query without its escapes.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| *first == b'%');
        let code = code.and_then(|it| std::str::from_utf8(it).ok());
        match code.and_then(|it| u8::from_str_radix(it, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_a_query_are_read() {
        assert_eq!(unescaped("%7B%22a%22%3A1%7D"), "{\"a\":1}");
        assert_eq!(unescaped("50%"), "50%");
    }
}
