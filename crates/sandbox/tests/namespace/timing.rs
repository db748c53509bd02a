//! No interval shows in a worker's time; and, on demand, how long one takes.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::host::{Job, finish, start, tier};

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[test]
fn no_interval_shows_in_the_time_of_a_short_command() {
    let mut tier = tier();
    let job = Job::new(&["sleep", "0.001"]);
    let mut times: Vec<Duration> = (0..9)
        .map(|_| {
            let began = Instant::now();
            finish(start(&mut tier, &job).unwrap());
            began.elapsed()
        })
        .collect();
    // Two busy cores and a debug build: generous, but below any usual interval on top of it.
    assert!(median(&mut times) < Duration::from_millis(60), "{times:?}");
}

#[test]
fn an_owner_is_not_woken_without_a_cause() {
    let mut tier = tier();
    for script in [
        "sleep 0.3",
        "exec >&- 2>&-; sleep 0.3",
        "echo x; exec 2>&-; sleep 0.3; echo y",
    ] {
        let mut running = start(&mut tier, &Job::sh(script)).unwrap();
        let mut woken = 0;
        loop {
            let mut polled = vec![];
            running.poll_descriptors(&mut polled);
            rustix::event::poll(&mut polled, None).unwrap();
            drop(polled);
            woken += 1;
            if running.advance().is_some() {
                break;
            }
        }
        running.remove().unwrap();
        assert!(woken <= 6, "{script}: {woken}");
    }
}

/// Medians in a tight loop, and after a pause: joining a group of version 1 then waits for a
/// grace period of the kernel.
#[test]
#[ignore = "needs a quiet machine: run ./test"]
fn measure() {
    for (pause, rounds) in [(0, 220), (60, 60)] {
        let mut tier = tier();
        let job = Job::new(&["true"]);
        let (mut bare, mut whole, mut starts) = (vec![], vec![], vec![]);
        for round in 0..rounds {
            std::thread::sleep(Duration::from_millis(pause));
            let began = Instant::now();
            let mut command = Command::new("/usr/bin/true");
            command
                .env_clear()
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            assert!(command.status().unwrap().success());
            let alone = began.elapsed();
            let spec = job.spec(&tier);
            let began = Instant::now();
            let running = worker::Tier::start(&mut tier, spec).unwrap();
            let started = began.elapsed();
            finish(running);
            if round >= 10 {
                bare.push(alone);
                starts.push(started);
                whole.push(began.elapsed());
            }
        }
        let least = whole.iter().min().copied().unwrap();
        println!(
            "pause {pause} ms: bare {:?}; worker {:?} (least {least:?}), until started {:?}",
            median(&mut bare),
            median(&mut whole),
            median(&mut starts)
        );
    }
}
