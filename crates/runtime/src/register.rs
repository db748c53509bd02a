//! The ledger as a session's register.

use journal::RunFiles;

use crate::session::{RegisterError, RunRegister};

/// Enters a run's start and end in its project's ledger.
#[derive(Debug)]
pub struct LedgerRegister(Option<RunFiles>);

impl LedgerRegister {
    #[must_use]
    pub const fn new(files: RunFiles) -> Self {
        Self(Some(files))
    }
}

impl RunRegister for LedgerRegister {
    fn run_started(&mut self) -> Result<(), RegisterError> {
        match &mut self.0 {
            Some(files) => Ok(files.started()?),
            None => Ok(()),
        }
    }

    fn run_ended(&mut self) -> Result<(), RegisterError> {
        match self.0.take() {
            Some(files) => Ok(files.ended().map(drop)?),
            None => Ok(()),
        }
    }
}
