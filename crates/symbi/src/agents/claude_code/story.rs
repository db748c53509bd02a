//! What Claude Code tells of its own run, in its `stream-json` output: one JSON object a line.
//!
//! It is the agent's word and no evidence; the journal is. Lines that cannot be read are skipped.

use serde::Serialize;
use serde_json::Value;

/// The client's account of its run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Story {
    pub(crate) version: Option<String>,
    /// Answers of its model that it worked on.
    pub(crate) turns: Option<u64>,
    /// Tool calls that its model asked for.
    pub(crate) calls: u64,
    /// Of these, those that came back as errors: refused, failed, or never sent.
    pub(crate) call_errors: u64,
    pub(crate) output_tokens: Option<u64>,
    pub(crate) end: Option<End>,
}

/// Its last line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct End {
    /// Its final answer, or what it says went wrong.
    pub(crate) answer: String,
    /// Whether it failed: `subtype` says `success` also then.
    pub(crate) is_error: bool,
}

/// One thing that it tells while it runs. Not escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Remark {
    Started {
        version: String,
    },
    /// Its model answered with a text; `message` names the answer.
    Text {
        message: String,
        text: String,
    },
    Thinks {
        message: String,
    },
    /// Its model wants a tool.
    Asks {
        message: String,
        tool: String,
    },
    /// A call came back as an error.
    CallFailed,
}

impl Remark {
    /// The remarks of one line of its output; none where it cannot be read.
    pub(crate) fn of_line(line: &[u8]) -> Vec<Self> {
        serde_json::from_slice(line).map_or_else(|_| Vec::new(), |line| Self::of(&line))
    }

    fn of(line: &Value) -> Vec<Self> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let kind = line["type"].as_str().unwrap_or_default();
        if kind == "system" && line["subtype"] == "init" {
            let version = text(&line["claude_code_version"]);
            return vec![Self::Started { version }];
        }
        let message = line.pointer("/message/id").map_or_else(String::new, text);
        let blocks = line.pointer("/message/content").and_then(Value::as_array);
        let of_block = |block: &Value| {
            let message = message.clone();
            match (kind, block["type"].as_str()?) {
                ("assistant", "text") => Some(Self::Text {
                    message,
                    text: text(&block["text"]),
                }),
                ("assistant", "thinking" | "redacted_thinking") => Some(Self::Thinks { message }),
                ("assistant", "tool_use") => Some(Self::Asks {
                    message,
                    tool: text(&block["name"]),
                }),
                ("user", "tool_result") => {
                    (block["is_error"] == Value::Bool(true)).then_some(Self::CallFailed)
                }
                _ => None,
            }
        };
        blocks.into_iter().flatten().filter_map(of_block).collect()
    }
}

impl Story {
    /// Reads the whole output.
    pub(crate) fn read(output: &[u8]) -> Self {
        let mut story = Self::default();
        for line in output.split(|byte| *byte == b'\n') {
            if let Ok(value) = serde_json::from_slice::<Value>(line) {
                story.hear(&value);
            }
        }
        story
    }

    fn hear(&mut self, line: &Value) {
        let text = |name: &str| line.get(name).and_then(Value::as_str);
        match text("type") {
            Some("system") if text("subtype") == Some("init") => {
                self.version = text("claude_code_version").map(str::to_owned);
            }
            Some("assistant") => self.calls += blocks(line, |kind, _| kind == "tool_use"),
            Some("user") => {
                self.call_errors += blocks(line, |kind, block| {
                    kind == "tool_result" && block["is_error"] == Value::Bool(true)
                });
            }
            Some("result") => {
                self.turns = line["num_turns"].as_u64();
                self.output_tokens = line.pointer("/usage/output_tokens").and_then(Value::as_u64);
                self.end = Some(End {
                    answer: text("result").map_or_else(|| faults(line), str::to_owned),
                    is_error: line["is_error"] != Value::Bool(false),
                });
            }
            _ => {}
        }
    }

    /// The final answer, where the client says that it succeeded.
    pub(crate) fn answer(&self) -> Option<&str> {
        let end = self.end.as_ref().filter(|end| !end.is_error)?;
        Some(&end.answer)
    }

    /// Why the run is no success by the client's own account.
    pub(crate) fn failure(&self) -> Option<&str> {
        match &self.end {
            None => Some("it ended without a result"),
            Some(end) if end.is_error => Some(&end.answer),
            Some(_) => None,
        }
    }

    /// Turns, calls and tokens in one line.
    pub(crate) fn summary(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.turns.map(|turns| plural(turns, "turn")));
        let calls = plural(self.calls, "tool call");
        parts.push(match self.call_errors {
            0 => calls,
            errors => format!("{calls} ({errors} refused or failed)"),
        });
        parts.extend(
            self.output_tokens
                .map(|tokens| plural(tokens, "output token")),
        );
        parts.join(", ")
    }
}

/// How many content blocks of a message are such.
fn blocks(line: &Value, such: impl Fn(&str, &Value) -> bool) -> u64 {
    let content = line.pointer("/message/content").and_then(Value::as_array);
    let found = content.into_iter().flatten().filter(|block| {
        let kind = block["type"].as_str().unwrap_or_default();
        such(kind, block)
    });
    found.count() as u64
}

fn faults(line: &Value) -> String {
    let errors = line["errors"].as_array();
    let texts: Vec<&str> = errors
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    match texts.as_slice() {
        [] => line["subtype"].as_str().unwrap_or_default().to_owned(),
        texts => texts.join("; "),
    }
}

fn plural(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = r#"
{"type":"system","subtype":"init","claude_code_version":"2.1.197","tools":["mcp__symbi__grep"]}
{"type":"assistant","message":{"content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"1"}]}}
{"type":"user","message":{"content":[{"type":"tool_result","is_error":true,"content":"no"}]}}
not json
{"type":"assistant","message":{"content":[{"type":"tool_use","id":"2"}]}}
{"type":"user","message":{"content":[{"type":"tool_result","content":"yes"}]}}
{"type":"user","message":{"content":"a text"}}
{"type":"result","subtype":"success","is_error":false,"num_turns":3,"result":"All is well.","usage":{"output_tokens":27}}
"#;

    #[test]
    fn turns_calls_and_the_final_answer_are_told() {
        let story = Story::read(OUTPUT.as_bytes());
        assert_eq!(story.version.as_deref(), Some("2.1.197"));
        assert_eq!(story.end.as_ref().unwrap().answer, "All is well.");
        assert_eq!(story.failure(), None);
        assert_eq!(
            story.summary(),
            "3 turns, 2 tool calls (1 refused or failed), 27 output tokens"
        );
    }

    #[test]
    fn a_result_that_is_an_error_is_no_success_whatever_its_subtype_says() {
        let story = Story::read(
            br#"{"type":"result","subtype":"success","is_error":true,"num_turns":1,"result":"API Error: 403"}"#,
        );
        assert_eq!(story.failure(), Some("API Error: 403"));
        let story = Story::read(
            br#"{"type":"result","subtype":"error_max_turns","is_error":true,"errors":["Reached maximum number of turns (2)"]}"#,
        );
        assert_eq!(story.failure(), Some("Reached maximum number of turns (2)"));
        let story = Story::read(br#"{"type":"result","subtype":"error_during_execution"}"#);
        assert_eq!(story.failure(), Some("error_during_execution"));
    }

    #[test]
    fn each_line_is_told_as_it_comes() {
        let remarks: Vec<Remark> = OUTPUT
            .lines()
            .flat_map(|line| Remark::of_line(line.as_bytes()))
            .collect();
        let (message, text) = (String::new(), "I look.".to_owned());
        assert_eq!(
            remarks[..3],
            [
                Remark::Started {
                    version: "2.1.197".to_owned()
                },
                Remark::Text {
                    message: message.clone(),
                    text
                },
                Remark::Asks {
                    message,
                    tool: String::new()
                },
            ]
        );
        assert_eq!(remarks[3], Remark::CallFailed);
        assert_eq!(remarks.len(), 5);
        assert_eq!(Remark::of_line(b"[1]"), []);
    }

    #[test]
    fn an_output_that_breaks_off_is_no_success() {
        let story = Story::read(br#"{"type":"result","subtype":"succ"#);
        assert_eq!(story.failure(), Some("it ended without a result"));
        assert_eq!(Story::read(&[0xff, b'\n', b'[']), Story::default());
    }
}
