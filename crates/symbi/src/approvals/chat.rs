//! The chat of the user's configuration, as a surface of one run.

use std::collections::BTreeSet;
use std::net::TcpListener;

use approval::chat::{Sender, Slack};
use model::{Redacted, RunId};
use project::{ChatListen, ChatSettings, Credential, UserConfig, read_key_file};
use symbi_runtime::chat::{ChatListener, ChatSurface, Webhook};
use symbi_runtime::reasoning::governed_session::HeldCalls;

use crate::approvals::socket::{self, SocketName};
use crate::exit::{Exit, Failure};
use crate::open::OpenProject;
use crate::output::Output;

/// How the socket for callbacks is called, after the run's id.
pub(crate) const SOCKET_SUFFIX: &str = ".chat";

/// The chat, listening, and not yet asking.
#[derive(Debug)]
pub(super) struct Chat {
    surface: ChatSurface,
    _name: Option<SocketName>,
}

impl Chat {
    /// Reads the chat `name` of the user's configuration with its secrets, and listens.
    pub(super) fn open(open: &OpenProject, name: &str, run: RunId) -> Result<Self, Failure> {
        let user =
            UserConfig::load(&open.dirs).map_err(|error| Failure::of(Exit::Usage, &error))?;
        let Some(settings) = user.chats.get(name) else {
            let file = open.dirs.config.join("config.toml");
            return Err(
                Failure::new(Exit::Usage, format!("there is no chat `{name}` to ask in")).help(
                    format!(
                        "describe it under [chat.{name}] in {}: platform, webhook_file, \
                 signing_secret_file, listen, senders",
                        file.display()
                    ),
                ),
            );
        };
        let usage = |error: &dyn std::error::Error| {
            Failure::new(Exit::Usage, format!("[chat.{name}]: {error}"))
        };
        let webhook = Webhook::new(&secret(name, &settings.webhook)?).map_err(|it| usage(&it))?;
        let signing = secret(name, &settings.signing_secret)?;
        let signing = Redacted::new(signing.expose().clone().into_bytes());
        let slack = Slack::new(signing, senders(settings)).map_err(|it| usage(&it))?;
        let (listener, socket) = listener(open, name, settings.listen, run)?;
        Ok(Self {
            surface: ChatSurface {
                chat: Box::new(slack),
                delivery: Box::new(webhook),
                listener,
                report: Box::new(|text| Output::new(false).note(&format!("symbi: {text}"))),
            },
            _name: socket,
        })
    }

    /// Asks until dropped.
    pub(super) async fn serve(self, held: HeldCalls) {
        self.surface.serve(held).await;
    }
}

fn secret(chat: &str, credential: &Credential) -> Result<Redacted<String>, Failure> {
    match credential {
        Credential::Environment(variable) => crate::dirs::secret(variable).ok_or_else(|| {
            Failure::new(Exit::Usage, format!("the variable `{variable}` is not set"))
                .help(format!("the chat `{chat}` takes a secret from it"))
        }),
        Credential::File(path) => {
            read_key_file(path).map_err(|error| Failure::of(Exit::Usage, &error))
        }
    }
}

fn senders(settings: &ChatSettings) -> BTreeSet<Sender> {
    let senders = settings.senders.iter().cloned();
    senders
        .map(|(workspace, channel, user)| Sender {
            workspace,
            channel,
            user,
        })
        .collect()
}

fn listener(
    open: &OpenProject,
    name: &str,
    listen: ChatListen,
    run: RunId,
) -> Result<(ChatListener, Option<SocketName>), Failure> {
    match listen {
        ChatListen::Loopback(address) => {
            let listener = TcpListener::bind(address).map_err(|error| {
                Failure::new(
                    Exit::Usage,
                    format!("the chat `{name}` cannot listen on {address}: {error}"),
                )
                .help(
                    "one run at a time listens there; `listen = \"socket\"` makes a socket of \
                     each run",
                )
            })?;
            Ok((ChatListener::Loopback(listener), None))
        }
        ChatListen::Socket => {
            let (listener, name) = socket::listen(&open.dirs, run, SOCKET_SUFFIX)
                .map_err(|error| Failure::of(Exit::Storage, &error))?;
            Ok((ChatListener::Socket(listener), Some(name)))
        }
    }
}
