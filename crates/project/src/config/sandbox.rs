//! `[sandbox]`: the isolation, its ceilings and its limits.

use std::ops::Range;

use model::{RelativePath, nearest};
use worker::TierKind;
use worker::limits::{
    CPU_MILLI_DEFAULT, MEMORY_MIB_DEFAULT, PIDS_DEFAULT, SCRATCH_BYTES_DEFAULT,
    SCRATCH_FILE_BYTES_DEFAULT, STREAM_BYTES_DEFAULT, TIME_MS_DEFAULT,
};

use super::host_path::{HostPath, clean_absolute};
use super::label;
use crate::limits::{
    CPU_MILLI_MAX, CPU_MILLI_MIN, EXECUTION_SECONDS_MAX, MEMORY_MIB_MAX, MEMORY_MIB_MIN,
    PARSERS_MAX, PIDS_MAX, PIDS_MIN, SCRATCH_MIB_MAX, STREAM_BYTES_MAX, SYSTEM_FOLDERS_MAX,
    VOLUMES_MAX,
};
use crate::project::CONTROL_NAMES;
use crate::reader::{Entry, Table};

/// Tiers that a configuration can ask for.
const TIERS: [TierKind; 3] = [TierKind::Namespace, TierKind::Docker, TierKind::Gvisor];
/// The id that owns nothing.
const NOBODY: u32 = 65534;
const WORKING_DIR_DEFAULT: &str = "/workspace";
/// Folders of the worker's own root, where no working directory can stand.
const RESERVED_FOLDERS: [&str; 18] = [
    "agent", "bin", "boot", "channel", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc",
    "root", "run", "sbin", "sys", "tmp", "usr", "var",
];

/// Folders of the host that no worker is shown (the tier refuses them too).
const OWN_FOLDERS: [&str; 9] = [
    "channel", "dev", "etc", "proc", "root", "run", "sys", "tmp", "var",
];

/// The isolation that workers run in. Each tier has its own table; none inherits another's.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SandboxSettings {
    pub tier: TierKind,
    /// Refuse limits that are only partly enforced.
    pub require_enforced: bool,
    /// `[sandbox.parsers] allow`: output parsers, by their path in the worker.
    pub parsers: Vec<String>,
    /// Where `symbi-init` is, if not beside the executable.
    pub init: Option<HostPath>,
    pub namespace: NamespaceSettings,
    /// Present at least where `tier` is `docker`.
    pub docker: Option<ContainerSettings>,
    /// Present at least where `tier` is `gvisor`.
    pub gvisor: Option<ContainerSettings>,
}

impl SandboxSettings {
    /// The settings of the chosen tier, where it runs containers.
    #[must_use]
    pub fn container(&self) -> Option<&ContainerSettings> {
        match self.tier {
            TierKind::Docker => self.docker.as_ref(),
            TierKind::Gvisor => self.gvisor.as_ref(),
            TierKind::Namespace | TierKind::Firecracker => None,
        }
    }

    /// The configured sockets of container engines.
    pub fn sockets(&self) -> impl Iterator<Item = &HostPath> {
        let tables = [&self.docker, &self.gvisor].into_iter().flatten();
        tables.filter_map(|table| table.socket.as_ref())
    }

    /// The limits of the chosen tier.
    #[must_use]
    pub fn limits(&self) -> &LimitSettings {
        self.container()
            .map_or(&self.namespace.limits, |container| &container.limits)
    }

    /// The file ceilings of the chosen tier.
    #[must_use]
    pub fn volumes(&self) -> &[Volume] {
        self.container()
            .map_or(&self.namespace.volumes, |container| &container.volumes)
    }

    /// The working directory of the chosen tier.
    #[must_use]
    pub fn working_dir(&self) -> &str {
        self.container()
            .map_or(&self.namespace.working_dir, |container| {
                &container.working_dir
            })
    }
}

/// `[sandbox.namespace]`
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamespaceSettings {
    /// Absolute, inside the worker.
    pub working_dir: String,
    pub volumes: Vec<Volume>,
    /// Absolute folders that the worker's root shows besides the system's own.
    pub system: Vec<String>,
    pub limits: LimitSettings,
}

/// `[sandbox.docker]` and `[sandbox.gvisor]`
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContainerSettings {
    /// An image that is already there; never pulled.
    pub image: String,
    /// The engine's unix socket, if not the usual one.
    pub socket: Option<HostPath>,
    /// Whether workers get the engine's own network; never in production.
    pub network: ContainerNetwork,
    /// `UID:GID` of the workload; never root.
    pub user: ContainerUser,
    /// Absolute, inside the worker.
    pub working_dir: String,
    pub volumes: Vec<Volume>,
    pub limits: LimitSettings,
}

/// The network of a container's workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ContainerNetwork {
    /// A loopback of its own.
    #[default]
    None,
    /// The engine's own network, which leads out.
    Bridge,
}

/// Who a container's workload is. Not root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerUser {
    uid: u32,
    gid: u32,
}

impl ContainerUser {
    #[must_use]
    pub const fn uid(self) -> u32 {
        self.uid
    }

    #[must_use]
    pub const fn gid(self) -> u32 {
        self.gid
    }
}

impl Default for ContainerUser {
    fn default() -> Self {
        Self {
            uid: NOBODY,
            gid: NOBODY,
        }
    }
}

/// Limits of one worker, in the units of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitSettings {
    pub memory_mib: u64,
    pub cpu_milli: u64,
    pub pids: u64,
    pub file_bytes: u64,
    pub scratch_bytes: u64,
    pub stream_bytes: u64,
    pub time_ms: u64,
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            memory_mib: MEMORY_MIB_DEFAULT,
            cpu_milli: CPU_MILLI_DEFAULT,
            pids: PIDS_DEFAULT,
            file_bytes: SCRATCH_FILE_BYTES_DEFAULT,
            scratch_bytes: SCRATCH_BYTES_DEFAULT,
            stream_bytes: STREAM_BYTES_DEFAULT,
            time_ms: TIME_MS_DEFAULT,
        }
    }
}

/// A ceiling: files below it can be granted to a call. Never a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Volume {
    pub host: HostPath,
    /// Absolute, inside the worker: the working directory or below it.
    pub target: String,
    /// The target as a grant names it; `None` is the working directory itself.
    pub below: Option<RelativePath>,
    pub access: VolumeAccess,
    /// Where it stands in the configuration's text, in bytes.
    pub(crate) span: Range<usize>,
}

/// What may be granted below a ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum VolumeAccess {
    /// Reading.
    ReadOnly,
    /// Reading, and creating new files.
    ReadWrite,
}

pub(super) fn read(root: &Table<'_>, production: bool) -> SandboxSettings {
    let mut settings = SandboxSettings {
        tier: TierKind::Namespace,
        require_enforced: false,
        parsers: Vec::new(),
        init: None,
        namespace: NamespaceSettings {
            working_dir: WORKING_DIR_DEFAULT.to_owned(),
            volumes: Vec::new(),
            system: Vec::new(),
            limits: LimitSettings::default(),
        },
        docker: None,
        gvisor: None,
    };
    let Some(table) = root.table("sandbox") else {
        return settings;
    };
    let tier = table.entry("tier");
    if let Some(kind) = tier.as_ref().and_then(read_tier) {
        settings.tier = kind;
    }
    let require_enforced = table.entry("require_enforced");
    settings.require_enforced = require_enforced.and_then(|e| e.boolean()).unwrap_or(false);
    settings.init = table.entry("init").and_then(|entry| HostPath::read(&entry));
    if let Some(parsers) = table.table("parsers") {
        settings.parsers = read_parsers(&parsers);
        parsers.finish();
    }
    if let Some(namespace) = table.table("namespace") {
        settings.namespace = read_namespace(namespace);
    }
    let docker = table.entry("docker");
    let gvisor = table.entry("gvisor");
    let missing = match settings.tier {
        TierKind::Docker => docker.is_none(),
        TierKind::Gvisor => gvisor.is_none(),
        TierKind::Namespace | TierKind::Firecracker => false,
    };
    if let (Some(entry), true) = (tier, missing) {
        let name = settings.tier.as_str();
        entry.fault(
            format!("the tier `{name}` needs a table `[sandbox.{name}]`"),
            format!("add: [sandbox.{name}] with image = \"NAME\""),
        );
    }
    let container = |entry: Option<Entry<'_>>| {
        let table = entry?.table()?;
        read_container(table, production)
    };
    settings.docker = container(docker);
    settings.gvisor = container(gvisor);
    table.finish();
    settings
}

fn read_tier(entry: &Entry<'_>) -> Option<TierKind> {
    let name = entry.text()?;
    let known = TIERS.into_iter().find(|tier| tier.as_str() == name);
    if known.is_none() {
        entry.source().mark();
        let tiers = TIERS.map(TierKind::as_str).join(", ");
        let message = match name {
            "host" | "none" => format!("there is no tier `{name}`: a tool never runs unisolated"),
            _ => format!("there is no tier `{}`", name.escape_debug()),
        };
        let help = match nearest(name, TIERS.map(TierKind::as_str)) {
            Some(near) => format!("did you mean `{near}`? The tiers are {tiers}"),
            None => format!("the tiers are {tiers}"),
        };
        entry.fault(message, help);
    }
    known
}

fn read_namespace(table: Table<'_>) -> NamespaceSettings {
    let (working_dir, volumes) = read_files(&table);
    let limits = read_limits(&table);
    let system = table.entry("system");
    if let Some(rootfs) = table.entry("rootfs") {
        rootfs.fault(
            "`rootfs` is not supported in this version",
            "workers show the system's own folders; name others with `system`",
        );
    }
    let system = system.map(|entry| read_system(&entry)).unwrap_or_default();
    table.finish();
    NamespaceSettings {
        working_dir,
        volumes,
        system,
        limits,
    }
}

fn read_parsers(table: &Table<'_>) -> Vec<String> {
    let mut parsers = Vec::new();
    let Some(allow) = table.entry("allow") else {
        return parsers;
    };
    for (text, element) in allow.distinct_texts(PARSERS_MAX) {
        match clean_absolute(text) {
            Ok(()) => parsers.push(text.to_owned()),
            Err(error) => element.fault(
                format!(
                    "`{}` is no output parser: {}",
                    text.escape_debug(),
                    error.of_target()
                ),
                "write its absolute path in the worker, as a manifest has it after `custom:`",
            ),
        }
    }
    parsers
}

fn read_system(entry: &Entry<'_>) -> Vec<String> {
    let mut folders = Vec::new();
    for (text, element) in entry.distinct_texts(SYSTEM_FOLDERS_MAX) {
        let first = text.split('/').nth(1).unwrap_or_default();
        match clean_absolute(text) {
            Ok(()) if OWN_FOLDERS.contains(&first) => element.fault(
                format!("`/{first}` of a worker is its own, never the host's"),
                "name a folder of programs, like \"/usr/local\" or \"/opt/tools\"",
            ),
            Ok(()) => folders.push(text.to_owned()),
            Err(error) => element.fault(
                format!(
                    "`{}` is no system folder: {}",
                    text.escape_debug(),
                    error.of_target()
                ),
                "write an absolute path like \"/usr/local\"",
            ),
        }
    }
    folders
}

fn read_container(table: Table<'_>, production: bool) -> Option<ContainerSettings> {
    let image = table
        .required("image", "\"NAME:TAG\"")
        .and_then(|entry| read_image(&entry));
    let socket = table
        .entry("socket")
        .and_then(|entry| HostPath::read(&entry));
    let network = table.entry("network");
    let network = network.and_then(|entry| read_network(&entry, production));
    let user = table.entry("user").and_then(|entry| read_user(&entry));
    refuse_options(&table);
    let (working_dir, volumes) = read_files(&table);
    let limits = read_limits(&table);
    table.finish();
    Some(ContainerSettings {
        image: image?,
        socket,
        network: network.unwrap_or_default(),
        user: user.unwrap_or_default(),
        working_dir,
        volumes,
        limits,
    })
}

/// Options of container engines that would open the worker, with what is there instead.
const OPENINGS: [(&str, &str); 17] = [
    (
        "privileged",
        "a worker has no capability, and none can be added",
    ),
    (
        "cap_add",
        "a worker has no capability, and none can be added",
    ),
    (
        "capabilities",
        "a worker has no capability, and none can be added",
    ),
    ("devices", "a worker has no device of the host"),
    ("gpus", "a worker has no device of the host"),
    (
        "security_opt",
        "a worker's system calls and rights are not the project's to change",
    ),
    (
        "seccomp",
        "a worker's system calls and rights are not the project's to change",
    ),
    ("pid", "a worker has namespaces of its own"),
    ("ipc", "a worker has namespaces of its own"),
    ("uts", "a worker has namespaces of its own"),
    ("userns", "a worker has namespaces of its own"),
    (
        "mounts",
        "files reach a worker through a manifest's [filesystem] below `volumes`",
    ),
    (
        "tmpfs",
        "a worker's scratch space is bounded by `scratch_mib`",
    ),
    ("runtime", "the tier says the runtime: `docker` or `gvisor`"),
    ("ports", "a worker serves nothing to the host"),
    (
        "flags",
        "what a worker may do is said by the keys of this table alone",
    ),
    (
        "args",
        "what a worker may do is said by the keys of this table alone",
    ),
];

fn refuse_options(table: &Table<'_>) {
    for (key, why) in OPENINGS {
        if let Some(entry) = table.entry(key) {
            entry.fault(format!("`{}` cannot be set", entry.name()), why);
        }
    }
}

/// A name or an id: no option, no address of a registry's API, nothing that needs quoting.
fn read_image(entry: &Entry<'_>) -> Option<String> {
    let text = label(entry)?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/:@".contains(&byte);
    let starts = text.starts_with(|first: char| first.is_ascii_alphanumeric());
    if starts && text.bytes().all(plain) {
        return Some(text);
    }
    entry.fault(
        format!("`{}` is no name of an image", text.escape_debug()),
        "write NAME:TAG or sha256:ID of an image that the engine already has",
    );
    None
}

fn read_network(entry: &Entry<'_>, production: bool) -> Option<ContainerNetwork> {
    match entry.text()? {
        "none" => Some(ContainerNetwork::None),
        "bridge" if production => {
            entry.fault(
                "`network = \"bridge\"` lets workers out, which a project in production must not",
                "leave it out, or set `production = false` under [project]",
            );
            None
        }
        "bridge" => Some(ContainerNetwork::Bridge),
        other => {
            let other = other.escape_debug();
            entry.fault(
                format!("workers do not get the network `{other}`"),
                "write \"none\", or \"bridge\" with `production = false`",
            );
            None
        }
    }
}

/// `UID` or `UID:GID`, in numbers: a name means what an image says that it means.
fn read_user(entry: &Entry<'_>) -> Option<ContainerUser> {
    let text = entry.text()?;
    let number = |part: &str| {
        let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| part.parse::<u32>().ok()).flatten()
    };
    let (uid, gid) = text.split_once(':').unwrap_or((text, text));
    match (number(uid), number(gid)) {
        (Some(uid), Some(gid)) if uid != 0 && gid != 0 => Some(ContainerUser { uid, gid }),
        (Some(_), Some(_)) => {
            entry.fault(
                "a worker never runs as root",
                "write another UID:GID, or leave `user` out for 65534:65534",
            );
            None
        }
        _ => {
            entry.fault(
                format!("`{}` is not UID:GID in numbers", text.escape_debug()),
                "a name would mean whatever the image says; write for example \"65534:65534\"",
            );
            None
        }
    }
}

fn read_limits(table: &Table<'_>) -> LimitSettings {
    let integer = |key, low, high| table.entry(key).and_then(|entry| entry.integer(low..=high));
    let defaults = LimitSettings::default();
    let or = |read: Option<u64>, default| read.unwrap_or(default);
    let cpus = table
        .entry("cpus")
        .and_then(|entry| entry.thousandths(CPU_MILLI_MIN..=CPU_MILLI_MAX));
    let seconds = integer("max_execution_seconds", 1, EXECUTION_SECONDS_MAX);
    let scratch_mib = integer("scratch_mib", 1, SCRATCH_MIB_MAX);
    LimitSettings {
        memory_mib: or(
            integer("memory_mib", MEMORY_MIB_MIN, MEMORY_MIB_MAX),
            defaults.memory_mib,
        ),
        cpu_milli: or(cpus, defaults.cpu_milli),
        pids: or(integer("pids", PIDS_MIN, PIDS_MAX), defaults.pids),
        file_bytes: defaults.file_bytes,
        scratch_bytes: scratch_mib.map_or(defaults.scratch_bytes, |mib| mib << 20),
        stream_bytes: or(
            integer("max_output_bytes", 1, STREAM_BYTES_MAX),
            defaults.stream_bytes,
        ),
        time_ms: seconds.map_or(defaults.time_ms, |seconds| seconds * 1000),
    }
}

/// The working directory and the ceilings of a tier's table.
fn read_files(table: &Table<'_>) -> (String, Vec<Volume>) {
    let working_dir = table
        .entry("working_dir")
        .and_then(|entry| read_working_dir(&entry))
        .unwrap_or_else(|| WORKING_DIR_DEFAULT.to_owned());
    let mut volumes: Vec<Volume> = Vec::new();
    let listed = table.entry("volumes").map(|entry| entry.list(VOLUMES_MAX));
    for element in listed.unwrap_or_default() {
        let Some(volume) = read_volume(&element, &working_dir) else {
            continue;
        };
        if volumes.iter().any(|other| other.target == volume.target) {
            element.fault(
                format!("two volumes have the target `{}`", volume.target),
                "give each volume a target of its own",
            );
        } else {
            volumes.push(volume);
        }
    }
    (working_dir, volumes)
}

fn read_working_dir(entry: &Entry<'_>) -> Option<String> {
    let text = entry.text()?;
    let shown = text.escape_debug();
    if let Err(error) = clean_absolute(text) {
        entry.fault(
            format!("`{shown}` is no working directory: {}", error.of_target()),
            "write an absolute path like \"/workspace\"",
        );
        return None;
    }
    let first = text.split('/').nth(1).unwrap_or_default();
    if RESERVED_FOLDERS.contains(&first) {
        entry.fault(
            format!("`{shown}` lies in `/{first}`, which belongs to the worker's own root"),
            "write an absolute path like \"/workspace\"",
        );
        return None;
    }
    Some(text.to_owned())
}

const VOLUME_FORM: &str = "a volume is written HOST:TARGET:ro or HOST:TARGET:rw, like \
                           \"./data:/workspace/data:ro\"";

fn read_volume(entry: &Entry<'_>, working_dir: &str) -> Option<Volume> {
    let text = entry.text()?;
    let shown = text.escape_debug();
    let fault = |message: String, help: &str| {
        entry.fault(message, help);
        None
    };
    let parts: Vec<&str> = text.split(':').collect();
    let [host, target, access] = parts.as_slice() else {
        return fault(format!("`{shown}` has not three parts"), VOLUME_FORM);
    };
    let access = match *access {
        "ro" => VolumeAccess::ReadOnly,
        "rw" => VolumeAccess::ReadWrite,
        _ => {
            return fault(
                format!("`{shown}` ends neither in `:ro` nor in `:rw`"),
                VOLUME_FORM,
            );
        }
    };
    let host = match HostPath::parse(host) {
        Ok(host) => host,
        Err(error) => {
            return fault(
                format!("the host part of `{shown}` is no path: {error}"),
                "write ./NAME for a folder in the project, or /PATH",
            );
        }
    };
    if let Err(error) = clean_absolute(target) {
        return fault(
            format!(
                "the target of `{shown}` is no path of a worker: {}",
                error.of_target()
            ),
            VOLUME_FORM,
        );
    }
    let Some(below) = below_working_dir(target, working_dir) else {
        return fault(
            format!("the target of `{shown}` is not below the working directory `{working_dir}`"),
            "grants are relative to the working directory: no call could name a file there",
        );
    };
    if access == VolumeAccess::ReadWrite
        && let Some(name) = control_name(&host)
    {
        return fault(
            format!("`{shown}` would make `{name}` of the project writable for tools"),
            "name a folder without control files, like \"./out:/workspace/out:rw\"",
        );
    }
    Some(Volume {
        host,
        target: (*target).to_owned(),
        below,
        access,
        span: entry.place(),
    })
}

/// `Some(None)` is the working directory itself.
#[expect(
    clippy::option_option,
    reason = "not below, itself, below are three answers"
)]
fn below_working_dir(target: &str, working_dir: &str) -> Option<Option<RelativePath>> {
    if target == working_dir {
        return Some(None);
    }
    let below = target.strip_prefix(working_dir)?.strip_prefix('/')?;
    RelativePath::new(below).ok().map(Some)
}

/// The control file or folder that a host path holds or lies in, as far as its text tells.
fn control_name(host: &HostPath) -> Option<&'static str> {
    match host {
        HostPath::Project(None) => CONTROL_NAMES.first().copied(),
        HostPath::Project(Some(path)) => {
            let first = path.components().next()?;
            CONTROL_NAMES.into_iter().find(|name| *name == first)
        }
        HostPath::Absolute(_) => None,
    }
}
