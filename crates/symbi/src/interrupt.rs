//! Ctrl-C and a polite kill.

use std::io;
use std::sync::OnceLock;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::exit::{Exit, Failure};

/// Remembers that an end was asked for, also while nothing waits for it: from its start on, what is
/// under way is taken back instead of being cut off.
#[derive(Debug)]
pub(crate) struct Watch(watch::Receiver<bool>);

impl Watch {
    /// Watches for the rest of the process's life, on a thread of its own.
    pub(crate) fn start() -> io::Result<Self> {
        let (seen, asked) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let mut signals = Box::pin(interrupted());
        // Polled once here: from now on no such signal ends the process by itself.
        runtime.block_on(async {
            tokio::select! {
                biased;
                () = &mut signals => drop(seen.send(true)),
                () = std::future::ready(()) => {}
            }
        });
        if *asked.borrow() {
            return Ok(Self(asked));
        }
        std::thread::Builder::new()
            .name("symbi-signals".to_owned())
            .spawn(move || {
                runtime.block_on(signals);
                let _ = seen.send(true);
            })?;
        Ok(Self(asked))
    }

    /// The same, for a command: the first thing that it does.
    pub(crate) fn started() -> Result<Self, Failure> {
        Self::start().map_err(|error| Failure::new(Exit::Storage, format!("signals: {error}")))
    }

    /// Whether an end was asked for.
    pub(crate) fn interrupted(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns once an end was asked for, also if that was before.
    pub(crate) async fn asked(&self) {
        if self.0.clone().wait_for(|asked| *asked).await.is_err() {
            std::future::pending().await
        }
    }
}

/// Returns when the user or the system asks for an end (SIGINT, SIGTERM, SIGHUP). A hangup that
/// was ignored when we were started, as `nohup` does it, stays ignored.
pub(crate) async fn interrupted() {
    let keeps_hangup = !hangup_was_ignored();
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return std::future::pending().await;
    };
    let mut hangup = keeps_hangup
        .then(|| signal(SignalKind::hangup()).ok())
        .flatten();
    let hung_up = async {
        match &mut hangup {
            Some(hangup) => hangup.recv().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hung_up => {}
    }
}

/// Asked once, before we handle any signal ourselves.
fn hangup_was_ignored() -> bool {
    static IGNORED: OnceLock<bool> = OnceLock::new();
    *IGNORED.get_or_init(|| {
        std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores_hangup(&status))
    })
}

/// Whether bit 0 of `SigIgn` is set: SIGHUP is signal 1 (proc_pid_status(5)).
fn ignores_hangup(status: &str) -> bool {
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_hangup_is_the_first_bit_of_its_mask() {
        assert!(ignores_hangup("Name:\tx\nSigIgn:\t0000000000001001\n"));
        assert!(!ignores_hangup("SigBlk:\t01\nSigIgn:\t0000000000001000\n"));
        assert!(!ignores_hangup(""));
    }
}
