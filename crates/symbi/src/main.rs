//! `symbi`: the command line.

#![forbid(unsafe_code)]

mod agents;
mod anchors;
mod approvals;
mod args;
mod call_arguments;
mod claim;
mod commands;
mod dead_runs;
mod demo;
mod dirs;
mod exit;
#[cfg(debug_assertions)]
mod faultpoints;
mod files;
mod govern;
mod harden;
mod inference;
mod interrupt;
mod launch;
mod open;
mod output;
mod progress;
mod story;
mod supervising;
mod usage;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::exit::{Exit, Failure};
use crate::output::Output;

fn main() -> ExitCode {
    harden::harden();
    #[cfg(debug_assertions)]
    if let Err(failure) = faultpoints::arm() {
        return output::settled(report(&failure, false)).code();
    }
    let exit = match Cli::try_parse() {
        Ok(cli) => run(&cli).unwrap_or_else(|failure| report(&failure, cli.common.json)),
        Err(error) => usage::show(&error, usage::is_json_asked(std::env::args_os())),
    };
    output::settled(exit).code()
}

fn run(cli: &Cli) -> Result<Exit, Failure> {
    match &cli.command {
        #[cfg(debug_assertions)]
        Command::Faults => Ok(faultpoints::list(Output::new(cli.common.json))),
        Command::Init(args) => commands::init::run(args, &cli.common),
        Command::Mcp(args) => commands::mcp::run(args, &cli.common),
        Command::Trust { yes } => commands::trust::run(*yes, &cli.common),
        Command::Call {
            call,
            approval,
            invocation,
        } => commands::call::run(call, approval, invocation.id, &cli.common),
        Command::Run {
            run,
            approval,
            invocation,
        } => commands::run::run(run, approval, invocation.id, &cli.common),
        Command::Demo(args) => commands::demo::run(args, &cli.common),
        Command::Tools(command) => commands::tools::run(command, &cli.common),
        Command::Policy(command) => commands::policy::run(command, &cli.common),
        Command::Gate(command) => commands::gate::run(command, &cli.common),
        Command::Audit(command) => commands::audit::run(command, &cli.common),
        Command::Invocation(command) => commands::invocation::run(command, &cli.common),
        Command::Doctor(args) => commands::doctor::run(args, &cli.common),
        Command::Supervisor(args) => commands::supervisor::run(args, &cli.common),
        Command::Sandbox(command) => commands::sandbox::run(command, &cli.common),
        Command::Completions { shell } => Ok(commands::manual::completions(*shell, &cli.common)),
        Command::Manual { folder } => commands::manual::pages(folder, &cli.common),
    }
}

/// The failure on stderr, and as one JSON object on stdout where that was asked for and is not
/// there yet.
fn report(failure: &Failure, json: bool) -> Exit {
    let output = Output::new(json);
    output.note(&failure.to_string());
    if json && !output::is_answered() {
        output.value(&failure.to_json());
    }
    failure.exit
}
