//! One module a command.

pub mod audit;
pub mod call;
pub mod doctor;
pub mod init;
pub mod policy;
pub mod run;
pub mod tools;
pub mod trust;
