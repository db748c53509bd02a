//! A Slack-shaped platform: a slash command with a signed form, `/gate approve <id> <digest>`.
//!
//! Format: Slack's "Verifying requests from Slack" (version `v0`) and "Enabling interactivity
//! with slash commands".

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use model::{Digest, Redacted};

use crate::answer::{Answer, HeldId};
use crate::chat::signed::{equal, hmac_sha256};
use crate::chat::{Callback, Chat, ChatAnswer, ChatRefusal, MessageTooLarge, Sender};
use crate::limits::{
    CALLBACK_AGE_SECONDS_MAX, CALLBACK_BYTES_MAX, CALLBACKS_REMEMBERED_MAX, CHAT_MESSAGE_BYTES_MAX,
    CHAT_SENDERS_MAX,
};
use crate::review::Review;

const SIGNATURE_HEADER: &str = "x-slack-signature";
const TIME_HEADER: &str = "x-slack-request-timestamp";
const COMMAND: &str = "/gate";

/// The adapter: who may answer, and the secret that the platform signs with.
#[derive(Debug)]
pub struct Slack {
    secret: Redacted<Vec<u8>>,
    senders: BTreeSet<Sender>,
    /// Signatures with their times, oldest first. Older than allowed is refused by its time.
    seen: VecDeque<(u64, [u8; 32])>,
}

/// Why the adapter cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlackError {
    /// A secret that anybody could guess.
    ShortSecret { min: usize },
    /// Nobody may answer, or too many.
    Senders { count: usize, max: usize },
}

impl fmt::Display for SlackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShortSecret { min } => {
                write!(f, "the signing secret has fewer than {min} bytes")
            }
            Self::Senders { count, max } => {
                write!(f, "{count} senders may answer, and it must be 1 to {max}")
            }
        }
    }
}

impl std::error::Error for SlackError {}

/// Shortest signing secret, in bytes.
const SECRET_BYTES_MIN: usize = 16;

impl Slack {
    /// # Errors
    /// [`SlackError`]
    pub fn new(secret: Redacted<Vec<u8>>, senders: BTreeSet<Sender>) -> Result<Self, SlackError> {
        if secret.expose().len() < SECRET_BYTES_MIN {
            return Err(SlackError::ShortSecret {
                min: SECRET_BYTES_MIN,
            });
        }
        if senders.is_empty() || senders.len() > CHAT_SENDERS_MAX {
            return Err(SlackError::Senders {
                count: senders.len(),
                max: CHAT_SENDERS_MAX,
            });
        }
        Ok(Self {
            secret,
            senders,
            seen: VecDeque::new(),
        })
    }

    /// The signature over exactly these bytes, where it is the platform's.
    fn verified(&self, callback: &Callback<'_>) -> Result<(u64, [u8; 32]), ChatRefusal> {
        if callback.body.len() > CALLBACK_BYTES_MAX {
            return Err(ChatRefusal::TooLarge {
                max: CALLBACK_BYTES_MAX,
            });
        }
        let written = header(callback, TIME_HEADER)?;
        let time = digits(written).ok_or(ChatRefusal::Header { name: TIME_HEADER })?;
        let named = header(callback, SIGNATURE_HEADER)?;
        let named = named
            .strip_prefix("v0=")
            .and_then(|hex| hex.parse::<Digest>().ok())
            .ok_or(ChatRefusal::Header {
                name: SIGNATURE_HEADER,
            })?;
        let made = hmac_sha256(
            self.secret.expose(),
            &[b"v0:", written.as_bytes(), b":", callback.body],
        );
        if !equal(&made, named.as_bytes()) {
            return Err(ChatRefusal::Signature);
        }
        let seconds = callback.now.abs_diff(time);
        if seconds > CALLBACK_AGE_SECONDS_MAX {
            return Err(ChatRefusal::Age {
                seconds,
                max: CALLBACK_AGE_SECONDS_MAX,
            });
        }
        Ok((time, made))
    }

    fn remember(&mut self, now: u64, time: u64, signature: [u8; 32]) -> Result<(), ChatRefusal> {
        let alive = |time: u64| now.abs_diff(time) <= CALLBACK_AGE_SECONDS_MAX;
        self.seen.retain(|(time, _)| alive(*time));
        let known = self.seen.iter().any(|(_, seen)| equal(seen, &signature));
        // A full memory cannot tell a new callback from an old one.
        if known || self.seen.len() >= CALLBACKS_REMEMBERED_MAX {
            return Err(ChatRefusal::Replay);
        }
        self.seen.push_back((time, signature));
        Ok(())
    }
}

impl Chat for Slack {
    fn platform(&self) -> &'static str {
        "slack"
    }

    fn message(&self, held_id: &HeldId, review: &Review) -> Result<Vec<u8>, MessageTooLarge> {
        // The review is printable ASCII; in a code block Slack takes three characters as its own.
        let mut shown = String::with_capacity(review.text().len());
        for character in review.text().chars() {
            match character {
                '&' => shown.push_str("&amp;"),
                '<' => shown.push_str("&lt;"),
                '>' => shown.push_str("&gt;"),
                '`' => shown.push_str("\\u0060"),
                other => shown.push(other),
            }
        }
        let digest = review.sha256();
        let text = format!(
            "A call waits for your approval.\n```\n{shown}```\n`{COMMAND} approve {held_id} \
             {digest}`\n`{COMMAND} deny {held_id} {digest}`"
        );
        let (bytes, max) = (text.len(), CHAT_MESSAGE_BYTES_MAX);
        if bytes > max {
            return Err(MessageTooLarge { bytes, max });
        }
        // Nothing that a call names is fetched: nobody has approved it yet.
        let message = serde_json::json!({
            "text": text, "mrkdwn": true, "unfurl_links": false, "unfurl_media": false,
        });
        Ok(message.to_string().into_bytes())
    }

    fn answer(&mut self, callback: &Callback<'_>) -> Result<ChatAnswer, ChatRefusal> {
        let (time, signature) = self.verified(callback)?;
        let form = Form::read(callback.body)?;
        let sender = Sender {
            workspace: form.one("team_id")?,
            channel: form.one("channel_id")?,
            user: form.one("user_id")?,
        };
        if !self.senders.contains(&sender) {
            return Err(ChatRefusal::Sender(sender));
        }
        self.remember(callback.now, time, signature)?;
        if form.one("command")? != COMMAND {
            return Err(ChatRefusal::Grammar);
        }
        let text = form.one("text")?;
        let (line, digest) = text.rsplit_once(' ').ok_or(ChatRefusal::Grammar)?;
        let (_, id) = line.split_once(' ').ok_or(ChatRefusal::Grammar)?;
        let held_id = HeldId::new(id).map_err(|_| ChatRefusal::Grammar)?;
        let answer = Answer::read(line.as_bytes(), &held_id).map_err(|_| ChatRefusal::Grammar)?;
        Ok(ChatAnswer {
            sender,
            held_id,
            review_sha256: digest.parse().map_err(|_| ChatRefusal::Grammar)?,
            answer,
        })
    }
}

fn header<'a>(callback: &Callback<'a>, name: &'static str) -> Result<&'a str, ChatRefusal> {
    let mut found = callback
        .headers
        .iter()
        .filter(|(key, _)| key.eq_ignore_ascii_case(name));
    match (found.next(), found.next()) {
        (Some((_, value)), None) => Ok(value),
        _ => Err(ChatRefusal::Header { name }),
    }
}

/// Decimal digits alone: what is signed has one spelling.
fn digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

/// An `application/x-www-form-urlencoded` body.
struct Form(Vec<(String, String)>);

impl Form {
    fn read(body: &[u8]) -> Result<Self, ChatRefusal> {
        let body = std::str::from_utf8(body).map_err(|_| ChatRefusal::Body {
            reason: "is not ASCII",
        })?;
        body.split('&')
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                Some((decode(name)?, decode(value)?))
            })
            .collect::<Option<_>>()
            .map(Self)
            .ok_or(ChatRefusal::Body {
                reason: "is no form",
            })
    }

    /// A field that must be there exactly once.
    fn one(&self, name: &str) -> Result<String, ChatRefusal> {
        let mut found = self.0.iter().filter(|(key, _)| key == name);
        match (found.next(), found.next()) {
            (Some((_, value)), None) => Ok(value.clone()),
            _ => Err(ChatRefusal::Body {
                reason: "lacks a field, or has one twice",
            }),
        }
    }
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let high = char::from(bytes.next()?).to_digit(16)?;
                let low = char::from(bytes.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::ReviewParts;
    use serde_json::json;

    const SECRET: &[u8] = b"8f742231b10e8888abcd99yyyzzz85a5";
    const NOW: u64 = 1_000_000;

    fn slack() -> Slack {
        let sender = Sender {
            workspace: "T1".to_owned(),
            channel: "C1".to_owned(),
            user: "U1".to_owned(),
        };
        Slack::new(Redacted::new(SECRET.to_vec()), BTreeSet::from([sender])).unwrap()
    }

    fn body(more: &str) -> String {
        let digest = Digest::of(b"review");
        format!(
            "team_id=T1&channel_id=C1&user_id=U1&command=%2Fgate&text=deny+held-1+{digest}{more}"
        )
    }

    /// A signed callback from so many seconds ago.
    fn answer(
        slack: &mut Slack,
        ago: u64,
        body: &str,
        now: u64,
    ) -> Result<ChatAnswer, ChatRefusal> {
        let time = (now - ago).to_string();
        let signed = [b"v0:", time.as_bytes(), b":", body.as_bytes()];
        let signature: String = hmac_sha256(SECRET, &signed)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let signature = format!("v0={signature}");
        slack.answer(&Callback {
            headers: &[(TIME_HEADER, &time), (SIGNATURE_HEADER, &signature)],
            body: body.as_bytes(),
            now,
        })
    }

    #[test]
    fn a_callback_is_read_at_its_bound_and_refused_one_byte_past_it() {
        let short = body("&more=").len();
        let most = body(&format!("&more={}", "x".repeat(CALLBACK_BYTES_MAX - short)));
        assert!(answer(&mut slack(), 0, &most, NOW).is_ok());
        let refused = answer(&mut slack(), 0, &format!("{most}x"), NOW);
        let max = CALLBACK_BYTES_MAX;
        assert_eq!(refused, Err(ChatRefusal::TooLarge { max }));
    }

    #[test]
    fn as_many_callbacks_are_remembered_as_may_be_and_no_more_count_until_they_are_old() {
        let mut slack = slack();
        for number in 0..CALLBACKS_REMEMBERED_MAX {
            let body = body(&format!("&n={number}"));
            assert!(answer(&mut slack, 0, &body, NOW).is_ok(), "{number}");
        }
        let one_more = body("&n=more");
        let refused = answer(&mut slack, 0, &one_more, NOW);
        assert_eq!(refused, Err(ChatRefusal::Replay));
        let later = NOW + CALLBACK_AGE_SECONDS_MAX;
        let refused = answer(&mut slack, 0, &one_more, later);
        assert_eq!(refused, Err(ChatRefusal::Replay));
        assert!(answer(&mut slack, 0, &one_more, later + 1).is_ok());
    }

    /// A clock that is set back while a callback is remembered makes it no new one.
    #[test]
    fn a_callback_is_no_new_one_whichever_way_the_clock_goes() {
        let mut slack = slack();
        let body = body("");
        assert!(answer(&mut slack, 0, &body, NOW).is_ok());
        for (ago, now) in [(300, NOW + 300), (0, NOW), (10, NOW + 10)] {
            let again = answer(&mut slack, ago, &body, now);
            assert_eq!(again, Err(ChatRefusal::Replay), "{now}");
        }
    }

    #[test]
    fn a_message_is_sent_at_its_bound_and_not_one_byte_past_it() {
        let message = |pad: usize| {
            let call = model::Canonical::of(&json!({"pad": "x".repeat(pad)})).unwrap();
            let held_id = HeldId::new("held-1").unwrap();
            let review = Review::of(&ReviewParts {
                held_id: &held_id,
                run: "0197f3a0-0000-7000-8000-000000000001".parse().unwrap(),
                principal: "operator",
                tool: "echo",
                call_sha256: call.digest(),
                created_at: "a",
                expires_at: "b",
                call: &call,
            });
            slack().message(&held_id, &review.unwrap())
        };
        let text = |message: Vec<u8>| {
            let message: serde_json::Value = serde_json::from_slice(&message).unwrap();
            message["text"].as_str().unwrap().len()
        };
        let room = CHAT_MESSAGE_BYTES_MAX - text(message(0).unwrap());
        assert_eq!(text(message(room).unwrap()), CHAT_MESSAGE_BYTES_MAX);
        let (bytes, max) = (CHAT_MESSAGE_BYTES_MAX + 1, CHAT_MESSAGE_BYTES_MAX);
        assert_eq!(message(room + 1), Err(MessageTooLarge { bytes, max }));
    }
}
