//! Any bytes of an MCP client, in chunks of any size; its calls are answered or forgotten.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mcp::{Connection, ConnectionLimits, Output, ServerInfo, Tool, ToolResult};
use model::{JsonObject, ToolName};

fn tool(name: &str) -> Tool {
    Tool {
        name: ToolName::new(name).expect("a tool's name"),
        description: "A tool".to_owned(),
        input_schema: JsonObject::default(),
        read_only: name.starts_with("read"),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let server = ServerInfo {
        name: "symbi".to_owned(),
        version: "0".to_owned(),
        instructions: None,
    };
    let tools = vec![tool("read_a"), tool("write_b")].into();
    let mut connection = Connection::new(&server, tools, ConnectionLimits::broker());
    let (chunk, bytes) = match bytes.split_first() {
        Some((first, rest)) => (usize::from(*first) + 1, rest),
        None => return,
    };
    let mut out = Vec::new();
    for part in bytes.chunks(chunk) {
        connection.feed(part, &mut out);
        for output in out.drain(..) {
            match output {
                Output::Send(frame) => check(&frame),
                Output::Call(call) if call.arguments.as_map().len() % 2 == 0 => {
                    let result = ToolResult {
                        text: call.name.clone(),
                        structured: Some(call.arguments.clone()),
                        is_error: false,
                    };
                    if let Some(frame) = connection.answer(call.ticket, &result) {
                        check(&frame);
                    }
                }
                _ => {}
            }
        }
    }
    connection.eof(&mut out);
    assert!(connection.outstanding() <= mcp::limits::CALLS_OUTSTANDING_MAX);
});

/// What we send is one line of JSON.
fn check(frame: &[u8]) {
    assert_eq!(frame.last(), Some(&b'\n'));
    assert_eq!(frame.iter().filter(|byte| **byte == b'\n').count(), 1);
    serde_json::from_slice::<serde_json::Value>(frame).expect("a frame of JSON");
}
