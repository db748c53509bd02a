//! What the agent's client starts to reach the broker: a static Python program and its entry in
//! the client's configuration.

use serde_json::json;

/// The bridge between standard input and output and the broker's socket. It needs Python 3.7 or
/// later and its standard library alone, knows nothing of the protocol and holds no authority.
///
/// `python3 -I bridge.py SOCKET` exits 0 where its input ended first, 1 where the socket did, and
/// 2 where it was started wrongly.
pub const BRIDGE_PY: &str = include_str!("bridge.py");

/// The configuration with which a client starts the bridge: a JSON object in the form that
/// `mcpServers` files have, on one line.
#[must_use]
pub fn mcp_config(server_name: &str, bridge_path: &str, socket_path: &str) -> String {
    json!({
        "mcpServers": {
            server_name: {
                "type": "stdio",
                "command": "python3",
                "args": ["-I", bridge_path, socket_path],
            }
        }
    })
    .to_string()
}

#[cfg(test)]
mod tests;
