//! Protocol errors: what a JSON-RPC error answer carries.

use serde::{Serialize, Serializer};

use crate::limits::MESSAGE_BYTES_MAX;
use crate::revision::Revision;
use crate::text::{escaped, prefix, quote};

/// The code of a protocol error (JSON-RPC 2.0 section 5.1; MCP 2026-07-28, error codes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    /// The frame is not JSON.
    Parse,
    /// The JSON is not a request, or the request may not be made now.
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    Internal,
    /// The request names a revision that is not spoken, or not in this form.
    Revision,
    /// Too many calls wait for their answer: the same call may be sent later under a new id.
    Busy,
}

impl ErrorCode {
    #[must_use]
    pub const fn number(self) -> i64 {
        match self {
            Self::Parse => -32700,
            Self::InvalidRequest => -32600,
            Self::MethodNotFound => -32601,
            Self::InvalidParams => -32602,
            Self::Internal => -32603,
            Self::Revision => -32022,
            // A code of our own: from -32768 to -32000 all are reserved.
            Self::Busy => -31000,
        }
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(self.number())
    }
}

/// A protocol error without the id that it answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Fault {
    code: ErrorCode,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Revisions>,
}

/// What a client needs to choose another revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Revisions {
    supported: Vec<&'static str>,
    requested: String,
}

impl Fault {
    /// `message` is cut to its limit: parts of it may be the client's own text.
    pub(crate) fn new(code: ErrorCode, message: &str) -> Self {
        Self {
            code,
            message: prefix(message, MESSAGE_BYTES_MAX).to_owned(),
            data: None,
        }
    }

    pub(crate) fn no_method(method: &str) -> Self {
        let message = format!("there is no method {}", quote(method));
        Self::new(ErrorCode::MethodNotFound, &message)
    }

    /// The client asked for another revision than the `supported` ones.
    pub(crate) fn revision(asked: &str, message: &str, supported: &[Revision]) -> Self {
        Self {
            data: Some(Revisions {
                supported: supported.iter().map(|it| it.as_str()).collect(),
                requested: escaped(asked),
            }),
            ..Self::new(ErrorCode::Revision, message)
        }
    }

    pub(crate) fn request(message: &str) -> Self {
        Self::new(ErrorCode::InvalidRequest, message)
    }

    pub(crate) fn params(message: &str) -> Self {
        Self::new(ErrorCode::InvalidParams, message)
    }
}
