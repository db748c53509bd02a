//! Where the user's supervisor is, and how this program starts one.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use project::{UserConfig, UserDirs};
use supervisor::{CapacityLimits, Client, ConnectError, Launch, Status, UnitLaunch};

use crate::exit::{Exit, Failure, chain};
use crate::output::Output;

/// The program that starts transient units.
const SYSTEMD_RUN: &str = "/usr/bin/systemd-run";
/// The program that says whether a user's services stay without a login.
const LOGINCTL: &str = "/usr/bin/loginctl";

/// What ends a supervisor besides itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tie {
    /// Whatever ends all processes of the login that started it.
    Login,
    /// The end of its user's last login.
    LastLogin,
    None,
}

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

/// What the running supervisor is tied to at this moment.
pub(crate) fn tie(status: &Status) -> Tie {
    let place = std::fs::read_to_string(format!("/proc/{}/cgroup", status.pid));
    tie_at(status.independent, place.ok().as_deref(), users_stay)
}

/// The same, of a process in these control groups.
fn tie_at(in_unit: bool, place: Option<&str>, users_stay: impl FnOnce() -> bool) -> Tie {
    // A user's services are below the service `user@UID.service` of the machine's.
    let is_users = place.is_none_or(|place| place.contains("/user@"));
    match in_unit {
        false => Tie::Login,
        true if is_users && !users_stay() => Tie::LastLogin,
        true => Tie::None,
    }
}

/// Whether this user's services run without a login. Where nobody says so, they do not.
fn users_stay() -> bool {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let asked = Command::new(LOGINCTL)
        .args(["show-user", "--property=Linger", "--value", &uid])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    asked.is_ok_and(|said| said.status.success() && said.stdout.trim_ascii() == b"yes")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_of_the_user_s_outlives_the_last_login_only_where_the_user_lingers() {
        let of_user = "0::/user.slice/user-7.slice/user@7.service/app.slice/run-1.service\n";
        let of_machine = "0::/system.slice/run-1.service\n";
        assert_eq!(tie_at(true, Some(of_user), || false), Tie::LastLogin);
        assert_eq!(tie_at(true, Some(of_user), || true), Tie::None);
        assert_eq!(tie_at(true, Some(of_machine), || false), Tie::None);
        assert_eq!(tie_at(true, None, || false), Tie::LastLogin);
        assert_eq!(tie_at(false, Some(of_machine), || true), Tie::Login);
    }
}
