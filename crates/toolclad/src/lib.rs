//! Tool contracts: a manifest's text becomes a [`Contract`], and a call's arguments become checked
//! values, one argv and the declared files.
//!
//! Everything here is pure. No function reads a file, asks the network or runs anything.

#![forbid(unsafe_code)]

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
mod network;
mod pattern;
mod reader;
mod set;
mod template;
mod url;
mod value;

pub use bind::{BindError, BoundCall, Clamped};
pub use contract::{ArgumentSpec, Contract, PolicyType, ToolLimits};
pub use definition::ToolDefinition;
pub use grants::FileArgument;
pub use hygiene::CharacterClass;
pub use network::TargetFault;
pub use set::ContractSet;
pub use value::ValueFault;
