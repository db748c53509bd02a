//! The run's own terminal. It is opened by its name, so that no pipe can answer; it asks only in
//! the foreground; what was typed before the question is thrown away.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use approval::limits::{ANSWER_BYTES_MAX, ANSWERS_WRONG_MAX};
use approval::{Answer, HeldId, framed, visible_bytes};
use governance::Approver;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::Signal;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcgetpgrp,
    tcgetwinsize, tcsetattr,
};
use symbi_runtime::reasoning::governed_session::{HeldCall, HeldCalls, UncountedAnswer};
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

use crate::progress::Screen;

/// The surface's name in records.
const SURFACE: &str = "terminal";
/// Columns of a terminal that does not tell.
const COLUMNS: usize = 80;
/// Parts of inputs that one question shows.
const PARTS_SHOWN_MAX: usize = 1024;
/// Largest line of a terminal in its line mode, in bytes.
const LINE_BYTES_MAX: usize = 4096;
const _: () = assert!(ANSWER_BYTES_MAX < LINE_BYTES_MAX);

/// The controlling terminal of the process.
#[derive(Debug)]
pub(super) struct Terminal {
    tty: OwnedFd,
    /// What else writes there.
    screen: Option<Arc<Screen>>,
}

/// What became of a question.
enum Asked {
    Finished,
    /// The process was stopped and continued meanwhile: ask once more.
    Again,
    /// The terminal belongs to another process group now.
    Behind,
}

impl Terminal {
    pub(super) fn open() -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let tty = rustix::fs::openat(CWD, "/dev/tty", flags, Mode::empty())?;
        Ok(Self { tty, screen: None })
    }

    /// Asks with the terminal to itself, where `screen` writes there too.
    pub(super) fn beside(self, screen: Option<Arc<Screen>>) -> Self {
        Self { screen, ..self }
    }

    /// Asks about every call that is held, until dropped.
    #[expect(
        deprecated,
        reason = "its replacement is unsafe for what owns no descriptor, and this is an OwnedFd"
    )]
    pub(super) async fn ask(self, mut held: HeldCalls) {
        let continued = SignalKind::from_raw(Signal::CONT.as_raw());
        let (Ok(tty), Ok(mut continued)) = (AsyncFd::new(self.tty), signal(continued)) else {
            return;
        };
        let mut finished = None;
        let mut told = None;
        loop {
            let call = held.pending().into_iter().next();
            let Some(call) = call.filter(|call| finished.as_ref() != Some(&call.held_id)) else {
                held.changed().await;
                continue;
            };
            let asked = Question {
                tty: &tty,
                call: &call,
                screen: self.screen.as_ref(),
            };
            match asked.ask(&mut held, &mut continued).await {
                Ok(Asked::Again) => {}
                Ok(Asked::Behind) => {
                    if told.as_ref() != Some(&call.held_id) {
                        told = Some(call.held_id.clone());
                        note(
                            "symbi: a call waits for your approval: bring symbi to the foreground",
                        );
                    }
                    tokio::select! {
                        () = held.changed() => {}
                        _ = continued.recv() => {}
                    }
                }
                Ok(Asked::Finished) | Err(_) => finished = Some(call.held_id),
            }
        }
    }
}

/// One held call on the terminal.
struct Question<'a> {
    tty: &'a AsyncFd<OwnedFd>,
    call: &'a HeldCall,
    screen: Option<&'a Arc<Screen>>,
}

impl Question<'_> {
    async fn ask(&self, held: &mut HeldCalls, continued: &mut Signals) -> io::Result<Asked> {
        if !self.is_in_front()? {
            return Ok(Asked::Behind);
        }
        let _turn = self.screen.map(Screen::question);
        let _modes = LineModes::set(self.tty)?;
        self.write(&request(self.call, self.columns())).await?;
        let (mut wrong, mut shown) = (0, 0);
        tcflush(self.tty.get_ref(), QueueSelector::IFlush)?;
        self.write("> ").await?;
        loop {
            let line = tokio::select! {
                biased;
                () = held.changed() => {
                    let mut pending = held.pending().into_iter();
                    if pending.any(|it| it.held_id == self.call.held_id) {
                        continue;
                    }
                    let gone = "\nsymbi: the call waits no longer: it was answered elsewhere, \
                                withdrawn, or its time is over\n";
                    self.write(gone).await?;
                    return Ok(Asked::Finished);
                }
                _ = continued.recv() => return Ok(Asked::Again),
                line = self.read_line() => line?,
            };
            if self.is_in_front().is_ok_and(|in_front| !in_front) {
                return Ok(Asked::Behind);
            }
            if let Some(part) = self
                .part(held, line.as_deref())
                .filter(|_| shown < PARTS_SHOWN_MAX)
            {
                shown += 1;
                self.write(&part).await?;
                continue;
            }
            let answer = match self.read_answer(line.as_deref()) {
                Ok(answer) => answer,
                Err(reason) => {
                    held.uncounted(self.uncounted(&reason));
                    wrong += 1;
                    if wrong >= ANSWERS_WRONG_MAX {
                        Answer::Deny
                    } else {
                        self.write(&format!("{reason}\n> ")).await?;
                        continue;
                    }
                }
            };
            let said = self.decide(held, answer);
            self.write(&format!("symbi: {said}\n")).await?;
            return Ok(Asked::Finished);
        }
    }

    /// A part of an input, where the line asks for one: `show ARGUMENT`, `show ARGUMENT BYTE`.
    fn part(&self, held: &HeldCalls, line: Option<&[u8]>) -> Option<String> {
        let line = std::str::from_utf8(line?).ok()?.strip_suffix('\n')?;
        let mut words = line.strip_prefix("show ")?.split(' ');
        let (input, offset) = (words.next()?, words.next().unwrap_or("0"));
        if words.next().is_some() {
            return None;
        }
        let offset = offset.parse().ok()?;
        let part = match held.read_input(SURFACE, &self.call.held_id, input, offset) {
            Ok(part) => part,
            Err(error) => return Some(format!("{error}\n> ")),
        };
        let end = part.offset + part.content.len() as u64;
        let more = match end < part.bytes {
            true => format!("; go on: show {input} {end}"),
            false => String::new(),
        };
        let path = model::Untrusted::new(part.path.as_str()).escaped();
        let shown = framed(&visible_bytes(&part.content), self.columns());
        Some(format!(
            "{shown}symbi: {path}: bytes {} to {end} of {}, escaped{more}\n> ",
            part.offset, part.bytes
        ))
    }

    fn uncounted(&self, reason: &str) -> UncountedAnswer {
        UncountedAnswer {
            surface: SURFACE.to_owned(),
            from: own_identity(),
            held_id: Some(self.call.held_id.clone()),
            reason: format!("a typed line: {reason}"),
        }
    }

    fn columns(&self) -> usize {
        let size = tcgetwinsize(self.tty.get_ref());
        let columns = size.map_or(0, |size| usize::from(size.ws_col));
        if columns == 0 { COLUMNS } else { columns }
    }

    /// No line at all is a terminal that went away: nobody says yes there.
    fn read_answer(&self, line: Option<&[u8]>) -> Result<Answer, String> {
        let Some(line) = line else {
            return Ok(Answer::Deny);
        };
        let held_id = HeldId::new(self.call.held_id.as_str()).map_err(|it| it.to_string())?;
        line.strip_suffix(b"\n")
            .map(|line| Answer::read(line, &held_id).map_err(|error| error.to_string()))
            .unwrap_or_else(|| Err("that is no whole line".to_owned()))
    }

    fn decide(&self, held: &HeldCalls, answer: Answer) -> String {
        let approver = Approver {
            surface: SURFACE.to_owned(),
            identity: own_identity(),
            signatures: Vec::new(),
        };
        let call = self.call;
        match held.decide(
            &call.held_id,
            call.review_sha256,
            answer.approves(),
            approver,
        ) {
            Ok(()) if answer.approves() => format!("approved {}", call.held_id),
            Ok(()) => format!("denied {}", call.held_id),
            Err(error) => error.to_string(),
        }
    }

    /// Fails where the terminal went away.
    fn is_in_front(&self) -> io::Result<bool> {
        Ok(tcgetpgrp(self.tty.get_ref())? == rustix::process::getpgrp())
    }

    async fn write(&self, text: &str) -> io::Result<()> {
        let mut left = text.as_bytes();
        while !left.is_empty() {
            let mut ready = self.tty.writable().await?;
            let written = ready.try_io(|tty| Ok(rustix::io::write(tty.get_ref(), left)?));
            if let Ok(written) = written {
                left = left.get(written?..).unwrap_or_default();
            }
        }
        Ok(())
    }

    /// One line as the terminal gives it; `None` where it is closed.
    async fn read_line(&self) -> io::Result<Option<Vec<u8>>> {
        let mut line = vec![0; LINE_BYTES_MAX];
        loop {
            let mut ready = self.tty.readable().await?;
            let read = ready.try_io(|tty| Ok(rustix::io::read(tty.get_ref(), &mut *line)?));
            match read {
                Ok(Ok(0) | Err(_)) => return Ok(None),
                Ok(Ok(length)) => {
                    line.truncate(length);
                    return Ok(Some(line));
                }
                Err(_) => {}
            }
        }
    }
}

/// The terminal in its line mode with echo, and back as it was when dropped.
struct LineModes<'a> {
    tty: &'a AsyncFd<OwnedFd>,
    before: Termios,
}

impl<'a> LineModes<'a> {
    fn set(tty: &'a AsyncFd<OwnedFd>) -> io::Result<Self> {
        let before = tcgetattr(tty.as_fd())?;
        let mut modes = before.clone();
        modes.local_modes |= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        modes.input_modes |= InputModes::ICRNL;
        tcsetattr(tty.as_fd(), OptionalActions::Now, &modes)?;
        Ok(Self { tty, before })
    }
}

impl Drop for LineModes<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.tty.as_fd(), OptionalActions::Now, &self.before);
    }
}

fn own_identity() -> String {
    format!("uid {}", rustix::process::getuid().as_raw())
}

fn request(call: &HeldCall, columns: usize) -> String {
    let HeldCall {
        held_id,
        expires_at,
        review,
        review_sha256,
        inputs,
        ..
    } = call;
    let inputs: String = inputs
        .iter()
        .map(|input| format!("  show {input}\n"))
        .collect();
    let look = match inputs.is_empty() {
        true => String::new(),
        false => format!("To read an input, as the call will get it:\n{inputs}"),
    };
    format!(
        "\nsymbi: a call waits for your approval until {expires_at}. All that will run:\n\n{}\n\
         review sha256 {review_sha256}\n{look}\
         Type one of these lines, exactly:\n  approve {held_id}\n  deny {held_id}\n",
        framed(review.text(), columns)
    )
}

fn note(text: &str) {
    crate::output::Output::new(false).note(text);
}
