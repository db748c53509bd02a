//! The texts of the work tree: what git tracks, and what it would track.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::Command;

/// A file whose content is UTF-8.
#[derive(Clone, Debug)]
pub(crate) struct TextFile {
    /// Path below the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl TextFile {
    /// The last component of the path.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// Reads every text file of the work tree at `root` that git does not ignore. A file that is not
/// UTF-8, a link, and one that was deleted but not yet from the index are left out.
///
/// # Errors
/// git that cannot be run or refuses, a file that cannot be read.
pub(crate) fn read(root: &Path) -> Result<Vec<TextFile>, TreeError> {
    let mut files = Vec::new();
    for path in listed(root)? {
        let place = root.join(&path);
        match place.symlink_metadata() {
            Ok(metadata) if metadata.is_file() => {}
            Ok(_) => continue,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => return Err(TreeError::Read { path, source }),
        }
        let bytes = match std::fs::read(&place) {
            Ok(bytes) => bytes,
            Err(source) => return Err(TreeError::Read { path, source }),
        };
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(TextFile { path, text });
        }
    }
    Ok(files)
}

fn listed(root: &Path) -> Result<Vec<String>, TreeError> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .output()
        .map_err(TreeError::Git)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(TreeError::Refused { said });
    }
    let names = output.stdout.split(|&byte| byte == 0);
    let mut paths: Vec<String> = names
        .filter_map(|name| std::str::from_utf8(name).ok())
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// Why the work tree could not be read.
#[derive(Debug)]
pub(crate) enum TreeError {
    Git(io::Error),
    Refused { said: String },
    Read { path: String, source: io::Error },
}

impl fmt::Display for TreeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Git(_) => formatter.write_str("cannot run `git`"),
            Self::Refused { said } => write!(formatter, "`git ls-files` failed: {said}"),
            Self::Read { path, .. } => write!(formatter, "cannot read `{path}`"),
        }
    }
}

impl std::error::Error for TreeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Git(source) | Self::Read { source, .. } => Some(source),
            Self::Refused { .. } => None,
        }
    }
}
