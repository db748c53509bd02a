//! `symbi invocation`: what an interrupted invocation left, and how it ends.

mod files;
mod resolve;

use model::{RunId, Untrusted};
use serde_json::json;

use crate::args::{Common, InvocationCommand};
use crate::dead_runs::{Invocation, InvocationState, Runs};
use crate::exit::{Exit, Failure};
use crate::open::OpenProject;
use crate::output::Output;

/// Runs the command.
pub(crate) fn run(command: &InvocationCommand, common: &Common) -> Result<Exit, Failure> {
    let output = Output::new(common.json);
    match command {
        InvocationCommand::Inspect { id } => inspect(*id, common, output),
        InvocationCommand::FileInspect { id, publication } => {
            files::inspect(*id, *publication, common, output)
        }
        InvocationCommand::FileRecover {
            id,
            publication,
            snapshot_hash,
        } => {
            let asked = files::Asked {
                run: *id,
                publication: *publication,
                reviewed: *snapshot_hash,
            };
            files::recover(&asked, common, output)
        }
        InvocationCommand::Resolve {
            id,
            rationale,
            evidence,
        } => {
            let asked = resolve::Asked {
                run: *id,
                rationale,
                evidence: evidence.as_deref(),
            };
            resolve::run(&asked, common, output)
        }
    }
}

fn unknown(run: RunId) -> Failure {
    Failure::new(Exit::Usage, format!("the project has no invocation {run}"))
        .help("its runs are in: symbi audit list")
}

/// Shows where an invocation stands.
fn inspect(run: RunId, common: &Common, output: Output) -> Result<Exit, Failure> {
    let open = OpenProject::find(common.project.as_deref())?;
    let runs = Runs::with_ledger(&open)?;
    let found = runs.look(run)?.ok_or_else(|| unknown(run))?;
    let next = found.next_step(&runs);
    if output.is_json() {
        output.value(&value(&found, next.as_deref()));
    } else {
        for line in lines(&found) {
            output.line(&line);
        }
        if let Some(next) = next {
            output.line(&format!("next: {next}"));
        }
    }
    Ok(found.state.exit())
}

fn value(found: &Invocation, next: Option<&str>) -> serde_json::Value {
    let journal = found.dead.as_ref().map(|dead| {
        json!({
            "verdict": dead.verdict, "records": dead.records, "bytes": dead.journal_bytes,
            "sha256": dead.journal_sha256, "tail": dead.tail,
        })
    });
    let publications: Vec<_> = publications(found)
        .map(|(publication, state)| {
            json!({
                "publication_id": publication.publication_id, "state": state,
                "path": publication.path, "bytes": publication.bytes,
                "sha256": publication.sha256,
            })
        })
        .collect();
    json!({
        "run_id": found.run, "state": found.state.as_str(), "journal": journal,
        "open_calls": found.dead.as_ref().map(|dead| dead.open_calls),
        "publications": publications, "saved_result": found.has_result,
        "resolution": found.resolution, "next": next,
    })
}

/// Each publication with where the records leave it.
fn publications(
    found: &Invocation,
) -> impl Iterator<Item = (&journal::FilePublicationPrepared, &'static str)> {
    let of = found.dead.iter().flat_map(|dead| &dead.publications);
    of.map(|publication| {
        let id = publication.intent.publication_id;
        let state = match &publication.finished {
            Some(end) if end.confirmed => "published",
            Some(_) => "not_published",
            None if found.recovered.contains(&id) => "recovered",
            None => "open",
        };
        (&publication.intent, state)
    })
}

fn lines(found: &Invocation) -> Vec<String> {
    let mut lines = vec![format!(
        "invocation {}: {}",
        found.run,
        found.state.as_str().replace('_', " ")
    )];
    if found.state == InvocationState::Live {
        lines.push("  it is still owned by a live process".to_owned());
        return lines;
    }
    match &found.dead {
        None if found.state == InvocationState::NeverBegan => lines.push(
            "  it died before its first record: nothing of it happened, and the next start \
             forgets it"
                .to_owned(),
        ),
        None => lines.push("  it has no record: it died before anything could happen".to_owned()),
        Some(dead) => {
            lines.push(format!(
                "  journal: {}, {} records, {} calls without a known outcome",
                dead.verdict, dead.records, dead.open_calls
            ));
            if let Some(tail) = &dead.tail {
                lines.push(format!("  torn tail: {} bytes", tail.bytes));
            }
        }
    }
    for (intent, state) in publications(found) {
        lines.push(format!(
            "  publication {}: {} of {} ({} bytes, sha256 {})",
            intent.publication_id,
            state.replace('_', " "),
            Untrusted::new(intent.path.as_str()).escaped(),
            intent.bytes,
            intent.sha256
        ));
    }
    if let Some(resolution) = &found.resolution {
        lines.push(format!(
            "  resolved at {}: {}",
            resolution.time,
            Untrusted::new(resolution.fact.rationale.as_str()).escaped()
        ));
    }
    lines
}
