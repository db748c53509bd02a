//! Where the other create mode would have helped: a word for whoever wrote the manifest.
//!
//! A guess from what the program complained of; it changes no outcome.

use model::CreateMode;
use worker::Descriptor;

/// What a program says that wanted to replace its output, or to make it itself. In lower case.
const WANTS_FRESH: [&str; 6] = [
    "read-only file system",
    "resource busy",
    "file exists",
    "already exists",
    "readonly database",
    "unable to open database",
];
/// What gVisor's kernel says instead: of the output, or of a file beside it.
const DENIED: &str = "permission denied";
/// What one says that expected the output to be there.
const WANTS_FILE: &str = "no such file or directory";
/// How much of a stream's beginning is looked at.
const LOOKED_AT_BYTES_MAX: usize = 64 << 10;

/// What to say of a program that failed with these words.
pub(crate) fn of_failure(descriptor: &Descriptor, stderr: &[u8]) -> Option<&'static str> {
    let (path, mode) = output(descriptor)?;
    let text = stderr.get(..LOOKED_AT_BYTES_MAX).unwrap_or(stderr);
    let text = String::from_utf8_lossy(text).to_lowercase();
    let name = path.rsplit('/').next().unwrap_or(path).to_lowercase();
    let folder = path
        .rsplit_once('/')
        .map(|(folder, _)| folder.to_lowercase());
    let beside = folder.unwrap_or_else(|| name.clone());
    let denied = text.contains(DENIED) && text.contains(&beside);
    match mode {
        CreateMode::File if denied || WANTS_FRESH.iter().any(|words| text.contains(words)) => {
            Some("if it replaces its output or makes it itself, it needs `create_mode = \"fresh\"`")
        }
        CreateMode::Fresh if text.contains(WANTS_FILE) && text.contains(&name) => {
            Some("if it expects its output to be there, it needs `create_mode = \"file\"`")
        }
        CreateMode::File | CreateMode::Fresh => None,
    }
}

fn output(descriptor: &Descriptor) -> Option<(&str, CreateMode)> {
    let created = &descriptor.boundary()?.filesystem.create;
    let grant = created.values().next()?;
    Some((grant.path.as_str(), grant.mode))
}
