//! A command whose output a parser reads: two workers, one after the other, seen as one work.
//!
//! The parser's worker is made only after the command has ended well and its worker is gone, so
//! that nothing of the command is alive when its output is read. The session still waits alone:
//! this takes part in its poll, and what is left of the call's time is its to watch.

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::PollFd;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use worker::{
    Ended, Ending, Limits, ParserEnd, ParserSpec, RemovalError, RemovedWorker, Running, StartError,
    Tier, TierKind, WorkerSpec,
};

/// A tier that an executor and the work that it started both use.
#[derive(Clone)]
pub(crate) struct SharedTier {
    kind: TierKind,
    tier: Arc<Mutex<Box<dyn Tier>>>,
}

impl SharedTier {
    pub(crate) fn new(tier: Box<dyn Tier>) -> Self {
        Self {
            kind: tier.kind(),
            tier: Arc::new(Mutex::new(tier)),
        }
    }

    pub(crate) const fn kind(&self) -> TierKind {
        self.kind
    }

    pub(crate) fn enforceable(&self, wanted: Limits) -> Limits {
        let tier = self.tier.lock().unwrap_or_else(PoisonError::into_inner);
        tier.enforceable(wanted)
    }

    pub(crate) fn start(&self, spec: WorkerSpec) -> Result<Box<dyn Running>, StartError> {
        let mut tier = self.tier.lock().unwrap_or_else(PoisonError::into_inner);
        tier.start(spec)
    }
}

/// The two workers of one call.
pub(crate) struct ParsedCommand {
    tier: SharedTier,
    phase: Phase,
    /// The command's worker, once it is gone.
    removed: Vec<RemovedWorker>,
    /// It was not, and the session is to hear it.
    unconfirmed: Option<RemovalError>,
    stopped: bool,
}

enum Phase {
    Command {
        running: Box<dyn Running>,
        parser: Box<ParserSpec>,
    },
    Parser {
        running: Box<dyn Running>,
        command: Box<Ended>,
    },
    /// Ended: what is left is to be removed.
    Over { running: Box<dyn Running> },
    /// The command is gone, and no parser came after it.
    Gone,
}

impl ParsedCommand {
    /// Starts the command.
    ///
    /// # Errors
    /// [`StartError`]: nothing has run.
    pub(crate) fn start(
        tier: &SharedTier,
        command: WorkerSpec,
        parser: ParserSpec,
    ) -> Result<Box<dyn Running>, StartError> {
        let running = tier.start(command)?;
        Ok(Box::new(Self {
            tier: tier.clone(),
            phase: Phase::Command {
                running,
                parser: Box::new(parser),
            },
            removed: Vec::new(),
            unconfirmed: None,
            stopped: false,
        }))
    }

    /// After the command: its removal, and the parser's start where it ended well.
    fn next(
        &mut self,
        mut running: Box<dyn Running>,
        parser: ParserSpec,
        mut ended: Ended,
    ) -> Option<Ended> {
        let well = !self.stopped
            && ended.ending == Ending::Exited { code: 0 }
            && ended.limit.is_none()
            && !ended.stdout.over_limit
            && !ended.stderr.over_limit;
        if !well {
            self.phase = Phase::Over { running };
            return Some(ended);
        }
        match running.remove() {
            Ok(removed) => self.removed = removed,
            Err(error) => {
                self.unconfirmed = Some(error);
                self.phase = Phase::Over { running };
                return Some(ended);
            }
        }
        drop(running);
        let started = sealed(&ended.stdout.bytes)
            .map_err(|error| StartError::Failed {
                step: "handing over the output".to_owned(),
                reason: error.to_string(),
            })
            .and_then(|output| self.tier.start(parser.reading(output)));
        match started {
            Ok(running) => {
                self.phase = Phase::Parser {
                    running,
                    command: Box::new(ended),
                };
                self.advance()
            }
            Err(error) => {
                ended.parser = Some(ParserEnd::NotStarted(error));
                Some(ended)
            }
        }
    }
}

impl Running for ParsedCommand {
    fn poll_descriptors<'a>(&'a self, into: &mut Vec<PollFd<'a>>) {
        match &self.phase {
            Phase::Command { running, .. } | Phase::Parser { running, .. } => {
                running.poll_descriptors(into);
            }
            Phase::Over { .. } | Phase::Gone => {}
        }
    }

    fn advance(&mut self) -> Option<Ended> {
        match std::mem::replace(&mut self.phase, Phase::Gone) {
            Phase::Command {
                mut running,
                parser,
            } => match running.advance() {
                Some(ended) => self.next(running, *parser, ended),
                None => {
                    self.phase = Phase::Command { running, parser };
                    None
                }
            },
            Phase::Parser {
                mut running,
                mut command,
            } => {
                if let Some(ended) = running.advance() {
                    command.parser = Some(ParserEnd::Ended(Box::new(ended)));
                    self.phase = Phase::Over { running };
                    Some(*command)
                } else {
                    self.phase = Phase::Parser { running, command };
                    None
                }
            }
            over @ (Phase::Over { .. } | Phase::Gone) => {
                self.phase = over;
                None
            }
        }
    }

    fn stop(&mut self) {
        self.stopped = true;
        match &mut self.phase {
            Phase::Command { running, .. } | Phase::Parser { running, .. } => running.stop(),
            Phase::Over { .. } | Phase::Gone => {}
        }
    }

    fn remove(&mut self) -> Result<Vec<RemovedWorker>, RemovalError> {
        if let Some(error) = self.unconfirmed.take() {
            return Err(error);
        }
        let mut removed = self.removed.clone();
        match &mut self.phase {
            Phase::Command { running, .. }
            | Phase::Parser { running, .. }
            | Phase::Over { running } => removed.extend(running.remove()?),
            Phase::Gone => {}
        }
        Ok(removed)
    }
}

/// A memory file that nobody can change.
fn sealed(content: &[u8]) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create("symbi-output", flags)?);
    file.write_all(content)?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;
    Ok(file)
}
