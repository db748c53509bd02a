//! What an agent's standard output says, as it comes.

use crate::agents::claude_code::Remark;

/// Longest line of a report that is read; a longer one is passed over.
const REPORT_LINE_BYTES_MAX: usize = 1 << 20;

/// How an agent's output is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hearing {
    /// A report of its own run, a JSON object a line.
    ClaudeCode,
    /// Its result.
    Plain,
}

/// Something that an agent said. Not escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Heard {
    Remark(Remark),
    /// A line of its result, without its end.
    Result(String),
}

/// Takes output apart into what is worth telling.
#[derive(Debug)]
pub(super) struct Listener {
    hearing: Hearing,
    line: Vec<u8>,
    /// The line is too long, up to its end.
    passing_over: bool,
}

impl Listener {
    pub(super) const fn new(hearing: Hearing) -> Self {
        Self {
            hearing,
            line: Vec::new(),
            passing_over: false,
        }
    }

    pub(super) const fn is_plain(&self) -> bool {
        matches!(self.hearing, Hearing::Plain)
    }

    /// What the next bytes complete.
    pub(super) fn hear(&mut self, bytes: &[u8]) -> Vec<Heard> {
        let mut heard = Vec::new();
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end);
            self.take(line);
            heard.extend(self.whole());
            rest = after.get(1..).unwrap_or_default();
        }
        self.take(rest);
        heard
    }

    /// What is left when there is no more.
    pub(super) fn end(&mut self) -> Vec<Heard> {
        match self.line.is_empty() {
            true => Vec::new(),
            false => self.whole(),
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        let room = match self.hearing {
            Hearing::ClaudeCode => REPORT_LINE_BYTES_MAX,
            // Bounded by the worker's own limit of its output.
            Hearing::Plain => usize::MAX,
        };
        self.passing_over |= bytes.len() > room - self.line.len();
        if self.passing_over {
            self.line.clear();
        } else {
            self.line.extend_from_slice(bytes);
        }
    }

    fn whole(&mut self) -> Vec<Heard> {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.passing_over) {
            return Vec::new();
        }
        match self.hearing {
            Hearing::Plain => vec![Heard::Result(String::from_utf8_lossy(&line).into_owned())],
            Hearing::ClaudeCode => Remark::of_line(&line)
                .into_iter()
                .map(Heard::Remark)
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(text: &str) -> Heard {
        Heard::Result(text.to_owned())
    }

    #[test]
    fn lines_are_told_when_they_are_whole_and_the_last_at_the_end() {
        let mut listener = Listener::new(Hearing::Plain);
        assert_eq!(listener.hear(b"on"), []);
        assert_eq!(
            listener.hear(b"e\ntwo\n\nth"),
            [result("one"), result("two"), result("")]
        );
        assert_eq!(listener.end(), [result("th")]);
        assert_eq!(listener.end(), []);
    }

    #[test]
    fn a_report_line_at_the_bound_is_read_and_one_past_it_is_passed_over() {
        let report = |bytes: usize| {
            let frame = r#"{"type":"assistant","message":{"id":"1","content":[{"type":"text","text":""}]}}"#;
            let text = "x".repeat(bytes - frame.len());
            frame.replace("\"text\":\"\"", &format!("\"text\":\"{text}\""))
        };
        let mut listener = Listener::new(Hearing::ClaudeCode);
        let at = report(REPORT_LINE_BYTES_MAX);
        assert_eq!(at.len(), REPORT_LINE_BYTES_MAX);
        assert_eq!(listener.hear(at.as_bytes()), []);
        assert_eq!(listener.hear(b"\n").len(), 1);
        let past = report(REPORT_LINE_BYTES_MAX + 1);
        assert_eq!(listener.hear(past.as_bytes()), []);
        assert_eq!(listener.hear(b"\n"), []);
        let next = report(200) + "\n";
        assert_eq!(
            listener.hear(next.as_bytes()).len(),
            1,
            "the next line is read"
        );
    }
}
