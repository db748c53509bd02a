//! `symbi tools`: what the manifests say, without running anything.

mod init;

use std::path::Path;

use model::{JsonObject, Untrusted};
use serde_json::json;
use toolclad::{BoundCall, Contract, ContractSet, ProjectRules, ScanId, Surroundings};

use crate::args::{CallArgs, Common, ToolsCommand};
use crate::call_arguments;
use crate::exit::{Exit, Failure};
use crate::files::read_regular_text;
use crate::open::{OpenProject, find_tool};
use crate::output::Output;

/// Largest manifest that `validate FILE` reads.
const MANIFEST_BYTES_MAX: u64 = toolclad::limits::MANIFEST_BYTES_MAX as u64;

/// Runs the command. Works on a project that nobody has trusted yet.
pub(crate) fn run(command: &ToolsCommand, common: &Common) -> Result<Exit, Failure> {
    let output = Output::new(common.json);
    match command {
        ToolsCommand::Validate { file, portable } => {
            let contracts = match file {
                Some(file) => read_file(file, common)?,
                None => open(common)?.contracts()?,
            };
            report_valid(&contracts, *portable, output);
            Ok(Exit::Done)
        }
        ToolsCommand::List => {
            list(&open(common)?.contracts()?, output);
            Ok(Exit::Done)
        }
        ToolsCommand::Test(args) => {
            let contracts = open(common)?.contracts()?;
            test(find_tool(&contracts, &args.tool)?, args, output)
        }
        ToolsCommand::Schema { tool } => {
            let contracts = open(common)?.contracts()?;
            schema(find_tool(&contracts, tool)?, output);
            Ok(Exit::Done)
        }
        ToolsCommand::Init { name } => init::run(&open(common)?, name, output),
    }
}

fn open(common: &Common) -> Result<OpenProject, Failure> {
    OpenProject::find(common.project.as_deref())
}

/// One manifest; the types and scope are those of the project around, if there is one.
fn read_file(path: &Path, common: &Common) -> Result<ContractSet, Failure> {
    let text = read_regular_text(path, MANIFEST_BYTES_MAX)
        .map_err(|error| Failure::unread(path, &error))?;
    let name = path.to_string_lossy().into_owned();
    let rules = match open(common) {
        Ok(project) => project.rules()?,
        Err(error) if common.project.is_some() => return Err(error),
        Err(_) => ProjectRules::default(),
    };
    ContractSet::parse_with([(name, text)], &rules)
        .map_err(|errors| Failure::new(Exit::Usage, errors.to_string()))
}

fn report_valid(contracts: &ContractSet, portable: bool, output: Output) {
    let advice = |contract: &Contract| {
        let mut advice = contract.advice();
        if portable {
            advice.extend(contract.portable_advice());
        }
        advice
    };
    if output.is_json() {
        let names: Vec<&str> = contracts.iter().map(|it| it.name().as_str()).collect();
        let warnings: Vec<_> = contracts
            .iter()
            .flat_map(|contract| {
                let warn = |it: toolclad::Advice| {
                    json!({ "tool": contract.name(), "warning": it.to_string() })
                };
                advice(contract).into_iter().map(warn).collect::<Vec<_>>()
            })
            .collect();
        return output.value(&json!({ "valid": true, "tools": names, "warnings": warnings }));
    }
    for contract in contracts.iter() {
        let name = contract.name();
        output.line(&format!("{name}: valid"));
        for one in advice(contract) {
            output.note(&format!("{name}: warning: {one}"));
        }
        if let Some(unserved) = contract.unserved() {
            output.note(&format!("{name}: a call is refused: {unserved}"));
        }
    }
}

/// As an MCP client lists it.
fn schema(contract: &Contract, output: Output) {
    let definition = contract.definition();
    let mut value = json!({
        "name": definition.name,
        "description": definition.description,
        "inputSchema": definition.input_schema,
        "annotations": {
            "readOnlyHint": definition.read_only_hint,
            "destructiveHint": definition.destructive_hint,
        },
    });
    if let (Some(schema), Some(map)) = (contract.output_schema(), value.as_object_mut()) {
        map.insert("outputSchema".to_owned(), schema.clone());
    }
    if output.is_json() {
        return output.value(&value);
    }
    output.json_text(&format!("{value:#}"));
}

fn list(contracts: &ContractSet, output: Output) {
    if output.is_json() {
        let tools: Vec<_> = contracts
            .iter()
            .map(|contract| {
                json!({
                    "name": contract.name(),
                    "version": contract.version(),
                    "description": contract.description(),
                    "risk_tier": contract.risk_tier().as_str(),
                    "needs_approval": contract.needs_approval(),
                    "contract_sha256": contract.digest(),
                })
            })
            .collect();
        return output.value(&json!({ "tools": tools }));
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
    let arguments = JsonObject::from_map(call_arguments::read(args)?);
    let refuse = |error: &dyn std::fmt::Display| Failure::new(Exit::Refused, error.to_string());
    let scan_id = ScanId::new("preview").map_err(|error| refuse(&error))?;
    let surroundings = Surroundings {
        scan_id: Some(&scan_id),
        ..Surroundings::default()
    };
    let bound = contract
        .bind_with(&arguments, &surroundings)
        .map_err(|error| refuse(&error))?;
    preview(contract, &bound, output);
    Ok(Exit::Done)
}

const PREVIEW: &str = "preview: nothing is enforced and no host path was checked";

fn preview(contract: &Contract, bound: &BoundCall, output: Output) {
    if output.is_json() {
        return output.value(&json!({
            "tool": contract.name(),
            "argv": bound.shown_argv,
            "read": bound.reads,
            "create": bound.creates,
            "preview": PREVIEW,
        }));
    }
    for element in &bound.shown_argv {
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
    for argument in &bound.stripped {
        output.note(&format!("{argument}: hidden parts were taken out"));
    }
    output.note(PREVIEW);
}
