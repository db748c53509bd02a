//! The journal: what a run did, signed record by record, so that strangers can verify it.

#![forbid(unsafe_code)]

mod event;
mod folder;
mod journal;
mod key;
mod lend;
pub mod limits;
mod note;
mod record;
mod tree;
mod writer;

pub use event::{
    ApprovalFact, CallDispatching, CallRefused, CallSettled, CallWithdrawn, CandidateIdentity,
    Client, CreatedFile, Custom, Event, FieldError, FileIdentity, FilePublicationFinished,
    FilePublicationPrepared, InferenceCompleted, InferenceRequested, OutcomeFact, OutcomeStatus,
    Payload, PolicyNote, Recordable, RunEnded, RunStarted, Stage, StreamFact, shortened,
};
pub use folder::StorageError;
pub use journal::{Journal, JournalError, Recorded};
pub use key::{KeyError, ProjectKey, PublicKey, PublicKeyError, RunSigner};
pub use lend::CallJournal;
pub use note::{Checkpoint, NoteError};
pub use record::{RECORD_VERSION, Record, RecordError};
pub use writer::{Durability, JournalWriter, MemoryWriter, ProtectedJournal};
