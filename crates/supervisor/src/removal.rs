//! What a dead owner left: its container, its processes, its private files.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use rustix::process::geteuid;
use sandbox::engine::{ContainerFilter, ContainerId, ContainerSummary, Engine, Removal};
use sandbox::lease::{LEASE_LABEL, LeaseId, MADE_MARK, OWNER_LABEL};
use worker::TierKind;

use crate::leases::LeaseRecord;
use crate::limits::CONTAINER_ID_BYTES_MAX;
use crate::processes;

/// What one attempt found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// The container was there, and is gone.
    Removed,
    /// The engine answered, and knows no such container.
    Nothing,
}

/// Ends and removes the container of a lease, and what its runtime left. Only one that carries the
/// lease's label and our uid's is touched.
pub(crate) fn remove_container(record: &LeaseRecord) -> Result<Found, String> {
    let engine = Engine::at(&record.socket);
    let filter = ours().with_label_value(LEASE_LABEL, &record.lease);
    let containers = engine.list(&filter).map_err(|error| error.to_string())?;
    for container in &containers {
        mark(record, &container.id);
        remove(&engine, container, &record.lease)?;
    }
    if record.tier == TierKind::Gvisor {
        // Its owner may have removed it, and have died before it looked for processes.
        let marked = made(record).map(|id| id.to_string());
        let listed = containers.iter().map(|container| container.id.clone());
        for container in listed.chain(marked).collect::<BTreeSet<_>>() {
            processes::end_all_of(&container)?;
        }
    }
    match containers.is_empty() {
        true => Ok(Found::Nothing),
        false => Ok(Found::Removed),
    }
}

/// Removes containers of our uid and of this state folder (its leases begin with `store`) that no
/// lease claims: the engine made them after their lease had ended. Says which.
pub(crate) fn remove_unclaimed(
    socket: &Path,
    store: &str,
    is_claimed: impl Fn(&str) -> bool,
) -> Result<Vec<String>, String> {
    let engine = Engine::at(socket);
    let containers = engine.list(&ours().with_label(LEASE_LABEL));
    let containers = containers.map_err(|error| error.to_string())?;
    let mut removed = Vec::new();
    for container in containers {
        let Some(lease) = container.labels.get(LEASE_LABEL).map(String::as_str) else {
            continue;
        };
        let is_of_store = LeaseId::parse(lease).is_some() && lease.starts_with(store);
        if is_of_store && !is_claimed(lease) {
            remove(&engine, &container, lease)?;
            processes::end_all_of(&container.id)?;
            removed.push(format!(
                "container {} of lease {lease}",
                short(&container.id)
            ));
        }
    }
    Ok(removed)
}

fn remove(engine: &Engine, container: &ContainerSummary, lease: &str) -> Result<(), String> {
    // The filter was the engine's work; whether this is ours is not left to it.
    let uid = geteuid().as_raw().to_string();
    let label = |name| container.labels.get(name).map(String::as_str);
    if label(OWNER_LABEL) != Some(uid.as_str()) || label(LEASE_LABEL) != Some(lease) {
        return Err(format!(
            "the engine listed container {}, which is not of this lease",
            short(&container.id)
        ));
    }
    match engine.remove(&container.id) {
        Ok(Removal::Removed) => Ok(()),
        // It lists one that it is about to make, and knows it a moment later. One that is gone is
        // not listed again.
        Ok(Removal::NotThere) => Err(format!(
            "the engine lists container {}, and does not know it yet, or not any more",
            short(&container.id)
        )),
        Err(error) => Err(error.to_string()),
    }
}

/// Containers of our uid.
pub(crate) fn ours() -> ContainerFilter {
    let uid = geteuid().as_raw().to_string();
    ContainerFilter::default().with_label_value(OWNER_LABEL, &uid)
}

/// A container's id as people know it.
pub(crate) fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

/// The container that its owner was told of. A mark without an id was the last that its owner did:
/// the engine then lists that container.
fn made(record: &LeaseRecord) -> Option<ContainerId> {
    let mark = record.staging.join(&record.lease).join(MADE_MARK);
    let mut text = String::new();
    let mut mark = fs::File::open(mark).ok()?.take(CONTAINER_ID_BYTES_MAX + 1);
    mark.read_to_string(&mut text).ok()?;
    ContainerId::new(&text)
}

/// Marks the container where its owner has died before it could: this process may die before the
/// container's processes do.
fn mark(record: &LeaseRecord, id: &str) {
    if may_come(record) {
        let mark = record.staging.join(&record.lease).join(MADE_MARK);
        // Without it this one attempt must do.
        let _ = fs::write(mark, id);
    }
}

/// Whether its container may still be made: it was asked for, and its owner never heard of it.
pub(crate) fn may_come(record: &LeaseRecord) -> bool {
    let folder = record.staging.join(&record.lease);
    let is_asked_for = !matches!(folder.try_exists(), Ok(false));
    is_asked_for && !matches!(folder.join(MADE_MARK).try_exists(), Ok(true))
}

/// Removes the private files of a lease's worker.
pub(crate) fn remove_files(record: &LeaseRecord) -> Result<(), String> {
    // A lease's id is digits: the folder is below the staging folder, and nowhere else.
    let folder = record.staging.join(&record.lease);
    match fs::remove_dir_all(&folder) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!(
            "the worker's private files in `{}` cannot be removed: {error}",
            folder.display()
        )),
    }
}
