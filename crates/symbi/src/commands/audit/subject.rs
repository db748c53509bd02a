//! The journal that a command is about, and all that is known of it elsewhere.

use std::path::{Path, PathBuf};

use journal::{
    Checkpoint, Depth, LedgerRun, PublicKey, Report, VerifyOptions, evidence_folder, journal_path,
    runs_folder, verify_file,
};
use model::RunId;

use super::{LedgerState, ledger, own_key, parse_key, unreadable};
use crate::anchors;
use crate::args::Common;
use crate::exit::{Exit, Failure};
use crate::open::OpenProject;

/// What the command line says of it.
#[derive(Debug, Default)]
pub(super) struct Asked<'a> {
    pub(super) target: &'a str,
    pub(super) public_key: Option<&'a str>,
    pub(super) run: Option<RunId>,
    pub(super) anchors: &'a [PathBuf],
}

/// A journal with its witnesses.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) path: PathBuf,
    pub(super) run: Option<RunId>,
    /// The key that signs it, as far as it is known without the file itself.
    pub(super) key: Option<PublicKey>,
    pub(super) ledger: Option<LedgerRun>,
    /// Whether the ledger can be a witness.
    pub(super) ledger_state: LedgerState,
    pub(super) anchors: Vec<Checkpoint>,
}

impl Subject {
    /// The journal of a run of this project, or the file of that name.
    ///
    /// A run that is named by its id has the project's key and ledger as witnesses; of a file
    /// that is named by its path, neither is known, unless its run is one of the project's.
    pub(super) fn find(asked: &Asked<'_>, common: &Common) -> Result<Self, Failure> {
        let given = asked.public_key.map(parse_key).transpose()?;
        let named = asked.target.parse::<RunId>().ok();
        let open = match named {
            Some(_) => Some(OpenProject::find(common.project.as_deref())?),
            None => OpenProject::find(common.project.as_deref()).ok(),
        };
        let run = named.or(asked.run);
        let mut subject = Self {
            path: path_of(asked.target, named, open.as_ref()),
            run,
            key: given.clone(),
            ledger: None,
            ledger_state: LedgerState::default(),
            anchors: Vec::new(),
        };
        if let (Some(run), Some(open)) = (run, &open) {
            subject.ask_ledger(open, run, given, named.is_some())?;
        }
        subject.ask_anchors(asked.anchors, open.as_ref())?;
        Ok(subject)
    }

    fn ask_ledger(
        &mut self,
        open: &OpenProject,
        run: RunId,
        given: Option<PublicKey>,
        ours: bool,
    ) -> Result<(), Failure> {
        let key = match given {
            Some(key) => key,
            None => own_key(open)?,
        };
        let report = ledger(open, &key)?.unwrap_or_default();
        let known = report.runs.into_iter().find(|known| known.run == run);
        if let Some(known) = known {
            self.key = known.public_key.clone().or(Some(key));
            self.ledger = Some(known);
        } else if ours {
            self.key = Some(key);
        }
        if ours {
            let (fault, tail) = (report.fault, report.tail);
            self.ledger_state = LedgerState { fault, tail };
        }
        Ok(())
    }

    fn ask_anchors(
        &mut self,
        named: &[PathBuf],
        open: Option<&OpenProject>,
    ) -> Result<(), Failure> {
        match (self.run, &self.key) {
            (Some(run), Some(key)) => {
                self.anchors = anchors::heads(open, named, run, key)?;
                Ok(())
            }
            _ if named.is_empty() => Ok(()),
            _ => Err(Failure::new(
                Exit::Usage,
                "an anchor keeps heads of many runs by many keys",
            )
            .help("say whose to look for: --run-id ID --public-key KEY")),
        }
    }

    /// Where its evidence is, if it is one of this project's journals in its place.
    pub(super) fn evidence_folder(&self) -> Option<PathBuf> {
        let (folder, name) = (self.path.parent()?, self.path.file_name()?);
        let state = folder.parent()?;
        let in_place = self
            .run
            .is_some_and(|run| journal_path(state, run).ends_with(name))
            && runs_folder(state) == folder;
        in_place.then(|| evidence_folder(state))
    }

    /// Verifies it. A run that the ledger knows and whose file is gone has a verdict too.
    pub(super) fn verify(&self, depth: Depth) -> Result<Report, Failure> {
        let options = VerifyOptions {
            public_key: self.key.clone(),
            run: self.run,
            ledger: self.ledger.clone(),
            anchors: self.anchors.clone(),
            depth,
        };
        match (verify_file(&self.path, &options), &self.ledger) {
            (Ok(report), _) => Ok(report),
            (Err(error), Some(known)) if error.kind() == std::io::ErrorKind::NotFound => {
                match &known.archived {
                    Some(_) => Err(Failure::new(
                        Exit::Usage,
                        format!("the journal of run {} was archived", known.run),
                    )
                    .help(format!(
                        "name its file: symbi audit verify DIR/{0}.jsonl --run-id {0}",
                        known.run
                    ))),
                    None => Ok(Report::absent(known, self.key.as_ref())),
                }
            }
            (Err(error), None)
                if error.kind() == std::io::ErrorKind::NotFound && self.nobody_knows_it() =>
            {
                let run = self.run.map_or_else(String::new, |run| run.to_string());
                Err(
                    Failure::new(Exit::Usage, format!("the project has no run {run}"))
                        .help("its runs are in: symbi audit list"),
                )
            }
            (Err(error), _) => Err(self.unreadable(&error)),
        }
    }

    /// A name of a file that nobody knows is a wrong name; a journal that should be there is gone.
    pub(super) fn unreadable(&self, error: &std::io::Error) -> Failure {
        let failure = unreadable(&self.path, error);
        let is_gone = error.kind() == std::io::ErrorKind::NotFound;
        match is_gone && self.ledger.is_none() && self.anchors.is_empty() {
            true => Failure {
                exit: Exit::Usage,
                ..failure
            },
            false => failure,
        }
    }

    /// One of this project's, of which no witness has heard: a wrong id, and nothing that is gone.
    fn nobody_knows_it(&self) -> bool {
        let LedgerState { fault, tail } = &self.ledger_state;
        self.evidence_folder().is_some()
            && self.ledger.is_none()
            && self.anchors.is_empty()
            && fault.is_none()
            && tail.is_none()
    }
}

fn path_of(target: &str, run: Option<RunId>, open: Option<&OpenProject>) -> PathBuf {
    match (run, open) {
        (Some(run), Some(open)) => {
            let state = open.project.path().join(project::STATE_FOLDER);
            journal_path(&state, run)
        }
        _ => Path::new(target).to_owned(),
    }
}
