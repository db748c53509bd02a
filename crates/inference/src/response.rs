//! What of a provider's answer reaches the agent.
//!
//! The head passes a short list of headers, never a redirect; the body is bounded, hashed, and
//! searched for the credential as it arrives. An answer that would carry the credential is cut
//! before its first byte that could complete it.

use std::borrow::Cow;
use std::fmt;

use model::{Digest, Hasher, Redacted};

use crate::coding::{Coding, DecodeError, Decoder};
use crate::limits::{RESPONSE_BYTES_MAX, RESPONSE_HEADER_BYTES_MAX};
use crate::refusal::Refusal;

/// Response headers that are passed on.
const PASSED: [&str; 4] = [
    "content-type",
    "request-id",
    "retry-after",
    "x-should-retry",
];

/// The head of an answer, as it may be passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmittedResponse {
    pub status: u16,
    /// Lower-case names. No length: the sender of the body knows it. No coding: it is undone.
    pub headers: Vec<(String, String)>,
    /// What is to be undone.
    pub coding: Coding,
    /// The body is a successful event stream: pass it on as it arrives. Every other body must be
    /// collected and checked whole before the head is sent.
    pub event_stream: bool,
}

/// Checks the head of an answer.
///
/// # Errors
/// A 403 for a redirect, an interim or impossible status, a body in a coding that is not undone
/// here (we ask for none), or one that announces more than [`RESPONSE_BYTES_MAX`] bytes.
pub fn admit_response(
    status: u16,
    headers: &[(String, Vec<u8>)],
    secret: &Redacted<String>,
) -> Result<AdmittedResponse, Refusal> {
    if (300..400).contains(&status) {
        return Err(Refusal::permission(
            "the provider answered with a redirect, which is not followed",
        ));
    }
    if !(200..600).contains(&status) {
        return Err(Refusal::permission(&format!(
            "the provider answered with the status {status}, which is not understood"
        )));
    }
    let (mut passed, mut coding) = (Vec::new(), Coding::Identity);
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        let value = String::from_utf8_lossy(value).trim().to_owned();
        check_length(&name, &value)?;
        if name == "content-encoding" {
            // A second one is a coding of a coding.
            let found = Coding::of_header(&value).filter(|_| coding == Coding::Identity);
            coding = found.ok_or_else(not_decoded)?;
        }
        if PASSED.contains(&name.as_str()) && may_pass(&value, secret) {
            passed.push((name, value));
        }
    }
    let event_stream = status == 200
        && passed
            .iter()
            .any(|(name, value)| name == "content-type" && is_event_stream(value));
    Ok(AdmittedResponse {
        status,
        headers: passed,
        coding,
        event_stream,
    })
}

fn not_decoded() -> Refusal {
    Refusal::permission(
        "the provider compressed its answer, though that was not asked for, and not as gzip or \
         deflate",
    )
}

fn check_length(name: &str, value: &str) -> Result<(), Refusal> {
    match name {
        "content-length"
            if value
                .parse()
                .is_ok_and(|bytes: u64| bytes > RESPONSE_BYTES_MAX) =>
        {
            Err(Refusal::permission(&format!(
                "the provider's answer is larger than {RESPONSE_BYTES_MAX} bytes"
            )))
        }
        _ => Ok(()),
    }
}

fn may_pass(value: &str, secret: &Redacted<String>) -> bool {
    value.len() <= RESPONSE_HEADER_BYTES_MAX
        && value.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && (secret.expose().is_empty() || !value.contains(secret.expose().as_str()))
}

fn is_event_stream(content_type: &str) -> bool {
    content_type
        .split(';')
        .next()
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"))
}

/// Why an answer was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseRefusal {
    TooLarge {
        max: u64,
    },
    /// The provider returned the credential.
    Credential,
    /// It is not the compressed body that it says.
    Coding,
}

impl fmt::Display for ResponseRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { max } => {
                write!(f, "the provider's answer is larger than {max} bytes")
            }
            Self::Credential => {
                f.write_str("the provider's answer contains the credential and is withheld")
            }
            Self::Coding => f.write_str(
                "the provider's compressed answer is malformed, or broke off, and cannot be read",
            ),
        }
    }
}

impl std::error::Error for ResponseRefusal {}

impl From<ResponseRefusal> for Refusal {
    fn from(refusal: ResponseRefusal) -> Self {
        Self::permission(&refusal.to_string())
    }
}

/// Watches one body. After a refusal it refuses for ever.
pub struct ResponseGuard {
    limit: u64,
    /// Undoes the body's coding, where it has one.
    decoder: Option<Decoder>,
    /// As they came.
    received: u64,
    search: Search,
    bytes: u64,
    hasher: Hasher,
    refused: Option<ResponseRefusal>,
}

/// A whole body that passed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct FinishedResponse {
    /// The last bytes to pass on: they looked like the start of the credential and were not.
    pub tail: Vec<u8>,
    pub bytes: u64,
    /// Of all bytes of the answer, without its coding.
    pub sha256: Digest,
}

impl fmt::Debug for ResponseGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseGuard")
            .field("limit", &self.limit)
            .field("bytes", &self.bytes)
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}

impl ResponseGuard {
    /// A guard for a body of at most `limit` bytes ([`RESPONSE_BYTES_MAX`] for a provider's).
    #[must_use]
    pub fn new(limit: u64, coding: Coding, secret: &Redacted<String>) -> Self {
        Self {
            limit,
            decoder: Decoder::new(coding, limit),
            received: 0,
            search: Search::new(secret),
            bytes: 0,
            hasher: Hasher::new(),
            refused: None,
        }
    }

    /// Bytes of the answer so far, without its coding.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes the next bytes and returns those that may be passed on now. Held back is only an
    /// end that is also a beginning of the credential; most of the time that is nothing.
    ///
    /// # Errors
    /// [`ResponseRefusal`]; nothing of this or any later chunk may be passed on.
    pub fn feed(&mut self, chunk: &[u8]) -> Result<Vec<u8>, ResponseRefusal> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        let passed = self.decoded(chunk).and_then(|known| self.pass(&known));
        passed.inspect_err(|refused| self.refused = Some(*refused))
    }

    /// What `chunk` is without its coding.
    fn decoded<'a>(&mut self, chunk: &'a [u8]) -> Result<Cow<'a, [u8]>, ResponseRefusal> {
        self.received = self.received.saturating_add(length(chunk));
        if self.received > self.limit {
            return Err(ResponseRefusal::TooLarge { max: self.limit });
        }
        match &mut self.decoder {
            None => Ok(Cow::Borrowed(chunk)),
            Some(decoder) => match decoder.decode(chunk) {
                Ok(known) => Ok(Cow::Owned(known)),
                Err(error) => Err(self.not_decoded(error)),
            },
        }
    }

    const fn not_decoded(&self, error: DecodeError) -> ResponseRefusal {
        match error {
            DecodeError::TooLarge => ResponseRefusal::TooLarge { max: self.limit },
            DecodeError::Malformed => ResponseRefusal::Coding,
        }
    }

    fn pass(&mut self, known: &[u8]) -> Result<Vec<u8>, ResponseRefusal> {
        self.hasher.update(known);
        self.bytes = self.bytes.saturating_add(length(known));
        if self.bytes > self.limit {
            return Err(ResponseRefusal::TooLarge { max: self.limit });
        }
        self.search.pass(known).ok_or(ResponseRefusal::Credential)
    }

    /// The provider ended its body properly.
    ///
    /// # Errors
    /// The refusal that an earlier chunk met, or that its coding is not whole.
    pub fn finish(mut self) -> Result<FinishedResponse, ResponseRefusal> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        let mut tail = match self.decoder.as_mut().map(Decoder::finish) {
            None => Vec::new(),
            Some(Ok(rest)) => self.pass(&rest)?,
            Some(Err(error)) => return Err(self.not_decoded(error)),
        };
        tail.extend_from_slice(self.search.held());
        Ok(FinishedResponse {
            tail,
            bytes: self.bytes,
            sha256: self.hasher.finish(),
        })
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// Knuth-Morris-Pratt search for the credential over a stream: `matched` bytes of the pattern
/// are the end of what was read, so those bytes are what is held back.
struct Search {
    pattern: Vec<u8>,
    /// For each length of a match, the length of the next shorter match with the same end.
    shorter: Vec<usize>,
    matched: usize,
}

impl Search {
    fn new(secret: &Redacted<String>) -> Self {
        let pattern = secret.expose().as_bytes().to_vec();
        let mut search = Self {
            shorter: vec![0, 0],
            matched: 0,
            pattern,
        };
        for byte in search.pattern.clone().into_iter().skip(1) {
            search.step(byte);
            search.shorter.push(search.matched);
        }
        search.matched = 0;
        search
    }

    fn step(&mut self, byte: u8) {
        while self.matched > 0 && self.pattern.get(self.matched) != Some(&byte) {
            self.matched = self.shorter.get(self.matched).copied().unwrap_or(0);
        }
        if self.pattern.get(self.matched) == Some(&byte) {
            self.matched += 1;
        }
    }

    fn held(&self) -> &[u8] {
        self.pattern.get(..self.matched).unwrap_or(&[])
    }

    /// What may be passed on after `chunk`; nothing where the pattern is complete.
    fn pass(&mut self, chunk: &[u8]) -> Option<Vec<u8>> {
        let mut out = self.held().to_vec();
        out.reserve(chunk.len());
        for byte in chunk {
            self.step(*byte);
            if self.matched == self.pattern.len() && self.matched > 0 {
                return None;
            }
        }
        out.extend_from_slice(chunk);
        out.truncate(out.len().saturating_sub(self.matched));
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn secret(text: &str) -> Redacted<String> {
        Redacted::new(text.to_owned())
    }

    fn headers(list: &[(&str, &str)]) -> Vec<(String, Vec<u8>)> {
        list.iter()
            .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
            .collect()
    }

    #[test]
    fn a_redirect_is_not_followed_and_its_location_is_not_returned() {
        for status in [300, 301, 302, 303, 304, 307, 308, 399] {
            let refusal = admit_response(
                status,
                &headers(&[("Location", "https://evil.example/")]),
                &secret("k"),
            )
            .unwrap_err();
            assert_eq!(refusal.status, 403);
            assert!(!String::from_utf8(refusal.body).unwrap().contains("evil"));
        }
        let head = admit_response(
            201,
            &headers(&[("location", "https://evil.example/")]),
            &secret("key"),
        )
        .unwrap();
        assert_eq!(head.headers, []);
    }

    #[test]
    fn only_listed_headers_without_the_credential_are_returned() {
        let head = admit_response(
            200,
            &headers(&[
                ("Content-Type", "text/event-stream; charset=utf-8"),
                ("request-id", "req_sk-live-1"),
                ("retry-after", "3"),
                ("set-cookie", "a=b"),
                ("anthropic-organization-id", "o"),
                ("connection", "keep-alive"),
                ("x-should-retry", "a\x7f"),
            ]),
            &secret("sk-live-1"),
        )
        .unwrap();
        assert_eq!(
            head.headers,
            [
                (
                    "content-type".to_owned(),
                    "text/event-stream; charset=utf-8".to_owned()
                ),
                ("retry-after".to_owned(), "3".to_owned()),
            ]
        );
        assert!(head.event_stream);
    }

    #[test]
    fn only_a_successful_event_stream_passes_as_it_arrives() {
        let stream = headers(&[("content-type", "text/event-stream")]);
        let json = headers(&[("content-type", "application/json")]);
        let streams = |status, headers: &[(String, Vec<u8>)]| {
            admit_response(status, headers, &secret("k"))
                .unwrap()
                .event_stream
        };
        assert!(streams(200, &stream));
        assert!(!streams(529, &stream));
        assert!(!streams(200, &json));
    }

    #[test]
    fn compressed_oversized_and_impossible_answers_are_refused() {
        for (status, list) in [
            (200, &[("content-encoding", "br")][..]),
            (200, &[("content-encoding", "zstd")]),
            (
                200,
                &[("content-encoding", "gzip"), ("content-encoding", "gzip")],
            ),
            (200, &[("content-length", "4194305")]),
            (101, &[]),
            (600, &[]),
            (0, &[]),
        ] {
            let refusal = admit_response(status, &headers(list), &secret("k")).unwrap_err();
            assert_eq!(refusal.status, 403, "{status} {list:?}");
        }
        for list in [
            &[("content-encoding", "identity")][..],
            &[("content-encoding", "gzip")],
            &[("content-encoding", "deflate")],
            &[("content-length", "4194304")],
        ] {
            assert!(admit_response(200, &headers(list), &secret("k")).is_ok());
        }
    }

    #[test]
    fn a_body_passes_at_the_limit_and_is_cut_one_past_it() {
        let limit = RESPONSE_BYTES_MAX;
        let body = vec![b'x'; usize::try_from(limit).unwrap()];
        let mut guard = ResponseGuard::new(limit, Coding::Identity, &secret("key"));
        assert_eq!(guard.feed(&body).unwrap().len(), body.len());
        assert_eq!(
            guard.feed(b"x"),
            Err(ResponseRefusal::TooLarge { max: limit })
        );
        assert_eq!(
            guard.feed(b""),
            Err(ResponseRefusal::TooLarge { max: limit })
        );
        assert!(guard.finish().is_err());
    }

    #[test]
    fn the_credential_is_found_across_any_chunk_boundary() {
        let body = b"data: aabaabaac\n\n";
        for size in 1..body.len() {
            let mut guard = ResponseGuard::new(100, Coding::Identity, &secret("aabaac"));
            let mut passed = Vec::new();
            let refused = body.chunks(size).find_map(|chunk| match guard.feed(chunk) {
                Ok(bytes) => {
                    passed.extend(bytes);
                    None
                }
                Err(refused) => Some(refused),
            });
            assert_eq!(refused, Some(ResponseRefusal::Credential), "{size}");
            assert!(b"data: aab".starts_with(&passed), "{passed:?}");
            assert_eq!(guard.finish(), Err(ResponseRefusal::Credential));
        }
    }

    #[test]
    fn bytes_that_do_not_begin_the_credential_are_not_delayed() {
        let mut guard = ResponseGuard::new(100, Coding::Identity, &secret("sk-live-1"));
        assert_eq!(guard.feed(b"event: ping\n\n").unwrap(), b"event: ping\n\n");
        assert_eq!(guard.feed(b"the sk-").unwrap(), b"the ");
        assert_eq!(guard.feed(b"y").unwrap(), b"sk-y");
        assert_eq!(guard.feed(b" sk-live-").unwrap(), b" ");
        let finished = guard.finish().unwrap();
        assert_eq!(finished.tail, b"sk-live-");
        assert_eq!(finished.bytes, 30);
        assert_eq!(
            finished.sha256,
            Digest::of(b"event: ping\n\nthe sk-y sk-live-")
        );
    }

    #[test]
    fn a_refusal_of_an_answer_does_not_hold_the_credential() {
        let mut guard = ResponseGuard::new(100, Coding::Identity, &secret("sk-live-1"));
        let refused = guard
            .feed(b"{\"error\":\"bad key sk-live-1\"}")
            .unwrap_err();
        let refusal = Refusal::from(refused);
        assert_eq!(refusal.status, 403);
        assert!(
            !String::from_utf8(refusal.body)
                .unwrap()
                .contains("sk-live-1")
        );
        assert!(!format!("{guard:?}").contains("sk-live"));
    }

    proptest! {
        #[test]
        fn what_passes_is_what_came_or_the_credential_was_in_it(
            pattern in "[ab]{1,6}",
            chunks in proptest::collection::vec(
                proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b')], 0..6),
                0..8,
            ),
        ) {
            let body = chunks.concat();
            let present = body.windows(pattern.len()).any(|window| window == pattern.as_bytes());
            let mut guard = ResponseGuard::new(1000, Coding::Identity, &secret(&pattern));
            let mut passed = Vec::new();
            let refused = chunks
                .iter()
                .any(|chunk| guard.feed(chunk).map(|bytes| passed.extend(bytes)).is_err());
            prop_assert_eq!(refused, present);
            prop_assert!(!passed.windows(pattern.len()).any(|window| window == pattern.as_bytes()));
            if !refused {
                passed.extend(guard.finish().unwrap().tail);
                prop_assert_eq!(passed, body);
            }
        }
    }
}
