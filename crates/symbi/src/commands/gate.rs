//! `symbi gate`: the operator decides held calls of running runs, from another terminal.

mod client;
mod input;
mod watch;

use std::io::{Read as _, Write as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};

use approval::limits::SIGNATURE_BYTES_MAX;
use approval::wire::{Decide, HeldSummary, Listing, Request, Response, Show};
use approval::{Answer, HeldId, NAMESPACE, Review};
use model::Untrusted;
use serde_json::{Value, json};

use crate::args::{Common, GateCommand};
use crate::commands::gate::client::{Gates, RunGate};
use crate::exit::{Exit, Failure};
use crate::files::read_regular_text;
use crate::output::Output;

/// Runs the command. It needs no project: held calls of all runs of the user are there.
pub(crate) fn run(command: &GateCommand, common: &Common) -> Result<Exit, Failure> {
    crate::harden::let_runs_look();
    let output = Output::new(common.json);
    let gates = Gates::open(&crate::dirs::user_dirs()?)?;
    match command {
        GateCommand::List => list(&gates, output),
        GateCommand::Show { id, file, from } => {
            let held_id = held_id(id)?;
            let (gate, review) = find(&gates, &held_id)?;
            match file {
                Some(input) => input::show(&gate, &review, (held_id, input, *from), output)?,
                None => show(&review, output),
            }
            Ok(Exit::Done)
        }
        GateCommand::Approve {
            id,
            sign,
            signature,
        } => {
            let held_id = held_id(id)?;
            let (gate, review) = find(&gates, &held_id)?;
            let signature = match (sign, signature) {
                (Some(key), _) => Some(sign_with(key, &review)?),
                (None, Some(file)) => Some(read_signature(file)?),
                (None, None) => None,
            };
            let decide = Decide {
                held_id,
                review_sha256: review.sha256(),
                answer: Answer::Approve,
                signature,
            };
            answer(&gate, decide, output)
        }
        GateCommand::Deny { id } => {
            let held_id = held_id(id)?;
            let (gate, review) = find(&gates, &held_id)?;
            let decide = Decide {
                held_id,
                review_sha256: review.sha256(),
                answer: Answer::Deny,
                signature: None,
            };
            answer(&gate, decide, output)
        }
        GateCommand::Watch => watch::run(&gates, output),
    }
}

fn held_id(text: &str) -> Result<HeldId, Failure> {
    HeldId::new(text).map_err(|error| {
        let shown = Untrusted::new(text).escaped();
        Failure::new(Exit::Usage, format!("`{shown}`: {error}"))
            .help("the held calls and their ids: symbi gate list")
    })
}

fn list(gates: &Gates, output: Output) -> Result<Exit, Failure> {
    let mut all: Vec<Listing> = Vec::new();
    let mut unanswered = Vec::new();
    gates.ask_all(&Request::List, |gate, answer| {
        let why = match answer {
            Ok(Response::Held(listing)) => {
                all.push(listing);
                return ControlFlow::<()>::Continue(());
            }
            Ok(Response::Refused(refused)) => safe(&refused.reason),
            Ok(_) => "answers something else".to_owned(),
            // It ended meanwhile, is stopped, or is not ours.
            Err(error) => error.to_string(),
        };
        output.note(&format!("run {}: {why}", gate.run()));
        unanswered.push(gate.run());
        ControlFlow::<()>::Continue(())
    })?;
    let gone = gates.gone();
    for run in &gone {
        output.note(&format!(
            "run {run}: its process is gone, and no call of it waits; what it left: symbi \
             invocation inspect --id {run}, in its project"
        ));
    }
    all.sort_by_key(|listing| listing.run);
    let held = |listing: &Listing| {
        let calls = listing.calls.iter();
        calls.map(|call| as_json(listing, call)).collect::<Vec<_>>()
    };
    if output.is_json() {
        let held: Vec<Value> = all.iter().flat_map(held).collect();
        output.value(&json!({ "held": held, "unanswered": unanswered, "gone": gone }));
        return Ok(Exit::Done);
    }
    let mut count = 0;
    for listing in &all {
        for call in &listing.calls {
            output.line(&as_line(listing, call));
            count += 1;
        }
    }
    output.note(&match (count, unanswered.len()) {
        (0, 0) => format!("no call waits; {} runs can be asked about", all.len()),
        (0, silent) => format!(
            "no call is known to wait; {} runs can be asked about, and {silent} did not answer",
            all.len()
        ),
        _ => "read one: symbi gate show ID; answer: symbi gate approve ID, symbi gate deny ID"
            .to_owned(),
    });
    Ok(Exit::Done)
}

fn as_json(listing: &Listing, call: &HeldSummary) -> Value {
    json!({
        "held_id": call.held_id, "run": listing.run, "project": listing.project,
        "principal": call.principal, "tool": call.tool, "review_sha256": call.review_sha256,
        "created_at": call.created_at, "expires_at": call.expires_at,
    })
}

fn as_line(listing: &Listing, call: &HeldSummary) -> String {
    format!(
        "{}  {} wants {}  until {}  run {} {}",
        call.held_id,
        safe(&call.principal),
        safe(&call.tool),
        safe(&call.expires_at),
        listing.run,
        safe(&listing.project)
    )
}

fn safe(text: &str) -> String {
    Untrusted::new(text).escaped()
}

/// The run that holds the call, and the call's review.
fn find<'a>(gates: &'a Gates, held_id: &HeldId) -> Result<(RunGate<'a>, Review), Failure> {
    let mut reasons = Vec::new();
    let show = Request::Show(Show {
        held_id: held_id.clone(),
    });
    let found = gates.ask_all(&show, |gate, answer| {
        match answer {
            Ok(Response::Review(shown)) => return ControlFlow::Break((gate, shown)),
            Ok(Response::Refused(refused)) => reasons.push(safe(&refused.reason)),
            Ok(_) => reasons.push("the run answers something else".to_owned()),
            Err(error) => reasons.push(format!("run {}: {error}", gate.run())),
        }
        ControlFlow::Continue(())
    })?;
    if let Some((gate, shown)) = found {
        let review = Review::received(shown.text, shown.review_sha256)
            .map_err(|error| Failure::of(Exit::Refused, &error))?;
        return Ok((gate, review));
    }
    reasons.sort();
    reasons.dedup();
    let mut message = format!("no running run holds `{held_id}`");
    if !reasons.is_empty() {
        message = format!("{message}: {}", reasons.join("; "));
    }
    Err(Failure::new(Exit::Refused, message)
        .help("it was answered, withdrawn or its time is over; see: symbi gate list"))
}

/// Exactly the text that is signed: `symbi gate show ID | ssh-keygen -Y sign …` works.
fn show(review: &Review, output: Output) {
    if output.is_json() {
        output.value(&json!({ "review": review.text(), "review_sha256": review.sha256() }));
    } else {
        output.line(review.text().strip_suffix('\n').unwrap_or(review.text()));
        output.note(&format!("review sha256 {}", review.sha256()));
    }
}

fn answer(gate: &RunGate<'_>, decide: Decide, output: Output) -> Result<Exit, Failure> {
    let approves = decide.answer.approves();
    let answered = gate
        .ask(&Request::Decide(decide))
        .map_err(|error| Failure::of(Exit::Refused, &error))?;
    match answered {
        Response::Decided(decided) => {
            let (held_id, approver) = (decided.held_id, safe(&decided.approver));
            if output.is_json() {
                output.value(&json!({
                    "held_id": held_id, "answer": decided.answer, "approver": decided.approver,
                }));
            } else if approves {
                output.line(&format!("approved {held_id} as {approver}"));
            } else {
                output.line(&format!("denied {held_id} as {approver}"));
            }
            Ok(Exit::Done)
        }
        Response::Counted(counted) => {
            let (have, require) = (counted.have, counted.require);
            if output.is_json() {
                output.value(&json!({
                    "held_id": counted.held_id, "signed": have, "require": require,
                }));
            } else {
                output.line(&format!("signed: {have} of {require} operators have"));
            }
            Ok(Exit::Done)
        }
        Response::Refused(refused) => {
            Err(Failure::new(Exit::Refused, safe(&refused.reason)).help("see: symbi gate list"))
        }
        Response::Held(_) | Response::Review(_) | Response::Input(_) => Err(Failure::new(
            Exit::Refused,
            "the run answers something else",
        )),
    }
}

/// Has `ssh-keygen` sign the review, with a key file or, where KEY is a public key, with the
/// user's ssh-agent. Passphrases are asked on the terminal.
fn sign_with(key: &Path, review: &Review) -> Result<String, Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(Exit::Usage, format!("ssh-keygen: {error}"))
            .help("signing needs OpenSSH 8.2 or newer")
    };
    let mut signer = Command::new("ssh-keygen")
        .args(["-q", "-Y", "sign", "-n", NAMESPACE, "-f"])
        .arg(key)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = signer.stdin.take() {
        // Where it reads nothing it says itself why.
        let _ = stdin.write_all(review.text().as_bytes());
    }
    let mut signature = String::new();
    if let Some(stdout) = signer.stdout.take() {
        stdout
            .take(SIGNATURE_BYTES_MAX as u64 + 1)
            .read_to_string(&mut signature)
            .map_err(failed)?;
    }
    if !signer.wait().map_err(failed)?.success() {
        return Err(Failure::new(Exit::Usage, "ssh-keygen made no signature")
            .help("give a private key, or the public key of one in your ssh-agent"));
    }
    Ok(signature)
}

fn read_signature(path: &Path) -> Result<String, Failure> {
    read_regular_text(path, SIGNATURE_BYTES_MAX as u64)
        .map_err(|error| Failure::unread(path, &error))
}
