//! Where the user's supervisor is, and how this program starts one.

use std::ffi::OsString;
use std::path::PathBuf;

use project::{UserConfig, UserDirs};
use supervisor::{CapacityLimits, Client, ConnectError, Launch, UnitLaunch};

use crate::exit::{Exit, Failure, chain};
use crate::output::Output;

/// The program that starts transient units.
const SYSTEMD_RUN: &str = "/usr/bin/systemd-run";

/// The supervisor of these folders; this executable starts it where none runs.
pub(crate) fn client(dirs: &UserDirs) -> Result<Client, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::new(Exit::Isolation, format!("where symbi is: {error}")))?;
    Ok(Client {
        state: dirs.supervisor(),
        sockets: dirs.runtime.clone(),
        launch: Launch {
            program,
            arguments: arguments(dirs),
            detach: "--detach".into(),
            unit: unit(),
        },
    })
}

/// What makes this program a supervisor of these folders without an environment.
pub(crate) fn arguments(dirs: &UserDirs) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["supervisor".into(), "--folders".into()];
    let folders = [&dirs.config, &dirs.state, &dirs.runtime];
    arguments.extend(folders.map(|folder| folder.as_os_str().to_owned()));
    arguments
}

fn unit() -> Option<UnitLaunch> {
    let (manager, runtime) = crate::dirs::service_manager()?;
    let mut arguments: Vec<OsString> = ["--quiet", "--collect", "--no-ask-password"]
        .map(OsString::from)
        .into();
    arguments.extend(runtime.is_some().then(|| "--user".into()));
    let variable = |folder: PathBuf| ("XDG_RUNTIME_DIR".into(), folder.into_os_string());
    Some(UnitLaunch {
        systemd_run: SYSTEMD_RUN.into(),
        arguments,
        manager,
        environment: runtime.map(variable).into_iter().collect(),
        mark: "--unit".into(),
    })
}

/// What all workers may have together, as the user's configuration says it now.
pub(crate) fn capacity(dirs: &UserDirs) -> Result<CapacityLimits, String> {
    let user = UserConfig::load(dirs).map_err(|error| chain(&error))?;
    Ok(CapacityLimits {
        workers: user.capacity.workers,
        cpu_milli: user.capacity.cpu_milli,
        memory_mib: user.capacity.memory_mib,
    })
}

/// What dead runs left is tended to at every start, whatever this one needs. One that needs no
/// supervisor goes on without it.
pub(crate) fn tend_what_is_left(dirs: &UserDirs) {
    let tended = client(dirs).map_err(|failure| failure.message);
    let tended = tended.and_then(|it| it.tend_what_is_left().map_err(|error| chain(&error)));
    if let Err(reason) = tended {
        Output::new(false).note(&format!(
            "warning: what dead runs may have left cannot be tended to: {reason}"
        ));
    }
}

/// Why a supervisor cannot be asked.
pub(crate) fn failure(error: &ConnectError) -> Failure {
    match error {
        ConnectError::Folder(fault) => Failure::of(Exit::Storage, fault),
        _ => Failure::of(Exit::Isolation, error),
    }
}
