//! How others reach the session's thread: flags, and one eventfd that ends its `poll`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use governance::EndCause;
use rustix::event::{EventfdFlags, eventfd};

/// Shared by the session and everything that may end it.
#[derive(Debug)]
pub(crate) struct Signals {
    wake: OwnedFd,
    cancelled: AtomicBool,
    cause: Mutex<Option<EndCause>>,
}

impl Signals {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            cancelled: AtomicBool::new(false),
            cause: Mutex::new(None),
        })
    }

    /// Ends the session's current `poll`.
    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Ends the session for `cause`; the first cause stays.
    pub(crate) fn cancel(&self, cause: EndCause) {
        if let Ok(mut slot) = self.cause.lock() {
            slot.get_or_insert(cause);
        }
        self.cancelled.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Why the session was told to end, if it was.
    pub(crate) fn cancelled(&self) -> Option<EndCause> {
        if !self.cancelled.load(Ordering::SeqCst) {
            return None;
        }
        let cause = self.cause.lock().ok().and_then(|cause| cause.clone());
        Some(cause.unwrap_or(EndCause::Cancelled))
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Forgets the wakes so far. Look at the flags after this, not before.
    pub(crate) fn drain(&self) {
        let mut counter = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut counter);
    }
}
