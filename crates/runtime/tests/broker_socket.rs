//! The broker over real sockets: what a wire client may say, and what becomes of its calls.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

#[path = "broker_socket/channel.rs"]
mod channel;
#[path = "broker_socket/client.rs"]
mod client;
#[path = "broker_socket/contained.rs"]
mod contained;
#[path = "broker_socket/hostile.rs"]
mod hostile;
#[path = "broker_socket/lives.rs"]
mod lives;
#[path = "broker_socket/progress.rs"]
mod progress;
#[path = "broker_socket/protocol.rs"]
mod protocol;
#[path = "broker_socket/traffic.rs"]
mod traffic;
