//! `symbi doctor`: whether this machine can isolate workers, and what to do where it cannot.
//!
//! The configured tier is tried from inside its own workers. Of the other tiers it says what they
//! lack here.

mod apparmor;
mod report;
mod tiers;

use std::path::{Path, PathBuf};

use model::RunId;
use project::Config;
use sandbox::ContainerTier;
use sandbox::probes::{Finding, ProbePlace, Verdict, probe};
use symbi_runtime::tools::BoundarySettings;
use worker::{Limits, StartError, Tier, TierKind};

use crate::args::{Common, DoctorArgs};
use crate::dead_runs;
use crate::exit::{Exit, Failure};
use crate::govern::{self, ConfiguredTier};
use crate::open::OpenProject;
use crate::output::Output;

use report::{Examined, Report};

const AGENTS_NEED: &str = "this project has agents: name an image with Python 3 and their programs";
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

    /// `symbi-init`.
    fn helper(&self) -> Result<PathBuf, Failure> {
        let executable = std::env::current_exe()
            .map_err(|error| Failure::new(Exit::Isolation, format!("where symbi is: {error}")))?;
        sandbox::locate_init(&executable, self.init.as_deref())
            .map_err(|error| Failure::of(Exit::Isolation, &error))
    }

    /// The limits that the tier can enforce, and what came of its probes.
    fn examine(&self) -> Result<Examined, Failure> {
        let folder = crate::dirs::user_dirs()?
            .run_sockets(RunId::new())
            .map_err(|error| Failure::of(Exit::Storage, &error))?;
        match self.open {
            Some((open, config)) => {
                let ready = govern::tier(open, config)?;
                let boundary = govern::boundary(&config.sandbox, &ready.place());
                match ready.tier {
                    ConfiguredTier::Namespace(mut tier) => {
                        self.probe(&mut *tier, folder.path(), Some(boundary))
                    }
                    ConfiguredTier::Container(mut tier) => {
                        let mut found = self.probe(&mut *tier, folder.path(), Some(boundary))?;
                        if !config.agents.is_empty() {
                            found.findings.push(for_agents(&mut tier, folder.path()));
                        }
                        Ok(found)
                    }
                }
            }
            None => {
                let mut tier = govern::namespace_tier(self.init.as_deref())?;
                self.probe(&mut tier, folder.path(), None)
            }
        }
    }

    fn probe(
        &self,
        tier: &mut dyn Tier,
        folder: &Path,
        boundary: Option<BoundarySettings>,
    ) -> Result<Examined, Failure> {
        let place = ProbePlace {
            init: &self.helper()?,
            folder,
            root: boundary
                .as_ref()
                .map_or_else(system_root, |it| it.root.clone()),
            working_dir: boundary.map_or_else(|| WORKING_DIR.to_owned(), |it| it.working_dir),
        };
        let findings = probe(tier, &place).map_err(|error| Failure::of(Exit::Isolation, &error))?;
        Ok(Examined {
            limits: enforceable(tier),
            findings,
        })
    }
}

/// Whether an agent could work in a container of the image.
fn for_agents(tier: &mut ContainerTier, folder: &Path) -> Finding {
    let (verdict, found, remedy) = match tier.probe_agent(&[], folder) {
        Ok(()) => {
            let found =
                "the image has Python 3, and a socket in a read-only bind takes connections";
            (Verdict::Holds, found.to_owned(), None)
        }
        Err(StartError::Unavailable { reason }) => (Verdict::Fails, reason, Some(AGENTS_NEED)),
        Err(error) => (Verdict::Fails, error.to_string(), Some(AGENTS_NEED)),
    };
    Finding {
        probe: "agent",
        verdict,
        found,
        remedy,
    }
}

fn enforceable(tier: &dyn Tier) -> Limits {
    tier.enforceable(Limits::wanted([
        worker::limits::MEMORY_MIB_DEFAULT,
        worker::limits::CPU_MILLI_DEFAULT,
        worker::limits::PIDS_DEFAULT,
        worker::limits::SCRATCH_FILE_BYTES_DEFAULT,
        worker::limits::SCRATCH_BYTES_DEFAULT,
        worker::limits::STREAM_BYTES_DEFAULT,
        worker::limits::TIME_MS_DEFAULT,
    ]))
}

const fn system_root() -> worker::WorkerRoot {
    worker::WorkerRoot::System { also: Vec::new() }
}
