//! What `cargo metadata` says about the packages: the wire types of its JSON, and how to get it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
    pub(crate) workspace_root: PathBuf,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    /// An SPDX expression, or nothing.
    pub(crate) license: Option<String>,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `dev` or `build`; nothing for a normal one.
    pub(crate) kind: Option<String>,
    /// Set for a crate of this workspace.
    pub(crate) path: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) kind: Vec<String>,
    pub(crate) src_path: PathBuf,
}

impl Metadata {
    /// Asks cargo about the workspace around the current folder, without the network, for this
    /// machine's platform: what a build here needs is then enough.
    ///
    /// # Errors
    /// cargo that cannot be run or refuses (a lock file out of date, packages never fetched), JSON
    /// of another shape.
    pub(crate) fn read() -> Result<Self, MetadataError> {
        let about = run(&["-vV"])?;
        let about = String::from_utf8_lossy(&about.stdout).into_owned();
        let host = about.lines().find_map(|line| line.strip_prefix("host: "));
        let mut arguments = vec!["metadata", "--offline", "--locked", "--format-version", "1"];
        arguments.extend(host.iter().flat_map(|host| ["--filter-platform", *host]));
        let output = run(&arguments)?;
        serde_json::from_slice(&output.stdout).map_err(MetadataError::Shape)
    }

    /// The crates of the workspace.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        let is_member = |package: &&Package| self.workspace_members.contains(&package.id);
        self.packages.iter().filter(is_member)
    }

    /// `path` below the root, with `/`.
    pub(crate) fn below_root(&self, path: &Path) -> String {
        let path = path.strip_prefix(&self.workspace_root).unwrap_or(path);
        path.to_string_lossy().into_owned()
    }
}

fn run(arguments: &[&str]) -> Result<Output, MetadataError> {
    let output = Command::new("cargo").args(arguments).output();
    let output = output.map_err(MetadataError::Cargo)?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(MetadataError::Refused { said })
}

/// Why there is no metadata.
#[derive(Debug)]
pub(crate) enum MetadataError {
    Cargo(io::Error),
    Refused { said: String },
    Shape(serde_json::Error),
}

impl fmt::Display for MetadataError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cargo(_) => formatter.write_str("cannot run `cargo`"),
            Self::Refused { said } => write!(
                formatter,
                "`cargo metadata --offline --locked` failed (build once, or run `cargo fetch`; \
                 commit Cargo.lock if it is out of date): {said}"
            ),
            Self::Shape(_) => formatter.write_str("`cargo metadata` wrote JSON of another shape"),
        }
    }
}

impl std::error::Error for MetadataError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Cargo(source) => Some(source),
            Self::Shape(source) => Some(source),
            Self::Refused { .. } => None,
        }
    }
}
