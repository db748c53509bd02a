//! The user's folders, from the environment. The only module that reads it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use project::UserDirs;

use crate::exit::{Exit, Failure};

/// The XDG folders of the caller (XDG Base Directory Specification 0.8).
pub(crate) fn user_dirs() -> Result<UserDirs, Failure> {
    Ok(UserDirs {
        config: xdg("XDG_CONFIG_HOME", ".config")?.join("symbi"),
        state: xdg("XDG_STATE_HOME", ".local/state")?.join("symbi"),
        runtime: match absolute("XDG_RUNTIME_DIR") {
            Some(dir) => dir.join("symbi"),
            None => xdg("XDG_STATE_HOME", ".local/state")?
                .join("symbi")
                .join("run"),
        },
    })
}

/// The service manager of the user, or of the machine for root: its private socket, and what a
/// client of it needs to find it.
pub(crate) fn service_manager() -> Option<(PathBuf, Option<PathBuf>)> {
    if rustix::process::geteuid().is_root() {
        return Some(("/run/systemd/private".into(), None));
    }
    let runtime = absolute("XDG_RUNTIME_DIR")?;
    Some((runtime.join("systemd/private"), Some(runtime)))
}

/// The container engine that the caller's environment names.
pub(crate) fn engine_host() -> Option<String> {
    std::env::var("DOCKER_HOST")
        .ok()
        .filter(|host| !host.is_empty())
}

/// A variable that holds a secret.
pub(crate) fn secret(variable: &str) -> Option<model::Redacted<String>> {
    std::env::var(variable).ok().map(model::Redacted::new)
}

/// What a command of the user's own configuration is run with: nothing that could hold a secret.
pub(crate) fn command_environment() -> Vec<(String, String)> {
    ["PATH", "HOME", "LANG"]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
        .collect()
}

/// Whether the caller gave any variable at all. The fault points of a development build are none:
/// they are to act in the process that they were given to.
pub(crate) fn has_environment() -> bool {
    let is_fault = |name: &OsStr| name.as_bytes().starts_with(b"SYMBI_FAULT");
    std::env::vars_os().any(|(name, _)| !cfg!(debug_assertions) || !is_fault(&name))
}

/// Whether the terminal says that it can only add to what it shows.
pub(crate) fn is_plain_terminal() -> bool {
    std::env::var_os("TERM").is_none_or(|kind| kind.is_empty() || kind == "dumb")
}

fn xdg(variable: &str, below_home: &str) -> Result<PathBuf, Failure> {
    if let Some(dir) = absolute(variable) {
        return Ok(dir);
    }
    absolute("HOME")
        .map(|home| home.join(below_home))
        .ok_or_else(|| {
            Failure::new(
                Exit::Usage,
                format!("neither `{variable}` nor `HOME` is an absolute path"),
            )
            .help(format!("set HOME, or {variable}"))
        })
}

/// A relative path in such a variable is ignored, as the specification says.
fn absolute(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}
