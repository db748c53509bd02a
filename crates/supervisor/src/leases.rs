//! The leases on disk: one file that is only appended to, so that a lease is durable after one
//! sync.
//!
//! A take is synced before it is answered. An end is not: a power failure may bring the lease
//! back, and then its container is looked for once more.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

use faults::{Point, reach};
use filegrants::Holder;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use worker::TierKind;

use crate::folder::{FolderFault, PrivateFolder, io_fault};
use crate::limits::{LEASES_BYTES_MAX, LEASES_COMPACTED_BYTES};

/// The name of the file.
pub const LEASES: &str = "leases";

/// One lease, as it stands on disk. No environment, argument or secret is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeaseRecord {
    pub(crate) lease: String,
    pub(crate) tier: TierKind,
    pub(crate) socket: PathBuf,
    pub(crate) staging: PathBuf,
    pub(crate) memory_mib: u64,
    pub(crate) cpu_milli: u64,
    pub(crate) owner: Holder,
    /// The machine's start that `owner` and `until_ms` are of.
    pub(crate) boot: String,
    /// Milliseconds since the machine's start.
    pub(crate) until_ms: u64,
    /// Seconds since 1970, for people.
    pub(crate) taken_at: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    Take(LeaseRecord),
    End(String),
}

/// The file, open for appending.
#[derive(Debug)]
pub(crate) struct LeaseFile {
    folder: PrivateFolder,
    file: File,
    bytes: u64,
}

/// What the file in `folder` says: the leases that have not ended. Changes nothing.
pub(crate) fn read(folder: &PrivateFolder) -> Result<BTreeMap<String, LeaseRecord>, FolderFault> {
    let bytes = folder.read(LEASES, LEASES_BYTES_MAX)?.unwrap_or_default();
    let mut leases = BTreeMap::new();
    // A last line without its end was never answered.
    let whole = bytes.iter().rposition(|byte| *byte == b'\n');
    let whole = whole.map_or(&[][..], |end| bytes.get(..end).unwrap_or_default());
    for line in whole
        .split(|byte| *byte == b'\n')
        .filter(|it| !it.is_empty())
    {
        match serde_json::from_slice(line) {
            Ok(Line::Take(record)) => {
                leases.insert(record.lease.clone(), record);
            }
            Ok(Line::End(lease)) => {
                leases.remove(&lease);
            }
            Err(_) => return Err(folder.damaged(LEASES)),
        }
    }
    Ok(leases)
}

impl LeaseFile {
    /// Reads the leases and writes the file anew with these only.
    pub(crate) fn open(
        folder: PrivateFolder,
    ) -> Result<(Self, BTreeMap<String, LeaseRecord>), FolderFault> {
        let leases = read(&folder)?;
        let (file, bytes) = rewrite(&folder, leases.values())?;
        let file = Self {
            folder,
            file,
            bytes,
        };
        Ok((file, leases))
    }

    /// Puts a lease on disk. Only then may its container be made.
    pub(crate) fn take(&mut self, record: &LeaseRecord) -> Result<(), FolderFault> {
        self.append(&Line::Take(record.clone()))?;
        let synced = reach(Point::SupervisorSyncLease).and_then(|()| self.file.sync_data());
        synced.map_err(io_fault("sync", &self.folder.path(LEASES)))
    }

    /// Ends a lease; `left` are all that stay.
    pub(crate) fn end<'a>(
        &mut self,
        lease: &str,
        left: impl Iterator<Item = &'a LeaseRecord>,
    ) -> Result<(), FolderFault> {
        self.append(&Line::End(lease.to_owned()))?;
        if self.bytes > LEASES_COMPACTED_BYTES {
            (self.file, self.bytes) = rewrite(&self.folder, left)?;
        }
        Ok(())
    }

    fn append(&mut self, line: &Line) -> Result<(), FolderFault> {
        let path = self.folder.path(LEASES);
        let text = text(line).map_err(io_fault("write", &path))?;
        let written = faults::write_all(Point::SupervisorWriteLease, &mut self.file, &text);
        if let Err(error) = written {
            // Half a line would spoil the next: the file goes back to its last whole one.
            let _ = self.file.set_len(self.bytes);
            return Err(io_fault("write", &path)(error));
        }
        self.bytes += text.len() as u64;
        Ok(())
    }
}

fn text(line: &Line) -> std::io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    Ok(text)
}

fn rewrite<'a>(
    folder: &PrivateFolder,
    leases: impl Iterator<Item = &'a LeaseRecord>,
) -> Result<(File, u64), FolderFault> {
    let mut bytes = Vec::new();
    for record in leases {
        let line = text(&Line::Take(record.clone()));
        bytes.extend(line.map_err(io_fault("write", &folder.path(LEASES)))?);
    }
    folder.replace(LEASES, &bytes)?;
    let file = folder.file(LEASES, OFlags::WRONLY | OFlags::APPEND)?;
    folder.sync()?;
    Ok((file, bytes.len() as u64))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use super::*;

    pub(crate) fn record(lease: &str) -> LeaseRecord {
        LeaseRecord {
            lease: lease.to_owned(),
            tier: TierKind::Docker,
            socket: "/run/engine.sock".into(),
            staging: "/state/staging".into(),
            memory_mib: 512,
            cpu_milli: 1000,
            owner: Holder::this(),
            boot: "b".to_owned(),
            until_ms: 1,
            taken_at: 2,
        }
    }

    fn folder(place: &tempfile::TempDir) -> PrivateFolder {
        PrivateFolder::open_or_make(&place.path().join("s")).unwrap()
    }

    #[test]
    fn what_was_taken_and_not_ended_is_there_after_a_restart() {
        let place = tempfile::tempdir().unwrap();
        let (mut file, found) = LeaseFile::open(folder(&place)).unwrap();
        assert!(found.is_empty());
        let (one, two) = (record("one"), record("two"));
        file.take(&one).unwrap();
        file.take(&two).unwrap();
        file.end("one", std::iter::once(&two)).unwrap();
        drop(file);
        for _ in 0..2 {
            let (_, found) = LeaseFile::open(folder(&place)).unwrap();
            assert!(found.into_values().eq([two.clone()]));
        }
    }

    #[test]
    fn a_file_cut_at_any_byte_gives_the_whole_lines_before() {
        let place = tempfile::tempdir().unwrap();
        let (mut file, _) = LeaseFile::open(folder(&place)).unwrap();
        for name in ["one", "two"] {
            file.take(&record(name)).unwrap();
        }
        let path = place.path().join("s/leases");
        let whole = fs::read(&path).unwrap();
        let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for cut in 0..=whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let expected = match cut {
                cut if cut == whole.len() => 2,
                cut if cut >= first => 1,
                _ => 0,
            };
            assert_eq!(read(&folder(&place)).unwrap().len(), expected, "{cut}");
        }
    }

    #[test]
    fn a_damaged_file_is_no_empty_file() {
        let place = tempfile::tempdir().unwrap();
        let folder = folder(&place);
        for text in ["{}\n", "{\"take\":{\"lease\":\"a\",\"env\":[]}}\n", "x\n"] {
            folder.replace(LEASES, text.as_bytes()).unwrap();
            assert!(matches!(read(&folder), Err(FolderFault::Damaged { .. })));
        }
    }

    #[test]
    fn a_file_of_many_ended_leases_is_written_anew() {
        let place = tempfile::tempdir().unwrap();
        let (mut file, _) = LeaseFile::open(folder(&place)).unwrap();
        let kept = record("kept");
        file.take(&kept).unwrap();
        let mut most = 0;
        for n in 0..2000 {
            let line = Line::Take(record(&format!("lease-{n}")));
            file.append(&line).unwrap();
            file.end(&format!("lease-{n}"), std::iter::once(&kept))
                .unwrap();
            most = most.max(file.bytes);
        }
        assert!(most <= LEASES_COMPACTED_BYTES + 1024, "{most}");
        drop(file);
        assert_eq!(read(&folder(&place)).unwrap().len(), 1);
    }
}
