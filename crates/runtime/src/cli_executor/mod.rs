//! What a contained agent is given: a private channel to its governed session, and to its model.

pub mod broker;
mod channel;
mod connection;
mod inference;
pub mod limits;
mod listener;

pub use channel::ChannelError;
pub use inference::{ProtectedInference, ProtectedInferenceError};
