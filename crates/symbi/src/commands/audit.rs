//! `symbi audit`: verdicts on journals, their story, and proofs for others.

mod archive;
mod key;
mod list;
mod proof;
mod show;
mod starting;
mod subject;
mod verify;

use std::path::Path;

use journal::{Fault, LedgerReport, LedgerRun, PublicKey, Tail, read_project_ledger};
use model::RunId;
use serde_json::{Value, json};

use crate::args::{AuditCommand, Common, KeyCommand};
use crate::exit::{Exit, Failure};
use crate::govern::project_key;
use crate::open::OpenProject;
use crate::output::Output;

/// Runs the command.
pub(crate) fn run(command: &AuditCommand, common: &Common) -> Result<Exit, Failure> {
    let output = Output::new(common.json);
    match command {
        AuditCommand::List { strict } => list::run(*strict, common, output),
        AuditCommand::Verify(args) => verify::run(args, common, output),
        AuditCommand::Show { target, call } => show::run(target, call.as_deref(), common, output),
        AuditCommand::Prove {
            target,
            call,
            output: file,
        } => proof::prove(target, call, file.as_deref(), common, output),
        AuditCommand::CheckProof { file, public_key } => {
            proof::check(file, public_key.as_deref(), output)
        }
        AuditCommand::Key { hex, command: None } => key::show(*hex, common, output),
        AuditCommand::Key {
            command: Some(KeyCommand::Rotate),
            ..
        } => key::rotate(common, output),
        AuditCommand::Archive(args) => archive::run(args, common, output),
    }
}

/// A key as text, hex, or a file that holds either.
fn parse_key(text: &str) -> Result<PublicKey, Failure> {
    let from_file = std::fs::metadata(text)
        .ok()
        .filter(|found| found.is_file() && found.len() <= 4096)
        .and_then(|_| std::fs::read_to_string(text).ok());
    let text = from_file.as_deref().unwrap_or(text);
    PublicKey::parse(text.trim()).map_err(|error| {
        Failure::of(Exit::Usage, &error)
            .help("give the line that `symbi audit key` prints, 64 hex digits, or a file with one")
    })
}

/// The verifier key of the project's own signing key.
pub(crate) fn own_key(open: &OpenProject) -> Result<PublicKey, Failure> {
    let state = open
        .project
        .state()
        .map_err(|error| Failure::of(Exit::Storage, &error))?;
    Ok(project_key(open, &state)?.public().clone())
}

/// The project's ledger, read with a key that is or was the project's.
fn ledger(open: &OpenProject, key: &PublicKey) -> Result<Option<LedgerReport>, Failure> {
    let state = open.project.path().join(project::STATE_FOLDER);
    read_project_ledger(&state, key).map_err(|error| Failure::of(Exit::Storage, &error))
}

/// What keeps a ledger from being a whole witness.
#[derive(Debug, Default)]
struct LedgerState {
    fault: Option<Fault>,
    tail: Option<Tail>,
}

impl LedgerState {
    /// Says it to people; what it does to the exit code.
    fn tell(&self, output: Output) -> Exit {
        if let Some(fault) = &self.fault {
            output.note(&format!("the ledger is not what was signed: {fault}"));
            return Exit::Storage;
        }
        let Some(tail) = &self.tail else {
            return Exit::Done;
        };
        output.note(&format!(
            "a torn tail of {} bytes follows the ledger's last whole line, sha256 {}; the next \
             run cuts it away and names it",
            tail.bytes, tail.sha256
        ));
        Exit::Unconfirmed
    }

    /// Its fields beside those of a report.
    fn add_to(&self, value: &mut Value) {
        if let Some(fields) = value.as_object_mut() {
            fields.insert("ledger_fault".to_owned(), json!(self.fault));
            fields.insert("ledger_tail".to_owned(), json!(self.tail));
        }
    }
}

/// What the project's ledger knows of a run.
pub(crate) fn ledger_run(
    open: &OpenProject,
    run: RunId,
    key: &PublicKey,
) -> Result<Option<LedgerRun>, Failure> {
    Ok(ledger(open, key)?.and_then(|report| report.runs.into_iter().find(|it| it.run == run)))
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    let shown = path.display();
    Failure::new(
        Exit::Storage,
        format!("the journal `{shown}` cannot be read: {error}"),
    )
    .help("name a run id of this project (symbi audit list) or a journal file")
}
