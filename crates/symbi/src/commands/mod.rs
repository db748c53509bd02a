//! One module a command.

pub(crate) mod audit;
pub(crate) mod call;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod gate;
pub(crate) mod init;
pub(crate) mod invocation;
pub(crate) mod manual;
pub(crate) mod mcp;
pub(crate) mod policy;
pub(crate) mod run;
pub(crate) mod sandbox;
pub(crate) mod supervisor;
pub(crate) mod tools;
pub(crate) mod trust;
