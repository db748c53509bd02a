//! `symbi audit show`: a run, or one call of it, as a story.

use std::io::BufReader;

use journal::{CallFilter, Depth, Record, read_run};
use serde_json::json;

use super::subject::{Asked, Subject};
use super::verify::{Evidence, exit_of, print};
use crate::args::Common;
use crate::exit::{Exit, Failure};
use crate::files::open_regular;
use crate::output::Output;
use crate::story;

/// Runs the command.
pub(super) fn run(
    target: &str,
    call: Option<&str>,
    common: &Common,
    output: Output,
) -> Result<Exit, Failure> {
    let asked = Asked {
        target,
        ..Asked::default()
    };
    let subject = Subject::find(&asked, common)?;
    let report = subject.verify(Depth::Every)?;
    let evidence = Evidence::look(&report, subject.evidence_folder().as_deref())?;
    let file = match open_regular(&subject.path) {
        Ok(file) => file,
        // Its verdict says that it is gone.
        Err(_) if report.records == 0 && report.file_bytes == 0 => {
            print(&report, &subject, &evidence, output);
            let exit = exit_of(&report, false);
            return Ok(exit.worst(subject.ledger_state.tell(output)));
        }
        Err(error) => return Err(subject.unreadable(&error)),
    };
    let mut filter = call.map(CallFilter::new);
    let (mut shown, mut told) = (Vec::new(), 0_u64);
    for record in read_run(BufReader::new(file), subject.run, subject.key.as_ref()) {
        match record {
            Ok(record) => {
                if !filter.as_mut().is_none_or(|it| it.owns(&record.event)) {
                    continue;
                }
                told += 1;
                tell(record, &mut shown, output);
            }
            Err(error) => {
                output.note(&format!("the story ends here: {error}"));
                break;
            }
        }
    }
    if let (Some(call), 0) = (call, told) {
        let call = model::Untrusted::new(call).escaped();
        return Err(
            Failure::new(Exit::Usage, format!("the run has no call `{call}`"))
                .help(format!("its calls are in: symbi audit show {target}")),
        );
    }
    if output.is_json() {
        let mut value = json!({ "report": report, "records": shown, "evidence": evidence });
        subject.ledger_state.add_to(&mut value);
        output.value(&value);
    } else {
        print(&report, &subject, &evidence, output);
    }
    let exit = exit_of(&report, false).worst(evidence.exit());
    Ok(exit.worst(subject.ledger_state.tell(output)))
}

fn tell(record: Record, shown: &mut Vec<Record>, output: Output) {
    if output.is_json() {
        shown.push(record);
    } else {
        for line in story::lines(&record) {
            output.line(&line);
        }
    }
}
