//! The operator's files on disk: a project, its configuration, its private records, and the
//! user's own configuration and trust.
//!
//! Everything here decides what an agent may do, so nothing is believed that somebody else
//! could have written: owner, mode and links are judged on held handles before a byte is read.
//! This crate reads no environment: the caller passes the user's folders in.

#![forbid(unsafe_code)]

mod ceilings;
mod config;
mod diff;
mod dirs;
mod folder;
pub mod limits;
mod place;
mod project;
mod reader;
mod run_folder;
mod scaffold;
mod state;
mod trust;

pub use ceilings::CeilingError;
pub use config::{
    AgentExecutor, AgentSettings, Anchor, AnchorPlace, ApprovalSettings, ApprovalSurface,
    CapacitySettings, ChatListen, ChatSettings, Config, ConfigError, ContainerNetwork,
    ContainerSettings, ContainerUser, Credential, HostPath, InferenceSettings, KeyFileError,
    LimitSettings, NamespaceSettings, Provider, SandboxSettings, UserConfig, UserConfigError,
    Volume, VolumeAccess, read_key_file,
};
pub use diff::unified_diff;
pub use dirs::{ProjectId, ProjectIdError, UserDirs};
pub use folder::{Folder, FolderError};
pub use place::{UnsafePlace, UnsafeReason};
pub use project::{
    CONFIG_FILE, CONTROL_NAMES, ControlFile, Project, ProjectError, SearchEnd, Surface,
};
pub use run_folder::RunFolder;
pub use scaffold::{ScaffoldError, scaffold};
pub use state::{ProjectState, STATE_FOLDER, StateError};
pub use trust::{ChangeKind, Changes, FileChange, Trust, TrustError, TrustStatus, UnusableRecord};
