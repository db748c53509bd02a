//! Values that are too large for a record, and outputs that are kept whole: each in a private file
//! that its SHA-256 names.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use model::{Canonical, Digest, Hasher};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::folder::{PrivateFolder, StorageError};
use crate::limits::EVIDENCE_BYTES_MAX;

const FOLDER: &str = "evidence";

/// A project's evidence files: 0600 in a folder 0700, written once, never replaced.
#[derive(Debug)]
pub struct Evidence {
    folder: PrivateFolder,
}

/// What a record has in a large value's place.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reference {
    evidence: Kept,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    bytes: u64,
    sha256: Digest,
}

/// An evidence file as a record names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct EvidenceFile {
    pub sha256: Digest,
    /// Where the record says it.
    pub bytes: Option<u64>,
}

impl Event {
    /// The evidence files that the record names. Whatever event gets such a field, names it here
    /// and in `scripts/verify-journal.py`.
    #[must_use]
    pub fn evidence(&self) -> Option<EvidenceFile> {
        match self {
            Self::CallDispatching(it) => {
                let reference = serde_json::from_str::<Reference>(it.descriptor.as_str());
                reference.ok().map(|it| EvidenceFile {
                    sha256: it.evidence.sha256,
                    bytes: Some(it.evidence.bytes),
                })
            }
            Self::CallSettled(it) => it.evidence_sha256.map(|sha256| EvidenceFile {
                sha256,
                bytes: None,
            }),
            _ => None,
        }
    }
}

/// Whether evidence is still what its record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceState {
    Whole,
    /// No file has that name.
    Missing,
    /// Its file has other content, or is no regular file.
    Changed,
}

/// The evidence folder below a project's private folder.
#[must_use]
pub fn evidence_folder(state: &Path) -> PathBuf {
    state.join(FOLDER)
}

/// Compares the file in `folder` with what its record says. Whoever may read it can ask.
///
/// # Errors
/// A file that is there and cannot be read.
pub fn examine_evidence(folder: &Path, named: EvidenceFile) -> io::Result<EvidenceState> {
    let path = folder.join(named.sha256.to_hex());
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(&path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(EvidenceState::Missing),
        Err(Errno::LOOP | Errno::NXIO) => return Ok(EvidenceState::Changed),
        Err(error) => return Err(error.into()),
    };
    let stat = file.metadata()?;
    let size = stat.len();
    if !stat.is_file() || named.bytes.is_some_and(|bytes| bytes != size) {
        return Ok(EvidenceState::Changed);
    }
    let (mut hasher, mut chunk, mut left) = (Hasher::new(), vec![0; 64 << 10], size + 1);
    let mut file = file.take(left);
    while left > 0 {
        let read = file.read(&mut chunk)?;
        if read == 0 {
            break;
        }
        hasher.update(chunk.get(..read).unwrap_or_default());
        left = left.saturating_sub(read as u64);
    }
    Ok(match hasher.finish() == named.sha256 {
        true => EvidenceState::Whole,
        false => EvidenceState::Changed,
    })
}

impl Evidence {
    /// The evidence folder below a project's private folder, made where absent.
    ///
    /// # Errors
    /// [`StorageError`] where the folder is not fit.
    pub fn open(state: &Path) -> Result<Self, StorageError> {
        Ok(Self {
            folder: PrivateFolder::create(&evidence_folder(state))?,
        })
    }

    /// Keeps `value`, durably; what is there already stays. Returns its name.
    ///
    /// # Errors
    /// [`StorageError`].
    pub fn keep(&self, value: &[u8]) -> Result<Digest, StorageError> {
        if value.len() as u64 > EVIDENCE_BYTES_MAX {
            let error = format!(
                "{} bytes are more than the {EVIDENCE_BYTES_MAX} allowed",
                value.len()
            );
            return Err(StorageError::Io {
                action: "keep",
                path: self.folder.shown("".as_ref()),
                source: io::Error::other(error),
            });
        }
        let digest = Digest::of(value);
        let name = OsString::from(digest.to_hex());
        if !self.folder.contains(&name)? {
            self.folder
                .create_whole(&name, |file| file.write_all(value))?;
        }
        Ok(digest)
    }

    /// The kept value of this digest; `None` where the file is absent or has other content.
    ///
    /// # Errors
    /// [`StorageError`] where there is a file and it is not fit.
    pub fn read(&self, digest: &Digest) -> Result<Option<Vec<u8>>, StorageError> {
        let name = OsString::from(digest.to_hex());
        if !self.folder.contains(&name)? {
            return Ok(None);
        }
        let file = self.folder.open_file(&name)?;
        let mut value = Vec::new();
        file.take(EVIDENCE_BYTES_MAX + 1)
            .read_to_end(&mut value)
            .map_err(|source| StorageError::Io {
                action: "read",
                path: self.folder.shown(&name),
                source,
            })?;
        Ok((Digest::of(&value) == *digest).then_some(value))
    }

    /// Keeps `value` and returns the reference that takes its place in a record:
    /// `{"evidence":{"bytes":N,"sha256":"…"}}`.
    pub(crate) fn reference(&self, value: &Canonical) -> io::Result<Canonical> {
        let bytes = value.as_str().as_bytes();
        let sha256 = self.keep(bytes).map_err(io::Error::other)?;
        let kept = Kept {
            bytes: bytes.len() as u64,
            sha256,
        };
        Canonical::of(&Reference { evidence: kept })
            .map_err(|error| io::Error::other(error.to_string()))
    }
}
