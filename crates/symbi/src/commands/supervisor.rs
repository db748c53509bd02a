//! `symbi supervisor`: the process that removes what dead owners leave.

use std::io::Write as _;

use project::UserDirs;
use supervisor::{FolderFault, Readiness, Terms};

use crate::args::{Common, SupervisorArgs};
use crate::dirs::{has_environment, user_dirs};
use crate::exit::{Exit, Failure, chain};
use crate::output::Output;
use crate::supervising;

/// Runs a supervisor, or starts one and ends.
pub(crate) fn run(args: &SupervisorArgs, common: &Common) -> Result<Exit, Failure> {
    let dirs = match args.folders.as_slice() {
        [config, state, runtime] => UserDirs {
            config: config.clone(),
            state: state.clone(),
            runtime: runtime.clone(),
        },
        _ => user_dirs()?,
    };
    let outcome = match args.detach {
        true => detach(&dirs),
        // A service manager gives what its user once put there.
        false if has_environment() => begin_anew(args, &dirs, common),
        false => serve(args, dirs, common),
    };
    if let Err(failure) = &outcome
        && (args.detach || args.ready)
    {
        // Standard output is all that the caller listens to.
        let _ = writeln!(std::io::stdout(), "{}", failure.message);
    }
    outcome
}

fn detach(dirs: &UserDirs) -> Result<Exit, Failure> {
    let client = supervising::client(dirs)?;
    let mut arguments = supervising::arguments(dirs);
    arguments.push("--ready".into());
    supervisor::detach(&client.launch.program, &arguments)
        .map_err(|error| Failure::of(Exit::Isolation, &error))?;
    Ok(Exit::Done)
}

/// The same, without an environment and in no folder of the caller's.
fn begin_anew(args: &SupervisorArgs, dirs: &UserDirs, common: &Common) -> Result<Exit, Failure> {
    let client = supervising::client(dirs)?;
    let mut arguments = supervising::arguments(dirs);
    let flags = [
        (args.persistent, "--persistent"),
        (args.ready, "--ready"),
        (args.unit, "--unit"),
        (common.json, "--json"),
    ];
    let wanted = flags.into_iter().filter(|(is_wanted, _)| *is_wanted);
    arguments.extend(wanted.map(|(_, flag)| flag.into()));
    let fault = supervisor::begin_anew(&client.launch.program, &arguments);
    Err(Failure::of(Exit::Isolation, &fault))
}

fn serve(args: &SupervisorArgs, dirs: UserDirs, common: &Common) -> Result<Exit, Failure> {
    supervisor::harden();
    let (state, sockets) = (dirs.supervisor(), dirs.runtime.clone());
    let staging = dirs.state.join("staging");
    let about = format!("supervising: {}", state.display());
    let capacity = move || supervising::capacity(&dirs);
    let mut terms = Terms::new(state, sockets, staging, Box::new(capacity));
    terms.persistent = args.persistent;
    terms.independent = args.unit;
    let output = Output::new(common.json);
    let tell = |stage| match (stage, args.ready) {
        (Readiness::Listens, true) => {
            // Without it the caller waits in vain, and says so.
            let _ = supervisor::say_ready();
        }
        (Readiness::Listens, false) => output.note(&about),
        (Readiness::Waits, _) => {
            output.note("a supervisor runs already; this one takes over when that one ends");
        }
    };
    match supervisor::serve(terms, tell) {
        Ok(()) => Ok(Exit::Done),
        Err(FolderFault::Taken) if args.ready => {
            let _ = supervisor::say_ready();
            Ok(Exit::Done)
        }
        Err(fault @ FolderFault::Taken) => Err(Failure::new(Exit::Refused, chain(&fault))
            .help("symbi sandbox status says which process that is")),
        Err(fault) => Err(Failure::of(Exit::Storage, &fault)),
    }
}
