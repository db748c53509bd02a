//! Whose a file or folder is, and who else can write it.
//!
//! The operator's files decide what an agent may do. They are believed only where nobody but
//! the caller and root could have written them.

use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use model::Untrusted;
use rustix::fs::{FileType, Stat};

/// What is demanded of a place before its content is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Demand {
    /// A folder on the way: the caller's or root's; writable by others only if it is sticky.
    Ancestor,
    /// The caller's or root's, writable by nobody else.
    Controlled,
    /// The caller's own, writable by nobody else.
    Own,
    /// The caller's own, and closed to everybody else.
    Private,
}

/// A place that cannot be believed, with the command that would change that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsafePlace {
    pub path: PathBuf,
    /// The effective user id of this process.
    pub caller: u32,
    pub reason: UnsafeReason,
}

/// Why a place cannot be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsafeReason {
    /// It belongs to somebody else.
    Owner { uid: u32, root_allowed: bool },
    /// Group or others may write it. Permission bits only.
    Writable { mode: u32 },
    /// Group or others may use it, and it must be private. Permission bits only.
    Open { mode: u32, folder: bool },
    /// It is a symbolic link.
    Link,
    /// A folder was expected.
    NotFolder,
    /// A regular file was expected.
    NotFile,
}

impl fmt::Display for UnsafePlace {
    /// What was found, then the command to type.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = shown(&self.path);
        let word = shell_word(self.path.as_os_str());
        let caller = self.caller;
        match self.reason {
            UnsafeReason::Owner { uid, root_allowed } => {
                let or_root = match (caller, root_allowed) {
                    (0, _) => "which is not you (root)".to_owned(),
                    (_, true) => format!("which is neither you (uid {caller}) nor root"),
                    (_, false) => format!("which is not you (uid {caller})"),
                };
                let who = if caller == 0 { "" } else { "as root, " };
                write!(
                    f,
                    "`{path}` belongs to uid {uid}, {or_root}\n  \
                     help: run as that user, or take it over: {who}chown {caller} {word}"
                )
            }
            UnsafeReason::Writable { mode } => write!(
                f,
                "`{path}` has mode {mode:04o}: others than its owner can write it\n  \
                 help: chmod go-w {word}"
            ),
            UnsafeReason::Open { mode, folder } => {
                let right = if folder { "700" } else { "600" };
                write!(
                    f,
                    "`{path}` has mode {mode:04o}, but must be closed to everybody else\n  \
                     help: chmod {right} {word}"
                )
            }
            UnsafeReason::Link => write!(
                f,
                "`{path}` is a symbolic link, which is not followed here\n  \
                 help: remove the link and put the file or folder itself there: rm {word}"
            ),
            UnsafeReason::NotFolder => write!(
                f,
                "`{path}` is not a folder\n  help: move it away: mv {word} {word}.old"
            ),
            UnsafeReason::NotFile => write!(
                f,
                "`{path}` is not a regular file\n  help: move it away: mv {word} {word}.old"
            ),
        }
    }
}

impl std::error::Error for UnsafePlace {}

/// Judges what a handle's `stat` says.
pub(crate) fn judge(path: &Path, stat: &Stat, demand: Demand) -> Result<(), UnsafePlace> {
    let caller = caller();
    let fault = |reason| {
        Err(UnsafePlace {
            path: path.to_owned(),
            caller,
            reason,
        })
    };
    let kind = FileType::from_raw_mode(stat.st_mode);
    let mode = stat.st_mode & 0o7777;
    let root_allowed = matches!(demand, Demand::Ancestor | Demand::Controlled);
    if stat.st_uid != caller && !(root_allowed && stat.st_uid == 0) {
        let uid = stat.st_uid;
        return fault(UnsafeReason::Owner { uid, root_allowed });
    }
    let sticky = demand == Demand::Ancestor && mode & 0o1000 != 0;
    if demand == Demand::Private && mode & 0o077 != 0 {
        let folder = kind == FileType::Directory;
        return fault(UnsafeReason::Open { mode, folder });
    }
    if mode & 0o022 != 0 && !sticky {
        return fault(UnsafeReason::Writable { mode });
    }
    Ok(())
}

/// The user that this process acts as.
pub(crate) fn caller() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A path that is safe on a terminal.
pub(crate) fn shown(path: &Path) -> String {
    Untrusted::new(path.to_string_lossy()).escaped()
}

/// `word` as a shell reads it back.
pub(crate) fn shell_word(word: &OsStr) -> String {
    let bytes = word.as_bytes();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+=:@%,".contains(byte);
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return word.to_string_lossy().into_owned();
    }
    let mut quoted = String::from("$'");
    for byte in bytes {
        match byte {
            b'\'' | b'\\' => {
                quoted.push('\\');
                quoted.push(char::from(*byte));
            }
            b' '..=b'~' => quoted.push(char::from(*byte)),
            other => {
                let _ = write!(quoted, "\\x{other:02x}");
            }
        }
    }
    if bytes
        .iter()
        .all(|byte| (b' '..=b'~').contains(byte) && !b"'\\".contains(byte))
    {
        quoted.remove(0);
    }
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_a_command_reads_back_as_itself() {
        let word = |text: &str| shell_word(OsStr::new(text));
        assert_eq!(word("/srv/a-b_c.toml"), "/srv/a-b_c.toml");
        assert_eq!(word("/srv/my project"), "'/srv/my project'");
        assert_eq!(word("/srv/$(id)"), "'/srv/$(id)'");
        assert_eq!(word("/it's"), r"$'/it\'s'");
        assert_eq!(word("/a\n\u{1b}"), r"$'/a\x0a\x1b'");
        assert_eq!(word("/\u{e9}"), r"$'/\xc3\xa9'");
        assert_eq!(word(""), "''");
    }
}
