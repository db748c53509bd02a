//! Protocol errors: what a JSON-RPC error answer carries.

use serde::{Serialize, Serializer};

use crate::limits::MESSAGE_BYTES_MAX;
use crate::text::prefix;

/// The code of a protocol error (JSON-RPC 2.0 section 5.1; -32000 is the server's own).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    /// The frame is not JSON.
    Parse,
    /// The JSON is not a request, or the request may not be made now.
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    Internal,
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
            Self::Busy => -32000,
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
}

impl Fault {
    /// `message` is cut to its limit: parts of it may be the client's own text.
    pub(crate) fn new(code: ErrorCode, message: &str) -> Self {
        Self {
            code,
            message: prefix(message, MESSAGE_BYTES_MAX).to_owned(),
        }
    }

    pub(crate) fn request(message: &str) -> Self {
        Self::new(ErrorCode::InvalidRequest, message)
    }

    pub(crate) fn params(message: &str) -> Self {
        Self::new(ErrorCode::InvalidParams, message)
    }
}
