//! Measures appends and verification: `cargo run --release -p journal --example measure DIR`.

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::error::Error;
use std::io;
use std::time::{Duration, Instant};

use journal::{
    Client, Custom, Depth, Journal, JournalWriter, MemoryWriter, ProjectKey, ProtectedJournal,
    RunEnded, RunStarted, Verdict, VerifyOptions, verify_run,
};
use model::{Digest, RunId};

const RECORDS: usize = 20_100;

/// A file without its syncs: what remains is our own work and the write.
struct Unsynced(ProtectedJournal);

impl JournalWriter for Unsynced {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.append(bytes)
    }
    fn make_durable(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn durability(&self) -> journal::Durability {
        self.0.durability()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "measure-journal".to_owned());
    let folder = std::path::Path::new(&folder);
    let key = ProjectKey::generate()?;
    let run = RunId::new();
    let unsynced = Unsynced(ProtectedJournal::create(folder, run)?);
    let took = fill(Box::new(unsynced), &key, run, RECORDS)?;
    println!(
        "append without sync, about record 10:     {:?}",
        median(&took, 0)
    );
    println!(
        "append without sync, about record 20,000: {:?}",
        median(&took, RECORDS - 100)
    );

    let run = RunId::new();
    let took = fill(
        Box::new(ProtectedJournal::create(folder, run)?),
        &key,
        run,
        300,
    )?;
    println!(
        "append with sync:                         {:?}",
        median(&took, 100)
    );

    let memory = MemoryWriter::new();
    let took = fill(Box::new(memory.clone()), &key, RunId::new(), RECORDS)?;
    println!(
        "append to memory:                         {:?}",
        median(&took, 1000)
    );
    let bytes = memory.bytes();
    println!("journal: {} bytes", bytes.len());
    for depth in [Depth::Every, Depth::Last] {
        verification(&bytes, &key, depth)?;
    }
    Ok(())
}

/// CPU time says what an idle machine would do; the clock what this one did. The best of three.
fn verification(bytes: &[u8], key: &ProjectKey, depth: Depth) -> Result<(), Box<dyn Error>> {
    let options = VerifyOptions {
        public_key: Some(key.public().clone()),
        depth,
        ..VerifyOptions::default()
    };
    let (mut rate, mut each) = (0.0_f64, f64::MAX);
    for _ in 0..3 {
        let (start, used) = (Instant::now(), cpu());
        let report = verify_run(bytes, &options)?;
        let records = f64::from(u32::try_from(report.records)?);
        rate = rate.max(records / start.elapsed().as_secs_f64());
        each = each.min((cpu() - used) * 1e6 / records);
        if report.verdict != Verdict::Intact {
            return Err(format!("verdict: {}", report.verdict).into());
        }
    }
    println!("verify, {depth:?}: {rate:.0} records a second, {each:.1} us of CPU each");
    Ok(())
}

/// CPU time of this process so far, in seconds.
fn cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let nanoseconds = i32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::from_secs(time.tv_sec.unsigned_abs()).as_secs_f64() + f64::from(nanoseconds) / 1e9
}

fn median(took: &[Duration], from: usize) -> Duration {
    let mut part: Vec<_> = took.iter().skip(from).take(100).collect();
    part.sort();
    part.get(part.len() / 2)
        .map_or(Duration::ZERO, |middle| **middle)
}

fn fill(
    writer: Box<dyn JournalWriter>,
    key: &ProjectKey,
    run: RunId,
    records: usize,
) -> Result<Vec<Duration>, Box<dyn Error>> {
    let journal = Journal::new(writer, Some(key.signer()), run, "operator".to_owned());
    let digest = Digest::of(b"");
    let _ = journal.record(RunStarted {
        version: "0".to_owned(),
        project: "measure".to_owned(),
        client: Client::Library,
        tools: Vec::new(),
        tool_set_sha256: digest,
        policy_sha256: digest,
        init_sha256: None,
        max_calls: 1,
        lifetime_ms: 1,
        tool_time_ms: 1,
    })?;
    let mut took = Vec::with_capacity(records);
    for _ in 0..records {
        let value = "a".repeat(1700);
        let event = Custom {
            custom_kind: "measure".to_owned(),
            digest,
            value,
        };
        let start = Instant::now();
        let _ = journal.record(event)?;
        took.push(start.elapsed());
    }
    let _ = journal.record(RunEnded {
        completed: true,
        cause: None,
        calls: 0,
    })?;
    Ok(took)
}
