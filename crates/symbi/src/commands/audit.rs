//! `symbi audit`: verdicts on journals, and their story.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use journal::{
    LedgerRun, PublicKey, Report, Verdict, VerifyOptions, journal_path, ledger_path, read_ledger,
    read_run, verify_file,
};
use model::RunId;

use crate::args::{AuditCommand, Common};
use crate::exit::{Exit, Failure};
use crate::govern::project_key;
use crate::open::OpenProject;
use crate::output::Output;
use crate::story;

/// Runs the command.
pub(crate) fn run(command: &AuditCommand, common: &Common) -> Result<Exit, Failure> {
    let output = Output::new(common.json);
    match command {
        AuditCommand::List => list(common, output),
        AuditCommand::Verify {
            target,
            public_key,
            run_id,
            require_anchor,
        } => {
            let asked = Asked {
                target,
                public_key: public_key.as_deref(),
                run: *run_id,
            };
            verify(&asked, *require_anchor, common, output)
        }
        AuditCommand::Show { target } => show(target, common, output),
        AuditCommand::Key => key(common, output),
    }
}

struct Asked<'a> {
    target: &'a str,
    public_key: Option<&'a str>,
    run: Option<RunId>,
}

/// The file that `target` names, and the run where it names one by its id.
fn file_of(target: &str, common: &Common) -> Result<(PathBuf, Option<RunId>), Failure> {
    let Ok(run) = target.parse::<RunId>() else {
        return Ok((target.into(), None));
    };
    let open = OpenProject::find(common.project.as_deref())?;
    let state = open.project.path().join(project::STATE_FOLDER);
    Ok((journal_path(&state, run), Some(run)))
}

fn verify(
    asked: &Asked<'_>,
    require_anchor: bool,
    common: &Common,
    output: Output,
) -> Result<Exit, Failure> {
    let (path, named) = file_of(asked.target, common)?;
    let own = OpenProject::find(common.project.as_deref()).ok();
    let public_key = match asked.public_key {
        Some(text) => Some(parse_key(text)?),
        None if named.is_some() => own.as_ref().map(own_key).transpose()?,
        None => None,
    };
    let run = named.or(asked.run);
    let ledger = match (run, &own, &public_key) {
        (Some(run), Some(open), Some(key)) if named.is_some() => ledger_run(open, run, key)?,
        _ => None,
    };
    let options = VerifyOptions {
        public_key,
        run,
        ledger,
        ..VerifyOptions::default()
    };
    let report = verify_file(&path, &options).map_err(|error| {
        let shown = path.display();
        Failure::new(
            Exit::Storage,
            format!("the journal `{shown}` cannot be read: {error}"),
        )
        .help("name a run id of this project (symbi audit list) or a journal file")
    })?;
    print_report(&report, &path, output);
    Ok(exit_of(&report, require_anchor))
}

/// The exit code of a verdict.
fn exit_of(report: &Report, require_anchor: bool) -> Exit {
    match report.verdict {
        Verdict::Truncated | Verdict::Forked | Verdict::Corrupt => Exit::Storage,
        Verdict::Unterminated => Exit::Unconfirmed,
        Verdict::Intact | Verdict::Live if report.self_consistent_only => Exit::Unconfirmed,
        Verdict::Intact | Verdict::Live if require_anchor && !report.anchored => Exit::Unconfirmed,
        Verdict::Intact | Verdict::Live => Exit::Done,
    }
}

fn print_report(report: &Report, path: &Path, output: Output) {
    if output.is_json() {
        return output.value(&serde_json::to_value(report).unwrap_or_default());
    }
    let verdict = story::verdict_name(report.verdict);
    let proof = if report.self_consistent_only {
        "self-consistent only: no key was given, so nobody's signature is proved"
    } else {
        "every record is signed by the given key"
    };
    let anchor = if report.anchored {
        "anchored"
    } else {
        "not anchored"
    };
    output.line(&format!("{verdict}, {anchor}: {}", path.display()));
    output.line(&format!("  {} records; {proof}", report.records));
    if let Some(fault) = &report.fault {
        output.line(&format!("  first fault: {fault}"));
    }
    if let Some(tail) = &report.tail {
        output.line(&format!(
            "  torn tail: {} bytes, sha256 {}",
            tail.bytes, tail.sha256
        ));
    }
}

/// A key as text, hex, or a file that holds either.
fn parse_key(text: &str) -> Result<PublicKey, Failure> {
    let from_file = std::fs::metadata(text)
        .ok()
        .filter(|found| found.is_file() && found.len() <= 4096)
        .and_then(|_| std::fs::read_to_string(text).ok());
    let text = from_file.as_deref().unwrap_or(text);
    PublicKey::parse(text.trim()).map_err(|error| {
        Failure::of(Exit::Usage, &error)
            .help("give the line that `symbi audit key` prints, 64 hex digits, or a file with one")
    })
}

pub(crate) fn own_key(open: &OpenProject) -> Result<PublicKey, Failure> {
    let state = open
        .project
        .state()
        .map_err(|error| Failure::of(Exit::Storage, &error))?;
    let vkey = project_key(open, &state)?.vkey();
    PublicKey::parse(&vkey).map_err(|error| Failure::of(Exit::Storage, &error))
}

fn ledger(open: &OpenProject, key: &PublicKey) -> Result<Option<journal::LedgerReport>, Failure> {
    let path = ledger_path(&open.project.path().join(project::STATE_FOLDER));
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Failure::new(
                Exit::Storage,
                format!("the ledger cannot be read: {error}"),
            ));
        }
    };
    read_ledger(BufReader::new(file), Some(key))
        .map(Some)
        .map_err(|error| Failure::new(Exit::Storage, format!("the ledger cannot be read: {error}")))
}

pub(crate) fn ledger_run(
    open: &OpenProject,
    run: RunId,
    key: &PublicKey,
) -> Result<Option<LedgerRun>, Failure> {
    Ok(ledger(open, key)?.and_then(|report| report.runs.into_iter().find(|it| it.run == run)))
}

fn list(common: &Common, output: Output) -> Result<Exit, Failure> {
    let open = OpenProject::find(common.project.as_deref())?;
    let key = own_key(&open)?;
    let Some(ledger) = ledger(&open, &key)? else {
        if output.is_json() {
            output.value(&serde_json::json!({ "runs": [] }));
        } else {
            output.line("no run yet");
        }
        return Ok(Exit::Done);
    };
    let state = open.project.path().join(project::STATE_FOLDER);
    let mut worst = Exit::Done;
    let mut rows = Vec::new();
    for run in &ledger.runs {
        let report = report_of(&state, run, &key)?;
        worst = worst.worst(exit_of(&report, false));
        let verdict = story::verdict_name(report.verdict);
        if output.is_json() {
            rows.push(serde_json::json!({
                "run": run.run, "time": run.time, "verdict": verdict, "records": report.records
            }));
        } else {
            output.line(&format!(
                "{}  {}  {verdict}  {} records",
                run.run, run.time, report.records
            ));
        }
    }
    if output.is_json() {
        output.value(&serde_json::json!({ "runs": rows }));
    }
    if let Some(fault) = &ledger.fault {
        output.note(&format!("the ledger is not what was signed: {fault}"));
        worst = worst.worst(Exit::Storage);
    }
    Ok(worst)
}

fn report_of(state: &Path, run: &LedgerRun, key: &PublicKey) -> Result<Report, Failure> {
    let path = journal_path(state, run.run);
    let options = VerifyOptions {
        public_key: Some(key.clone()),
        run: Some(run.run),
        ledger: Some(run.clone()),
        ..VerifyOptions::default()
    };
    match verify_file(&path, &options) {
        Ok(report) => Ok(report),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(Report::absent(run, Some(key)))
        }
        Err(error) => Err(Failure::new(
            Exit::Storage,
            format!("the journal `{}` cannot be read: {error}", path.display()),
        )),
    }
}

fn show(target: &str, common: &Common, output: Output) -> Result<Exit, Failure> {
    let (path, named) = file_of(target, common)?;
    let key = match named {
        Some(_) => Some(own_key(&OpenProject::find(common.project.as_deref())?)?),
        None => None,
    };
    let unreadable = |error: &dyn std::fmt::Display| {
        let shown = path.display();
        Failure::new(
            Exit::Storage,
            format!("the journal `{shown}` cannot be read: {error}"),
        )
    };
    let options = VerifyOptions {
        public_key: key,
        run: named,
        ..VerifyOptions::default()
    };
    let report = verify_file(&path, &options).map_err(|error| unreadable(&error))?;
    let file = File::open(&path).map_err(|error| unreadable(&error))?;
    let records = read_run(
        BufReader::new(file),
        options.run,
        options.public_key.as_ref(),
    );
    for record in records {
        match record {
            Ok(record) if output.is_json() => {
                output.value(&serde_json::to_value(&record).unwrap_or_default());
            }
            Ok(record) => {
                for line in story::lines(&record) {
                    output.line(&line);
                }
            }
            Err(error) => {
                output.note(&format!("the story ends here: {error}"));
                break;
            }
        }
    }
    if !output.is_json() {
        print_report(&report, &path, output);
    }
    Ok(exit_of(&report, false))
}

fn key(common: &Common, output: Output) -> Result<Exit, Failure> {
    let open = OpenProject::find(common.project.as_deref())?;
    let key = own_key(&open)?;
    if output.is_json() {
        output.value(&serde_json::json!({ "vkey": key.vkey(), "hex": key.to_hex() }));
    } else {
        output.line(&key.vkey());
    }
    Ok(Exit::Done)
}
