//! `symbi tools`: what the manifests say, without running anything.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use model::{JsonObject, Untrusted};
use toolclad::{BoundCall, Contract, ContractSet};

use crate::args::{CallArgs, Common, ToolsCommand};
use crate::commands::call::parse_arguments;
use crate::exit::{Exit, Failure};
use crate::open::{OpenProject, find_tool};
use crate::output::Output;

/// Largest manifest that `validate FILE` reads.
const MANIFEST_BYTES_MAX: u64 = toolclad::limits::MANIFEST_BYTES_MAX as u64;

/// Runs the command. Works on a project that nobody has trusted yet.
pub(crate) fn run(command: &ToolsCommand, common: &Common) -> Result<Exit, Failure> {
    let output = Output::new(common.json);
    match command {
        ToolsCommand::Validate { file: Some(file) } => validate_file(file, output),
        ToolsCommand::Validate { file: None } => {
            let contracts = OpenProject::find(common.project.as_deref())?.contracts()?;
            report_valid(&contracts, output);
            Ok(Exit::Done)
        }
        ToolsCommand::List => {
            let contracts = OpenProject::find(common.project.as_deref())?.contracts()?;
            list(&contracts, output);
            Ok(Exit::Done)
        }
        ToolsCommand::Test(args) => {
            let contracts = OpenProject::find(common.project.as_deref())?.contracts()?;
            test(find_tool(&contracts, &args.tool)?, args, output)
        }
    }
}

fn validate_file(path: &Path, output: Output) -> Result<Exit, Failure> {
    let shown = Untrusted::new(path.to_string_lossy()).escaped();
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(MANIFEST_BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(|error| Failure::new(Exit::Usage, format!("cannot read `{shown}`: {error}")))?;
    let name = path.to_string_lossy().into_owned();
    let contracts = ContractSet::parse([(name, text)])
        .map_err(|errors| Failure::new(Exit::Usage, errors.to_string()))?;
    report_valid(&contracts, output);
    Ok(Exit::Done)
}

fn report_valid(contracts: &ContractSet, output: Output) {
    if output.is_json() {
        let names: Vec<&str> = contracts.iter().map(|it| it.name().as_str()).collect();
        return output.value(&serde_json::json!({ "valid": true, "tools": names }));
    }
    for contract in contracts.iter() {
        output.line(&format!("{}: valid", contract.name()));
    }
}

fn list(contracts: &ContractSet, output: Output) {
    if output.is_json() {
        let tools: Vec<_> = contracts
            .iter()
            .map(|contract| {
                serde_json::json!({
                    "name": contract.name(),
                    "version": contract.version(),
                    "description": contract.description(),
                    "risk_tier": contract.risk_tier().as_str(),
                    "needs_approval": contract.needs_approval(),
                    "contract_sha256": contract.digest(),
                })
            })
            .collect();
        return output.value(&serde_json::json!({ "tools": tools }));
    }
    let width = contracts
        .iter()
        .map(|it| it.name().as_str().len())
        .max()
        .unwrap_or(0);
    for contract in contracts.iter() {
        let name = contract.name().as_str();
        let description = Untrusted::new(contract.description()).escaped();
        let approval = if contract.needs_approval() {
            "  [asks a person]"
        } else {
            ""
        };
        output.line(&format!("{name:width$}  {description}{approval}"));
        for argument in contract.arguments() {
            let demand = if argument.required() {
                "required"
            } else {
                "optional"
            };
            let about = Untrusted::new(argument.description()).escaped();
            output.line(&format!(
                "{:width$}    {} ({demand}) {about}",
                "",
                argument.name()
            ));
        }
    }
}

fn test(contract: &Contract, args: &CallArgs, output: Output) -> Result<Exit, Failure> {
    let arguments = JsonObject::from_map(parse_arguments(&args.arguments)?);
    let bound = contract
        .bind(&arguments)
        .map_err(|error| Failure::new(Exit::Refused, error.to_string()))?;
    preview(contract, &bound, output);
    Ok(Exit::Done)
}

const PREVIEW: &str = "preview: nothing is enforced and no host path was checked";

fn preview(contract: &Contract, bound: &BoundCall, output: Output) {
    if output.is_json() {
        return output.value(&serde_json::json!({
            "tool": contract.name(),
            "argv": bound.argv,
            "read": bound.reads,
            "create": bound.creates,
            "preview": PREVIEW,
        }));
    }
    for element in &bound.argv {
        output.line(&Untrusted::new(element.as_str()).escaped());
    }
    for (key, path) in &bound.reads {
        output.note(&format!(
            "read {key}: {}",
            Untrusted::new(path.as_str()).escaped()
        ));
    }
    for (key, path) in &bound.creates {
        output.note(&format!(
            "create {key}: {}",
            Untrusted::new(path.as_str()).escaped()
        ));
    }
    for clamp in &bound.clamped {
        output.note(&format!(
            "{}: {} becomes {}",
            clamp.argument, clamp.asked, clamp.used
        ));
    }
    output.note(PREVIEW);
}
