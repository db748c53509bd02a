//! A run's progress as JSON lines, for programs. docs/agents.md describes them.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::agent::{Heard, Hearing, Listener};
use super::note::{Note, Step};
use super::screen::Line;
use crate::agents::claude_code::Remark;

/// Tells programs.
#[derive(Debug)]
pub(super) struct Events {
    listener: Listener,
}

impl Events {
    pub(super) const fn new(hearing: Hearing) -> Self {
        Self {
            listener: Listener::new(hearing),
        }
    }

    pub(super) fn tell(&mut self, note: &Note, at: Duration, lines: &mut Vec<Line>) {
        let value = match note {
            Note::Said(bytes) => {
                let heard = self.listener.hear(bytes);
                return said(heard, at, lines);
            }
            Note::Call {
                call_id,
                tool,
                step,
            } => {
                let mut value = of_step(step);
                value["event"] = json!("call");
                value["call_id"] = json!(call_id);
                value["tool"] = json!(tool);
                value
            }
            Note::ModelRefused { reason } => {
                json!({"event": "model", "step": "refused", "reason": reason})
            }
            Note::ModelAsked { request, reserved } => json!({
                "event": "model", "step": "asked", "request": request,
                "reserved_output_tokens": reserved,
            }),
            Note::ModelAnswered {
                request,
                status,
                incomplete: None,
            } => json!({
                "event": "model", "step": "answered", "request": request, "status": status,
            }),
            Note::ModelAnswered {
                request,
                status,
                incomplete: Some(reason),
            } => json!({
                "event": "model", "step": "incomplete", "request": request, "status": status,
                "reason": reason,
            }),
        };
        lines.push(line(value, at));
    }

    /// Tells what is left.
    pub(super) fn end(&mut self, at: Duration, lines: &mut Vec<Line>) {
        said(self.listener.end(), at, lines);
    }
}

fn of_step(step: &Step) -> Value {
    match step {
        Step::Prepared {
            call_sha256,
            argv,
            spent,
        } => json!({
            "step": "prepared", "call_sha256": call_sha256, "argv": argv, "calls": spent,
        }),
        Step::Held {
            held_id,
            expires_at,
        } => json!({"step": "held", "held_id": held_id, "expires_at": expires_at}),
        Step::Running => json!({"step": "running"}),
        Step::Refused {
            stage,
            reason,
            spent,
        } => json!({"step": "refused", "stage": stage, "reason": reason, "calls": spent}),
        Step::Ended {
            status,
            reason,
            millis,
            created,
        } => {
            let file = |(path, bytes): &(String, u64)| json!({"path": path, "bytes": bytes});
            let created: Vec<Value> = created.iter().map(file).collect();
            json!({
                "step": "ended", "status": status, "reason": reason, "duration_ms": millis,
                "created_files": created,
            })
        }
    }
}

fn said(heard: Vec<Heard>, at: Duration, lines: &mut Vec<Line>) {
    for heard in heard {
        let value = match heard {
            Heard::Result(text) => json!({"event": "output", "text": text}),
            Heard::Remark(Remark::Started { version }) => {
                json!({"event": "agent", "step": "started", "version": version})
            }
            Heard::Remark(Remark::Text { message, text }) => {
                json!({"event": "agent", "step": "says", "message": message, "text": text})
            }
            Heard::Remark(Remark::Thinks { message }) => {
                json!({"event": "agent", "step": "thinks", "message": message})
            }
            Heard::Remark(Remark::Asks { message, tool }) => {
                json!({"event": "agent", "step": "asks", "message": message, "tool": tool})
            }
            Heard::Remark(Remark::CallFailed) => json!({"event": "agent", "step": "call_failed"}),
        };
        lines.push(line(value, at));
    }
}

/// The event with its time, in milliseconds since the run was begun.
fn line(value: Value, at: Duration) -> Line {
    let millis = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
    let mut whole = Map::new();
    whole.insert("at_ms".to_owned(), json!(millis));
    if let Value::Object(fields) = value {
        whole.extend(fields);
    }
    Line::Event(Value::Object(whole).to_string())
}
