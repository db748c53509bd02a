//! `symbi invocation file-inspect` and `file-recover`: one unfinished publication.

use filegrants::{InspectError, Inspection, PublicationState, Receipt, RecoverError};
use model::{Digest, PublicationId, RunId, Untrusted};
use serde_json::json;

use crate::args::Common;
use crate::claim;
use crate::dead_runs::{Runs, command, dead_run_failure};
use crate::exit::{Exit, Failure};
use crate::govern::file_broker;
use crate::open::OpenProject;
use crate::output::Output;

/// The recovery that is asked for.
pub(super) struct Asked {
    pub(super) run: RunId,
    pub(super) publication: PublicationId,
    /// The hash of what was reviewed.
    pub(super) reviewed: Digest,
}

/// Looks at a publication; changes nothing.
pub(super) fn inspect(
    run: RunId,
    publication: PublicationId,
    common: &Common,
    output: Output,
) -> Result<Exit, Failure> {
    let (open, _) = OpenProject::find_trusted(common.project.as_deref())?;
    let files = file_broker(&open, &open.config()?.sandbox)?;
    let runs = Runs::with_ledger(&open)?;
    let dead = runs.dead(run).map_err(|error| dead_run_failure(&error))?;
    let found = files
        .inspect(&dead, publication)
        .map_err(|error| inspect_failure(&error))?;
    let next = next_step(&open, &found);
    if output.is_json() {
        output.value(&json!({
            "run_id": run, "publication_id": publication, "state": found.state,
            "reasons": found.reasons, "snapshot_hash": found.snapshot_sha256,
            "path": found.intent.path, "host_folder": found.intent.parent_path,
            "bytes": found.intent.bytes, "sha256": found.intent.sha256,
            "journal_sha256": dead.journal_sha256, "next": next,
        }));
    } else {
        let intent = &found.intent;
        let shown = |text: &str| Untrusted::new(text).escaped();
        output.line(&format!(
            "publication {publication}: {}\n  {} in {}: {} bytes, sha256 {}",
            found.state.as_str().replace('_', " "),
            shown(intent.path.as_str()),
            shown(&intent.parent_path),
            intent.bytes,
            intent.sha256
        ));
        for reason in &found.reasons {
            output.line(&format!("  {}", shown(reason)));
        }
        output.line(&format!("  snapshot hash {}", found.snapshot_sha256));
        output.line(&format!("next: {next}"));
    }
    Ok(match found.state {
        PublicationState::Published => Exit::Done,
        PublicationState::ReadyToPublish
        | PublicationState::Missing
        | PublicationState::Conflict => Exit::Unconfirmed,
    })
}

fn next_step(open: &OpenProject, found: &Inspection) -> String {
    let run = found.run;
    let rest = match found.state {
        PublicationState::ReadyToPublish | PublicationState::Published => format!(
            "invocation file-recover --id {run} --publication {} --snapshot-hash {}",
            found.intent.publication_id, found.snapshot_sha256
        ),
        PublicationState::Missing | PublicationState::Conflict => {
            format!("invocation resolve --id {run} --rationale 'WHY'")
        }
    };
    command(open, &rest)
}

/// Finishes the publication that was reviewed.
pub(super) fn recover(asked: &Asked, common: &Common, output: Output) -> Result<Exit, Failure> {
    let (open, _) = OpenProject::find_trusted(common.project.as_deref())?;
    let files = file_broker(&open, &open.config()?.sandbox)?;
    let runs = Runs::with_ledger(&open)?;
    let Asked {
        run, publication, ..
    } = *asked;
    let dead = runs.dead(run).map_err(|error| dead_run_failure(&error))?;
    let again = command(
        &open,
        &format!("invocation file-inspect --id {run} --publication {publication}"),
    );
    let folder = runs.make_folder(run)?;
    let receipt = files
        .recover(&dead, &folder, publication, asked.reviewed, &runs.keys(run))
        .map_err(|error| recover_failure(&error, &again))?;
    let next = command(
        &open,
        &format!("invocation resolve --id {run} --rationale 'WHY'"),
    );
    show(&receipt, &next, output);
    Ok(Exit::Done)
}

fn show(receipt: &Receipt, next: &str, output: Output) {
    if output.is_json() {
        return output.value(&json!({ "receipt": receipt, "next": next }));
    }
    let fact = &receipt.fact;
    output.line(&format!(
        "publication {}: {}\n  {} bytes, sha256 {}\n  receipt of {}: .symbiont/{}",
        fact.publication_id,
        match fact.found {
            PublicationState::ReadyToPublish => "published by this recovery",
            _ => "found published and acknowledged",
        },
        fact.bytes,
        fact.sha256,
        receipt.time,
        receipt.file
    ));
    output.line(&format!("next: {next}"));
}

fn inspect_failure(error: &InspectError) -> Failure {
    let exit = match error {
        InspectError::Io { .. } => Exit::Storage,
        InspectError::Unknown { .. }
        | InspectError::Finished { .. }
        | InspectError::Volumes { .. }
        | InspectError::Refused(_)
        | InspectError::Candidates(_) => Exit::Refused,
    };
    Failure::of(exit, error)
}

fn recover_failure(error: &RecoverError, again: &str) -> Failure {
    let exit = match error {
        RecoverError::Inspect(error) => return inspect_failure(error),
        RecoverError::Folder(error) => claim::exit_of(error),
        RecoverError::Resolved { .. }
        | RecoverError::Forged { .. }
        | RecoverError::Changed { .. } => Exit::Refused,
        RecoverError::NotRecoverable { .. }
        | RecoverError::Taken
        | RecoverError::Unconfirmed { .. } => Exit::Unconfirmed,
        RecoverError::Statement(_) => Exit::Storage,
    };
    let failure = Failure::of(exit, error);
    match error {
        RecoverError::Resolved { .. } | RecoverError::Forged { .. } => failure,
        _ => failure.help(format!("look again: {again}")),
    }
}
