//! `symbi doctor`: whether this machine can isolate workers, and what to do where it cannot.

use worker::Tier;

use crate::args::Common;
use crate::dead_runs;
use crate::exit::{Exit, Failure};
use crate::govern::namespace_tier;
use crate::open::OpenProject;
use crate::output::Output;

/// Probes the namespace tier.
pub(crate) fn run(common: &Common) -> Result<Exit, Failure> {
    let output = Output::new(common.json);
    // A project may say where the helper is; without one, it stands beside this executable.
    let (init, waiting) = match OpenProject::find(common.project.as_deref()) {
        Ok(open) => {
            let init = open.config()?.sandbox.init;
            let init = init.map(|path| path.resolve(open.project.path()));
            (init, dead_runs::waiting(&open)?)
        }
        Err(failure) if common.project.is_some() => return Err(failure),
        Err(_) => (None, Vec::new()),
    };
    let mut tier = namespace_tier(init.as_deref())?;
    tier.probe()
        .map_err(|error| Failure::of(Exit::Isolation, &error))?;
    let limits = tier.enforceable(symbi_runtime::tools::wanted(&[
        worker::limits::MEMORY_MIB_DEFAULT,
        worker::limits::CPU_MILLI_DEFAULT,
        worker::limits::PIDS_DEFAULT,
        worker::limits::SCRATCH_FILE_BYTES_DEFAULT,
        worker::limits::SCRATCH_BYTES_DEFAULT,
        worker::limits::STREAM_BYTES_DEFAULT,
        worker::limits::TIME_MS_DEFAULT,
    ]));
    if output.is_json() {
        let waiting: Vec<_> = waiting
            .into_iter()
            .map(|(run, next)| serde_json::json!({ "run": run, "next": next }))
            .collect();
        output.value(&serde_json::json!({
            "tier": "namespace", "available": true, "limits": limits, "waiting": waiting
        }));
        return Ok(Exit::Done);
    }
    output.line("namespace: available");
    for (name, limit) in limits.named() {
        output.line(&format!(
            "  {name}: {}",
            limit.enforcement.as_str().replace('_', " ")
        ));
    }
    output.line(&format!(
        "  landlock: {}",
        limits.landlock.as_str().replace('_', " ")
    ));
    for (run, next) in waiting {
        output.line(&format!(
            "run {run} was interrupted, and waits for you: {next}"
        ));
    }
    Ok(Exit::Done)
}
