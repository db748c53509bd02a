//! The operator's files, seen from outside: on a real disk, with real owners and modes.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail like tests"
)]

mod ceilings;
mod config;
#[cfg(test)]
mod containers;
mod project;
mod run_folder;
mod scaffold;
mod state;
mod support;
