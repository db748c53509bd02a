//! The gate's side of a run: a private socket where the operator lists, reads and answers.

use std::fmt;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixListener as StdListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use approval::limits::REQUEST_BYTES_MAX;
use approval::wire::{
    Counted, Decide, Decided, HeldSummary, Listing, Refused, Request, Response, ReviewText,
};
use approval::{HeldId, Operators, Signed, Tally, Votes};
use governance::Approver;
use model::RunId;
use project::{Folder, FolderError, UserDirs};
use symbi_runtime::reasoning::governed_session::{HeldCall, HeldCalls};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::approvals::peer::{self, Namespaces, Peer};

/// How the socket of a run is called, after the run's id.
pub(crate) const SOCKET_SUFFIX: &str = ".gate";
/// Connections that are served at once.
const CONNECTIONS_MAX: usize = 8;
/// From a connection to its whole request.
const READ_TIME_MAX: Duration = Duration::from_secs(10);
/// For one response.
const WRITE_TIME_MAX: Duration = Duration::from_secs(5);
/// Pause when the host is out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why there is no gate.
#[derive(Debug)]
pub(crate) enum GateError {
    Folder(FolderError),
    Io {
        action: &'static str,
        source: io::Error,
    },
}

impl fmt::Display for GateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(_) => f.write_str("the folder of the gate's sockets"),
            Self::Io { action, .. } => write!(f, "the gate: cannot {action}"),
        }
    }
}

impl std::error::Error for GateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Folder(error) => Some(error),
            Self::Io { source, .. } => Some(source),
        }
    }
}

fn gate_error<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> GateError {
    move |error| GateError::Io {
        action,
        source: error.into(),
    }
}

/// The socket, listening. Its name is removed when it is dropped.
#[derive(Debug)]
pub(super) struct Gate {
    listener: StdListener,
    desk: Arc<GateDesk>,
    _name: SocketName,
}

#[derive(Debug)]
struct SocketName {
    folder: Folder,
    name: String,
}

impl Drop for SocketName {
    fn drop(&mut self) {
        let _ = rustix::fs::unlinkat(
            self.folder.fd(),
            self.name.as_str(),
            rustix::fs::AtFlags::empty(),
        );
    }
}

/// What every connection decides by.
#[derive(Debug)]
struct GateDesk {
    run: RunId,
    project: String,
    operators: Option<Operators>,
    votes: Mutex<Votes>,
    ours: Namespaces,
}

impl Gate {
    /// Listens under a hidden name first, so that whoever sees the socket can connect to it.
    pub(super) fn open(
        dirs: &UserDirs,
        run: RunId,
        project: String,
        operators: Option<Operators>,
    ) -> Result<Self, GateError> {
        let folder = dirs.sockets().map_err(GateError::Folder)?;
        let hidden = format!(".{run}");
        let name = format!("{run}{SOCKET_SUFFIX}");
        // Through the held folder: its own path may be longer than a socket's address.
        let path = format!("/proc/self/fd/{}/{hidden}", folder.fd().as_raw_fd());
        let listener = StdListener::bind(path).map_err(gate_error("make its socket"))?;
        listener
            .set_nonblocking(true)
            .map_err(gate_error("use its socket"))?;
        rustix::fs::renameat(folder.fd(), &hidden, folder.fd(), &name)
            .map_err(gate_error("name its socket"))?;
        let name = SocketName { folder, name };
        let ours = Namespaces::ours().map_err(gate_error("read its own namespaces"))?;
        Ok(Self {
            listener,
            _name: name,
            desk: Arc::new(GateDesk {
                run,
                project,
                operators,
                votes: Mutex::default(),
                ours,
            }),
        })
    }

    /// Serves connections until dropped.
    pub(super) async fn serve(self, held: HeldCalls) {
        let Ok(listener) = UnixListener::from_std(self.listener) else {
            return;
        };
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (desk, held) = (Arc::clone(&self.desk), held.clone());
            tokio::spawn(async move {
                // A client that went away is not worth a word.
                let _ = converse(stream, &desk, held).await;
                drop(place);
            });
        }
    }
}

async fn converse(stream: UnixStream, desk: &GateDesk, held: HeldCalls) -> io::Result<()> {
    let credentials = stream.peer_cred()?;
    let (reading, mut writing) = stream.into_split();
    let mut reading = BufReader::new(reading);
    let peer = match peer::check(credentials, desk.ours) {
        Ok(peer) => peer,
        Err(refused) => {
            let why = format!("symbi: the gate refused a connection: {refused}");
            crate::output::Output::new(false).note(&why);
            return send(&mut writing, &refuse(&refused)).await;
        }
    };
    let mut line = Vec::new();
    let most = REQUEST_BYTES_MAX as u64 + 1;
    timeout(
        READ_TIME_MAX,
        (&mut reading).take(most).read_until(b'\n', &mut line),
    )
    .await??;
    match Request::read(&line) {
        Err(error) => send(&mut writing, &refuse(&error)).await,
        Ok(Request::List) => send(&mut writing, &desk.listing(&held)).await,
        Ok(Request::Show(show)) => {
            let shown = desk.show(&held, &show.held_id);
            send(&mut writing, &shown).await
        }
        Ok(Request::Decide(decide)) => {
            let decided = desk.decide(&held, &decide, peer);
            send(&mut writing, &decided).await
        }
        Ok(Request::Watch) => watch(&mut reading, &mut writing, desk, held).await,
    }
}

/// Sends the held calls now and after every change, until the client says anything or leaves.
async fn watch(
    reading: &mut BufReader<tokio::net::unix::OwnedReadHalf>,
    writing: &mut tokio::net::unix::OwnedWriteHalf,
    desk: &GateDesk,
    mut held: HeldCalls,
) -> io::Result<()> {
    let mut byte = [0];
    loop {
        send(writing, &desk.listing(&held)).await?;
        tokio::select! {
            () = held.changed() => {}
            _ = reading.read(&mut byte) => return Ok(()),
        }
    }
}

async fn send(
    writing: &mut tokio::net::unix::OwnedWriteHalf,
    response: &Response,
) -> io::Result<()> {
    let line = response.to_line();
    timeout(WRITE_TIME_MAX, writing.write_all(line.as_bytes())).await?
}

fn refuse(reason: &dyn fmt::Display) -> Response {
    Response::Refused(Refused {
        reason: reason.to_string(),
    })
}

impl GateDesk {
    fn listing(&self, held: &HeldCalls) -> Response {
        let summary = |call: HeldCall| {
            Some(HeldSummary {
                held_id: HeldId::new(call.held_id).ok()?,
                principal: call.principal,
                tool: call.tool,
                review_sha256: call.review_sha256,
                created_at: call.created_at,
                expires_at: call.expires_at,
            })
        };
        Response::Held(Listing {
            run: self.run,
            project: self.project.clone(),
            calls: held.pending().into_iter().filter_map(summary).collect(),
        })
    }

    fn show(&self, held: &HeldCalls, held_id: &HeldId) -> Response {
        match find(held, held_id) {
            Some(call) => Response::Review(ReviewText {
                held_id: held_id.clone(),
                text: call.review.text().to_owned(),
                review_sha256: call.review_sha256,
            }),
            None => not_held(held_id),
        }
    }

    fn decide(&self, held: &HeldCalls, decide: &Decide, peer: Peer) -> Response {
        let Some(call) = find(held, &decide.held_id) else {
            return not_held(&decide.held_id);
        };
        let mut approver = Approver {
            surface: "gate".to_owned(),
            identity: format!("uid {}", peer.uid),
            signatures: Vec::new(),
        };
        if let Some(operators) = self.operators.as_ref().filter(|_| decide.answer.approves()) {
            match self.signatures(&call, decide, operators) {
                Ok(signed) => {
                    let names = signed
                        .iter()
                        .map(|it| format!("{} {}", it.operator(), it.fingerprint()));
                    approver.identity = names.collect::<Vec<_>>().join(", ");
                    approver.signatures = signed.iter().map(|it| it.armored().to_owned()).collect();
                }
                Err(response) => return *response,
            }
        }
        let identity = approver.identity.clone();
        let approves = decide.answer.approves();
        match held.decide(
            decide.held_id.as_str(),
            decide.review_sha256,
            approves,
            approver,
        ) {
            Ok(()) => Response::Decided(Decided {
                held_id: decide.held_id.clone(),
                answer: decide.answer,
                approver: identity,
            }),
            Err(error) => refuse(&error),
        }
    }

    /// The signatures under the call, once there are enough of them.
    fn signatures(
        &self,
        call: &HeldCall,
        decide: &Decide,
        operators: &Operators,
    ) -> Result<Vec<Signed>, Box<Response>> {
        let Some(armored) = &decide.signature else {
            let reason = format!(
                "an approval here needs the signatures of {} of the project's operators: symbi \
                 gate approve {} --sign KEY",
                operators.require(),
                decide.held_id
            );
            return Err(Box::new(refuse(&reason)));
        };
        let signed = operators
            .verify(&call.review, armored)
            .map_err(|error| Box::new(refuse(&error)))?;
        let mut votes = self.votes.lock().unwrap_or_else(PoisonError::into_inner);
        match votes.add(&decide.held_id, signed, operators) {
            Tally::Enough(signed) => Ok(signed),
            Tally::More { have, require } => Err(Box::new(Response::Counted(Counted {
                held_id: decide.held_id.clone(),
                have: u64::try_from(have).unwrap_or(u64::MAX),
                require: u64::try_from(require).unwrap_or(u64::MAX),
            }))),
        }
    }
}

fn find(held: &HeldCalls, held_id: &HeldId) -> Option<HeldCall> {
    let mut pending = held.pending().into_iter();
    pending.find(|call| call.held_id == held_id.as_str())
}

fn not_held(held_id: &HeldId) -> Response {
    refuse(&format!(
        "no call is held as `{held_id}`: it was answered, expired or withdrawn"
    ))
}
