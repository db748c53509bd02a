//! The operator's word that a project's control files are theirs to act on.
//!
//! A project that arrives from elsewhere can say anything in its policies. Nothing of it runs
//! until its operator has seen it once, nor after a change that they have not seen. The record
//! lies in the user's state folder, out of the project's reach.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;

use model::{Digest, Untrusted};
use serde::{Deserialize, Serialize};

use crate::diff::unified_diff;
use crate::dirs::{ProjectId, UserDirs};
use crate::folder::{Folder, FolderError};
use crate::limits::{BRIEF_BYTES_MAX, BRIEF_LINES_MAX, TRUST_RECORD_BYTES_MAX};
use crate::place::{Demand, shown};
use crate::project::Project;
use crate::state::StateError;

const RECORD_VERSION: u32 = 1;

/// What the operator has said about a project.
#[derive(Debug)]
pub enum TrustStatus {
    /// All control files are as they were when the operator trusted them.
    Trusted {
        /// Digest of what was validated with them, if a policy check passed.
        policy_verdict: Option<Digest>,
    },
    NeverTrusted,
    /// There is a record that cannot be believed: as good as none.
    Unusable(UnusableRecord),
    Changed(Changes),
}

/// Why a record of trust does not count.
#[derive(Debug)]
pub enum UnusableRecord {
    /// It is unreadable, or somebody else's.
    Folder(FolderError),
    /// It is damaged, or of another version.
    Content { path: String, reason: String },
}

impl fmt::Display for UnusableRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(error) => error.fmt(f),
            Self::Content { path, reason } => write!(
                f,
                "the trust record `{path}` cannot be read: {reason}\n  help: trust the project again: symbi trust"
            ),
        }
    }
}

/// What is different from the trusted state. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// Another folder stands at the path.
    pub folder_replaced: bool,
    /// `.symbiont/id` is another, or gone.
    pub id_replaced: bool,
    /// By path.
    pub files: Vec<FileChange>,
}

/// One control file that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    pub path: String,
    pub kind: ChangeKind,
    /// Unified, safe on a terminal.
    pub diff: String,
}

/// How a control file changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Removed,
    Changed,
}

impl ChangeKind {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Changed => "changed",
        }
    }
}

impl fmt::Display for Changes {
    /// A summary line for each change, then the diffs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.folder_replaced {
            writeln!(f, "another folder stands at the project's path")?;
        }
        if self.id_replaced {
            writeln!(f, "the project's id is another one")?;
        }
        for file in &self.files {
            let path = Untrusted::new(&file.path).escaped();
            writeln!(f, "{} {path}", file.kind.as_str())?;
        }
        for file in &self.files {
            f.write_str(&file.diff)?;
        }
        Ok(())
    }
}

impl Changes {
    /// The same, cut where it is long, with a mark that says how much is missing.
    #[must_use]
    pub fn brief(&self) -> String {
        let all = self.to_string();
        let (mut end, mut lines) = (0, 0);
        for line in all.split_inclusive('\n') {
            if lines == BRIEF_LINES_MAX || end + line.len() > BRIEF_BYTES_MAX {
                break;
            }
            (end, lines) = (end + line.len(), lines + 1);
        }
        let (shown, rest) = all.split_at(end);
        if rest.is_empty() {
            return all;
        }
        format!(
            "{shown}[{} more lines of {} bytes are not shown; `symbi trust` shows all]\n",
            rest.lines().count(),
            rest.len()
        )
    }
}

/// Why trust could not be looked up or recorded.
#[derive(Debug)]
pub enum TrustError {
    Folder(FolderError),
    State(StateError),
    Encode(serde_json::Error),
}

impl fmt::Display for TrustError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(error) => error.fmt(f),
            Self::State(error) => error.fmt(f),
            Self::Encode(_) => f.write_str("the trust record cannot be written as JSON"),
        }
    }
}

impl std::error::Error for TrustError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Folder(error) => std::error::Error::source(error),
            Self::State(error) => std::error::Error::source(error),
            Self::Encode(error) => Some(error),
        }
    }
}

impl From<FolderError> for TrustError {
    fn from(error: FolderError) -> Self {
        Self::Folder(error)
    }
}

/// The record on disk.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    v: u32,
    path: String,
    /// For the reader only: it can change when the machine restarts.
    device: String,
    inode: String,
    project_id: String,
    policy_verdict: Option<Digest>,
    files: Vec<TrustedFile>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrustedFile {
    path: String,
    sha256: Digest,
    text: String,
}

/// Looking up and giving trust.
#[derive(Debug)]
pub struct Trust;

impl Trust {
    /// Compares the project, as it was read, with what its operator trusted. Makes nothing.
    ///
    /// # Errors
    /// [`TrustError`] where the project's own records are not private. An unusable record is
    /// no error but a [`TrustStatus`].
    pub fn status(project: &Project, dirs: &UserDirs) -> Result<TrustStatus, TrustError> {
        let id = project.existing_id().map_err(TrustError::State)?;
        let found = dirs.trust().and_then(|folder| match &folder {
            Some(folder) => read(folder, &record_name(project)),
            None => Ok(None),
        });
        let (path, bytes) = match found {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(TrustStatus::NeverTrusted),
            Err(error) => return Ok(TrustStatus::Unusable(UnusableRecord::Folder(error))),
        };
        let unusable =
            |reason: String| TrustStatus::Unusable(UnusableRecord::Content { path, reason });
        let record: Record = match serde_json::from_slice(&bytes) {
            Ok(record) => record,
            Err(error) => return Ok(unusable(Untrusted::new(error.to_string()).escaped())),
        };
        if record.v != RECORD_VERSION {
            return Ok(unusable(format!("its version is {}", record.v)));
        }
        let changes = compare(project, id, &record)?;
        if changes.folder_replaced || changes.id_replaced || !changes.files.is_empty() {
            return Ok(TrustStatus::Changed(changes));
        }
        Ok(TrustStatus::Trusted {
            policy_verdict: record.policy_verdict,
        })
    }

    /// Records that the operator trusts the control files that `project` has read.
    /// `policy_verdict` names what a full policy check of them has passed.
    ///
    /// # Errors
    /// [`TrustError`] where the record or the project's id cannot be written.
    pub fn grant(
        project: &Project,
        dirs: &UserDirs,
        policy_verdict: Option<Digest>,
    ) -> Result<(), TrustError> {
        let state = project.state().map_err(TrustError::State)?;
        let stat = project.folder().stat()?;
        let record = Record {
            v: RECORD_VERSION,
            path: shown(project.path()),
            device: stat.st_dev.to_string(),
            inode: stat.st_ino.to_string(),
            project_id: state.project_id().to_string(),
            policy_verdict,
            files: project
                .control_files()
                .map(|file| TrustedFile {
                    path: file.path.clone(),
                    sha256: file.sha256,
                    text: file.text.clone(),
                })
                .collect(),
        };
        let mut bytes = serde_json::to_vec(&record).map_err(TrustError::Encode)?;
        bytes.push(b'\n');
        dirs.make_trust()?
            .put_private(&record_name(project), &bytes, true)?;
        Ok(())
    }
}

fn record_name(project: &Project) -> String {
    let path = Digest::of(project.path().as_os_str().as_bytes());
    format!("{path}.json")
}

fn read(folder: &Folder, name: &str) -> Result<Option<(String, Vec<u8>)>, FolderError> {
    let bytes = folder.read(name, TRUST_RECORD_BYTES_MAX, Demand::Private)?;
    Ok(bytes.map(|bytes| (shown(&folder.path().join(name)), bytes)))
}

fn compare(
    project: &Project,
    id: Option<ProjectId>,
    record: &Record,
) -> Result<Changes, FolderError> {
    let inode = project.folder().stat()?.st_ino.to_string();
    let trusted: BTreeMap<&str, &TrustedFile> = record
        .files
        .iter()
        .map(|file| (file.path.as_str(), file))
        .collect();
    let mut files = Vec::new();
    for now in project.control_files() {
        let (kind, old) = match trusted.get(now.path.as_str()) {
            Some(old) if old.sha256 == now.sha256 => continue,
            Some(old) => (ChangeKind::Changed, old.text.as_str()),
            None => (ChangeKind::Added, ""),
        };
        files.push(FileChange {
            diff: unified_diff(&now.path, old, &now.text),
            path: now.path.clone(),
            kind,
        });
    }
    for (path, old) in trusted {
        if project.control_file(path).is_none() {
            files.push(FileChange {
                diff: unified_diff(path, &old.text, ""),
                path: path.to_owned(),
                kind: ChangeKind::Removed,
            });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(Changes {
        folder_replaced: inode != record.inode,
        id_replaced: id.map(|id| id.to_string()).as_ref() != Some(&record.project_id),
        files,
    })
}
