//! What one client asks, and what becomes of it.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use filegrants::Holder;
use sandbox::lease::LeaseId;

use crate::crowd::Stage;
use crate::limits::{CONNECTIONS_MAX, GREETING_TIME_MAX, PROTOCOL_VERSION, PRUNE_WAIT_MAX};
use crate::line::Lines;
use crate::peer;
use crate::server::{House, Place};
use crate::tending;
use crate::wire::{Hello, Request, Response, Status, Terms, Welcome};

/// Holds the conversation to its end.
pub(crate) fn hold(house: &Arc<House>, stream: UnixStream, place: &Place) -> io::Result<()> {
    let checked = peer::check_guarded(&stream, house.ours);
    let mut lines = Lines::new(stream);
    let owner = checked
        .map_err(|refused| refused.to_string())
        .and_then(|peer| Holder::of(peer.pid).ok_or_else(|| "the client has ended".to_owned()));
    let owner = match owner {
        Ok(owner) => owner,
        Err(reason) => return refuse(house, &mut lines, reason),
    };
    let hello: Option<Hello> = lines.next(Some(GREETING_TIME_MAX))?;
    let Some(hello) = hello else { return Ok(()) };
    if hello.supervisor_protocol != PROTOCOL_VERSION {
        let reason = format!(
            "this supervisor (symbi {}, process {}) speaks version {PROTOCOL_VERSION} and not {}; \
             it ends by itself a minute after its last lease",
            house.terms.version,
            std::process::id(),
            hello.supervisor_protocol
        );
        return refuse(house, &mut lines, reason);
    }
    lines.send(&welcome(house, None))?;
    while place.reaches(Stage::Idle(Instant::now())) {
        let Some(request) = lines.next::<Request>(None)? else {
            break;
        };
        // Who has just lost its place asks again at the next one.
        if !place.reaches(Stage::Answered) {
            break;
        }
        let response = answer(house, request, (owner, place.id));
        lines.send(&response)?;
    }
    Ok(())
}

/// Tells a client that there is no place for it.
pub(crate) fn turn_away(house: &House, stream: UnixStream) {
    let reason = format!(
        "it has {CONNECTIONS_MAX} connections, all at work; end some of the runs that hold them, \
         or try again"
    );
    house.say(&format!("a client was refused: {reason}"));
    let welcome = Welcome {
        is_crowded: true,
        ..welcome(house, Some(reason))
    };
    // One short line always fits into a new socket: nobody waits.
    let _ = Lines::new(stream).send(&welcome);
}

fn refuse(house: &House, lines: &mut Lines, reason: String) -> io::Result<()> {
    house.say(&format!("a client was refused: {reason}"));
    lines.send(&welcome(house, Some(reason)))
}

fn welcome(house: &House, refused: Option<String>) -> Welcome {
    let store = match refused {
        None => house.store.clone(),
        Some(_) => String::new(),
    };
    Welcome {
        supervisor_protocol: PROTOCOL_VERSION,
        version: house.terms.version.clone(),
        pid: std::process::id(),
        store,
        refused,
        is_crowded: false,
    }
}

fn answer(house: &Arc<House>, request: Request, owner: (Holder, u64)) -> Response {
    match request {
        Request::Take { lease, terms } => take(house, &lease, &terms, owner),
        Request::Release { lease } => release(house, &lease, owner.0),
        Request::Attach { leases } => {
            house.book().attach(&leases, owner.0, owner.1);
            house.wake();
            Response::Done {}
        }
        Request::Sweep { socket } => match house.remember(&socket) {
            Ok(()) => {
                tending::sweep_in_background(house, socket);
                Response::Done {}
            }
            Err(reason) => Response::Unavailable { reason },
        },
        Request::Status {} => match (house.terms.capacity)() {
            Ok(capacity) => Response::Status(Status {
                version: house.terms.version.clone(),
                pid: std::process::id(),
                independent: house.terms.independent,
                persistent: house.terms.persistent,
                capacity,
                leases: house.book().statuses(),
                engines: house.engines(),
            }),
            Err(reason) => Response::Unavailable { reason },
        },
        Request::Prune {} => Response::Pruned {
            removed: prune(house),
        },
    }
}

fn take(house: &House, lease: &str, terms: &Terms, owner: (Holder, u64)) -> Response {
    let id = LeaseId::parse(lease).filter(|id| id.as_str().starts_with(&house.store));
    let Some(id) = id else {
        let reason = "the lease's id is not of this supervisor".to_owned();
        return Response::Unavailable { reason };
    };
    if house.is_replaced() {
        let reason = "the supervisor's folder was removed or replaced while it ran; end this \
                      session and begin it anew: another supervisor then keeps its leases";
        return Response::Unavailable {
            reason: reason.to_owned(),
        };
    }
    let ready = house.remember(&terms.socket);
    let limits = ready.and_then(|()| (house.terms.capacity)());
    let limits = match limits {
        Ok(limits) => limits,
        Err(reason) => return Response::Unavailable { reason },
    };
    let response = house.book().take(id, terms, owner, limits);
    // Its end may be the next one.
    house.wake();
    response
}

fn release(house: &House, lease: &str, owner: Holder) -> Response {
    let mut book = house.book();
    if !book.is_of(lease, owner) {
        let reason = "the lease is another process's".to_owned();
        return Response::Unavailable { reason };
    }
    let ended = book.end(lease);
    drop(book);
    house.ended.notify_all();
    house.wake();
    match ended {
        Ok(()) => Response::Done {},
        Err(reason) => Response::Unavailable { reason },
    }
}

/// Looks at every engine now, and waits for what is being removed. Says what is gone.
fn prune(house: &Arc<House>) -> Vec<String> {
    let before = house.book().ending();
    let mut removed = Vec::new();
    for engine in house.engines() {
        match tending::sweep(house, &engine) {
            Ok(found) => removed.extend(found),
            Err(reason) => house.say(&format!("{}: {reason}", engine.display())),
        }
    }
    let until = Instant::now() + PRUNE_WAIT_MAX;
    let mut book = house.book();
    // A container that nobody has seen yet is not waited for: it may never come.
    while book.ends_soon() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        book = match house.ended.wait_timeout(book, left) {
            Ok((book, _)) => book,
            Err(poisoned) => poisoned.into_inner().0,
        };
    }
    let gone = before.into_iter().filter(|lease| !book.holds(lease));
    removed.extend(gone.map(|lease| format!("lease {lease}")));
    removed
}
