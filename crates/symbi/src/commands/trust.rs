//! `symbi trust`: the operator has read the control files, and lets them take effect.

use std::io::{self, BufRead, IsTerminal, Write};

use model::Digest;
use project::{Surface, Trust, TrustStatus};

use crate::args::Common;
use crate::exit::{Exit, Failure};
use crate::open::{OpenProject, check_agents};
use crate::output::Output;

/// Checks everything that trust would let take effect.
pub(crate) fn check_all(open: &OpenProject) -> Result<Digest, Failure> {
    let config = open.config()?;
    let contracts = open.contracts()?;
    check_agents(open, &config, &contracts)?;
    for surface in Surface::ALL {
        open.policies(surface, &config, &contracts)?;
    }
    Ok(open.policy_verdict())
}

/// Runs the command.
pub(crate) fn run(yes: bool, common: &Common) -> Result<Exit, Failure> {
    let open = OpenProject::find(common.project.as_deref())?;
    let output = Output::new(common.json);
    let status = Trust::status(&open.project, &open.dirs)
        .map_err(|error| Failure::of(Exit::Usage, &error))?;
    let verdict = check_all(&open)?;
    match &status {
        TrustStatus::Trusted { policy_verdict } if *policy_verdict == Some(verdict) => {
            say(output, &open, "already trusted");
            return Ok(Exit::Done);
        }
        TrustStatus::Trusted { .. } => {}
        TrustStatus::NeverTrusted => {
            output.note("Nobody has trusted this project yet. Its control files:");
            for file in open.project.control_files() {
                let path = model::Untrusted::new(file.path.as_str()).escaped();
                output.note(&format!("  {path}  sha256 {}", file.sha256));
            }
        }
        TrustStatus::Unusable(record) => output.note(&record.to_string()),
        TrustStatus::Changed(changes) => output.note(changes.to_string().trim_end()),
    }
    if !yes && !confirmed(&open)? {
        return Err(Failure::new(
            Exit::NotApproved,
            "the project was not trusted",
        ));
    }
    Trust::grant(&open.project, &open.dirs, Some(verdict))
        .map_err(|error| Failure::of(Exit::Storage, &error))?;
    say(output, &open, "trusted");
    Ok(Exit::Done)
}

fn say(output: Output, open: &OpenProject, status: &str) {
    let path = open.project.path().display().to_string();
    if output.is_json() {
        output.value(&serde_json::json!({ "project": path, "status": status }));
    } else {
        output.line(&format!("{status}: {path}"));
    }
}

/// Asks on a terminal; anything but `yes` is a no.
fn confirmed(open: &OpenProject) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::new(Exit::Usage, "there is no terminal to ask on")
            .help("read the files, then type: symbi trust --yes"));
    }
    let mut stderr = io::stderr().lock();
    let path = model::Untrusted::new(open.project.path().to_string_lossy()).escaped();
    let _ = write!(stderr, "Let these files of {path} take effect? Type yes: ");
    let _ = stderr.flush();
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(|error| {
        Failure::new(
            Exit::Usage,
            format!("the answer could not be read: {error}"),
        )
    })?;
    Ok(answer.trim() == "yes")
}
