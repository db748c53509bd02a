//! A run's progress as JSON lines, for programs. docs/agents.md describes them.

use std::time::Duration;

use model::RunId;
use serde_json::{Map, Value, json};

use super::agent::{Heard, Hearing, Listener};
use super::note::{Note, Step};
use super::screen::Line;
use crate::agents::claude_code::Remark;

/// Tells programs.
#[derive(Debug)]
pub(super) struct Events {
    listener: Listener,
    run: RunId,
}

impl Events {
    pub(super) const fn new(hearing: Hearing, run: RunId) -> Self {
        Self {
            listener: Listener::new(hearing),
            run,
        }
    }

    pub(super) fn tell(&mut self, note: &Note, at: Duration, lines: &mut Vec<Line>) {
        let value = match note {
            Note::Said(bytes) => {
                let heard = self.listener.hear(bytes);
                return self.said(heard, at, lines);
            }
            Note::Call {
                call_id,
                tool,
                step,
            } => {
                let call = json!({"event": "call", "call_id": call_id, "tool": tool});
                lines.push(self.line([call, of_step(step)], at));
                return;
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
        lines.push(self.line([value], at));
    }

    /// Tells what is left.
    pub(super) fn end(&mut self, at: Duration, lines: &mut Vec<Line>) {
        let heard = self.listener.end();
        self.said(heard, at, lines);
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

impl Events {
    fn said(&self, heard: Vec<Heard>, at: Duration, lines: &mut Vec<Line>) {
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
                Heard::Remark(Remark::CallFailed) => {
                    json!({"event": "agent", "step": "call_failed"})
                }
            };
            lines.push(self.line([value], at));
        }
    }

    /// The event with its run, and its time in milliseconds since that was begun.
    fn line<const N: usize>(&self, values: [Value; N], at: Duration) -> Line {
        let millis = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        let mut whole = Map::new();
        whole.insert("at_ms".to_owned(), json!(millis));
        whole.insert("run_id".to_owned(), json!(self.run));
        for value in values {
            if let Value::Object(fields) = value {
                whole.extend(fields);
            }
        }
        Line::Event(Value::Object(whole).to_string())
    }
}
