//! `symbi policy`: check policies without running anything.

mod explain;
mod table;
mod trial;

use project::Surface;

use crate::args::{Common, PolicyCommand};
use crate::exit::{Exit, Failure};
use crate::open::OpenProject;
use crate::output::Output;

/// Runs the command. `check` and `schema` work on a project that nobody has trusted yet.
pub(crate) fn run(command: &PolicyCommand, common: &Common) -> Result<Exit, Failure> {
    let output = Output::new(common.json);
    let open = || OpenProject::find(common.project.as_deref());
    let trusted = || OpenProject::find_trusted(common.project.as_deref()).map(|(open, _)| open);
    match command {
        PolicyCommand::Check => check(&open()?, output),
        PolicyCommand::Schema { surface } => schema(&open()?, surface, output),
        PolicyCommand::Explain { call, principal } => {
            explain::run(&trusted()?, call, principal, output)
        }
        PolicyCommand::Test { file } => table::run(&trusted()?, file, output),
    }
}

fn check(open: &OpenProject, output: Output) -> Result<Exit, Failure> {
    let config = open.config()?;
    let contracts = open.contracts()?;
    let mut surfaces = Vec::new();
    for surface in Surface::ALL {
        let policies = open.policies(surface, &config, &contracts)?;
        let warnings: Vec<String> = policies
            .warnings()
            .iter()
            .map(ToString::to_string)
            .collect();
        for warning in &warnings {
            output.note(&format!("warning: {warning}"));
        }
        let digest = policies.digest();
        let files = open.sources(surface).len();
        if output.is_json() {
            surfaces.push(serde_json::json!({
                "surface": surface.as_str(), "files": files, "sha256": digest, "valid": true,
                "warnings": warnings,
            }));
        } else {
            output.line(&format!(
                "{}: {files} files, valid, sha256 {digest}",
                surface.as_str()
            ));
        }
    }
    if output.is_json() {
        output.value(&serde_json::json!({ "surfaces": surfaces }));
    }
    Ok(Exit::Done)
}

fn schema(open: &OpenProject, surface: &str, output: Output) -> Result<Exit, Failure> {
    let found = Surface::ALL
        .into_iter()
        .find(|known| known.as_str() == surface);
    let surface = found.ok_or_else(|| {
        let shown = model::Untrusted::new(surface).escaped();
        Failure::new(Exit::Usage, format!("there is no surface `{shown}`"))
            .help("the surfaces are: call, run, mcp")
    })?;
    let config = open.config()?;
    let contracts = open.contracts()?;
    let policies = open.policies(surface, &config, &contracts)?;
    let text = policies.schema_text();
    if output.is_json() {
        output.value(&serde_json::json!({ "schema": text }));
    } else {
        output.line(text.trim_end());
    }
    Ok(Exit::Done)
}
