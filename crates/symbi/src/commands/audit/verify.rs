//! `symbi audit verify`: one journal's verdict.

use std::path::Path;

use journal::{Depth, EvidenceState, FaultReason, Report, examine_evidence};
use model::Digest;
use serde::Serialize;

use super::subject::{Asked, Subject};
use crate::args::{Common, VerifyArgs};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::story;

/// Runs the command.
pub(super) fn run(args: &VerifyArgs, common: &Common, output: Output) -> Result<Exit, Failure> {
    let asked = Asked {
        target: &args.target,
        public_key: args.public_key.as_deref(),
        run: args.run_id,
        anchors: &args.anchor,
    };
    let subject = Subject::find(&asked, common)?;
    let depth = if args.last_only {
        Depth::Last
    } else {
        Depth::Every
    };
    let report = subject.verify(depth)?;
    let folder = args.evidence.clone().or_else(|| subject.evidence_folder());
    let evidence = Evidence::look(&report, folder.as_deref())?;
    print(&report, &subject, &evidence, output);
    let exit = exit_of(&report, args.require_anchor).worst(evidence.exit());
    Ok(exit.worst(subject.ledger_state.tell(output)))
}

/// The exit code of a verdict.
pub(super) fn exit_of(report: &Report, require_anchor: bool) -> Exit {
    match report.exit_code(require_anchor) {
        0 => Exit::Done,
        5 => Exit::Unconfirmed,
        _ => Exit::Storage,
    }
}

/// What became of the files that the records name as evidence.
#[derive(Debug, Default, Serialize)]
pub(super) struct Evidence {
    whole: u64,
    missing: Vec<Digest>,
    changed: Vec<Digest>,
    /// Without a folder nobody looked.
    not_looked_for: u64,
}

impl Evidence {
    pub(super) fn look(report: &Report, folder: Option<&Path>) -> Result<Self, Failure> {
        let mut found = Self::default();
        for file in &report.evidence {
            let Some(folder) = folder else {
                found.not_looked_for += 1;
                continue;
            };
            let state = examine_evidence(folder, *file)
                .map_err(|error| unreadable_evidence(folder, file.sha256, &error))?;
            match state {
                EvidenceState::Whole => found.whole += 1,
                EvidenceState::Missing => found.missing.push(file.sha256),
                EvidenceState::Changed => found.changed.push(file.sha256),
            }
        }
        Ok(found)
    }

    pub(super) fn exit(&self) -> Exit {
        match self.missing.is_empty() && self.changed.is_empty() {
            true => Exit::Done,
            false => Exit::Storage,
        }
    }

    fn tell(&self, output: Output) {
        if self.whole > 0 {
            output.line(&format!("  evidence: {} files, whole", self.whole));
        }
        if self.not_looked_for > 0 {
            output.line(&format!(
                "  evidence: {} files are named and were not looked for; say where they are: \
                 --evidence DIR",
                self.not_looked_for
            ));
        }
        for (word, digests) in [("missing", &self.missing), ("changed", &self.changed)] {
            for digest in digests {
                output.line(&format!("  evidence {word}: {digest}"));
            }
        }
    }
}

fn unreadable_evidence(folder: &Path, sha256: Digest, error: &std::io::Error) -> Failure {
    let path = folder.join(sha256.to_hex());
    Failure::new(
        Exit::Storage,
        format!("the evidence `{}` cannot be read: {error}", path.display()),
    )
}

/// Both halves of the verdict, and what a later recovery is bound to.
pub(super) fn print(report: &Report, subject: &Subject, evidence: &Evidence, output: Output) {
    if output.is_json() {
        let mut value = serde_json::to_value(report).unwrap_or_default();
        if let Some(fields) = value.as_object_mut() {
            fields.insert("whole_bytes".to_owned(), report.whole_bytes().into());
            fields.insert("evidence".to_owned(), serde_json::json!(evidence));
        }
        subject.ledger_state.add_to(&mut value);
        return output.value(&value);
    }
    let verdict = story::verdict_name(report.verdict);
    let reason = report.fault.as_ref().map(|fault| &fault.reason);
    let proof = match (report.self_consistent_only, report.depth) {
        _ if report.file_bytes == 0 && reason == Some(&FaultReason::Empty) => {
            "no record was ever written"
        }
        _ if report.records == 0 => "nothing is proved",
        (true, _) => "self-consistent only: no key was given, so nobody's signature is proved",
        (false, Depth::Every) => "every record is signed by the given key",
        (false, Depth::Last) => "the last one's signature vouches for all of them",
    };
    let anchor = if report.anchored {
        "anchored"
    } else {
        "not anchored"
    };
    let path = subject.path.display();
    output.line(&format!("{verdict}, {anchor}: {path}"));
    output.line(&format!("  {} records; {proof}", report.records));
    if let Some(fault) = &report.fault {
        output.line(&format!("  first fault: {fault}"));
    }
    if let Some(tail) = &report.tail {
        output.line(&format!(
            "  {} bytes are whole records; a torn tail of {} bytes follows, sha256 {}",
            report.whole_bytes(),
            tail.bytes,
            tail.sha256
        ));
    }
    output.line(&format!(
        "  whole file: {} bytes, sha256 {}",
        report.file_bytes, report.file_sha256
    ));
    evidence.tell(output);
}
