//! The project's runs without an owner: what they left, and the command that goes on from there.

use std::cell::OnceCell;
use std::os::fd::AsFd as _;

use filegrants::{
    DeadRun, DeadRunError, FileBroker, InvocationError, InvocationFolder, OperatorKeys,
    RESULT_NAME, RecoverError, Resolution, receipt, resolution,
};
use journal::{
    LedgerError, LedgerRun, ProjectKey, PublicKey, VerifyOptions, journal_path, ledger_path,
    read_project_ledger,
};
use model::{PublicationId, RunId};
use project::ProjectState;

use crate::claim::CLAIM_NAME;
use crate::exit::{Exit, Failure, chain};
use crate::govern::project_key;
use crate::open::OpenProject;
use crate::output::Output;

/// Most runs that are looked at for one that waits.
const WAITING_RUNS_MAX: usize = 256;

/// Where an invocation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InvocationState {
    /// Its owner lives.
    Live,
    /// All that it did is known and recorded.
    Finished,
    /// A publication is neither finished nor recovered.
    NeedsRecovery,
    /// All its publications are known by now; how it ended is still the operator's to say.
    Recovered,
    /// It died before anything was recorded, so nothing of it happened, and nobody asked for its
    /// id: the next start forgets it.
    NeverBegan,
    /// Nobody recorded how it ended.
    Unresolved,
    /// Its operator said how it ended.
    Resolved,
}

impl InvocationState {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Finished => "finished",
            Self::NeedsRecovery => "needs_recovery",
            Self::Recovered => "recovered",
            Self::NeverBegan => "never_began",
            Self::Unresolved => "unresolved",
            Self::Resolved => "resolved",
        }
    }

    /// Whether an operator has something left to do.
    pub(crate) const fn needs_operator(self) -> bool {
        matches!(
            self,
            Self::NeedsRecovery | Self::Recovered | Self::Unresolved
        )
    }

    pub(crate) const fn exit(self) -> Exit {
        match self {
            Self::Live => Exit::Refused,
            Self::Finished | Self::NeverBegan | Self::Resolved => Exit::Done,
            Self::NeedsRecovery | Self::Recovered | Self::Unresolved => Exit::Unconfirmed,
        }
    }
}

/// All that is known of one invocation.
#[derive(Debug)]
pub(crate) struct Invocation {
    pub(crate) run: RunId,
    pub(crate) state: InvocationState,
    /// `None` while its owner lives, and where it has no journal.
    pub(crate) dead: Option<DeadRun>,
    /// The open publications that a receipt closes.
    pub(crate) recovered: Vec<PublicationId>,
    pub(crate) has_result: bool,
    pub(crate) resolution: Option<Resolution>,
}

/// The places and keys of a project's runs.
#[derive(Debug)]
pub(crate) struct Runs<'o> {
    open: &'o OpenProject,
    pub(crate) state: ProjectState,
    key: ProjectKey,
    ledger: OnceCell<Vec<LedgerRun>>,
}

impl<'o> Runs<'o> {
    pub(crate) fn of(open: &'o OpenProject) -> Result<Self, Failure> {
        let state = open
            .project
            .state()
            .map_err(|error| Failure::of(Exit::Storage, &error))?;
        let key = project_key(open, &state)?;
        Ok(Self {
            open,
            state,
            key,
            ledger: OnceCell::new(),
        })
    }

    /// The same for a command that must have the ledger for a witness, if there is one.
    pub(crate) fn with_ledger(open: &'o OpenProject) -> Result<Self, Failure> {
        let runs = Self::of(open)?;
        let known = runs
            .read_ledger()
            .map_err(|error| Failure::of(Exit::Storage, &error))?;
        let _ = runs.ledger.set(known);
        Ok(runs)
    }

    fn read_ledger(&self) -> Result<Vec<LedgerRun>, LedgerError> {
        let report = read_project_ledger(self.state.path(), self.key.public())?;
        Ok(report.unwrap_or_default().runs)
    }

    /// What the ledger knows of the runs. An unreadable ledger is no witness.
    fn known(&self) -> &[LedgerRun] {
        self.ledger
            .get_or_init(|| self.read_ledger().unwrap_or_default())
    }

    fn ledger_run(&self, run: RunId) -> Option<LedgerRun> {
        self.known().iter().find(|it| it.run == run).cloned()
    }

    /// The key that signs the run's journal: the project's, or an older one.
    fn run_key(&self, run: RunId) -> PublicKey {
        self.ledger_run(run)
            .and_then(|it| it.public_key)
            .unwrap_or_else(|| self.key.public().clone())
    }

    pub(crate) fn keys(&self, run: RunId) -> OperatorKeys {
        OperatorKeys {
            trusted: vec![self.key.public().clone(), self.run_key(run)],
            signer: self.key.signer(),
        }
    }

    /// Verifies the journal of a run without an owner.
    pub(crate) fn dead(&self, run: RunId) -> Result<DeadRun, DeadRunError> {
        let options = VerifyOptions {
            public_key: Some(self.run_key(run)),
            ledger: self.ledger_run(run),
            ..VerifyOptions::default()
        };
        DeadRun::read(&journal_path(self.state.path(), run), run, &options)
    }

    /// The same with the project's own key, and without a witness.
    fn dead_alone(&self, run: RunId) -> Result<DeadRun, DeadRunError> {
        let options = VerifyOptions {
            public_key: Some(self.key.public().clone()),
            ..VerifyOptions::default()
        };
        DeadRun::read(&journal_path(self.state.path(), run), run, &options)
    }

    pub(crate) fn folder(&self, run: RunId) -> Result<Option<InvocationFolder>, Failure> {
        InvocationFolder::open(self.state.invocations().fd().as_fd(), run)
            .map_err(|error| Failure::of(crate::claim::exit_of(&error), &error))
    }

    /// The run's folder, made where it is missing.
    pub(crate) fn make_folder(&self, run: RunId) -> Result<InvocationFolder, Failure> {
        InvocationFolder::open_or_make(self.state.invocations().fd().as_fd(), run)
            .map_err(|error| Failure::of(crate::claim::exit_of(&error), &error))
    }

    /// Looks at an invocation. `None` where the project never had it.
    pub(crate) fn look(&self, run: RunId) -> Result<Option<Invocation>, Failure> {
        let folder = self.folder(run)?;
        let mut found = Invocation {
            run,
            state: InvocationState::Unresolved,
            dead: None,
            recovered: Vec::new(),
            has_result: false,
            resolution: None,
        };
        let is_owned = |it: &InvocationFolder| {
            it.lock()
                .is_err_and(|error| matches!(error, InvocationError::Owned { .. }))
        };
        if folder.as_ref().is_some_and(is_owned) {
            found.state = InvocationState::Live;
            return Ok(Some(found));
        }
        match self.dead(run) {
            Ok(dead) => found.dead = Some(dead),
            Err(DeadRunError::Live { .. }) => found.state = InvocationState::Live,
            Err(DeadRunError::Empty { .. }) => {}
            Err(DeadRunError::Unknown { .. }) if is_claimed(folder.as_ref()) => {}
            Err(DeadRunError::Unknown { .. }) => return Ok(None),
            Err(error) => return Err(dead_run_failure(&error)),
        }
        if let Some(folder) = &folder {
            self.look_beside(&mut found, folder)?;
        }
        if found.state != InvocationState::Live {
            found.state = found.judge(is_claimed(folder.as_ref()));
        }
        Ok(Some(found))
    }

    fn look_beside(
        &self,
        found: &mut Invocation,
        folder: &InvocationFolder,
    ) -> Result<(), Failure> {
        let beside = |error: &(dyn std::error::Error + 'static)| Failure::of(Exit::Refused, error);
        let trusted = self.keys(found.run).trusted;
        found.has_result = folder.holds(RESULT_NAME).map_err(|error| beside(&error))?;
        found.resolution = resolution(folder, &trusted).map_err(|error| beside(&error))?;
        let Some(dead) = &found.dead else {
            return Ok(());
        };
        for open in dead.open_publications() {
            let id = open.intent.publication_id;
            let receipt = receipt(dead, folder, id, &trusted)
                .map_err(|error: RecoverError| beside(&error))?;
            found.recovered.extend(receipt.map(|_| id));
        }
        Ok(())
    }

    fn command(&self, rest: &str) -> String {
        command(self.open, rest)
    }
}

/// Whether a folder is one of an invocation that began. What cannot be seen counts as begun.
fn is_claimed(folder: Option<&InvocationFolder>) -> bool {
    folder.is_some_and(|it| it.holds(CLAIM_NAME).unwrap_or(true))
}

/// A command line for this project.
pub(crate) fn command(open: &OpenProject, rest: &str) -> String {
    let path = open.project.path().display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    let path = match path.chars().all(plain) {
        true => path,
        false => format!("'{}'", path.replace('\'', "'\\''")),
    };
    format!("symbi --project {path} {rest}")
}

impl Invocation {
    fn judge(&self, is_claimed: bool) -> InvocationState {
        let Some(dead) = &self.dead else {
            return match self.resolution {
                Some(_) => InvocationState::Resolved,
                None if is_claimed => InvocationState::Unresolved,
                None => InvocationState::NeverBegan,
            };
        };
        let ended = dead.verdict == journal::Verdict::Intact && dead.open_calls == 0;
        let open = dead.open_publications().count();
        match (&self.resolution, open) {
            (Some(_), _) => InvocationState::Resolved,
            (None, 0) if ended => InvocationState::Finished,
            (None, 0) => InvocationState::Unresolved,
            (None, open) if self.recovered.len() == open => InvocationState::Recovered,
            (None, _) => InvocationState::NeedsRecovery,
        }
    }

    /// The first open publication that no receipt closes.
    pub(crate) fn next_publication(&self) -> Option<PublicationId> {
        self.dead
            .iter()
            .flat_map(DeadRun::open_publications)
            .map(|it| it.intent.publication_id)
            .find(|id| !self.recovered.contains(id))
    }

    /// The exact command that goes on from here.
    pub(crate) fn next_step(&self, runs: &Runs<'_>) -> Option<String> {
        let run = self.run;
        let rest = match (self.state, self.next_publication()) {
            (InvocationState::NeedsRecovery, Some(publication)) => {
                format!("invocation file-inspect --id {run} --publication {publication}")
            }
            (state, _) if state.needs_operator() => {
                format!("invocation resolve --id {run} --rationale 'WHY'")
            }
            _ => return None,
        };
        Some(runs.command(&rest))
    }
}

/// The command that an operator should type for this run, if any: for lists of runs.
pub(crate) fn hint(runs: &Runs<'_>, run: RunId) -> Option<String> {
    let found = runs.look(run).ok().flatten()?;
    let rest = format!("invocation inspect --id {run}");
    found
        .state
        .needs_operator()
        .then(|| command(runs.open, &rest))
}

/// The newest runs that wait for their operator, each with the command to type. Makes nothing.
pub(crate) fn waiting(open: &OpenProject) -> Result<Vec<(RunId, String)>, Failure> {
    let ledger = ledger_path(&open.project.path().join(project::STATE_FOLDER));
    if ledger.symlink_metadata().is_err() {
        return Ok(Vec::new());
    }
    let runs = Runs::with_ledger(open)?;
    let known = runs.known().iter().rev().take(WAITING_RUNS_MAX);
    let hinted = known.filter_map(|it| Some((it.run, hint(&runs, it.run)?)));
    Ok(hinted.collect())
}

/// A dead run that cannot be used, as an end of a command.
pub(crate) fn dead_run_failure(error: &DeadRunError) -> Failure {
    let exit = match error {
        DeadRunError::Unknown { .. } => Exit::Usage,
        DeadRunError::Empty { .. } | DeadRunError::Live { .. } | DeadRunError::Changed => {
            Exit::Refused
        }
        DeadRunError::NotWhole { .. } | DeadRunError::NoKey | DeadRunError::Read(_) => {
            Exit::Storage
        }
    };
    Failure::of(exit, error)
}

/// Removes the sockets of killed runs, and the candidates that no run will publish and no intent
/// protects. A candidate of a run
/// whose journal cannot be verified stays.
pub(crate) fn sweep(open: &OpenProject, files: &FileBroker) -> Result<(), Failure> {
    let runs = Runs::of(open)?;
    let names = |dead: DeadRun, publication| {
        let mut open = dead.open_publications();
        open.any(|it| it.intent.publication_id == publication)
    };
    // What an intent protects stays, with the ledger as a witness or without: it is read, which
    // takes longer the more runs there were, only for a candidate that might go.
    let swept = files.sweep(|name| {
        let alone = runs.dead_alone(name.run);
        alone.is_ok_and(|dead| names(dead, name.publication))
            || match runs.dead(name.run) {
                Ok(dead) => names(dead, name.publication),
                Err(_) => true,
            }
    });
    let output = Output::new(false);
    if let Err(error) = swept {
        output.note(&format!("note: {}", chain(&error)));
    }
    if let Err(error) = open.dirs.sweep_run_sockets() {
        output.note(&format!("note: {}", chain(&error)));
    }
    if let Err(error) = crate::approvals::sweep(&open.dirs) {
        output.note(&format!("note: {}", chain(&error)));
    }
    Ok(())
}
