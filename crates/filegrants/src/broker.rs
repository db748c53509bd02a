//! The broker: from the files that a call declares to what it holds of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use model::{CreateMode, RelativePath};
use worker::limits::{CAPACITY_STAGING_MIB_DEFAULT, FILE_BYTES_MAX, INPUTS_BYTES_MAX, INPUTS_MAX};
use worker::{CreateGrant, Filesystem, ReadGrant};

use crate::candidate::{self, CandidateName, SweepError, Swept};
use crate::ceiling::{Access, Ceilings, reserved_component};
use crate::held::{Anchors, HeldCeiling, OpenError};
use crate::limits::{OUTPUTS_MAX, STAGED_ENTRY_BYTES};
use crate::output::{OutputPlace, OutputTarget};
use crate::pool::{StagingCharge, StagingPool};
use crate::refusal::{FileRefusal, InputFault, OutputFault};
use crate::snapshot::{Chunk, Input, Staging};

/// The files that one call declares, keyed by argument name, or by index for a literal path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileRequest {
    pub reads: BTreeMap<String, RelativePath>,
    pub creates: BTreeMap<String, (RelativePath, CreateMode)>,
    /// Bound of each input and of the output.
    pub max_file_bytes: u64,
}

/// What a call was granted, and the resources that back it. Dropping it frees all of them.
#[derive(Debug, Default)]
pub struct FileAccessPlan {
    /// For the descriptor.
    pub filesystem: Filesystem,
    /// Snapshots, read-only and without a name, by their grant's path.
    pub inputs: BTreeMap<RelativePath, File>,
    pub target: Option<OutputTarget>,
    /// Staging space for all of it, held to the end of the call.
    pub charge: Option<StagingCharge>,
}

impl FileAccessPlan {
    /// Refuses an output where no live audit authority could record its publication.
    /// `publishes` is `CallJournal::publishes`.
    ///
    /// # Errors
    /// [`OutputFault::NoLiveAudit`].
    pub fn check_live_audit(&self, publishes: bool) -> Result<(), FileRefusal> {
        match &self.target {
            Some(target) if !publishes => Err(FileRefusal::Output {
                path: target.path().clone(),
                fault: OutputFault::NoLiveAudit,
            }),
            _ => Ok(()),
        }
    }
}

/// Holds the ceilings' folders and the staging folder of one project.
#[derive(Debug)]
pub struct FileBroker {
    ceilings: Vec<Arc<HeldCeiling>>,
    staging: Staging,
    pool: StagingPool,
}

impl FileBroker {
    /// Opens and holds every ceiling's host folder and the private `staging` folder (ours, 0700).
    /// `project` is the held folder that `./` means.
    ///
    /// # Errors
    /// [`OpenError`] names the volume and what to change.
    pub fn open(project: OwnedFd, staging: &Path, ceilings: Ceilings) -> Result<Self, OpenError> {
        let anchors = Anchors::hold(project)?;
        let staging = Staging::open_ambient(staging)?;
        let pool = staging.pool(CAPACITY_STAGING_MIB_DEFAULT << 20)?;
        let hold = |ceiling| HeldCeiling::open(ceiling, &anchors).map(Arc::new);
        let ceilings = ceilings.0.into_iter().map(hold).collect::<Result<_, _>>()?;
        Ok(Self {
            ceilings,
            staging,
            pool,
        })
    }

    /// The same with another bound of the staging space that all of the user's calls share.
    ///
    /// # Errors
    /// [`OpenError`] where the folder's handle cannot be copied.
    pub fn with_staging_bytes_max(mut self, bytes_max: u64) -> Result<Self, OpenError> {
        self.pool = self.staging.pool(bytes_max)?;
        Ok(self)
    }

    /// Takes the snapshots of `request` and holds its output's place. Creates nothing that a
    /// refusal would leave, except an empty candidate folder in a writable volume.
    ///
    /// # Errors
    /// [`FileRefusal`] says which path, why, and what to do. Everything taken is freed by then.
    pub fn plan(&self, request: &FileRequest) -> Result<FileAccessPlan, FileRefusal> {
        if request.reads.is_empty() && request.creates.is_empty() {
            return Ok(FileAccessPlan::default());
        }
        check_bounds(request)?;
        let inputs = self.open_inputs(request)?;
        let outputs = self.open_outputs(request)?;
        let mut plan = FileAccessPlan::default();
        plan.filesystem.max_file_bytes = request.max_file_bytes;
        let wanted = staged_bytes(request, inputs.iter().map(|(_, _, input)| input.bytes));
        plan.charge = Some(self.pool.reserve(wanted).map_err(FileRefusal::Staging)?);
        let mut chunk = Chunk::new();
        for (key, path, input) in inputs {
            let snapshot = input
                .snapshot(&self.staging, &mut chunk)
                .map_err(input_refusal(path))?;
            let grant = ReadGrant {
                path: path.clone(),
                bytes: snapshot.bytes,
                sha256: snapshot.sha256,
            };
            plan.filesystem.read.insert(key.to_owned(), grant);
            plan.inputs.insert(path.clone(), snapshot.file);
        }
        for (key, path, mode, place) in outputs {
            let target = place
                .prepare(request.max_file_bytes)
                .map_err(output_refusal(path))?;
            let grant = CreateGrant {
                path: target.path().clone(),
                mode,
                parent: target.parent(),
            };
            plan.filesystem.create.insert(key.to_owned(), grant);
            plan.target = Some(target);
        }
        Ok(plan)
    }

    /// Removes candidates that nobody will publish. `is_kept` answers for each: true while its
    /// run lives, or while that run's verified journal has an intent that names it and no
    /// `FilePublicationFinished` that closes it.
    ///
    /// # Errors
    /// The first [`SweepError`]; every ceiling is swept, and what was not removed stays.
    pub fn sweep(
        &self,
        mut is_kept: impl FnMut(CandidateName) -> bool,
    ) -> Result<Swept, SweepError> {
        let (mut all, mut fault) = (Swept::default(), None);
        for ceiling in self
            .ceilings
            .iter()
            .filter(|it| it.ceiling.access == Access::Create)
        {
            match candidate::sweep(ceiling.root(), &mut is_kept) {
                Ok(swept) => all.add(swept),
                Err(error) => fault = fault.or(Some(error)),
            }
        }
        fault.map_or(Ok(all), Err)
    }

    fn open_inputs<'r>(
        &self,
        request: &'r FileRequest,
    ) -> Result<Vec<(&'r str, &'r RelativePath, Input)>, FileRefusal> {
        let mut total = 0_u64;
        let mut inputs = Vec::with_capacity(request.reads.len());
        for (key, path) in &request.reads {
            let (ceiling, rest) = self.ceiling_of(path)?;
            let input =
                Input::open(rest, ceiling, request.max_file_bytes).map_err(input_refusal(path))?;
            total = total.saturating_add(input.bytes);
            inputs.push((key.as_str(), path, input));
        }
        if total > INPUTS_BYTES_MAX {
            return Err(FileRefusal::TotalTooLarge {
                bytes: total,
                max: INPUTS_BYTES_MAX,
            });
        }
        Ok(inputs)
    }

    fn open_outputs<'r>(
        &self,
        request: &'r FileRequest,
    ) -> Result<Vec<(&'r str, &'r RelativePath, CreateMode, OutputPlace)>, FileRefusal> {
        let open = |(key, (path, mode)): (&'r String, &'r (RelativePath, CreateMode))| {
            let (ceiling, rest) = self.ceiling_of(path)?;
            let place = OutputPlace::open(path, rest, ceiling).map_err(output_refusal(path))?;
            Ok((key.as_str(), path, *mode, place))
        };
        request.creates.iter().map(open).collect()
    }

    /// The deepest ceiling that has `path`, and what the path is below it.
    pub(crate) fn ceiling_of<'p>(
        &self,
        path: &'p RelativePath,
    ) -> Result<(&Arc<HeldCeiling>, &'p str), FileRefusal> {
        if let Some(name) = reserved_component(path.as_str()) {
            return Err(FileRefusal::Reserved {
                path: path.clone(),
                name: name.to_owned(),
            });
        }
        let below = |held| {
            let held: &Arc<HeldCeiling> = held;
            held.ceiling.rest(path.as_str()).map(|rest| (held, rest))
        };
        let path = path.clone();
        match self
            .ceilings
            .iter()
            .filter_map(below)
            .min_by_key(|(_, rest)| rest.len())
        {
            None => Err(FileRefusal::OutsideCeilings { path }),
            Some((_, "")) => Err(FileRefusal::CeilingItself { path }),
            Some((ceiling, rest)) => match ceiling.is_in_place() {
                Ok(true) => Ok((ceiling, rest)),
                _ => Err(FileRefusal::CeilingReplaced {
                    path,
                    entry: ceiling.ceiling.entry.clone(),
                }),
            },
        }
    }
}

/// What a call is charged: its inputs, the largest output, and each file's entry.
fn staged_bytes(request: &FileRequest, inputs: impl Iterator<Item = u64>) -> u64 {
    let outputs = request.creates.len() as u64;
    let entries = request.reads.len() as u64 + outputs;
    let output_bytes = outputs.saturating_mul(request.max_file_bytes);
    inputs
        .fold(output_bytes, u64::saturating_add)
        .saturating_add(entries.saturating_mul(STAGED_ENTRY_BYTES))
}

fn input_refusal(path: &RelativePath) -> impl FnOnce(InputFault) -> FileRefusal {
    move |fault| FileRefusal::Input {
        path: path.clone(),
        fault,
    }
}

fn output_refusal(path: &RelativePath) -> impl FnOnce(OutputFault) -> FileRefusal {
    move |fault| FileRefusal::Output {
        path: path.clone(),
        fault,
    }
}

fn check_bounds(request: &FileRequest) -> Result<(), FileRefusal> {
    let bytes = request.max_file_bytes;
    if bytes == 0 || bytes > FILE_BYTES_MAX {
        return Err(FileRefusal::FileLimit {
            bytes,
            max: FILE_BYTES_MAX,
        });
    }
    let count = request.reads.len();
    if count > INPUTS_MAX {
        return Err(FileRefusal::TooManyInputs {
            count,
            max: INPUTS_MAX,
        });
    }
    let count = request.creates.len();
    if count > OUTPUTS_MAX {
        return Err(FileRefusal::TooManyOutputs {
            count,
            max: OUTPUTS_MAX,
        });
    }
    let mut seen = BTreeSet::new();
    let created = request.creates.values().map(|(path, _)| path);
    match request
        .reads
        .values()
        .chain(created)
        .find(|path| !seen.insert(*path))
    {
        Some(path) => Err(FileRefusal::Duplicate { path: path.clone() }),
        None => Ok(()),
    }
}
