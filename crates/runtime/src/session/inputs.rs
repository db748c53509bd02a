//! A held call's inputs, for the person who decides: the snapshots, part by part, and how much of
//! each was shown where.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use approval::limits::INPUT_PART_BYTES_MAX;
use governance::PreparedCall;
use journal::InputShown;
use journal::limits::INPUTS_SHOWN_MAX;
use model::{Digest, RelativePath};

/// A part of an input's snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputPart {
    pub path: RelativePath,
    /// Of the whole input.
    pub bytes: u64,
    pub sha256: Digest,
    /// Where the part begins.
    pub offset: u64,
    /// At most [`INPUT_PART_BYTES_MAX`] bytes; empty only at the end.
    pub content: Vec<u8>,
}

/// Why no part of an input can be shown.
#[derive(Debug)]
pub enum ReadInputError {
    /// The call was answered, expired or withdrawn, or was never there.
    NotHeld,
    NoInput {
        inputs: Vec<String>,
    },
    Offset {
        offset: u64,
        bytes: u64,
    },
    Io(io::Error),
}

impl fmt::Display for ReadInputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHeld => {
                f.write_str("no call is held under that id: it was answered, expired or withdrawn")
            }
            Self::NoInput { inputs } if inputs.is_empty() => f.write_str("the call has no input"),
            Self::NoInput { inputs } => {
                write!(
                    f,
                    "the call has no such input; it has: {}",
                    inputs.join(", ")
                )
            }
            Self::Offset { offset, bytes } => {
                write!(
                    f,
                    "the input has {bytes} bytes, so nothing begins at {offset}"
                )
            }
            Self::Io(error) => write!(f, "the snapshot cannot be read: {error}"),
        }
    }
}

impl std::error::Error for ReadInputError {}

#[derive(Debug)]
struct HeldInput {
    path: RelativePath,
    bytes: u64,
    sha256: Digest,
    snapshot: File,
    /// From the beginning, without a gap, on each surface.
    shown: BTreeMap<String, u64>,
}

/// By the keys of the descriptor's `filesystem.read`.
#[derive(Debug, Default)]
pub(crate) struct HeldInputs(BTreeMap<String, HeldInput>);

impl HeldInputs {
    /// Second handles of the call's snapshots; they go when the call is held no longer.
    pub(crate) fn of(call: &PreparedCall) -> io::Result<Self> {
        let held = call
            .inputs()
            .take(INPUTS_SHOWN_MAX)
            .map(|(key, grant, snapshot)| {
                let input = HeldInput {
                    path: grant.path.clone(),
                    bytes: grant.bytes,
                    sha256: grant.sha256,
                    snapshot: snapshot.try_clone()?,
                    shown: BTreeMap::new(),
                };
                Ok((key.to_owned(), input))
            });
        held.collect::<io::Result<_>>().map(Self)
    }

    /// Reads a part, which counts as shown on `surface`.
    pub(crate) fn read(
        &mut self,
        surface: &str,
        input: &str,
        offset: u64,
    ) -> Result<InputPart, ReadInputError> {
        let inputs = || self.0.keys().cloned().collect();
        if !self.0.contains_key(input) {
            return Err(ReadInputError::NoInput { inputs: inputs() });
        }
        let Some(held) = self.0.get_mut(input) else {
            return Err(ReadInputError::NoInput { inputs: Vec::new() });
        };
        if offset > held.bytes || (offset == held.bytes && offset > 0) {
            let bytes = held.bytes;
            return Err(ReadInputError::Offset { offset, bytes });
        }
        let left = usize::try_from(held.bytes - offset).unwrap_or(usize::MAX);
        let mut content = vec![0; left.min(INPUT_PART_BYTES_MAX)];
        // By position: the worker's own handle shares the file's offset.
        held.snapshot
            .read_exact_at(&mut content, offset)
            .map_err(ReadInputError::Io)?;
        let end = offset + content.len() as u64;
        let shown = held.shown.entry(surface.to_owned()).or_default();
        if offset <= *shown {
            *shown = end.max(*shown);
        }
        Ok(InputPart {
            path: held.path.clone(),
            bytes: held.bytes,
            sha256: held.sha256,
            offset,
            content,
        })
    }

    /// Every input, and how much of it `surface` has shown.
    pub(crate) fn shown(&self, surface: &str) -> Vec<InputShown> {
        let shown = self.0.iter().map(|(key, input)| InputShown {
            input: key.clone(),
            shown_bytes: input.shown.get(surface).copied().unwrap_or(0),
            bytes: input.bytes,
        });
        shown.collect()
    }
}
