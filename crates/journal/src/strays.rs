//! Runs on their way into the ledger.
//!
//! A run has a mark from before its journal exists until after its line in the ledger. A start
//! settles the marks of dead runs, and looks at no other file: what it costs does not grow with
//! the runs that there were. A run that died without its line did nothing yet. Marks are not
//! synced: after a power cut one may be missing, and then `audit list --strict` names the journal.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use faults::{Point, reach};
use model::RunId;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::folder::{PrivateFolder, StorageError};
use crate::key::ProjectKey;
use crate::ledger::Ledger;
use crate::ledger_line::Seal;
use crate::limits::ADOPTED_RUNS_MAX;
use crate::places::{file_name, journal_path, runs_folder};
use crate::run_files_error::RunFilesError;
use crate::verdict::Verdict;
use crate::verify::{Report, VerifyOptions, verify_file};
use crate::writer::create_locked;

const FOLDER: &str = "starting";

/// The mark of a run that the ledger does not know yet. Its lock says that the owner lives.
#[derive(Debug)]
pub(crate) struct Mark {
    folder: PrivateFolder,
    name: OsString,
    _lock: File,
}

impl Mark {
    /// Marks `run` as starting.
    pub(crate) fn set(state: &Path, run: RunId) -> Result<Self, StorageError> {
        let folder = PrivateFolder::create(&state.join(FOLDER))?;
        let name = OsString::from(run.to_string());
        reach(Point::RunMark).map_err(|source| StorageError::Io {
            action: "create",
            path: folder.shown(&name),
            source,
        })?;
        let _lock = create_locked(&folder, &name)?;
        Ok(Self {
            folder,
            name,
            _lock,
        })
    }

    /// The ledger knows the run, or there is nothing to know.
    pub(crate) fn lift(self) -> Result<(), StorageError> {
        self.folder.unlink(&self.name)
    }
}

/// What a dead run left.
enum Left {
    /// Nothing was ever recorded.
    Nothing,
    /// Whole records, by this project's key.
    Records(Seal),
    /// Not whole, or not signed by the key: it stays for an investigation.
    Unfit,
    /// A handle on its journal lives.
    Live,
}

/// Removes the empty journals of dead marked runs, and enters the others in the ledger: as started
/// and sealed.
pub(crate) fn settle_strays(
    state: &Path,
    ledger: &mut Ledger,
    key: &ProjectKey,
) -> Result<Vec<Seal>, RunFilesError> {
    let (mut seals, mut settled) = (Vec::new(), Vec::new());
    for (run, mark) in dead_marks(state).map_err(RunFilesError::Storage)? {
        // A stray that cannot be read now must not hold up the next run.
        match left_by(state, run, key) {
            Ok(Left::Live) | Err(_) => {}
            Ok(Left::Nothing | Left::Unfit) => settled.push(mark),
            Ok(Left::Records(seal)) => {
                seals.push(seal);
                settled.push(mark);
            }
        }
    }
    let seals = ledger.adopt(seals).map_err(RunFilesError::Ledger)?;
    for mark in settled {
        mark.lift().map_err(RunFilesError::Storage)?;
    }
    Ok(seals)
}

/// The runs that have a mark, oldest first; at most as many as one start settles.
///
/// # Errors
/// The folder of the marks cannot be read.
pub fn starting_runs(state: &Path) -> io::Result<Vec<RunId>> {
    let entries = match std::fs::read_dir(state.join(FOLDER)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let runs = names.filter_map(|name| name.parse::<RunId>().ok());
    let mut runs: Vec<RunId> = runs.take(ADOPTED_RUNS_MAX).collect();
    runs.sort_unstable();
    Ok(runs)
}

/// The marks whose owner is dead; while they are held, no other start looks at their runs.
fn dead_marks(state: &Path) -> Result<Vec<(RunId, Mark)>, StorageError> {
    let path = state.join(FOLDER);
    let entries = match std::fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => {
            let (action, path) = ("read", path.display().to_string());
            return Err(StorageError::Io {
                action,
                path,
                source,
            });
        }
    };
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
    let runs = names.filter_map(|name| Some((name.to_str()?.parse::<RunId>().ok()?, name)));
    let mut marks = Vec::new();
    for (run, name) in runs {
        if marks.len() >= ADOPTED_RUNS_MAX {
            break;
        }
        let folder = PrivateFolder::open(&path)?;
        let Ok(_lock) = folder.open_file(&name) else {
            continue;
        };
        let is_held = rustix::fs::flock(&_lock, FlockOperation::NonBlockingLockExclusive).is_err();
        if is_held || _lock.metadata().is_ok_and(|stat| stat.nlink() == 0) {
            continue;
        }
        let mark = Mark {
            folder,
            name,
            _lock,
        };
        marks.push((run, mark));
    }
    Ok(marks)
}

fn left_by(state: &Path, run: RunId, key: &ProjectKey) -> io::Result<Left> {
    let options = VerifyOptions {
        public_key: Some(key.public().clone()),
        run: Some(run),
        ..VerifyOptions::default()
    };
    let report = match verify_file(&journal_path(state, run), &options) {
        Ok(report) => report,
        Err(error) if is_no_journal(&error) => return Ok(Left::Nothing),
        Err(error) => return Err(error),
    };
    let is_whole = matches!(report.verdict, Verdict::Intact | Verdict::Unterminated);
    match report {
        Report { live: true, .. } => Ok(Left::Live),
        Report { file_bytes: 0, .. } => {
            let folder = PrivateFolder::open(&runs_folder(state)).map_err(io::Error::other)?;
            let name = file_name(run);
            folder.remove(&name).map_err(io::Error::other)?;
            Ok(Left::Nothing)
        }
        report if is_whole && report.records > 0 => Ok(Left::Records(Seal {
            run,
            checkpoint: report.checkpoint,
            verdict: report.verdict,
            file_bytes: report.file_bytes,
            file_sha256: report.file_sha256,
        })),
        _ => Ok(Left::Unfit),
    }
}

/// What is there is no journal: nothing, or something that no journal is.
pub(crate) fn is_no_journal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
    ) || error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use model::Digest;

    use super::*;
    use crate::note::Checkpoint;
    use crate::places::ledger_path;
    use crate::run_files::RunFiles;

    const FEW: usize = 100;
    const MANY: usize = 10_000;
    const STARTS: usize = 15;

    /// A project with so many runs behind it.
    fn project(runs: usize, key: &ProjectKey) -> tempfile::TempDir {
        let home = tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() {
            Path::new("/dev/shm").to_owned()
        } else {
            std::env::temp_dir()
        });
        let home = home.unwrap();
        let state = home.path().join("state");
        let mut ledger = Ledger::open(&ledger_path(&state), key.signer()).unwrap();
        let seal = |run| Seal {
            run,
            checkpoint: Checkpoint {
                size: 1,
                root: Digest::of(b""),
            },
            verdict: Verdict::Unterminated,
            file_bytes: 1,
            file_sha256: Digest::of(b""),
        };
        let seals: Vec<_> = (0..runs).map(|_| seal(RunId::new())).collect();
        let governed = runs_folder(&state);
        PrivateFolder::create(&governed).unwrap();
        for it in &seals {
            std::fs::write(governed.join(file_name(it.run)), "").unwrap();
        }
        assert_eq!(ledger.adopt(seals).unwrap().len(), runs);
        home
    }

    /// What this thread has read so far, and in how many calls.
    fn reads() -> Vec<String> {
        let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
        let lines = text
            .lines()
            .filter(|it| it.contains("char") || it.contains("sysc"));
        lines.map(str::to_owned).collect()
    }

    fn read_by(work: impl FnOnce()) -> Vec<i64> {
        let number = |line: &String| line.rsplit(' ').next().unwrap().parse::<i64>().unwrap();
        let before: Vec<_> = reads().iter().map(number).collect();
        work();
        let after = reads();
        after
            .iter()
            .map(number)
            .zip(before)
            .map(|(a, b)| a - b)
            .collect()
    }

    fn start(home: &tempfile::TempDir, key: &ProjectKey) -> Duration {
        let begin = Instant::now();
        let mut files =
            RunFiles::create(&home.path().join("state"), RunId::new(), "operator", key).unwrap();
        files.started().unwrap();
        let took = begin.elapsed();
        files.ended().unwrap();
        took
    }

    #[test]
    fn a_start_with_ten_thousand_runs_reads_and_takes_what_one_with_a_hundred_does() {
        let key = ProjectKey::from_seed(&[1; 32]);
        let (few, many) = (project(FEW, &key), project(MANY, &key));
        let of = |home| read_by(|| _ = start(home, &key));
        let (few_reads, many_reads) = (of(&few), of(&many));
        for (few, many) in few_reads.iter().zip(&many_reads) {
            // A ledger line's own length differs by its range and its digits.
            assert!((few - many).abs() < 4096, "{few_reads:?} {many_reads:?}");
        }
        let mut best = [Duration::MAX; 2];
        for _ in 0..STARTS {
            for (best, home) in best.iter_mut().zip([&few, &many]) {
                *best = (*best).min(start(home, &key));
            }
        }
        assert!(best[1] < best[0] * 3 / 2, "{best:?}");
    }

    #[test]
    fn a_mark_lives_from_before_the_journal_until_the_ledger_knows_the_run() {
        let home = tempfile::tempdir().unwrap();
        let (state, key) = (home.path().join("state"), ProjectKey::from_seed(&[1; 32]));
        let marks = || std::fs::read_dir(state.join(FOLDER)).unwrap().count();
        let run = RunId::new();
        let mut files = RunFiles::create(&state, run, "operator", &key).unwrap();
        assert_eq!(marks(), 1);
        let again = RunFiles::create(&state, run, "operator", &key).unwrap_err();
        assert!(
            again.to_string().contains("has a journal already"),
            "{again}"
        );
        files.started().unwrap();
        assert_eq!(marks(), 0);
        files.ended().unwrap();
        RunFiles::create(&state, run, "operator", &key).unwrap_err();
        assert_eq!(marks(), 0, "a refused start leaves none");
    }

    #[test]
    fn a_mark_of_a_run_that_the_ledger_knows_enters_nothing_and_goes() {
        let home = tempfile::tempdir().unwrap();
        let (state, key) = (home.path().join("state"), ProjectKey::from_seed(&[1; 32]));
        let mut files = RunFiles::create(&state, RunId::new(), "operator", &key).unwrap();
        let run = files.journal().run();
        files.started().unwrap();
        files.ended().unwrap();
        drop(Mark::set(&state, run).unwrap());
        let next = RunFiles::create(&state, RunId::new(), "operator", &key).unwrap();
        assert_eq!(std::fs::read_dir(state.join(FOLDER)).unwrap().count(), 1);
        drop(next);
        let ledger = Ledger::open(&ledger_path(&state), key.signer()).unwrap();
        assert_eq!(ledger.runs().unwrap().records, 2);
    }
}
