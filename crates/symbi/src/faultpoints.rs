//! Fault points of a test build: armed by the environment, listed by a hidden command.

use std::env;

use faults::Point;

use crate::exit::{Exit, Failure};
use crate::output::Output;

/// `SYMBI_FAULT=POINT@TIME=EFFECT` makes that step fail; `SYMBI_FAULT_LOG=FILE` gets the names of
/// all steps that were reached.
pub(crate) fn arm() -> Result<(), Failure> {
    let trap = env::var("SYMBI_FAULT").ok();
    let log = env::var_os("SYMBI_FAULT_LOG").map(Into::into);
    faults::arm(trap.as_deref(), log).map_err(|error| Failure::of(Exit::Usage, &error))
}

pub(crate) fn list(output: Output) -> Exit {
    let names: Vec<_> = Point::ALL.iter().map(|it| it.name()).collect();
    if output.is_json() {
        output.value(&serde_json::json!({ "points": names }));
    } else {
        names.iter().for_each(|name| output.line(name));
    }
    Exit::Done
}
