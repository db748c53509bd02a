//! Chat as a surface: every held call goes out through a [`Delivery`], whole; signed callbacks come
//! in on a local listener, which the user's own relay feeds.
//!
//! Nothing here can block the session or another surface: a delivery that hangs is dropped when its
//! call goes, and callbacks are read meanwhile.

mod callbacks;
mod webhook;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use approval::HeldId;
use approval::chat::Chat;
use tokio::time::timeout;

pub use callbacks::ChatListener;
pub use webhook::{Webhook, WebhookError};

use crate::session::{HeldCall, HeldCalls};

/// The surface's name in records.
pub const SURFACE: &str = "chat";
/// For one delivery.
pub const DELIVERY_TIME_MAX: Duration = Duration::from_secs(30);

/// What carries a message to the platform.
pub trait Delivery: Send + Sync {
    /// Carries one message. The future is dropped when nobody needs the message any more.
    fn deliver(
        &self,
        message: Vec<u8>,
    ) -> Pin<Box<dyn Future<Output = Result<(), DeliveryError>> + Send + '_>>;
}

/// Why a message did not get there. It never names the place: that is a secret of the platform's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryError {
    Unreachable,
    /// The platform's answer was no success.
    Status(u16),
}

impl fmt::Display for DeliveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable => f.write_str("the platform could not be reached"),
            Self::Status(status) => write!(f, "the platform answered with status {status}"),
        }
    }
}

impl std::error::Error for DeliveryError {}

/// The parts of the surface.
pub struct ChatSurface {
    pub chat: Box<dyn Chat>,
    pub delivery: Box<dyn Delivery>,
    pub listener: ChatListener,
    /// Tells the run's user why a held call is not in the chat.
    pub report: Box<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for ChatSurface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatSurface")
            .field("chat", &self.chat)
            .finish_non_exhaustive()
    }
}

/// What the two halves share.
pub(crate) struct Shared {
    chat: Mutex<Box<dyn Chat>>,
    pub(crate) platform: &'static str,
}

impl Shared {
    pub(crate) fn chat(&self) -> MutexGuard<'_, Box<dyn Chat>> {
        self.chat.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ChatSurface {
    /// Shows held calls and takes answers, until dropped.
    pub async fn serve(self, held: HeldCalls) {
        let shared = Arc::new(Shared {
            platform: self.chat.platform(),
            chat: Mutex::new(self.chat),
        });
        let callbacks = callbacks::serve(self.listener, Arc::clone(&shared), held.clone());
        let messages = deliver_all(&shared, &*self.delivery, &*self.report, held);
        tokio::join!(callbacks, messages);
    }
}

async fn deliver_all(
    shared: &Shared,
    delivery: &dyn Delivery,
    report: &(dyn Fn(&str) + Send + Sync),
    mut held: HeldCalls,
) {
    let mut shown = None;
    loop {
        let call = held.pending().into_iter().next();
        let Some(call) = call.filter(|call| shown.as_ref() != Some(&call.held_id)) else {
            held.changed().await;
            continue;
        };
        shown = Some(call.held_id.clone());
        tokio::select! {
            delivered = deliver(shared, delivery, &call) => {
                if let Err(reason) = delivered {
                    report(&format!("{} is not in the chat: {reason}", call.held_id));
                }
            }
            () = gone(&mut held, &call.held_id) => {}
        }
    }
}

async fn deliver(shared: &Shared, delivery: &dyn Delivery, call: &HeldCall) -> Result<(), String> {
    let held_id = HeldId::new(call.held_id.as_str()).map_err(|error| error.to_string())?;
    let message = shared.chat().message(&held_id, &call.review);
    let message = message.map_err(|error| error.to_string())?;
    match timeout(DELIVERY_TIME_MAX, delivery.deliver(message)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!(
            "the platform did not answer within {} s",
            DELIVERY_TIME_MAX.as_secs()
        )),
    }
}

/// Returns once the call waits no longer.
async fn gone(held: &mut HeldCalls, held_id: &str) {
    while held.pending().iter().any(|call| call.held_id == held_id) {
        held.changed().await;
    }
}
