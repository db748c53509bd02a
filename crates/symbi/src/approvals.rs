//! Where people are asked during a run: the run's own terminal, the gate's socket, the user's chat.
//!
//! Each surface has a thread of its own and a handle of the held calls alone: none can block the
//! session or another surface, and none keeps a session alive.

pub(crate) mod chat;
mod crowd;
pub(crate) mod gate;
mod socket;
mod terminal;

use std::sync::Arc;
use std::time::Duration;

use approval::Operators;
use model::RunId;
use project::{ApprovalSurface, Config, UserDirs};
use symbi_runtime::reasoning::governed_session::{Approvals, HeldCalls};
use tokio::sync::oneshot;

use crate::approvals::chat::Chat;
use crate::approvals::gate::Gate;
use crate::approvals::socket::SocketError;
use crate::approvals::terminal::Terminal;
use crate::args::ApprovalArgs;
use crate::exit::{Exit, Failure};
use crate::open::OpenProject;
use crate::progress::Screen;

/// The surfaces of a run, open and not yet asking.
#[derive(Debug)]
pub(crate) struct Surfaces {
    terminal: Option<Terminal>,
    gate: Option<Gate>,
    chat: Option<Chat>,
    /// Why a surface that was wanted is not there.
    missing: Vec<String>,
    timeout: Duration,
    holds_per_hour: u64,
}

/// The surfaces at work. They stop when this is dropped.
#[derive(Debug)]
pub(crate) struct Asking {
    surfaces: Vec<Surface>,
}

#[derive(Debug)]
struct Surface {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Whose calls a person is asked about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asks {
    pub(crate) run: RunId,
    /// Some call of the run can demand approval. A chat is not bothered about any other run.
    pub(crate) needed: bool,
}

/// Removes the chats' sockets of killed runs. A gate's tells of its run, and goes when it has.
///
/// # Errors
/// The folder of the sockets cannot be used.
pub(crate) fn sweep(dirs: &UserDirs) -> Result<(), SocketError> {
    socket::sweep(dirs, chat::SOCKET_SUFFIX)
}

impl Surfaces {
    /// Opens what the command line and the configuration ask for.
    pub(crate) fn open(
        open: &OpenProject,
        config: &Config,
        args: &ApprovalArgs,
        asks: Asks,
    ) -> Result<Self, Failure> {
        let settings = &config.approval;
        let wanted = |flag: bool, surface| flag || settings.surfaces.contains(&surface);
        let operators = operators(config)?;
        if operators.is_some() && args.approval_terminal {
            return Err(Failure::new(
                Exit::Usage,
                "approvals of this project are signed by its operators, and no operator can sign \
                 on the terminal",
            )
            .help("use --approval-gate, and: symbi gate approve ID --sign KEY"));
        }
        let mut missing = Vec::new();
        let mut terminal = None;
        if wanted(args.approval_terminal, ApprovalSurface::Terminal) {
            match Terminal::open() {
                Ok(opened) => terminal = Some(opened),
                Err(error) => missing.push(format!("there is no terminal to ask on ({error})")),
            }
        }
        let gate = wanted(args.approval_gate, ApprovalSurface::Gate)
            .then(|| open_gate(open, config, operators, asks.run))
            .transpose()?;
        let chat = open_chat(open, config, asks)?;
        let seconds = args.approval_timeout.unwrap_or(settings.timeout_seconds);
        Ok(Self {
            terminal,
            gate,
            chat,
            missing,
            timeout: Duration::from_secs(seconds),
            holds_per_hour: settings.holds_per_hour,
        })
    }

    /// Opens what a client that is not contained cannot answer itself: the gate where approvals
    /// are signed, or the chat, whose platform vouches for who answers. `None` where there is
    /// neither: whatever its user can press or type, it could too.
    pub(crate) fn for_client(
        open: &OpenProject,
        config: &Config,
        asks: Asks,
    ) -> Result<Option<Self>, Failure> {
        let operators = operators(config)?;
        let gate = operators.map(|operators| open_gate(open, config, Some(operators), asks.run));
        let (gate, chat) = (gate.transpose()?, open_chat(open, config, asks)?);
        if gate.is_none() && chat.is_none() {
            return Ok(None);
        }
        Ok(Some(Self {
            terminal: None,
            gate,
            chat,
            missing: Vec::new(),
            timeout: Duration::from_secs(config.approval.timeout_seconds),
            holds_per_hour: config.approval.holds_per_hour,
        }))
    }

    /// Shares the terminal with `screen`, where that writes too.
    pub(crate) fn beside(self, screen: Option<Arc<Screen>>) -> Self {
        let terminal = self.terminal.map(|terminal| terminal.beside(screen));
        Self { terminal, ..self }
    }

    /// How long a held call waits.
    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// How many calls of one tool are held in an hour.
    pub(crate) const fn holds_per_hour(&self) -> u64 {
        self.holds_per_hour
    }

    /// What the session does with calls that demand approval.
    pub(crate) fn approvals(&self) -> Approvals {
        if self.terminal.is_some() || self.gate.is_some() || self.chat.is_some() {
            return Approvals::Desk;
        }
        let mut advice = self.missing.join("; ");
        if !advice.is_empty() {
            advice.push_str("; ");
        }
        advice.push_str(
            "run it with --approval-terminal, or with --approval-gate and answer in another \
             terminal (symbi gate list); for every run: surfaces = [\"gate\"] under [approval] in \
             symbiont.toml",
        );
        Approvals::Nobody { advice }
    }

    /// Starts to ask about the calls of a session.
    pub(crate) fn start(self, held: &HeldCalls) -> Result<Asking, Failure> {
        let mut asking = Asking {
            surfaces: Vec::new(),
        };
        if let Some(terminal) = self.terminal {
            let held = held.clone();
            asking.add("symbi-terminal", move || terminal.ask(held))?;
        }
        if let Some(gate) = self.gate {
            let held = held.clone();
            asking.add("symbi-gate", move || gate.serve(held))?;
        }
        if let Some(chat) = self.chat {
            let held = held.clone();
            asking.add("symbi-chat", move || chat.serve(held))?;
        }
        Ok(asking)
    }
}

fn operators(config: &Config) -> Result<Option<Operators>, Failure> {
    let settings = &config.approval;
    (!settings.operators.is_empty())
        .then(|| Operators::new(&settings.operators, settings.require))
        .transpose()
        .map_err(|error| Failure::new(Exit::Usage, format!("[approval.operators]: {error}")))
}

/// The chat, where the project asks in one.
fn open_chat(open: &OpenProject, config: &Config, asks: Asks) -> Result<Option<Chat>, Failure> {
    let name = config.approval.chat.as_deref().filter(|_| asks.needed);
    name.map(|name| Chat::open(open, name, asks.run))
        .transpose()
}

fn open_gate(
    open: &OpenProject,
    config: &Config,
    operators: Option<Operators>,
    run: RunId,
) -> Result<Gate, Failure> {
    let project = config.name.clone().unwrap_or_default();
    Gate::open(&open.dirs, run, project, operators)
        .map_err(|error| Failure::of(Exit::Storage, &error))
}

impl Asking {
    /// Runs a surface on a thread of its own until this is dropped. The surface's future never
    /// leaves that thread.
    fn add<F, W>(&mut self, name: &str, work: W) -> Result<(), Failure>
    where
        F: Future<Output = ()>,
        W: FnOnce() -> F + Send + 'static,
    {
        let failure = |error| Failure::new(Exit::Storage, format!("asking for approval: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failure)?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        _ = stopped => {}
                        () = work() => {}
                    }
                });
            })
            .map_err(failure)?;
        self.surfaces.push(Surface {
            stop: Some(stop),
            thread: Some(thread),
        });
        Ok(())
    }
}

impl Drop for Surface {
    /// A surface never blocks, so that its thread ends at once: the terminal's modes are as they
    /// were, and the socket is gone.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
