//! How a supervisor comes to be: by exec of the recorded program with an empty environment, in a
//! session of its own, with nothing inherited that could tie it to its caller.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::client::connect_at_once;
use crate::limits::START_TIME_MAX;
use crate::sys;

/// What a new supervisor says on its standard output when it listens.
const READY: &str = "ready";

/// How to start a supervisor.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The recorded program.
    pub program: PathBuf,
    /// What makes it a supervisor of the user's folders.
    pub arguments: Vec<OsString>,
    /// Added where it is to detach itself from its caller.
    pub detach: OsString,
    /// How systemd starts it, where it is there.
    pub unit: Option<UnitLaunch>,
}

/// A transient unit, by `systemd-run`.
#[derive(Debug, Clone)]
pub struct UnitLaunch {
    pub systemd_run: PathBuf,
    /// `--user` and the like.
    pub arguments: Vec<OsString>,
    /// Its private socket: who can connect to it has a manager to ask.
    pub manager: PathBuf,
    /// What `systemd-run` needs to find that manager.
    pub environment: Vec<(OsString, OsString)>,
    /// Added to the supervisor's own arguments.
    pub mark: OsString,
}

/// Why no supervisor came to be.
#[derive(Debug)]
pub enum StartFault {
    Io {
        step: &'static str,
        source: io::Error,
    },
    /// It ended before it listened.
    Ended {
        said: String,
    },
    TooLate,
}

impl fmt::Display for StartFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { step, .. } => write!(f, "the supervisor did not start: cannot {step}"),
            Self::Ended { said } if said.is_empty() => {
                f.write_str("the supervisor ended before it listened")
            }
            Self::Ended { said } => write!(f, "the supervisor did not start: {said}"),
            Self::TooLate => write!(
                f,
                "the supervisor did not listen within {} seconds",
                START_TIME_MAX.as_secs()
            ),
        }
    }
}

impl std::error::Error for StartFault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

fn fault(step: &'static str) -> impl FnOnce(io::Error) -> StartFault {
    move |source| StartFault::Io { step, source }
}

/// Starts a supervisor, in a unit where that is wanted and a service manager answers. True where it
/// listens by now; false where systemd starts it.
pub(crate) fn start(launch: &Launch, in_unit: bool) -> Result<bool, StartFault> {
    if let Some(unit) = &launch.unit
        && in_unit
        && connect_at_once(&unit.manager).is_ok()
        && start_unit(launch, unit)
    {
        return Ok(false);
    }
    let mut child = Command::new(&launch.program)
        .args(&launch.arguments)
        .arg(&launch.detach)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(fault("run its program"))?;
    let said = read_all(&mut child);
    // The child only detaches: it has ended, or it hangs and is not waited for.
    if said.is_err() {
        let _ = child.kill();
    }
    let _ = child.wait();
    let said = said?;
    match said.lines().next_back() {
        Some(READY) => Ok(true),
        _ => Err(StartFault::Ended {
            said: said.trim().escape_debug().to_string(),
        }),
    }
}

fn start_unit(launch: &Launch, unit: &UnitLaunch) -> bool {
    let started = Command::new(&unit.systemd_run)
        .args(&unit.arguments)
        .arg("--")
        .arg(&launch.program)
        .args(launch.arguments.iter().map(|it| as_unit_word(it)))
        .arg(&unit.mark)
        .env_clear()
        .envs(unit.environment.iter().map(|(name, value)| (name, value)))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = started else {
        return false;
    };
    // It ends when the manager has answered, or the manager hangs.
    if read_all(&mut child).is_err() {
        let _ = child.kill();
    }
    child.wait().is_ok_and(|status| status.success())
}

/// An argument as systemd takes it: it puts variables of its own environment into `${…}`.
fn as_unit_word(argument: &OsStr) -> OsString {
    let parts: Vec<&[u8]> = argument.as_bytes().split(|byte| *byte == b'$').collect();
    OsString::from_vec(parts.join(&b"$$"[..]))
}

/// What the new process says until it closes its output.
fn read_all(child: &mut Child) -> Result<String, StartFault> {
    let until = Instant::now() + START_TIME_MAX;
    let mut output = child.stdout.take().ok_or(StartFault::Ended {
        said: String::new(),
    })?;
    let mut said = Vec::new();
    let mut part = [0; 512];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut polled = [PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN)];
        match poll(&mut polled, Some(&timeout)) {
            Ok(0) => return Err(StartFault::TooLate),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(fault("wait for it")(errno.into())),
        }
        let count = output.read(&mut part).map_err(fault("hear of it"))?;
        said.extend(part.get(..count).unwrap_or_default());
        if count == 0 || said.len() >= part.len() * 8 {
            return Ok(String::from_utf8_lossy(&said).into_owned());
        }
    }
}

/// In the caller's child: starts the supervisor in a session of its own, and is done.
///
/// # Errors
/// [`StartFault`]
pub fn detach(program: &Path, arguments: &[OsString]) -> Result<(), StartFault> {
    // A process that leads a group already cannot lead a session, and is in none of ours.
    let _ = rustix::process::setsid();
    sys::close_inherited_at_exec().map_err(fault("close what it inherited"))?;
    Command::new(program)
        .args(arguments)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(fault("run its program"))?;
    Ok(())
}

/// Becomes the program again, with no environment and nothing inherited but its standard streams.
/// Returns only where that failed.
#[must_use]
pub fn begin_anew(program: &Path, arguments: &[OsString]) -> StartFault {
    if let Err(error) = sys::close_inherited_at_exec() {
        return fault("close what it inherited")(error);
    }
    let mut anew = Command::new(program);
    anew.args(arguments).env_clear().current_dir("/");
    fault("run its program")(anew.exec())
}

/// In the supervisor, before anything else: its files are private, and it leaves no core file.
pub fn harden() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // Lowering a limit of one's own cannot be refused.
    let _ = setrlimit(Resource::Core, none);
    let undumpable = rustix::process::DumpableBehavior::NotDumpable;
    let _ = rustix::process::set_dumpable_behavior(undumpable);
}

/// Tells the caller that the supervisor listens, and lets go of its output.
///
/// # Errors
/// The output cannot be replaced.
pub fn say_ready() -> io::Result<()> {
    let mut output = io::stdout().lock();
    // A caller that has gone does not need to know.
    let _ = writeln!(output, "{READY}").and_then(|()| output.flush());
    drop(output);
    let null = std::fs::File::options().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_puts_no_variable_into_a_folder_s_name() {
        for (folder, word) in [
            ("/home/a/.config", "/home/a/.config"),
            ("/srv/${HOME}/$x$", "/srv/$${HOME}/$$x$$"),
        ] {
            assert_eq!(as_unit_word(OsStr::new(folder)), OsStr::new(word));
        }
    }
}
