use std::time::Duration;

use worker::{Ended, Enforcement, Limit, OutputFile, Stream};

use super::*;

fn limits(enforcement: Enforcement) -> worker::Limits {
    let limit = |value| Limit { value, enforcement };
    worker::Limits {
        memory_mib: limit(64),
        cpu_milli: limit(1000),
        pids: limit(24),
        file_bytes: limit(1000),
        scratch_bytes: limit(1000),
        stream_bytes: limit(1000),
        time_ms: limit(1000),
        landlock: enforcement,
    }
}

/// What a probe that told `lines` and exited with 0 looks like.
fn seen(lines: &[&str]) -> Seen {
    let mut text = format!("{GREETING}\n");
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    Seen {
        ended: Ended {
            ending: Ending::Exited { code: 0 },
            limit: None,
            stdout: Stream {
                bytes: text.into_bytes(),
                over_limit: false,
            },
            stderr: Stream::default(),
            output: OutputFile::NotGranted,
            ran_for: Duration::ZERO,
            parser: None,
        },
        limits: limits(Enforcement::Enforced),
        removal: Ok(Duration::from_millis(3)),
        descendant_gone: None,
    }
}

fn ended_by(mut seen: Seen, ending: Ending, limit: Option<LimitReached>) -> Seen {
    seen.ended.ending = ending;
    seen.ended.limit = limit;
    seen
}

fn promised(mut seen: Seen, enforcement: Enforcement) -> Seen {
    seen.limits = limits(enforcement);
    seen
}

const JUDGES: [fn(&Seen) -> Judged; 7] = [facts, memory, pids, file, output, descendants, stop];

#[test]
fn nothing_holds_where_the_probe_did_not_run() {
    let mut silent = seen(&[]);
    silent.ended.stdout.bytes = Vec::new();
    silent.ended.stderr.bytes = b"no such file".to_vec();
    for judge in JUDGES {
        let (verdict, found) = judge(&silent);
        assert_eq!(verdict, Verdict::Fails);
        assert!(found.contains("no such file"), "{found}");
    }
}

#[test]
fn nothing_holds_where_the_removal_is_not_confirmed() {
    let mut left = seen(&["done"]);
    left.removal = Err("its processes: timed out".to_owned());
    left.descendant_gone = Some(true);
    for judge in JUDGES {
        assert_eq!(judge(&left).0, Verdict::Fails);
    }
}

#[test]
fn a_fact_that_must_not_be_fails_and_a_probe_that_is_cut_off_too() {
    assert_eq!(
        facts(&seen(&["= well", "done"])),
        (Verdict::Holds, "well".to_owned())
    );
    let breached = facts(&seen(&["= well", "! a route", "done"]));
    assert_eq!(breached, (Verdict::Fails, "a route".to_owned()));
    assert_eq!(facts(&seen(&["= well"])).0, Verdict::Fails);
}

#[test]
fn memory_holds_only_where_a_bound_was_met_as_it_is_promised() {
    let killed = || {
        ended_by(
            seen(&[]),
            Ending::Signaled {
                signal: libc::SIGKILL,
            },
            None,
        )
    };
    assert_eq!(memory(&killed()).0, Verdict::Holds);
    let limited = ended_by(
        seen(&[]),
        Ending::Exited { code: 1 },
        Some(LimitReached::Memory),
    );
    assert_eq!(memory(&limited).0, Verdict::Holds);
    assert_eq!(
        memory(&seen(&["= 40 MiB and no more are given", "done"])).0,
        Verdict::Holds
    );
    let took = [
        "= a reservation past all bounds is refused",
        "! it took 80 MiB",
        "done",
    ];
    assert_eq!(memory(&seen(&took)).0, Verdict::Fails);
    assert_eq!(
        memory(&promised(seen(&took), Enforcement::Partly)).0,
        Verdict::Partly
    );
    let unbounded = [
        "= it could reserve 8192 MiB, untouched",
        "! it took 80 MiB",
        "done",
    ];
    assert_eq!(
        memory(&promised(seen(&unbounded), Enforcement::Partly)).0,
        Verdict::Fails
    );
    assert_eq!(
        memory(&promised(killed(), Enforcement::NotEnforced)).0,
        Verdict::Fails
    );
    let crashed = ended_by(seen(&[]), Ending::Exited { code: 1 }, None);
    assert_eq!(memory(&crashed).0, Verdict::Fails);
}

#[test]
fn processes_and_files_past_their_bound_fail() {
    assert_eq!(
        pids(&seen(&["= 24 processes and no more are given", "done"])).0,
        Verdict::Holds
    );
    let many = ["! it has 41 processes", "done"];
    assert_eq!(pids(&seen(&many)).0, Verdict::Fails);
    assert_eq!(
        pids(&promised(seen(&many), Enforcement::Partly)).0,
        Verdict::Partly
    );
    assert_eq!(
        pids(&promised(seen(&["done"]), Enforcement::NotEnforced)).0,
        Verdict::Fails
    );
    assert_eq!(
        file(&seen(&["! it wrote a file of 1001 bytes", "done"])).0,
        Verdict::Fails
    );
    let ended = ended_by(seen(&[]), Ending::Exited { code: 153 }, None);
    assert_eq!(file(&ended).0, Verdict::Holds);
    let crashed = ended_by(seen(&[]), Ending::Exited { code: 1 }, None);
    assert_eq!(file(&crashed).0, Verdict::Fails);
}

#[test]
fn output_that_is_not_stopped_or_not_cut_fails() {
    let at = |bytes: usize, limit| {
        let mut seen = ended_by(seen(&[]), Ending::Stopped, limit);
        seen.ended.stdout.bytes.resize(bytes, b'.');
        output(&seen).0
    };
    assert_eq!(at(1000, Some(LimitReached::StreamBytes)), Verdict::Holds);
    assert_eq!(at(1001, Some(LimitReached::StreamBytes)), Verdict::Fails);
    assert_eq!(at(1000, None), Verdict::Fails);
}

#[test]
fn a_descendant_that_outlives_its_worker_or_never_was_fails() {
    let mut left = seen(&["= left", "done"]);
    assert_eq!(descendants(&left).0, Verdict::Fails);
    left.descendant_gone = Some(false);
    assert_eq!(descendants(&left).0, Verdict::Fails);
    left.descendant_gone = Some(true);
    assert_eq!(descendants(&left).0, Verdict::Holds);
}

#[test]
fn a_worker_that_is_gone_at_the_bound_holds_and_one_past_it_fails() {
    let at = |took| {
        let mut seen = ended_by(seen(&[]), Ending::Stopped, None);
        seen.removal = Ok(took);
        stop(&seen).0
    };
    assert_eq!(at(PROBE_REMOVAL_MAX), Verdict::Holds);
    assert_eq!(
        at(PROBE_REMOVAL_MAX + Duration::from_nanos(1)),
        Verdict::Fails
    );
    let natural = ended_by(seen(&["done"]), Ending::Exited { code: 0 }, None);
    assert_eq!(stop(&natural).0, Verdict::Fails);
}
