//! What both test programs need: a store that fails where it is told to, and a run's first record.

use std::io;
use std::sync::{Arc, Mutex};

use governance::LoopState;
use journal::{Client, Durability, Journal, JournalWriter, ProjectKey, RunStarted};
use model::{Digest, RunId};

/// The bytes of one journal, and what a crash leaves of them.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) bytes: Vec<u8>,
    /// How many of them are on stable storage.
    pub(crate) durable: usize,
    pub(crate) appends: u32,
    pub(crate) syncs: u32,
    /// The append with this number (from 1) writes half and fails.
    pub(crate) fail_append: Option<u32>,
    pub(crate) fail_sync: Option<u32>,
}

/// A store in memory that says it is stable. Clones share the disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct FaultyStore {
    pub(crate) disk: Arc<Mutex<Disk>>,
    pub(crate) volatile: bool,
}

impl JournalWriter for FaultyStore {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.disk.lock().unwrap();
        disk.appends += 1;
        if disk.fail_append == Some(disk.appends) {
            disk.bytes.extend_from_slice(&bytes[..bytes.len() / 2]);
            return Err(io::Error::other("scripted: the append fails"));
        }
        disk.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn make_durable(&mut self) -> io::Result<()> {
        let mut disk = self.disk.lock().unwrap();
        disk.syncs += 1;
        if disk.fail_sync == Some(disk.syncs) {
            return Err(io::Error::other("scripted: the sync fails"));
        }
        disk.durable = disk.bytes.len();
        Ok(())
    }

    fn durability(&self) -> Durability {
        if self.volatile {
            Durability::Memory
        } else {
            Durability::Storage
        }
    }
}

pub(crate) fn key() -> ProjectKey {
    ProjectKey::from_seed(&[7; 32])
}

pub(crate) fn journal(store: &FaultyStore, signed: bool) -> Journal {
    let signer = signed.then(|| key().signer());
    let writer = Box::new(store.clone());
    Journal::new(writer, signer, RunId::new(), "tester".to_owned())
}

pub(crate) fn started() -> RunStarted {
    RunStarted {
        version: "0.0.0".to_owned(),
        project: "test".to_owned(),
        client: Client::Library,
        tools: Vec::new(),
        tool_set_sha256: Digest::of(b"tools"),
        policy_sha256: Digest::of(b"policy"),
        init_sha256: None,
        max_calls: 10,
        lifetime_ms: 1000,
        tool_time_ms: 1000,
    }
}

pub(crate) fn state(journal: &Journal) -> LoopState {
    LoopState {
        run: journal.run(),
        principal: "tester".to_owned(),
        trusted: [("branch".to_owned(), "main".to_owned())].into(),
    }
}
