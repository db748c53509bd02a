//! Validated words of the system: identifiers, digests, paths, canonical and strict JSON.
//!
//! Everything here is pure. A value of these types has passed its check; nothing re-checks it.

#![forbid(unsafe_code)]

mod argument;
mod contract;
mod digest;
mod id;
pub mod json;
pub mod limits;
mod output;
mod path;
mod policy_type;
mod redacted;
mod source;
mod toml_fault;
mod untrusted;
mod xml;

pub use argument::{ArgumentValue, Decimal, DecimalError};
pub use contract::{CreateMode, OutputFormat, RiskTier};
pub use digest::{Digest, DigestError, Hasher};
pub use id::{AgentName, ArgumentName, CallId, IdError, PublicationId, RunId, ToolName};
pub use json::{Canonical, JsonObject};
pub use output::OutputError;
pub use path::{PathError, RelativePath};
pub use policy_type::PolicyType;
pub use redacted::Redacted;
pub use source::{SourceError, SourceErrors, nearest};
pub use toml_fault::Values;
pub use untrusted::Untrusted;
