//! The coding of a provider's body. We ask for none; where one comes all the same, gzip and deflate
//! are undone, with bounds, so that what is searched and passed on is what the agent reads.

use std::fmt;
use std::io::{self, Write};

use flate2::write::{MultiGzDecoder, ZlibDecoder};

/// How a body is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Coding {
    #[default]
    Identity,
    Gzip,
    /// In the frame of zlib, as HTTP has it.
    Deflate,
}

impl Coding {
    /// The coding of a `content-encoding` header; `None` for one that is not undone here.
    pub(crate) fn of_header(value: &str) -> Option<Self> {
        match value.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Some(Self::Identity),
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "deflate" => Some(Self::Deflate),
            _ => None,
        }
    }
}

/// What of a body is decoded, up to a limit: a small body can be the code of a huge one.
struct Bounded {
    bytes: Vec<u8>,
    left: u64,
    over: bool,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        match self.left.checked_sub(length) {
            Some(left) => {
                self.left = left;
                self.bytes.extend_from_slice(bytes);
                Ok(bytes.len())
            }
            None => {
                self.over = true;
                Err(io::ErrorKind::FileTooLarge.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Inner {
    Gzip(MultiGzDecoder<Bounded>),
    Deflate(ZlibDecoder<Bounded>),
}

/// Undoes a coding, piece by piece.
pub(crate) struct Decoder(Inner);

/// Why a body was not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// It is longer than its limit.
    TooLarge,
    /// It is not what its header says, or breaks off.
    Malformed,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}

impl Decoder {
    /// A decoder of at most `limit` bytes; `None` where there is nothing to undo.
    pub(crate) fn new(coding: Coding, limit: u64) -> Option<Self> {
        let sink = Bounded {
            bytes: Vec::new(),
            left: limit,
            over: false,
        };
        match coding {
            Coding::Identity => None,
            Coding::Gzip => Some(Self(Inner::Gzip(MultiGzDecoder::new(sink)))),
            Coding::Deflate => Some(Self(Inner::Deflate(ZlibDecoder::new(sink)))),
        }
    }

    /// All that `chunk` makes known.
    pub(crate) fn decode(&mut self, chunk: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let done = match &mut self.0 {
            Inner::Gzip(decoder) => decoder.write_all(chunk).and_then(|()| decoder.flush()),
            Inner::Deflate(decoder) => decoder.write_all(chunk).and_then(|()| decoder.flush()),
        };
        self.taken(done)
    }

    /// The rest; the body must be whole.
    pub(crate) fn finish(&mut self) -> Result<Vec<u8>, DecodeError> {
        let done = match &mut self.0 {
            Inner::Gzip(decoder) => decoder.try_finish(),
            Inner::Deflate(decoder) => decoder.try_finish(),
        };
        self.taken(done)
    }

    fn taken(&mut self, done: io::Result<()>) -> Result<Vec<u8>, DecodeError> {
        let sink = match &mut self.0 {
            Inner::Gzip(decoder) => decoder.get_mut(),
            Inner::Deflate(decoder) => decoder.get_mut(),
        };
        match done {
            _ if sink.over => Err(DecodeError::TooLarge),
            Ok(()) => Ok(std::mem::take(&mut sink.bytes)),
            Err(_) => Err(DecodeError::Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn decoded(coding: Coding, limit: u64, chunks: &[&[u8]]) -> Result<Vec<u8>, DecodeError> {
        let mut decoder = Decoder::new(coding, limit).unwrap();
        let mut all = Vec::new();
        for chunk in chunks {
            all.extend(decoder.decode(chunk)?);
        }
        all.extend(decoder.finish()?);
        Ok(all)
    }

    #[test]
    fn both_codings_are_undone_across_any_chunk_boundary() {
        let text = b"data: hello hello hello\n\n".repeat(9);
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&text).unwrap();
        for (coding, coded) in [
            (Coding::Gzip, gzip(&text)),
            (Coding::Deflate, encoder.finish().unwrap()),
        ] {
            for size in 1..coded.len() {
                let chunks: Vec<&[u8]> = coded.chunks(size).collect();
                assert_eq!(
                    decoded(coding, 1000, &chunks).unwrap(),
                    text,
                    "{coding:?} {size}"
                );
            }
        }
    }

    #[test]
    fn what_was_flushed_is_known_at_once() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(b"event: ping\n\n").unwrap();
        encoder.flush().unwrap();
        let mut decoder = Decoder::new(Coding::Gzip, 1000).unwrap();
        assert_eq!(
            decoder.decode(encoder.get_ref()).unwrap(),
            b"event: ping\n\n"
        );
    }

    #[test]
    fn a_body_is_decoded_at_the_limit_and_refused_one_past_it() {
        let body = gzip(&vec![b'x'; 100_000]);
        assert!(body.len() < 1000);
        assert_eq!(
            decoded(Coding::Gzip, 100_000, &[&body]).unwrap().len(),
            100_000
        );
        assert_eq!(
            decoded(Coding::Gzip, 99_999, &[&body]),
            Err(DecodeError::TooLarge)
        );
    }

    #[test]
    fn a_body_that_breaks_off_or_is_something_else_is_malformed() {
        let body = gzip(b"hello");
        let cut = &body[..body.len() - 1];
        assert_eq!(
            decoded(Coding::Gzip, 1000, &[cut]),
            Err(DecodeError::Malformed)
        );
        assert_eq!(
            decoded(Coding::Gzip, 1000, &[b"{\"type\":1}"]),
            Err(DecodeError::Malformed)
        );
        assert_eq!(
            decoded(Coding::Deflate, 1000, &[&body]),
            Err(DecodeError::Malformed)
        );
        let mut damaged = body.clone();
        let checksum = body.len() - 8;
        damaged[checksum] ^= 1;
        assert_eq!(
            decoded(Coding::Gzip, 1000, &[&damaged]),
            Err(DecodeError::Malformed)
        );
    }

    #[test]
    fn other_codings_and_lists_of_them_are_not_undone() {
        assert_eq!(Coding::of_header(" GZIP "), Some(Coding::Gzip));
        assert_eq!(Coding::of_header("identity"), Some(Coding::Identity));
        for other in ["br", "zstd", "gzip, gzip", "compress"] {
            assert_eq!(Coding::of_header(other), None, "{other}");
        }
    }
}
