//! The file broker: what one call may read and create, and how its new file comes to be.
//!
//! A worker never sees a host folder. Preparation copies the declared inputs into snapshots that
//! nobody can change, and holds the folder of the one declared output. After the worker is gone,
//! publication moves a private, synced copy of its bytes to that place, once, never over
//! anything, between two signed records.

#![forbid(unsafe_code)]

mod beneath;
mod broker;
mod candidate;
mod ceiling;
mod dead_run;
mod failure;
mod held;
mod holder;
mod inspection;
mod invocation;
pub mod limits;
mod output;
mod pool;
mod publish;
mod recovery;
mod refusal;
mod resolution;
mod saved;
mod snapshot;
mod statement;
#[cfg(test)]
mod tests;

pub use beneath::Obstacle;
pub use broker::{FileAccessPlan, FileBroker, FileRequest};
pub use candidate::{CandidateName, FolderFault, SweepError, Swept};
pub use ceiling::{Access, CeilingError, CeilingFault, Ceilings};
pub use dead_run::{DeadRun, DeadRunError, RecordedPublication};
pub use failure::{Doubt, Kept, PublicationRefusal, PublishFailure};
pub use held::{OpenError, StagingFault};
pub use holder::Holder;
pub use inspection::{InspectError, Inspection, PublicationState};
pub use invocation::{InvocationError, InvocationFolder, InvocationLock};
pub use journal::CreatedFile;
pub use output::{NameChange, OutputTarget};
pub use pool::{ChargeEntry, ChargeState, PoolRefusal, StagingCharge, StagingPool};
pub use recovery::{OperatorKeys, Receipt, RecoverError, RecoveryFact, receipt};
pub use refusal::{FileRefusal, InputFault, OutputFault};
pub use resolution::{
    EvidenceFact, Resolution, ResolutionFact, ResolveError, read as resolution, resolve,
};
pub use saved::{RESULT_NAME, SavedResult, SavedResultError};
pub use statement::{Forgery, StatementError};
