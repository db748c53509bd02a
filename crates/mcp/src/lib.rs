//! The MCP server as a machine without I/O: bytes of one connection in, frames and calls out.
//!
//! The peer is the untrusted agent. What passes here is a call's name and arguments and nothing
//! else: no parameter, header or member of a frame can bring an identity or a policy.
//!
//! Spoken is the era that begins with `initialize`: revisions 2024-11-05, 2025-03-26, 2025-06-18
//! and 2025-11-25. Revision 2026-07-28 is not spoken yet: its `server/discover` is answered with
//! -32601 on a connection that lives on, at which its clients fall back to `initialize`.

#![forbid(unsafe_code)]

mod bridge;
mod connection;
mod fault;
#[cfg(test)]
mod fixture;
mod frame;
#[cfg(test)]
mod histories;
mod identity;
pub mod limits;
mod message;
mod outstanding;
mod reply;
mod revision;
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
