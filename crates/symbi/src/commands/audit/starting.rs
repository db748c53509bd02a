//! Runs on their way into the ledger: a call that waits for a person is one.

use journal::starting_runs;
use model::RunId;
use serde::Serialize;

use super::unreadable;
use crate::dead_runs::{InvocationState, Runs, hint};
use crate::exit::{Exit, Failure};
use crate::open::OpenProject;

/// One run that has a mark and no line of the ledger.
#[derive(Debug, Serialize)]
pub(super) struct Starting {
    pub(super) run: RunId,
    state: &'static str,
    records: u64,
    /// The command for its operator, where it needs one.
    next: Option<String>,
}

/// Those that the ledger does not know, oldest first, as `invocation inspect` sees them.
pub(super) fn starting(
    open: &OpenProject,
    runs: &Runs<'_>,
    knows: impl Fn(RunId) -> bool,
) -> Result<Vec<Starting>, Failure> {
    let state = open.project.path().join(project::STATE_FOLDER);
    let marked = starting_runs(&state).map_err(|error| unreadable(&state, &error))?;
    let mut found = Vec::new();
    for run in marked.into_iter().filter(|run| !knows(*run)) {
        let looked = runs.look(run)?;
        let state = looked
            .as_ref()
            .map_or(InvocationState::NeverBegan, |it| it.state);
        let dead = looked.as_ref().and_then(|it| it.dead.as_ref());
        found.push(Starting {
            run,
            state: state.as_str(),
            records: dead.map_or(0, |dead| dead.records),
            next: hint(runs, run),
        });
    }
    Ok(found)
}

impl Starting {
    pub(super) fn exit(&self) -> Exit {
        match self.next {
            Some(_) => Exit::Unconfirmed,
            None => Exit::Done,
        }
    }

    pub(super) fn text(&self) -> String {
        let state = self.state.replace('_', " ");
        let mut text = format!("{}  {state}  {} records", self.run, self.records);
        text.push_str(match (self.state, &self.next) {
            ("live", _) => "; the ledger gets it before its first effect",
            (_, None) => "; nothing of it happened, and the next start forgets it",
            (_, Some(_)) => "; the next start enters it in the ledger",
        });
        if let Some(next) = &self.next {
            text.push_str(&format!("\n  it waits for you: {next}"));
        }
        text
    }
}
