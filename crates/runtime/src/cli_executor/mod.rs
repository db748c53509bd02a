//! What a contained agent is given: a private channel to its governed session, and to its model.

mod boundary;
pub mod broker;
mod channel;
mod completion;
mod connection;
mod head_clock;
mod inference;
pub mod limits;
mod listener;
mod progress;
mod relay;

pub use boundary::BoundaryRefused;
pub use channel::ChannelError;
pub use inference::{ProtectedInference, ProtectedInferenceError};
