//! An HTTP/1.1 answer, as it comes in.

use crate::limits::{ENGINE_ANSWER_BYTES_MAX, ENGINE_HEAD_BYTES_MAX, ENGINE_HEADERS_MAX};

/// One whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    /// What the engine says of one path of a container, as it came.
    pub(super) path_stat: Option<String>,
    /// The version of Podman, where that answers as if it were Docker.
    pub(super) podman: Option<String>,
}

/// The header that describes a path of a container.
const PATH_STAT: &str = "x-docker-container-path-stat";
/// The header by which Podman says that it is Podman.
const PODMAN: &str = "libpod-api-version";

/// The first lines of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Head {
    status: u16,
    framing: Framing,
    bytes: usize,
    path_stat: Option<String>,
    podman: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Empty,
    Length(usize),
    Chunked,
    UntilEnd,
}

/// Collects the bytes of one answer.
#[derive(Debug, Default)]
pub(super) struct AnswerReader {
    received: Vec<u8>,
    /// The answer ends with its head, whatever that says.
    is_head_only: bool,
}

/// What a reader has so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    More,
    Whole(Answer),
}

impl AnswerReader {
    /// For an answer to `HEAD`.
    pub(super) const fn of_head() -> Self {
        Self {
            received: Vec::new(),
            is_head_only: true,
        }
    }

    /// Takes the next bytes of the connection.
    ///
    /// # Errors
    /// The reason why this is no answer, or too large a one.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Progress, String> {
        self.received.extend_from_slice(bytes);
        self.read(false)
    }

    /// The connection has ended.
    ///
    /// # Errors
    /// The reason why what came is no whole answer.
    pub(super) fn end(&mut self) -> Result<Answer, String> {
        match self.read(true)? {
            Progress::Whole(answer) => Ok(answer),
            Progress::More if self.received.is_empty() => {
                Err("the connection ended without an answer".to_owned())
            }
            Progress::More => Err("the connection ended within its answer".to_owned()),
        }
    }

    /// The status and what follows the head, once the head is there.
    ///
    /// # Errors
    /// The reason why this is no answer.
    pub(super) fn head(&self) -> Result<Option<(u16, &[u8])>, String> {
        let head = parse_head(&self.received)?;
        Ok(head.map(|head| {
            (
                head.status,
                self.received.get(head.bytes..).unwrap_or_default(),
            )
        }))
    }

    fn read(&self, is_end: bool) -> Result<Progress, String> {
        let Some(head) = parse_head(&self.received)? else {
            return Ok(Progress::More);
        };
        let rest = self.received.get(head.bytes..).unwrap_or_default();
        if rest.len() > ENGINE_ANSWER_BYTES_MAX {
            return Err(format!(
                "its answer has more than {ENGINE_ANSWER_BYTES_MAX} bytes"
            ));
        }
        let body = match head.framing {
            _ if self.is_head_only => Some(Vec::new()),
            Framing::Empty => Some(Vec::new()),
            Framing::Length(bytes) => rest.get(..bytes).map(<[u8]>::to_vec),
            Framing::Chunked => dechunked(rest)?,
            Framing::UntilEnd => is_end.then(|| rest.to_vec()),
        };
        Ok(match body {
            Some(body) => Progress::Whole(Answer {
                status: head.status,
                body,
                path_stat: head.path_stat,
                podman: head.podman,
            }),
            None => Progress::More,
        })
    }
}

fn parse_head(received: &[u8]) -> Result<Option<Head>, String> {
    let mut headers = [httparse::EMPTY_HEADER; ENGINE_HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let bytes = match response.parse(received) {
        Ok(httparse::Status::Complete(bytes)) => bytes,
        Ok(httparse::Status::Partial) if received.len() > ENGINE_HEAD_BYTES_MAX => {
            return Err(format!(
                "its head has more than {ENGINE_HEAD_BYTES_MAX} bytes"
            ));
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(format!("it does not speak HTTP: {error}")),
    };
    let status = response.code.unwrap_or_default();
    let framing = framing_of(status, response.headers)?;
    Ok(Some(Head {
        status,
        framing,
        bytes,
        path_stat: value_of(response.headers, PATH_STAT),
        podman: value_of(response.headers, PODMAN),
    }))
}

fn framing_of(status: u16, headers: &[httparse::Header<'_>]) -> Result<Framing, String> {
    if matches!(status, 100..=199 | 204 | 304) {
        return Ok(Framing::Empty);
    }
    if let Some(coding) = value_of(headers, "transfer-encoding") {
        return match coding.eq_ignore_ascii_case("chunked") {
            true => Ok(Framing::Chunked),
            false => Err(format!(
                "it answers in the coding `{}`",
                coding.escape_debug()
            )),
        };
    }
    match value_of(headers, "content-length").map(|text| text.parse()) {
        Some(Ok(bytes)) if bytes <= ENGINE_ANSWER_BYTES_MAX => Ok(Framing::Length(bytes)),
        Some(Ok(bytes)) => Err(format!("its answer has {bytes} bytes")),
        Some(Err(_)) => Err("its answer's length is no number".to_owned()),
        None => Ok(Framing::UntilEnd),
    }
}

fn value_of(headers: &[httparse::Header<'_>], name: &str) -> Option<String> {
    let header = headers.iter().find(|it| it.name.eq_ignore_ascii_case(name));
    header.map(|it| String::from_utf8_lossy(it.value).trim().to_owned())
}

/// The body of a chunked answer, once its last chunk is there.
fn dechunked(mut rest: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let mut body = Vec::new();
    loop {
        let (at, size) = match httparse::parse_chunk_size(rest) {
            Ok(httparse::Status::Complete(it)) => it,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err("a chunk of its answer has no size".to_owned()),
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if size > ENGINE_ANSWER_BYTES_MAX {
            return Err(format!("a chunk of its answer has {size} bytes"));
        }
        let after = rest.get(at..).unwrap_or_default();
        // The last chunk is empty; trailers are not used, and the connection ends anyway.
        if size == 0 {
            return Ok(after.starts_with(b"\r\n").then_some(body));
        }
        let Some(chunk) = after.get(..size) else {
            return Ok(None);
        };
        body.extend_from_slice(chunk);
        match after.get(size..).unwrap_or_default() {
            [b'\r', b'\n', next @ ..] => rest = next,
            [] | [b'\r'] => return Ok(None),
            _ => return Err("a chunk of its answer has no end".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> Result<Progress, String> {
        AnswerReader::default().feed(text.as_bytes())
    }

    fn answer(status: u16, body: &str) -> Progress {
        Progress::Whole(Answer {
            status,
            body: body.as_bytes().to_vec(),
            path_stat: None,
            podman: None,
        })
    }

    #[test]
    fn an_answer_is_whole_by_its_length_its_last_chunk_or_its_status() {
        let sized = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        assert_eq!(whole(sized).unwrap(), answer(200, "hello"));
        let chunked = "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n\
                       3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        assert_eq!(whole(chunked).unwrap(), answer(201, "abcde"));
        assert_eq!(
            whole("HTTP/1.1 204 No Content\r\n\r\n").unwrap(),
            answer(204, "")
        );
    }

    #[test]
    fn an_answer_to_a_head_ends_with_it_and_says_what_a_path_is() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\
                    X-Docker-Container-Path-Stat: e30=\r\n\r\n";
        let mut reader = AnswerReader::of_head();
        let Progress::Whole(answer) = reader.feed(text.as_bytes()).unwrap() else {
            panic!("it has no body");
        };
        assert_eq!(answer.path_stat.as_deref(), Some("e30="));
        assert_eq!(answer.body, b"");
        assert_eq!(whole(text).unwrap(), Progress::More);
    }

    #[test]
    fn an_answer_of_podman_says_so() {
        let text = "HTTP/1.1 200 OK\r\nLibpod-Api-Version: 4.3.1\r\nContent-Length: 0\r\n\r\n";
        let Progress::Whole(answer) = whole(text).unwrap() else {
            panic!("it is whole");
        };
        assert_eq!(answer.podman.as_deref(), Some("4.3.1"));
    }

    #[test]
    fn every_part_of_an_answer_but_the_whole_is_more() {
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        ] {
            for cut in 0..text.len() {
                let mut reader = AnswerReader::default();
                assert_eq!(
                    reader.feed(&text.as_bytes()[..cut]).unwrap(),
                    Progress::More,
                    "{cut}"
                );
                assert!(reader.end().is_err(), "{cut}");
            }
        }
    }

    #[test]
    fn an_answer_without_a_length_ends_with_its_connection() {
        let mut reader = AnswerReader::default();
        let head = b"HTTP/1.1 500 Oops\r\n\r\nbroken";
        assert_eq!(reader.feed(head).unwrap(), Progress::More);
        assert_eq!(reader.end().unwrap().body, b"broken");
    }

    #[test]
    fn an_answer_at_its_bound_is_read_and_one_past_is_refused() {
        let at = ENGINE_ANSWER_BYTES_MAX;
        let text = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {at}\r\n\r\n{}",
            "x".repeat(at)
        );
        assert!(matches!(whole(&text).unwrap(), Progress::Whole(_)));
        let past = at + 1;
        assert!(
            whole(&format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {past}\r\n\r\n"
            ))
            .is_err()
        );
        let chunk = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{past:x}\r\n");
        assert!(whole(&chunk).is_err());
        let endless = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(past));
        assert!(whole(&endless).is_err());
    }

    #[test]
    fn a_head_that_never_ends_or_is_no_http_is_refused() {
        let line = format!("X: {}\r\n", "x".repeat(1000));
        let endless = format!("HTTP/1.1 200 OK\r\n{}", line.repeat(20));
        assert!(whole(&endless).is_err());
        assert!(whole("SSH-2.0-OpenSSH\r\n").is_err());
        let coding = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n";
        assert!(whole(coding).is_err());
    }
}
