//! Leases: a durable claim on one container, made before the container is, so that whoever cleans
//! up after a dead runtime knows what to look for.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use worker::TierKind;

use crate::limits::{LEASE_ID_BYTES, LEASE_ID_CHARS};

/// The label that carries the lease's id.
pub const LEASE_LABEL: &str = "symbi.lease";
/// The label that carries the uid of the lease's owner.
pub const OWNER_LABEL: &str = "symbi.owner";
/// What a leased container's name begins with; the lease's id follows.
pub const NAME_PREFIX: &str = "symbi-";

/// Keeps claims on containers.
pub trait LeaseKeeper: Send {
    /// Records a claim, durably, and charges one worker, its memory and its CPU share. Only then
    /// may a container be created.
    ///
    /// # Errors
    /// [`LeaseRefused`]: nothing is recorded or charged.
    fn take(&mut self, terms: &LeaseTerms) -> Result<Lease, LeaseRefused>;

    /// Ends a claim: the container's removal is confirmed, or the engine clearly refused to make
    /// it. A lease that is never released stays with its keeper until the container was seen and
    /// removed.
    ///
    /// # Errors
    /// [`LeaseFailed`]: the claim may still be recorded.
    fn release(&mut self, lease: Lease) -> Result<(), LeaseFailed>;
}

/// What a lease is for. No environment, argument or secret stands in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseTerms {
    pub tier: TierKind,
    /// The engine's socket.
    pub socket: PathBuf,
    /// The private folder in which the worker's own folder is named by the lease's id.
    pub staging: PathBuf,
    pub memory_mib: u64,
    pub cpu_milli: u64,
    /// How long the container may be there at most, from now.
    pub lifetime: Duration,
}

/// One claim. It is used up by its release.
#[derive(Debug, PartialEq, Eq)]
pub struct Lease {
    id: LeaseId,
}

impl Lease {
    /// A claim that its keeper has just recorded.
    #[must_use]
    pub const fn recorded(id: LeaseId) -> Self {
        Self { id }
    }

    #[must_use]
    pub const fn id(&self) -> &LeaseId {
        &self.id
    }

    /// The container's name.
    #[must_use]
    pub fn container_name(&self) -> String {
        format!("{NAME_PREFIX}{}", self.id)
    }
}

/// A file in a worker's folder that holds the id of its container, once the engine has made it.
/// Where it is there, or the folder is not, no engine makes that container any more: the folder is
/// made before the container is asked for, and removed after it and after all its processes.
pub const MADE_MARK: &str = "made";

/// A lease's name: random lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseId(String);

impl LeaseId {
    /// A new one.
    ///
    /// # Errors
    /// The operating system has no random bytes.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; LEASE_ID_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Self(
            bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        ))
    }

    /// `None` for a text that is no id.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_id = text.len() == LEASE_ID_CHARS && text.bytes().all(is_hex);
        is_id.then(|| Self(text.to_owned()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a claim was not recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseRefused {
    /// Others hold what is wanted. The reason says who holds what.
    Exhausted { reason: String },
    /// The keeper cannot be reached or cannot record.
    Unavailable { reason: String },
}

impl fmt::Display for LeaseRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exhausted { reason } => {
                write!(f, "there is no room for another worker: {reason}")
            }
            Self::Unavailable { reason } => {
                write!(f, "no lease could be recorded for a worker: {reason}")
            }
        }
    }
}

impl std::error::Error for LeaseRefused {}

/// The end of a claim could not be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseFailed {
    pub reason: String,
}

impl fmt::Display for LeaseFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the end of a lease could not be recorded: {}",
            self.reason
        )
    }
}

impl std::error::Error for LeaseFailed {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_ids_are_32_digits_and_never_the_same() {
        let (one, two) = (LeaseId::random().unwrap(), LeaseId::random().unwrap());
        assert_ne!(one, two);
        assert_eq!(LeaseId::parse(one.as_str()), Some(one.clone()));
        let short = &one.as_str()[1..];
        assert_eq!(LeaseId::parse(short), None);
        assert_eq!(LeaseId::parse(&format!("{one}0")), None);
        assert_eq!(LeaseId::parse(&format!("{short}G")), None);
    }

    #[test]
    fn a_container_is_named_by_its_lease() {
        let id = LeaseId::parse(&"a".repeat(LEASE_ID_CHARS)).unwrap();
        assert!(
            Lease::recorded(id)
                .container_name()
                .starts_with("symbi-aaaa")
        );
    }
}
