//! What a run does, shown while it does it: lines for people, or JSON lines for programs.
//!
//! The session and the inference channel tell what happens on their own threads; here it is laid
//! down, and a thread of its own writes it, so that a slow reader delays nothing but itself. What
//! lies there is bounded by what a run may do: its calls, its requests, its agent's output.

mod agent;
mod events;
mod note;
mod screen;
mod words;

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use symbi_runtime::reasoning::governed_session::{Progress, RunObserver};

use crate::output::Output;

pub(crate) use agent::Hearing;
pub(crate) use screen::Screen;
pub(crate) use words::Terms;

use events::Events;
use note::Note;
use words::Words;

/// How often the state line tells the time.
const TICK: Duration = Duration::from_secs(1);

/// What was told and is not shown yet.
#[derive(Debug, Default)]
struct Told {
    notes: Vec<Note>,
    over: bool,
}

/// Takes down what happens.
#[derive(Debug, Default)]
struct Desk {
    told: Mutex<Told>,
    more: Condvar,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What came since the last time, and whether that was all; waits at most `wait` for it.
    fn take(&self, wait: Option<Duration>) -> (Vec<Note>, bool) {
        let told = self.lock();
        let none = |told: &mut Told| told.notes.is_empty() && !told.over;
        let mut told = match wait {
            Some(wait) => {
                let waited = self.more.wait_timeout_while(told, wait, none);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let waited = self.more.wait_while(told, none);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
        };
        (std::mem::take(&mut told.notes), told.over)
    }
}

impl RunObserver for Desk {
    fn see(&self, progress: &Progress<'_>) {
        let mut told = self.lock();
        match (Note::of(progress), told.notes.last_mut()) {
            (Note::Said(bytes), Some(Note::Said(before))) => before.extend(bytes),
            (note, _) => told.notes.push(note),
        }
        drop(told);
        self.more.notify_one();
    }
}

/// A run's progress on its way to the operator. [`Live::finish`] shows the rest.
#[derive(Debug)]
pub(crate) struct Live {
    desk: Arc<Desk>,
    screen: Arc<Screen>,
    thread: Option<JoinHandle<bool>>,
}

/// How notes become lines.
enum Teller {
    Words(Words),
    Events(Events),
}

impl Live {
    /// Starts to show, on `output`, the run of an agent that is heard as `hearing` says.
    pub(crate) fn start(output: Output, hearing: Hearing, terms: Terms) -> io::Result<Self> {
        let desk = Arc::new(Desk::default());
        let screen = Arc::new(Screen::new(output));
        let teller = match output.is_json() {
            true => Teller::Events(Events::new(hearing, terms.run)),
            false => Teller::Words(Words::new(hearing, terms)),
        };
        let (told, shown) = (Arc::clone(&desk), Arc::clone(&screen));
        let thread = std::thread::Builder::new()
            .name("symbi-progress".to_owned())
            .spawn(move || show(&told, &shown, teller))?;
        Ok(Self {
            desk,
            screen,
            thread: Some(thread),
        })
    }

    pub(crate) fn observer(&self) -> Arc<dyn RunObserver> {
        Arc::clone(&self.desk) as Arc<dyn RunObserver>
    }

    pub(crate) fn screen(&self) -> Arc<Screen> {
        Arc::clone(&self.screen)
    }

    /// Shows what is left. True where the agent's output is on standard output already.
    pub(crate) fn finish(mut self) -> bool {
        self.end()
    }

    fn end(&mut self) -> bool {
        self.desk.lock().over = true;
        self.desk.more.notify_one();
        let ended = self.thread.take().map(JoinHandle::join);
        matches!(ended, Some(Ok(true)))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.end();
        }
    }
}

/// Shows notes until the last. True where the agent's output went to standard output.
fn show(desk: &Desk, screen: &Screen, mut teller: Teller) -> bool {
    let began = Instant::now();
    let tick = screen.is_lively().then_some(TICK);
    loop {
        let (notes, over) = desk.take(tick);
        let at = began.elapsed();
        let mut lines = Vec::new();
        for note in notes {
            match &mut teller {
                Teller::Words(words) => words.tell(&note, at, &mut lines),
                Teller::Events(events) => events.tell(&note, at, &mut lines),
            }
        }
        if over {
            match &mut teller {
                Teller::Words(words) => words.end(at, &mut lines),
                Teller::Events(events) => events.end(at, &mut lines),
            }
        }
        let status = match &teller {
            Teller::Words(words) if !over => Some(words.status(at)),
            Teller::Words(_) | Teller::Events(_) => None,
        };
        screen.show(lines, status.as_deref());
        if over {
            return matches!(teller, Teller::Words(words) if words.has_shown_output());
        }
    }
}
