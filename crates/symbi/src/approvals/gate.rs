//! The gate's side of a run: a private socket where the operator lists, reads and answers.

use std::fmt;
use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use approval::limits::{ANSWERS_REFUSED_MAX, REQUEST_BYTES_MAX};
use approval::wire::{
    Counted, Decide, Decided, HeldSummary, Input, InputText, Listing, Refused, Request, Response,
    ReviewText,
};
use approval::{HeldId, Operators, Signed, Tally, Votes};
use governance::Approver;
use model::RunId;
use project::UserDirs;
use supervisor::peer::{self, Namespaces, Peer, PeerRefused};
use symbi_runtime::reasoning::governed_session::{HeldCall, HeldCalls, UncountedAnswer};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::UCred;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use crate::approvals::crowd::{Crowd, Stage};
use crate::approvals::socket::{self, SocketError, SocketName};

/// The surface's name in records.
const SURFACE: &str = "gate";
/// How the socket of a run is called, after the run's id.
pub(crate) const SOCKET_SUFFIX: &str = ".gate";
/// From a connection to its whole request.
const READ_TIME_MAX: Duration = Duration::from_secs(10);
/// For one response.
const WRITE_TIME_MAX: Duration = Duration::from_secs(5);
/// Pause when the host is out of descriptors, or every place is taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The socket, listening. Its name is removed when it is dropped.
#[derive(Debug)]
pub(super) struct Gate {
    listener: StdListener,
    desk: Arc<GateDesk>,
    _name: SocketName,
}

/// What every connection decides by.
#[derive(Debug)]
struct GateDesk {
    run: RunId,
    project: String,
    operators: Option<Operators>,
    votes: Mutex<Votes>,
    ours: Namespaces,
    /// Connections that were refused.
    turned_away: AtomicUsize,
}

impl Gate {
    pub(super) fn open(
        dirs: &UserDirs,
        run: RunId,
        project: String,
        operators: Option<Operators>,
    ) -> Result<Self, SocketError> {
        let (listener, name) = socket::listen(dirs, run, SOCKET_SUFFIX)?;
        let ours = Namespaces::ours().map_err(|source| SocketError::Io {
            action: "read its own namespaces",
            source,
        })?;
        Ok(Self {
            listener,
            _name: name,
            desk: Arc::new(GateDesk {
                run,
                project,
                operators,
                votes: Mutex::default(),
                ours,
                turned_away: AtomicUsize::new(0),
            }),
        })
    }

    /// Serves connections until dropped.
    pub(super) async fn serve(self, held: HeldCalls) {
        let Ok(listener) = UnixListener::from_std(self.listener) else {
            return;
        };
        let crowd = Arc::new(Crowd::default());
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            while !crowd.has_room() {
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            crowd.admit(|id| {
                let (desk, held) = (Arc::clone(&self.desk), held.clone());
                let place = Place(Arc::clone(&crowd), id);
                let conversation = async move {
                    // A client that went away is not worth a word.
                    let _ = converse(stream, &desk, held, &place).await;
                };
                tokio::spawn(conversation).abort_handle()
            });
            // What it has asked already is read before the next one comes.
            tokio::task::yield_now().await;
        }
    }
}

/// A connection's place among the others.
struct Place(Arc<Crowd>, u64);

impl Place {
    fn reaches(&self, stage: Stage) {
        self.0.reaches(self.1, stage);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.leaves(self.1);
    }
}

async fn converse(
    stream: UnixStream,
    desk: &GateDesk,
    held: HeldCalls,
    place: &Place,
) -> io::Result<()> {
    let credentials = stream.peer_cred()?;
    let checked = peer::check(&stream, desk.ours);
    let (reading, mut writing) = stream.into_split();
    let mut reading = BufReader::new(reading);
    let peer = match checked {
        Ok(peer) => peer,
        Err(refused) => {
            desk.turned_away(&held, credentials, &refused);
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
    place.reaches(Stage::Answered);
    match Request::read(&line) {
        // Whoever looks whether the run lives connects and says nothing.
        Err(_) if line.is_empty() => Ok(()),
        Err(error) => {
            uncounted(&held, peer, None, &error);
            send(&mut writing, &refuse(&error)).await
        }
        Ok(Request::List) => send(&mut writing, &desk.listing(&held)).await,
        Ok(Request::Show(show)) => {
            let shown = desk.show(&held, &show.held_id);
            send(&mut writing, &shown).await
        }
        Ok(Request::Input(input)) => {
            let part = desk.input(&held, &input);
            send(&mut writing, &part).await
        }
        Ok(Request::Decide(decide)) => {
            let decided = desk.decide(&held, &decide, peer);
            send(&mut writing, &decided).await
        }
        Ok(Request::Watch) => {
            place.reaches(Stage::Watching);
            watch(&mut reading, &mut writing, desk, held).await
        }
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

/// Has what did not count recorded.
fn uncounted(held: &HeldCalls, peer: Peer, held_id: Option<&HeldId>, reason: &dyn fmt::Display) {
    held.uncounted(UncountedAnswer {
        surface: SURFACE.to_owned(),
        from: format!("uid {}", peer.uid),
        held_id: held_id.map(ToString::to_string),
        reason: reason.to_string(),
    });
}

impl GateDesk {
    /// Tells and records that somebody may not decide; a flood of them is told as often as it is
    /// recorded.
    fn turned_away(&self, held: &HeldCalls, who: UCred, refused: &PeerRefused) {
        if self.turned_away.fetch_add(1, Ordering::Relaxed) < ANSWERS_REFUSED_MAX {
            let why = format!("symbi: the gate refused a connection: {refused}");
            crate::output::Output::new(false).note(&why);
        }
        let pid = who
            .pid()
            .map_or_else(String::new, |pid| format!(", pid {pid}"));
        held.uncounted(UncountedAnswer {
            surface: SURFACE.to_owned(),
            from: format!("uid {}{pid}", who.uid()),
            held_id: None,
            reason: format!("the connection was refused: {refused}"),
        });
    }

    fn input(&self, held: &HeldCalls, asked: &Input) -> Response {
        let held_id = asked.held_id.clone();
        match held.read_input(SURFACE, held_id.as_str(), &asked.input, asked.offset) {
            Ok(part) => Response::Input(InputText {
                held_id,
                input: asked.input.clone(),
                path: part.path.to_string(),
                bytes: part.bytes,
                sha256: part.sha256,
                offset: part.offset,
                content_hex: InputText::hex(&part.content),
            }),
            Err(error) => refuse(&error),
        }
    }

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
            None => refuse(&held.not_held(held_id.as_str())),
        }
    }

    fn decide(&self, held: &HeldCalls, decide: &Decide, peer: Peer) -> Response {
        let Some(call) = find(held, &decide.held_id) else {
            let response = refuse(&held.not_held(decide.held_id.as_str()));
            if let Response::Refused(refused) = &response {
                uncounted(held, peer, Some(&decide.held_id), &refused.reason);
            }
            return response;
        };
        let mut approver = Approver {
            surface: SURFACE.to_owned(),
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
                Err(response) => {
                    if let Response::Refused(refused) = &*response {
                        uncounted(held, peer, Some(&decide.held_id), &refused.reason);
                    }
                    return *response;
                }
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
        let tally = votes
            .add(&decide.held_id, signed, operators)
            .map_err(|error| Box::new(refuse(&error)))?;
        match tally {
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
