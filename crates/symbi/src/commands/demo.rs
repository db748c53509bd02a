//! `symbi demo`: a contained agent at work, and everything it must not do, checked.

use crate::args::{Common, DemoArgs};
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Runs the command.
pub(crate) fn run(args: &DemoArgs, common: &Common) -> Result<Exit, Failure> {
    if common.project.is_some() {
        return Err(
            Failure::new(Exit::Usage, "`symbi demo` makes a project of its own")
                .help("to leave it in a folder: symbi demo --keep DIR"),
        );
    }
    crate::demo::run(
        args.keep.as_deref(),
        args.lock.as_deref(),
        Output::new(common.json),
    )
}
