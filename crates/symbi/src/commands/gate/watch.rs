//! `symbi gate watch`: held calls of all runs as they come and go, also of runs that start later.

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

use approval::HeldId;
use approval::wire::{Listing, Response};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use serde_json::json;

use crate::commands::gate::client::{Gates, RunGate};
use crate::commands::gate::{as_json, as_line, safe};
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Buffer of folder events, in bytes.
const EVENTS_BYTES: usize = 4096;

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

/// Tells what comes and goes at one run's gate, to the run's end.
fn follow(gate: &RunGate<'_>, output: Output) {
    let responses = match gate.watch() {
        Ok(responses) => responses,
        Err(error) => return output.note(&format!("run {}: {error}", gate.run())),
    };
    let mut known = BTreeSet::new();
    for response in responses {
        match response {
            Ok(Response::Held(listing)) => known = tell(&listing, &known, output),
            Ok(Response::Refused(refused)) => {
                output.note(&format!("run {}: {}", gate.run(), safe(&refused.reason)));
            }
            Ok(_) => {}
            Err(error) => output.note(&format!("run {}: {error}", gate.run())),
        }
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
        if output.is_json() {
            output.value(&json!({ "held_id": gone, "run": listing.run, "held": false }));
        } else {
            output.line(&format!("{gone}  waits no longer"));
        }
    }
    held
}
