//! From a worker's specification to the container that is asked for.

use std::collections::{BTreeMap, BTreeSet};

use worker::{Limits, Network, StartError, WorkerSpec};

use super::{ContainerKind, failed, network_mode};
use crate::engine::{
    ContainerConfig, ContainerCreate, Healthcheck, HostConfig, ImageInspect, LogConfig,
    MountRequest, RestartPolicy, Ulimit,
};
use crate::filters;
use crate::lease::{LEASE_LABEL, LeaseId, OWNER_LABEL};
use crate::limits::{
    CONTAINER_CORE_BYTES, CONTAINER_OPEN_FILES_MAX, CONTAINER_SCRATCH_INODES,
    GVISOR_HOST_THREADS_MAX, SHM_SHARE,
};

/// What its whole host calls a worker.
const HOSTNAME: &str = "worker";
/// Where an agent finds its broker.
const CHANNEL: &str = "/channel";
/// Folders of an image in which nothing of a call can stand.
const RESERVED: [&str; 17] = [
    "bin", "boot", "channel", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "root",
    "run", "sbin", "sys", "tmp", "usr", "",
];

/// What a container is made of besides its specification.
#[derive(Debug)]
pub(super) struct Wish<'a> {
    pub(super) kind: ContainerKind,
    pub(super) runtime: &'a str,
    pub(super) image: &'a ImageInspect,
    pub(super) user: (u32, u32),
    pub(super) lease: &'a LeaseId,
    pub(super) binds: Vec<MountRequest>,
}

/// The container of a specification.
pub(super) fn of(wish: &Wish<'_>, spec: &WorkerSpec) -> Result<ContainerCreate, StartError> {
    check_place(spec.working_dir())?;
    Ok(ContainerCreate {
        config: config(wish, spec),
        host_config: host_config(wish, spec)?,
    })
}

fn config(wish: &Wish<'_>, spec: &WorkerSpec) -> ContainerConfig {
    let (first, rest) = spec.argv().split_first().map_or_else(
        || (String::new(), Vec::new()),
        |(first, rest)| (first.clone(), rest.to_vec()),
    );
    let uid = rustix::process::geteuid().as_raw();
    let with_stdin = spec.stdin().is_some();
    ContainerConfig {
        image: wish.image.id.clone(),
        user: format!("{}:{}", wish.user.0, wish.user.1),
        working_dir: spec.working_dir().to_owned(),
        // The image's own words are replaced, not added to.
        entrypoint: vec![first],
        cmd: rest,
        env: environment(wish, spec),
        labels: BTreeMap::from([
            (LEASE_LABEL.to_owned(), wish.lease.to_string()),
            (OWNER_LABEL.to_owned(), uid.to_string()),
        ]),
        hostname: HOSTNAME.to_owned(),
        tty: false,
        open_stdin: with_stdin,
        stdin_once: with_stdin,
        attach_stdin: with_stdin,
        attach_stdout: true,
        attach_stderr: true,
        healthcheck: Some(Healthcheck {
            test: vec!["NONE".to_owned()],
        }),
        // With the engine's own network `none` a start takes twice as long, and is no emptier: the
        // runtime makes a fresh namespace with a loopback in it.
        network_disabled: spec.network() == Network::None,
    }
}

/// The worker's environment. A name without a value takes away what the image or the engine set.
fn environment(wish: &Wish<'_>, spec: &WorkerSpec) -> Vec<String> {
    let own = spec.environment();
    let inherited = wish.image.config.env.iter();
    let inherited = inherited.filter_map(|entry| entry.split('=').next());
    let removed: BTreeSet<&str> = inherited
        .chain(["HOSTNAME"])
        .filter(|name| !name.is_empty() && !own.contains_key(*name))
        .collect();
    let mut entries: Vec<String> = own
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    entries.extend(removed.into_iter().map(str::to_owned));
    entries
}

fn host_config(wish: &Wish<'_>, spec: &WorkerSpec) -> Result<HostConfig, StartError> {
    let limits = spec.limits();
    let too_large = |_| failed("limits", "a limit is too large for the engine");
    let memory = limits.memory_mib.value.saturating_mul(1 << 20);
    let pids = match wish.kind {
        ContainerKind::Docker => limits.pids.value,
        // Its threads on the host; the guest's processes are bounded by its own limit.
        ContainerKind::Gvisor => GVISOR_HOST_THREADS_MAX.saturating_add(limits.pids.value),
    };
    let mut mounts = wish.binds.clone();
    if let Some(channel) = spec.channel() {
        let source = channel.to_str().ok_or_else(|| {
            let shown = channel.display();
            failed("channel", format!("`{shown}` is not UTF-8"))
        })?;
        mounts.push(bind(source, CHANNEL, true));
    }
    Ok(HostConfig {
        network_mode: network_mode(spec.network()).to_owned(),
        // No shared memory of the engine's: the worker's is a part of its scratch space.
        ipc_mode: "none".to_owned(),
        shm_size: limits.scratch_bytes.value / SHM_SHARE,
        runtime: wish.runtime.to_owned(),
        readonly_rootfs: true,
        memory,
        // No swap besides.
        memory_swap: i64::try_from(memory).map_err(too_large)?,
        nano_cpus: limits.cpu_milli.value.saturating_mul(1_000_000),
        pids_limit: i64::try_from(pids).map_err(too_large)?,
        cap_drop: vec!["ALL".to_owned()],
        security_opt: security(wish.kind),
        tmpfs: scratch(wish, spec),
        mounts,
        ulimits: ulimits(wish.kind, limits)?,
        log_config: LogConfig {
            kind: "none".to_owned(),
        },
        restart_policy: RestartPolicy {
            name: "no".to_owned(),
        },
        ..HostConfig::default()
    })
}

/// A file or folder of the host, private to the container's view.
pub(super) fn bind(source: &str, target: &str, read_only: bool) -> MountRequest {
    MountRequest {
        kind: "bind".to_owned(),
        source: source.to_owned(),
        target: target.to_owned(),
        read_only,
        bind_options: crate::engine::BindOptions {
            propagation: "rprivate".to_owned(),
            non_recursive: true,
        },
    }
}

fn security(kind: ContainerKind) -> Vec<String> {
    let mut options = vec!["no-new-privileges".to_owned()];
    match kind {
        ContainerKind::Docker => options.push(format!("seccomp={}", filters::engine_profile())),
        // The workload makes its system calls to gVisor's kernel, which filters its own.
        ContainerKind::Gvisor => {}
    }
    options
}

/// Scratch places that together have the worker's scratch space.
fn scratch(wish: &Wish<'_>, spec: &WorkerSpec) -> BTreeMap<String, String> {
    let all = spec.limits().scratch_bytes.value;
    let shm = all / SHM_SHARE;
    let mut places = vec![("/dev/shm", shm)];
    match spec.channel() {
        Some(_) => {
            let half = (all - shm) / 2;
            places.extend([("/tmp", half), (spec.working_dir(), half)]);
        }
        None => places.push(("/tmp", all - shm)),
    }
    let (uid, gid) = wish.user;
    let inodes = match wish.kind {
        ContainerKind::Docker => format!(",nr_inodes={CONTAINER_SCRATCH_INODES}"),
        // Its file system knows no such option; the worker's memory bounds it.
        ContainerKind::Gvisor => String::new(),
    };
    places
        .into_iter()
        .map(|(place, bytes)| {
            let options = format!(
                "rw,nosuid,nodev,noexec,size={bytes},mode=1777,uid={uid},gid={gid}{inodes}"
            );
            (place.to_owned(), options)
        })
        .collect()
}

fn ulimits(kind: ContainerKind, limits: &Limits) -> Result<Vec<Ulimit>, StartError> {
    let mut wanted = vec![
        ("core", CONTAINER_CORE_BYTES),
        ("fsize", limits.file_bytes.value),
        ("nofile", CONTAINER_OPEN_FILES_MAX),
    ];
    if kind == ContainerKind::Gvisor {
        // On the host's kernel it would count the processes of all workers together.
        wanted.push(("nproc", limits.pids.value));
    }
    let limit = |(name, value): (&str, u64)| {
        let value = i64::try_from(value).map_err(|error| failed("limits", error))?;
        Ok(Ulimit {
            name: name.to_owned(),
            soft: value,
            hard: value,
        })
    };
    wanted.into_iter().map(limit).collect()
}

fn check_place(path: &str) -> Result<(), StartError> {
    let first = path.split('/').nth(1).unwrap_or_default();
    let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    let is_canonical = path
        .strip_prefix('/')
        .is_some_and(|rest| rest.split('/').all(plain));
    if is_canonical && !RESERVED.contains(&first) {
        return Ok(());
    }
    Err(failed(
        "working directory",
        format!("`{path}` is not an absolute path outside of the image's system folders"),
    ))
}
