//! Bounded lines of JSON on a unix stream.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::limits::{MESSAGE_BYTES_MAX, READ_TIME_MAX};

/// One end of a conversation.
#[derive(Debug)]
pub(crate) struct Lines {
    stream: UnixStream,
    buffer: Vec<u8>,
}

impl Lines {
    pub(crate) const fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    pub(crate) const fn stream(&self) -> &UnixStream {
        &self.stream
    }

    pub(crate) fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.stream.set_write_timeout(Some(READ_TIME_MAX))?;
        self.stream.write_all(&line)
    }

    /// The next message. Its first byte may take `patience`, without end where that is `None`;
    /// the rest [`READ_TIME_MAX`]. `None` at the end of the stream.
    pub(crate) fn next<T: DeserializeOwned>(
        &mut self,
        patience: Option<Duration>,
    ) -> io::Result<Option<T>> {
        let Some(line) = self.line(patience)? else {
            return Ok(None);
        };
        serde_json::from_slice(&line).map(Some).map_err(Into::into)
    }

    fn line(&mut self, patience: Option<Duration>) -> io::Result<Option<Vec<u8>>> {
        let mut until = patience.map(|patience| Instant::now() + patience);
        let mut part = [0_u8; 4096];
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(end + 1);
                return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
            }
            if self.buffer.len() >= MESSAGE_BYTES_MAX {
                return Err(io::Error::other("a message is too long"));
            }
            self.stream.set_read_timeout(left(until)?)?;
            match self.stream.read(&mut part) {
                Ok(0) if self.buffer.is_empty() => return Ok(None),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    if self.buffer.is_empty() {
                        until = Some(Instant::now() + READ_TIME_MAX);
                    }
                    self.buffer.extend(part.get(..count).unwrap_or_default());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn left(until: Option<Instant>) -> io::Result<Option<Duration>> {
    let Some(until) = until else { return Ok(None) };
    match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(Some(left)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Lines, UnixStream) {
        let (one, other) = UnixStream::pair().unwrap();
        (Lines::new(one), other)
    }

    #[test]
    fn a_message_is_a_line_however_it_comes() {
        let (mut lines, mut other) = pair();
        other.write_all(b"1\n2\n3").unwrap();
        assert_eq!(lines.next::<u8>(None).unwrap(), Some(1));
        assert_eq!(lines.next::<u8>(None).unwrap(), Some(2));
        other.write_all(b"4\n").unwrap();
        drop(other);
        assert_eq!(lines.next::<u8>(None).unwrap(), Some(34));
        assert_eq!(lines.next::<u8>(None).unwrap(), None);
    }

    #[test]
    fn half_a_message_at_the_end_or_in_silence_is_an_error() {
        let (mut lines, mut other) = pair();
        other.write_all(b"1").unwrap();
        drop(other);
        assert!(lines.next::<u8>(None).is_err());
        let (mut lines, _other) = pair();
        let short = Some(Duration::from_millis(10));
        let error = lines.next::<u8>(short).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_message_at_its_bound_is_read_and_one_past_is_not() {
        for (bytes, fits) in [(MESSAGE_BYTES_MAX, true), (MESSAGE_BYTES_MAX + 1, false)] {
            let (mut lines, mut other) = pair();
            let text = format!("\"{}\"\n", "x".repeat(bytes - 3));
            let writer = std::thread::spawn(move || {
                // The reader of a message that is too long leaves early.
                let _ = other.write_all(text.as_bytes());
                other
            });
            assert_eq!(lines.next::<String>(None).is_ok(), fits, "{bytes}");
            drop(lines);
            writer.join().unwrap();
        }
    }
}
