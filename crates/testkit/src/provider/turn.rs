//! What a scripted provider answers, and the bytes of it. Pure: the server in the parent module
//! waits, sends and breaks off as an [`Answer`] says.

use std::time::Duration;

use inference::limits::RESPONSE_BYTES_MAX;
use inference::scripted::{Asked, Block, Reply, error_message};
use model::JsonObject;

use super::SeenRequest;

/// One answer of the script, to one `POST /v1/messages`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// The model says this and ends its turn.
    Text(String),
    /// The model asks for these tools, in this order.
    ToolUses(Vec<ToolUse>),
    /// The text, event by event with this pause after each; a whole message without `stream`.
    Trickle { text: String, pause: Duration },
    /// An error status with the provider's error body, such as `(429, "rate_limit_error")`.
    Status { status: u16, error: String },
    /// A 302 to this place.
    Redirect(String),
    /// The head and the beginning of an answer, then the connection breaks.
    DropMidStream,
    /// Nothing for this long, then the other turn.
    Slow { delay: Duration, then: Box<Turn> },
    /// An answer of this status that repeats the credential of the request in a header and in
    /// its body, cut in two in the middle of the credential.
    EchoCredential { status: u16 },
    /// A success of one byte more than a response may have, without a length in its head.
    Oversize,
    /// Exactly this.
    Raw {
        status: u16,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
    },
}

/// One tool that the model asks for; its identity is `toolu_<request>_<position>`, both from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolUse {
    pub name: String,
    pub input: JsonObject,
}

impl Turn {
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    /// One tool use. `input` is an object's entries.
    #[must_use]
    pub fn tool_use(name: &str, input: JsonObject) -> Self {
        Self::ToolUses(vec![ToolUse {
            name: name.to_owned(),
            input,
        }])
    }

    #[must_use]
    pub fn status(status: u16, error: &str) -> Self {
        Self::Status {
            status,
            error: error.to_owned(),
        }
    }
}

/// An answer, ready to be sent.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) delay: Duration,
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) pieces: Vec<Piece>,
}

/// A part of a body. A body of one `Bytes` has a length in its head, any other is chunked.
#[derive(Debug)]
pub(super) enum Piece {
    Bytes(Vec<u8>),
    Pause(Duration),
    /// The connection breaks here.
    Break,
}

/// The answer to the request `number` (from 1).
pub(super) fn answer(turn: Turn, number: usize, seen: &SeenRequest, asked: &Asked) -> Answer {
    let id = format!("msg_{number}");
    let say = |blocks| Reply::new(&id, &asked.model, blocks);
    match turn {
        Turn::Text(text) => reply(&say(vec![Block::Text(text)]), asked, None),
        Turn::ToolUses(uses) => reply(&say(tool_blocks(uses, number)), asked, None),
        Turn::Trickle { text, pause } => reply(&say(vec![Block::Text(text)]), asked, Some(pause)),
        Turn::Status { status, error } => json(status, error_message(&error, "the script says so")),
        Turn::Redirect(location) => Answer {
            headers: vec![("location".to_owned(), location)],
            ..json(302, b"{}".to_vec())
        },
        Turn::DropMidStream => broken(&say(vec![Block::Text("lost".to_owned())]), asked),
        Turn::Slow { delay, then } => {
            let answer = answer(*then, number, seen, asked);
            Answer {
                delay: delay + answer.delay,
                ..answer
            }
        }
        Turn::EchoCredential { status } => echo(status, seen, asked),
        Turn::Oversize => oversize(asked),
        Turn::Raw {
            status,
            headers,
            body,
        } => Answer {
            status,
            headers,
            pieces: vec![Piece::Bytes(body)],
            ..Answer::default()
        },
    }
}

/// A whole JSON body.
pub(super) fn json(status: u16, body: Vec<u8>) -> Answer {
    Answer {
        status,
        headers: content_type("application/json"),
        pieces: vec![Piece::Bytes(body)],
        ..Answer::default()
    }
}

fn content_type(kind: &str) -> Vec<(String, String)> {
    vec![("content-type".to_owned(), kind.to_owned())]
}

fn tool_blocks(uses: Vec<ToolUse>, number: usize) -> Vec<Block> {
    uses.into_iter()
        .enumerate()
        .map(|(index, ToolUse { name, input })| Block::ToolUse {
            id: format!("toolu_{number}_{}", index + 1),
            name,
            input,
        })
        .collect()
}

fn reply(reply: &Reply, asked: &Asked, pause: Option<Duration>) -> Answer {
    if !asked.stream {
        return json(200, reply.to_message());
    }
    let pieces = reply
        .to_events()
        .into_iter()
        .flat_map(|event| [Some(Piece::Bytes(event)), pause.map(Piece::Pause)])
        .flatten()
        .collect();
    Answer {
        status: 200,
        headers: content_type("text/event-stream; charset=utf-8"),
        pieces,
        ..Answer::default()
    }
}

/// Two events, or half a message, and no end.
fn broken(reply_: &Reply, asked: &Asked) -> Answer {
    let mut answer = reply(reply_, asked, None);
    answer.pieces.truncate(2);
    if let [Piece::Bytes(message)] = answer.pieces.as_mut_slice() {
        message.truncate(message.len() / 2);
    }
    answer.pieces.push(Piece::Break);
    answer
}

fn echo(status: u16, seen: &SeenRequest, asked: &Asked) -> Answer {
    let key = seen.header("x-api-key").unwrap_or_default();
    let text = format!("your key is {key}, is it not?");
    let mut answer = if status == 200 {
        let reply_ = Reply::new("msg_echo", &asked.model, vec![Block::Text(text)]);
        reply(&reply_, asked, None)
    } else {
        json(status, error_message("authentication_error", &text))
    };
    answer
        .headers
        .push(("request-id".to_owned(), format!("req_{key}")));
    answer.pieces = answer
        .pieces
        .into_iter()
        .flat_map(|piece| cut_in(piece, &key))
        .collect();
    answer
}

/// The piece in two, where it holds `key`: the cut goes through the middle of it.
fn cut_in(piece: Piece, key: &str) -> Vec<Piece> {
    let Piece::Bytes(mut bytes) = piece else {
        return vec![piece];
    };
    let place = bytes
        .windows(key.len().max(1))
        .position(|window| window == key.as_bytes());
    match place {
        Some(start) if key.len() > 1 => {
            let rest = bytes.split_off(start + key.len() / 2);
            let pause = Piece::Pause(Duration::from_millis(5));
            vec![Piece::Bytes(bytes), pause, Piece::Bytes(rest)]
        }
        _ => vec![Piece::Bytes(bytes)],
    }
}

fn oversize(asked: &Asked) -> Answer {
    const PIECE_BYTES: u64 = 1 << 16;
    let kind = if asked.stream {
        "text/event-stream"
    } else {
        "application/json"
    };
    let mut left = RESPONSE_BYTES_MAX + 1;
    let mut pieces = Vec::new();
    while left > 0 {
        let bytes = left.min(PIECE_BYTES);
        let length = usize::try_from(bytes).unwrap_or(0);
        pieces.push(Piece::Bytes(vec![b' '; length]));
        left -= bytes;
    }
    Answer {
        status: 200,
        headers: content_type(kind),
        pieces,
        ..Answer::default()
    }
}
