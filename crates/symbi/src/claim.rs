//! `--invocation-id`: an id is claimed durably before any work, and never does work twice.
//!
//! The folder's lock says that the owner lives; the claim file, that there was one; the saved
//! result, how it ended. A repeated id gets the saved result, or is told that nobody knows.

use std::os::fd::AsFd as _;
use std::path::PathBuf;

use filegrants::{
    InvocationError, InvocationFolder, InvocationLock, SavedResult, SavedResultError, resolution,
};
use journal::{RunSigner, journal_path};
use model::{Canonical, Digest, RunId, Untrusted};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dead_runs::{InvocationState, Runs, command};
use crate::exit::{Exit, Failure};
use crate::govern::project_key;
use crate::open::OpenProject;
use crate::output::Output;

/// The claim's name there.
pub(crate) const CLAIM_NAME: &str = "claim";
/// Largest claim.
const CLAIM_BYTES_MAX: u64 = 1 << 10;
/// Largest saved result: a stream's highest bound, escaped, with room for the rest.
const RESULT_BYTES_MAX: u64 = 2 * project::limits::STREAM_BYTES_MAX + (1 << 20);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimText {
    v: u64,
    run: RunId,
    /// What was asked for: another request is not the same invocation.
    request_sha256: Digest,
    time: String,
}

/// A run id with the right to use it.
#[derive(Debug)]
pub(crate) struct Claim {
    run: RunId,
    held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    folder: InvocationFolder,
    _lock: InvocationLock,
    journal: PathBuf,
    signer: RunSigner,
    is_saved: bool,
}

/// What became of an earlier invocation with the same id.
#[derive(Debug)]
pub(crate) struct Saved {
    run: RunId,
    exit: Exit,
    text: String,
}

/// Either the right to work, or the result of the work that was done.
#[derive(Debug)]
pub(crate) enum Begun {
    Now(Claim),
    Before(Saved),
}

/// Claims `id` for `request`; without an id, a fresh one that nobody can repeat.
pub(crate) fn begin(
    open: &OpenProject,
    id: Option<RunId>,
    request: &Value,
) -> Result<Begun, Failure> {
    let Some(run) = id else {
        let (run, held) = (RunId::new(), None);
        return Ok(Begun::Now(Claim { run, held }));
    };
    let request = Canonical::of(request)
        .map_err(|error| Failure::of(Exit::Usage, &error))?
        .digest();
    let state = open
        .project
        .state()
        .map_err(|error| Failure::of(Exit::Storage, &error))?;
    let beside = |error: InvocationError| Failure::of(exit_of(&error), &error);
    let folder =
        InvocationFolder::open_or_make(state.invocations().fd().as_fd(), run).map_err(beside)?;
    let lock = folder.lock().map_err(beside)?;
    let journal = journal_path(state.path(), run);
    let has_journal = std::fs::symlink_metadata(&journal).is_ok();
    let claim = folder.read(CLAIM_NAME, CLAIM_BYTES_MAX).map_err(beside)?;
    if let Some(claim) = claim {
        drop(lock);
        return repeated(open, &folder, &claim, request).map(Begun::Before);
    }
    if has_journal {
        drop(lock);
        return Err(unresolved(open, &folder));
    }
    let signer = project_key(open, &state)?.signer();
    let claim = ClaimText {
        v: 1,
        run,
        request_sha256: request,
        time: symbi_runtime::clock::now_rfc3339(),
    };
    let claim = serde_json::to_vec(&claim)
        .map_err(|error| Failure::new(Exit::Storage, error.to_string()))?;
    if !folder.create_whole(CLAIM_NAME, &claim).map_err(beside)? {
        return Err(unresolved(open, &folder));
    }
    let held = Held {
        folder,
        _lock: lock,
        journal,
        signer,
        is_saved: false,
    };
    Ok(Begun::Now(Claim {
        run,
        held: Some(held),
    }))
}

/// The result of an id that was claimed before.
fn repeated(
    open: &OpenProject,
    folder: &InvocationFolder,
    claim: &[u8],
    request: Digest,
) -> Result<Saved, Failure> {
    let run = folder.run();
    let damaged = || {
        Failure::new(
            Exit::Storage,
            format!("what was saved of the invocation {run} is damaged"),
        )
    };
    let claim: ClaimText = serde_json::from_slice(claim).map_err(|_| damaged())?;
    if (claim.v, claim.run) != (1, run) {
        return Err(damaged());
    }
    if claim.request_sha256 != request {
        return Err(Failure::new(
            Exit::Refused,
            format!("the invocation id {run} was used for another request"),
        )
        .help("an id belongs to one request for good: take a new one"));
    }
    let trusted = Runs::of(open)?.keys(run).trusted;
    let saved = SavedResult::read(folder, RESULT_BYTES_MAX, &trusted).map_err(|error| {
        let exit = match &error {
            SavedResultError::Folder(error) => exit_of(error),
            SavedResultError::Statement(_) | SavedResultError::Damaged(_) => Exit::Storage,
        };
        Failure::of(exit, &error)
    })?;
    let Some(SavedResult { exit_code, text }) = saved else {
        return Err(unresolved(open, folder));
    };
    let exit = Exit::from_number(exit_code).ok_or_else(damaged)?;
    Ok(Saved { run, exit, text })
}

/// The id was used, and nobody recorded how that ended; or its operator said so.
fn unresolved(open: &OpenProject, folder: &InvocationFolder) -> Failure {
    let run = folder.run();
    let runs = match Runs::of(open) {
        Ok(runs) => runs,
        Err(failure) => return failure,
    };
    if let Ok(Some(found)) = runs.look(run)
        && found.state == InvocationState::Finished
    {
        return Failure::new(
            Exit::Unconfirmed,
            format!("the run {run} has ended, and its result was not saved"),
        )
        .help(format!(
            "its journal tells how: {}",
            command(open, &format!("audit show {run}"))
        ));
    }
    let resolved = resolution(folder, &runs.keys(run).trusted)
        .map_err(|error| Failure::of(Exit::Refused, &error));
    match resolved {
        Ok(Some(resolved)) => Failure::new(
            Exit::Refused,
            format!(
                "the invocation {run} was resolved at {}: {}",
                resolved.time,
                Untrusted::new(resolved.fact.rationale).escaped()
            ),
        )
        .help("an id does work once: take a new one"),
        Ok(None) => Failure::new(
            Exit::Unconfirmed,
            format!(
                "the invocation {run} is unresolved: it was begun, and nobody recorded its end"
            ),
        )
        .help(format!(
            "it never runs again; look at what it did: {}",
            command(open, &format!("invocation inspect --id {run}"))
        )),
        Err(failure) => failure,
    }
}

/// The exit code of a folder that cannot be used.
pub(crate) const fn exit_of(error: &InvocationError) -> Exit {
    match error {
        InvocationError::Io { .. } => Exit::Storage,
        InvocationError::NotOurs { .. }
        | InvocationError::NotPrivate { .. }
        | InvocationError::NotRegular { .. }
        | InvocationError::TooLarge { .. }
        | InvocationError::Owned { .. } => Exit::Refused,
    }
}

impl Claim {
    pub(crate) const fn run(&self) -> RunId {
        self.run
    }

    /// Saves how it ended, unless that is not known: then the invocation stays unresolved.
    pub(crate) fn save(&mut self, text: &str, exit: Exit) -> Result<(), Failure> {
        let Some(held) = &mut self.held else {
            return Ok(());
        };
        if matches!(exit, Exit::Unconfirmed | Exit::Storage) {
            return Ok(());
        }
        let saved = SavedResult {
            exit_code: exit as u8,
            text: text.to_owned(),
        };
        saved
            .save(&held.folder, held.signer.clone())
            .map_err(|error| Failure::of(Exit::Storage, &error))?;
        held.is_saved = true;
        Ok(())
    }

    /// Saves the failure that ends a command.
    pub(crate) fn save_failure(&mut self, failure: &Failure) -> Result<(), Failure> {
        self.save(&failure.to_json().to_string(), failure.exit)
    }
}

impl Drop for Claim {
    /// Without a journal nothing was done: the id is free again.
    fn drop(&mut self) {
        if let Some(held) = &self.held
            && !held.is_saved
            && std::fs::symlink_metadata(&held.journal)
                .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
        {
            // What stays makes the id unresolved, which is safe.
            let _ = held.folder.remove(CLAIM_NAME);
        }
    }
}

impl Saved {
    /// Prints the saved result. Returns the exit code that it had.
    pub(crate) fn show(&self, output: Output) -> Exit {
        if output.is_json() {
            output.json_text(&self.text);
            return self.exit;
        }
        let value: Value = serde_json::from_str(&self.text).unwrap_or_default();
        let text = |name: &str| {
            let found = match value.get(name) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Null) | None => String::new(),
                Some(other) => serde_json::to_string_pretty(other).unwrap_or_default(),
            };
            let shown = Untrusted::new(found).escaped_lines();
            shown.trim_end_matches('\n').to_owned()
        };
        match text("results") {
            results if results.is_empty() => {}
            results => output.line(&results),
        }
        for name in ["stderr", "error", "reason", "created_files", "refusal"] {
            match text(name) {
                shown if shown.is_empty() => {}
                shown if name == "stderr" => output.note(&shown),
                shown => output.note(&format!("{}: {shown}", name.replace('_', " "))),
            }
        }
        output.note(&format!(
            "{}: this is the saved result of the invocation {}; nothing was run again",
            match text("status") {
                status if status.is_empty() => "failed".to_owned(),
                status => status,
            },
            self.run
        ));
        self.exit
    }
}
