//! The standard streams of a container, as the engine multiplexes them on one connection.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use crate::limits::READ_BYTES;

const HEADER_BYTES: usize = 8;

/// Which stream a piece belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamKind {
    Stdout,
    Stderr,
}

/// A live connection to a container's streams. Its socket does not block.
#[derive(Debug)]
pub struct Attachment {
    socket: UnixStream,
    early: Vec<u8>,
    frames: Frames,
    is_over: bool,
}

impl Attachment {
    pub(super) fn new(socket: UnixStream, early: Vec<u8>) -> Self {
        Self {
            socket,
            early,
            frames: Frames::default(),
            is_over: false,
        }
    }

    /// From now on nothing waits for the other side.
    ///
    /// # Errors
    /// The operating system's.
    pub fn do_not_block(&self) -> io::Result<()> {
        self.socket.set_nonblocking(true)
    }

    /// Whether the engine has ended the streams.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Gives what is there to `sink`, until it says stop, nothing more is there, or it is over.
    pub fn drain(&mut self, sink: &mut dyn FnMut(StreamKind, &[u8])) {
        let early = std::mem::take(&mut self.early);
        self.is_over |= self.frames.feed(&early, sink).is_err();
        let mut buffer = vec![0; READ_BYTES];
        while !self.is_over {
            match self.socket.read(&mut buffer) {
                Ok(0) => self.is_over = true,
                Ok(count) => {
                    let part = buffer.get(..count).unwrap_or_default();
                    self.is_over |= self.frames.feed(part, sink).is_err();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.is_over = true,
            }
        }
    }

    /// Writes to the container's standard input; says how much it took.
    ///
    /// # Errors
    /// The operating system's; `WouldBlock` where there is no room now.
    pub fn write_stdin(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
    }

    /// Ends the container's standard input.
    pub fn end_stdin(&self) {
        // It fails only where the engine has ended the connection already.
        let _shut = self.socket.shutdown(Shutdown::Write);
    }
}

impl AsFd for Attachment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Frames without their headers: stream, three zeros, length in four bytes, then the piece.
#[derive(Debug, Default)]
struct Frames {
    header: Vec<u8>,
    open: Option<(StreamKind, usize)>,
}

/// What came is no frame.
#[derive(Debug, PartialEq, Eq)]
struct NoFrame;

impl Frames {
    /// A piece of a frame goes on at once: no frame is ever held as a whole.
    fn feed(
        &mut self,
        mut bytes: &[u8],
        sink: &mut dyn FnMut(StreamKind, &[u8]),
    ) -> Result<(), NoFrame> {
        while !bytes.is_empty() {
            match self.open {
                None => bytes = self.take_header(bytes)?,
                Some((kind, left)) => {
                    let (piece, rest) = bytes.split_at(left.min(bytes.len()));
                    sink(kind, piece);
                    bytes = rest;
                    let left = left - piece.len();
                    self.open = (left > 0).then_some((kind, left));
                }
            }
        }
        Ok(())
    }

    fn take_header<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], NoFrame> {
        let wanted = HEADER_BYTES.saturating_sub(self.header.len());
        let (part, rest) = bytes.split_at(wanted.min(bytes.len()));
        self.header.extend_from_slice(part);
        let header = match <[u8; HEADER_BYTES]>::try_from(self.header.as_slice()) {
            Ok(header) => header,
            Err(_) => return Ok(rest),
        };
        self.header.clear();
        let [stream, 0, 0, 0, a, b, c, d] = header else {
            return Err(NoFrame);
        };
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        let kind = match stream {
            0 | 1 => StreamKind::Stdout,
            2 => StreamKind::Stderr,
            _ => return Err(NoFrame),
        };
        self.open = (length > 0).then_some((kind, length));
        Ok(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(stream: u8, piece: &[u8]) -> Vec<u8> {
        let length = u32::try_from(piece.len()).unwrap().to_be_bytes();
        [&[stream, 0, 0, 0][..], &length, piece].concat()
    }

    fn split(bytes: &[u8], step: usize) -> (Vec<u8>, Vec<u8>) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut frames = Frames::default();
        for part in bytes.chunks(step) {
            let mut sink = |kind, piece: &[u8]| match kind {
                StreamKind::Stdout => out.extend_from_slice(piece),
                StreamKind::Stderr => err.extend_from_slice(piece),
            };
            frames.feed(part, &mut sink).unwrap();
        }
        (out, err)
    }

    #[test]
    fn streams_are_told_apart_however_they_are_cut() {
        let bytes = [
            frame(1, b"one "),
            frame(2, b"oops"),
            frame(1, b""),
            frame(1, b"two"),
        ]
        .concat();
        for step in 1..=bytes.len() {
            assert_eq!(split(&bytes, step), (b"one two".to_vec(), b"oops".to_vec()));
        }
    }

    #[test]
    fn what_is_no_frame_ends_the_streams() {
        let mut frames = Frames::default();
        let mut sink = |_, _: &[u8]| ();
        assert_eq!(frames.feed(b"plain text", &mut sink), Err(NoFrame));
        let mut frames = Frames::default();
        assert_eq!(frames.feed(&frame(3, b"x"), &mut sink), Err(NoFrame));
    }
}
