//! A run in which all went as it must, and each way in which one thing does not.

use governance::{EndCause, RecordedOutcome, ToolOutput};
use journal::{CreatedFile, Report, Stage, VerifyOptions, verify_run};
use model::{CallId, RelativePath, RunId};
use serde_json::{Value, json};

use super::*;
use crate::demo::attempts::ATTEMPTS;
use crate::demo::script::plan;

/// Everything that [`Facts`] borrows.
struct Run {
    end: RunEnd,
    evidence: Evidence,
    plan: Vec<Use>,
    lock: LockFile,
    canaries: Canaries,
    seen: Vec<Seen>,
    attempts: Vec<Attempt>,
    stdout: Vec<u8>,
    report: Option<Vec<u8>>,
    changed: Option<String>,
    witnessed: usize,
    child_left: bool,
}

impl Run {
    fn good() -> Self {
        let lock = LockFile::load(None).unwrap();
        let plan = plan(lock.lines);
        let report = lock.report.clone().into_bytes();
        Self {
            end: end(Outcome::Succeeded),
            evidence: evidence(&plan, &lock, &report),
            plan,
            canaries: Canaries::make().unwrap(),
            seen: vec![seen(), seen()],
            attempts: ATTEMPTS.map(|(name, _)| attempt(name)).into(),
            stdout: b"said".to_vec(),
            report: Some(report),
            changed: None,
            witnessed: 0,
            child_left: false,
            lock,
        }
    }

    fn failed(&self) -> Vec<String> {
        let facts = Facts {
            end: &self.end,
            evidence: &self.evidence,
            plan: &self.plan,
            lock: &self.lock,
            report: self.report.clone(),
            changed: self.changed.clone(),
            canaries: &self.canaries,
            seen: &self.seen,
            witnessed: self.witnessed,
            attempts: &self.attempts,
            stdout: &self.stdout,
            stderr: b"",
            child_left: self.child_left,
        };
        let checks = all(&facts).into_iter();
        checks
            .filter(|check| !check.is_ok())
            .map(|check| check.name)
            .collect()
    }
}

fn attempt(name: &str) -> Attempt {
    Attempt {
        what: name.to_owned(),
        got: "no".to_owned(),
        reached: false,
    }
}

fn seen() -> Seen {
    Seen {
        right_key: true,
        model: MODEL.to_owned(),
        body: b"{}".to_vec(),
    }
}

fn end(outcome: Outcome) -> RunEnd {
    RunEnd {
        run: RunId::new(),
        journal: "journal".into(),
        vkey: "key".to_owned(),
        launch: LaunchEnd::Ended(RecordedOutcome {
            parsed: None,
            breaks_schema: false,
            evidence_sha256: None,
            id: CallId::new("launch").unwrap(),
            tool: "command".to_owned(),
            call_sha256: Digest::of(b""),
            outcome,
            output: ToolOutput::default(),
            value: None,
            shown_bytes_max: None,
            created_files: Vec::new(),
            argv: Vec::new(),
            notes: std::collections::BTreeMap::new(),
            lack: None,
            timings: Vec::new(),
        }),
        story: None,
        is_shown: false,
        session: Ok(()),
    }
}

fn evidence(plan: &[Use], lock: &LockFile, report: &[u8]) -> Evidence {
    let input = Digest::of(lock.text.as_bytes());
    let descriptor = json!({"boundary": {
        "network": "none",
        "filesystem": {"read": {"input": {"path": LOCK, "sha256": input}}},
    }});
    let last = plan.len() - 1;
    let calls = plan.iter().enumerate().map(|(index, planned)| Call {
        id: match index == last {
            true => "2:s:replayed".to_owned(),
            false => format!("1:i:{index}"),
        },
        tool: planned.tool.to_owned(),
        policies: Vec::new(),
        descriptor: match planned.fate {
            Fate::RefusedAt(_) => Value::Null,
            _ => descriptor.clone(),
        },
        end: call_end(planned.fate, report),
        digest: None,
    });
    let launch = Call {
        id: "launch".to_owned(),
        tool: "command".to_owned(),
        policies: Vec::new(),
        descriptor: descriptor.clone(),
        end: call_end(Fate::Succeeds, report),
        digest: None,
    };
    Evidence {
        report: intact(),
        in_ledger: true,
        vkey: "key".to_owned(),
        path: "journal".into(),
        launch: Some(launch),
        calls: calls.collect(),
        requests: (2, 2),
        principals: vec!["demo".to_owned()],
        contained: true,
        completed: true,
        bytes: b"records".to_vec(),
    }
}

fn call_end(fate: Fate, report: &[u8]) -> CallEnd {
    let created = CreatedFile {
        path: RelativePath::new(REPORT).unwrap(),
        bytes: report.len() as u64,
        sha256: Digest::of(report),
    };
    let (status, created) = match fate {
        Fate::RefusedAt(stage) => {
            return CallEnd::Refused {
                stage,
                reason: "no".to_owned(),
            };
        }
        Fate::Succeeds => (OutcomeStatus::Succeeded, Vec::new()),
        Fate::Publishes => (OutcomeStatus::Succeeded, vec![created]),
        Fate::Fails => (OutcomeStatus::Failed, Vec::new()),
    };
    CallEnd::Settled {
        status,
        reason: None,
        millis: 1.0,
        created,
        worker: Some("worker".to_owned()),
    }
}

/// A report with another verdict than an empty file's.
fn intact() -> Report {
    let mut report = verify_run(&b""[..], &VerifyOptions::default()).unwrap();
    report.verdict = Verdict::Intact;
    report.self_consistent_only = false;
    report.fault = None;
    report
}

#[test]
fn a_run_in_which_all_went_as_it_must_passes() {
    assert_eq!(Run::good().failed(), Vec::<String>::new());
}

#[test]
fn every_planned_call_must_be_in_the_journal_with_its_fate() {
    for index in 0..Run::good().plan.len() {
        let mut run = Run::good();
        run.evidence.calls[index].end = CallEnd::Open;
        let check = run.plan[index].check;
        assert!(run.failed().iter().any(|name| name == check), "{check}");
    }
    let mut run = Run::good();
    let forbidden = run.plan.iter().position(|it| it.tool == "show_environment");
    run.evidence.calls[forbidden.unwrap()].end = call_end(Fate::Succeeds, b"");
    assert_eq!(run.failed(), ["a tool that a policy forbids is denied"]);
    let mut run = Run::good();
    run.evidence.calls[5].end = CallEnd::Refused {
        stage: Stage::Authorize,
        reason: "too late".to_owned(),
    };
    assert_eq!(run.failed(), ["a file below no ceiling is refused"]);
    let mut run = Run::good();
    let one_more = run.evidence.calls[0].clone();
    run.evidence.calls.push(one_more);
    assert_eq!(run.failed(), ["the journal holds these calls and no other"]);
}

/// One thing that goes wrong, and the only check that fails by it.
type Mishap = (&'static str, fn(&mut Run));

const MISHAPS: &[Mishap] = &[
    ("a call with an extra field runs nothing", |run| {
        run.evidence.calls[0].id = "2:s:extra".to_owned();
    }),
    ("it was made from exactly the input's bytes", |run| {
        run.evidence.calls[3].descriptor["boundary"]["filesystem"]["read"]["input"]["sha256"] =
            json!(Digest::of(b"other"));
    }),
    ("nothing else of the project was changed", |run| {
        run.changed = Some("a file".to_owned());
    }),
    ("the host's listeners saw nothing of the agent", |run| {
        run.witnessed = 1;
    }),
    ("no worker was given a network", |run| {
        run.evidence.calls[0].descriptor["boundary"]["network"] = json!("host");
    }),
    ("no key or secret is anywhere it must not be", |run| {
        run.stdout = format!("x{}y", run.canaries.key.expose()).into_bytes();
    }),
    ("no key or secret is anywhere it must not be", |run| {
        let (_, canary) = run.canaries.named()[3];
        run.seen[1].body = canary.expose().clone().into_bytes();
    }),
    ("no key or secret is anywhere it must not be", |run| {
        let (_, canary) = run.canaries.named()[1];
        run.evidence.bytes = canary.expose().clone().into_bytes();
    }),
    ("the agent tried everything, and reached nothing", |run| {
        run.attempts[2].reached = true;
    }),
    ("the agent tried everything, and reached nothing", |run| {
        run.attempts.remove(4);
    }),
    (
        "each model request was recorded before it was sent",
        |run| {
            run.seen.push(seen());
        },
    ),
    (
        "the provider saw the operator's key and model only",
        |run| {
            run.seen[0].right_key = false;
        },
    ),
    (
        "the provider saw the operator's key and model only",
        |run| {
            run.seen[0].model = "another".to_owned();
        },
    ),
    (
        "the journal is whole, and the project's key signed each record",
        |run| run.evidence.report.verdict = Verdict::Unterminated,
    ),
    (
        "the journal is whole, and the project's key signed each record",
        |run| run.evidence.report.verdict = Verdict::Truncated,
    ),
    (
        "the journal is whole, and the project's key signed each record",
        |run| run.evidence.report.self_consistent_only = true,
    ),
    ("the ledger knows the run's start and end", |run| {
        run.evidence.in_ledger = false;
    }),
    ("every record names the agent as its principal", |run| {
        run.evidence.principals.push("operator".to_owned());
    }),
    ("every record names the agent as its principal", |run| {
        run.evidence.contained = false;
    }),
    (
        "the agent was launched by a recorded call and ended by itself",
        |run| {
            let reason = "exited with code 1".to_owned();
            run.end = end(Outcome::Failed { reason });
        },
    ),
    (
        "the agent was launched by a recorded call and ended by itself",
        |run| run.evidence.launch = None,
    ),
    ("the run completed with a terminal record", |run| {
        run.end.session = Err(EndCause::Cancelled);
    }),
    ("the run completed with a terminal record", |run| {
        run.evidence.completed = false;
    }),
    ("every worker's removal was confirmed", |run| {
        if let CallEnd::Settled { worker, .. } = &mut run.evidence.calls[0].end {
            *worker = None;
        }
    }),
    ("no process is left", |run| run.child_left = true),
];

#[test]
fn each_mishap_fails_its_own_check_and_no_other() {
    for (check, happen) in MISHAPS {
        let mut run = Run::good();
        happen(&mut run);
        assert_eq!(run.failed(), [*check]);
    }
}

#[test]
fn a_replayed_call_that_ran_is_found() {
    let mut run = Run::good();
    let again = run.evidence.calls.last().unwrap().clone();
    run.evidence.calls.push(again);
    let failed = run.failed();
    assert!(failed.contains(&"a replayed id runs nothing".to_owned()));
}

#[test]
fn a_report_that_is_another_than_the_lock_file_makes_or_than_was_published_is_found() {
    let mut run = Run::good();
    run.report = Some(b"name\n".to_vec());
    assert_eq!(
        run.failed(),
        [
            "the receipt is of the file on disk",
            "it has a header and one right row for each package"
        ]
    );
    run.report = None;
    assert_eq!(run.failed().len(), 2);
}
