//! `symbi audit list`: all runs that the ledger knows.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

use journal::{
    Depth, LedgerRun, PublicKey, Report, Verdict, VerifyOptions, evidence_folder, journal_path,
    runs_folder, verify_file,
};
use model::Untrusted;
use serde_json::{Value, json};

use super::starting::{Starting, starting};
use super::verify::{Evidence, exit_of};
use super::{LedgerState, ledger, own_key, unreadable};
use crate::anchors;
use crate::args::Common;
use crate::dead_runs::{Runs, hint};
use crate::exit::{Exit, Failure};
use crate::open::OpenProject;
use crate::output::Output;
use crate::story;

/// One line of the list.
struct Row {
    run: LedgerRun,
    /// `None` for a run whose journal was moved away.
    report: Option<Report>,
    /// Of a strict list.
    evidence: Evidence,
    /// The command for its operator, where it needs one.
    next: Option<String>,
}

/// Runs the command.
pub(super) fn run(strict: bool, common: &Common, output: Output) -> Result<Exit, Failure> {
    let open = OpenProject::find(common.project.as_deref())?;
    let key = own_key(&open)?;
    let state = open.project.path().join(project::STATE_FOLDER);
    let ledger = ledger(&open, &key)?.unwrap_or_default();
    let runs = Runs::of(&open)?;
    let mut exit = Exit::Done;
    let mut rows = Vec::new();
    for run in ledger.runs {
        let mut row = row(&open, &state, run, strict)?;
        row.next = row.is_open().then(|| hint(&runs, row.run.run)).flatten();
        exit = exit.worst(row.exit());
        if !output.is_json() {
            output.line(&row.text(strict));
        }
        rows.push(row);
    }
    let starting = starting(&open, &runs, |run| {
        rows.iter().any(|row| row.run.run == run)
    })?;
    for run in &starting {
        exit = exit.worst(run.exit());
        if !output.is_json() {
            output.line(&run.text());
        }
    }
    let strays = if strict {
        strays(&state, &rows, &starting)?
    } else {
        Vec::new()
    };
    if !strays.is_empty() {
        exit = exit.worst(Exit::Unconfirmed);
    }
    let (fault, tail) = (ledger.fault, ledger.tail);
    let state = LedgerState { fault, tail };
    if output.is_json() {
        let mut value = json!({
            "runs": rows.iter().map(Row::value).collect::<Vec<_>>(),
            "starting": starting,
            "unknown_to_ledger": strays,
            "ledger_records": ledger.records,
        });
        state.add_to(&mut value);
        output.value(&value);
    } else if rows.is_empty()
        && starting.is_empty()
        && state.fault.is_none()
        && state.tail.is_none()
    {
        output.line("no run yet");
    }
    for stray in &strays {
        output.note(&format!("the ledger knows nothing of {stray}"));
    }
    Ok(exit.worst(state.tell(output)))
}

fn row(open: &OpenProject, state: &Path, run: LedgerRun, strict: bool) -> Result<Row, Failure> {
    let path = journal_path(state, run.run);
    let heads = match (&run.public_key, strict) {
        (Some(key), true) => anchors::heads(Some(open), &[], run.run, key)?,
        _ => Vec::new(),
    };
    let depth = if strict { Depth::Every } else { Depth::Last };
    let options = VerifyOptions {
        public_key: run.public_key.clone(),
        run: Some(run.run),
        ledger: Some(run.clone()),
        anchors: heads,
        depth,
    };
    let report = match verify_file(&path, &options) {
        Ok(report) => Some(report),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => match run.archived {
            Some(_) => None,
            None => Some(absent(&run)),
        },
        Err(error) => return Err(unreadable(&path, &error)),
    };
    let evidence = match &report {
        Some(report) if strict => Evidence::look(report, Some(&evidence_folder(state)))?,
        _ => Evidence::default(),
    };
    Ok(Row {
        run,
        report,
        evidence,
        next: None,
    })
}

fn absent(run: &LedgerRun) -> Report {
    let key: Option<&PublicKey> = run.public_key.as_ref();
    Report::absent(run, key)
}

/// Files beside the journals that belong to no run of the ledger: a run that never started, or
/// one whose ledger lines are gone.
fn strays(state: &Path, rows: &[Row], starting: &[Starting]) -> Result<Vec<String>, Failure> {
    let runs = rows.iter().map(|row| row.run.run);
    let known: BTreeSet<OsString> = runs
        .chain(starting.iter().map(|it| it.run))
        .filter_map(|run| Some(journal_path(state, run).file_name()?.to_owned()))
        .collect();
    let folder = runs_folder(state);
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(&folder, &error)),
    };
    let mut strays = Vec::new();
    for entry in entries {
        let name = entry
            .map_err(|error| unreadable(&folder, &error))?
            .file_name();
        if !known.contains(&name) {
            strays.push(Untrusted::new(name.to_string_lossy()).escaped());
        }
    }
    strays.sort();
    Ok(strays)
}

impl Row {
    fn verdict(&self) -> &'static str {
        self.report
            .as_ref()
            .map_or("archived", |report| story::verdict_name(report.verdict))
    }

    /// A run that goes on is nothing for its operator to do.
    fn exit(&self) -> Exit {
        let of_verdict = match &self.report {
            Some(report) if report.verdict != Verdict::Live => exit_of(report, false),
            _ => Exit::Done,
        };
        of_verdict.worst(self.evidence.exit())
    }

    /// Whether its journal is here and does not tell that the run completed.
    fn is_open(&self) -> bool {
        let report = self.report.as_ref();
        report.is_some_and(|report| report.completed != Some(true))
    }

    fn records(&self) -> u64 {
        match (&self.report, &self.run.archived) {
            (Some(report), _) => report.records,
            (None, Some(archived)) => archived.checkpoint.size,
            (None, None) => 0,
        }
    }

    fn text(&self, strict: bool) -> String {
        let anchored = match &self.report {
            Some(report) if strict && report.anchored => ", anchored",
            Some(_) if strict => ", not anchored",
            _ => "",
        };
        let mut text = format!(
            "{}  {}  {}{anchored}  {} records",
            self.run.run,
            self.run.time,
            self.verdict(),
            self.records()
        );
        if let Some(fault) = self.report.as_ref().and_then(|it| it.fault.as_ref()) {
            text.push_str(&format!("; {fault}"));
        }
        if self.evidence.exit() != Exit::Done {
            text.push_str("; evidence is missing or changed");
        }
        if let Some(next) = &self.next {
            text.push_str(&format!("\n  it waits for you: {next}"));
        }
        text
    }

    fn value(&self) -> Value {
        let report = self.report.as_ref();
        json!({
            "run": self.run.run,
            "time": self.run.time,
            "verdict": self.verdict(),
            "records": self.records(),
            "anchored": report.map(|it| it.anchored),
            "fault": report.and_then(|it| it.fault.as_ref()),
            "evidence": self.evidence,
            "archived": self.run.archived,
            "next": self.next,
            "public_key": self.run.public_key.as_ref().map(PublicKey::vkey),
        })
    }
}
