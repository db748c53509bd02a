//! The protocol's two eras, and which of them a client speaks.

use crate::fault::Fault;
use crate::handshake::Handshake;
use crate::message::{CallParams, Params};
use crate::revision::Revision;
use crate::stateless;

/// What a client asks, once the machine of its era has let it pass.
#[derive(Debug)]
pub(crate) enum Asked {
    Pong,
    Initialize,
    Discover,
    List,
    Call(CallParams),
}

/// The era of one connection. Its first request that is taken decides for good.
///
/// `server/discover` decides nothing: it is how a client of both eras looks before it chooses,
/// and its choice may still be `initialize`. Neither does a `ping` before `initialize`.
#[derive(Debug, Default)]
pub(crate) enum Era {
    #[default]
    Open,
    /// It began with `initialize`.
    Handshake(Handshake),
    /// Each request names its own revision.
    Stateless,
}

impl Era {
    pub(crate) fn request(&mut self, method: &str, params: Params) -> Result<Asked, Fault> {
        match self {
            Self::Open => {
                let (asked, era) = opening(method, params)?;
                *self = era;
                Ok(asked)
            }
            Self::Handshake(_) if params.names_revision() => Err(Fault::request(
                "the connection began with `initialize`: its requests do not name a revision \
                 in `_meta`",
            )),
            Self::Handshake(handshake) => handshake.request(method, params),
            Self::Stateless if method == "initialize" && !params.names_revision() => {
                Err(stateless::no_initialize(&params))
            }
            Self::Stateless => stateless::request(method, params),
        }
    }

    /// The client has said `notifications/initialized`.
    pub(crate) fn initialized(&mut self) {
        if let Self::Handshake(handshake) = self {
            handshake.complete();
        }
    }

    /// The revision in which answers are written.
    pub(crate) fn revision(&self) -> Revision {
        match self {
            Self::Open => Revision::V2024_11_05,
            Self::Handshake(handshake) => handshake.revision(),
            Self::Stateless => Revision::V2026_07_28,
        }
    }
}

fn opening(method: &str, params: Params) -> Result<(Asked, Era), Fault> {
    let stateless = method == "server/discover" || params.names_revision();
    if stateless && method != "initialize" {
        let asked = stateless::request(method, params)?;
        let era = match asked {
            Asked::Discover => Era::Open,
            _ => Era::Stateless,
        };
        return Ok((asked, era));
    }
    let mut handshake = Handshake::default();
    let asked = handshake.request(method, params)?;
    let era = match asked {
        Asked::Initialize => Era::Handshake(handshake),
        _ => Era::Open,
    };
    Ok((asked, era))
}
