//! Ctrl-C and a polite kill.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

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

/// Returns when the user or the system asks for an end (SIGINT, SIGTERM, SIGHUP).
pub(crate) async fn interrupted() {
    let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
        signal(SignalKind::hangup()),
    ) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}
