//! Checkpoints as C2SP signed notes: what signs every record.
//!
//! Formats: <https://c2sp.org/signed-note>, <https://c2sp.org/tlog-checkpoint>. Ours are a strict
//! subset: three lines of text, exactly one signature, one spelling for each value.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use model::Digest;
use serde::{Deserialize, Serialize};

use crate::key::{PublicKey, RunSigner, SIGNATURE_BYTES, hex4};
use crate::limits::NOTE_SIGNATURES_MAX;

/// The head of a tree: how many records, and what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    pub size: u64,
    pub root: Digest,
}

/// Why a checkpoint line is not one of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoteError {
    /// Not the one JSON spelling of `{"checkpoint": …}`.
    Line,
    /// Not a text of three lines, a blank line and a signature.
    Shape,
    Size,
    Root,
    /// Nobody signed it.
    Unsigned,
    SignatureLine,
    /// Signed under another name or key id than the expected key's.
    OtherKey {
        found: String,
        expected: String,
    },
    /// The signature does not fit the text.
    Signature,
}

impl fmt::Display for NoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line => f.write_str("not a checkpoint line in its one spelling"),
            Self::Shape => f.write_str("the checkpoint is not a signed note of three lines"),
            Self::Size => f.write_str("the checkpoint's size is not a plain decimal number"),
            Self::Root => f.write_str("the checkpoint's root is not 32 bytes in base64"),
            Self::Unsigned => f.write_str("the checkpoint is not signed"),
            Self::SignatureLine => f.write_str("the checkpoint's signature line is malformed"),
            Self::OtherKey { found, expected } => {
                write!(
                    f,
                    "signed by `{}`, not by `{expected}`",
                    found.escape_debug()
                )
            }
            Self::Signature => f.write_str("the signature does not fit the checkpoint"),
        }
    }
}

impl std::error::Error for NoteError {}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow)]
    checkpoint: std::borrow::Cow<'a, str>,
}

/// The checkpoint line of `checkpoint`, without its line feed. Unsigned without a signer.
pub(crate) fn checkpoint_line<'a>(
    origin: &str,
    checkpoint: &Checkpoint,
    signers: impl IntoIterator<Item = &'a RunSigner>,
) -> String {
    spelled(&checkpoint_note(origin, checkpoint, signers))
}

/// The signed note of `checkpoint`, with one signature line for each signer.
pub(crate) fn checkpoint_note<'a>(
    origin: &str,
    checkpoint: &Checkpoint,
    signers: impl IntoIterator<Item = &'a RunSigner>,
) -> String {
    let root = BASE64.encode(checkpoint.root.as_bytes());
    let text = format!("{origin}\n{}\n{root}\n", checkpoint.size);
    let mut note = format!("{text}\n");
    for signer in signers {
        let public = signer.public();
        let mut signature = public.key_id().to_vec();
        signature.extend_from_slice(&signer.sign(text.as_bytes()));
        let signature = BASE64.encode(signature);
        note.push_str(&format!("\u{2014} {} {signature}\n", public.name()));
    }
    note
}

/// `{"checkpoint":"…"}`; a note has no character that JSON must escape but its line feeds.
fn spelled(note: &str) -> String {
    format!("{{\"checkpoint\":\"{}\"}}", note.replace('\n', "\\n"))
}

/// A checkpoint line that was read; its signature is not checked yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) origin: String,
    pub(crate) checkpoint: Checkpoint,
    text: String,
    /// None of an unsigned note, two where a key gives way to another.
    signatures: Vec<NoteSignature>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct NoteSignature {
    name: String,
    key_id: [u8; 4],
    bytes: [u8; SIGNATURE_BYTES],
}

impl Note {
    /// Reads a checkpoint line (without its line feed) with at most one signature, strictly.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, NoteError> {
        let note = Self::parse_cosigned(line)?;
        match note.signatures.len() {
            ..2 => Ok(note),
            _ => Err(NoteError::SignatureLine),
        }
    }

    /// The same with up to two signatures.
    pub(crate) fn parse_cosigned(line: &[u8]) -> Result<Self, NoteError> {
        let parsed: Line<'_> = serde_json::from_slice(line).map_err(|_| NoteError::Line)?;
        let note = parsed.checkpoint.as_ref();
        match spelled(note).as_bytes() == line {
            true => Self::parse_note(note),
            false => Err(NoteError::Line),
        }
    }

    /// Reads the note itself.
    pub(crate) fn parse_note(note: &str) -> Result<Self, NoteError> {
        let (head, signatures) = note.split_once("\n\n").ok_or(NoteError::Shape)?;
        let mut lines = head.split('\n');
        let (Some(origin), Some(size), Some(root), None) =
            (lines.next(), lines.next(), lines.next(), lines.next())
        else {
            return Err(NoteError::Shape);
        };
        if origin.is_empty() {
            return Err(NoteError::Shape);
        }
        let checkpoint = Checkpoint {
            size: plain_decimal(size).ok_or(NoteError::Size)?,
            root: Digest::from_bytes(exact_base64(root).ok_or(NoteError::Root)?),
        };
        Ok(Self {
            origin: origin.to_owned(),
            checkpoint,
            text: format!("{head}\n"),
            signatures: parse_signatures(signatures)?,
        })
    }

    /// The note as it was written.
    pub(crate) fn to_text(&self) -> String {
        let mut note = format!("{}\n", self.text);
        for signature in &self.signatures {
            let mut bytes = signature.key_id.to_vec();
            bytes.extend_from_slice(&signature.bytes);
            let encoded = BASE64.encode(bytes);
            note.push_str(&format!("\u{2014} {} {encoded}\n", signature.name));
        }
        note
    }

    /// `<name>+<key id>` of who claims to have signed; `None` for an unsigned note.
    pub(crate) fn signed_by(&self) -> Option<String> {
        self.signatures
            .first()
            .map(|s| format!("{}+{}", s.name, hex4(s.key_id)))
    }

    /// The same of the last signature: where a key gives way to another, the new one's.
    pub(crate) fn last_signer(&self) -> Option<String> {
        self.signatures
            .last()
            .map(|s| format!("{}+{}", s.name, hex4(s.key_id)))
    }

    /// Checks the signature over the exact text.
    pub(crate) fn verify(&self, key: &PublicKey) -> Result<(), NoteError> {
        let of_key = |it: &&NoteSignature| it.name == key.name() && it.key_id == key.key_id();
        let Some(signature) = self.signatures.iter().find(of_key) else {
            return Err(NoteError::OtherKey {
                found: self.signed_by().ok_or(NoteError::Unsigned)?,
                expected: format!("{}+{}", key.name(), hex4(key.key_id())),
            });
        };
        match key.verifies(self.text.as_bytes(), &signature.bytes) {
            true => Ok(()),
            false => Err(NoteError::Signature),
        }
    }
}

fn parse_signatures(mut block: &str) -> Result<Vec<NoteSignature>, NoteError> {
    let mut signatures = Vec::new();
    while !block.is_empty() {
        let (line, rest) = block.split_once('\n').ok_or(NoteError::SignatureLine)?;
        let signature = parse_signature(line).ok_or(NoteError::SignatureLine)?;
        if signatures.len() >= NOTE_SIGNATURES_MAX {
            return Err(NoteError::SignatureLine);
        }
        signatures.push(signature);
        block = rest;
    }
    Ok(signatures)
}

fn parse_signature(line: &str) -> Option<NoteSignature> {
    let (name, encoded) = line.strip_prefix("\u{2014} ")?.split_once(' ')?;
    let bytes: [u8; 4 + SIGNATURE_BYTES] = exact_base64(encoded)?;
    let (key_id, bytes) = bytes.split_first_chunk::<4>()?;
    if name.is_empty() || name.contains('+') {
        return None;
    }
    Some(NoteSignature {
        name: name.to_owned(),
        key_id: *key_id,
        bytes: bytes.try_into().ok()?,
    })
}

fn plain_decimal(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

fn exact_base64<const N: usize>(text: &str) -> Option<[u8; N]> {
    let bytes: [u8; N] = BASE64.decode(text).ok()?.try_into().ok()?;
    (BASE64.encode(bytes) == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::ProjectKey;
    use crate::tree::{CompactRange, leaf};

    /// Made with another Ed25519 implementation from the seed of 32 bytes 0x01.
    const LINE: &str = "{\"checkpoint\":\"symbi.local/34750f98bd59fcfc/\
        01890000-0000-7000-8000-000000000000\\n1\\nYJ9uNtJAVYUYjVz9dh9AfHzEan0/MUyIJwRp3eMV/NE=\\n\
        \\n\u{2014} symbi.local/34750f98bd59fcfc j70LK+JbPqlEzhkAxN/aWoTc3+GeMMT2UgBNDbbMoer8xRl\
        G0LCs39z5e/+Ad42OPbbnbqc0/MR041zaEMEpZ2lTzQM=\\n\"}";
    const VKEY: &str =
        "symbi.local/34750f98bd59fcfc+8fbd0b2b+AYqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c";

    #[test]
    fn a_checkpoint_line_matches_a_vector_made_by_hand() {
        let key = ProjectKey::from_seed(&[1; 32]);
        assert_eq!(key.vkey(), VKEY);
        let mut range = CompactRange::default();
        range.push(leaf(b"abc"));
        let head = Checkpoint {
            size: 1,
            root: range.root(),
        };
        let origin = format!(
            "{}/01890000-0000-7000-8000-000000000000",
            key.public().name()
        );
        assert_eq!(checkpoint_line(&origin, &head, Some(&key.signer())), LINE);
        let note = Note::parse(LINE.as_bytes()).unwrap();
        assert_eq!(
            (note.checkpoint, note.origin.as_str()),
            (head, origin.as_str())
        );
        assert_eq!(note.verify(key.public()), Ok(()));
        assert_eq!(note.verify(&PublicKey::parse(VKEY).unwrap()), Ok(()));
    }

    #[test]
    fn a_line_has_one_spelling() {
        for (from, to) in [
            ("{\"", "{ \""),
            ("\\n1\\n", "\\n+1\\n"),
            ("\\n1\\n", "\\n1\\n\\n"),
            ("\\n1\\n", "\\n\\u0031\\n"),
            ("NE=", "NF="),
            ("QM=", "QN="),
            ("\u{2014}", "\\u2014"),
            ("\u{2014}", "-"),
            ("=\\n\"}", "=\\n\u{2014} a b\\n\"}"),
            ("=\\n\"}", "=\"}"),
        ] {
            let line = LINE.replacen(from, to, 1);
            assert_ne!(line, LINE, "{from}");
            assert!(Note::parse(line.as_bytes()).is_err(), "{from} to {to}");
        }
    }
}
