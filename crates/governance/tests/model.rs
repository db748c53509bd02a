//! Random histories of a session against named invariants, with crashes at every step.
//!
//! A driver walks calls through the real transitions over a store that fails where it is told
//! to. A history is a function of its seed; one that breaks an invariant prints both. Replay it
//! with `SYMBI_MODEL_SEED=<seed> cargo test -p governance --test model`.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "helpers of tests"
)]

#[path = "model/check.rs"]
mod check;
#[path = "model/driver.rs"]
mod driver;
#[path = "support/mod.rs"]
mod support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use driver::{Driver, Tally};

/// Histories of an ordinary run.
const HISTORIES: u64 = 100_000;
/// Longest history, in events.
const EVENTS_MAX: usize = 40;
/// One history in so many is signed, and verified as an auditor would.
const SIGNED_EVERY: u64 = 64;

/// A small generator with a whole period (Steele, Lea, Flood: SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

/// Runs one history. `Err` has the broken invariant and the events up to it.
fn run(seed: u64, tally: &mut Tally) -> Result<(), String> {
    let mut random = Random(seed);
    let mut driver = Driver::new(seed.is_multiple_of(SIGNED_EVERY), random.one_in(2));
    let mut events = Vec::new();
    let mut broken = None;
    while broken.is_none() && !driver.is_over() && events.len() < EVENTS_MAX {
        let event = driver.choose(&mut random);
        events.push(event);
        driver.apply(event);
        broken = driver.trace().violation();
    }
    let broken = broken.or_else(|| driver.finish(&mut random, tally).err());
    match broken {
        None => Ok(()),
        Some(broken) => Err(format!(
            "invariant `{broken}` is broken by history {seed}:\n{events:#?}\n\
             replay: SYMBI_MODEL_SEED={seed} cargo test -p governance --test model"
        )),
    }
}

#[test]
fn every_history_keeps_the_invariants() {
    if let Ok(seed) = std::env::var("SYMBI_MODEL_SEED") {
        let mut tally = Tally::default();
        run(seed.parse().unwrap(), &mut tally).unwrap_or_else(|report| panic!("{report}"));
        return;
    }
    let next = AtomicU64::new(0);
    let whole = Mutex::new(Tally::default());
    let work = || {
        let mut tally = Tally::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= HISTORIES {
                break;
            }
            run(seed, &mut tally).unwrap_or_else(|report| panic!("{report}"));
        }
        whole.lock().unwrap().add(&tally);
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        work();
        if let Err(panic) = other.join() {
            std::panic::resume_unwind(panic);
        }
    });
    let tally = whole.into_inner().unwrap();
    println!("{tally:#?}");
    tally.assert_everything_happened();
}
