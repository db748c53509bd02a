//! One output stream of a workload, kept up to its bound.

use worker::Stream;

/// Bytes up to a bound, and whether more came.
#[derive(Debug)]
pub(crate) struct Bounded {
    bytes: Vec<u8>,
    bytes_max: usize,
    is_over: bool,
}

impl Bounded {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            bytes: Vec::new(),
            bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
            is_over: false,
        }
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Keeps what there is room for.
    pub(crate) fn take(&mut self, piece: &[u8]) {
        let room = self.bytes_max - self.bytes.len();
        self.bytes.extend(piece.iter().take(room));
        self.is_over |= piece.len() > room;
    }

    pub(crate) fn into_stream(self) -> Stream {
        Stream {
            bytes: self.bytes,
            over_limit: self.is_over,
        }
    }
}
