//! `symbi sandbox`: what workers, leases and private copies there are, and what of them is dead.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use filegrants::{ChargeEntry, ChargeState, StagingPool};
use project::{UserConfig, UserDirs};
use serde_json::{Value, json};
use supervisor::{
    CapacityLimits, Claim, ConnectError, EngineSurvey, LEASES, LeaseState, LeaseStatus, Status,
    Survey,
};
use symbi_runtime::clock;

use crate::args::{Common, SandboxCommand};
use crate::dirs::user_dirs;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::supervising::{self, Tie};

/// Runs the command.
pub(crate) fn run(command: &SandboxCommand, common: &Common) -> Result<Exit, Failure> {
    let dirs = user_dirs()?;
    let output = Output::new(common.json);
    match command {
        SandboxCommand::Status => status(&dirs, output),
        SandboxCommand::Prune => prune(&dirs, output),
    }
}

/// All that is known, read without a change.
struct Picture {
    supervisor: Option<Status>,
    /// Why the one that runs does not say.
    silent: Option<String>,
    leases: Vec<LeaseStatus>,
    capacity: CapacityLimits,
    survey: Survey,
    staging_max: u64,
    charges: Vec<ChargeEntry>,
}

impl Picture {
    fn take(dirs: &UserDirs) -> Result<Self, Failure> {
        let client = supervising::client(dirs)?;
        let (supervisor, silent) = match client.status() {
            Ok(status) => (Some(status), None),
            Err(ConnectError::NotRunning) => (None, None),
            Err(error) => (None, Some(crate::exit::chain(&error))),
        };
        let usage = |reason: String| Failure::new(Exit::Usage, reason);
        let capacity = supervising::capacity(dirs).map_err(usage)?;
        let survey = supervisor::survey(&dirs.supervisor(), &[])
            .map_err(|fault| Failure::of(Exit::Storage, &fault))?;
        let pool = pool(dirs)?;
        let charges = pool.as_ref().map(StagingPool::survey).transpose();
        // What a supervisor says is newer than what is on disk, and says what a dead one waits for.
        let mut leases = match &supervisor {
            Some(status) => status.leases.clone(),
            None => survey.leases.clone(),
        };
        let running = supervisor.as_ref().map(|it| it.pid);
        explain(&mut leases, &survey, running, &dirs.supervisor());
        Ok(Self {
            leases,
            supervisor,
            silent,
            capacity,
            survey,
            staging_max: staging_max(dirs)?,
            charges: charges
                .map_err(|error| Failure::of(Exit::Storage, &error))?
                .unwrap_or_default(),
        })
    }

    fn leases(&self) -> &[LeaseStatus] {
        &self.leases
    }

    fn staged(&self) -> u64 {
        let bytes = self.charges.iter().map(|charge| charge.bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// How much of it is dead: leases, containers, charges.
    fn dead(&self) -> [usize; 3] {
        let leases = self.leases().iter();
        let containers = self.survey.engines.iter();
        let containers = containers.filter_map(|engine| engine.containers.as_ref().ok());
        [
            leases.filter(|it| it.state == LeaseState::Ending).count(),
            containers
                .flatten()
                .filter(|it| it.claim == Claim::Unclaimed)
                .count(),
            self.charges
                .iter()
                .filter(|it| it.state == ChargeState::Dead)
                .count(),
        ]
    }
}

/// Says of each dead lease whose engine does not answer that this is why it stays, and what can be
/// done. Nothing ends such a lease by itself: that engine may have its container still.
fn explain(leases: &mut [LeaseStatus], survey: &Survey, running: Option<u32>, state: &Path) {
    let dead = leases
        .iter_mut()
        .filter(|it| it.state == LeaseState::Ending);
    for lease in dead {
        let mut engines = survey.engines.iter();
        let engine = engines.find(|it| it.socket == lease.socket);
        let Some(why) = engine.and_then(|it| it.containers.as_ref().err()) else {
            continue;
        };
        let end = running.map_or_else(String::new, |pid| {
            format!("end the supervisor (kill {pid}) and ")
        });
        lease.waits_for = Some(format!(
            "its engine at {} does not answer ({why}); start that engine, and what is left there \
             is removed by the supervisor, which the next call or `symbi sandbox prune` starts. \
             Where that engine and its containers are gone for good, and no lease is live: \
             {end}move `{}` away",
            lease.socket.display(),
            state.join(LEASES).display()
        ));
    }
}

fn staging_max(dirs: &UserDirs) -> Result<u64, Failure> {
    let user = UserConfig::load(dirs).map_err(|error| Failure::of(Exit::Usage, &error))?;
    Ok(user.capacity.staging_mib << 20)
}

/// The staging pool, if it was ever used.
fn pool(dirs: &UserDirs) -> Result<Option<StagingPool>, Failure> {
    let folder = dirs.state.join("staging");
    if !folder.exists() {
        return Ok(None);
    }
    StagingPool::open_ambient(&folder, staging_max(dirs)?)
        .map(Some)
        .map_err(|error| Failure::of(Exit::Storage, &error))
}

fn status(dirs: &UserDirs, output: Output) -> Result<Exit, Failure> {
    let picture = Picture::take(dirs)?;
    if output.is_json() {
        output.value(&as_json(&picture));
        return Ok(Exit::Done);
    }
    output.line(&about_supervisor(&picture));
    let (held, max) = (picture.leases(), picture.capacity);
    let sum = |value: fn(&LeaseStatus) -> u64| held.iter().map(value).sum::<u64>();
    output.line(&format!(
        "capacity: {} of {} workers, {} of {} CPUs, {} of {} MiB",
        held.len(),
        max.workers,
        cpus(sum(|it| it.cpu_milli)),
        cpus(max.cpu_milli),
        sum(|it| it.memory_mib),
        max.memory_mib
    ));
    output.line(&format!(
        "staging: {} of {} bytes",
        picture.staged(),
        picture.staging_max
    ));
    for charge in &picture.charges {
        output.line(&format!("  {}", charge_text(charge)));
    }
    for lease in held {
        output.line(&lease_text(lease));
    }
    for engine in &picture.survey.engines {
        engine_lines(engine, output);
    }
    if picture.dead().iter().any(|count| *count > 0) {
        let [leases, containers, charges] = picture.dead();
        output.line(&format!(
            "dead: {leases} leases, {containers} containers, {charges} staging charges; \
             `symbi sandbox prune` removes what of them is provably gone"
        ));
    }
    Ok(Exit::Done)
}

fn about_supervisor(picture: &Picture) -> String {
    match (&picture.supervisor, &picture.silent) {
        (Some(status), _) => {
            let stays = if status.persistent {
                "persistent, "
            } else {
                ""
            };
            let how = match supervising::tie(status) {
                Tie::None => "in a unit of its own",
                Tie::LastLogin => {
                    "in a unit of its own, and not independent of this user's logins: it ends \
                     with the last of them; `loginctl enable-linger` lets it stay"
                }
                Tie::Login => {
                    "not independent of the login that started it: what ends all processes of \
                     that login ends it too"
                }
            };
            let (pid, version) = (status.pid, &status.version);
            format!("supervisor: process {pid} (symbi {version}), {stays}{how}")
        }
        (None, Some(why)) => format!("supervisor: it runs, and does not say more: {why}"),
        (None, None) => "supervisor: none runs; one is started when it is needed".to_owned(),
    }
}

fn cpus(milli: u64) -> String {
    let text = format!("{}.{:03}", milli / 1000, milli % 1000);
    match text.trim_end_matches('0') {
        short if short.ends_with('.') => format!("{short}0"),
        short => short.to_owned(),
    }
}

const fn charge_state(state: ChargeState) -> &'static str {
    match state {
        ChargeState::Live => "live",
        ChargeState::Referenced => "dead, and kept: a container may still have its files",
        ChargeState::Dead => "dead",
    }
}

fn charge_text(charge: &ChargeEntry) -> String {
    let holder = charge.holder.map_or_else(
        || "a process that died at once".to_owned(),
        |it| it.to_string(),
    );
    format!(
        "{holder}: {} bytes ({})",
        charge.bytes,
        charge_state(charge.state)
    )
}

const fn lease_state(state: LeaseState) -> &'static str {
    match state {
        LeaseState::Live => "live",
        LeaseState::Ending => "ending",
    }
}

fn lease_text(lease: &LeaseStatus) -> String {
    let mut text = format!(
        "lease {}: {}, {}, {} CPUs, {} MiB, of {}, since {}",
        lease.lease,
        lease_state(lease.state),
        lease.tier,
        cpus(lease.cpu_milli),
        lease.memory_mib,
        lease.owner,
        clock::rfc3339(UNIX_EPOCH + Duration::from_secs(lease.taken_at))
    );
    if let Some(why) = &lease.waits_for {
        text.push_str("\n  waits: ");
        text.push_str(why);
    }
    text
}

const fn claim_text(claim: Claim) -> &'static str {
    match claim {
        Claim::Leased => "leased",
        Claim::Unclaimed => "claimed by no lease: dead",
        Claim::Elsewhere => "of another state folder, left alone",
    }
}

fn engine_lines(engine: &EngineSurvey, output: Output) {
    let socket = engine.socket.display();
    match &engine.containers {
        Err(why) => output.line(&format!("engine {socket}: {why}")),
        Ok(containers) => {
            output.line(&format!("engine {socket}: {} containers", containers.len()));
            for it in containers {
                let claim = claim_text(it.claim);
                let state = model::Untrusted::new(it.state.as_str()).escaped();
                output.line(&format!("  {}: {state}, {claim}", it.container));
            }
        }
    }
}

fn as_json(picture: &Picture) -> Value {
    let engines = picture.survey.engines.iter().map(|engine| {
        let (containers, error) = match &engine.containers {
            Ok(containers) => (containers.as_slice(), None),
            Err(why) => (&[][..], Some(why)),
        };
        let containers = containers.iter().map(|it| {
            json!({
                "container": it.container, "lease": it.lease, "state": it.state,
                "claim": match it.claim {
                    Claim::Leased => "leased",
                    Claim::Unclaimed => "unclaimed",
                    Claim::Elsewhere => "elsewhere",
                }
            })
        });
        json!({
            "socket": engine.socket, "error": error, "containers": containers.collect::<Value>()
        })
    });
    let charges = picture.charges.iter().map(|it| {
        json!({
            "process": it.holder.map(|holder| holder.pid), "bytes": it.bytes,
            "state": match it.state {
                ChargeState::Live => "live",
                ChargeState::Referenced => "referenced",
                ChargeState::Dead => "dead",
            }
        })
    });
    let [leases, containers, dead_charges] = picture.dead();
    json!({
        "supervisor": picture.supervisor.as_ref().map(|status| json!({
            "process": status.pid, "version": status.version,
            "unit": status.independent, "persistent": status.persistent,
            "independent": supervising::tie(status) == Tie::None
        })),
        "supervisor_error": picture.silent,
        "capacity": picture.capacity,
        "leases": picture.leases(),
        "engines": engines.collect::<Value>(),
        "staging": {
            "bytes": picture.staged(), "bytes_max": picture.staging_max,
            "charges": charges.collect::<Value>()
        },
        "dead": { "leases": leases, "containers": containers, "charges": dead_charges }
    })
}

fn prune(dirs: &UserDirs, output: Output) -> Result<Exit, Failure> {
    let mut removed = Vec::new();
    // Where no supervisor ever ran, there are no leases: none is started to say so.
    if dirs.supervisor().exists() {
        let client = supervising::client(dirs)?;
        removed = client
            .prune()
            .map_err(|error| supervising::failure(&error))?;
    }
    if let Some(pool) = pool(dirs)? {
        let dead = pool
            .reclaim()
            .map_err(|error| Failure::of(Exit::Storage, &error))?;
        removed.extend(
            dead.iter()
                .map(|it| format!("staging charge of {}", charge_text(it))),
        );
    }
    let left: Vec<_> = Picture::take(dirs)?
        .leases
        .into_iter()
        .filter(|lease| lease.state == LeaseState::Ending)
        .collect();
    if output.is_json() {
        output.value(&json!({ "removed": removed, "left": left }));
        return Ok(Exit::Done);
    }
    for what in &removed {
        output.line(&format!("removed {what}"));
    }
    for lease in &left {
        output.line(&format!("left: {}", lease_text(lease)));
    }
    if removed.is_empty() && left.is_empty() {
        output.line("nothing is dead");
    }
    Ok(Exit::Done)
}
