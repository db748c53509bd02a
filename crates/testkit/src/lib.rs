//! What tests need and the product does not ship: stand-ins for the parties around it.

#![forbid(unsafe_code)]

pub mod engine;
pub mod engine_proxy;
pub mod executor;
pub mod journals;
pub mod lease;
pub mod left_process;
pub mod provider;
pub mod tier;
