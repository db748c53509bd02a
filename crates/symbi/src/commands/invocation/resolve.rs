//! `symbi invocation resolve`: the operator says how an interrupted invocation ended.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use filegrants::{DeadRunError, EvidenceFact, ResolutionFact, ResolveError};
use journal::journal_path;
use model::{Digest, Hasher, RunId};
use rustix::fs::{Mode, OFlags};
use serde_json::json;

use super::unknown;
use crate::args::Common;
use crate::claim;
use crate::dead_runs::{InvocationState, Runs, dead_run_failure};
use crate::exit::{Exit, Failure};
use crate::open::OpenProject;
use crate::output::Output;

/// Largest file of evidence.
const EVIDENCE_BYTES_MAX: u64 = 1 << 30;

/// The decision as it was typed.
pub(super) struct Asked<'a> {
    pub(super) run: RunId,
    pub(super) rationale: &'a str,
    pub(super) evidence: Option<&'a Path>,
}

/// Signs the decision.
pub(super) fn run(asked: &Asked<'_>, common: &Common, output: Output) -> Result<Exit, Failure> {
    let open = OpenProject::find(common.project.as_deref())?;
    let runs = Runs::with_ledger(&open)?;
    let evidence = asked.evidence.map(hash_evidence).transpose()?;
    let dead = runs.dead(asked.run);
    let journal_sha256 = match &dead {
        Ok(dead) => Some(dead.journal_sha256),
        Err(DeadRunError::Unknown { .. }) => None,
        // Whatever the file is, the decision names exactly it.
        Err(DeadRunError::NotWhole { .. } | DeadRunError::Empty { .. }) => {
            Some(hash_file(&journal_path(runs.state.path(), asked.run))?.sha256)
        }
        Err(error) => return Err(dead_run_failure(error)),
    };
    if !matches!(dead, Err(DeadRunError::NotWhole { .. })) {
        drop(dead);
        let found = runs.look(asked.run)?.ok_or_else(|| unknown(asked.run))?;
        let refuse = |why: &str| {
            let run = asked.run;
            Err(Failure::new(
                Exit::Refused,
                format!("the invocation {run} {why}"),
            ))
        };
        match found.state {
            InvocationState::Live => return refuse("is still owned by a live process"),
            InvocationState::Finished => return refuse("has finished: nothing is left to resolve"),
            InvocationState::NeverBegan => {
                return refuse("died before its first record: nothing is left to resolve");
            }
            _ => {}
        }
    }
    let fact = ResolutionFact {
        run: asked.run,
        journal_sha256,
        rationale: asked.rationale.to_owned(),
        evidence,
    };
    let folder = runs.make_folder(asked.run)?;
    let resolution = filegrants::resolve(&folder, fact, &runs.keys(asked.run))
        .map_err(|error| Failure::of(exit_of(&error), &error))?;
    if output.is_json() {
        output.value(&json!({ "resolution": resolution }));
    } else {
        output.line(&format!(
            "invocation {}: resolved at {}; nothing of it is published or run any more",
            asked.run, resolution.time
        ));
    }
    Ok(Exit::Done)
}

const fn exit_of(error: &ResolveError) -> Exit {
    match error {
        ResolveError::Rationale { .. } => Exit::Usage,
        ResolveError::Resolved { .. } | ResolveError::Beside(_) => Exit::Refused,
        ResolveError::Folder(error) => claim::exit_of(error),
        ResolveError::Statement(_) => Exit::Storage,
    }
}

fn hash_evidence(path: &Path) -> Result<EvidenceFact, Failure> {
    hash_file(path).map_err(|failure| {
        Failure::new(Exit::Usage, failure.message)
            .help("--evidence names a plain file that speaks for the decision")
    })
}

fn hash_file(path: &Path) -> Result<EvidenceFact, Failure> {
    let refuse = |why: &dyn std::fmt::Display| {
        Failure::new(
            Exit::Storage,
            format!("`{}` cannot be hashed: {why}", path.display()),
        )
    };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| refuse(&error))?;
    let file = File::from(file);
    let stat = file.metadata().map_err(|error| refuse(&error))?;
    if !stat.is_file() || stat.len() > EVIDENCE_BYTES_MAX {
        return Err(refuse(&format!(
            "it is no plain file of at most {EVIDENCE_BYTES_MAX} bytes"
        )));
    }
    let (bytes, sha256) =
        digest_of(file.take(EVIDENCE_BYTES_MAX)).map_err(|error| refuse(&error))?;
    Ok(EvidenceFact { bytes, sha256 })
}

fn digest_of(mut from: impl std::io::Read) -> std::io::Result<(u64, Digest)> {
    let mut hasher = Hasher::new();
    let mut chunk = vec![0; 64 << 10];
    let mut bytes = 0;
    loop {
        match from.read(&mut chunk) {
            Ok(0) => return Ok((bytes, hasher.finish())),
            Ok(count) => {
                bytes += count as u64;
                hasher.update(chunk.get(..count).unwrap_or_default());
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
