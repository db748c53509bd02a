//! Named places where a test kills the program, or makes a step fail, at exactly that step.
//!
//! A release build has none of it: nothing can be armed there, [`reach`] is `Ok(())` and [`write`]
//! is the writer's own.

#![forbid(unsafe_code)]

use std::io::{self, Write};

#[cfg(debug_assertions)]
mod armed;
#[cfg(not(debug_assertions))]
mod unarmed;

#[cfg(debug_assertions)]
pub use armed::{ArmError, arm, reach, write};
#[cfg(not(debug_assertions))]
pub use unarmed::{reach, write};

/// Writes all of `bytes`, as the standard library does: a short write goes on.
///
/// # Errors
/// The writer's own.
pub fn write_all(point: Point, writer: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    At { point, writer }.write_all(bytes)
}

/// A writer each of whose writes is a point.
#[derive(Debug)]
pub struct At<'w, W> {
    pub point: Point,
    pub writer: &'w mut W,
}

impl<W: Write> Write for At<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write(self.point, self.writer, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

macro_rules! points {
    ($($point:ident = $name:literal,)*) => {
        /// A step from a call's preparation to its last record, of a recovery, or of a supervisor.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Point {
            $($point,)*
        }

        impl Point {
            pub const ALL: &[Self] = &[$(Self::$point,)*];

            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$point => $name,)*
                }
            }
        }
    };
}

points! {
    InvocationWrite = "invocation.write",
    InvocationSync = "invocation.sync",
    InvocationName = "invocation.name",
    InvocationSyncFolder = "invocation.sync_folder",
    RunMark = "run.mark",
    JournalCreate = "journal.create",
    JournalWrite = "journal.write",
    JournalSync = "journal.sync",
    JournalSyncFolder = "journal.sync_folder",
    LedgerWrite = "ledger.write",
    LedgerSync = "ledger.sync",
    SnapshotOpen = "snapshot.open",
    SnapshotWrite = "snapshot.write",
    PlaceCandidates = "place.candidates",
    PlaceProve = "place.prove",
    DispatchStart = "dispatch.start",
    CandidateMake = "candidate.make",
    CandidateWrite = "candidate.write",
    CandidateSync = "candidate.sync",
    CandidateSyncFolder = "candidate.sync_folder",
    PublishCheckNames = "publish.check_names",
    PublishRecordIntent = "publish.record_intent",
    PublishRename = "publish.rename",
    PublishSyncFolders = "publish.sync_folders",
    PublishCompare = "publish.compare",
    PublishRecordEnd = "publish.record_end",
    RecoverRename = "recover.rename",
    RecoverSyncFolders = "recover.sync_folders",
    RecoverCompare = "recover.compare",
    RecoverWriteReceipt = "recover.write_receipt",
    RecoverPlaceReceipt = "recover.place_receipt",
    RecoverEnd = "recover.end",
    SupervisorLock = "supervisor.lock",
    SupervisorListen = "supervisor.listen",
    SupervisorNameSocket = "supervisor.name_socket",
    SupervisorWriteAside = "supervisor.write_aside",
    SupervisorSyncAside = "supervisor.sync_aside",
    SupervisorReplace = "supervisor.replace",
    SupervisorSyncFolder = "supervisor.sync_folder",
    SupervisorRefer = "supervisor.refer",
    SupervisorWriteLease = "supervisor.write_lease",
    SupervisorSyncLease = "supervisor.sync_lease",
    SupervisorDismiss = "supervisor.dismiss",
}
