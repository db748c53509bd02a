//! How a successful call's output becomes the result that its caller reads.

use std::fmt;
use std::sync::Arc;

use model::Redacted;
use serde_json::Value;

/// Reads a whole standard output, or what a parser made of it, as the tool's contract promises.
pub trait ResultReader: fmt::Debug + Send + Sync {
    /// # Errors
    /// [`ResultRefused`] where it is not what was promised: the call has failed.
    fn read(&self, output: &[u8]) -> Result<Value, ResultRefused>;
}

/// Why an output is not what the contract promises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultRefused {
    pub reason: String,
    /// It is of its format and breaks the contract's schema: the raw output is kept as
    /// `schema_error`.
    pub breaks_schema: bool,
}

impl fmt::Display for ResultRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
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
    /// Values that no output may repeat to whoever reads it. A kept output must not hold one at
    /// all.
    pub secrets: Vec<Redacted<String>>,
    /// The whole standard output is kept beside the journal.
    pub keeps_output: bool,
}
