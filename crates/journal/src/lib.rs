//! The journal: what a run did, signed record by record, so that strangers can verify it.

#![forbid(unsafe_code)]

mod anchor;
mod archive;
mod chain;
mod error;
mod event;
mod evidence;
mod folder;
mod journal;
mod key;
mod ledger;
mod ledger_error;
mod ledger_line;
mod ledger_read;
mod lend;
pub mod limits;
mod lines;
mod note;
mod places;
mod proof;
mod read;
mod record;
mod rotation;
mod run_files;
mod run_files_error;
mod state;
mod strays;
mod tree;
mod verdict;
mod verify;
mod verify_head;
mod writer;

pub use anchor::{Anchor, AnchorError, AnchorReason, AnchorTarget, Anchors, read_anchors};
pub use archive::{ArchiveError, archive_run};
pub use chain::{Fault, FaultReason};
pub use error::JournalError;
pub use event::{
    AnswerRefused, ApprovalFact, CallDispatching, CallRefused, CallSettled, CallWithdrawn,
    CandidateIdentity, Client, CreatedFile, Custom, Decision, Event, FieldError, FileIdentity,
    FilePublicationFinished, FilePublicationPrepared, InferenceCompleted, InferenceRequested,
    InputShown, OutcomeFact, OutcomeStatus, ParserFact, Payload, PolicyNote, Recordable, RunEnded,
    RunStarted, Stage, StreamFact, shortened,
};
pub use evidence::{Evidence, EvidenceFile, EvidenceState, evidence_folder, examine_evidence};
pub use folder::StorageError;
pub use journal::{Journal, Recorded};
pub use key::{KeyError, ProjectKey, PublicKey, PublicKeyError, RunSigner};
pub use ledger::{Ledger, ledger_signer};
pub use ledger_error::LedgerError;
pub use ledger_line::{Archived, LedgerEvent, Seal};
pub use ledger_read::{LedgerReport, LedgerRun, read_ledger, read_project_ledger};
pub use lend::CallJournal;
pub use lines::Tail;
pub use note::{Checkpoint, NoteError};
pub use places::{journal_path, ledger_path, runs_folder};
pub use proof::{CallFilter, CallProof, CheckedProof, ProofError, ProveError, prove_call};
pub use read::{ReadError, RunReader, read_run};
pub use record::{RECORD_VERSION, Record, RecordError};
pub use rotation::{Rotation, RotationError, rotate_key};
pub use run_files::RunFiles;
pub use run_files_error::RunFilesError;
pub use strays::starting_runs;
pub use verdict::Verdict;
pub use verify::{Depth, Report, VerifyOptions, verify_file, verify_run};
pub use writer::{Durability, JournalWriter, MemoryWriter, ProtectedJournal};
