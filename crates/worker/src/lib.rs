//! What will run, and what ran: the descriptor of a call, the worker made from it, and the
//! interface of a tier that runs workers.
//!
//! The descriptor is the only source of what runs. [`lower`] turns it, together with the
//! resources that its call holds, into one [`WorkerSpec`] for each worker; a tier sees that and
//! nothing else.

#![forbid(unsafe_code)]

mod descriptor;
pub mod limits;
mod lower;
mod tier;

pub use descriptor::{
    CommandBoundary, CommandDescriptor, CreateGrant, Descriptor, Enforcement, Filesystem,
    InferenceTerms, LaunchDescriptor, Limit, Limits, Network, ParentIdentity, ParserDescriptor,
    ProgramFile, ProgramIdentity, ReadGrant, SealedValues, TierKind, WorkerRoot,
};
pub use lower::{
    LowerError, ParserSpec, SealedArgv, WorkerFile, WorkerHoldings, WorkerOutput, WorkerSpec,
    Workers, lower, sealed_entry_digest,
};
pub use tier::{
    Ended, Ending, LimitReached, OutputFile, ParserEnd, RemovalError, RemovedWorker, Running,
    StartError, Stream, Tier, WorkerGone, confirm_removal,
};
