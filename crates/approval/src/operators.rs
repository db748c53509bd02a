//! Operators that sign their yes: SSH keys, and signatures over the text that was shown.
//!
//! The format is OpenSSH's `PROTOCOL.sshsig`, as `ssh-keygen -Y sign` and ssh-agent make it. A
//! signature counts for its operator, whichever of their keys made it.
//!
//! A security key's signature also says whether somebody touched it, which must be so, and how
//! often it has signed (OpenSSH's `PROTOCOL.u2f`), which must grow: a copied key shows.

use std::collections::BTreeMap;
use std::fmt;

use ssh_key::{Algorithm, EcdsaCurve, HashAlg, PublicKey, SshSig};

use crate::answer::HeldId;
use crate::limits::{
    OPERATOR_BYTES_MAX, OPERATOR_KEYS_MAX, OPERATORS_MAX, PUBLIC_KEY_BYTES_MAX, REQUIRE_MAX,
    SIGNATURE_BYTES_MAX,
};
use crate::review::Review;

/// The namespace of every signature: what it was made for, so that it serves nothing else.
pub const NAMESPACE: &str = "symbi-approval-v1";

/// What may sign, for messages.
const KINDS: &str = "`ssh-ed25519`, `ecdsa-sha2-nistp256` and their security key forms \
                     (`sk-ssh-ed25519@openssh.com`, `sk-ecdsa-sha2-nistp256@openssh.com`) are \
                     accepted, certificates are not";
/// Flag of a security key's signature: somebody touched it.
const USER_PRESENT: u8 = 1;

/// Who may sign, and how many must.
#[derive(Debug, Clone)]
pub struct Operators {
    require: usize,
    keys: Vec<(String, PublicKey)>,
}

/// Why the configured operators cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperatorsError {
    TooMany {
        max: usize,
    },
    Name {
        max: usize,
    },
    /// An operator without a key, or with too many.
    Keys {
        operator: String,
        count: usize,
        max: usize,
    },
    /// No public key in OpenSSH's format.
    NotAKey {
        operator: String,
    },
    Algorithm {
        operator: String,
        algorithm: String,
    },
    /// One key of two operators would count twice.
    Shared {
        operator: String,
        other: String,
    },
    /// More operators are demanded than there are.
    Require {
        require: usize,
        operators: usize,
    },
}

impl fmt::Display for OperatorsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { max } => write!(f, "there are more than {max} operators"),
            Self::Name { max } => write!(
                f,
                "an operator's name has 1 to {max} ASCII characters without spaces"
            ),
            Self::Keys {
                operator,
                count,
                max,
            } => write!(
                f,
                "the operator `{operator}` has {count} keys, and must have 1 to {max}"
            ),
            Self::NotAKey { operator } => write!(
                f,
                "a key of the operator `{operator}` is no public key as `ssh-keygen` writes it \
                 (`ssh-ed25519 AAAA…`)"
            ),
            Self::Algorithm {
                operator,
                algorithm,
            } => write!(
                f,
                "a key of the operator `{operator}` is of the kind `{algorithm}`; {KINDS}"
            ),
            Self::Shared { operator, other } => write!(
                f,
                "the operators `{operator}` and `{other}` have the same key, so that one person \
                 would count twice"
            ),
            Self::Require { require, operators } => write!(
                f,
                "`require` is {require}, and {operators} operators are named; it is at least 1 and at \
                 most {REQUIRE_MAX}"
            ),
        }
    }
}

impl std::error::Error for OperatorsError {}

/// Why a signature does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignatureError {
    /// No armored SSH signature, or one with fields that no version 1 has.
    Malformed,
    TooLarge {
        max: usize,
    },
    Namespace {
        found: String,
    },
    Algorithm {
        found: String,
    },
    /// The key is no operator's.
    Unknown {
        fingerprint: String,
    },
    /// The operator's key did not make this signature over this text.
    OtherText {
        operator: String,
    },
    /// A security key that nobody touched.
    NotTouched {
        operator: String,
    },
    /// A security key that has signed more often than this signature says.
    Counter {
        operator: String,
        last: u32,
        found: u32,
    },
}

impl fmt::Display for SignatureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str(
                "this is no SSH signature of version 1 as `ssh-keygen -Y sign` writes it",
            ),
            Self::TooLarge { max } => write!(f, "the signature has more than {max} bytes"),
            Self::Namespace { found } => write!(
                f,
                "the signature is for the namespace `{found}`, not for `{NAMESPACE}`"
            ),
            Self::Algorithm { found } => {
                write!(f, "the signature is of the kind `{found}`; {KINDS}")
            }
            Self::Unknown { fingerprint } => {
                write!(
                    f,
                    "the key {fingerprint} belongs to no operator of the project"
                )
            }
            Self::OtherText { operator } => write!(
                f,
                "the signature of `{operator}` is not over this review: it was made over another \
                 text, or changed"
            ),
            Self::NotTouched { operator } => write!(
                f,
                "the security key of `{operator}` signed without being touched"
            ),
            Self::Counter {
                operator,
                last,
                found,
            } => write!(
                f,
                "the security key of `{operator}` counts {found} signatures, and counted {last} \
                 before: there may be a copy of it"
            ),
        }
    }
}

impl std::error::Error for SignatureError {}

/// A signature that counts. Only [`Operators::verify`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    operator: String,
    fingerprint: String,
    armored: String,
    /// Of a security key.
    counter: Option<u32>,
}

impl Signed {
    #[must_use]
    pub fn operator(&self) -> &str {
        &self.operator
    }

    /// `SHA256:…` of the key.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The signature itself, for the record.
    #[must_use]
    pub fn armored(&self) -> &str {
        &self.armored
    }
}

impl Operators {
    /// Reads each operator's public keys (one line each, as in an `authorized_keys` file without
    /// options).
    ///
    /// # Errors
    /// [`OperatorsError`]
    pub fn new(
        operators: &BTreeMap<String, Vec<String>>,
        require: u64,
    ) -> Result<Self, OperatorsError> {
        if operators.len() > OPERATORS_MAX {
            return Err(OperatorsError::TooMany { max: OPERATORS_MAX });
        }
        let require = usize::try_from(require).unwrap_or(usize::MAX);
        if require == 0 || require > operators.len().min(REQUIRE_MAX) {
            return Err(OperatorsError::Require {
                require,
                operators: operators.len(),
            });
        }
        let mut keys: Vec<(String, PublicKey)> = Vec::new();
        for (operator, texts) in operators {
            let printable = operator.bytes().all(|byte| byte.is_ascii_graphic());
            if operator.is_empty() || operator.len() > OPERATOR_BYTES_MAX || !printable {
                return Err(OperatorsError::Name {
                    max: OPERATOR_BYTES_MAX,
                });
            }
            if texts.is_empty() || texts.len() > OPERATOR_KEYS_MAX {
                return Err(OperatorsError::Keys {
                    operator: operator.clone(),
                    count: texts.len(),
                    max: OPERATOR_KEYS_MAX,
                });
            }
            for text in texts {
                let key = read_key(operator, text)?;
                let same = keys.iter().find(|(_, it)| it.key_data() == key.key_data());
                if let Some((other, _)) = same.filter(|(other, _)| other != operator) {
                    return Err(OperatorsError::Shared {
                        operator: other.clone(),
                        other: operator.clone(),
                    });
                }
                keys.push((operator.clone(), key));
            }
        }
        Ok(Self { require, keys })
    }

    /// How many operators must sign.
    #[must_use]
    pub const fn require(&self) -> usize {
        self.require
    }

    /// Checks an armored signature over `review`.
    ///
    /// # Errors
    /// [`SignatureError`]
    pub fn verify(&self, review: &Review, armored: &str) -> Result<Signed, SignatureError> {
        if armored.len() > SIGNATURE_BYTES_MAX {
            return Err(SignatureError::TooLarge {
                max: SIGNATURE_BYTES_MAX,
            });
        }
        let signature =
            SshSig::from_pem(armored.trim_ascii()).map_err(|_| SignatureError::Malformed)?;
        if signature.version() != SshSig::VERSION || !signature.reserved().is_empty() {
            return Err(SignatureError::Malformed);
        }
        for algorithm in [signature.public_key().algorithm(), signature.algorithm()] {
            if !accepted(&algorithm) {
                let found = model::Untrusted::new(algorithm.as_str()).escaped();
                return Err(SignatureError::Algorithm { found });
            }
        }
        if signature.namespace() != NAMESPACE {
            let found = model::Untrusted::new(signature.namespace()).escaped();
            return Err(SignatureError::Namespace { found });
        }
        let fingerprint = signature
            .public_key()
            .fingerprint(HashAlg::Sha256)
            .to_string();
        let of_key = |key: &PublicKey| key.key_data() == signature.public_key();
        let Some((operator, key)) = self.keys.iter().find(|(_, key)| of_key(key)) else {
            return Err(SignatureError::Unknown { fingerprint });
        };
        key.verify(NAMESPACE, review.text().as_bytes(), &signature)
            .map_err(|_| SignatureError::OtherText {
                operator: operator.clone(),
            })?;
        let touch = touch_of(&signature);
        if touch.is_some_and(|(flags, _)| flags & USER_PRESENT == 0) {
            return Err(SignatureError::NotTouched {
                operator: operator.clone(),
            });
        }
        Ok(Signed {
            operator: operator.clone(),
            counter: touch.map(|(_, counter)| counter),
            fingerprint,
            armored: armored.trim_ascii().to_owned(),
        })
    }
}

fn accepted(algorithm: &Algorithm) -> bool {
    matches!(
        algorithm,
        Algorithm::Ed25519
            | Algorithm::SkEd25519
            | Algorithm::SkEcdsaSha2NistP256
            | Algorithm::Ecdsa {
                curve: EcdsaCurve::NistP256
            }
    )
}

/// Flags and counter at the end of a security key's signature.
fn touch_of(signature: &SshSig) -> Option<(u8, u32)> {
    match signature.algorithm() {
        Algorithm::SkEd25519 | Algorithm::SkEcdsaSha2NistP256 => {
            let (_, [flags, counter @ ..]) = signature.signature_bytes().split_last_chunk::<5>()?;
            Some((*flags, u32::from_be_bytes(*counter)))
        }
        _ => None,
    }
}

fn read_key(operator: &str, text: &str) -> Result<PublicKey, OperatorsError> {
    let not_a_key = || OperatorsError::NotAKey {
        operator: operator.to_owned(),
    };
    if text.len() > PUBLIC_KEY_BYTES_MAX || text.contains(['\n', '\r']) {
        return Err(not_a_key());
    }
    let key = PublicKey::from_openssh(text.trim_ascii()).map_err(|_| not_a_key())?;
    if !accepted(&key.algorithm()) {
        return Err(OperatorsError::Algorithm {
            operator: operator.to_owned(),
            algorithm: model::Untrusted::new(key.algorithm().as_str()).escaped(),
        });
    }
    Ok(key)
}

/// The signatures so far under one held call.
#[derive(Debug, Default)]
pub struct Votes {
    held_id: Option<HeldId>,
    signed: BTreeMap<String, Signed>,
    /// The last count of each security key that signed in this run, by fingerprint.
    counters: BTreeMap<String, (u32, String)>,
}

/// What a signature came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tally {
    /// Enough operators have signed: these.
    Enough(Vec<Signed>),
    /// More must sign.
    More { have: usize, require: usize },
}

impl Votes {
    /// Counts a signature under `held_id`. Those under another held call are forgotten: calls
    /// are served one after the other.
    ///
    /// # Errors
    /// [`SignatureError::Counter`]
    pub fn add(
        &mut self,
        held_id: &HeldId,
        signed: Signed,
        operators: &Operators,
    ) -> Result<Tally, SignatureError> {
        self.check_counter(&signed)?;
        if self.held_id.as_ref() != Some(held_id) {
            self.signed.clear();
            self.held_id = Some(held_id.clone());
        }
        self.signed.insert(signed.operator.clone(), signed);
        if self.signed.len() >= operators.require {
            Ok(Tally::Enough(self.signed.values().cloned().collect()))
        } else {
            Ok(Tally::More {
                have: self.signed.len(),
                require: operators.require,
            })
        }
    }

    /// A security key without a counter says 0, always; the same signature again is no new one.
    fn check_counter(&mut self, signed: &Signed) -> Result<(), SignatureError> {
        let Some(found) = signed.counter else {
            return Ok(());
        };
        let seen = (found, signed.armored.clone());
        let last = self.counters.insert(signed.fingerprint.clone(), seen);
        match last {
            Some((last, armored)) if (last, found) != (0, 0) && found <= last => {
                if armored == signed.armored {
                    return Ok(());
                }
                let operator = signed.operator.clone();
                let fingerprint = signed.fingerprint.clone();
                self.counters.insert(fingerprint, (last, armored));
                Err(SignatureError::Counter {
                    operator,
                    last,
                    found,
                })
            }
            _ => Ok(()),
        }
    }
}
