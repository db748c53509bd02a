//! The project's signing key, and the public key that strangers verify with.

use std::ffi::OsStr;
use std::fmt;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use model::{Digest, Hasher};

use crate::folder::{PrivateFolder, StorageError};
use crate::limits::KEY_FILE_BYTES_MAX;

pub(crate) const SIGNATURE_BYTES: usize = 64;
const KEY_BYTES: usize = 32;
/// The algorithm byte of Ed25519 in a signed note's key.
const ED25519: u8 = 1;
const PRIVATE_PREFIX: &str = "PRIVATE+KEY";

/// Why a key could not be had.
#[derive(Debug)]
pub enum KeyError {
    Storage(StorageError),
    /// The key file is not in the format that this program writes.
    Format {
        path: String,
    },
    /// The operating system gave no randomness.
    Random(getrandom::Error),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Storage(_) => f.write_str("the signing key cannot be used"),
            Self::Format { path } => write!(f, "`{path}` does not hold a signing key of ours"),
            Self::Random(error) => write!(f, "no randomness for a new signing key: {error}"),
        }
    }
}

impl std::error::Error for KeyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Storage(error) => Some(error),
            Self::Format { .. } | Self::Random(_) => None,
        }
    }
}

impl From<StorageError> for KeyError {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

/// Why a text is not a public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublicKeyError {
    /// Neither a note verifier key nor 64 hexadecimal digits.
    Format,
    /// The name or the key id does not belong to the key.
    NameMismatch { found: String, expected: String },
    /// Not a point of the curve, or a weak one.
    Weak,
}

impl fmt::Display for PublicKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format => f.write_str(
                "a public key is a verifier key (`name+id+base64`) or 64 hexadecimal digits",
            ),
            Self::NameMismatch { found, expected } => write!(
                f,
                "the verifier key starts with `{}`, but its key's name and id are `{expected}`",
                found.escape_debug()
            ),
            Self::Weak => f.write_str("the public key is not a usable Ed25519 key"),
        }
    }
}

impl std::error::Error for PublicKeyError {}

/// An Ed25519 public key with the name that its notes carry.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    key: VerifyingKey,
    name: Arc<str>,
    id: [u8; 4],
}

impl PublicKey {
    fn new(key: VerifyingKey) -> Self {
        let fingerprint = Digest::of(key.as_bytes()).to_hex();
        let name = format!("symbi.local/{}", fingerprint.get(..16).unwrap_or_default());
        let id = key_id(&name, key.as_bytes());
        Self {
            key,
            name: name.into(),
            id,
        }
    }

    /// Reads a note verifier key, 64 hexadecimal digits, or the content of a file with either.
    ///
    /// # Errors
    /// [`PublicKeyError`] says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, PublicKeyError> {
        let text = text.trim();
        if let Ok(bytes) = text.to_ascii_lowercase().parse::<Digest>() {
            return Self::from_bytes(bytes.as_bytes());
        }
        let mut parts = text.splitn(3, '+');
        let (Some(name), Some(id), Some(encoded)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(PublicKeyError::Format);
        };
        let key = decode_key(encoded).ok_or(PublicKeyError::Format)?;
        let key = Self::from_bytes(&key)?;
        let (found, expected) = (
            format!("{name}+{id}"),
            format!("{}+{}", key.name, hex4(key.id)),
        );
        match found == expected {
            true => Ok(key),
            false => Err(PublicKeyError::NameMismatch { found, expected }),
        }
    }

    /// The key of 32 raw bytes.
    ///
    /// # Errors
    /// [`PublicKeyError::Weak`] for bytes that are no key to rely on.
    pub fn from_bytes(bytes: &[u8; KEY_BYTES]) -> Result<Self, PublicKeyError> {
        match VerifyingKey::from_bytes(bytes) {
            Ok(key) if !key.is_weak() => Ok(Self::new(key)),
            _ => Err(PublicKeyError::Weak),
        }
    }

    /// The name that stands in every note of this key: `symbi.local/<16 hex digits>`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The key id of a signed note.
    #[must_use]
    pub const fn key_id(&self) -> [u8; 4] {
        self.id
    }

    /// The note verifier key: `name+id+base64(0x01 ‖ key)`.
    #[must_use]
    pub fn vkey(&self) -> String {
        format!(
            "{}+{}+{}",
            self.name,
            hex4(self.id),
            encode_key(self.key.as_bytes())
        )
    }

    /// The key as 64 hexadecimal digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        Digest::from_bytes(*self.key.as_bytes()).to_hex()
    }

    /// SHA-256 of the key: what two people compare.
    #[must_use]
    pub fn fingerprint(&self) -> Digest {
        Digest::of(self.key.as_bytes())
    }

    pub(crate) fn verifies(&self, text: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool {
        self.key
            .verify_strict(text, &Signature::from_bytes(signature))
            .is_ok()
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.vkey())
    }
}

/// What signs the checkpoints of one run. Cloning shares the key.
#[derive(Clone)]
pub struct RunSigner {
    key: Arc<SigningKey>,
    public: PublicKey,
}

impl RunSigner {
    #[must_use]
    pub const fn public(&self) -> &PublicKey {
        &self.public
    }

    pub(crate) fn sign(&self, text: &[u8]) -> [u8; SIGNATURE_BYTES] {
        self.key.sign(text).to_bytes()
    }
}

impl fmt::Debug for RunSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunSigner({})", self.public.name())
    }
}

/// The key of one project. It signs all its runs and its ledger.
#[derive(Debug, Clone)]
pub struct ProjectKey {
    signer: RunSigner,
}

impl ProjectKey {
    /// The key in the file `path` (0600, in a folder 0700, both the caller's), made if absent.
    /// Of several processes that create it at once, all get the one key that came first.
    ///
    /// # Errors
    /// [`KeyError`]; a file that is a link, another user's or open to others is refused.
    pub fn load_or_create(path: &Path) -> Result<Self, KeyError> {
        let (folder, name) = PrivateFolder::create_for(path)?;
        if !folder.contains(&name)? {
            let key = Self::generate()?;
            folder.create_whole(&name, |file| file.write_all(key.private_text().as_bytes()))?;
        }
        Self::load_from(&folder, &name)
    }

    /// The key in the file `path`, which must be there.
    ///
    /// # Errors
    /// [`KeyError`] as for [`ProjectKey::load_or_create`].
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let (folder, name) = PrivateFolder::open_for(path)?;
        Self::load_from(&folder, &name)
    }

    fn load_from(folder: &PrivateFolder, name: &OsStr) -> Result<Self, KeyError> {
        let file = folder.open_file(name)?;
        let mut text = String::new();
        let limit = KEY_FILE_BYTES_MAX as u64 + 1;
        let format = || KeyError::Format {
            path: folder.shown(name),
        };
        file.take(limit)
            .read_to_string(&mut text)
            .map_err(|_| format())?;
        Self::from_private_text(&text).ok_or_else(format)
    }

    /// A fresh key that no file holds.
    ///
    /// # Errors
    /// [`KeyError::Random`].
    pub fn generate() -> Result<Self, KeyError> {
        let mut seed = [0; KEY_BYTES];
        getrandom::fill(&mut seed).map_err(KeyError::Random)?;
        Ok(Self::from_seed(&seed))
    }

    /// The key of a known seed: for programs that keep their secrets elsewhere, and for tests.
    #[must_use]
    pub fn from_seed(seed: &[u8; KEY_BYTES]) -> Self {
        let key = SigningKey::from_bytes(seed);
        let public = PublicKey::new(key.verifying_key());
        Self {
            signer: RunSigner {
                key: Arc::new(key),
                public,
            },
        }
    }

    #[must_use]
    pub const fn public(&self) -> &PublicKey {
        self.signer.public()
    }

    /// The verifier key as text, for auditors.
    #[must_use]
    pub fn vkey(&self) -> String {
        self.public().vkey()
    }

    #[must_use]
    pub fn signer(&self) -> RunSigner {
        self.signer.clone()
    }

    /// The form of Go's `sumdb/note`: `PRIVATE+KEY+name+id+base64(0x01 ‖ seed)`.
    fn private_text(&self) -> String {
        let public = self.public();
        let seed = encode_key(self.signer.key.as_bytes());
        format!(
            "{PRIVATE_PREFIX}+{}+{}+{seed}\n",
            public.name(),
            hex4(public.key_id())
        )
    }

    fn from_private_text(text: &str) -> Option<Self> {
        // Base64 itself may contain `+`: the seed is all that follows the fourth one.
        let encoded = text.strip_suffix('\n')?.splitn(5, '+').nth(4)?;
        let key = Self::from_seed(&decode_key(encoded)?);
        (key.private_text() == text).then_some(key)
    }
}

/// The first four bytes of SHA-256(name ‖ 0x0A ‖ 0x01 ‖ key), as C2SP signed-note says.
fn key_id(name: &str, key: &[u8; KEY_BYTES]) -> [u8; 4] {
    let mut hasher = Hasher::new();
    hasher.update(name.as_bytes());
    hasher.update(b"\n");
    hasher.update(&[ED25519]);
    hasher.update(key);
    let [a, b, c, d, ..] = *hasher.finish().as_bytes();
    [a, b, c, d]
}

fn encode_key(key: &[u8; KEY_BYTES]) -> String {
    let mut bytes = Vec::with_capacity(KEY_BYTES + 1);
    bytes.push(ED25519);
    bytes.extend_from_slice(key);
    BASE64.encode(bytes)
}

fn decode_key(encoded: &str) -> Option<[u8; KEY_BYTES]> {
    let bytes = BASE64.decode(encoded).ok()?;
    match bytes.split_first() {
        Some((&ED25519, key)) => key.try_into().ok(),
        _ => None,
    }
}

pub(crate) fn hex4(bytes: [u8; 4]) -> String {
    format!("{:08x}", u32::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_id_and_signature_match_the_example_of_gos_note_package() {
        // golang.org/x/mod/sumdb/note, package example.
        let encoded = "ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
        let key = decode_key(encoded).unwrap();
        assert_eq!(hex4(key_id("PeterNeumann", &key)), "c74f20a3");
        assert_eq!(encode_key(&key), encoded);
        let text = "If you think cryptography is the answer to your problem,\n\
                    then you don't know what your problem is.\n";
        let signed = "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqd\
                      ngotpRZb6KE6RyyBwJnAM=";
        let bytes = BASE64.decode(signed).unwrap();
        assert_eq!(bytes[..4], key_id("PeterNeumann", &key));
        let public = PublicKey::from_bytes(&key).unwrap();
        assert!(public.verifies(text.as_bytes(), bytes[4..].try_into().unwrap()));
    }

    #[test]
    fn a_private_text_is_read_in_its_one_spelling() {
        for seed in 0..64 {
            let key = ProjectKey::from_seed(&[seed * 4 + 3; 32]);
            let text = key.private_text();
            let read = ProjectKey::from_private_text(&text).unwrap();
            assert_eq!(read.vkey(), key.vkey());
            for bad in [
                text.trim_end(),
                &format!("{text}\n"),
                &text.replace("symbi", "other"),
            ] {
                assert!(ProjectKey::from_private_text(bad).is_none(), "{bad:?}");
            }
        }
    }
}
