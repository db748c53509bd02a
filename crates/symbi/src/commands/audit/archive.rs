//! `symbi audit archive`: old journals go elsewhere; the ledger keeps what they were.

use journal::{ArchiveError, Ledger, LedgerRun, archive_run, ledger_path};
use model::RunId;
use serde_json::json;

use super::ledger;
use crate::args::{ArchiveArgs, Common};
use crate::exit::{Exit, Failure, chain};
use crate::govern::project_key;
use crate::open::OpenProject;
use crate::output::Output;

/// Runs the command.
pub(super) fn run(args: &ArchiveArgs, common: &Common, output: Output) -> Result<Exit, Failure> {
    let open = OpenProject::find(common.project.as_deref())?;
    let storage = |error: &(dyn std::error::Error + 'static)| Failure::of(Exit::Storage, error);
    let state = open.project.state().map_err(|error| storage(&error))?;
    let key = project_key(&open, &state)?;
    let known = ledger(&open, key.public())?.unwrap_or_default();
    if let Some(fault) = &known.fault {
        return Err(Failure::new(
            Exit::Storage,
            format!("the ledger is not what was signed: {fault}"),
        ));
    }
    let runs = chosen(args, known.runs)?;
    let mut ledger =
        Ledger::open(&ledger_path(state.path()), key.signer()).map_err(|error| storage(&error))?;
    let (mut exit, mut moved) = (Exit::Done, Vec::new());
    for run in &runs {
        match archive_run(state.path(), run, &args.to, &mut ledger) {
            Ok(archived) => {
                if !output.is_json() {
                    output.line(&format!("{} moved to {}", run.run, args.to.display()));
                }
                moved.push(archived);
            }
            Err(error) => {
                output.note(&chain(&error));
                exit = exit.worst(match error {
                    ArchiveError::NoEnd { .. } | ArchiveError::Occupied { .. } => Exit::Refused,
                    _ => Exit::Storage,
                });
            }
        }
    }
    if output.is_json() {
        output.value(&json!({ "archived": moved }));
    }
    Ok(exit)
}

/// The named runs, or the ended ones of before the day whose journals are still here.
fn chosen(args: &ArchiveArgs, known: Vec<LedgerRun>) -> Result<Vec<LedgerRun>, Failure> {
    if let Some(day) = &args.before {
        let old = |run: &LedgerRun| {
            run.archived.is_none()
                && run.ended.or(run.sealed).is_some()
                && run.time.as_str() < day.as_str()
        };
        return Ok(known.into_iter().filter(old).collect());
    }
    let find = |id: &RunId| {
        let run = known.iter().find(|known| known.run == *id).cloned();
        run.ok_or_else(|| {
            Failure::new(Exit::Usage, format!("the ledger knows no run {id}"))
                .help("its runs are in: symbi audit list")
        })
    };
    args.runs.iter().map(find).collect()
}
