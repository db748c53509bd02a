//! `symbi audit verify`: one journal's verdict.

use journal::{Depth, FaultReason, Report, Verdict};

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
    print(&report, &subject, output);
    let exit = exit_of(&report, args.require_anchor);
    Ok(exit.worst(subject.ledger_state.tell(output)))
}

/// The exit code of a verdict.
pub(super) fn exit_of(report: &Report, require_anchor: bool) -> Exit {
    match report.verdict {
        Verdict::Truncated | Verdict::Forked | Verdict::Corrupt => Exit::Storage,
        Verdict::Unterminated => Exit::Unconfirmed,
        Verdict::Intact | Verdict::Live if report.self_consistent_only => Exit::Unconfirmed,
        Verdict::Intact | Verdict::Live if require_anchor && !report.anchored => Exit::Unconfirmed,
        Verdict::Intact | Verdict::Live => Exit::Done,
    }
}

/// Both halves of the verdict, and what a later recovery is bound to.
pub(super) fn print(report: &Report, subject: &Subject, output: Output) {
    if output.is_json() {
        let mut value = serde_json::to_value(report).unwrap_or_default();
        if let Some(fields) = value.as_object_mut() {
            fields.insert("whole_bytes".to_owned(), report.whole_bytes().into());
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
}
