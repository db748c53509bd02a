//! What is said to the engine and what it says, as far as it is used here.
//!
//! A field that the engine leaves out or sends as `null` is empty: it shows unset lists so.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// `null` is the type's empty value.
fn or_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// `/version`
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct EngineVersion {
    pub version: String,
    #[serde(default)]
    pub api_version: String,
}

/// `/info`
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct EngineInfo {
    #[serde(rename = "ID", default)]
    pub id: String,
    #[serde(default)]
    pub server_version: String,
    #[serde(default, deserialize_with = "or_empty")]
    pub runtimes: BTreeMap<String, Runtime>,
    #[serde(default)]
    pub default_runtime: String,
    #[serde(default, deserialize_with = "or_empty")]
    pub security_options: Vec<String>,
    #[serde(default)]
    pub cgroup_version: String,
    #[serde(default)]
    pub memory_limit: bool,
    #[serde(default)]
    pub swap_limit: bool,
    #[serde(default)]
    pub pids_limit: bool,
    #[serde(default)]
    pub cpu_cfs_quota: bool,
    /// The version of Podman, where that answers as if it were Docker.
    #[serde(skip)]
    pub podman: Option<String>,
}

/// A runtime that the engine can use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Runtime {
    #[serde(default)]
    pub path: String,
    #[serde(default, rename = "runtimeArgs", deserialize_with = "or_empty")]
    pub arguments: Vec<String>,
}

/// An image that is there.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ImageInspect {
    /// `sha256:` and 64 digits.
    pub id: String,
    #[serde(default, deserialize_with = "or_empty")]
    pub config: ImageConfig,
}

/// What an image brings along.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ImageConfig {
    #[serde(default, deserialize_with = "or_empty")]
    pub env: Vec<String>,
    #[serde(default, deserialize_with = "or_empty")]
    pub volumes: BTreeMap<String, serde_json::Map<String, serde_json::Value>>,
    #[serde(default, deserialize_with = "or_empty")]
    pub on_build: Vec<String>,
}

/// A container that is wished for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ContainerCreate {
    #[serde(flatten)]
    pub config: ContainerConfig,
    pub host_config: HostConfig,
}

/// The part of a container that does not depend on its host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ContainerConfig {
    /// On creation a name or an id; the engine keeps what was said.
    pub image: String,
    #[serde(default)]
    pub user: String,
    #[serde(default)]
    pub working_dir: String,
    #[serde(default, deserialize_with = "or_empty")]
    pub entrypoint: Vec<String>,
    #[serde(default, deserialize_with = "or_empty")]
    pub cmd: Vec<String>,
    #[serde(default, deserialize_with = "or_empty")]
    pub env: Vec<String>,
    #[serde(default, deserialize_with = "or_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub hostname: String,
    #[serde(default)]
    pub tty: bool,
    #[serde(default)]
    pub open_stdin: bool,
    #[serde(default)]
    pub stdin_once: bool,
    #[serde(default)]
    pub attach_stdin: bool,
    #[serde(default)]
    pub attach_stdout: bool,
    #[serde(default)]
    pub attach_stderr: bool,
    #[serde(default)]
    pub healthcheck: Option<Healthcheck>,
    /// The runtime makes the network namespace, and the engine puts nothing in it.
    #[serde(default)]
    pub network_disabled: bool,
}

/// A health check; `NONE` is that of no image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Healthcheck {
    #[serde(default, deserialize_with = "or_empty")]
    pub test: Vec<String>,
}

/// The part of a container that its host grants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HostConfig {
    pub network_mode: String,
    pub ipc_mode: String,
    pub pid_mode: String,
    #[serde(rename = "UTSMode")]
    pub uts_mode: String,
    pub userns_mode: String,
    pub cgroup_parent: String,
    pub runtime: String,
    pub privileged: bool,
    pub publish_all_ports: bool,
    pub readonly_rootfs: bool,
    pub auto_remove: bool,
    pub memory: u64,
    /// Memory and swap together.
    pub memory_swap: i64,
    pub nano_cpus: u64,
    #[serde(deserialize_with = "or_empty")]
    pub pids_limit: i64,
    pub shm_size: u64,
    #[serde(deserialize_with = "or_empty")]
    pub cap_add: Vec<String>,
    #[serde(deserialize_with = "or_empty")]
    pub cap_drop: Vec<String>,
    #[serde(deserialize_with = "or_empty")]
    pub security_opt: Vec<String>,
    #[serde(deserialize_with = "or_empty")]
    pub group_add: Vec<String>,
    #[serde(deserialize_with = "or_empty")]
    pub binds: Vec<String>,
    #[serde(deserialize_with = "or_empty")]
    pub volumes_from: Vec<String>,
    #[serde(deserialize_with = "or_empty")]
    pub links: Vec<String>,
    #[serde(deserialize_with = "or_empty")]
    pub extra_hosts: Vec<String>,
    #[serde(deserialize_with = "or_empty")]
    pub devices: Vec<serde_json::Value>,
    #[serde(deserialize_with = "or_empty")]
    pub device_requests: Vec<serde_json::Value>,
    #[serde(deserialize_with = "or_empty")]
    pub device_cgroup_rules: Vec<String>,
    #[serde(deserialize_with = "or_empty")]
    pub port_bindings: BTreeMap<String, serde_json::Value>,
    #[serde(deserialize_with = "or_empty")]
    pub sysctls: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_empty")]
    pub tmpfs: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_empty")]
    pub mounts: Vec<MountRequest>,
    #[serde(deserialize_with = "or_empty")]
    pub ulimits: Vec<Ulimit>,
    pub log_config: LogConfig,
    pub restart_policy: RestartPolicy,
    #[serde(deserialize_with = "or_empty")]
    pub init: bool,
}

/// A wished mount.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct MountRequest {
    #[serde(rename = "Type")]
    pub kind: String,
    pub source: String,
    pub target: String,
    pub read_only: bool,
    #[serde(deserialize_with = "or_empty")]
    pub bind_options: BindOptions,
}

/// How a folder or file of the host is bound.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct BindOptions {
    pub propagation: String,
    pub non_recursive: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Ulimit {
    pub name: String,
    pub soft: i64,
    pub hard: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct LogConfig {
    #[serde(rename = "Type")]
    pub kind: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RestartPolicy {
    pub name: String,
}

/// A container as the engine has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ContainerInspect {
    pub id: String,
    #[serde(default)]
    pub name: String,
    /// The id of its image.
    #[serde(default)]
    pub image: String,
    pub state: ContainerState,
    pub config: ContainerConfig,
    pub host_config: HostConfig,
    #[serde(default, deserialize_with = "or_empty")]
    pub mounts: Vec<MountPoint>,
    #[serde(default, deserialize_with = "or_empty")]
    pub network_settings: NetworkSettings,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ContainerState {
    pub status: String,
    pub running: bool,
    #[serde(rename = "OOMKilled")]
    pub oom_killed: bool,
    pub pid: i64,
    pub exit_code: i64,
    pub error: String,
    /// RFC 3339.
    pub started_at: String,
    pub finished_at: String,
}

/// What stands at a path of a container, and is bound there.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PathStat {
    pub size: u64,
    /// Permissions, and bits above them for what is no regular file.
    pub mode: u32,
}

impl PathStat {
    /// Reads the base64 of its JSON.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        use base64::Engine as _;
        let json = base64::engine::general_purpose::STANDARD.decode(text);
        let json = json.map_err(|error| error.to_string())?;
        serde_json::from_slice(&json).map_err(|error| error.to_string())
    }
}

/// A mount as it is made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct MountPoint {
    #[serde(rename = "Type")]
    pub kind: String,
    pub source: String,
    pub destination: String,
    #[serde(rename = "RW")]
    pub is_writable: bool,
    pub propagation: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NetworkSettings {
    #[serde(deserialize_with = "or_empty")]
    pub networks: BTreeMap<String, serde_json::Value>,
}

/// A container in a list.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ContainerSummary {
    pub id: String,
    #[serde(default, deserialize_with = "or_empty")]
    pub names: Vec<String>,
    #[serde(default, deserialize_with = "or_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub state: String,
    /// Seconds since 1970.
    #[serde(default)]
    pub created: i64,
}

/// How a container ended. A status other than 0 is a result, no failure of the question.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct WaitEnd {
    pub status_code: i64,
}
