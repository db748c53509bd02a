//! `symbi doctor`: whether this machine can isolate workers, and what to do where it cannot.
//!
//! The configured tier is tried from inside its own workers. Of the other tiers it says what they
//! lack here.

mod apparmor;
mod report;
mod tiers;

use std::path::{Path, PathBuf};

use model::RunId;
use project::{Config, SandboxSettings};
use sandbox::probes::{ProbePlace, probe};
use symbi_runtime::tools::wanted;
use worker::{Tier, TierKind};

use crate::args::{Common, DoctorArgs};
use crate::dead_runs;
use crate::exit::{Exit, Failure};
use crate::govern;
use crate::open::OpenProject;
use crate::output::Output;

use report::{Examined, Report};

/// Where workers work, where no project says otherwise.
const WORKING_DIR: &str = "/workspace";

/// Examines the configured tier; without a project, the namespace tier.
pub(crate) fn run(args: &DoctorArgs, common: &Common) -> Result<Exit, Failure> {
    let output = Output::new(common.json);
    let open = match OpenProject::find(common.project.as_deref()) {
        Ok(open) => Some(open),
        Err(failure) if common.project.is_some() => return Err(failure),
        Err(_) => None,
    };
    let config = open.as_ref().map(OpenProject::config).transpose()?;
    let place = Place::new(open.as_ref(), config.as_ref());
    if args.apparmor_profile {
        output.line(apparmor::profile(&place.helper()?)?.trim_end());
        return Ok(Exit::Done);
    }
    let waiting = open.as_ref().map(dead_runs::waiting).transpose()?;
    let report = Report {
        kind: place.kind,
        examined: place.examine(),
        others: tiers::others(place.kind, config.as_ref()),
        waiting: waiting.unwrap_or_default(),
    };
    report.show(output);
    Ok(report.exit())
}

/// What is examined.
struct Place<'a> {
    open: Option<(&'a OpenProject, &'a Config)>,
    kind: TierKind,
    /// The helper's place, where the project says one.
    init: Option<PathBuf>,
}

impl<'a> Place<'a> {
    fn new(open: Option<&'a OpenProject>, config: Option<&'a Config>) -> Self {
        let open = open.zip(config);
        let init = open.and_then(|(open, config)| {
            let init = config.sandbox.init.as_ref();
            init.map(|path| path.resolve(open.project.path()))
        });
        Self {
            open,
            kind: open.map_or(TierKind::Namespace, |(_, config)| config.sandbox.tier),
            init,
        }
    }

    fn sandbox(&self) -> Option<&'a SandboxSettings> {
        self.open.map(|(_, config)| &config.sandbox)
    }

    /// `symbi-init`.
    fn helper(&self) -> Result<PathBuf, Failure> {
        let executable = std::env::current_exe()
            .map_err(|error| Failure::new(Exit::Isolation, format!("where symbi is: {error}")))?;
        sandbox::locate_init(&executable, self.init.as_deref())
            .map_err(|error| Failure::of(Exit::Isolation, &error))
    }

    /// The limits that the tier can enforce, and what came of its probes.
    fn examine(&self) -> Result<Examined, Failure> {
        let mut tier: Box<dyn Tier> = match self.open {
            Some((open, config)) => govern::tier(open, config)?.0,
            None => Box::new(govern::namespace_tier(self.init.as_deref())?),
        };
        let limits = tier.enforceable(wanted(&[
            worker::limits::MEMORY_MIB_DEFAULT,
            worker::limits::CPU_MILLI_DEFAULT,
            worker::limits::PIDS_DEFAULT,
            worker::limits::SCRATCH_FILE_BYTES_DEFAULT,
            worker::limits::SCRATCH_BYTES_DEFAULT,
            worker::limits::STREAM_BYTES_DEFAULT,
            worker::limits::TIME_MS_DEFAULT,
        ]));
        let folder = crate::dirs::user_dirs()?
            .run_sockets(RunId::new())
            .map_err(|error| Failure::of(Exit::Storage, &error))?;
        let findings = self.probe(&mut *tier, folder.path())?;
        Ok(Examined { limits, findings })
    }

    fn probe(
        &self,
        tier: &mut dyn Tier,
        folder: &Path,
    ) -> Result<Vec<sandbox::probes::Finding>, Failure> {
        let boundary = self.sandbox().map(govern::boundary);
        let place = ProbePlace {
            init: &self.helper()?,
            folder,
            root: boundary
                .as_ref()
                .map_or_else(system_root, |it| it.root.clone()),
            working_dir: boundary.map_or_else(|| WORKING_DIR.to_owned(), |it| it.working_dir),
        };
        probe(tier, &place).map_err(|error| Failure::of(Exit::Isolation, &error))
    }
}

const fn system_root() -> worker::WorkerRoot {
    worker::WorkerRoot::System { also: Vec::new() }
}
