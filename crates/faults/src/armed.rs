//! What a test build has: one armed point, and a log of all that were reached.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};

use crate::Point;

/// What happens at the armed point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// SIGKILL; in a write, after its first half.
    Kill,
    Fail(Errno),
    /// A write takes half of its bytes; any other step fails as if it had.
    Short,
}

#[derive(Debug, Clone, Copy)]
struct Trap {
    point: Point,
    /// At which time, from 1, that the point is reached.
    time: u32,
    effect: Effect,
}

#[derive(Debug)]
struct Armed {
    trap: Option<Trap>,
    log: Option<PathBuf>,
    reached: Mutex<Vec<Point>>,
}

static ARMED: OnceLock<Armed> = OnceLock::new();

/// The text names no point and effect.
#[derive(Debug)]
pub struct ArmError {
    text: String,
}

impl fmt::Display for ArmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text.escape_debug();
        write!(
            f,
            "`{text}` is no fault: write POINT@TIME=kill, =ENOSPC, =EIO, =EINTR or =short"
        )
    }
}

impl std::error::Error for ArmError {}

/// Arms this process, once: at `POINT@TIME` happens `EFFECT`, and the names of all points that
/// are reached are appended to `log`.
///
/// # Errors
/// [`ArmError`].
pub fn arm(trap: Option<&str>, log: Option<PathBuf>) -> Result<(), ArmError> {
    let parsed = trap.map(|text| {
        parse(text).ok_or_else(|| ArmError {
            text: text.to_owned(),
        })
    });
    let trap = parsed.transpose()?;
    let reached = Mutex::default();
    let _ = ARMED.set(Armed { trap, log, reached });
    Ok(())
}

fn parse(text: &str) -> Option<Trap> {
    let (place, effect) = text.split_once('=')?;
    let (name, time) = place.split_once('@')?;
    let effect = match effect {
        "kill" => Effect::Kill,
        "ENOSPC" => Effect::Fail(Errno::NOSPC),
        "EIO" => Effect::Fail(Errno::IO),
        "EINTR" => Effect::Fail(Errno::INTR),
        "short" => Effect::Short,
        _ => return None,
    };
    Some(Trap {
        point: Point::ALL.iter().copied().find(|it| it.name() == name)?,
        time: time.parse().ok()?,
        effect,
    })
}

/// What happens now, if anything.
fn pass(point: Point) -> Option<Effect> {
    let armed = ARMED.get()?;
    let mut reached = armed.reached.lock().unwrap_or_else(PoisonError::into_inner);
    reached.push(point);
    if let Some(log) = &armed.log {
        let file = OpenOptions::new().append(true).create(true).open(log);
        // A log that cannot be written shows in the test that reads it.
        let _ = file.and_then(|mut file| writeln!(file, "{}", point.name()));
    }
    let times = reached.iter().filter(|it| **it == point).count();
    let hit = |trap: &Trap| trap.point == point && usize::try_from(trap.time) == Ok(times);
    armed.trap.filter(hit).map(|trap| trap.effect)
}

fn die() {
    let _ = kill_process(getpid(), Signal::KILL);
}

/// Goes on, fails or dies, as this process is armed.
///
/// # Errors
/// The armed one.
pub fn reach(point: Point) -> io::Result<()> {
    match pass(point) {
        None => Ok(()),
        Some(Effect::Kill) => {
            die();
            Ok(())
        }
        Some(Effect::Fail(errno)) => Err(errno.into()),
        Some(Effect::Short) => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// One write that may be short, fail, or be the last thing that this process does.
///
/// # Errors
/// The armed one, and the writer's own.
pub fn write(point: Point, writer: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
    let half = bytes.get(..bytes.len() / 2).unwrap_or_default();
    match pass(point) {
        None => writer.write(bytes),
        Some(Effect::Kill) => {
            writer.write_all(half)?;
            die();
            Ok(half.len())
        }
        Some(Effect::Fail(errno)) => Err(errno.into()),
        Some(Effect::Short) => writer.write(half),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_armed_by_its_name_and_nothing_else_is() {
        for point in Point::ALL {
            let trap = parse(&format!("{}@2=EIO", point.name())).unwrap();
            assert_eq!((trap.point, trap.time), (*point, 2));
            assert_eq!(trap.effect, Effect::Fail(Errno::IO));
        }
        for text in [
            "",
            "publish.rename",
            "publish.rename@1",
            "publish.rename@x=kill",
            "no@1=kill",
            "publish.rename@1=EPERM",
        ] {
            assert!(parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn the_armed_time_alone_fails_and_a_short_write_takes_half() {
        let log = std::env::temp_dir().join(format!("faults-{}", std::process::id()));
        arm(Some("ledger.write@2=short"), Some(log.clone())).unwrap();
        let mut written = Vec::new();
        for (expected, _) in [(4, 1), (2, 2), (4, 3)] {
            let wrote = write(Point::LedgerWrite, &mut written, b"abcd").unwrap();
            assert_eq!(wrote, expected);
        }
        reach(Point::LedgerSync).unwrap();
        let text = std::fs::read_to_string(&log).unwrap();
        std::fs::remove_file(&log).unwrap();
        assert_eq!(
            text,
            "ledger.write\nledger.write\nledger.write\nledger.sync\n"
        );
    }
}
