//! Measures appends and verification: `cargo run --release -p journal --example measure DIR`.

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::error::Error;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use journal::{
    Client, Custom, Depth, Journal, JournalWriter, MemoryWriter, ProjectKey, ProtectedJournal,
    RunEnded, RunFiles, RunStarted, Verdict, VerifyOptions, verify_run,
};
use model::{Digest, RunId};

const RECORDS: usize = 20_100;
const RUNS: usize = 10_000;
const STARTS: usize = 100;

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
    let folder = Path::new(&folder);
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
    starts(folder, &key)
}

/// What a start costs in a project of many runs and in one of none, turn by turn.
fn starts(folder: &Path, key: &ProjectKey) -> Result<(), Box<dyn Error>> {
    let (none, many) = (folder.join("none"), folder.join("many"));
    for _ in 0..RUNS {
        start(&many, key)?;
    }
    let (mut of_none, mut of_many) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        std::fs::remove_dir_all(&none).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
        start(&none, key)?;
        of_none.push(start(&none, key)?);
        of_many.push(start(&many, key)?);
    }
    let (of_none, of_many) = (median(&of_none, 0), median(&of_many, 0));
    println!("start with one run behind it:     {of_none:?}");
    println!("start with {RUNS} runs behind it:  {of_many:?}");
    Ok(())
}

fn start(state: &Path, key: &ProjectKey) -> Result<Duration, Box<dyn Error>> {
    let begin = Instant::now();
    let mut files = RunFiles::create(state, RunId::new(), "operator", key)?;
    files.started()?;
    let took = begin.elapsed();
    files.ended()?;
    Ok(took)
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
