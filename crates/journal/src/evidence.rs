//! Values that are too large for a record, each in a private file that its SHA-256 names.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use model::{Canonical, Digest};
use serde::Serialize;

use crate::folder::{PrivateFolder, StorageError};
use crate::limits::RECORD_BYTES_MAX;

/// A project's evidence files: 0600 in a folder 0700, written once, never replaced.
#[derive(Debug)]
pub struct Evidence {
    folder: PrivateFolder,
}

/// What a record has in a large value's place.
#[derive(Debug, Serialize)]
struct Reference {
    evidence: Kept,
}

#[derive(Debug, Serialize)]
struct Kept {
    bytes: u64,
    sha256: Digest,
}

impl Evidence {
    /// The evidence folder below a project's private folder, made where absent.
    ///
    /// # Errors
    /// [`StorageError`] where the folder is not fit.
    pub fn open(state: &Path) -> Result<Self, StorageError> {
        Ok(Self {
            folder: PrivateFolder::create(&state.join("evidence"))?,
        })
    }

    /// Keeps `value`, durably; what is there already stays. Returns its name.
    ///
    /// # Errors
    /// [`StorageError`].
    pub fn keep(&self, value: &[u8]) -> Result<Digest, StorageError> {
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
        file.take(RECORD_BYTES_MAX as u64 + 1)
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
