//! Answers through a chat platform: the trait that an adapter fulfils, and the Slack-shaped one.
//!
//! An adapter sends nothing and listens nowhere by itself: the caller carries a message out and
//! hands a callback's exact bytes in.

mod signed;
mod slack;

pub use slack::{Slack, SlackError};

use std::fmt;

use model::Digest;

use crate::answer::{Answer, HeldId};
use crate::review::Review;

/// Who answered, as the platform names them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sender {
    pub workspace: String,
    pub channel: String,
    pub user: String,
}

impl Sender {
    /// As records name an approver: platform, workspace, channel and user.
    #[must_use]
    pub fn identity(&self, platform: &str) -> String {
        format!(
            "{platform}/{}/{}/{}",
            self.workspace, self.channel, self.user
        )
    }
}

/// An answer that a platform vouched for, from a sender that may answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatAnswer {
    pub sender: Sender,
    pub held_id: HeldId,
    pub review_sha256: Digest,
    pub answer: Answer,
}

/// A callback as it came in.
#[derive(Debug, Clone, Copy)]
pub struct Callback<'a> {
    /// Header names are compared without regard to case; each may come once.
    pub headers: &'a [(&'a str, &'a str)],
    /// The exact bytes.
    pub body: &'a [u8],
    /// Our time, in seconds since 1970.
    pub now: u64,
}

/// A platform's way to show a held call and to answer it.
pub trait Chat: fmt::Debug + Send {
    /// The platform's name in records: `slack`.
    fn platform(&self) -> &'static str;

    /// The body of the message that shows the review: all of it, in one piece.
    ///
    /// # Errors
    /// [`MessageTooLarge`]: the platform would show a part only.
    fn message(&self, held_id: &HeldId, review: &Review) -> Result<Vec<u8>, MessageTooLarge>;

    /// Checks a callback and reads the answer in it. A callback counts once.
    ///
    /// # Errors
    /// [`ChatRefusal`]; nothing was answered.
    fn answer(&mut self, callback: &Callback<'_>) -> Result<ChatAnswer, ChatRefusal>;
}

/// A review that the platform would cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageTooLarge {
    pub bytes: usize,
    pub max: usize,
}

impl fmt::Display for MessageTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, max } = self;
        write!(
            f,
            "the message has {bytes} bytes, and the platform shows {max}; answer at the gate"
        )
    }
}

impl std::error::Error for MessageTooLarge {}

/// Why a callback is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChatRefusal {
    TooLarge {
        max: usize,
    },
    /// The header is missing, comes twice, or is not of its form.
    Header {
        name: &'static str,
    },
    /// Not made by the platform, or changed on its way.
    Signature,
    /// The signed time is too far from ours.
    Age {
        seconds: u64,
        max: u64,
    },
    /// The same callback came before.
    Replay,
    /// The signed body is not of its form.
    Body {
        reason: &'static str,
    },
    Sender(Sender),
    /// The text is not `approve <held-id> <review-digest>` or the same with `deny`.
    Grammar,
}

impl fmt::Display for ChatRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let safe = |text: &str| model::Untrusted::new(text).escaped();
        match self {
            Self::TooLarge { max } => write!(f, "the callback has more than {max} bytes"),
            Self::Header { name } => {
                write!(
                    f,
                    "the header `{name}` is missing, repeated or not of its form"
                )
            }
            Self::Signature => f.write_str("the callback's signature is not the platform's"),
            Self::Age { seconds, max } => write!(
                f,
                "the callback's time is {seconds} s from ours, and {max} s are allowed"
            ),
            Self::Replay => f.write_str("the callback was used before"),
            Self::Body { reason } => write!(f, "the callback's body {reason}"),
            Self::Sender(sender) => write!(
                f,
                "the user `{}` in channel `{}` of workspace `{}` may not answer",
                safe(&sender.user),
                safe(&sender.channel),
                safe(&sender.workspace)
            ),
            Self::Grammar => f.write_str(
                "the text is not `approve <held-id> <review-digest>` or `deny <held-id> \
                 <review-digest>`",
            ),
        }
    }
}

impl std::error::Error for ChatRefusal {}
