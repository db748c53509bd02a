//! An MCP client of `symbi mcp`, spoken to line by line.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout};

use serde_json::{Value, json};

use crate::desk::{Desk, Ended};

/// An MCP client by hand.
pub(crate) struct Client {
    child: Child,
    pub(crate) input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Client {
    pub(crate) fn start(desk: &Desk, more: &[&str]) -> Self {
        let words = ["--project", "project", "mcp"];
        let mut child = desk.start_client(&[&words, more].concat());
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            input,
            output,
        }
    }

    pub(crate) fn initialized(desk: &Desk, more: &[&str]) -> Self {
        let mut client = Self::start(desk, more);
        let about = json!({"name": "t", "version": "1"});
        let answer = client.ask(
            0,
            "initialize",
            &json!({
                "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about
            }),
        );
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
        client.send("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}");
        client
    }

    pub(crate) fn send(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    pub(crate) fn request(&mut self, number: u64, method: &str, params: &Value) {
        let request = json!({"jsonrpc": "2.0", "id": number, "method": method, "params": params});
        self.send(&request.to_string());
    }

    pub(crate) fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    pub(crate) fn ask(&mut self, number: u64, method: &str, params: &Value) -> Value {
        self.request(number, method, params);
        self.answer()
    }

    /// Calls a tool; returns `isError` and the envelope.
    pub(crate) fn call(&mut self, number: u64, tool: &str, arguments: &Value) -> (bool, Value) {
        let params = json!({"name": tool, "arguments": arguments});
        let answer = self.ask(number, "tools/call", &params);
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        (
            answer["result"]["isError"] == true,
            serde_json::from_str(text).unwrap(),
        )
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Closes standard input and waits.
    pub(crate) fn leave(mut self) -> Ended {
        drop(self.input.take());
        self.end()
    }

    pub(crate) fn end(mut self) -> Ended {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.output.read_to_string(&mut stdout).unwrap();
        let mut told = self.child.stderr.take().unwrap();
        told.read_to_string(&mut stderr).unwrap();
        Ended {
            code: self.child.wait().unwrap().code(),
            stdout,
            stderr,
        }
    }
}
