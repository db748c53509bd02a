//! Somebody else keeps a run's heads: in a file of another owner, or by a command of the user's.
//!
//! Heads are sent by a thread, so that no call waits for them. Only a run's start (where an
//! anchor is required) and its end wait.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::time::{Duration, Instant};

use model::RunId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::journal::origin;
use crate::key::{PublicKey, RunSigner};
use crate::limits::{
    ANCHOR_FILE_BYTES_MAX, ANCHOR_QUEUE_MAX, ANCHOR_TIME_MS_MAX, CHECKPOINT_LINE_BYTES_MAX,
};
use crate::lines::LineReader;
use crate::note::{Checkpoint, Note, checkpoint_line, checkpoint_note};

/// Where heads go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnchorTarget {
    /// A file that each head is appended to, as the line `{"checkpoint":"<signed note>"}`. It
    /// protects from its writer only if others own it, or it takes appends alone.
    File(PathBuf),
    /// A program that is run for each head, with the signed note on its stdin and nothing but
    /// this environment. Exit 0 means that it has it.
    Command {
        argv: Vec<String>,
        environment: Vec<(String, String)>,
    },
}

/// One configured anchor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    pub name: String,
    pub target: AnchorTarget,
    /// Nothing runs before it has the run's start, and a run without its end there has failed.
    pub required: bool,
}

/// Why an anchor did not take a head.
#[derive(Debug)]
pub struct AnchorError {
    pub name: String,
    pub required: bool,
    pub reason: AnchorReason,
}

#[derive(Debug)]
pub enum AnchorReason {
    Io {
        action: &'static str,
        source: io::Error,
    },
    /// The anchor is no regular file.
    NotAFile,
    Exit(ExitStatus),
    TooSlow {
        ms: u64,
    },
    /// The thread that sends is gone.
    Gone,
}

impl fmt::Display for AnchorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the anchor `{}` did not take the checkpoint: ",
            self.name
        )?;
        match &self.reason {
            AnchorReason::Io { action, .. } => write!(f, "cannot {action}"),
            AnchorReason::NotAFile => f.write_str("it is not a regular file"),
            AnchorReason::Exit(status) => write!(f, "its command ended with {status}"),
            AnchorReason::TooSlow { ms } => write!(f, "its command took more than {ms} ms"),
            AnchorReason::Gone => f.write_str("its sender ended early"),
        }
    }
}

impl std::error::Error for AnchorError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.reason {
            AnchorReason::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// The configured anchors, all of which get every head.
#[derive(Debug, Clone)]
pub struct Anchors {
    sender: SyncSender<Message>,
    required: bool,
}

#[derive(Debug)]
struct Message {
    run: RunId,
    head: Checkpoint,
    /// Who waits: gets the first failure of a required anchor.
    reply: Option<Sender<Option<AnchorError>>>,
}

impl Anchors {
    /// Starts the thread that sends. `report` hears of every failure.
    #[must_use]
    pub fn start(
        anchors: Vec<Anchor>,
        signer: RunSigner,
        report: impl Fn(&AnchorError) + Send + 'static,
    ) -> Self {
        let (sender, receiver) = mpsc::sync_channel(ANCHOR_QUEUE_MAX);
        let required = anchors.iter().any(|anchor| anchor.required);
        std::thread::spawn(move || send_all(&receiver, &anchors, &signer, &report));
        Self { sender, required }
    }

    /// Whether one of them is required.
    #[must_use]
    pub const fn is_required(&self) -> bool {
        self.required
    }

    /// Sends a head without waiting. Where the queue is full it is left out: the next head of
    /// the run, its end at the latest, vouches for it too.
    pub fn post(&self, run: RunId, head: Checkpoint) {
        let reply = None;
        let _ = self.sender.try_send(Message { run, head, reply });
    }

    /// Sends a head and waits until all anchors have it, or failed.
    ///
    /// # Errors
    /// The failure of a required anchor; others are reported only.
    pub fn confirm(&self, run: RunId, head: Checkpoint) -> Result<(), AnchorError> {
        let gone = || AnchorError {
            name: "all".to_owned(),
            required: self.required,
            reason: AnchorReason::Gone,
        };
        let (reply, answer) = mpsc::channel();
        let reply = Some(reply);
        self.sender
            .send(Message { run, head, reply })
            .map_err(|_| gone())?;
        match answer.recv() {
            Ok(None) => Ok(()),
            Ok(Some(error)) => Err(error),
            Err(_) => Err(gone()),
        }
    }
}

fn send_all(
    receiver: &Receiver<Message>,
    anchors: &[Anchor],
    signer: &RunSigner,
    report: &impl Fn(&AnchorError),
) {
    while let Ok(first) = receiver.recv() {
        for message in newest(first, receiver) {
            let origin = origin(Some(signer.public()), &message.run.to_string());
            let mut failed = None;
            for anchor in anchors {
                let sent = send(&anchor.target, &origin, &message.head, signer);
                let Err(reason) = sent else { continue };
                let error = AnchorError {
                    name: anchor.name.clone(),
                    required: anchor.required,
                    reason,
                };
                report(&error);
                if error.required && failed.is_none() {
                    failed = Some(error);
                }
            }
            if let Some(reply) = message.reply {
                let _ = reply.send(failed);
            }
        }
    }
}

/// What waits in the queue, without heads that a later one of the same run includes.
fn newest(first: Message, receiver: &Receiver<Message>) -> Vec<Message> {
    let mut waiting = vec![first];
    for next in receiver.try_iter().take(ANCHOR_QUEUE_MAX) {
        waiting.retain(|older| older.run != next.run || older.reply.is_some());
        waiting.push(next);
    }
    waiting
}

fn send(
    target: &AnchorTarget,
    origin: &str,
    head: &Checkpoint,
    signer: &RunSigner,
) -> Result<(), AnchorReason> {
    match target {
        AnchorTarget::File(path) => {
            let line = checkpoint_line(origin, head, [signer]);
            append(path, &format!("{line}\n"))
        }
        AnchorTarget::Command { argv, environment } => {
            let note = checkpoint_note(origin, head, [signer]);
            run(argv, environment, &note)
        }
    }
}

fn append(path: &Path, line: &str) -> Result<(), AnchorReason> {
    let io = |action| move |source: io::Error| AnchorReason::Io { action, source };
    let flags = OFlags::WRONLY
        | OFlags::APPEND
        | OFlags::CREATE
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)) {
        Ok(file) => File::from(file),
        Err(Errno::LOOP | Errno::NXIO) => return Err(AnchorReason::NotAFile),
        Err(error) => return Err(io("open its file")(error.into())),
    };
    if !file.metadata().map_err(io("examine its file"))?.is_file() {
        return Err(AnchorReason::NotAFile);
    }
    let written = (&file)
        .write(line.as_bytes())
        .map_err(io("write its file"))?;
    if written != line.len() {
        return Err(io("write its whole line")(io::ErrorKind::WriteZero.into()));
    }
    file.sync_data().map_err(io("sync its file"))
}

fn run(argv: &[String], environment: &[(String, String)], note: &str) -> Result<(), AnchorReason> {
    let io = |action| move |source: io::Error| AnchorReason::Io { action, source };
    let (program, arguments) = argv
        .split_first()
        .ok_or_else(|| io("run an empty command")(io::ErrorKind::InvalidInput.into()))?;
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .process_group(0)
        .spawn()
        .map_err(io("start its command"))?;
    // A note is smaller than a pipe: this never waits. A program that reads nothing decides by
    // its exit code.
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(note.as_bytes());
    }
    let limit = Duration::from_millis(ANCHOR_TIME_MS_MAX);
    let ended = wait(&child, limit).map_err(io("wait for its command"));
    if !matches!(ended, Ok(true)) {
        let _ = child.kill();
    }
    let status = child.wait().map_err(io("wait for its command"))?;
    match ended? {
        false => Err(AnchorReason::TooSlow {
            ms: ANCHOR_TIME_MS_MAX,
        }),
        true if status.success() => Ok(()),
        true => Err(AnchorReason::Exit(status)),
    }
}

/// Whether the child ended within `limit`.
fn wait(child: &Child, limit: Duration) -> io::Result<bool> {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut polled = [PollFd::new(&pidfd, PollFlags::IN)];
        match poll(&mut polled, Some(&timeout)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The heads of `run` that an anchor file keeps, signed by `key`. Everything else in the file,
/// whoever wrote it, is passed over: a witness may keep other things, and torn lines.
///
/// # Errors
/// Only the reader's own.
pub fn read_anchors(reader: impl Read, run: RunId, key: &PublicKey) -> io::Result<Vec<Checkpoint>> {
    let origin = origin(Some(key), &run.to_string());
    let mut lines = LineReader::new(reader.take(ANCHOR_FILE_BYTES_MAX));
    let mut heads = Vec::new();
    while let Some(line) = lines.next(2 * CHECKPOINT_LINE_BYTES_MAX)? {
        let Some(note) = last_note(&line) else {
            continue;
        };
        let head = note.checkpoint;
        if note.origin == origin && !heads.contains(&head) && note.verify(key).is_ok() {
            heads.push(head);
        }
    }
    Ok(heads)
}

/// The checkpoint line at the end of `line`: a torn write may stand before it.
fn last_note(line: &[u8]) -> Option<Note> {
    const START: &[u8] = b"{\"checkpoint\":";
    let at = line.windows(START.len()).rposition(|part| part == START)?;
    Note::parse(line.get(at..)?).ok()
}
