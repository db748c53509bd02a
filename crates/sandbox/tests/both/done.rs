//! What tests of every tier look at when a worker is gone.

use std::time::{Duration, Instant};

use rustix::event::{Timespec, poll};
use worker::{Ended, OutputFile, Running};

/// For a worker to end, on a machine with other work.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// What is left of a worker that is gone.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) ended: Ended,
    pub(crate) output: Option<Vec<u8>>,
}

impl Done {
    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.ended.stdout.bytes).into_owned()
    }

    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&self.ended.stderr.bytes).into_owned()
    }

    pub(crate) fn code(&self) -> i32 {
        match self.ended.ending {
            worker::Ending::Exited { code } => code,
            other => panic!("{other:?}: {}{}", self.out(), self.err()),
        }
    }

    /// The text of a run that must have gone well.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code(), 0, "{}{}", self.out(), self.err());
        self.out()
    }

    pub(crate) fn unusable(&self) -> &str {
        match &self.ended.output {
            OutputFile::Unusable { reason } => reason,
            other => panic!("{other:?}"),
        }
    }
}

/// Waits until something of the worker may have changed, at most a second.
pub(crate) fn await_news(running: &dyn Running) {
    let mut polled = vec![];
    running.poll_descriptors(&mut polled);
    let timeout = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&timeout)).unwrap();
}

/// Waits for the worker's end, as a session would.
pub(crate) fn wait(running: &mut dyn Running) -> Ended {
    let deadline = Instant::now() + PATIENCE;
    loop {
        await_news(running);
        if let Some(ended) = running.advance() {
            return ended;
        }
        assert!(Instant::now() < deadline, "the worker does not end");
    }
}
