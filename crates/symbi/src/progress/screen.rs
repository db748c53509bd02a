//! Who writes on the terminal, and when. A question to a person has it alone: what happens
//! meanwhile waits, and the line of the run's state goes.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::termios::tcgetwinsize;

use crate::output::Output;

/// Width of a terminal that does not say its own.
const COLUMNS_DEFAULT: u16 = 80;
/// Back to the line's start, and the line away.
const ERASE: &str = "\r\x1b[K";

/// A line for the operator. It is escaped already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// The run's result, on standard output.
    Result(String),
    /// What happens, on standard error.
    Note(String),
    /// The same, as one JSON object.
    Event(String),
}

/// What is on the terminal.
#[derive(Debug, Default)]
struct State {
    /// Somebody is being asked there.
    asking: bool,
    /// The state line is the last one.
    drawn: bool,
    waiting: Vec<Line>,
}

/// Standard output and standard error of a run that goes on.
#[derive(Debug)]
pub(crate) struct Screen {
    state: Mutex<State>,
    output: Output,
    /// Standard error is a terminal that understands [`ERASE`].
    lively: bool,
    /// Standard error is a terminal: what is written there may stand in a question's way.
    shared: bool,
}

/// A question's turn. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn(Arc<Screen>);

impl Screen {
    pub(crate) fn new(output: Output) -> Self {
        let shared = io::stderr().is_terminal();
        Self {
            state: Mutex::default(),
            output,
            lively: shared && !output.is_json() && !crate::dirs::is_plain_terminal(),
            shared,
        }
    }

    /// Whether a state line can be shown at all.
    pub(crate) const fn is_lively(&self) -> bool {
        self.lively
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the terminal to a question.
    pub(crate) fn question(self: &Arc<Self>) -> Turn {
        let mut state = self.lock();
        state.asking = true;
        erase(&mut state);
        drop(state);
        Turn(Arc::clone(self))
    }

    /// Writes `lines`, and `status` below them.
    pub(crate) fn show(&self, lines: Vec<Line>, status: Option<&str>) {
        let lines = self.past_the_terminal(lines);
        let mut state = self.lock();
        state.waiting.extend(lines);
        if state.asking && self.shared {
            return;
        }
        erase(&mut state);
        for line in std::mem::take(&mut state.waiting) {
            self.write(&line);
        }
        if let Some(status) = status.filter(|_| self.lively) {
            let told = tcgetwinsize(rustix::stdio::stderr()).map(|size| size.ws_col);
            let columns = told.ok().filter(|columns| *columns > 0);
            let columns = columns.unwrap_or(COLUMNS_DEFAULT);
            let shown: String = status.chars().take(usize::from(columns) - 1).collect();
            let _ = write!(io::stderr().lock(), "{shown}");
            let _ = io::stderr().lock().flush();
            state.drawn = true;
        }
    }

    /// Writes what does not touch the terminal without waiting for a turn: a reader of standard
    /// output that stopped must not keep a question away.
    fn past_the_terminal(&self, lines: Vec<Line>) -> Vec<Line> {
        if io::stdout().is_terminal() {
            return lines;
        }
        let (results, notes) = lines
            .into_iter()
            .partition(|line| matches!(line, Line::Result(_)));
        let results: Vec<Line> = results;
        for line in &results {
            self.write(line);
        }
        notes
    }

    fn write(&self, line: &Line) {
        match line {
            Line::Result(text) => self.output.line(text),
            Line::Note(text) => self.output.note(text),
            Line::Event(text) => self.output.event(text),
        }
    }
}

fn erase(state: &mut State) {
    if std::mem::take(&mut state.drawn) {
        let _ = write!(io::stderr().lock(), "{ERASE}");
        let _ = io::stderr().lock().flush();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.lock().asking = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_a_terminal() -> Arc<Screen> {
        Arc::new(Screen {
            state: Mutex::default(),
            output: Output::new(false),
            lively: true,
            shared: true,
        })
    }

    #[test]
    fn what_happens_during_a_question_waits_for_its_end() {
        let screen = on_a_terminal();
        let line = || vec![Line::Note("a call ended".to_owned())];
        let turn = screen.question();
        screen.show(line(), Some("state"));
        assert_eq!(screen.lock().waiting, line());
        assert!(!screen.lock().drawn, "no state line beside a question");
        drop(turn);
        screen.show(Vec::new(), Some("state"));
        assert!(screen.lock().waiting.is_empty() && screen.lock().drawn);
        let _turn = screen.question();
        assert!(
            !screen.lock().drawn,
            "the state line goes before a question"
        );
    }
}
