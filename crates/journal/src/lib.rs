//! The journal: what a run did, signed record by record, so that strangers can verify it.

#![forbid(unsafe_code)]

mod chain;
mod error;
mod event;
mod folder;
mod journal;
mod key;
mod ledger;
mod ledger_line;
mod ledger_read;
mod lend;
pub mod limits;
mod lines;
mod note;
mod read;
mod record;
mod run_files;
mod state;
mod tree;
mod verify;
mod writer;

pub use chain::{Fault, FaultReason};
pub use error::JournalError;
pub use event::{
    ApprovalFact, CallDispatching, CallRefused, CallSettled, CallWithdrawn, CandidateIdentity,
    Client, CreatedFile, Custom, Event, FieldError, FileIdentity, FilePublicationFinished,
    FilePublicationPrepared, InferenceCompleted, InferenceRequested, OutcomeFact, OutcomeStatus,
    Payload, PolicyNote, Recordable, RunEnded, RunStarted, Stage, StreamFact, shortened,
};
pub use folder::StorageError;
pub use journal::{Journal, Recorded};
pub use key::{KeyError, ProjectKey, PublicKey, PublicKeyError, RunSigner};
pub use ledger::{Ledger, LedgerError};
pub use ledger_line::{LedgerEvent, Seal};
pub use ledger_read::{LedgerReport, LedgerRun, read_ledger};
pub use lend::CallJournal;
pub use lines::Tail;
pub use note::{Checkpoint, NoteError};
pub use read::{ReadError, RunReader, read_run};
pub use record::{RECORD_VERSION, Record, RecordError};
pub use run_files::{RunFiles, RunFilesError, journal_path, ledger_path, runs_folder};
pub use verify::{Report, Verdict, VerifyOptions, verify_file, verify_run};
pub use writer::{Durability, JournalWriter, MemoryWriter, ProtectedJournal};
