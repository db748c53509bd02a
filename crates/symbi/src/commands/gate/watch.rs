//! `symbi gate watch`: held calls of all runs as they come and go, also of runs that start later.

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use approval::HeldId;
use approval::wire::{Listing, Response};
use model::RunId;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use serde_json::json;

use crate::commands::gate::client::{AskError, Gates, RunGate};
use crate::commands::gate::{as_json, as_line, safe};
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Buffer of folder events, in bytes.
const EVENTS_BYTES: usize = 4096;
/// Pause before a run is asked again that has closed a watch.
const AGAIN_PAUSE: Duration = Duration::from_millis(200);

/// Watches until it is interrupted.
pub(super) fn run(gates: &Gates, output: Output) -> Result<Exit, Failure> {
    let failed =
        |error: rustix::io::Errno| Failure::new(Exit::Storage, format!("watching: {error}"));
    let events = inotify::init(CreateFlags::CLOEXEC).map_err(failed)?;
    // A gate gets its name by a rename, once it listens.
    inotify::add_watch(&events, gates.folder().path(), WatchFlags::MOVED_TO).map_err(failed)?;
    let seen = Mutex::new(BTreeSet::new());
    std::thread::scope(|scope| {
        let follow_once = |gate: RunGate<'_>| {
            let is_new = seen
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(gate.run());
            if is_new {
                follow(&gate, output);
            }
        };
        for gate in gates.running()? {
            scope.spawn(move || follow_once(gate));
        }
        let mut buffer = [MaybeUninit::uninit(); EVENTS_BYTES];
        let mut reader = inotify::Reader::new(events, &mut buffer);
        loop {
            let event = reader.next().map_err(failed)?;
            let name = event.file_name().and_then(|name| name.to_str().ok());
            if let Some(gate) = name.and_then(|name| gates.of_name(name)) {
                scope.spawn(move || follow_once(gate));
            }
        }
    })
}

/// Tells what comes and goes at one run's gate, to the run's end. A run with too many connections
/// closes the oldest that watch: then it is asked again.
fn follow(gate: &RunGate<'_>, output: Output) {
    let mut known = BTreeSet::new();
    let mut watching = gate.watch();
    if let Err(error) = &watching {
        output.note(&format!("run {}: {error}", gate.run()));
    }
    loop {
        match watching {
            Ok(responses) => {
                for response in responses {
                    match response {
                        Ok(Response::Held(listing)) => known = tell(&listing, &known, output),
                        Ok(Response::Refused(refused)) => {
                            let why = safe(&refused.reason);
                            return output.note(&format!("run {}: {why}", gate.run()));
                        }
                        Ok(_) => {}
                        Err(error) => output.note(&format!("run {}: {error}", gate.run())),
                    }
                }
            }
            // It takes no connection now: it is stopped, or there are too many.
            Err(AskError::Late) => {}
            // It has ended.
            Err(_) => {
                return known
                    .iter()
                    .for_each(|it| tell_gone(it, gate.run(), output));
            }
        }
        std::thread::sleep(AGAIN_PAUSE);
        watching = gate.watch();
    }
}

fn tell(listing: &Listing, known: &BTreeSet<HeldId>, output: Output) -> BTreeSet<HeldId> {
    let held: BTreeSet<HeldId> = listing.calls.iter().map(|it| it.held_id.clone()).collect();
    for call in listing
        .calls
        .iter()
        .filter(|it| !known.contains(&it.held_id))
    {
        if output.is_json() {
            output.value(&as_json(listing, call));
        } else {
            output.line(&as_line(listing, call));
        }
    }
    for gone in known.difference(&held) {
        tell_gone(gone, listing.run, output);
    }
    held
}

fn tell_gone(held_id: &HeldId, run: RunId, output: Output) {
    if output.is_json() {
        output.value(&json!({ "held_id": held_id, "run": run, "held": false }));
    } else {
        output.line(&format!("{held_id}  waits no longer"));
    }
}
