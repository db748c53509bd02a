//! Why a journal refused an event, or failed.

use std::fmt;
use std::io;

use model::Digest;
use model::json::CanonicalError;

use crate::event::FieldError;

/// Why an event was not recorded. Only `Store` and `Failed` are the end of the journal; all
/// others are refusals that wrote nothing.
#[derive(Debug)]
pub enum JournalError {
    /// This append or sync failed: nothing more will be recorded.
    Store(io::Error),
    /// An earlier append or sync failed.
    Failed,
    /// The run has its terminal record.
    Ended,
    /// The journal has too little room for the event and all that must still fit.
    NoRoom {
        need: u64,
        have: u64,
    },
    RecordTooLarge {
        bytes: usize,
        max: usize,
    },
    Field(FieldError),
    /// After an unconfirmed outcome nothing that starts an effect is recorded.
    EffectForbidden {
        event: &'static str,
    },
    /// The event is not legal now.
    OutOfOrder {
        event: &'static str,
        reason: &'static str,
    },
    /// The event names another call than the one that this journal was lent to.
    OtherCall {
        expected: Digest,
        found: Digest,
    },
    /// A publication needs a signed journal on stable storage.
    NotDurable,
    /// The event has no canonical form.
    Encode(CanonicalError),
    /// A large value could not be kept beside the journal.
    Evidence(io::Error),
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(_) => f.write_str("the journal could not be written"),
            Self::Failed => f.write_str("the journal failed earlier and takes no more records"),
            Self::Ended => f.write_str("the run has ended; its journal takes no more records"),
            Self::NoRoom { need, have } => write!(
                f,
                "the journal has {have} bytes left that are not reserved, and {need} are needed"
            ),
            Self::RecordTooLarge { bytes, max } => {
                write!(
                    f,
                    "the record has {bytes} bytes, more than the {max} allowed"
                )
            }
            Self::Field(error) => error.fmt(f),
            Self::EffectForbidden { event } => write!(
                f,
                "an earlier outcome is unconfirmed, so no `{event}` may follow it"
            ),
            Self::OutOfOrder { event, reason } => {
                write!(f, "a `{event}` record is not legal now: {reason}")
            }
            Self::OtherCall { expected, found } => {
                write!(
                    f,
                    "the record names call {found}, the journal was lent to {expected}"
                )
            }
            Self::NotDurable => {
                f.write_str("a publication needs a signed journal on stable storage")
            }
            Self::Encode(_) => f.write_str("the event cannot be written as a record"),
            Self::Evidence(_) => f.write_str("it could not be kept as evidence"),
        }
    }
}

impl std::error::Error for JournalError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) | Self::Evidence(error) => Some(error),
            Self::Encode(error) => Some(error),
            _ => None,
        }
    }
}
