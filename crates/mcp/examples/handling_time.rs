//! How long one frame takes: `cargo run --release -p mcp --example handling_time`.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mcp::{Connection, ConnectionLimits, Output, ServerInfo, Tool, ToolResult};
use model::{JsonObject, ToolName};

const ROUNDS: u32 = 2_000;
const TOOLS: usize = 64;
const SCHEMA: &[u8] = br#"{"type":"object","additionalProperties":false,
    "required":["input","output"],"properties":{
    "input":{"type":"string","description":"the file to read, below data"},
    "output":{"type":"string","description":"the file to create, below out"},
    "limit":{"type":"integer","minimum":1,"maximum":1000}}}"#;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let tools = (0..TOOLS)
        .map(tool)
        .collect::<Result<Arc<[Tool]>, Failure>>()?;
    let mut out = io::stdout().lock();
    let mut report = |what: &str, mut times: Vec<Duration>, bytes: usize| {
        times.sort_unstable();
        let at = |share: usize| {
            times
                .get(times.len() * share / 100)
                .copied()
                .unwrap_or_default()
        };
        let (median, slow) = (at(50), at(99));
        writeln!(
            out,
            "{what:<28} median {median:>9.1?}  p99 {slow:>9.1?}  answer {bytes} bytes"
        )
    };
    let (times, bytes) = measure(&tools, "ping", "{}")?;
    report("ping", times, bytes)?;
    let (times, bytes) = measure(&tools, "tools/list", "{}")?;
    report("tools/list of 64 tools", times, bytes)?;
    let small = r#"{"name":"tool_1","arguments":{"input":"data/a.csv","output":"out/b.csv"}}"#;
    let (times, bytes) = measure(&tools, "tools/call", small)?;
    report("tools/call and its answer", times, bytes)?;
    let pad = "x".repeat((1 << 20) - 200);
    let large = format!(r#"{{"name":"tool_1","arguments":{{"pad":"{pad}"}}}}"#);
    let (times, bytes) = measure(&tools, "tools/call", &large)?;
    report("tools/call of 1 MiB text", times, bytes)?;
    let objects = r#"{"a":1},"#.repeat(8_000);
    let wide = format!(r#"{{"name":"tool_1","arguments":{{"many":[{objects}0]}}}}"#);
    let (times, bytes) = measure(&tools, "tools/call", &wide)?;
    report("tools/call of 8,000 objects", times, bytes)?;
    Ok(())
}

fn tool(number: usize) -> Result<Tool, Failure> {
    Ok(Tool {
        name: ToolName::new(format!("tool_{number}"))?,
        description: "Copies one file below data to one new file below out".into(),
        input_schema: model::json::parse_object(SCHEMA, SCHEMA.len())?,
        read_only: number.is_multiple_of(2),
    })
}

/// The time of each frame with its answer, and the last answer's size.
fn measure(
    tools: &Arc<[Tool]>,
    method: &str,
    params: &str,
) -> Result<(Vec<Duration>, usize), Failure> {
    let server = ServerInfo {
        name: "symbi".into(),
        version: "0.1.0".into(),
        instructions: None,
    };
    let result = ToolResult {
        text: "x".repeat(200),
        structured: Some(JsonObject::default()),
        is_error: false,
    };
    let mut connection = Connection::new(&server, Arc::clone(tools), ConnectionLimits::stdio());
    let mut out = Vec::new();
    connection.feed(
        br#"{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25"}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
"#,
        &mut out,
    );
    let rounds = if params.len() > 1 << 16 {
        ROUNDS / 40
    } else {
        ROUNDS
    };
    let mut times = Vec::new();
    let mut bytes = 0;
    for id in 0..rounds {
        let frame =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
                + "\n";
        out.clear();
        let start = Instant::now();
        connection.feed(frame.as_bytes(), &mut out);
        let answer = match out.pop() {
            Some(Output::Send(answer)) => answer,
            Some(Output::Call(call)) => connection
                .answer(call.ticket, &result)
                .ok_or("a call was withdrawn")?,
            other => return Err(format!("no answer but {other:?}").into()),
        };
        times.push(start.elapsed());
        bytes = answer.len();
    }
    Ok((times, bytes))
}
