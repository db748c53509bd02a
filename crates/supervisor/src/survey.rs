//! What a supervisor's folder and the engines say, without a supervisor and without a change.

use std::io;
use std::path::{Path, PathBuf};

use sandbox::engine::Engine;
use sandbox::lease::{LEASE_LABEL, LeaseId};

use crate::folder::{FolderFault, PrivateFolder};
use crate::leases;
use crate::removal::{ours, short};
use crate::server::remembered;
use crate::wire::{LeaseState, LeaseStatus};

/// What is on disk and at the engines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// As recorded; their owner may be dead.
    pub leases: Vec<LeaseStatus>,
    pub engines: Vec<EngineSurvey>,
}

/// What one engine says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineSurvey {
    pub socket: PathBuf,
    /// The containers that carry our uid's label, or why the engine does not say.
    pub containers: Result<Vec<ContainerSurvey>, String>,
}

/// A container of our uid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerSurvey {
    pub container: String,
    pub lease: String,
    pub state: String,
    pub claim: Claim,
}

/// Whose a container is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// A lease's.
    Leased,
    /// Of this state folder, and no lease claims it.
    Unclaimed,
    /// Of another state folder of the same user: never touched.
    Elsewhere,
}

/// Looks at everything; changes nothing. `also` are engines to ask besides those that leases were
/// taken for.
///
/// # Errors
/// [`FolderFault`] where the folder cannot be read.
pub fn survey(state: &Path, also: &[PathBuf]) -> Result<Survey, FolderFault> {
    let folder = match PrivateFolder::open(state) {
        Ok(folder) => Some(folder),
        Err(FolderFault::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
        Err(fault) => return Err(fault),
    };
    let (records, mut sockets, store) = match &folder {
        Some(folder) => (
            leases::read(folder)?,
            remembered(folder)?,
            folder.existing_store()?,
        ),
        None => Default::default(),
    };
    for socket in records.values().map(|it| &it.socket).chain(also) {
        if !sockets.contains(socket) {
            sockets.push(socket.clone());
        }
    }
    let claim = |lease: &str| match store.as_deref() {
        _ if records.contains_key(lease) => Claim::Leased,
        Some(store) if lease.starts_with(store) && LeaseId::parse(lease).is_some() => {
            Claim::Unclaimed
        }
        _ => Claim::Elsewhere,
    };
    let engines = sockets.into_iter().map(|socket| {
        let containers = containers(&socket, claim);
        EngineSurvey { socket, containers }
    });
    let state_of = |lives| match lives {
        true => LeaseState::Live,
        false => LeaseState::Ending,
    };
    let status = |it: &leases::LeaseRecord| it.status(state_of(it.owner.lives()), None);
    Ok(Survey {
        leases: records.values().map(status).collect(),
        engines: engines.collect(),
    })
}

fn containers(
    socket: &Path,
    claim: impl Fn(&str) -> Claim,
) -> Result<Vec<ContainerSurvey>, String> {
    let found = Engine::at(socket).list(&ours());
    let found = found.map_err(|error| error.to_string())?;
    let container = |it: sandbox::engine::ContainerSummary| {
        let lease = it.labels.get(LEASE_LABEL).cloned().unwrap_or_default();
        ContainerSurvey {
            container: short(&it.id).to_owned(),
            claim: claim(&lease),
            lease,
            state: it.state,
        }
    };
    Ok(found.into_iter().map(container).collect())
}
