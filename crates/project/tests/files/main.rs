//! The operator's files, seen from outside: on a real disk, with real owners and modes.

mod config;
mod project;
mod scaffold;
mod state;
mod support;
