//! Tool contracts: a manifest's text becomes a [`Contract`], and a call's arguments become checked
//! values, one argv and the declared files.
//!
//! Everything here is pure. No function reads a file, asks the network or runs anything.

#![forbid(unsafe_code)]

mod advice;
mod backend;
mod bind;
mod command;
mod condition;
mod contract;
mod definition;
mod grants;
mod hygiene;
mod kind;
pub mod limits;
mod manifest;
mod msf;
mod network;
mod output;
mod pattern;
mod reach;
mod reader;
mod rules;
mod scope;
mod set;
mod starter;
mod summary;
mod template;
mod url;
mod value;

pub use advice::Advice;
pub use backend::{Backend, McpBackend, SessionBackend, SessionCommand, SessionLimits};
pub use backend::{SourceQuery, Unserved};
pub use bind::{BindError, BoundCall, Clamped, RecordedValue, Surroundings, salted_digest};
pub use command::{ScanId, ScanIdError};
pub use contract::{ArgumentSpec, Contract, Evidence, ToolLimits};
pub use definition::ToolDefinition;
pub use grants::FileArgument;
pub use hygiene::CharacterClass;
pub use model::PolicyType;
pub use network::TargetFault;
pub use output::ResultFault;
pub use reach::{NoResolver, Resolver};
pub use rules::ProjectRules;
pub use scope::Scope;
pub use set::ContractSet;
pub use starter::starter_manifest;
pub use value::ValueFault;
