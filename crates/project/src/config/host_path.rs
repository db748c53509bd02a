//! A place on the host, as a configuration writes it.

use std::fmt;
use std::path::{Path, PathBuf};

use model::{PathError, RelativePath};

use crate::reader::Entry;

/// `./x` in the project's folder, or `/x`. Never climbs by `..`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostPath {
    /// Below the project's folder; `None` is that folder itself.
    Project(Option<RelativePath>),
    /// From the host's root; free of `.` and `..`.
    Absolute(PathBuf),
}

impl HostPath {
    /// The absolute path, given the project's folder.
    #[must_use]
    pub fn resolve(&self, project: &Path) -> PathBuf {
        match self {
            Self::Project(None) => project.to_owned(),
            Self::Project(Some(path)) => project.join(path.as_str()),
            Self::Absolute(path) => path.clone(),
        }
    }

    pub(super) fn parse(text: &str) -> Result<Self, HostPathError> {
        if text == "." || text == "./" {
            return Ok(Self::Project(None));
        }
        if let Some(below) = text.strip_prefix("./") {
            let path = RelativePath::new(trimmed(below)).map_err(HostPathError::Path)?;
            return Ok(Self::Project(Some(path)));
        }
        if text.starts_with('/') {
            return clean_absolute(trimmed(text)).map(|()| Self::Absolute(trimmed(text).into()));
        }
        Err(HostPathError::Start)
    }

    /// The host path that `entry` writes.
    pub(super) fn read(entry: &Entry<'_>) -> Option<Self> {
        match Self::parse(entry.text()?) {
            Ok(path) => Some(path),
            Err(error) => {
                entry.fault(
                    format!("`{}` is no host path: {error}", entry.name()),
                    "write ./NAME for a place in the project's folder, or /PATH",
                );
                None
            }
        }
    }
}

impl fmt::Display for HostPath {
    /// As a configuration writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Project(None) => f.write_str("./"),
            Self::Project(Some(path)) => write!(f, "./{path}"),
            Self::Absolute(path) => path.display().fmt(f),
        }
    }
}

/// Why a text is no host path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HostPathError {
    Start,
    Root,
    Path(PathError),
}

impl HostPathError {
    /// The same of a path inside a worker.
    pub(super) fn of_target(&self) -> String {
        match self {
            Self::Start => "it does not start with `/`".to_owned(),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for HostPathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("it starts neither with `./` nor with `/`"),
            Self::Root => f.write_str("it is the root folder"),
            Self::Path(error) => f.write_str(&error.what()),
        }
    }
}

fn trimmed(text: &str) -> &str {
    match text.strip_suffix('/') {
        Some(shorter) if !shorter.is_empty() => shorter,
        _ => text,
    }
}

/// A path from the root, without `.`, `..`, empty parts and mount delimiters.
pub(super) fn clean_absolute(text: &str) -> Result<(), HostPathError> {
    match text.strip_prefix('/') {
        None => Err(HostPathError::Start),
        Some("") => Err(HostPathError::Root),
        Some(below) => RelativePath::new(below)
            .map(|_| ())
            .map_err(HostPathError::Path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_path_is_in_the_project_or_absolute() {
        let resolve = |text| HostPath::parse(text).map(|path| path.resolve(Path::new("/p")));
        assert_eq!(resolve("./data").unwrap(), Path::new("/p/data"));
        assert_eq!(resolve("./data/").unwrap(), Path::new("/p/data"));
        assert_eq!(resolve("./").unwrap(), Path::new("/p"));
        assert_eq!(resolve("/srv/in").unwrap(), Path::new("/srv/in"));
        for bad in [
            "", "data", "../x", "./..", "./a/../b", "/a/../b", "/", "//a", "~/x", "/a,b",
        ] {
            assert!(HostPath::parse(bad).is_err(), "{bad}");
        }
    }
}
