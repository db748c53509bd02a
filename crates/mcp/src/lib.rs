//! The MCP server as a machine without I/O: bytes of one connection in, frames and calls out.
//!
//! The peer is the untrusted agent. What passes here is a call's name and arguments and nothing
//! else: no parameter, header or member of a frame can bring an identity or a policy.
//!
//! Both eras are spoken, each by a machine of its own behind the same checks: the one that begins
//! with `initialize` (revisions 2024-11-05 to 2025-11-25), and the one in which every request names
//! its revision (2026-07-28). A connection's first request decides; `server/discover` is a look
//! before that, after which a client may still choose `initialize`.

#![forbid(unsafe_code)]

mod bridge;
mod connection;
mod era;
mod fault;
#[cfg(test)]
mod fixture;
mod frame;
mod handshake;
#[cfg(test)]
mod histories;
mod identity;
pub mod limits;
mod message;
mod outstanding;
mod reply;
mod revision;
mod stateless;
mod text;
mod tool;

pub use bridge::{BRIDGE_PY, mcp_config};
pub use connection::{Connection, EndReason, IncomingCall, Output};
pub use fault::ErrorCode;
pub use identity::{ProgressToken, WireId, WireIdError};
pub use limits::ConnectionLimits;
pub use outstanding::Ticket;
pub use revision::{REVISIONS, Revision};
pub use text::fit_text;
pub use tool::{ServerInfo, Tool, ToolResult};
