//! The user's own `config.toml`: where credentials go, where journals are anchored, and which chat
//! asks.
//!
//! It stands outside every project, so that no project can send a key to a place of its own
//! choice. Its faults never show a value: a key could stand there by mistake.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use model::{Redacted, SourceErrors};

use super::agents::{is_variable, words};
use super::capacity::CapacitySettings;
use super::inference::is_name;
use crate::dirs::UserDirs;
use crate::folder::{Folder, FolderError};
use crate::limits::{
    BASE_URL_BYTES_MAX, CHAT_SENDERS_MAX, KEY_FILE_BYTES_MAX, USER_CONFIG_BYTES_MAX,
    USER_ENTRIES_MAX,
};
use crate::place::{Demand, shown};
use crate::project::utf8;
use crate::reader::{Entry, Source, Table};

const USER_CONFIG_FILE: &str = "config.toml";

/// The user's own configuration; empty where there is no file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct UserConfig {
    pub providers: BTreeMap<String, Provider>,
    pub anchors: BTreeMap<String, Anchor>,
    pub capacity: CapacitySettings,
    pub chats: BTreeMap<String, ChatSettings>,
}

/// A model provider, and the only credential that may go there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Provider {
    /// `https://HOST[:PORT][/PATH]`, or `http://` of a loopback address. No credentials,
    /// query, fragment, or slash at the end.
    pub base_url: String,
    pub credential: Credential,
}

/// A chat platform that shows held calls and vouches for who answers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChatSettings {
    /// The address that messages are posted to: as secret as a key.
    pub webhook: Credential,
    /// What the platform signs its callbacks with.
    pub signing_secret: Credential,
    pub listen: ChatListen,
    /// Who may answer: workspace, channel and user, each once.
    pub senders: Vec<(String, String, String)>,
}

/// Where the user's relay hands callbacks in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatListen {
    /// A loopback address.
    Loopback(SocketAddr),
    /// A socket of the run in the user's private folder.
    Socket,
}

/// Where a provider's key is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// The name of an environment variable.
    Environment(String),
    /// A private file; absolute.
    File(PathBuf),
}

/// Where checkpoints go, beside the project's own ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    pub place: AnchorPlace,
    /// No run starts that it does not know of.
    pub required: bool,
}

/// Who keeps an anchor's checkpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnchorPlace {
    /// A file to append to; absolute.
    File(PathBuf),
    /// A command to run; never empty.
    Command(Vec<String>),
}

/// Why the user's configuration cannot be used.
#[derive(Debug)]
pub enum UserConfigError {
    Folder(FolderError),
    Faults(SourceErrors),
}

impl fmt::Display for UserConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(error) => error.fmt(f),
            Self::Faults(faults) => faults.fmt(f),
        }
    }
}

impl std::error::Error for UserConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Folder(error) => std::error::Error::source(error),
            Self::Faults(_) => None,
        }
    }
}

impl From<FolderError> for UserConfigError {
    fn from(error: FolderError) -> Self {
        Self::Folder(error)
    }
}

impl UserConfig {
    /// Reads `config.toml` of the user's configuration folder; a missing one is empty.
    ///
    /// # Errors
    /// [`UserConfigError`] where others could have written it, or all its faults.
    pub fn load(dirs: &UserDirs) -> Result<Self, UserConfigError> {
        let folder = match Folder::open_ambient(&dirs.config, Demand::Own) {
            Ok(folder) => folder,
            Err(error) if error.is_missing() => return Ok(Self::default()),
            Err(error) => return Err(error.into()),
        };
        let path = folder.path().join(USER_CONFIG_FILE);
        let Some(bytes) = folder.read(USER_CONFIG_FILE, USER_CONFIG_BYTES_MAX, Demand::Own)? else {
            return Ok(Self::default());
        };
        let file = path.to_string_lossy();
        let text = utf8(&file, bytes).map_err(|fault| UserConfigError::Faults(fault.into()))?;
        Self::parse(&file, &text).map_err(UserConfigError::Faults)
    }

    /// Parses the `text` of `file` (a name for messages).
    ///
    /// # Errors
    /// Every fault with its place, without values.
    pub fn parse(file: &str, text: &str) -> Result<Self, SourceErrors> {
        let source = Source::near_secrets(file, text);
        let entries = source.parse();
        let root = Table::root(&source, &entries);
        let config = Self {
            providers: named(&root, "providers", read_provider),
            anchors: named(&root, "anchors", read_anchor),
            capacity: root
                .table("capacity")
                .map(CapacitySettings::read)
                .unwrap_or_default(),
            chats: named(&root, "chat", read_chat),
        };
        root.finish();
        source.finish()?;
        Ok(config)
    }
}

/// A table whose keys are names.
fn named<T>(
    root: &Table<'_>,
    key: &'static str,
    read: fn(Table<'_>) -> Option<T>,
) -> BTreeMap<String, T> {
    let mut items = BTreeMap::new();
    let Some(table) = root.table(key) else {
        return items;
    };
    let entries = table.named_entries();
    if entries.len() > USER_ENTRIES_MAX {
        let message = format!("`[{key}]` has {} entries", entries.len());
        table.fault(message, format!("at most {USER_ENTRIES_MAX} are allowed"));
        return items;
    }
    for (name, place, entry) in entries {
        if !is_name(name) {
            entry.source().fault(
                place,
                "a name of this table has a character that none may have",
                "allowed are A-Z a-z 0-9 _ -",
            );
        }
        if let Some(item) = entry.table().and_then(read) {
            items.insert(name.to_owned(), item);
        }
    }
    items
}

fn read_provider(table: Table<'_>) -> Option<Provider> {
    let base_url = table
        .required("base_url", "\"https://HOST\"")
        .and_then(|entry| read_base_url(&entry));
    let from_env = table.entry("api_key_env");
    let from_file = table.entry("api_key_file");
    let mut stands_here = false;
    for key in ["api_key", "key", "token"] {
        if let Some(entry) = table.entry(key) {
            stands_here = true;
            entry.fault(
                format!("`{key}`: a key does not stand in this file"),
                "name an environment variable with api_key_env, or a file with api_key_file",
            );
        }
    }
    let credential = match (from_env, from_file) {
        (Some(entry), None) => read_variable(&entry).map(Credential::Environment),
        (None, Some(entry)) => read_absolute(&entry).map(Credential::File),
        (None, None) if stands_here => None,
        (env, _) => {
            one_of(
                &table,
                ("api_key_env", "api_key_file"),
                env.is_some(),
                "\"VARIABLE\"",
            );
            None
        }
    };
    table.finish();
    Some(Provider {
        base_url: base_url?,
        credential: credential?,
    })
}

const PLATFORM: &str = "slack";

fn read_chat(table: Table<'_>) -> Option<ChatSettings> {
    let platform = table.required("platform", "\"slack\"");
    if let Some(entry) = platform.filter(|entry| entry.text() != Some(PLATFORM)) {
        entry.fault(
            format!("`{}` is no platform that is known", entry.name()),
            "the platforms are: \"slack\"",
        );
    }
    for key in ["webhook", "signing_secret"] {
        if let Some(entry) = table.entry(key) {
            entry.fault(
                format!("`{key}`: a secret does not stand in this file"),
                format!("name an environment variable with {key}_env, or a file with {key}_file"),
            );
        }
    }
    let webhook = read_secret(&table, ("webhook_env", "webhook_file"));
    let secret = read_secret(&table, ("signing_secret_env", "signing_secret_file"));
    let listen = table
        .required("listen", "\"127.0.0.1:8930\"")
        .and_then(|entry| read_listen(&entry));
    let senders = table
        .required("senders", "[\"WORKSPACE/CHANNEL/USER\"]")
        .map(|entry| read_senders(&entry));
    table.finish();
    Some(ChatSettings {
        webhook: webhook?,
        signing_secret: secret?,
        listen: listen?,
        senders: senders?,
    })
}

fn read_secret(table: &Table<'_>, (env, file): (&'static str, &'static str)) -> Option<Credential> {
    match (table.entry(env), table.entry(file)) {
        (Some(entry), None) => read_variable(&entry).map(Credential::Environment),
        (None, Some(entry)) => read_absolute(&entry).map(Credential::File),
        (given, _) => {
            one_of(table, (env, file), given.is_some(), "\"VARIABLE\"");
            None
        }
    }
}

/// A fault of two keys of which a table has one: here `both`, or none.
fn one_of(table: &Table<'_>, (first, second): (&str, &str), both: bool, example: &str) {
    let table_name = table.name();
    if both {
        let message = format!("`[{table_name}]` has both `{first}` and `{second}`");
        table.fault(
            message,
            format!("remove one of them: either `{first}` or `{second}`"),
        );
    } else {
        let message = format!("`[{table_name}]` needs one of `{first}` and `{second}`");
        table.fault(message, format!("add: {first} = {example}"));
    }
}

fn read_listen(entry: &Entry<'_>) -> Option<ChatListen> {
    let text = entry.text()?;
    let address = text.parse::<SocketAddr>().ok();
    let loopback = address.filter(|it| it.ip().is_loopback() && it.port() != 0);
    match loopback {
        _ if text == "socket" => Some(ChatListen::Socket),
        Some(address) => Some(ChatListen::Loopback(address)),
        None => {
            entry.fault(
                format!("`{}` is no loopback address with a port", entry.name()),
                "write \"127.0.0.1:8930\", or \"socket\" for a socket of each run",
            );
            None
        }
    }
}

fn read_senders(entry: &Entry<'_>) -> Vec<(String, String, String)> {
    let mut senders = Vec::new();
    let texts = entry.distinct_texts(CHAT_SENDERS_MAX);
    if texts.is_empty() {
        entry.fault(
            format!("`{}` names nobody: no answer would count", entry.name()),
            "write each as \"WORKSPACE/CHANNEL/USER\", by the platform's ids",
        );
    }
    for (text, element) in texts {
        let parts: Vec<&str> = text.split('/').collect();
        match parts.as_slice() {
            [workspace, channel, user] if parts.iter().all(|part| is_name(part)) => {
                senders.push(((*workspace).into(), (*channel).into(), (*user).into()));
            }
            _ => element.fault(
                "a sender is written \"WORKSPACE/CHANNEL/USER\", by the platform's ids",
                "an id is written with A-Z a-z 0-9 _ - only",
            ),
        }
    }
    senders
}

fn read_variable(entry: &Entry<'_>) -> Option<String> {
    let text = entry.text()?;
    if !is_variable(text) {
        entry.fault(
            format!("`{}` holds no name of a variable", entry.name()),
            "write the variable's name, not the key itself",
        );
        return None;
    }
    Some(text.to_owned())
}

fn read_absolute(entry: &Entry<'_>) -> Option<PathBuf> {
    let text = entry.text()?;
    if !text.starts_with('/') || text.contains('\0') {
        let message = format!("`{}` is not an absolute path", entry.name());
        entry.fault(
            message,
            "write it from the root: /home/NAME/…".replace('…', "FILE"),
        );
        return None;
    }
    Some(PathBuf::from(text))
}

fn read_anchor(table: Table<'_>) -> Option<Anchor> {
    let place = match (table.entry("file"), table.entry("command")) {
        (Some(entry), None) => read_absolute(&entry).map(AnchorPlace::File),
        (None, Some(entry)) => words(&entry).map(AnchorPlace::Command),
        (file, _) => {
            let example = "\"/var/log/symbi/anchor\"";
            one_of(&table, ("file", "command"), file.is_some(), example);
            None
        }
    };
    let required = table.entry("required").and_then(|entry| entry.boolean());
    table.finish();
    Some(Anchor {
        place: place?,
        required: required.unwrap_or(false),
    })
}

fn read_base_url(entry: &Entry<'_>) -> Option<String> {
    match check_base_url(entry.text()?) {
        Ok(url) => Some(url.to_owned()),
        Err(error) => {
            entry.fault(
                format!("`{}` {}", entry.name(), error.0),
                "write it like \"https://HOST\" or \"http://127.0.0.1:8080\"",
            );
            None
        }
    }
}

/// What is wrong with a base URL; never a part of it.
#[derive(Debug, PartialEq, Eq)]
struct UrlError(&'static str);

/// The URL without slashes at its end, if it can be a provider's.
fn check_base_url(url: &str) -> Result<&str, UrlError> {
    if url.len() > BASE_URL_BYTES_MAX {
        return Err(UrlError("is too long"));
    }
    if !url.bytes().all(|byte| byte.is_ascii_graphic()) || url.contains(['\\', '"', '<', '>']) {
        return Err(UrlError("has a character that stands in no URL"));
    }
    let (plain, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(rest), _) => (false, rest),
        (_, Some(rest)) => (true, rest),
        _ => {
            return Err(UrlError(
                "starts neither with `https://` nor with `http://`",
            ));
        }
    };
    if rest.contains(['?', '#']) {
        return Err(UrlError("has a query or a fragment"));
    }
    let authority = rest.split('/').next().unwrap_or_default();
    if authority.contains('@') {
        return Err(UrlError("holds credentials"));
    }
    let host = host_of(authority).ok_or(UrlError("has no valid host and port"))?;
    let loopback = host
        .parse()
        .is_ok_and(|address: IpAddr| address.is_loopback());
    if plain && !loopback {
        return Err(UrlError(
            "is plain http, which is for a loopback address only",
        ));
    }
    Ok(url.trim_end_matches('/'))
}

/// The host of `HOST`, `HOST:PORT` or `[IPV6]:PORT`.
fn host_of(authority: &str) -> Option<&str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (
                host,
                if after.is_empty() {
                    None
                } else {
                    Some(after.strip_prefix(':')?)
                },
            )
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '_');
    if host.is_empty() || !host.chars().all(named) {
        return None;
    }
    if let Some(port) = port {
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        port.parse::<u16>()
            .ok()
            .filter(|port| digits && *port != 0)?;
    }
    Some(host)
}

/// Why a key file gives no key.
#[derive(Debug)]
pub enum KeyFileError {
    Folder(FolderError),
    Missing {
        path: PathBuf,
    },
    /// Empty, or not one line of printable ASCII.
    Content {
        path: PathBuf,
    },
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(error) => error.fmt(f),
            Self::Missing { path } => write!(
                f,
                "the key file `{}` is missing\n  help: put the key there, on one line, and close it: \
                 chmod 600 FILE",
                shown(path)
            ),
            Self::Content { path } => write!(
                f,
                "the key file `{}` does not hold one line of printable ASCII\n  help: write the key \
                 alone into it",
                shown(path)
            ),
        }
    }
}

impl std::error::Error for KeyFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Folder(error) => std::error::Error::source(error),
            Self::Missing { .. } | Self::Content { .. } => None,
        }
    }
}

/// Reads a provider's key from a private file of the caller's.
///
/// # Errors
/// [`KeyFileError`], without the key.
pub fn read_key_file(path: &Path) -> Result<Redacted<String>, KeyFileError> {
    let missing = || KeyFileError::Missing {
        path: path.to_owned(),
    };
    let content = || KeyFileError::Content {
        path: path.to_owned(),
    };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str()))
    else {
        return Err(missing());
    };
    let folder = match Folder::open_ambient(parent, Demand::Ancestor) {
        Err(error) if error.is_missing() => return Err(missing()),
        opened => opened.map_err(KeyFileError::Folder)?,
    };
    let bytes = folder
        .read(name, KEY_FILE_BYTES_MAX, Demand::Private)
        .map_err(KeyFileError::Folder)?
        .ok_or_else(missing)?;
    let text = String::from_utf8(bytes).map_err(|_| content())?;
    let key = text.trim_end_matches(['\n', '\r']);
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(content());
    }
    Ok(Redacted::new(key.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_is_https_or_plain_loopback() {
        for good in [
            "https://api.example.com",
            "https://api.example.com:8443/v1",
            "http://127.0.0.1:8080",
            "http://127.9.9.9",
            "http://[::1]:8080",
        ] {
            assert_eq!(check_base_url(good), Ok(good));
        }
        assert_eq!(check_base_url("https://h/"), Ok("https://h"));
        for bad in [
            "",
            "api.example.com",
            "ftp://h",
            "https://",
            "https:///x",
            "https://user:hunter2@h",
            "https://h?key=hunter2",
            "https://h#hunter2",
            "http://example.com",
            "http://localhost:80",
            "http://127.0.0.1.example.com",
            "https://h:0",
            "https://h:65536",
            "https://h:+1",
            "https://h h",
            "https://h\\@x",
            "https://[::1",
            "HTTPS://h",
        ] {
            let error = check_base_url(bad).expect_err(bad);
            assert!(!error.0.contains("hunter2"));
        }
    }
}
