//! What one worker holds outside of this process: its lease, its container, its copies of files.
//! They go together, in this order: container, copies, lease.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use worker::StartError;

use super::compare::compare;
use super::leftovers;
use super::sight::{self, Witness};
use super::staging::{HeldOutput, Staged};
use super::{ContainerKind, failed, unavailable};
use crate::engine::{
    Attachment, ContainerCreate, ContainerId, ContainerInspect, Engine, EngineError, Pending,
    Removal, WaitEnd,
};
use crate::lease::{Lease, LeaseId, LeaseKeeper};

/// The keeper, shared by a tier and its live workers.
pub(super) type SharedKeeper = Arc<Mutex<Box<dyn LeaseKeeper>>>;

pub(super) fn locked(keeper: &SharedKeeper) -> MutexGuard<'_, Box<dyn LeaseKeeper>> {
    keeper.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lease with all that was made under it. Dropping it removes what it can.
pub(super) struct Claim {
    kind: ContainerKind,
    engine: Engine,
    keeper: SharedKeeper,
    id: LeaseId,
    name: String,
    lease: Option<Lease>,
    made: Made,
    staged: Option<Staged>,
}

/// What is known of the container.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Made {
    /// It was never asked for, or clearly refused, or is removed.
    Not,
    /// It was asked for, and no clear answer came.
    Perhaps,
    Yes(ContainerId),
}

impl Claim {
    pub(super) fn new(
        kind: ContainerKind,
        engine: Engine,
        keeper: SharedKeeper,
        lease: Lease,
    ) -> Self {
        Self {
            kind,
            engine,
            keeper,
            id: lease.id().clone(),
            name: lease.container_name(),
            lease: Some(lease),
            made: Made::Not,
            staged: None,
        }
    }

    pub(super) const fn lease_id(&self) -> &LeaseId {
        &self.id
    }

    /// The worker's name for people and records.
    pub(super) fn worker_name(&self) -> String {
        match &self.made {
            Made::Yes(id) => format!("{} ({id:.12})", self.name, id = id.as_str()),
            Made::Not | Made::Perhaps => self.name.clone(),
        }
    }

    pub(super) fn hold(&mut self, staged: Staged) {
        self.staged = Some(staged);
    }

    pub(super) fn take_output(&mut self) -> HeldOutput {
        let staged = self.staged.as_mut();
        staged.map_or(HeldOutput::NotGranted, Staged::take_output)
    }

    /// Creates the container, stopped.
    pub(super) fn create(&mut self, wanted: &ContainerCreate) -> Result<(), StartError> {
        match self.engine.create(&self.name, wanted) {
            Ok(id) => {
                let marked = self.staged.as_ref().map(|it| it.mark_made(&id));
                self.made = Made::Yes(id);
                let marked = marked.transpose().map(|_| ());
                marked.map_err(|error| failed("note the container's id", error))
            }
            Err(error) => {
                if !error.did_nothing() {
                    self.made = Made::Perhaps;
                }
                Err(explain_creation(&error))
            }
        }
    }

    /// Compares the stopped container with what was asked for.
    pub(super) fn check(&self, wanted: &ContainerCreate, image: &str) -> Result<(), StartError> {
        let found = self.inspect().map_err(|error| failed("inspect", error))?;
        let Some(found) = found else {
            return Err(failed("inspect", "the new container is not there"));
        };
        compare(&found, wanted, image).map_err(|difference| {
            unavailable(format!(
                "the container engine made another container than was asked for: {difference}"
            ))
        })
    }

    /// Has the engine find, in the stopped container, a file that was just made for it. False where
    /// the container is shown none.
    pub(super) fn prove_sight(&self) -> Result<bool, StartError> {
        let step = "look for a file of the worker's";
        let binds = self.staged.as_ref().map(Staged::binds).unwrap_or_default();
        let witness = Witness::among(&binds).map_err(|error| failed(step, error))?;
        let Some(witness) = witness else {
            return Ok(false);
        };
        let found = self.with_id(|engine, id| engine.look_at(id, witness.place()));
        let found = found.map_err(|error| failed(step, error))?;
        match witness.difference(found.as_ref()) {
            None => Ok(true),
            Some(difference) => Err(unavailable(sight::elsewhere(&difference))),
        }
    }

    pub(super) fn inspect(&self) -> Result<Option<ContainerInspect>, EngineError> {
        match &self.made {
            Made::Yes(id) => self.engine.inspect(id.as_str()),
            Made::Not | Made::Perhaps => Ok(None),
        }
    }

    pub(super) fn attach(&self, with_stdin: bool) -> Result<Attachment, EngineError> {
        self.with_id(|engine, id| engine.attach(id, with_stdin))
    }

    pub(super) fn start(&self) -> Result<(), EngineError> {
        self.with_id(Engine::start)
    }

    pub(super) fn wait(&self) -> Result<Pending<WaitEnd>, EngineError> {
        self.with_id(Engine::wait)
    }

    pub(super) fn kill_soon(&self) -> Result<Pending<()>, EngineError> {
        self.with_id(Engine::kill_soon)
    }

    fn with_id<T>(
        &self,
        ask: impl FnOnce(&Engine, &ContainerId) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        match &self.made {
            Made::Yes(id) => ask(&self.engine, id),
            Made::Not | Made::Perhaps => Err(EngineError::nothing_to_ask()),
        }
    }

    /// Removes the container, what its runtime left, the copies of files, and ends the lease.
    ///
    /// # Errors
    /// The reason why it is not certain that all of it is gone. The lease then stays.
    pub(super) fn remove(&mut self) -> Result<(), String> {
        match &self.made {
            Made::Not => {}
            Made::Perhaps => match self.engine.remove(&self.name) {
                Ok(Removal::Removed) => {}
                // It can still come: the engine may be making it at this moment.
                Ok(Removal::NotThere) => {
                    return Err("the container engine never said whether it made it".to_owned());
                }
                Err(error) => return Err(error.to_string()),
            },
            Made::Yes(id) => {
                let removed = self.engine.remove(id.as_str());
                removed.map_err(|error| error.to_string())?;
                leftovers::await_none(self.kind, id)?;
            }
        }
        self.made = Made::Not;
        if let Some(staged) = self.staged.take() {
            staged
                .remove()
                .map_err(|error| format!("its copies of files: {error}"))?;
        }
        if let Some(lease) = self.lease.take() {
            // What cannot be recorded as ended is found ended by its keeper.
            let _released = locked(&self.keeper).release(lease);
        }
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.lease.is_some() {
            // What stays is the keeper's to find.
            let _removed = self.remove();
        }
        // A folder that is gone would say that nothing can come any more.
        if let Some(staged) = self.staged.take() {
            staged.leave();
        }
    }
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claim")
            .field("name", &self.name)
            .field("made", &self.made)
            .finish_non_exhaustive()
    }
}

/// What a refused creation means to an operator.
fn explain_creation(error: &EngineError) -> StartError {
    let message = error.message().unwrap_or_default();
    // The source's name holds the lease's random id: an engine that does not find it looks at
    // another file system than ours.
    if message.contains("bind source path does not exist") {
        return unavailable(sight::elsewhere(message));
    }
    match error.status() {
        Some(404) => unavailable(message.to_owned()),
        _ => failed("create the container", error),
    }
}
