//! How a successful call's output becomes the result that its caller reads.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// Reads a whole standard output as the tool's contract promises it.
pub trait ResultReader: fmt::Debug + Send + Sync {
    /// # Errors
    /// [`ResultRefused`] where it is not what was promised: the call has failed.
    fn read(&self, stdout: &[u8]) -> Result<Value, ResultRefused>;
}

/// Why an output is not what the contract promises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultRefused(pub String);

impl fmt::Display for ResultRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ResultRefused {}

/// What a call's preparation says about its result.
#[derive(Debug, Clone, Default)]
pub struct ResultTerms {
    /// Without one, the descriptor's output format reads it.
    pub reader: Option<Arc<dyn ResultReader>>,
    /// Only shortens what is shown; the journal has the digest of the whole.
    pub shown_bytes_max: Option<u64>,
}
