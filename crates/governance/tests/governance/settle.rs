//! What an ending means: a table over everything that can be true of one.

use std::time::Duration;

use governance::{DispatchedCall, Outcome, RecordedOutcome, SettledCall, StopCause};
use journal::{Event, JournalError, OutcomeStatus, RunEnded, Verdict, VerifyOptions, verify_run};
use model::Digest;
use serde_json::json;
use testkit::executor::{ECHO, FAIL, JSON};
use testkit::tier::{Happened, Play, PlayedOutput};
use worker::{Ending, LimitReached};

use crate::support::key;
use crate::world::World;

const ENDINGS: [Ending; 5] = [
    Ending::Exited { code: 0 },
    Ending::Exited { code: 3 },
    Ending::Signaled { signal: 9 },
    Ending::Stopped,
    Ending::Lost,
];
const LIMITS: [Option<LimitReached>; 5] = [
    None,
    Some(LimitReached::Memory),
    Some(LimitReached::Cpu),
    Some(LimitReached::FileBytes),
    Some(LimitReached::StreamBytes),
];
const STOPS: [Option<StopCause>; 5] = [
    None,
    Some(StopCause::TimeLimit {
        limit: Duration::from_secs(2),
    }),
    Some(StopCause::Owner),
    Some(StopCause::Lifetime),
    Some(StopCause::Journal),
];

/// One row: what was true of the end.
#[derive(Debug, Clone, Copy)]
struct Row {
    ending: Ending,
    limit: Option<LimitReached>,
    stopped: Option<StopCause>,
    removed: bool,
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for ending in ENDINGS {
        for limit in LIMITS {
            for stopped in STOPS {
                for removed in [true, false] {
                    rows.push(Row {
                        ending,
                        limit,
                        stopped,
                        removed,
                    });
                }
            }
        }
    }
    rows
}

impl Row {
    fn play(self) -> Play {
        let mut play = Play::ends(self.ending).stdout("out").stderr("err");
        play.limit = self.limit;
        if !self.removed {
            play = play.removal_fails("it is stuck");
        }
        play
    }

    /// The table itself, for work in a worker without egress that was granted no output.
    fn status(self) -> OutcomeStatus {
        if !self.removed || self.ending == Ending::Lost {
            return OutcomeStatus::Unconfirmed;
        }
        let success = Ending::Exited { code: 0 };
        if self.ending == success && self.limit.is_none() && self.stopped.is_none() {
            return OutcomeStatus::Succeeded;
        }
        OutcomeStatus::Failed
    }

    /// The same for work in process: what was cut short there may have done anything.
    fn status_in_process(self) -> OutcomeStatus {
        let by_itself = matches!(self.ending, Ending::Exited { .. });
        match self.status() {
            OutcomeStatus::Failed if !by_itself => OutcomeStatus::Unconfirmed,
            other => other,
        }
    }
}

fn run(world: &mut World, play: Play, tool: &str, content: &str) -> DispatchedCall {
    world.tier.next_runs(play);
    let prepared = world.prepare(tool, json!({ "content": content }));
    world
        .record(prepared)
        .dispatch(&mut world.executor)
        .unwrap()
}

fn settle(mut call: DispatchedCall, stopped: Option<StopCause>) -> SettledCall {
    let ended = call.running().advance().unwrap();
    call.settle(ended, stopped)
}

fn finish(world: &mut World, play: Play, stopped: Option<StopCause>) -> RecordedOutcome {
    let call = run(world, play, FAIL, "");
    settle(call, stopped).record().unwrap()
}

#[test]
fn every_end_of_a_workers_call_has_the_outcome_of_the_table() {
    let mut world = World::new();
    for (number, row) in rows().into_iter().enumerate() {
        world.renew();
        let outcome = finish(&mut world, row.play(), row.stopped);
        assert_eq!(outcome.outcome.status(), row.status(), "{row:?}");
        assert_eq!(outcome.output.stdout, b"out");
        assert_eq!(outcome.output.limit, row.limit.map(LimitReached::as_str));
        let Some(Event::CallSettled(event)) = world.events().pop() else {
            panic!("no record")
        };
        assert_eq!(event.outcome.status, row.status(), "{row:?}");
        assert_eq!(
            event.worker,
            row.removed.then(|| format!("fake-{number}")),
            "{row:?}"
        );
        assert_eq!(event.stderr.sha256, Digest::of(b"err"));
        assert!(!event.effect_happened && event.created_files.is_empty());
        let exit_code = match row.ending {
            Ending::Exited { code } => Some(i64::from(code)),
            _ => None,
        };
        assert_eq!(event.outcome.exit_code, exit_code);
    }
}

#[test]
fn every_end_of_a_call_with_an_output_publishes_after_a_clean_success_only() {
    let outputs = [
        PlayedOutput::Untouched,
        PlayedOutput::Written(b"text".to_vec()),
        PlayedOutput::Unusable("it is a link".to_owned()),
        PlayedOutput::Nothing,
    ];
    let mut world = World::new();
    for (number, row) in rows().into_iter().enumerate() {
        for (which, output) in outputs.iter().enumerate() {
            let name = format!("{number}-{which}");
            world.tier.next_runs(row.play().output(output.clone()));
            let prepared = world.prepare_create(&name);
            let call = world
                .record(prepared)
                .dispatch(&mut world.executor)
                .unwrap();
            let outcome = settle(call, row.stopped).record().unwrap();
            let usable = matches!(output, PlayedOutput::Untouched | PlayedOutput::Written(_));
            let expected = match row.status() {
                OutcomeStatus::Succeeded if !usable => OutcomeStatus::Failed,
                other => other,
            };
            assert_eq!(outcome.outcome.status(), expected, "{row:?} {output:?}");
            let published = expected == OutcomeStatus::Succeeded;
            assert_eq!(world.out(&name).is_some(), published, "{row:?} {output:?}");
            assert_eq!(outcome.created_files.len(), usize::from(published));
            assert_eq!(world.candidates(), 0, "{row:?} {output:?}");
            if expected == OutcomeStatus::Unconfirmed {
                world.renew();
            }
        }
    }
}

#[test]
fn work_in_process_that_was_cut_short_is_unconfirmed() {
    let mut world = World::new();
    for row in rows() {
        world.renew();
        let call = run(&mut world, row.play(), ECHO, "");
        let outcome = settle(call, row.stopped).record().unwrap();
        assert_eq!(outcome.outcome.status(), row.status_in_process(), "{row:?}");
        let Some(Event::CallSettled(event)) = world.events().pop() else {
            panic!("no record")
        };
        assert!(event.effect_happened, "nothing confined what it did");
    }
}

#[test]
fn the_reason_says_the_limit_the_stop_the_code_or_the_doubt() {
    let limit = Duration::from_millis(1500);
    let time = Some(StopCause::TimeLimit { limit });
    let rows = [
        (Play::exits(3), None, "exited with code 3"),
        (
            Play::ends(Ending::Signaled { signal: 11 }),
            None,
            "signal 11",
        ),
        (Play::ends(Ending::Stopped), time, "time limit of 1.5 s"),
        (Play::exits(0), time, "time limit of 1.5 s"),
        (Play::exits(0), Some(StopCause::Owner), "session's owner"),
        (
            Play::ends(Ending::Stopped).limit(LimitReached::Memory),
            time,
            "`memory_mib`",
        ),
        (
            Play::ends(Ending::Lost).limit(LimitReached::Memory),
            None,
            "lost sight",
        ),
        (
            Play::ends(Ending::Lost).removal_fails("stuck"),
            None,
            "not confirmed: stuck",
        ),
    ];
    for (play, stopped, expected) in rows {
        let outcome = finish(&mut World::new(), play, stopped).outcome;
        let reason = outcome.reason().unwrap();
        assert!(reason.contains(expected), "{reason}");
    }
}

#[test]
fn a_stream_over_its_limit_is_no_success_even_if_nobody_says_limit() {
    let mut world = World::new();
    let mut call = run(&mut world, Play::exits(0), FAIL, "");
    let mut ended = call.running().advance().unwrap();
    ended.stderr.over_limit = true;
    let outcome = call.settle(ended, None).record().unwrap();
    assert_eq!(outcome.outcome.status(), OutcomeStatus::Failed);
    assert_eq!(outcome.output.limit, Some("stream_bytes"));
}

#[test]
fn removal_comes_before_the_outcome_and_happens_once() {
    let mut world = World::new();
    finish(&mut world, Play::exits(0), None);
    let log = world.tier.log();
    let ended = log
        .iter()
        .position(|it| *it == Happened::Ended { worker: 0 })
        .unwrap();
    assert_eq!(log[ended + 1..], [Happened::Removed { worker: 0 }]);
}

#[test]
fn an_output_that_promises_json_is_json_or_the_call_failed() {
    for (said, fine) in [
        ("{\"a\":[1,2]}", true),
        ("1", true),
        ("", false),
        ("{\"a\":1,\"a\":2}", false),
        ("{} trailing", false),
        ("nope", false),
    ] {
        let mut world = World::new();
        let call = run(&mut world, Play::exits(0).stdout(said), JSON, "");
        let outcome = settle(call, None).record().unwrap();
        let expected = if fine {
            OutcomeStatus::Succeeded
        } else {
            OutcomeStatus::Failed
        };
        assert_eq!(outcome.outcome.status(), expected, "{said}");
        if let Some(reason) = outcome.outcome.reason() {
            assert!(reason.contains("JSON"), "{reason}");
            assert!(reason.len() <= governance::limits::REASON_BYTES_MAX);
        }
    }
    // What failed for another reason keeps that reason.
    let call = run(&mut World::new(), Play::exits(2).stdout("nope"), JSON, "");
    let outcome = settle(call, None);
    assert_eq!(outcome.outcome().reason(), Some("exited with code 2"));
}

#[test]
fn a_published_file_has_its_receipt_in_the_outcome_and_in_the_record() {
    let mut world = World::new();
    let prepared = world.prepare_create("a");
    let call = world
        .record(prepared)
        .dispatch(&mut world.executor)
        .unwrap();
    let outcome = settle(call, None).record().unwrap();
    assert_eq!(outcome.outcome, Outcome::Succeeded);
    assert_eq!(world.out("a").unwrap(), b"text");
    let [created] = outcome.created_files.as_slice() else {
        panic!("no receipt")
    };
    assert_eq!((created.bytes, created.sha256), (4, Digest::of(b"text")));
    let Some(Event::CallSettled(event)) = world.events().pop() else {
        panic!("no record")
    };
    assert!(event.effect_happened);
    assert_eq!(event.created_files[0].sha256, created.sha256);
    let publication = ["FilePublicationPrepared", "FilePublicationFinished"];
    assert_eq!(world.kinds()[2..4], publication);
}

#[test]
fn an_output_that_somebody_else_made_meanwhile_stays_theirs() {
    let mut world = World::new();
    let (first, second) = (world.prepare_create("a"), world.prepare_create("a"));
    let call = world.record(first).dispatch(&mut world.executor).unwrap();
    settle(call, None).record().unwrap();
    world.tier.next_runs(Play::exits(0).writes("second"));
    let call = world.record(second).dispatch(&mut world.executor).unwrap();
    let outcome = settle(call, None).record().unwrap();
    assert_eq!(outcome.outcome.status(), OutcomeStatus::Failed);
    assert!(outcome.created_files.is_empty());
    assert_eq!(world.out("a").unwrap(), b"text");
    assert_eq!(world.candidates(), 0);
}

/// Takes one creating call to its end with the journal's append or sync `step` failing.
fn create_with_fault(step: u32, sync: bool) -> (World, bool, SettledCallEnd) {
    let mut world = World::new();
    {
        let mut disk = world.store.disk.lock().unwrap();
        (disk.fail_append, disk.fail_sync) = if sync {
            (None, Some(step))
        } else {
            (Some(step), None)
        };
    }
    let prepared = world.prepare_create("a");
    let call = world
        .record(prepared)
        .dispatch(&mut world.executor)
        .unwrap();
    let settled = settle(call, None);
    let journal_failed = settled.journal_failed();
    let status = settled.outcome().status();
    let error = settled.record().err().map(|failed| failed.1);
    (world, journal_failed, SettledCallEnd { status, error })
}

struct SettledCallEnd {
    status: OutcomeStatus,
    error: Option<JournalError>,
}

#[test]
fn a_journal_that_fails_during_publication_leaves_the_outcome_unconfirmed() {
    // Append 1 is the pre-effect record, 2 the intent, 3 its end, 4 the outcome.
    for (step, published) in [(2, false), (3, true)] {
        for sync in [false, true] {
            let (world, journal_failed, end) = create_with_fault(step, sync);
            assert!(journal_failed, "{step}");
            assert_eq!(end.status, OutcomeStatus::Unconfirmed, "{step}");
            assert!(matches!(end.error, Some(JournalError::Failed)));
            assert_eq!(world.out("a").is_some(), published);
            assert_eq!(
                world.candidates(),
                usize::from(!published),
                "kept for recovery"
            );
        }
    }
}

#[test]
fn an_outcome_that_cannot_be_recorded_is_handed_back_with_the_error() {
    for sync in [false, true] {
        let (world, journal_failed, end) = create_with_fault(4, sync);
        assert!(!journal_failed && world.journal.failed());
        assert_eq!(end.status, OutcomeStatus::Succeeded);
        assert!(matches!(end.error, Some(JournalError::Store(_))));
        assert_eq!(world.out("a").unwrap(), b"text");
    }
}

#[test]
fn the_outcome_and_the_end_of_a_one_shot_run_are_one_write() {
    let mut world = World::new();
    let call = run(&mut world, Play::exits(0), FAIL, "");
    let before = world.store.disk.lock().unwrap().appends;
    let end = RunEnded {
        completed: true,
        cause: None,
        calls: 1,
    };
    settle(call, None).record_and_end(end).unwrap();
    assert_eq!(world.store.disk.lock().unwrap().appends, before + 1);
    let public_key = Some(key().public().clone());
    let options = VerifyOptions {
        public_key,
        ..VerifyOptions::default()
    };
    let report = verify_run(world.bytes().as_slice(), &options).unwrap();
    assert_eq!(report.verdict, Verdict::Intact, "{report:?}");
    assert_eq!(report.completed, Some(true));
}

#[test]
fn a_run_cannot_complete_with_an_unconfirmed_outcome() {
    let mut world = World::new();
    let call = run(&mut world, Play::ends(Ending::Lost), FAIL, "");
    let end = RunEnded {
        completed: true,
        cause: None,
        calls: 1,
    };
    let (outcome, error) = *settle(call, None).record_and_end(end).unwrap_err();
    assert_eq!(outcome.outcome.status(), OutcomeStatus::Unconfirmed);
    assert!(matches!(error, JournalError::OutOfOrder { .. }), "{error}");
}

#[test]
fn a_dispatched_call_that_is_dropped_kills_its_worker_and_forbids_more() {
    let mut world = World::new();
    drop(run(&mut world, Play::runs_on(), FAIL, ""));
    assert!(world.tier.log().contains(&Happened::Dropped { worker: 0 }));
    let refused = world.journal.lend(Digest::of(b"next"));
    assert!(matches!(refused, Err(JournalError::EffectForbidden { .. })));
}

#[test]
fn remarks_argv_and_identity_come_back_with_the_outcome() {
    let mut world = World::new();
    let call = run(&mut world, Play::exits(0), FAIL, "x");
    let digest = call.call_sha256();
    let outcome = settle(call, None).record().unwrap();
    assert_eq!((outcome.id.as_str(), outcome.tool.as_str()), ("1", FAIL));
    assert_eq!(outcome.argv, ["fail", "x"]);
    assert_eq!(outcome.call_sha256, digest);
}
