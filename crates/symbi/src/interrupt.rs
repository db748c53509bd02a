//! Ctrl-C and a polite kill.

use tokio::signal::unix::{SignalKind, signal};

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
