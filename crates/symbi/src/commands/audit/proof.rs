//! `symbi audit prove` and `check-proof`: one call for somebody who may not see the rest.

use std::fs::OpenOptions;
use std::io::{BufReader, Write as _};
use std::path::Path;

use journal::limits::PROOF_BYTES_MAX;
use journal::{CallProof, CheckedProof, ProveError, prove_call};
use model::Untrusted;

use super::parse_key;
use super::subject::{Asked, Subject};
use crate::args::Common;
use crate::exit::{Exit, Failure};
use crate::files::{open_regular, read_regular};
use crate::output::Output;
use crate::story;

/// Makes a proof.
pub(super) fn prove(
    target: &str,
    call: &str,
    into: Option<&Path>,
    common: &Common,
    output: Output,
) -> Result<Exit, Failure> {
    let asked = Asked {
        target,
        ..Asked::default()
    };
    let subject = Subject::find(&asked, common)?;
    let file = open_regular(&subject.path).map_err(|error| subject.unreadable(&error))?;
    let proof = prove_call(
        BufReader::new(file),
        subject.run,
        subject.key.as_ref(),
        call,
    )
    .map_err(|error| {
        let exit = match error {
            ProveError::NoSuchCall { .. } => Exit::Usage,
            _ => Exit::Storage,
        };
        Failure::of(exit, &error).help(format!("look at the run: symbi audit show {target}"))
    })?;
    let text = serde_json::to_string(&proof)
        .map_err(|error| Failure::new(Exit::Storage, format!("the proof: {error}")))?;
    match into {
        None => output.json_text(&text),
        Some(path) => {
            write_new(path, &text)?;
            output.note(&format!(
                "{} records of the call, and no others, are in {}",
                proof.len(),
                path.display()
            ));
        }
    }
    Ok(Exit::Done)
}

fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .and_then(|mut file| writeln!(file, "{text}"))
        .map_err(|error| {
            let shown = path.display();
            Failure::new(Exit::Storage, format!("cannot write `{shown}`: {error}"))
        })
}

/// Checks a proof. Only the file and the key count.
pub(super) fn check(
    path: &Path,
    public_key: Option<&str>,
    output: Output,
) -> Result<Exit, Failure> {
    let key = public_key.map(parse_key).transpose()?;
    let bytes = read_regular(path, PROOF_BYTES_MAX as u64)
        .map_err(|error| Failure::unread(path, &error))?;
    let checked = CallProof::parse(&bytes)
        .and_then(|proof| proof.check(key.as_ref()))
        .map_err(|error| {
            Failure::new(Exit::Storage, format!("the file proves nothing: {error}"))
                .help("give a file as `symbi audit prove` wrote it, unchanged")
        })?;
    print(&checked, output);
    Ok(match checked.self_consistent_only {
        true => Exit::Unconfirmed,
        false => Exit::Done,
    })
}

fn print(checked: &CheckedProof, output: Output) {
    if output.is_json() {
        return output.value(&serde_json::to_value(checked).unwrap_or_default());
    }
    let call = Untrusted::new(checked.call.as_str()).escaped();
    let proof = match checked.self_consistent_only {
        true => "self-consistent only: no key was given, so nobody's signature is proved",
        false => "proved: these records stand in a journal that the given key signed",
    };
    output.line(proof);
    output.line(&format!(
        "  call {call} of run {}; checkpoint of {} records, root {}",
        checked.run, checked.checkpoint.size, checked.checkpoint.root
    ));
    if !checked.complete {
        output.line("  not all of the call: its end, or a step before it, is not in the file");
    }
    for record in &checked.records {
        for line in story::lines(record) {
            output.line(&line);
        }
    }
}
