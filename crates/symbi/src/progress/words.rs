//! A run's progress in words, a line each.

use std::time::Duration;

use model::{RunId, Untrusted};

use super::agent::{Heard, Hearing, Listener};
use super::note::{Note, Step, is_launch};
use super::screen::Line;
use crate::agents::claude_code::Remark;

/// Most characters of a text that is not ours in one line.
const QUOTED_CHARS_MAX: usize = 300;

/// What a run may use up.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) run: RunId,
    pub(crate) agent: String,
    pub(crate) max_calls: u64,
    pub(crate) lifetime: Duration,
    /// Requests and output tokens, where the agent has a model.
    pub(crate) model: Option<(u64, u64)>,
}

/// Tells people.
#[derive(Debug)]
pub(super) struct Words {
    listener: Listener,
    terms: Terms,
    calls: u64,
    requests: u64,
    reserved: u64,
    turns: u64,
    /// Names the answer that the last turn began with.
    message: String,
    /// What the state line says is going on.
    doing: Option<String>,
    was_held: bool,
}

impl Words {
    pub(super) fn new(hearing: Hearing, terms: Terms) -> Self {
        Self {
            listener: Listener::new(hearing),
            terms,
            calls: 0,
            requests: 0,
            reserved: 0,
            turns: 0,
            message: String::new(),
            doing: None,
            was_held: false,
        }
    }

    /// Whether the agent's output was its result, and is shown.
    pub(super) const fn has_shown_output(&self) -> bool {
        self.listener.is_plain()
    }

    pub(super) fn tell(&mut self, note: &Note, at: Duration, lines: &mut Vec<Line>) {
        let text = match note {
            Note::Said(bytes) => {
                let heard = self.listener.hear(bytes);
                return self.hear(heard, at, lines);
            }
            Note::Call {
                call_id,
                tool,
                step,
            } if is_launch(call_id) => self.launch(tool, step),
            Note::Call { tool, step, .. } => self.call(tool, step),
            Note::ModelAsked { request, reserved } => self.asked(*request, *reserved),
            Note::ModelRefused { reason } => Some(format!("model: refused: {}", quoted(reason))),
            Note::ModelAnswered {
                status, incomplete, ..
            } => answered(*status, incomplete.as_deref()),
        };
        lines.extend(text.map(|text| note_line(at, &text)));
    }

    /// Tells what is left.
    pub(super) fn end(&mut self, at: Duration, lines: &mut Vec<Line>) {
        let heard = self.listener.end();
        self.hear(heard, at, lines);
    }

    /// The state of the run in one line.
    pub(super) fn status(&self, at: Duration) -> String {
        let Terms {
            max_calls,
            lifetime,
            model,
            ..
        } = &self.terms;
        let mut parts = vec![
            format!("{} of {} s", at.as_secs(), lifetime.as_secs()),
            format!("{} of {max_calls} calls", self.calls),
        ];
        if let Some((requests, tokens)) = model {
            parts.push(format!("{} of {requests} requests", self.requests));
            parts.push(format!("{} of {tokens} tokens", self.reserved));
        }
        if self.turns > 0 {
            parts.push(format!("turn {}", self.turns));
        }
        parts.extend(self.doing.clone());
        parts.join(" | ")
    }

    fn launch(&mut self, tool: &str, step: &Step) -> Option<String> {
        let agent = &self.terms.agent;
        match step {
            Step::Held { .. } => self.held(&format!("the start of {tool}"), step),
            Step::Running => {
                self.doing = None;
                Some(format!("{agent} runs, contained: run {}", self.terms.run))
            }
            // The end of the run says these.
            Step::Prepared { .. } | Step::Refused { .. } | Step::Ended { .. } => None,
        }
    }

    fn held(&mut self, what: &str, step: &Step) -> Option<String> {
        let Step::Held {
            held_id,
            expires_at,
        } = step
        else {
            return None;
        };
        self.was_held = true;
        self.doing = Some("waits for approval".to_owned());
        Some(format!(
            "{what} waits for approval until {expires_at}: {held_id}"
        ))
    }

    fn call(&mut self, tool: &str, step: &Step) -> Option<String> {
        let tool = quoted(tool);
        match step {
            Step::Prepared { argv, spent, .. } => {
                self.calls = *spent;
                self.was_held = false;
                self.doing = Some(tool.clone());
                let argv = quoted(&argv.join(" "));
                let number = self.number();
                Some(format!("{number}: {tool}: {argv}"))
            }
            Step::Held { .. } => self.held(&tool, step),
            Step::Running => {
                self.doing = Some(tool.clone());
                let was_held = std::mem::take(&mut self.was_held);
                was_held.then(|| format!("{tool}: approved, runs"))
            }
            Step::Refused {
                stage,
                reason,
                spent,
            } => {
                // Its preparation may have counted it already.
                self.calls = *spent;
                self.doing = None;
                let number = self.number();
                let reason = quoted(reason);
                Some(format!("{number}: {tool}: refused at {stage}: {reason}"))
            }
            Step::Ended {
                status,
                reason,
                millis,
                created,
            } => {
                self.doing = None;
                let mut text = format!("{tool}: {}", status.replace('_', " "));
                if let Some(reason) = reason {
                    text.push_str(&format!(": {}", quoted(reason)));
                }
                text.push_str(&format!(" ({millis} ms)"));
                for (path, bytes) in created {
                    text.push_str(&format!(", created {} ({bytes} bytes)", quoted(path)));
                }
                Some(text)
            }
        }
    }

    fn number(&self) -> String {
        format!("call {} of {}", self.calls, self.terms.max_calls)
    }

    fn asked(&mut self, request: u64, reserved: u64) -> Option<String> {
        self.requests = self.requests.max(request);
        self.reserved = self.reserved.saturating_add(reserved);
        let (requests, tokens) = self.terms.model?;
        Some(format!(
            "model: request {request} of {requests}, {} of {tokens} output tokens reserved",
            self.reserved
        ))
    }

    /// Everything of one answer is one turn.
    fn turn(&mut self, message: String) {
        if self.turns == 0 || message != self.message {
            self.turns += 1;
            self.message = message;
        }
    }

    fn hear(&mut self, heard: Vec<Heard>, at: Duration, lines: &mut Vec<Line>) {
        for heard in heard {
            match heard {
                Heard::Result(text) => {
                    lines.push(Line::Result(Untrusted::new(text).escaped_lines()));
                }
                Heard::Remark(Remark::Started { version }) => {
                    let text = format!("agent: Claude Code {}", quoted(&version));
                    lines.push(note_line(at, &text));
                }
                Heard::Remark(Remark::Text { message, text }) => {
                    self.turn(message);
                    let text = format!("turn {}: {}", self.turns, quoted(text.trim()));
                    lines.push(note_line(at, &text));
                }
                Heard::Remark(Remark::Asks { message, .. } | Remark::Thinks { message }) => {
                    self.turn(message);
                }
                Heard::Remark(Remark::CallFailed) => {}
            }
        }
    }
}

fn answered(status: u16, incomplete: Option<&str>) -> Option<String> {
    match incomplete {
        Some(reason) => Some(format!("model: no whole answer: {}", quoted(reason))),
        None if status != 200 => Some(format!("model: the provider answered {status}")),
        None => None,
    }
}

fn note_line(at: Duration, text: &str) -> Line {
    Line::Note(format!("{:>7.1} s  {text}", at.as_secs_f64()))
}

/// A text that is not ours: one line, escaped, and cut.
fn quoted(text: &str) -> String {
    let mut short: String = text.chars().take(QUOTED_CHARS_MAX).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    Untrusted::new(short).escaped()
}

#[cfg(test)]
mod tests {
    use model::Digest;

    use super::*;

    fn words(hearing: Hearing) -> Words {
        Words::new(
            hearing,
            Terms {
                run: RunId::new(),
                agent: "reviewer".to_owned(),
                max_calls: 7,
                lifetime: Duration::from_secs(60),
                model: Some((9, 1000)),
            },
        )
    }

    fn tell(words: &mut Words, notes: Vec<Note>) -> Vec<String> {
        let mut lines = Vec::new();
        for note in &notes {
            words.tell(note, Duration::from_millis(1500), &mut lines);
        }
        let text = |line| match line {
            Line::Note(text) | Line::Result(text) | Line::Event(text) => text,
        };
        lines.into_iter().map(text).collect()
    }

    fn call(step: Step) -> Note {
        Note::Call {
            call_id: "1".to_owned(),
            tool: "read".to_owned(),
            step,
        }
    }

    fn prepared(argument: &str) -> Note {
        call(Step::Prepared {
            call_sha256: Digest::of(b""),
            argv: vec!["cat".to_owned(), argument.to_owned()],
            spent: 3,
        })
    }

    #[test]
    fn a_held_call_is_told_from_its_question_to_its_end() {
        let mut words = words(Hearing::Plain);
        let held = Step::Held {
            held_id: "held-1".to_owned(),
            expires_at: "T".to_owned(),
        };
        let ended = Step::Ended {
            status: "succeeded",
            reason: None,
            millis: 12,
            created: vec![("out/b".to_owned(), 4)],
        };
        let told = tell(
            &mut words,
            vec![prepared("a"), call(held), call(Step::Running), call(ended)],
        );
        assert_eq!(
            told,
            [
                "    1.5 s  call 3 of 7: read: cat a",
                "    1.5 s  read waits for approval until T: held-1",
                "    1.5 s  read: approved, runs",
                "    1.5 s  read: succeeded (12 ms), created out/b (4 bytes)",
            ]
        );
    }

    #[test]
    fn what_is_not_ours_is_escaped_and_cut() {
        let mut words = words(Hearing::ClaudeCode);
        let long = "x".repeat(QUOTED_CHARS_MAX + 1);
        let told = tell(&mut words, vec![prepared("\u{1b}[2J"), prepared(&long)]);
        assert!(told[0].ends_with("cat \\u{1b}[2J"), "{told:?}");
        assert!(told[1].ends_with("xx..."), "{told:?}");
        let line = r#"{"type":"assistant","message":{"id":"1","content":[{"type":"text","text":"\u001b]0;x"}]}}"#;
        let told = tell(
            &mut words,
            vec![Note::Said(format!("{line}\n").into_bytes())],
        );
        assert_eq!(told, ["    1.5 s  turn 1: \\u{1b}]0;x"]);
    }

    #[test]
    fn the_state_line_has_time_budgets_and_what_goes_on() {
        let mut words = words(Hearing::ClaudeCode);
        let asked = Note::ModelAsked {
            request: 2,
            reserved: 300,
        };
        tell(&mut words, vec![asked, prepared("a")]);
        let block = |id: &str| {
            let content = r#"[{"type":"tool_use","name":"x"}]"#;
            format!(
                "{{\"type\":\"assistant\",\"message\":{{\"id\":\"{id}\",\"content\":{content}}}}}\n"
            )
        };
        let said = block("1") + &block("1") + &block("2");
        tell(&mut words, vec![Note::Said(said.into_bytes())]);
        assert_eq!(
            words.status(Duration::from_secs(5)),
            "5 of 60 s | 3 of 7 calls | 2 of 9 requests | 300 of 1000 tokens | turn 2 | read"
        );
    }
}
