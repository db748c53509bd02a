//! `symbi audit key`: what others verify with, and its change.

use journal::{LedgerError, RotationError, RunFilesError, rotate_key};

use super::own_key;
use crate::args::Common;
use crate::exit::{Exit, Failure};
use crate::govern::project_key;
use crate::open::OpenProject;
use crate::output::Output;

/// Prints the verifier key.
pub(super) fn show(hex: bool, common: &Common, output: Output) -> Result<Exit, Failure> {
    let open = OpenProject::find(common.project.as_deref())?;
    let key = own_key(&open)?;
    if output.is_json() {
        output.value(&serde_json::json!({
            "vkey": key.vkey(), "hex": key.to_hex(), "fingerprint": key.fingerprint()
        }));
    } else if hex {
        output.line(&key.to_hex());
    } else {
        output.line(&key.vkey());
    }
    Ok(Exit::Done)
}

/// Replaces the signing key.
pub(super) fn rotate(common: &Common, output: Output) -> Result<Exit, Failure> {
    let open = OpenProject::find(common.project.as_deref())?;
    let state = open
        .project
        .state()
        .map_err(|error| Failure::of(Exit::Storage, &error))?;
    // A project that has none yet gets one first: the change is from something.
    project_key(&open, &state)?;
    let path = open.dirs.key_path(&state.project_id());
    let rotation =
        rotate_key(state.path(), &path).map_err(|error| Failure::of(exit_of(&error), &error))?;
    if output.is_json() {
        output.value(&serde_json::json!({
            "from": rotation.from.vkey(), "to": rotation.to.vkey()
        }));
    } else {
        output.line(&rotation.to.vkey());
        output.note(&format!(
            "later runs are signed with this key; {} still verifies through the ledger",
            rotation.from.name()
        ));
    }
    Ok(Exit::Done)
}

fn exit_of(error: &RotationError) -> Exit {
    let runs_open = |error: &LedgerError| matches!(error, LedgerError::RunsOpen { .. });
    match error {
        RotationError::Ledger(error) if runs_open(error) => Exit::Refused,
        RotationError::Runs(error) => match error.as_ref() {
            RunFilesError::Ledger(error) if runs_open(error) => Exit::Refused,
            _ => Exit::Storage,
        },
        _ => Exit::Storage,
    }
}
