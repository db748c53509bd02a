//! The era that begins with `initialize`: revisions 2024-11-05 to 2025-11-25.

use crate::era::Asked;
use crate::fault::Fault;
use crate::message::Params;
use crate::revision::Revision;

/// How far client and server have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Handshake {
    /// Waits for `initialize`.
    #[default]
    Silent,
    /// Waits for `notifications/initialized`.
    Greeted(Revision),
    Complete(Revision),
}

impl Handshake {
    pub(crate) fn request(&mut self, method: &str, params: Params) -> Result<Asked, Fault> {
        match method {
            "ping" => Ok(Asked::Pong),
            "initialize" => self.initialize(params),
            "tools/list" => {
                self.expect_complete()?;
                params.into_list().map(|()| Asked::List)
            }
            "tools/call" => {
                self.expect_complete()?;
                params.into_call().map(Asked::Call)
            }
            other => Err(Fault::no_method(other)),
        }
    }

    fn initialize(&mut self, params: Params) -> Result<Asked, Fault> {
        if *self != Self::Silent {
            return Err(Fault::request("the connection is initialized already"));
        }
        let revision = params.into_initialize()?;
        *self = Self::Greeted(revision);
        Ok(Asked::Initialize)
    }

    fn expect_complete(self) -> Result<(), Fault> {
        match self {
            Self::Complete(_) => Ok(()),
            Self::Silent => Err(Fault::request(
                "`initialize` must come first, or each request must name its revision in `_meta`",
            )),
            Self::Greeted(_) => Err(Fault::request(
                "`notifications/initialized` must come first",
            )),
        }
    }

    /// The client has said that it is ready.
    pub(crate) fn complete(&mut self) {
        if let Self::Greeted(revision) = *self {
            *self = Self::Complete(revision);
        }
    }

    pub(crate) const fn revision(self) -> Revision {
        match self {
            Self::Complete(revision) | Self::Greeted(revision) => revision,
            Self::Silent => Revision::V2024_11_05,
        }
    }
}
