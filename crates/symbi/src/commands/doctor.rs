//! `symbi doctor`: whether this machine can isolate workers, and what to do where it cannot.

use worker::Tier;

use crate::args::Common;
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Probes the namespace tier.
pub(crate) fn run(common: &Common) -> Result<Exit, Failure> {
    let output = Output::new(common.json);
    let executable = std::env::current_exe()
        .map_err(|error| Failure::new(Exit::Isolation, format!("where symbi is: {error}")))?;
    let isolation = |error: &dyn std::error::Error| Failure::of(Exit::Isolation, error);
    let init = sandbox::locate_init(&executable, None).map_err(|error| isolation(&error))?;
    let mut tier = sandbox::NamespaceTier::new(sandbox::NamespaceConfig::new(init))
        .map_err(|error| isolation(&error))?;
    tier.probe().map_err(|error| isolation(&error))?;
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
        output.value(
            &serde_json::json!({ "tier": "namespace", "available": true, "limits": limits }),
        );
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
    Ok(Exit::Done)
}
